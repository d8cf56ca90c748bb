"""Groups as the independent units: m against its definition, intervals and certificates against clustered data."""

import numpy as np
import pytest

import pymc_pacauc as pac
from benchmarks.certificates import group_failures
from pymc_pacauc.certify.bounds import kl_upper
from pymc_pacauc.comparison.censored import concordance
from pymc_pacauc.comparison.kinds import label_comparison
from pymc_pacauc.comparison.sizes import effective_size
from pymc_pacauc.fitting import fit
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.pair_lists import censored_pairs, label_pairs

RNG = np.random.default_rng(0)
N = 60
Y, STRATA, WEIGHTS, GROUPS = (
    RNG.integers(0, 3, N),
    RNG.integers(0, 4, N),
    RNG.gamma(1.0, size=N),
    RNG.integers(0, 15, N),
)
TIME, EVENT = RNG.integers(1, 15, N).astype(float), RNG.random(N) < 0.6


def by_definition(i, j, w):
    """2 / (3 Delta), Delta the largest weight of the pairs that touch one group, from a list of pairs."""
    touched = [w[(GROUPS[i] == g) | (GROUPS[j] == g)].sum() for g in range(15)]
    return 2 / 3 / (max(touched) / w.sum())


def test_m_of_groups_by_the_definition():
    for options in ({}, {"weights": WEIGHTS}, {"strata": STRATA}, {"weights": WEIGHTS, "strata": STRATA}):
        expected = max(1.0, by_definition(*label_pairs(Y, **options)))
        assert effective_size(label_comparison(Y, ordered=True, **options), GROUPS) == pytest.approx(expected)
    expected = max(1.0, by_definition(*censored_pairs(TIME, EVENT)))
    assert effective_size(concordance(TIME, EVENT), GROUPS) == pytest.approx(expected)


def test_pure_groups_count_as_rows_do():
    """n rows of each of k patients are worth what k rows are; groups of one are rows."""
    patient = np.repeat(np.arange(20), 5)
    pure = label_comparison(np.arange(20)[patient] < 8)
    assert effective_size(pure, patient) == pytest.approx(8.0)
    assert effective_size(pure, np.arange(100)) == effective_size(pure) == 40.0
    with pytest.raises(ValueError, match=r"groups must have shape \(100,\)"):
        effective_size(pure, patient[:7])


def test_rows_repeated_have_the_interval_of_the_rows():
    """A group of copies of one row is one observation: Obuchowski's variance is then DeLong's of the rows."""
    rng = np.random.default_rng(1)
    y = np.arange(40) < 15
    a, b = rng.normal(size=40) + y, rng.normal(size=40) + y
    four, groups = [np.repeat(each, 4) for each in (y, a, b)], np.repeat(np.arange(40), 4)
    once, repeated = pac.auc_interval(a, y), pac.auc_interval(four[1], four[0], groups=groups)
    np.testing.assert_allclose(
        [repeated.auc, repeated.lower, repeated.upper, repeated.se], [once.auc, once.lower, once.upper, once.se]
    )
    assert repeated.over == "groups"
    first, second = pac.compare_auc(a, b, y), pac.compare_auc(four[1], four[2], four[0], groups=groups)
    np.testing.assert_allclose([second.lower, second.upper], [first.lower, first.upper])
    curves, same = pac.roc(a, y), pac.roc(four[1], four[0], groups=groups)
    np.testing.assert_allclose(same["tpr_lower"], curves["tpr_lower"], atol=1e-12)
    with pytest.raises(ValueError, match="two groups with rows of each class; there are 1 and 1"):
        pac.auc_interval(a, y, groups=y)


def test_intervals_over_groups_cover():
    """60 data sets of 30 patients x 4 rows, mixed classes and effects of patients: 90 %, within 3 binomial errors."""
    rng, inside = np.random.default_rng(2), []
    for _ in range(200):
        patient = np.repeat(np.arange(40), 4)
        y = rng.random(160) < np.where(rng.random(40) < 0.5, 0.2, 0.8)[patient]
        score = 1.5 * rng.normal(size=40)[patient] + rng.normal(size=160)  # of no use: AUC 1/2
        found = [pac.auc_interval(score, y, groups=groups) for groups in (patient, None)]
        inside.append([each.lower < 0.5 < each.upper for each in found])
    by_group, by_row = np.mean(inside, axis=0)
    assert abs(by_group - 0.9) < 0.065
    assert by_row < 0.85


def test_certificates_by_groups_hold(capsys):
    """20 data sets of each kind; 500 by ``python -m benchmarks.certificates --groups --datasets 500``."""
    assert not group_failures(20, 0.05, 1, patients=30, rows=4)
    lines = [
        line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith(("| patients", "| rows"))
    ]
    assert [int(line[4]) for line in lines] == [0] * 4


def test_scores_of_rows_held_out_are_certified_by_groups():
    """Copies of a row are one observation; where patients differ and the score is of no use, rows certify too much."""
    rng, failures = np.random.default_rng(5), []
    patient, y = np.repeat(np.arange(30), 15), np.repeat(np.arange(30) < 12, 15)
    once = rng.normal(size=30) + 2.0 * (np.arange(30) < 12)
    copies = pac.certify.holdout(once[patient], y, groups=patient)
    assert copies.auc == pytest.approx(1.0 - kl_upper(1.0 - copies.empirical_auc, np.log(20.0) / 12))
    assert copies.auc < pac.certify.holdout(once, y[::15]).auc < pac.certify.holdout(once[patient], y).auc
    assert "30 groups are independent" in repr(copies)
    for _ in range(100):
        score = rng.normal(size=30)[patient] + 0.3 * rng.normal(size=450)
        failures.append([pac.certify.holdout(score, y, groups=each).auc > 0.5 for each in (patient, None)])
    by_group, by_row = np.sum(failures, axis=0)
    assert by_group <= 5
    assert by_row > 10


def test_a_split_keeps_groups_together():
    """Of 150 patients with rows of both classes, all noise: none is split, and no bound exceeds 1/2."""
    rng = np.random.default_rng(6)
    patient = np.repeat(np.arange(150), 4)
    X = rng.normal(size=(150, 2))[patient] + 0.2 * rng.normal(size=(600, 2))
    y = rng.random(600) < np.where(rng.random(150) < 0.5, 0.1, 0.9)[patient]
    problem = linear_gaussian_problem(X, y, gamma=100.0)
    found = pac.certify.split(problem, groups=patient)
    whole = found.in_part.reshape(150, 4)
    assert (whole.all(axis=1) == whole.any(axis=1)).all()
    for rows in (y, ~y):
        assert abs(found.in_part[rows].mean() - 0.5) < 0.1
    assert max(found.auc, found.draw_auc, found.mean_score_auc) < 0.5
    assert found.groups == 150
    rest = ~found.in_part
    score = X[rest] @ found.part.posterior.mean
    assert found.auc == pytest.approx(pac.certify.holdout(score, y[rest], groups=patient[rest]).auc, abs=1e-9)
    signal = linear_gaussian_problem(X + 2.0 * y[:, None], y, gamma=100.0)
    found = pac.certify.split(signal, groups=patient)
    assert 0.5 < found.draw_auc < found.auc < found.empirical_auc
    with pytest.raises(ValueError, match=r"negative rows in 2 groups"):
        pac.certify.split(problem, groups=y)


def test_what_groups_are_refused_for():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    found = fit(linear_gaussian_problem(X, X[:, 0] > 0.0, gamma=20.0))
    groups = np.arange(60) // 3
    assert pac.certificate(found, groups=groups).groups == 20
    assert ", in 20 groups)" in repr(pac.certificate(found, groups=groups))
    with pytest.raises(ValueError, match="for independent observations, not groups"):
        pac.certificate(found, groups=groups, bound="matchings")
