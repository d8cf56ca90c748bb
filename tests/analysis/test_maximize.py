import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.comparison.kinds import unordered_classes
from pymc_pacauc.problem.problem import linear_gaussian_problem

rng = np.random.default_rng(1)
X = rng.normal(size=(150, 6))
y = X[:, :3].sum(axis=1) + rng.normal(size=150) > 0
GROUP = [0, 0, 0, 1, 1, 1]


def grouped(centred, start=(1.0, 1.0)):
    with pm.Model() as model:
        scale = pm.Data("scale", list(start))
        if centred:
            theta = pm.Normal("theta", 0.0, scale[GROUP], shape=6)
        else:
            theta = pm.Normal("unit", 0.0, 1.0, shape=6) * scale[GROUP]
        pac.AUCPotential("auc", X @ theta, y, gamma=60.0)
    return model


@pytest.mark.parametrize("centred", [True, False])
def test_group_scales(centred):
    model = grouped(centred, start=(2.0, 0.5))
    found = pac.maximize_evidence(model, over=["scale"], progressbar=False)
    assert found.converged
    assert found.log_evidence > found.start_log_evidence
    assert found.flat == ("a common scale of scale[0] * scale[1]",)
    # left alone: the product stays what it was; chosen: the ratio
    assert np.prod(found.values["scale"]) == pytest.approx(1.0, rel=1e-3)
    np.testing.assert_allclose(model["scale"].get_value(), found.values["scale"])

    def evidence(ratio):
        sd = np.array([1.0, 1.0 / ratio])[GROUP]
        return fitting.fit(linear_gaussian_problem(X, y, 60.0, prior_covariance=sd**2)).log_evidence

    best = found.values["scale"][0] / found.values["scale"][1]
    assert found.log_evidence == pytest.approx(evidence(best), abs=1e-3)
    assert all(evidence(best * factor) < found.log_evidence + 1e-3 for factor in (0.3, 0.6, 1.7, 3.0))
    assert found.approx.log_evidence == found.log_evidence
    assert len(found.trace) >= 2
    assert "flat, not changed" in repr(found)


def test_gradients_agree_between_the_two_ways():
    """The chained gradient of a centred model against differences of the evidence of the non-centred one."""
    slopes = []
    for centred in (True, False):
        found = pac.maximize_evidence(grouped(centred, start=(1.0, 0.5)), "scale", max_evaluations=1, progressbar=False)
        slopes.append(found.trace["gradient"].iloc[0])
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-3)


def test_a_common_scale_is_flat_and_left_alone():
    with pm.Model() as model:
        tau = pm.Data("tau", 2.0)
        theta = pm.Normal("theta", 0.0, tau, shape=6)
        pac.AUCPotential("auc", X @ theta, y, gamma=60.0)
    with pytest.warns(UserWarning, match="does not depend on tau"):
        found = pac.maximize_evidence(model, "tau", progressbar=False)
    assert found.values == {"tau": pytest.approx(2.0)}
    assert found.flat == ("the scale of tau",)
    assert found.log_evidence == pytest.approx(found.start_log_evidence)


def test_scales_of_a_model_of_unordered_classes():
    """The evidence of M is a sum over classes that share the scales of the columns."""
    classes = np.digitize(X[:, :3].sum(axis=1) + rng.normal(size=150), [-1.0, 1.0])
    with pm.Model() as model:
        scale = pm.Data("scale", [1.0, 1.0])
        coefficients = pm.Normal("W", 0.0, scale[GROUP][:, None], shape=(6, 3))
        pac.AUCPotential("auc", X @ coefficients, classes, 90.0, multi_class="ovo")
    found = pac.maximize_evidence(model, "scale", progressbar=False)
    assert found.values["scale"][0] > 2 * found.values["scale"][1]
    sd = found.values["scale"][GROUP]
    each = [
        fitting.fit(linear_gaussian_problem(X, pairs, 30.0, prior_covariance=sd**2)).log_evidence
        for pairs in unordered_classes(classes)
    ]
    assert found.log_evidence == pytest.approx(sum(each), abs=1e-3)
    assert "observations   150" in repr(found.approx)


def test_an_offset_fixes_the_scale():
    with pm.Model() as model:
        tau = pm.Data("tau", 0.3)
        theta = pm.Normal("theta", 0.0, tau, shape=6)
        pac.AUCPotential("auc", X @ theta + X[:, 0], y, gamma=60.0)
    found = pac.maximize_evidence(model, "tau", progressbar=False)
    assert found.flat == ()
    assert found.values["tau"] != pytest.approx(0.3, rel=0.05)
    assert found.log_evidence > found.start_log_evidence


@pytest.mark.parametrize("reparameterize", [True, False])
def test_lengthscale_of_a_gaussian_process(reparameterize):
    rows = np.random.default_rng(2).uniform(-3, 3, size=(30, 1))
    labels = np.sin(2 * rows[:, 0]) > 0.1
    with pm.Model() as model:
        lengthscale, amplitude = pm.Data("lengthscale", 1.5), pm.Data("amplitude", 0.7)
        gp = pm.gp.Latent(cov_func=amplitude**2 * pm.gp.cov.Matern32(1, ls=lengthscale))
        f = gp.prior("f", rows, reparameterize=reparameterize)
        pac.AUCPotential("auc", f, labels, gamma=20.0)
    found = pac.maximize_evidence(model, ["lengthscale", "amplitude"], progressbar=False)
    assert found.flat == ("the scale of amplitude",)
    assert found.values["amplitude"] == pytest.approx(0.7, rel=1e-3)
    assert found.log_evidence >= found.start_log_evidence
    assert 0.1 < found.values["lengthscale"] < 10
    assert found.trace["gradient"].iloc[-1] < 1e-2


def test_lengthscales_of_a_process_one_by_one():
    rows = np.random.default_rng(2).uniform(-3, 3, size=(40, 2))
    labels = np.sin(2 * rows[:, 0]) > 0.1  # the second covariate is noise
    with pm.Model() as model:
        lengthscale = pm.Data("lengthscale", [1.0, 1.0])
        gp = pm.gp.Latent(cov_func=pm.gp.cov.Matern32(2, ls=lengthscale))
        f = gp.prior("f", rows)
        pac.AUCPotential("auc", f, labels, gamma=40.0)
    found = pac.maximize_evidence(model, "lengthscale", progressbar=False)
    assert found.log_evidence > found.start_log_evidence
    assert found.values["lengthscale"][1] > 3 * found.values["lengthscale"][0]


@pytest.mark.slow
def test_spike_and_slab():
    with pm.Model() as model:
        odds, v0, v1 = pm.Data("odds", 1.0), pm.Data("v0", 1e-2), pm.Data("v1", 1.0)
        theta = pac.SpikeSlab("theta", p=odds / (1.0 + odds), v0=v0, v1=v1, shape=6)
        pac.AUCPotential("auc", X @ theta, y, gamma=60.0)
    found = pac.maximize_evidence(model, ["odds", "v0", "v1"], progressbar=False)
    assert found.flat == ("a common scale of v0 * v1",)
    assert 0 < found.values["odds"] < np.inf
    assert found.log_evidence > found.start_log_evidence


def test_refusals_leave_the_model_alone():
    model = grouped(True)
    with pytest.raises(ValueError, match="over is empty"):
        pac.maximize_evidence(model)
    with pytest.raises(ValueError, match="over must be a name or a list of names, without transforms"):
        pac.maximize_evidence(model, {"scale": "logit"})
    with pytest.raises(ValueError, match="over has sigma, no pm"):
        pac.maximize_evidence(model, ["sigma"])
    with grouped(True) as negative:
        negative["scale"].set_value([1.0, -1.0])
    with pytest.raises(ValueError, match="scale must have floating-point values that are positive"):
        pac.maximize_evidence(negative, "scale")
    with pm.Model() as counts:
        n = pm.Data("n", [1, 2])
        theta = pm.Normal("theta", 0.0, n[GROUP], shape=6)
        pac.AUCPotential("auc", X @ theta, y, gamma=60.0)
    with pytest.raises(ValueError, match="floating-point values"):
        pac.maximize_evidence(counts, "n")
    np.testing.assert_array_equal(model["scale"].get_value(), [1.0, 1.0])


def test_gamma_is_not_chosen_by_evidence():
    with pm.Model() as model:
        gamma, scale = pm.Data("gamma", 30.0), pm.Data("scale", [1.0, 1.0])
        theta = pm.Normal("theta", 0.0, scale, shape=2)
        pac.AUCPotential("auc", np.eye(2)[[0, 1, 0, 1]] @ theta, [0, 1, 1, 0], gamma=gamma)
    for over in ("gamma", ["scale", "gamma"]):
        with pytest.raises(ValueError, match=r"gamma is the gamma of auc.*pac\.select_gamma"):
            pac.maximize_evidence(model, over=over)
