"""TemperingSMC inside pm.sample, on whichever PyMC is installed."""

import logging
import subprocess
import sys
import textwrap

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pymc.sampling.mcmc import assign_step_methods
from pymc.step_methods import Metropolis
from pymc.step_methods.compound import Competence
from scipy import stats

from pymc_pacauc.analysis.gamma_path import at_gamma, log_evidence, tempering_path
from pymc_pacauc.comparison.risk import LinearRisk
from pymc_pacauc.model.inference import EP
from pymc_pacauc.model.potential import AUCPotential
from pymc_pacauc.model.step import STAGES_KEPT, TemperingSMC
from pymc_pacauc.smc.paths import DirectionPath
from pymc_pacauc.smc.tempering import TemperingWarning
from tests.oracles import exact_plane, plane_data

pytestmark = pytest.mark.usefixtures("quick_compilation")

pytestmark = pytest.mark.filterwarnings(
    "ignore:PyTensor could not link to a BLAS:UserWarning",
    "ignore:The rhat statistic:UserWarning",
    "ignore:.*fork.*:DeprecationWarning",
)

GAMMA = 60.0
QUIET = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}


def plane_model(gamma=GAMMA):
    X, y = plane_data()
    with pm.Model(coords={"feature": ["a", "b"]}) as model:
        theta = pm.Normal("theta", dims="feature")
        AUCPotential("auc", X @ theta, y, gamma=gamma)
    return model


def sample(model, draws=500, chains=2, seed=1, **kwargs):
    options = {key: kwargs.pop(key) for key in list(kwargs) if key in ("cores", "mp_ctx", "tune", "progressbar")}
    with model:
        step = TemperingSMC(**kwargs)
        return pm.sample(draws, step=step, chains=chains, random_seed=seed, **{**QUIET, **options})


@pytest.fixture(scope="module")
def exact():
    return exact_plane(*plane_data(), GAMMA)


@pytest.fixture(scope="module")
def idata():
    return sample(plane_model(), draws=1000, chains=4, keep_particles=True)


def test_draws_have_the_exact_distribution(idata, exact):
    theta = idata["posterior"]["theta"].values.reshape(-1, 2)
    angle = np.mod(np.arctan2(theta[:, 1], theta[:, 0]), 2 * np.pi)
    assert stats.kstest(angle, exact.cdf).pvalue > 0.001
    assert stats.kstest(np.linalg.norm(theta, axis=1), stats.chi(2).cdf).pvalue > 0.001


def test_evidence_with_its_error(idata, exact):
    result = log_evidence(idata)
    assert abs(result.estimate - exact.log_evidence) < 3 * result.standard_error
    assert 0.005 < result.standard_error < 0.05
    assert result.agree


def test_sample_stats(idata):
    stats_ = idata["sample_stats"]
    for name in ("gamma", "log_evidence", "particle_ess", "acceptance_rate", "stage", "risk", "lp"):
        assert stats_[name].shape == (4, 1000), name
        assert np.isfinite(stats_[name].values).all(), name
    assert (stats_["gamma"].values == GAMMA).all()
    np.testing.assert_allclose(stats_["risk"].values, idata["posterior"]["auc_risk"].values)
    assert "warning" not in stats_


def test_lp_is_the_models(idata):
    model = plane_model()
    logp = model.compile_logp()
    for draw in range(3):
        point = {"theta": idata["posterior"]["theta"].values[1, draw]}
        assert idata["sample_stats"]["lp"].values[1, draw] == pytest.approx(float(logp(point)))


def test_path(idata, exact):
    path = tempering_path(idata)
    assert path["gamma"].dims == ("chain", "stage")
    assert (path["gamma"].isel(stage=0) == 0).all()
    for chain in range(4):
        stages = path.isel(chain=chain).dropna("stage", subset=["gamma"])
        assert stages["gamma"].values[-1] == GAMMA
        assert (np.diff(stages["gamma"].values) > 0).all()
        for k in range(1, stages.sizes["stage"]):
            stage = stages.isel(stage=k)
            there = exact.at(float(stage["gamma"]))
            assert (
                abs(float(stage["log_evidence"]) - there.log_evidence)
                < 4 * float(stage["log_evidence_variance"]) ** 0.5
            )
            assert abs(float(stage["expected_risk"]) - there.expected_risk) < 4 * (there.risk_variance / 1000) ** 0.5


@pytest.mark.parametrize("gamma", [0.0, 3.0, 25.0, 59.0])
def test_posterior_at_any_gamma(idata, exact, gamma):
    with plane_model():
        posterior = at_gamma(idata, gamma, random_seed=0)
    assert posterior["theta"].dims == ("chain", "draw", "feature")
    there = exact.at(gamma)
    effective = posterior["particle_ess"].values.sum()
    assert effective > 4 * 400  # the nearest stage is never further than an ESS threshold
    error = np.sqrt(there.risk_variance / effective)
    assert abs(float(posterior["auc_risk"].mean()) - there.expected_risk) < 4 * error


def test_netcdf_round_trip(idata, tmp_path):
    pytest.importorskip("h5netcdf")
    pytest.importorskip("h5py")
    file = tmp_path / "idata.nc"
    idata.to_netcdf(file, engine="h5netcdf")
    if hasattr(xr, "DataTree") and isinstance(idata, xr.DataTree):
        again = xr.open_datatree(file, engine="h5netcdf")
    else:
        again = type(idata).from_netcdf(file, engine="h5netcdf")
    xr.testing.assert_equal(tempering_path(again), tempering_path(idata))
    assert log_evidence(again) == log_evidence(idata)
    with plane_model():
        xr.testing.assert_equal(at_gamma(again, 25.0, random_seed=3), at_gamma(idata, 25.0, random_seed=3))


def test_keeping_particles_does_not_change_draws(idata):
    plain = sample(plane_model(), draws=1000, chains=4)
    np.testing.assert_array_equal(plain["posterior"]["theta"].values, idata["posterior"]["theta"].values)


@pytest.mark.slow
def test_same_seed_same_draws_in_processes_and_whatever_the_tuning(idata):
    for options in ({"cores": 2, "mp_ctx": "fork"}, {"tune": 0}, {"tune": 2}):
        again = sample(plane_model(), draws=1000, chains=4, **options)
        np.testing.assert_array_equal(again["posterior"]["theta"].values, idata["posterior"]["theta"].values)
    assert not np.array_equal(idata["posterior"]["theta"].values[0], idata["posterior"]["theta"].values[1])


@pytest.mark.slow
def test_same_seed_same_draws_under_spawn(idata):
    again = sample(plane_model(), draws=1000, chains=4, cores=2, mp_ctx="spawn")
    np.testing.assert_array_equal(again["posterior"]["theta"].values, idata["posterior"]["theta"].values)


def test_more_draws_than_particles(exact):
    idata = sample(plane_model(), draws=1200, chains=2, particles=400)
    theta = idata["posterior"]["theta"].values.reshape(-1, 2)
    angle = np.mod(np.arctan2(theta[:, 1], theta[:, 0]), 2 * np.pi)
    assert stats.kstest(angle, exact.cdf).pvalue > 0.001
    assert len(np.unique(angle)) > 1600


def test_the_progress_bar_shows_the_temperature(monkeypatch):
    """From 0 to 1 in the tuning steps, and the columns have the names of what is shown."""
    shown = []
    [update] = TemperingSMC._make_progressbar_update_functions()

    def recorded(stats):
        shown.append(update(stats))
        return shown[-1]

    monkeypatch.setattr(TemperingSMC, "_make_progressbar_update_functions", staticmethod(lambda: (recorded,)))
    sample(plane_model(), draws=20, progressbar=True, chains=1)
    _, first = TemperingSMC._progressbar_config(1)
    assert set(first) == set(shown[0])
    progress = [each["progress"] for each in shown]
    assert 0.0 < progress[0] < 1.0
    assert progress[-1] == 1.0
    assert progress == sorted(progress)


def test_start_from_a_fit(exact):
    mean, covariance = exact.mean, np.array([[0.5, 0.2], [0.2, 0.4]])
    idata = sample(plane_model(), draws=1000, chains=4, start=(mean, covariance))
    path = tempering_path(idata)
    assert path.sizes["stage"] <= 4
    result = log_evidence(idata)
    assert abs(result.estimate - exact.log_evidence) < 3 * result.standard_error
    theta = idata["posterior"]["theta"].values.reshape(-1, 2)
    angle = np.mod(np.arctan2(theta[:, 1], theta[:, 0]), 2 * np.pi)
    assert stats.kstest(angle, exact.cdf).pvalue > 0.001


def test_start_from_expectation_propagation(exact):
    model = plane_model()
    with model:
        fit = pm.fit(method=EP(), progressbar=False)
    idata = sample(model, start=fit)
    assert tempering_path(idata).sizes["stage"] <= 3
    result = log_evidence(idata)
    assert abs(result.estimate - exact.log_evidence) < 3 * result.standard_error


# -- models that are not linear-Gaussian -------------------------------------------------------------------------------


def test_gamma_held_in_data():
    X, y = plane_data()
    with pm.Model() as model:
        gamma = pm.Data("gamma", 5.0)
        theta = pm.Normal("theta", size=2)
        AUCPotential("auc", X @ theta, y, gamma=gamma)
    assert sample(model, draws=10)["sample_stats"]["gamma"].values[0, 0] == 5.0
    with model:
        pm.set_data({"gamma": 7.0})
    assert sample(model, draws=10)["sample_stats"]["gamma"].values[0, 0] == 7.0


# -- what pm.sample chooses --------------------------------------------------------------------------------------------


def test_plain_sample_picks_it():
    with plane_model():
        idata = pm.sample(50, chains=1, random_seed=1, **QUIET)
    assert "path_gamma" in idata["sample_stats"]


def test_plain_sample_picks_it_for_variables_with_a_gradient():
    """A centred scale has a gradient, which must not send it to NUTS."""
    X, y = plane_data()
    with pm.Model():
        scale = pm.Gamma("scale", 10.0, 10.0)
        theta = pm.Normal("theta", 0.0, scale, size=2)
        AUCPotential("auc", X @ theta, y, gamma=5.0)
        idata = pm.sample(50, chains=1, random_seed=1, **QUIET)
    assert "path_gamma" in idata["sample_stats"]


def test_competence_is_for_auc_models_only():
    X, y = plane_data()
    with pm.Model() as smooth:
        theta = pm.Normal("theta", size=2)
        AUCPotential("auc", X @ theta, y, gamma=5.0, loss="logistic")
        assert not TemperingSMC.competence(theta, True)
    with pm.Model():
        mu = pm.Normal("mu")
        pm.Normal("z", mu, observed=1.0)
        assert not TemperingSMC.competence(mu, True)
    exact = plane_model()
    assert TemperingSMC.competence(exact["theta"], False)  # outside of the context, by its tag
    assert not TemperingSMC.competence(smooth["theta"], True)


# -- faults ------------------------------------------------------------------------------------------------------------


def test_partial_blocks_are_refused():
    with pm.Model():
        a, b = pm.Normal("a"), pm.Normal("b")
        AUCPotential("auc", a * np.arange(4.0) + b, [0, 1, 0, 1], gamma=1.0)
        with pytest.raises(ValueError, match="missing: b"):
            TemperingSMC([a])


def test_discrete_variables_are_refused():
    with pm.Model():
        z = pm.Bernoulli("z", 0.5)
        AUCPotential("auc", z * np.arange(4.0), [0, 1, 0, 1], gamma=1.0)
        with pytest.raises(ValueError, match="z are discrete"):
            TemperingSMC()


def test_improper_priors_are_refused():
    with pm.Model():
        theta = pm.Flat("theta")
        AUCPotential("auc", theta * np.arange(4.0), [0, 1, 0, 1], gamma=1.0)
        with pytest.raises(ValueError, match="theta does not depend on its value: replace improper"):
            TemperingSMC()


def test_half_flat_priors_are_refused():
    with pm.Model():
        theta = pm.HalfFlat("theta")
        AUCPotential("auc", theta * np.arange(4.0), [0, 1, 0, 1], gamma=1.0)
        with pytest.raises(ValueError, match="improper: replace improper"):
            TemperingSMC()


class TreesStep(Metropolis):
    @staticmethod
    def competence(var):
        return Competence.IDEAL if var.name == "f" else Competence.INCOMPATIBLE


def trees_model():
    """Like pymc_bart's: the log-density is zero, draws of the prior are all the same, and one step moves them."""
    with pm.Model() as model:
        f = pm.CustomDist(
            "f", 0.0, logp=lambda value, _: pt.zeros_like(value), random=lambda mean, rng, size: np.full(size, mean),
            shape=4,
        )  # fmt: skip
        theta = pm.Normal("theta")
        AUCPotential("auc", f + theta * np.arange(4.0), [0, 1, 0, 1], gamma=1.0)
    return model


def chosen_steps(model, methods):
    _, found = assign_step_methods(model, None, methods)
    return {step.__name__: [v.name for v in variables] for step, variables in found.items()}


def test_variables_with_a_step_of_their_own_are_left_to_it(monkeypatch):
    methods = [TemperingSMC, TreesStep, Metropolis]
    model = trees_model()
    with model:  # no step for them: refused by name, instead of by chance
        assert chosen_steps(model, methods) == {"TemperingSMC": ["f", "theta"]}
        with pytest.raises(ValueError, match="log-density of f does not depend on its value"):
            TemperingSMC()
    monkeypatch.setattr("pymc_pacauc.model.step._step_methods", lambda: methods)
    expected = {"TreesStep": ["f"], "Metropolis": ["theta"]}
    assert chosen_steps(model, methods) == expected
    with model:
        assert chosen_steps(model, methods) == expected


BART = """
    import warnings
    warnings.simplefilter("ignore")  # of pymc_bart, about itself
    import numpy as np, pymc as pm
    {imports}
    from pymc.sampling.mcmc import assign_step_methods
    from pymc_pacauc.model.step import TemperingSMC, _step_methods

    def steps(model):
        _, found = assign_step_methods(model, None, _step_methods())
        return {{step.__name__: [v.name for v in variables] for step, variables in found.items()}}

    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    y = X[:, 0] + rng.normal(size=40) > 0
    with pm.Model() as trees:
        f = pmb.BART("f", X, np.where(y, 1.0, -1.0), m=5, shape=40)
        pac.AUCPotential("auc", f + X @ pm.Normal("theta", size=2), y, gamma=10.0)
        assert steps(trees) == {{"PGBART": ["f"], "Metropolis": ["theta"]}}, steps(trees)
        try:
            TemperingSMC()
        except ValueError as error:
            assert "log-density of f does not depend on its value" in str(error), error
        else:
            raise AssertionError("not refused")
    assert steps(trees) == {{"PGBART": ["f"], "Metropolis": ["theta"]}}, steps(trees)
    with pm.Model() as linear:
        pac.AUCPotential("auc", X @ pm.Normal("theta", size=2), y, gamma=10.0)
        assert steps(linear) == {{"TemperingSMC": ["theta"]}}, steps(linear)
"""


@pytest.mark.parametrize("order", ["pymc_bart first", "pymc_pacauc first"])
def test_trees_of_pymc_bart_are_left_to_their_step(order):
    pytest.importorskip("pymc_bart")
    lines = ["import pymc_bart as pmb", "import pymc_pacauc as pac; pac.TemperingSMC"]
    code = textwrap.dedent(BART).format(imports="\n".join(lines if order.startswith("pymc_bart") else lines[::-1]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_not_a_fit():
    with plane_model(), pytest.raises(TypeError, match=r"pm.fit\(method=pac.EP\(\)\)"):
        TemperingSMC(start="ep")


def test_nan_everywhere_names_the_term_and_the_value():
    with pm.Model():
        theta = pm.Normal("theta")
        AUCPotential("auc", pm.math.log(-pm.math.exp(theta)) * np.arange(4.0), [0, 1, 0, 1], gamma=1.0)
        with pytest.raises(pm.exceptions.SamplingError, match=r"auc = nan.*theta = "):
            TemperingSMC()


def test_nan_somewhere_is_counted_and_logged(caplog):
    with pm.Model() as model:
        theta = pm.Normal("theta")
        AUCPotential("auc", pm.math.log(theta + 1) * np.arange(4.0), [0, 1, 0, 1], gamma=1.0)
    with caplog.at_level(logging.WARNING):
        idata = sample(model, chains=1)
    assert sum("of the 4000 starting points" in record.message for record in caplog.records) == 1
    assert (idata["posterior"]["theta"].values > -1).all()
    assert tempering_path(idata)["failed"].values[0, 0] > 50


def test_chains_that_disagree(idata):
    forged = idata["sample_stats"]["log_evidence"].copy()
    forged[0] -= 5.0
    stats_ = {
        "sample_stats": idata["sample_stats"].to_dataset()
        if hasattr(idata["sample_stats"], "to_dataset")
        else idata["sample_stats"]
    }
    stats_["sample_stats"] = stats_["sample_stats"].assign(log_evidence=forged)
    with pytest.warns(TemperingWarning, match="chains disagree about the log evidence"):
        assert not log_evidence(stats_).agree


class Interrupting(TemperingSMC):
    """Interrupts the fourth draw, as a user would."""

    def step(self, point):
        if not self.tune and self._handed_out == 3:
            raise KeyboardInterrupt
        return super().step(point)


def test_interrupt_returns_what_there_is():
    with plane_model():
        idata = pm.sample(100, step=Interrupting(), chains=1, random_seed=1, **QUIET)
    assert idata["posterior"].sizes["draw"] == 3
    assert np.isfinite(log_evidence(idata).estimate)


def test_kept_stages_are_bounded():
    with plane_model(gamma=2e4) as model:
        idata = pm.sample(
            30,
            step=TemperingSMC(keep_particles=True, ess_threshold=0.97, particles=100, max_moves=2),
            chains=1,
            **QUIET,
        )
        kept = idata["sample_stats"]["path_kept_gamma"].values[0, 0]
        assert idata["sample_stats"]["stage"].values[0, 0] > STAGES_KEPT
        assert kept[0] == 0.0
        assert kept[~np.isnan(kept)][-1] == 2e4
        assert model is not None


def test_the_potential_brings_its_sampler():
    """pm.sample() can only choose a step method that has been registered."""
    code = (
        "import pymc_pacauc.model.potential\n"
        "from pymc.step_methods import STEP_METHODS\n"
        "print([method.__name__ for method in STEP_METHODS].count('TemperingSMC'))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "1"


def test_draws_are_handed_out_in_random_order(monkeypatch):
    """Particles come out of resampling sorted by their parents: any number of draws must be a fair sample of them."""
    finished = []
    finish = DirectionPath.finish

    def sorted_finish(self, population, rng):
        theta, risk = finish(self, population, rng)
        order = np.argsort(theta[:, 0])
        finished.append(theta[order])
        return theta[order], risk[order]

    monkeypatch.setattr(DirectionPath, "finish", sorted_finish)
    draws = sample(plane_model(), draws=400, particles=400, chains=1)["posterior"]["theta"].values[0]
    np.testing.assert_array_equal(np.sort(draws[:, 0]), finished[-1][:, 0])
    rank = stats.rankdata(draws[:, 0])
    assert abs(np.corrcoef(rank, np.arange(400))[0, 1]) < 4 / np.sqrt(400)
    kept = sample(plane_model(), draws=400, particles=400, chains=1, keep_particles=True)["sample_stats"]
    of_a_stage = kept["path_particles"].values[0].reshape(400, -1)[:, 0]
    assert abs(np.corrcoef(stats.rankdata(of_a_stage), np.arange(400))[0, 1]) < 4 / np.sqrt(400)


def interrupt_at(monkeypatch, number):
    """Ctrl-C at the number-th evaluation of the risk."""
    count, risk = [0], LinearRisk.__call__

    def counted(self, theta):
        count[0] += 1
        if count[0] == number:
            raise KeyboardInterrupt
        return risk(self, theta)

    monkeypatch.setattr(LinearRisk, "__call__", counted)


def test_an_interruption_says_what_is_lost(monkeypatch, caplog):
    model = plane_model()
    with model:
        step = TemperingSMC(particles=200)
    interrupt_at(monkeypatch, 4)
    step.set_rng(np.random.default_rng(1))
    step.tune = False  # the first draw runs all stages
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        step.step(model.initial_point())
    assert "of the way to the posterior: this chain has no draws yet" in caplog.text
    monkeypatch.undo()
    caplog.clear()
    step.set_rng(np.random.default_rng(1))
    step.tune = False
    step.step(model.initial_point())
    monkeypatch.setattr(step, "_stats", lambda draw: (_ for _ in ()).throw(KeyboardInterrupt()))
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        step.step(model.initial_point())
    assert "interrupted after 1 draws of this chain" in caplog.text
