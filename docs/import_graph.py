"""The import graph of docs/develop/architecture.md, drawn from the source: which part imports which.

python docs/import_graph.py          # print it
python docs/import_graph.py --write  # put it into the page
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "develop" / "architecture.md"
LAYERS = {
    "arrays: NumPy and numba": [
        "numerics",
        "interrupt",
        "theorems",
        "comparison",
        "problem",
        "datasets",
        "ep",
        "smc",
        "cluster",
        "fitting",
        "tune",
        "array_result",
        "arrays",
    ],
    "PyMC": ["model"],
    "people": ["analysis", "certify", "estimator", "results", "self_check"],
}
BEGIN, END = "<!-- import graph: python docs/import_graph.py --write -->", "<!-- end of import graph -->"


def edges():
    """(importing part, imported part), each a folder or module of the package."""
    found = set()
    for file in sorted([*(ROOT / "pymc_pacauc").rglob("*.py"), *(ROOT / "pymc_pacauc").glob("[!_]*.pyi")]):
        part = file.relative_to(ROOT / "pymc_pacauc").parts[0].partition(".")[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom):
                continue
            module = f"pymc_pacauc.{node.module}" if node.level == 1 else node.module or ""
            if module.startswith("pymc_pacauc.") and (other := module.split(".")[1]) != part:
                found.add((part, other))
    return sorted(found)


def drawing():
    lines = ["| layer | part | imports |", "|---|---|---|"]
    found = edges()
    for layer, parts in LAYERS.items():
        for part in parts:
            imported = [name for importing, name in found if importing == part]
            lines.append(f"| {layer} | `{part}` | {', '.join(imported)} |")
    return "\n".join(lines)


def renewed(text):
    """The page with the graph as it is now."""
    return re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", f"{BEGIN}\n{drawing()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(renewed(PAGE.read_text()))
    else:
        print(drawing())
