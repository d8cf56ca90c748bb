import math
import warnings
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest
from scipy.special import ndtr, ndtri

import pymc_pacauc as pac
from pymc_pacauc import fitting
from pymc_pacauc.certify.bounds import catoni_bound, catoni_rate, pac_bayes_kl
from pymc_pacauc.certify.matchings import bound_of_draws, matching_groups, matching_rate, scores_under
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.sizes import effective_size
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.model.compat import inference_data
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.model.results import as_result, dataset_of
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.tune.evidence import choose_prior


def simulate(n_pos, n_neg, d, auc, rng):
    delta = rng.normal(size=d)
    delta *= np.sqrt(2) * ndtri(auc) / np.linalg.norm(delta)
    y = np.repeat([1, 0], [n_pos, n_neg])
    return rng.normal(size=(n_pos + n_neg, d)) + np.outer(y - 0.5, delta), y, delta


@pytest.fixture(scope="module")
def fitted():
    X, y, _ = simulate(60, 90, 3, 0.85, np.random.default_rng(1))
    with pm.Model() as model:
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", X @ theta, y, gamma=60.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        idata = pm.sample(
            1000, step=pac.TemperingSMC(), chains=2, cores=1, random_seed=1, progressbar=False, quiet=True
        )
    return model, approx, idata


def test_closed_form(fitted):
    _, approx, _ = fitted
    known = (approx.expected_risk, approx.posterior.divergence_from_prior, 60, 0.05)
    certified = pac.certificate(approx)
    assert certified.auc == pytest.approx(1 - pac_bayes_kl(*known))
    assert certified.mean_score_auc == pytest.approx(max(0, 1 - 2 * pac_bayes_kl(*known)))
    assert (certified.m, certified.n_pos, certified.n_neg) == (60, 60, 90)
    assert 0.5 < certified.auc < certified.empirical_auc
    assert certified.monte_carlo is None
    catoni = pac.certificate(approx, bound="catoni", selected_from=5)
    assert catoni.auc == pytest.approx(1 - catoni_bound(*known[:3], 0.05 / 5, rate=catoni_rate(60, 3)))
    assert "among 5 priors" in repr(catoni)
    assert "PAC-Bayes-kl" in repr(certified)
    assert "(n+ = 60, n- = 90)" in repr(certified)


def test_from_draws_of_an_approximation(fitted):
    _, approx, _ = fitted
    assert pac.certificate(approx.sample(10)).auc == pytest.approx(pac.certificate(approx).auc)


def test_from_tempering(fitted):
    model, approx, idata = fitted
    certified = pac.certificate(idata, model=model)
    z, gamma = pac.log_evidence(idata), 60.0
    stats = idata["sample_stats"]
    risk = float(stats["expected_risk"].values[:, 0].mean())  # of all states that the last stage of each run visited
    assert certified.empirical_auc == pytest.approx(1 - risk, abs=1e-9)
    error = np.sqrt(stats["expected_risk_variance"].values[:, 0].mean())
    assert abs(stats["risk"].values.mean() - risk) < 4.0 * error
    assert certified.divergence > -gamma * risk - z.estimate  # on the safe side
    assert abs(certified.auc - pac.certificate(approx).auc) < 0.02
    assert math.isnan(certified.mean_score_auc)
    assert "not a proof" in repr(certified)
    with model:
        assert pac.certificate(idata) == certified


def test_the_gibbs_posterior_is_not_worse_than_the_best_gaussian(fitted):
    """It minimises gamma * risk + KL, up to the Monte Carlo margin."""
    model, _, idata = fitted
    with model:
        vb = pm.fit(method=pac.GaussianVB(), progressbar=False)
    gibbs, gaussian = pac.certificate(idata, model=model), pac.certificate(vb)
    margin = 60 * 3 * gibbs.monte_carlo[0] + 3 * gibbs.monte_carlo[1]
    objective = [60 * (1 - c.empirical_auc) + c.divergence for c in (gibbs, gaussian)]
    assert objective[0] <= objective[1] + margin + 1e-9


def test_draws_need_no_model_and_refuse_another(fitted):
    """Labels that change after sampling do not reach the certificate: 40 copies of the rows made it jump."""
    X, y, _ = simulate(30, 30, 2, 0.8, np.random.default_rng(3))
    with pm.Model() as model:
        rows, labels = pm.Data("X", X), pm.Data("y", y)
        theta = pm.Normal("theta", size=2)
        pac.AUCPotential("auc", rows @ theta, labels, gamma=20.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        idata = pm.sample(400, step=pac.TemperingSMC(), chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    before = [pac.certificate(result) for result in (idata, approx, approx.sample(20))]
    assert before == [pac.certificate(result, model=model) for result in (idata, approx, approx.sample(20))]
    with model:
        pm.set_data({"X": np.tile(X, (40, 1)), "y": np.tile(y, 40)})
    for result, expected in zip((idata, approx, approx.sample(20)), before, strict=True):
        assert pac.certificate(result) == expected
        with pytest.raises(ValueError, match=r"positives \(30 when fitted, 1200 now\).*labels, covariates or prior"):
            pac.certificate(result, model=model)
        with pytest.raises(ValueError, match="not what this result was fitted to"):
            pac.summary(result, model=model)


def test_standardised_covariates_are_pointed_out():
    X, y, _ = simulate(40, 40, 3, 0.85, np.random.default_rng(2))
    forms = [
        (X - X.mean(0)) / X.std(0),
        (X - X.mean(0)) / X.std(0, ddof=1),
        X - X.mean(0),
        X / X.std(0),
        (X - X.min(0)) / np.ptp(X, axis=0),
        2.0 * (X - X.min(0)) / np.ptp(X, axis=0) - 1.0,
        X / np.abs(X).max(0),
        (X - np.median(X, 0)) / np.subtract(*np.quantile(X, [0.75, 0.25], axis=0)),
        np.argsort(np.argsort(X, axis=0), axis=0).astype(float),
    ]
    for k, design in enumerate([X, *forms]):
        fit = fitting.fit(linear_gaussian_problem(design, y, 30.0))
        assert any("CAUTION" in sentence for sentence in pac.certificate(fit).assumptions) is (k > 0)


def test_a_prior_tuned_on_the_data_is_refused():
    X, y, _ = simulate(40, 60, 4, 0.85, np.random.default_rng(5))
    with pm.Model() as model:
        scale = pm.Data("scale", [1.0, 1.0])
        theta = pm.Normal("theta", 0.0, scale[[0, 0, 1, 1]], shape=4)
        pac.AUCPotential("auc", X @ theta, y, gamma=50.0)
        assert pac.certificate(pm.fit(method=pac.EP(), progressbar=False)).auc > 0.5
        found = pac.maximize_evidence(model, over=["scale"], progressbar=False)
        options = {"chains": 1, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}
        idata = pm.sample(100, step=pac.TemperingSMC(particles=200), **options)
        approx = pm.fit(method=pac.EP(), progressbar=False)
        for result in (found, found.approx, approx, approx.sample(20), idata):
            with pytest.raises(ValueError, match="tuned on these data"):
                pac.certificate(result)
            assert "NO GUARANTEE" in repr(pac.certificate(result, tuned_prior="accept"))
        for refused in (pac.certify.split, lambda m: pac.select_gamma(m, [9.0], criterion="certificate")):
            with pytest.raises(ValueError, match="tuned on these data"):
                refused(model)
        chosen = pac.select_gamma(model, [9.0, 90.0], folds=2, progressbar=False)
        assert chosen.table["certified_auc"].isna().all()
        pm.set_data({"scale": [1.0, 1.0]})
        assert pac.certificate(pm.fit(method=pac.EP(), progressbar=False)).auc > 0.5


def test_priors_chosen_on_arrays_are_refused_too():
    X, y, _ = simulate(40, 60, 2, 0.85, np.random.default_rng(5))
    problem = linear_gaussian_problem(X, y, 50.0)
    shrunk = choose_prior(problem, shrinkages=[0.3, 1.0]).problem
    for tuned in (pac.choose_lengthscale(X, y, 50.0, rank=10, max_evaluations=2).fit.problem, shrunk):
        fit = fitting.fit(tuned)
        for refused in (lambda fit=fit: pac.certificate(fit), lambda tuned=tuned: pac.certify.split(tuned)):
            with pytest.raises(ValueError, match="tuned on these data"):
                refused()
    charged = pac.certificate(fit, selected_from=2, tuned_prior="charge")
    untold = pac.certificate(fitting.fit(replace(shrunk, tuned_prior=False)), selected_from=2)
    assert charged == untold
    assert not any("NO GUARANTEE" in sentence for sentence in charged.assumptions)
    with pytest.raises(ValueError, match="needs selected_from"):
        pac.certificate(fit, tuned_prior="charge")
    assert choose_prior(problem, shrinkages=[1.0]).problem.tuned_prior is False  # nothing was chosen


def test_features_made_from_these_rows_are_pointed_out():
    X, y, _ = simulate(40, 60, 2, 0.85, np.random.default_rng(5))
    elsewhere = np.random.default_rng(6).normal(size=(30, 2))
    for rows, told in ((X, True), (elsewhere, False)):
        features = pac.kernel_features(rows, lengthscale=1.5, rank=10)
        with pm.Model():
            theta = pm.Normal("theta", shape=features.rank)
            pac.AUCPotential("auc", features(pm.Data("X", X)) @ theta, y, gamma=50.0)
            approx = pm.fit(method=pac.EP(), progressbar=False)
        for result in (approx, approx.sample(10)):
            cautions = [
                each for each in pac.certificate(result).assumptions if "features were made from these rows" in each
            ]
            assert bool(cautions) is told


def test_ties_always_cost_one_half():
    X = np.random.default_rng(0).integers(0, 2, size=(60, 2)).astype(float)
    y = np.arange(60) % 2
    half, strict = (fitting.fit(linear_gaussian_problem(X, y, 20.0, ties=ties)) for ties in ("half", "strict"))
    assert strict.expected_risk < half.expected_risk
    assert pac.certificate(strict).empirical_auc == pytest.approx(1 - half.expected_risk, abs=0.01)


def test_pairs_that_an_offset_ranks_are_not_ties():
    X = np.random.default_rng(0).integers(0, 2, size=(60, 2)).astype(float)
    y, offset = np.arange(60) % 2, 0.3 * np.arange(60) % 7
    fits = [fitting.fit(linear_gaussian_problem(X, y, 20.0, offset=offset, ties=ties)) for ties in ("half", "strict")]
    for fit in fits:
        scores = fit.posterior.draw(4000, np.random.default_rng(1)) @ X.T + offset
        monte_carlo = pac.empirical_risk(np.round(scores, 9), y)
        error = monte_carlo.std() / np.sqrt(4000)
        assert pac.certificate(fit).empirical_auc == pytest.approx(1 - monte_carlo.mean(), abs=5 * error)


def test_unconverged_fits_are_certified_for_what_they_are():
    X, y, _ = simulate(40, 40, 3, 0.85, np.random.default_rng(2))
    problem = linear_gaussian_problem(X, y, 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rough = fitting.fit(problem, max_sweeps=3)
    scores = rough.posterior.draw(20_000, np.random.default_rng(1)) @ X.T
    monte_carlo = pac.empirical_risk(scores, y)
    error = monte_carlo.std() / np.sqrt(20_000)
    assert pac.certificate(rough).empirical_auc == pytest.approx(1 - monte_carlo.mean(), abs=5 * error)


def test_refusals(fitted):
    _, approx, idata = fitted
    with pytest.raises(ValueError, match="bound must be"):
        pac.certificate(approx, bound="best")
    with pytest.raises(ValueError, match="epsilon"):
        pac.certificate(approx, epsilon=0)
    with pytest.raises(TypeError, match="result must come from"):
        pac.certificate(3.0)
    with pm.Model() as other:
        theta = pm.Normal("theta", size=3)
        pac.AUCPotential("auc", np.eye(3) @ theta, [0, 1, 1], gamma=1.0)
    with pytest.raises(ValueError, match=r"gamma \(60.0 when fitted, 1.0 now\)"):
        pac.certificate(idata, model=other)


@pytest.mark.parametrize(("n_pos", "n_neg", "d"), [(15, 40, 2), (60, 60, 4)])
def test_coverage(n_pos, n_neg, d):
    """The long version is benchmarks/certificates.py. Counting every pair as independent fails on the same data."""
    rng = np.random.default_rng(10)
    violations = careless = 0
    for _ in range(60):
        X, y, delta = simulate(n_pos, n_neg, d, 0.8, rng)
        fit = fitting.fit(linear_gaussian_problem(X, y, 40.0), "vb")
        theta = fit.posterior.draw(2000, rng)
        truth = ndtr(theta @ delta / (np.sqrt(2) * np.linalg.norm(theta, axis=1))).mean()
        violations += any(pac.certificate(fit, bound=bound).auc > truth for bound in ("kl", "catoni"))
        careless += 1 - pac_bayes_kl(fit.expected_risk, fit.divergence, n_pos * n_neg) > truth
    assert violations <= 3
    assert careless > 15


def test_the_safe_side_is_three_standard_errors_of_both(fitted):
    """Of the risk, twice (it enters the divergence too), and of the evidence."""
    _, _, idata = fitted
    stats = idata["sample_stats"]
    risks, variances = (
        [float(stats[name].values[c, 0]) for c in (0, 1)] for name in ("expected_risk", "expected_risk_variance")
    )
    error = max(np.sqrt(np.sum(variances)) / 2, np.std(risks, ddof=1) / np.sqrt(2))
    evidence = pac.log_evidence(idata)
    risk, divergence = np.mean(risks), -60.0 * np.mean(risks) - evidence.estimate
    safe = (risk + 3 * error, divergence + 3 * (60.0 * error + evidence.standard_error))
    certified = pac.certificate(idata)
    assert certified.auc == pytest.approx(1 - pac_bayes_kl(*safe, 60, 0.05), rel=1e-12)
    assert certified.divergence == pytest.approx(safe[1], rel=1e-12)
    assert certified.monte_carlo == pytest.approx((error, evidence.standard_error))


def test_chains_that_disagree_about_the_risk_widen_its_error(fitted):
    _, _, idata = fitted
    stats = dataset_of(idata, "sample_stats").copy(deep=True)
    alike = as_result(inference_data({"sample_stats": stats})).mean_risk
    stats["expected_risk"].values[1] += 0.1
    apart = as_result(inference_data({"sample_stats": stats})).mean_risk
    assert apart.error == pytest.approx(0.05, abs=2 * alike.error)
    assert apart.value == pytest.approx(alike.value + 0.05)


def test_tight_enough():
    """The case n = 532, d = 7, one third positive, of benchmarks/certificates.py."""
    X, y, _ = simulate(177, 355, 7, 0.875, np.random.default_rng(2014))
    fit = fitting.fit(linear_gaussian_problem(X, y, 238.0))
    assert pac.certificate(fit).auc > 0.70
    assert pac.certificate(fit, bound="catoni").auc > 0.72


@pytest.mark.parametrize("kind", ["weights", "strata", "ordered", "censored"])
def test_other_comparisons_count_their_own_m(kind):
    rng = np.random.default_rng(8)
    n = 300
    X = rng.standard_normal((n, 2))
    signal = X[:, 0] + 0.3 * rng.standard_normal(n)
    with pm.Model() as model:
        theta = pm.Normal("theta", size=2)
        if kind == "weights":
            pac.AUCPotential("auc", X @ theta, signal > 0, 80.0, weights=rng.gamma(5.0, size=n))
        elif kind == "strata":
            pac.AUCPotential("auc", X @ theta, signal > 0, 80.0, strata=np.arange(n) % 3)
        elif kind == "ordered":
            pac.AUCPotential("auc", X @ theta, np.digitize(signal, [-0.5, 0.5]), 80.0, ordered=True)
        else:
            pac.ConcordancePotential("c", X @ theta, np.exp(-signal), rng.random(n) < 0.7, 80.0)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    certified = pac.certificate(approx)
    fitted = approx.fitted_to
    assert certified.m == pytest.approx(effective_size(problem_of(model).problem.pairs))
    expected = pac_bayes_kl(approx.expected_risk, approx.divergence.value, certified.m, equal_matchings=False)
    assert certified.auc == pytest.approx(1 - expected)
    assert 0.5 < certified.auc < certified.empirical_auc
    assert "given" in certified.assumptions[0]
    assert f"{certified.m:g}" in repr(certified)
    assert pac.certificate(approx.sample(50)).m == pytest.approx(fitted.m_eff)
    assert 0.0 <= pac.certificate(approx, bound="catoni").auc < certified.empirical_auc


def test_estimated_weights_have_no_certificate():
    rng = np.random.default_rng(8)
    X = rng.standard_normal((60, 2))
    time = np.exp(-X[:, 0])
    with pm.Model():
        theta = pm.Normal("theta", size=2)
        tau = float(np.quantile(time, 0.7))
        pac.ConcordancePotential("c", X @ theta, time, rng.random(60) < 0.7, 30.0, weights="ipcw", tau=tau)
        approx = pm.fit(method=pac.EP(), progressbar=False)
    with pytest.raises(ValueError, match="no certificate with estimated weights"):
        pac.certificate(approx)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tuned_prior": "ignore"}, '"refuse", "charge" or "accept"; got \'ignore\''),
        ({"tuned_prior": "charge"}, "needs selected_from"),
        ({"groups": np.arange(40) // 2, "bound": "matchings"}, "for independent observations, not groups"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    X = np.random.default_rng(1).normal(size=(40, 2))
    found = pac.arrays.fit(linear_gaussian_problem(X, X[:, 0] > 0.0, gamma=10.0))
    with pytest.raises(ValueError, match=message):
        pac.certificate(found, **options)


def test_rows_of_one_class_have_no_bound():
    with pytest.raises(ValueError, match="rows of both classes"):
        matching_groups(np.ones(4, dtype=bool))


# -- on arrays -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_arrays():
    X, y, _ = simulate(30, 50, 2, 0.85, np.random.default_rng(7))
    return fitting.fit(linear_gaussian_problem(X, y, 40.0), n_jobs=1)


def test_a_bound_with_a_rate(on_arrays):
    """The best for a divergence of d at the whole epsilon; a choice among priors changes the bound only."""
    found = pac.certificate(on_arrays, 0.1, bound="catoni", selected_from=3)
    rate = catoni_rate(30, 2, 0.1)
    known = (on_arrays.expected_risk, on_arrays.divergence, 30, 0.1 / 3)
    assert found.auc == pytest.approx(1.0 - catoni_bound(*known, rate=rate), abs=1e-12)
    assert found.bound == f"Catoni, rate {rate:.4g}"


def test_the_rate_over_matchings(on_arrays):
    """It is the best for a divergence of d: the bound is that of draws of the training scores."""
    found = pac.certificate(on_arrays, 0.1, bound="matchings", selected_from=2)
    positive = np.arange(80) < 30
    rate = matching_rate(30, 50, 2, 0.05)
    scores = scores_under(on_arrays.problem, on_arrays.posterior.natural, np.ones(80, dtype=bool))
    grouping, rng = matching_groups(positive), np.random.default_rng(0)
    near = bound_of_draws(scores, on_arrays.divergence, grouping, 2.0, 0.05, rng=rng, compared=100)
    assert found.auc == pytest.approx(1.0 - near.risk, abs=0.01)  # other draws
    assert found.bound == f"Mean over matchings, rate {rate:.4g}"
    [said] = [each for each in found.assumptions if "Monte Carlo error" in each]
    assert "1000 draws" in said
    assert "10% of epsilon" in said


def test_what_a_certificate_says(on_arrays):
    one, two = pac.certificate(on_arrays, 0.1), pac.certificate(on_arrays, 0.1, selected_from=2)
    record = on_arrays.problem.pairs
    assert (one.n_pos, one.n_neg, one.m, one.groups, one.epsilon, one.gamma) == (30, 50, 30, 0, 0.1, 40.0)
    assert (one.selected_from, two.selected_from) == (1, 2)
    assert (one.method, one.comparison) == ("EP", record.kind)
    assert one.divergence == on_arrays.divergence
    assert not any("choice among" in each for each in one.assumptions)
    assert sum("choice among 2 priors" in each for each in two.assumptions) == 1
    assert f"Certified AUC >= {one.auc:.4f} with probability 0.9 (PAC-Bayes-kl, EP)" in repr(one)
    assert f"mean score     >= {one.mean_score_auc:.4f}" in repr(one)
    assert ("(vacuous)" in repr(one)) == (one.mean_score_auc <= 0.5)
    assert f"on these rows  {one.empirical_auc:.4f} (randomised score, gamma = 40)" in repr(one)
    assert f"KL             {one.divergence:.3f} nats" in repr(one)
    assert "m              30 (n+ = 30, n- = 50)" in repr(one)
    grouped = pac.certificate(on_arrays, groups=np.arange(80) // 2)
    assert "(n+ = 30, n- = 50, in 40 groups)" in repr(grouped)
    assert "the 40 groups are independent" in grouped.assumptions[0]
    assert grouped.groups == 40
    assert grouped.auc < pac.certificate(on_arrays).auc


KINDS = {
    "two classes": ("within each class observations", "n+ = "),
    "weights": ("given classes, strata and weights", "n+ = "),
    "ordered": ("given classes, strata and weights", "ordered classes, 80 observations"),
    "censored": ("given times, events, strata and weights", " events and "),
}


@pytest.mark.parametrize("kind", KINDS)
def test_which_observations_are_taken_for_independent(kind):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(80, 2))
    signal = X[:, 0] + 0.3 * rng.normal(size=80)
    pairs = {
        "two classes": lambda: label_comparison(signal > 0.0),
        "weights": lambda: label_comparison(signal > 0.0, weights=rng.gamma(5.0, size=80)),
        "ordered": lambda: label_comparison(np.digitize(signal, [-0.5, 0.5]), ordered=True),
        "censored": lambda: concordance(np.exp(-signal), rng.random(80) < 0.7),
    }[kind]()
    found = pac.certificate(fitting.fit(linear_gaussian_problem(X, pairs, 20.0), n_jobs=1))
    words, sizes = KINDS[kind]
    assert words in found.assumptions[0]
    assert sizes in repr(found)
    assert found.m == pytest.approx(effective_size(pairs))
