"""Renew what the README shows: what its code prints, its figure, its two tables from docs/theory/benchmark_tables.md.

    python -m benchmarks.readme

A block of text below a block of Python is what the latter prints; tables stand between comments.
"""

import contextlib
import io
import re
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs" / "figures" / "readme.png"
BLOCKS = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", flags=re.DOTALL | re.MULTILINE)
TABLES = re.compile(r"(<!-- (\w+): [^>]* -->\n\n)(?:[^<]*\n)?(<!-- end -->)")

OURS = "EP-AUC, gamma by the mean score"
PEERS = ("LogisticRegression", "XGBRanker rank:pairwise")
OURS_CENSORED, PEERS_CENSORED = "EP, gamma by cross-validation", ("Cox, ridge", "XGBoost survival:cox")


def run(readme):
    """The README with what its blocks print now. Figures stay open; files go to a folder that does not."""
    names = {}

    def renewed(found):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(found[1], "README.md", "exec"), names)
        lines = "\n".join(line.rstrip() for line in printed.getvalue().splitlines())
        return f"```python\n{found[1]}```\n" + (f"\n```text\n{lines}\n```\n" if lines else "")

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return BLOCKS.sub(renewed, readme)


def with_tables(readme, page):
    """The README with the tables of a page of benchmarks."""
    tables = {"engines": engines(page), "learners": learners(page)}
    return TABLES.sub(lambda found: f"{found[1]}{tables[found[2]]}\n{found[3]}", readme)


def part(page, title):
    """The text below a heading, up to the next of its level."""
    found = re.search(rf"^(##+) {re.escape(title)}.*?\n(.*?)(?=^\1 |\Z)", page, flags=re.DOTALL | re.MULTILINE)
    return found[2] if found else ""


def rows(text):
    """Cells of the rows of tables, but for the lines below headings."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not re.fullmatch(r"[|:\- ]+", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def engines(page):
    """CPU seconds and log Z on Pima, for each engine."""
    ep, smc = part(page, "Expectation propagation"), part(page, "Tempering SMC")
    milliseconds = {row[0]: row[1] for row in rows(part(ep, "Small fits"))}["Pima, 532 by 7"]
    evidence = {row[0]: row[1] for row in rows(part(ep, "Pima, gamma = n"))}["log Z: EP"]
    sampled = {row[0]: (row[2], row[3]) for row in rows(part(smc, "Pima"))}
    found = [
        (
            "`pm.fit(method=pac.EP())`",
            "scores affine in Gaussian variables: linear, Gaussian processes, hierarchies; choosing gamma; many rows",
            f"{float(milliseconds) / 1000:.2f}",
            f"{float(evidence):.2f}, approximate",
        ),
        (
            "`pm.sample(step=pac.TemperingSMC(start=approx))`",
            "the same models, where draws and evidence must be exact",
            *sampled["from EP"],
        ),
        (
            "`pm.sample(step=pac.TemperingSMC())`",
            "any continuous prior, any score: learned scales, neural nets, a partial AUC",
            *sampled["from the prior"],
        ),
        ("`pm.sample_smc()`, PyMC's own", "for comparison", *sampled["pm.sample_smc, IMH"]),
    ]
    head = "| engine | when | CPU s | log Z (sd over runs) |\n|---|---|---:|---:|\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in found)


def learners(page):
    """Held-out AUC, or concordance of censored times, and CPU seconds: ours, and those asked otherwise."""
    lines, seconds = [], [[], [], []]
    for title, ours, peers in (("Held-out AUC", OURS, PEERS), ("Censored times", OURS_CENSORED, PEERS_CENSORED)):
        found = {}
        for row in rows(part(page, title)):
            if len(row) == 6 and row[1] in (ours, *peers):
                found.setdefault(row[0], {})[row[1]] = row
        against = 4 if title == "Held-out AUC" else 3  # ours minus the learner
        for data, by_learner in found.items():
            cells = []
            for place, name in enumerate((ours, *peers)):
                _, _, value, *_, cpu = row = by_learner[name]
                seconds[place].append(float(cpu))
                differs = name != ours and row[against].startswith("**")
                cells.append(f"{value} ({'worse' if row[against][2] == '+' else 'better'})" if differs else value)
            lines.append(f"| {data} | {' | '.join(cells)} |\n")
    spans = [f"{min(each):.1f} to {max(each):.1f}" for each in seconds]
    head = "| held out | EP, linear | logistic regression / Cox | XGBRanker / XGBoost `survival:cox` |\n"
    head += "|---|---:|---:|---:|\n"
    return head + "".join(lines) + f"| CPU s, with the choice of hyper-parameters | {' | '.join(spans)} |\n"


def main():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    path, page = ROOT / "README.md", (ROOT / "docs" / "theory" / "benchmark_tables.md").read_text()
    path.write_text(run(with_tables(path.read_text(), page)))
    plt.gcf().savefig(FIGURE, dpi=100)


if __name__ == "__main__":
    main()
