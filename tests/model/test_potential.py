import multiprocessing

import cloudpickle
import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    return X, (X[:, 0] + rng.standard_normal(40) > 0.3).astype(int)


def linear_model(X, y, gamma=7.0, **kwargs):
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma, **kwargs)
    return model


def evaluate(model, theta):
    return float(model.compile_fn(model.potentiallogp, mode="FAST_COMPILE")({"theta": theta}))


def test_potential_is_minus_gamma_times_risk(data):
    X, y = data
    theta = np.array([1.0, -0.5, 0.2])
    assert evaluate(linear_model(X, y), theta) == pytest.approx(-7.0 * pac.empirical_risk(X @ theta, y), rel=1e-12)


def test_risk_is_tracked(data):
    model = linear_model(*data)
    assert [v.name for v in model.deterministics] == ["auc_risk"]
    assert not linear_model(*data, track_risk=False).deterministics


@pytest.mark.parametrize("encode", [lambda y: y, lambda y: 2 * y - 1, lambda y: y == 1])
def test_label_encodings(data, encode):
    X, y = data
    assert evaluate(linear_model(X, encode(y)), np.ones(3)) == evaluate(linear_model(X, y), np.ones(3))


def test_string_labels_need_the_positive_class(data):
    X, y = data
    words = np.where(y == 1, "sick", "well")
    with pytest.raises(ValueError, match="positive="):
        linear_model(X, words)
    assert evaluate(linear_model(X, words, positive="sick"), np.ones(3)) == evaluate(linear_model(X, y), np.ones(3))


def test_data_containers_can_be_replaced(data):
    X, y = data
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        Xd, yd, gamma = pm.Data("X", X), pm.Data("y", y), pm.Data("gamma", 7.0)
        pac.AUCPotential("auc", Xd @ theta, yd, gamma)
    function = model.compile_fn(model.potentiallogp, mode="FAST_COMPILE")
    point = {"theta": np.ones(3)}
    assert float(function(point)) == pytest.approx(-7 * pac.empirical_risk(X @ np.ones(3), y))
    with model:
        pm.set_data({"X": -X[:20], "y": y[:20], "gamma": 3.0})
    assert float(function(point)) == pytest.approx(-3 * pac.empirical_risk(-X[:20] @ np.ones(3), y[:20]))


def test_the_surrogate_gets_nuts_and_tracks_the_exact_risk(data):
    X, y = data
    model = linear_model(X, y, 30.0, loss="logistic")
    with model:
        idata = pm.sample(50, tune=50, chains=1, progressbar=False, random_seed=1, compute_convergence_checks=False)
    posterior = idata["posterior"]
    assert "tree_depth" in idata["sample_stats"]
    expected = pac.empirical_risk(posterior["theta"].values @ X.T, y)
    np.testing.assert_allclose(posterior["auc_risk"].values, expected, rtol=1e-12)


def test_survives_pickling(data):
    model = linear_model(*data)
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert evaluate(copy, np.ones(3)) == evaluate(model, np.ones(3))


def _in_child(payload):
    return evaluate(cloudpickle.loads(payload), np.ones(3))


def test_survives_a_spawned_process(data):
    model = linear_model(*data)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_in_child, (cloudpickle.dumps(model),)) == evaluate(model, np.ones(3))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"scores": 3.0}, ValueError, "single number"),
        ({"scores": [[1.0, 2.0], [3.0]]}, TypeError, "numeric"),
        ({"scores": np.zeros((40, 2))}, ValueError, "2 dimensions"),
        ({"y": np.zeros(40)}, ValueError, "one class only"),
        ({"y": np.arange(40)}, ValueError, "40 distinct values"),
        ({"y": np.arange(39) % 2}, ValueError, "40 observations along its last axis but y has 39"),
        ({"y": []}, ValueError, "empty"),
        ({"gamma": 0.0}, ValueError, "gamma must be"),
        ({"gamma": -1.0}, ValueError, "gamma must be"),
        ({"gamma": np.nan}, ValueError, "gamma must be"),
        ({"gamma": "often"}, ValueError, 'a number, pm.Data or "default"'),
        ({"ties": "keep"}, ValueError, "ties must be"),
        ({"loss": "square"}, ValueError, "loss must be"),
    ],
)
def test_bad_input(data, change, error, message):
    X, y = data
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        with pytest.raises(error, match=message):
            pac.AUCPotential("auc", **{"scores": X @ theta, "y": y, "gamma": 1.0, **change})


def test_bad_data_containers(data):
    X, y = data
    with pm.Model():
        theta = pm.Normal("theta", size=3)
        with pytest.raises(ValueError, match="gamma must be"):
            pac.AUCPotential("a", X @ theta, y, pm.Data("gamma", -2.0))
        with pytest.raises(ValueError, match="one class only"):
            pac.AUCPotential("b", X @ theta, pm.Data("y", np.ones(40)), 1.0)


def test_equal_rows_tie():
    """Exactly on arrays; in the graph where each distinct row is computed once (docs/reference/conventions.md)."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 13))
    place = np.array([0, 1, 2, 0, 1, 2, 0])
    labels = [1, 0, 1, 0, 1, 0, 0]
    root = rng.normal(size=(13, 13))
    with pm.Model():
        theta = pm.MvNormal("theta", np.zeros(13), root @ root.T)
        pac.AUCPotential("auc", (rows @ theta)[place], labels, gamma=5.0)
        step = pac.TemperingSMC(particles=200)
        idata = pm.sample(200, step=step, chains=1, cores=1, random_seed=1, progressbar=False, quiet=True)
    values = idata["posterior"]["theta"].values[0] @ rows.T
    exact = pac.empirical_risk(values[:, place], labels)
    np.testing.assert_allclose(idata["sample_stats"]["risk"].values[0], exact, atol=1e-12)
    np.testing.assert_allclose(idata["posterior"]["auc_risk"].values[0], exact, atol=1e-12)
