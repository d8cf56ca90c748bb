"""The record of what was fitted survives as numbers."""

from dataclasses import replace

import numpy as np
import xarray as xr
from hypothesis import strategies as st

import pymc_pacauc as pac
from tests.analysis.test_fuzz import fitted
from tests.fuzzing import fuzz


@fuzz(
    "results.Provenance",
    gamma=st.floats(1e-3, 1e6),
    counts=st.tuples(st.integers(1), st.integers(1, 2**40)),
    data=st.data(),
)
def test_what_was_fitted_to_survives_as_numbers(gamma, counts, data):
    """as_stats and from_stats, whatever the record; and what differs is named."""
    _, approx, _ = fitted()
    known = approx.fitted_to
    changed = {
        "method": data.draw(st.sampled_from(["EP", "GaussianVB", "TemperingSMC"])),
        "gamma": gamma,
        "n_pos": counts[0] % 2**40 + 1,
        "n_neg": counts[1],
        "ties": data.draw(st.sampled_from(["half", "strict"])),
        "tuned_prior": data.draw(st.booleans()),
        "standardized": data.draw(st.booleans()),
        "data": data.draw(st.integers(0, 2**48 - 1)),
    }
    record = replace(known, **changed)
    rows = {name: (("chain", "draw"), np.full((2, 3), value)) for name, value in record.as_stats().items()}
    assert pac.results.Provenance.from_stats(xr.Dataset(rows)) == record
    assert record.differences(record) == []
    named = " ".join(known.differences(record))
    assert ("gamma" in named) == (not np.isclose(gamma, known.gamma, rtol=1e-9))
    assert ("positives" in named) == (record.n_pos != known.n_pos)
