"""Wrong calls: the words they are answered with, and the call that works instead."""

import re

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_pacauc as pac
from tests.test_message_words import of_the_caller

rng = np.random.default_rng(1)
X = rng.normal(size=(60, 3))
y = X[:, 0] + rng.normal(size=60) > 0
WITH_A_GAP = np.where((np.arange(60)[:, None] == 3) & (np.arange(3) == 1), np.nan, X)
SCALED = X * [1.0, 1e4, 1e-3]


def build(X=X, theta=lambda: pm.Normal("theta", size=3), **options):
    with pm.Model() as model:
        pac.AUCPotential("auc", X @ theta(), y, **{"gamma": 20.0, **options})
    return model


def ep(model):
    with model:
        return pm.fit(method=pac.EP(), progressbar=False)


def advi(model):
    with model:
        return pm.fit(100, progressbar=False, random_seed=1)


def sample(model, step, draws=60, **options):
    with model:
        return pm.sample(draws, step=step(), chains=1, cores=1, progressbar=False, quiet=True, random_seed=1, **options)


def smc(model):
    return sample(model, lambda: pac.TemperingSMC(particles=300), draws=300)


def nuts(model):
    return sample(model, pm.NUTS, tune=60, compute_convergence_checks=False)


@pytest.fixture(scope="module")
def approx():
    return ep(build())


@pytest.fixture(scope="module")
def idata():
    return smc(build())


@pytest.fixture(scope="module")
def process():
    """A Gaussian process, its prior, and draws."""
    with pm.Model() as model:
        gp = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=2.0))
        pac.AUCPotential("auc", gp.prior("f", X=X), y, gamma=20.0)
    return model, gp, smc(model)


@pytest.fixture
def reloaded(idata, tmp_path):
    pytest.importorskip("h5py")
    idata.to_netcdf(tmp_path / "draws.nc")
    return az.from_netcdf(tmp_path / "draws.nc")


DISCRETE = "Neither pac.EP nor pac.TemperingSMC moves discrete variables: marginalise them, or use a"
IMPROPER = "Neither pac.EP nor pac.TemperingSMC can start from it: replace pm.Flat and pm.HalfFlat by a"
MISSING = (
    "The scores of 1 observation(s) are NaN or infinite (rows 3): look for NaN, infinities or overflow in the "
    "covariates; impute or drop them first."
)
NO_GRADIENT = "so NUTS and ADVI have nothing to follow: sample with pm.sample(step=pac.TemperingSMC()) or fit with"


def bernoulli():
    return pm.Bernoulli("theta", 0.5, size=3)


MODELS = {
    "NaN under EP": (lambda: ep(build(WITH_A_GAP)), MISSING, lambda: ep(build(np.nan_to_num(WITH_A_GAP)))),
    "NaN under SMC": (lambda: smc(build(WITH_A_GAP)), MISSING, lambda: smc(build(np.nan_to_num(WITH_A_GAP)))),
    "discrete under EP": (
        lambda: ep(build(theta=bernoulli)),
        f"the variable(s) theta are discrete. {DISCRETE}",
        lambda: ep(build(theta=lambda: pac.SpikeSlab("theta", p=0.5, v0=0.0, shape=3))),
    ),
    "discrete under SMC": (
        lambda: smc(build(theta=bernoulli)),
        "TemperingSMC moves continuous variables; theta are discrete. Marginalise them, or use a continuous prior such",
        lambda: smc(build(theta=lambda: pac.SpikeSlab("theta", p=0.5, v0=0.01, shape=3))),
    ),
    "Flat under EP": (
        lambda: ep(build(theta=lambda: pm.Flat("theta", size=3))),
        f"the prior of theta is improper. {IMPROPER}",
        lambda: ep(build()),
    ),
    "HalfFlat under EP": (
        lambda: ep(build(theta=lambda: pm.HalfFlat("theta", size=3))),
        f"the prior of theta is improper. {IMPROPER}",
        lambda: ep(build()),
    ),
    "Flat under SMC": (
        lambda: smc(build(theta=lambda: pm.Flat("theta", size=3))),
        "of theta does not depend on its value: replace improper distributions (pm.Flat) by proper ones.",
        lambda: smc(build()),
    ),
    "a surrogate under EP": (
        lambda: ep(build(loss="logistic")),
        (
            'its AUC term is a smooth surrogate (loss="logistic"). pac.EP is for the exact risk, '
            'loss="exact"; sample the surrogate with pm.sample(), by NUTS, or with pm.sample(step=pac.TemperingSMC()).'
        ),
        lambda: nuts(build(loss="logistic", track_risk=False)),
    ),
    "gamma of an unknown name": (
        lambda: build(gamma="automatic"),
        'gamma must be a number, "default", "MA1" or "MAinf"; got \'automatic\'.',
        lambda: build(gamma="default"),
    ),
    "NUTS on the exact risk": (lambda: nuts(build()), NO_GRADIENT, lambda: nuts(build(loss="logistic"))),
    "ADVI on the exact risk": (lambda: advi(build()), NO_GRADIENT, lambda: ep(build())),
    "select_gamma without EP": (
        lambda: pac.select_gamma(build(theta=lambda: pm.LogNormal("theta", size=3) ** 2), [5.0, 20.0]),
        (
            "any other model can be sampled with pm.sample(step=pac.TemperingSMC()). For those, "
            'pac.select_gamma(model, method="smc").'
        ),
        lambda: pac.select_gamma(
            build(theta=lambda: pm.LogNormal("theta", size=3) ** 2), [20.0], folds=2, method="smc", progressbar=False
        ),
    ),
}

RESULTS = {
    "leave_out of draws": (
        lambda approx, idata: pac.leave_out(idata),
        (
            "rows are left out of an approximation, not of draws. For tempering SMC, pac.select_gamma(model, [gamma], "
            'method="smc") cross-validates by refitting.'
        ),
        lambda approx, idata: pac.leave_out(approx, np.arange(60) % 5),
    ),
    "plot_marginals of draws": (
        lambda approx, idata: pac.plots.plot_marginals(idata),
        (
            "approx must be the result of pm.fit(method=pac.EP()), and draws the second argument: "
            "plot_marginals(approx, idata); got "
        ),
        lambda approx, idata: pac.plots.plot_marginals(approx, idata),
    ),
    "plot_marginals over an approximation": (
        lambda approx, idata: pac.plots.plot_marginals(approx, approx),
        "idata must be draws, the result of pm.sample() or approx.sample(); got EPApproximation.",
        lambda approx, idata: pac.plots.plot_marginals(approx, approx.sample(50)),
    ),
    "at_gamma of an approximation": (
        lambda approx, idata: pac.at_gamma(approx, 18.0),
        (
            "idata has no tempering path: pass the result of pm.sample(step=pac.TemperingSMC()). For an approximation "
            "at another gamma, set the model's gamma and fit again."
        ),
        lambda approx, idata: pac.at_gamma(idata, 18.0),
    ),
    "summary of a summary": (
        lambda approx, idata: pac.summary(pac.predict_scores(approx, X, summary=True)),
        "summary() needs draws of scores, as predict_scores() returns them without summary=True; got Dataset.",
        lambda approx, idata: pac.summary(pac.predict_scores(approx, X)),
    ),
    "plot_roc of scores": (
        lambda approx, idata: pac.plots.plot_roc(pac.predict_scores(approx, X)),
        "curves must be the result of pac.roc(scores, y), or a dict of several; got DataArray.",
        lambda approx, idata: pac.plots.plot_roc(pac.roc(pac.predict_scores(approx, X), y)),
    ),
    "plot_decision_curve of a ROC curve": (
        lambda approx, idata: pac.plots.plot_decision_curve(pac.roc(X[:, 0], y)),
        "curves must be the result of pac.decision_curve(scores, y), or a dict of several; got Dataset.",
        lambda approx, idata: pac.plots.plot_decision_curve(pac.decision_curve(X[:, 0], y)),
    ),
    "probability of a summary": (
        lambda approx, idata: pac.choose_threshold(X[:, 0], y, fpr=0.1).probability(X[:, 0]),
        "probability() needs draws of scores, as predict_scores() returns them without summary=True.",
        lambda approx, idata: pac.choose_threshold(X[:, 0], y, fpr=0.1).probability(pac.predict_scores(approx, X)),
    ),
    "certificate of scores": (
        lambda approx, idata: pac.certificate(pac.predict_scores(approx, X)),
        (
            "result must come from pm.fit(method=pac.EP()) or pac.GaussianVB(), be draws of it, or come from "
            "pm.sample(step=pac.TemperingSMC()); got DataArray"
        ),
        lambda approx, idata: pac.certificate(approx),
    ),
}


MINE = {"theta", "auc", "scores"}  # variables of the models above


def refused(wrong, words):
    """Make a wrong call; its message has these words, and names an argument, a function or a variable of this file."""
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=re.escape(words)) as caught:
        wrong()
    parameters, functions = of_the_caller()
    assert (parameters | functions | MINE) & set(re.findall(r"\w+", str(caught.value)))


@pytest.mark.filterwarnings("ignore:Only 60 samples", "ignore:The number of samples", "ignore:Optimization Warning")
@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    wrong, words, right = MODELS[name]
    refused(wrong, words)
    assert right() is not None


@pytest.mark.parametrize("name", RESULTS)
def test_results(name, approx, idata):
    wrong, words, right = RESULTS[name]
    refused(lambda: wrong(approx, idata), words)
    assert right(approx, idata) is not None


PROCESSES = {
    "a process without its model": (
        lambda model, gp, idata: pac.predict_scores(idata, X[:2], gp=gp),
        "gp= with draws needs their model: pass model=.",
        lambda model, gp, idata: pac.predict_scores(idata, X[:2], gp=gp, model=model),
    ),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_processes(name, process):
    wrong, words, right = PROCESSES[name]
    refused(lambda: wrong(*process), words)
    assert right(*process).shape == (1, 300, 2)


def test_what_predictions_lack(process):
    model, gp, _ = process
    with pm.Model() as grouped:
        rows, group = pm.Data("X", X), pm.Data("group", np.arange(60) % 2)
        theta = pm.Normal("theta", size=(2, 3))
        pac.AUCPotential("auc", (rows * theta[group]).sum(axis=1), y, gamma=20.0)
    draws, new = ep(grouped).sample(50, random_seed=1), {"X": X[:2], "group": [0, 1]}
    with pytest.raises(ValueError, match=re.escape("not linear in X, group need the model of the draws: pass model=")):
        pac.predict_scores(draws, new)
    assert pac.predict_scores(draws, new, model=grouped).shape == (1, 50, 2)
    approx = ep(model)
    with pytest.raises(ValueError, match=r"not a function of one row at a time.*A Gaussian process needs .* say gp="):
        pac.predict_scores(approx, X[:2])
    assert pac.predict_scores(approx, X[:2], gp=gp).shape == (1, 1000, 2)


def test_log_evidence_of_everything(approx, idata, reloaded):
    """No wrong call any more."""
    assert pac.log_evidence(approx).estimate == approx.evidence.estimate
    assert pac.log_evidence(approx.sample(5)).estimate == approx.evidence.estimate
    assert pac.log_evidence(idata).estimate == pytest.approx(approx.log_evidence, abs=0.5)
    assert pac.log_evidence(reloaded).estimate == pac.log_evidence(idata).estimate


def test_at_gamma_of_a_file(idata, reloaded):
    """No wrong call any more."""
    fresh, read = (pac.at_gamma(each, 18.0, random_seed=1) for each in (idata, reloaded))
    np.testing.assert_allclose(read["theta"], fresh["theta"])


def test_frames():
    """pandas itself stumbles over frame @ theta; what works is in the docstring of AUCPotential."""
    frame = pd.DataFrame(X, columns=list("abc"))
    with pytest.raises(IndexError):
        build(frame)
    assert "frame.to_numpy() @ theta" in pac.AUCPotential.__doc__
    with pm.Model() as held:
        rows = pm.Data("X", frame)
        pac.AUCPotential("auc", rows @ pm.Normal("theta", size=3), y, gamma=20.0)
    assert ep(held).log_evidence == pytest.approx(ep(build(frame.to_numpy())).log_evidence)


def test_scales():
    words = "The covariates of theta have very different scales: column 1 varies 9.9e+06 times as much as column 2"
    with pytest.warns(pac.results.ScaleWarning, match=re.escape(words)) as caught:
        ep(build(SCALED))
    assert "Standardise the covariates" in str(caught[0].message)
    ep(build((SCALED - SCALED.mean(axis=0)) / SCALED.std(axis=0)))
    ep(build(SCALED, theta=lambda: pm.Normal("theta", 0, [1.0, 1e-4, 1e3])))  # a prior that knows
