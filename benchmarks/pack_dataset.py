"""Pack a CSV file into the package: ``python -m benchmarks.pack_dataset NAME SOURCE.csv [--train SPLIT.csv]``.

The source has a header and a 0/1 column ``y``; the split, if any, has one column ``split`` with ``train`` or ``test``
in each row. The result, ``pymc_pacauc/datasets/data/NAME.csv.gz``, holds the features, ``y``, and a 0/1 column
``train`` where a split was given. The bytes depend on the content alone: no time stamp and no file name go into them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from pathlib import Path

DATA = Path(__file__).parents[1] / "pymc_pacauc" / "datasets" / "data"


def pack(source: Path, split: Path | None = None, first: int | None = None) -> bytes:
    """The compressed table of ``source``, with a ``train`` column from ``split`` or marking the ``first`` rows."""
    with source.open(newline="", encoding="utf-8-sig") as file:
        header, *rows = csv.reader(file)
    if split is not None:
        with split.open(newline="", encoding="utf-8-sig") as file:
            labels = [row["split"] for row in csv.DictReader(file)]
        train: list[bool] | None = [label == "train" for label in labels]
    else:
        train = None if first is None else [i < first for i in range(len(rows))]
    if train is not None:
        if len(train) != len(rows):
            raise ValueError(f"the split has {len(train)} rows but the data have {len(rows)}.")
        header.append("train")
        rows = [[*row, str(int(flag))] for row, flag in zip(rows, train, strict=True)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *([_short(cell) for cell in row] for row in rows)])
    return gzip.compress(text.getvalue().encode("ascii"), compresslevel=9, mtime=0)


def _short(cell: str) -> str:
    """``1.0`` as ``1``: the same number in fewer bytes."""
    return cell[:-2] if cell.endswith(".0") else cell


def main() -> None:
    parser = argparse.ArgumentParser(description="Pack a CSV file into pymc_pacauc/datasets/data.")
    parser.add_argument("name")
    parser.add_argument("source", type=Path)
    parser.add_argument("--train", type=Path, help="CSV file with a column 'split' of train/test")
    parser.add_argument("--first", type=int, help="mark the first FIRST rows as training rows")
    options = parser.parse_args()
    packed = pack(options.source, options.train, options.first)
    target = DATA / f"{options.name}.csv.gz"
    target.write_bytes(packed)
    print(f"{target.name}: {len(packed)} bytes")


if __name__ == "__main__":
    main()
