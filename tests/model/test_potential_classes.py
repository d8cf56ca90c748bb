"""Unordered classes in a PyMC model, a score each: Hand and Till's M through every engine and every analysis."""

import arviz as az
import numpy as np
import pymc as pm
import pytest

import pymc_pacauc as pac
from pymc_pacauc.comparison.kinds import unordered_classes
from pymc_pacauc.comparison.sizes import effective_size, row_shares
from pymc_pacauc.fitting import fit
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.pair_lists import class_pairs, listed, listed_risk
from tests.reference_ep import reference_ep

pytestmark = pytest.mark.usefixtures("quick_compilation")

RNG = np.random.default_rng(30)
N, D, K, GAMMA = 45, 2, 3, 60.0
PLACE = RNG.permutation(np.arange(N) % K)
Y = np.array(["pear", "apple", "fig"])[PLACE]  # sorted: apple, fig, pear
CENTRES = RNG.normal(size=(K, D))
X = CENTRES[PLACE] + 1.2 * RNG.normal(size=(N, D))
NEW = RNG.normal(size=(4, D))


def build(gamma=GAMMA, y=Y, **options):
    with pm.Model(coords={"covariate": ["a", "b"], "fruit": sorted(set(Y.tolist()))}) as model:
        rows = pm.Data("X", X)
        coefficients = pm.Normal("W", dims=("covariate", "fruit"))
        pac.AUCPotential("auc", rows @ coefficients, y, gamma, multi_class="ovo", **options)
    return model


@pytest.fixture(scope="module")
def approx():
    with build():
        return pm.fit(method=pac.EP(), progressbar=False)


@pytest.fixture(scope="module")
def draws():
    with build():
        step = pac.TemperingSMC(particles=400)
        return pm.sample(100, step=step, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)


def test_the_potential_is_minus_gamma_times_one_minus_m():
    weights = RNG.gamma(2.0, size=N)
    model = build(weights=weights)
    at = RNG.normal(size=(D, K))
    [graph] = model.replace_rvs_by_values(model.potentials)
    value = model.compile_fn(graph, inputs=model.value_vars)({"W": at})
    assert value == pytest.approx(-GAMMA * pac.empirical_risk(X @ at, Y, weights=weights, multi_class="ovo"), abs=1e-10)
    risk = pac.auc_risk(X @ at, Y, weights=weights, multi_class="ovo").eval()
    assert value == pytest.approx(-GAMMA * risk, abs=1e-10)


def test_strata_of_classes():
    """Pairs of one stratum, each with the weight that it has without strata, in every face of the risk."""
    strata = np.arange(N) // 3 % 3
    scores = np.round(RNG.normal(size=(N, K)), 1)
    i, j, w = class_pairs(np.searchsorted(np.unique(Y), Y))
    within = strata[i % N] == strata[j % N]
    by_class = [listed_risk(scores.T.ravel(), (i[m], j[m], w[m])) for m in (within & (i // N == k) for k in range(K))]
    found = pac.empirical_risk(scores, Y, strata=strata, multi_class="ovo")
    assert found == pytest.approx(np.mean(by_class), abs=1e-12)
    assert pac.auc_risk(scores, Y, strata=strata, multi_class="ovo").eval() == pytest.approx(found, abs=1e-12)
    with build(strata=strata):
        approx = pm.fit(method=pac.EP(), progressbar=False)
    compared = unordered_classes(Y, None, strata)
    mean, _, _ = reference_ep(X, None, GAMMA / K, weighted_pairs=listed(compared[0]))
    np.testing.assert_allclose(approx.q.mean.reshape(D, K)[:, 0], mean, atol=1e-5)
    sizes = [effective_size(pairs) for pairs in compared]
    assert pac.certificate(approx).m == pytest.approx(min(sizes))


def test_ep_is_that_of_each_class_by_itself(approx):
    """The reference visits every pair of a class, stored one by one."""
    assert str(approx.plan).endswith("from fits of its independent parts: 1 sweep")
    found, total = approx.q.mean.reshape(D, K), 0.0
    for k, pairs in enumerate(unordered_classes(Y)):
        mean, covariance, log_evidence = reference_ep(X, None, GAMMA / K, weighted_pairs=listed(pairs))
        total += log_evidence
        np.testing.assert_allclose(found[:, k], mean, atol=1e-5)
        own = approx.q.covariance.reshape(D, K, D, K)[:, k, :, k]
        np.testing.assert_allclose(own, covariance, atol=1e-5)
    assert approx.log_evidence == pytest.approx(total, abs=1e-5)


def test_evidence_of_classes_with_a_coefficient_each_and_with_a_common_one():
    """With one column the risk depends on signs alone: Z is a mean of two exponentials for each coefficient."""
    x = X[:, :1]
    risks = np.array(
        [[float(pac.empirical_risk(np.outer(s * x[:, 0], np.ones(K)), Y, multi_class="ovo")) for s in (1, -1)]]
    )
    by_class = [[_class_risk(s * x[:, 0], k) for s in (1, -1)] for k in range(K)]
    with pm.Model():
        apart = pm.Normal("W", size=(1, K))
        pac.AUCPotential("auc", x @ apart, Y, GAMMA, multi_class="ovo")
        each = pm.fit(method=pac.EP(), progressbar=False)
    exact = sum(np.log(np.mean(np.exp(-GAMMA / K * np.array(pair)))) for pair in by_class)
    assert each.evidence.estimate == pytest.approx(exact, abs=0.02)
    with pm.Model() as joint:
        common = pm.Normal("theta")
        pac.AUCPotential("auc", x * common * np.ones(K), Y, GAMMA, multi_class="ovo")
        shared = pm.fit(method=pac.EP(), progressbar=False)
        sampled = pm.sample(
            50, step=pac.TemperingSMC(particles=400), chains=1, random_seed=2, progressbar=False, quiet=True
        )
    exact = float(np.log(np.mean(np.exp(-GAMMA * risks))))
    assert len(problem_of(joint).problem.parts) == 1
    assert shared.evidence.estimate == pytest.approx(exact, abs=0.02)
    found = pac.log_evidence(sampled)
    assert abs(found.estimate - exact) < 4 * found.standard_error + 0.02


def _class_risk(score, k):
    blocks = unordered_classes(Y)[k].blocks
    return np.mean([np.mean(score[b.positive][:, None] < score[b.negative][None]) for b in blocks])


def test_smc_agrees_with_ep(approx, draws):
    sampled = pac.log_evidence(draws)
    error = np.hypot(sampled.standard_error, approx.evidence.standard_error)
    assert abs(sampled.estimate - approx.evidence.estimate) < 4 * error
    mean, sd = (getattr(draws["posterior"]["W"], name)(("chain", "draw")).values for name in ("mean", "std"))
    np.testing.assert_allclose(approx.posterior.mean.reshape(D, K), mean, atol=4 * sd.max() / np.sqrt(200))
    ratio = np.sqrt(approx.posterior.variance).reshape(D, K) / sd
    assert (np.abs(np.log(ratio)) < 0.25).all()


def test_draws_have_the_length_of_each_class(approx):
    """Scores of a class are free of scale: the squared length of its coefficients is chi-squared, and of no other."""
    theta = approx.posterior.draw(4000, np.random.default_rng(1)).reshape(-1, D, K)
    square = (theta**2).sum(axis=1)
    np.testing.assert_allclose(square.mean(axis=0), D, atol=5 * np.sqrt(2 * D / 4000))
    assert np.abs(np.corrcoef(square.T) - np.eye(K)).max() < 5 / np.sqrt(4000)
    weighted = approx.importance_sample(2000, random_seed=1)
    assert abs(weighted.log_evidence - approx.evidence.estimate) < 4 * (weighted.log_evidence_se + 0.005)


def test_leave_out_leaves_a_row_out_of_all_scores(approx):
    left = pac.leave_out(approx, groups=np.arange(N) % 5, progressbar=False)
    assert left.scores.shape == (N, K)
    out = np.arange(N) % 5 == 0
    place = np.searchsorted(np.unique(Y), Y)
    for k, pairs in enumerate(unordered_classes(Y)):
        kept = pairs.among(~out)
        gamma = GAMMA / K * kept.total_weight / pairs.total_weight
        refitted = fit(linear_gaussian_problem(X, kept, gamma))
        ours, exact = left.scores[out, k], X[out] @ refitted.posterior.mean
        assert np.corrcoef(ours, exact)[0, 1] > 0.9999
    assert left.auc == pytest.approx(1 - pac.empirical_risk(left.scores, place, multi_class="ovo"), abs=1e-12)


def test_certificate_of_m(approx, draws):
    """The mean of what two-class fits certify at epsilon / K each."""
    found = pac.certificate(approx, 0.1)
    each = [
        pac.certificate(fit(linear_gaussian_problem(X, pairs, GAMMA / K)), 0.1 / K) for pairs in unordered_classes(Y)
    ]
    assert found.auc == pytest.approx(np.mean([one.auc for one in each]), abs=1e-6)
    assert found.m == min(effective_size(pairs) for pairs in unordered_classes(Y)) == N / K
    assert "Certified M >=" in repr(found)
    grouped = pac.certificate(approx, groups=np.arange(N) // 3)
    assert grouped.auc < pac.certificate(approx).auc
    assert grouped.groups == N / 3
    with pytest.raises(ValueError, match=r"pass the result of pm\.fit"):
        pac.certificate(draws)
    with pytest.raises(ValueError, match='M, of unordered classes, is certified with bound="kl" or "catoni"'):
        pac.certificate(approx, bound="matchings")


def test_no_calibrated_spread(approx):
    with pytest.raises(ValueError, match="has one for each class"):
        approx.calibrated()


def test_predictions_and_files(approx, draws, tmp_path):
    summary = pac.predict_scores(approx, NEW, summary=True)
    assert summary["mean"].dims == ("row", "class")
    np.testing.assert_allclose(summary["mean"], NEW @ approx.q.mean.reshape(D, K), atol=1e-10)
    drawn = approx.sample(20, random_seed=3)
    for name, result in {"ep.nc": drawn, "smc.nc": draws}.items():
        result.to_netcdf(tmp_path / name)
        for held in (result, az.from_netcdf(tmp_path / name)):
            scores = pac.predict_scores(held, NEW)
            exact = np.einsum("rd,csdk->csrk", NEW, held["posterior"]["W"].values)
            assert scores.dims == ("chain", "draw", "row", "class")
            np.testing.assert_allclose(scores, exact, atol=1e-10)
    with pytest.raises(ValueError, match="a score for each class"):
        pac.export(approx)


def test_gammas():
    for gamma, each in [(60.0, [20.0, 20.0, 20.0]), (np.array([10.0, 20.0, 30.0]), [10.0, 20.0, 30.0])]:
        by_class = problem_of(build(gamma=gamma)).problem
        assert by_class.gamma == 60.0
        assert [part.problem.gamma for part in by_class.parts] == pytest.approx(each)
    sizes = [4 * row_shares(pairs).size for pairs in unordered_classes(Y)]
    assert problem_of(build(gamma="default")).problem.gamma == pytest.approx(sum(sizes))
    with pm.Model() as model:
        gamma = pm.Data("gamma", 1.0)
        pac.AUCPotential("auc", X @ pm.Normal("W", size=(D, K)), Y, gamma, multi_class="ovo")
    chosen = pac.select_gamma(model, gammas=[1.0, 50.0], folds=3, set_data=True, progressbar=False)
    assert gamma.get_value() == chosen.best


def test_gamma_by_the_certificate_of_m():
    found = pac.select_gamma(build(), gammas=[30.0, 60.0, 120.0], criterion="certificate", progressbar=False)
    with build(gamma=30.0):
        other = pm.fit(method=pac.EP(), progressbar=False)
    certified = found.table.set_index("gamma")["certified_auc"]
    assert certified[30.0] == pytest.approx(pac.certificate(other).auc, abs=1e-6)
    assert found.best == certified.idxmax()
    assert pac.certificate(found).auc == pytest.approx(certified.max(), abs=1e-12)


def test_a_surrogate_is_no_less_than_the_risk_and_is_left_to_nuts():
    model = build(loss="logistic", track_risk=False)
    at = RNG.normal(size=(D, K))
    with pytest.raises(ValueError, match="smooth surrogate"):
        problem_of(model)
    with pm.Model():
        potential = pac.AUCPotential("auc", X @ at, Y, GAMMA, multi_class="ovo", loss="logistic", track_risk=False)
    assert -potential.eval() > GAMMA * pac.empirical_risk(X @ at, Y, multi_class="ovo")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": ["a", "b"] * 22 + ["a"]}, "one column for each of the 2 classes of y; got 3"),
        ({"gamma": [1.0, 2.0]}, "one for each of the 3 classes; got 2"),
        ({"gamma": [1.0, 2.0, -1.0]}, "one finite number > 0"),
        ({"gamma": "MA1"}, 'a number, pm.Data or "default"'),
        ({"ordered": True}, "goes with weights and strata"),
        ({"strata": Y}, "strata leaves no pair"),
        ({"multi_class": "ovr"}, 'multi_class must be "ovo" or None'),
        ({"scores": X[:, 0]}, r"scores must have shape \(n, K\)"),
        ({"scores": np.zeros((2, N, K))}, "got 3 dimensions"),
    ],
)
def test_refusals(change, message):
    given = {"scores": np.zeros((N, K)), "y": Y, "gamma": 1.0, "multi_class": "ovo", **change}
    with pm.Model(), pytest.raises(ValueError, match=message):
        pac.AUCPotential("auc", **given)
