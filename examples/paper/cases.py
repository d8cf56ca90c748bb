"""The data sets, and how each is split into training and test rows."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import pymc_pacauc as pac

SEED = 2014


@dataclass(frozen=True)
class Case:
    """A data set and how it is split; ``repeats`` = 1 stands for the one known split."""

    data: pac.datasets.Dataset
    repeats: int
    train_rows: int
    source: str

    def splits(self):
        y = self.data.y
        if self.repeats == 1:
            yield self.data.train
            return
        for rng in np.random.default_rng(SEED).spawn(self.repeats):
            train = np.zeros(y.size, dtype=bool)
            for label in (0, 1):
                members = rng.permutation(np.flatnonzero(y == label))
                train[members[: round(self.train_rows * members.size / y.size)]] = True
            yield train


def cases(colon: Path | None = None) -> dict[str, Case]:
    """The paper's data sets; the colon data are not shipped, so their file has to be named."""
    found = {
        "pima": Case(pac.datasets.load_pima(), 1, 200, "MASS: Pima.tr, Pima.te"),
        "credit": Case(pac.datasets.load_credit(), 8, 667, "8 stratified, two thirds"),
        "dna": Case(first_rows_of_dna(), 1, 400, "first 400 rows, the others"),
        "spect": Case(pac.datasets.load_spect(), 1, 80, "UCI's own"),
        "glass": Case(pac.datasets.load_glass(), 20, 143, "20 stratified, two thirds"),
    }
    if colon is not None:
        raw = pac.datasets.load_colon(colon)
        raw = replace(raw, X=np.log(raw.X)) if raw.X.min() > 0 else raw
        found["colon"] = Case(raw, 20, 40, "20 stratified, 40 rows")
    return found


def first_rows_of_dna():
    dna = pac.datasets.load_dna()
    return replace(dna, train=np.arange(dna.n) < 400)
