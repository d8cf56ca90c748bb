"""What is read off a model is what the model is now: nothing that was kept may be stale."""

import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.model.transform.optimization import freeze_dims_and_data

import pymc_pacauc as pac
from pymc_pacauc.model import graph as flat
from pymc_pacauc.model import graph as interpret
from pymc_pacauc.model.auc_term import NotLinearGaussianError
from pymc_pacauc.model.read import problem_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 3))
Y = (X[:, 0] + RNG.standard_normal(30) > 0.3).astype(int)
OTHER_X = RNG.standard_normal((20, 3))
OTHER_Y = (OTHER_X[:, 1] > 0).astype(int)


def readable(theta):
    return theta


def compiled(theta):
    """Affine, but no rule knows it."""
    return pt.cumsum(theta)


FORMS = pytest.mark.parametrize("form", [readable, compiled])


def model_of(form, X=X, y=Y, gamma=7.0):
    with pm.Model(coords={"column": list("abc")}) as model:
        sd = pm.Data("sd", 2.0)
        theta = pm.Normal("theta", 0.0, sd, dims="column")
        scores = pm.Data("X", X) @ form(theta)
        pac.AUCPotential("auc", scores, pm.Data("y", y), pm.Data("gamma", gamma))
    return model


def check(model, form, X=X, y=Y, gamma=7.0, sd=2.0):
    problem = problem_of(model).problem
    expected = X if form is readable else np.cumsum(X[:, ::-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(problem.X, expected, atol=1e-12)
    np.testing.assert_array_equal(problem.prior.factor, np.full(3, sd))
    assert problem.gamma == pytest.approx(gamma)
    [block] = problem.pairs.blocks
    np.testing.assert_array_equal(np.sort(block.positive), np.flatnonzero(y))


@FORMS
def test_data_are_read_anew(form):
    model = model_of(form)
    check(model, form)
    with model:
        pm.set_data({"gamma": 9.0})
        check(model, form, gamma=9.0)
        pm.set_data({"sd": 3.0})
        check(model, form, gamma=9.0, sd=3.0)
        pm.set_data({"y": 1 - Y})
        check(model, form, y=1 - Y, gamma=9.0, sd=3.0)
        pm.set_data({"X": OTHER_X, "y": OTHER_Y})
        check(model, form, OTHER_X, OTHER_Y, gamma=9.0, sd=3.0)


@FORMS
def test_arrays_written_to_are_read_anew(form):
    """Of a shared variable that borrows an array, and of a constant, which is the array it was made of."""
    shared, constant = X.copy(), X.copy()
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        borrowed = pytensor.shared(shared, borrow=True)
        pac.AUCPotential("auc", (borrowed + pt.as_tensor(constant)) @ form(theta), Y, 7.0)
    before = problem_of(model).problem.X.copy()
    borrowed.get_value(borrow=True)[:] *= 2.0
    twice = problem_of(model).problem.X
    for each in [
        v for v in pytensor.graph.traversal.ancestors(model.potentials) if getattr(v, "data", None) is not None
    ]:
        if np.shape(each.data) == X.shape:
            each.data[:] *= 2.0
    np.testing.assert_allclose(twice, 1.5 * before)
    np.testing.assert_allclose(problem_of(model).problem.X, 2.0 * before)


@FORMS
def test_new_terms_variables_and_lengths_are_seen(form):
    model = model_of(form)
    check(model, form)
    with model:
        more = pm.Normal("more")
        assert problem_of(model).problem.d == 4
        pac.AUCPotential("second", pm.Data("Z", X) @ form(model["theta"]) + more * X[:, 0], Y, 3.0)
        joint = problem_of(model).problem
        assert (joint.n, joint.gamma) == (60, 10.0)
        pm.Potential("another", -(more**2))
        with pytest.raises(NotLinearGaussianError, match=r"other potentials \(another\)"):
            problem_of(model)


@FORMS
def test_lengths_that_change_are_seen(form):
    with pm.Model(coords={"column": range(3)}) as model:
        covariates = pm.Data("X", X, dims=("row", "column"))
        pac.AUCPotential("auc", covariates @ form(pm.Normal("theta", dims="column")), Y, 7.0)
        assert problem_of(model).problem.d == 3
        pm.set_data({"X": X[:, :2]}, coords={"column": range(2), "row": range(30)})
        assert problem_of(model).problem.d == 2


@FORMS
def test_copies_have_problems_of_their_own(form):
    model = model_of(form)
    check(model, form)
    frozen, copy = freeze_dims_and_data(model), model.copy()
    thawed = pickle.loads(cloudpickle.dumps(model))
    with model:
        pm.set_data({"X": OTHER_X, "y": OTHER_Y})
    check(model, form, OTHER_X, OTHER_Y)
    check(frozen, form)
    check(thawed, form)
    assert problem_of(copy).model is copy
    assert problem_of(pm.do(copy, {"gamma": 5.0})).problem.gamma == pytest.approx(5.0)


@FORMS
def test_threads_do_not_mix(form):
    models = [model_of(form, X * k) for k in (1.0, 2.0)]

    def read(k):
        return problem_of(models[k % 2]).problem.X

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, range(40)))
    for k, each in enumerate(found):
        np.testing.assert_allclose(each, found[0] * (1.0 + k % 2))


def test_a_model_is_let_go():
    model = model_of(compiled)
    problem_of(model)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def hierarchy():
    return X @ (pm.Normal("shift") + 0.5 * pm.Normal("theta", [0.0, 1.0, 2.0], size=3))


def groups():
    at = pm.Data("at", np.arange(30) % 4)
    return pm.Data("X", X) @ pm.Normal("theta", size=3) + pm.Normal("group", 0.0, [1.0, 2.0, 3.0, 4.0])[at]


def latent():
    return pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(3, ls=2.0)).prior("f", X=X)


def hilbert():
    return pm.gp.HSGP(m=[3, 3, 3], c=1.5, cov_func=pm.gp.cov.ExpQuad(3, ls=2.0)).prior("f", X=X)


def written_out():
    theta = pm.MvNormal("theta", np.ones(3), np.eye(3) + 0.5)
    a, b = pm.Normal("a"), pm.Normal("b", size=2)
    stacked = pt.stack([a, b[0], b[1]])
    joined = pt.concatenate([b, theta[:1], [4.0]])
    return (
        sum(X[:, k] * theta[k] for k in range(3))
        - (X * stacked).sum(axis=1) / 3.0
        + theta[::-1] @ X.T
        + X[:, :2] @ b.reshape((2, 1))[:, 0]
        + pt.outer(pt.as_tensor(X[:, 0]), joined)[:, 1:].sum(axis=-1)
    )


@pytest.mark.parametrize("scores", [hierarchy, groups, latent, hilbert, written_out])
def test_affine_graphs_are_read_without_compiling(scores, monkeypatch):
    def compile_function(*args, **kwargs):
        raise AssertionError("compiled")

    with pm.Model() as model:
        graph = scores()
        pac.AUCPotential("auc", graph, Y, gamma=7.0)
    with monkeypatch.context() as patch:
        for module in (flat, interpret):
            patch.setattr(module, "compile_function", compile_function)
        extracted = problem_of(model)
    theta = np.random.default_rng(1).standard_normal((5, extracted.problem.d))
    [values] = extracted.function(graph)(theta)
    np.testing.assert_allclose(theta @ extracted.problem.X.T + extracted.problem.offset, values, atol=1e-10)


def test_a_parent_of_a_prior_is_no_constant():
    """Centred: the variables are correlated, though the parent by itself is independent of all."""
    with pm.Model() as model:
        shift = pm.Normal("shift", 0.0, [1.0, 2.0, 3.0])
        theta = pm.Normal("theta", shift, 2.0)
        pac.AUCPotential("auc", X @ theta, Y, gamma=7.0)
    factor = problem_of(model).problem.prior.factor
    expected = np.block([[v := np.diag([1.0, 4.0, 9.0]), v], [v, v + 4.0 * np.eye(3)]])
    np.testing.assert_allclose(factor @ factor.T, expected, atol=1e-10)


def test_labels_made_of_other_data_are_read():
    with pm.Model() as model:
        covariates = pm.Data("X", X)
        pac.AUCPotential("auc", covariates @ pm.Normal("theta", size=3), covariates[:, 1] > 0.2, gamma=7.0)
    [block] = problem_of(model).problem.pairs.blocks
    np.testing.assert_array_equal(np.sort(block.positive), np.flatnonzero(X[:, 1] > 0.2))


def test_random_labels_are_refused():
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, pm.Normal("z", size=30) > 0, gamma=7.0)
    with pytest.raises(NotLinearGaussianError, match="not data with known values"):
        problem_of(model)


@pytest.mark.parametrize("sd", [0.0, -1.0, np.nan])
def test_impossible_standard_deviations_are_refused(sd):
    with pm.Model() as model:
        pac.AUCPotential("auc", X @ pm.Normal("theta", 0.0, pm.Data("sd", sd), size=3), Y, gamma=7.0)
    with pytest.raises(NotLinearGaussianError, match="prior of theta"):
        problem_of(model)
