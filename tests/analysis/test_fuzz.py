"""Properties of results that hold for every way of handling them; fitted once, handled many times."""

import warnings
from functools import cache

import numpy as np
import pandas as pd
import pymc as pm
import xarray as xr
from hypothesis import assume
from hypothesis import strategies as st
from scipy.stats import rankdata

import pymc_pacauc as pac
from pymc_pacauc.arrays import fit, linear_gaussian_problem
from pymc_pacauc.model.compat import inference_data
from pymc_pacauc.model.results import dataset_of
from tests.fuzzing import fuzz

DRAWS, ROWS = 60, 40
NAMES = ["a", "b", "c"]


@cache
def fitted():
    """Model, approximation and draws of one small data set."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, 3))
    with pm.Model(coords={"covariate": NAMES}) as model:
        theta = pm.Normal("theta", dims="covariate")
        pac.AUCPotential("auc", X @ theta, X[:, 0] + rng.normal(size=ROWS) > 0, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        step = pac.TemperingSMC(particles=200)
        idata = pm.sample(DRAWS, step=step, chains=3, cores=1, random_seed=1, progressbar=False, quiet=True)
    return model, approx, idata


def selected(idata, draws, chains):
    groups = {name: dataset_of(idata, name).isel(draw=draws, chain=chains) for name in ("posterior", "sample_stats")}
    return inference_data(groups)


CHOSEN_DRAWS = st.lists(st.integers(0, DRAWS - 1), min_size=1, max_size=80)


@fuzz("log_evidence", "LogEvidence", "certificate", draws=CHOSEN_DRAWS, chains=st.permutations([0, 1, 2]))
def test_any_selection_of_draws_has_the_evidence_and_the_certificate_of_all(draws, chains):
    """log_evidence, certificate: repeated, reordered or dropped draws carry what their runs found."""
    _, _, idata = fitted()
    part = selected(idata, draws, chains)
    np.testing.assert_allclose(pac.log_evidence(part).estimate, pac.log_evidence(idata).estimate, rtol=1e-12)
    np.testing.assert_allclose(pac.certificate(part).auc, pac.certificate(idata).auc, rtol=1e-12)


@fuzz("at_gamma", "TemperingWarning", draws=CHOSEN_DRAWS, gamma=st.floats(0.0, 20.0), seed=st.integers(0, 2**20))
def test_posteriors_at_a_lower_gamma_are_made_of_the_draws_there_are(draws, gamma, seed):
    """at_gamma: equally weighted draws, of the same chain, and an honest effective size."""
    _, _, idata = fitted()
    part = selected(idata, draws, [0, 1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.TemperingWarning)  # few draws are left: that is what it says
        found = pac.at_gamma(part, gamma, random_seed=seed)
    source = dataset_of(part, "posterior")["theta"].values
    for chain in range(3):
        assert {tuple(row) for row in found["theta"].values[chain]} <= {tuple(row) for row in source[chain]}
    assert ((found["particle_ess"] >= 1 - 1e-9) & (found["particle_ess"] <= len(draws) + 1e-9)).all()


@fuzz(
    "predict_scores",
    "probability_above",
    order=st.permutations(NAMES),
    rows=st.integers(1, 5),
    seed=st.integers(0, 2**20),
)
def test_columns_are_found_by_name_in_any_order(order, rows, seed):
    """predict_scores, probability_above: frames in any order are the matrix in the model's."""
    _, approx, idata = fitted()
    X = np.random.default_rng(seed).normal(size=(rows, 3)) * 10.0 ** np.random.default_rng(seed).integers(-3, 4)
    frame = pd.DataFrame(X, columns=NAMES)[order]
    exact = pac.predict_scores(approx, frame, summary=True)
    np.testing.assert_allclose(exact["mean"], X @ approx.posterior.mean, rtol=1e-9)
    drawn = pac.predict_scores(idata, frame)
    np.testing.assert_allclose(drawn, idata["posterior"]["theta"].values @ X.T, rtol=1e-9)
    above = np.asarray(pac.probability_above(approx, frame, frame.iloc[0]))
    below = np.asarray(pac.probability_above(approx, frame.iloc[[0] * rows], frame))
    np.testing.assert_allclose(above + below, 1.0)
    assert above.reshape(-1)[0] == 0.5


@fuzz(
    "rank_uncertainty",
    draws=st.integers(1, 6),
    rows=st.integers(1, 6),
    levels=st.integers(1, 4),
    seed=st.integers(0, 2**20),
)
def test_ranks_are_those_of_every_draw(draws, rows, levels, seed):
    """rank_uncertainty, with ties: against one ranking at a time."""
    values = np.random.default_rng(seed).integers(0, levels, size=(1, draws, rows)).astype(float)
    found = pac.rank_uncertainty(xr.DataArray(values, dims=("chain", "draw", "row")))
    ranks = np.array([rankdata(-row) for row in values[0]])
    np.testing.assert_allclose(found["rank"], ranks.mean(axis=0))
    first = np.array([(row == row.max()) / np.sum(row == row.max()) for row in values[0]])
    np.testing.assert_allclose(found["top"], first.mean(axis=0))


@fuzz(
    "arrays.fit",
    "arrays.Fit",
    "ConvergenceWarning",
    rows=st.integers(8, 30),
    columns=st.integers(1, 4),
    gamma=st.floats(0.1, 40.0),
    seed=st.integers(0, 2**20),
)
def test_fits_of_any_small_data_have_possible_numbers(rows, columns, gamma, seed):
    """fit: evidence between -gamma and 0, a risk in [0, 1], a divergence not below 0, draws that are finite."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(rows, columns)).astype(float)
    y = rng.random(rows) < 0.4
    assume(0 < y.sum() < rows and X.std() > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pac.ConvergenceWarning)  # the numbers must be possible then, too
        result = fit(linear_gaussian_problem(X, y, gamma), "vb")
    assert result.log_evidence <= 1e-9
    assert result.log_evidence >= -gamma - 1e-9 or not result.converged
    assert 0.0 <= result.expected_risk <= 1.0
    assert result.divergence >= -1e-9
    assert np.isfinite(result.posterior.draw(3, rng)).all()
    np.testing.assert_allclose(result.log_evidence, -gamma * result.expected_risk - result.divergence, atol=1e-6)
