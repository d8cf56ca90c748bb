"""Tables on the pages are what the benchmarks beside them printed: one file holds those, and pages show it."""

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("benchmarks.measured", reason="a checkout has benchmarks and pages")
from benchmarks.measured import BLOCK, DOCS, kept, pages, tables_of, wanted

BLOCKS = [(path, block) for path in pages() for block in BLOCK.finditer(path.read_text(encoding="utf-8"))]
WRITTEN_BY_SCRIPTS = {
    *("benchmarks.md", "benchmark_tables.md"),
    *("what_each_part_buys.md", "reliability.md", "reproduction.md"),
}
# The turned row of a table elsewhere: its numbers must be those.
TURNED = {
    "concepts/certificates.md": "python -m benchmarks.certificates --datasets 50 --smallest 532 --largest 532 "
    "--aucs 0.867"
}


def name_of(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


@pytest.mark.parametrize(("path", "block"), BLOCKS, ids=[f"{name_of(p)}: {b['command']}" for p, b in BLOCKS])
def test_pages_show_what_was_printed(path, block):
    assert block["table"] == wanted(block, kept())


def test_every_kept_table_is_shown_and_its_script_exists():
    assert {block["command"] for _, block in BLOCKS} == set(kept())
    for command in kept():
        assert importlib.util.find_spec(re.match(r"python -m (\S+)", command)[1]), command


def test_no_table_beside_a_command_was_typed():
    for path in pages():
        text = BLOCK.sub("", path.read_text(encoding="utf-8"))
        if path.name in WRITTEN_BY_SCRIPTS:
            continue
        for before, table in re.findall(r"([^\n|][^|]*?)\n\n((?:^\|.*\n)+)", text, re.M):
            if not re.search(r"python -m\s+benchmarks", before.split("\n\n")[-1]):
                continue
            assert name_of(path) in TURNED, f"{name_of(path)}: {table.splitlines()[0]}"
            numbers = re.findall(r"\d\.\d+", table)
            printed = re.findall(r"\d\.\d+", str(kept()[TURNED[name_of(path)]]))
            assert set(numbers) <= set(printed)


def test_no_number_in_prose_was_typed():
    """Numbers with two decimals or more, outside of code and tables of their own, were printed by a script."""
    written = "".join(path.read_text(encoding="utf-8") for path in pages() if path.name in WRITTEN_BY_SCRIPTS)
    printed = set(re.findall(r"\d+\.\d+", written + str(kept())))
    for path in [*pages(), DOCS.parent / "README.md"]:
        if path.name in WRITTEN_BY_SCRIPTS:
            continue
        text = BLOCK.sub("", path.read_text(encoding="utf-8"))
        text = re.sub(r"^```.*?^```|`[^`]*`|arXiv[: ]*[\d.]+|Python 3\.\d+|\b3\.1\d\b", "", text, flags=re.M | re.S)
        found = set(re.findall(r"(?<![\w.-])\d+\.\d{2,}(?![\d.])", text))
        assert found <= printed, f"{name_of(path) if path.is_relative_to(DOCS) else path.name}: {found - printed}"


def test_tables_are_found():
    assert tables_of("a\n| b |\n|---|\n| c |\n\nd | e\n| f |\n") == [["| b |", "|---|", "| c |"], ["| f |"]]
