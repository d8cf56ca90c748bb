"""EP as a method of pm.fit."""

import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.model.auc_term import NotLinearGaussianError


def test_number_of_sweeps_is_bounded_by_n(model):
    with model, pytest.warns(ConvergenceWarning):
        approx = pm.fit(2, method=pac.EP(), progressbar=False)
    assert approx.sweeps == 2
    assert "NOT CONVERGED" in str(approx)


def test_a_fit_goes_on_from_another(model):
    with model:
        with pytest.warns(ConvergenceWarning):
            first = pm.fit(3, method=pac.EP(), progressbar=False)
        again = pm.fit(method=pac.EP(start=first), progressbar=False)
        anew = pm.fit(method=pac.EP(), progressbar=False)
    assert again.converged
    assert again.sweeps < anew.sweeps


def test_model_argument(model):
    assert pac.EP(model=model).fit(progressbar=False).converged


def test_refusal_through_fit(data):
    with pm.Model():
        pac.AUCPotential("auc", data[0] @ pm.math.exp(pm.Normal("theta", size=3)), data[1], 1.0)
        with pytest.raises(NotLinearGaussianError, match="scores are not affine in theta"):
            pm.fit(method=pac.EP())


def test_callbacks_and_progress_bar(model, capsys, monkeypatch):
    monkeypatch.setattr("pymc_pacauc.model.compat.BAR_AFTER", 0.0)
    seen = []
    with model:
        pm.fit(method=pac.EP(), callbacks=[lambda approx, losses, i: seen.append(i)])
    assert seen[0] > 1
    assert "EP sweeps" in capsys.readouterr().out
