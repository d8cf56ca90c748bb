"""The engine against exact answers; tolerances are three standard errors throughout."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pymc_pacauc import fitting
from pymc_pacauc.comparison.risk import linear_risk
from pymc_pacauc.numerics import effective_sample_size
from pymc_pacauc.problem.problem import linear_gaussian_problem
from pymc_pacauc.smc import tempering
from pymc_pacauc.smc.log_evidence import combine, stage_variance
from pymc_pacauc.smc.paths import DirectionPath, LinearPath, Population, bridge_path, prior_path
from pymc_pacauc.smc.tempering import (
    Settings,
    TemperingWarning,
    _features,
    advance,
    correlation_of,
    move_on,
    next_temperature,
    run_tempering,
    start,
)
from tests.oracles import exact_line, exact_plane, line_data, plane_data
from tests.paths import ModelPath

GAMMA = 60.0


@pytest.fixture(scope="module")
def plane():
    X, y = plane_data()
    return linear_gaussian_problem(X, y, GAMMA), exact_plane(X, y, GAMMA)


@pytest.fixture(scope="module")
def line():
    x, offset, y = line_data()
    problem = linear_gaussian_problem(x[:, None], y, 40.0, offset=offset, prior_mean=0.3, prior_covariance=1.4**2)
    return problem, exact_line(x, y, 40.0, offset=offset, prior_mean=0.3, prior_sd=1.4)


def runs(path, settings, seeds):
    """Quiet runs: warnings are the subject of other tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TemperingWarning)
        return [run_tempering(path, settings, np.random.default_rng(seed)) for seed in range(seeds)]


def assert_evidence(states, exact):
    """Mean of Z_hat / Z is 1 within 3 s.e., and log Z_hat is spread as its own variance says."""
    ratio = np.exp([state.log_evidence - exact for state in states])
    assert abs(ratio.mean() - 1.0) < 3 * ratio.std(ddof=1) / np.sqrt(len(ratio))
    claimed = np.sqrt(np.mean([state.stages[-1].log_evidence_variance for state in states]))
    spread = np.std([state.log_evidence for state in states], ddof=1)
    error = 1 / np.sqrt(2 * (len(states) - 1))  # relative s.e. of a standard deviation
    assert 1 - 3 * error - 0.15 < spread / claimed < 1 + 3 * error + 0.15  # the estimate is first order


@pytest.mark.parametrize("move", ["auto", "direction", "ep", "gaussian", "prior", "random_walk"])
def test_every_move_gets_the_plane_right(plane, move):
    problem, exact = plane
    states = runs(prior_path(problem), Settings(particles=500, move=move), 24)
    assert_evidence(states, exact.log_evidence)
    risk = np.array([state.stages[-1].expected_risk for state in states])
    assert abs(risk.mean() - exact.expected_risk) < 3 * risk.std(ddof=1) / np.sqrt(len(risk))


def test_short_chains_get_the_plane_right(plane, monkeypatch):
    monkeypatch.setattr(tempering, "correlation_of", lambda begin, now: 1.0)  # all moves are made
    problem, exact = plane
    states = runs(prior_path(problem), Settings(particles=100, max_moves=10), 24)
    assert_evidence(states, exact.log_evidence)
    assert {state.population.size for state in states} == {100}
    assert {state.visited.size for state in states} == {1000}


def test_all_states_have_the_distribution_and_the_last_come_first(plane, monkeypatch):
    monkeypatch.setattr(tempering, "correlation_of", lambda begin, now: 1.0)  # all moves are made
    problem, exact = plane
    path, settings = prior_path(problem), Settings(particles=500, max_moves=41)
    [state] = runs(path, settings, 1)
    assert state.visited.size == 500 * (41 // 4 + 1)  # one in four moves, and the last
    angle = np.mod(np.arctan2(state.visited.x[:, 1], state.visited.x[:, 0]), 2 * np.pi)
    apart = angle.reshape(-1, 500)[::4]  # sixteen moves between two states of a particle
    assert stats.kstest(apart.ravel(), exact.cdf).pvalue > 0.001
    np.testing.assert_array_equal(state.population.x, state.visited.x[:500])
    np.testing.assert_array_equal(state.visited.parent[:500], state.visited.parent[-500:])


def test_all_states_estimate_better_than_the_last_ones(plane):
    """Of the mean direction, over 40 runs: variances that differ by a factor of two at least."""
    states = runs(prior_path(plane[0]), Settings(particles=200), 40)
    last, every = ([getattr(s, which).x.mean(axis=0) for s in states] for which in ("population", "visited"))
    assert np.var(every, axis=0).mean() < 0.5 * np.var(last, axis=0).mean()


@pytest.mark.slow
def test_evidence_is_unbiased_over_200_seeds(plane):
    problem, exact = plane
    assert_evidence(runs(prior_path(problem), Settings(particles=1000), 200), exact.log_evidence)


def test_angle_has_the_exact_distribution(plane):
    problem, exact = plane
    path = prior_path(problem)
    state = run_tempering(path, Settings(particles=4000), np.random.default_rng(1))
    theta, risk = path.finish(state.population, np.random.default_rng(2))
    angle = np.mod(np.arctan2(theta[:, 1], theta[:, 0]), 2 * np.pi)
    assert stats.kstest(angle, exact.cdf).pvalue > 0.001
    assert stats.kstest(np.linalg.norm(theta, axis=1), stats.chi(2).cdf).pvalue > 0.001
    np.testing.assert_allclose(risk, linear_risk(theta, problem.X, plane_data()[1]))


def test_every_stage_is_a_posterior(plane):
    problem, exact = plane
    for stage in run_tempering(prior_path(problem), Settings(particles=4000), np.random.default_rng(3)).stages:
        there = exact.at(stage.gamma)
        assert abs(stage.log_evidence - there.log_evidence) <= 3 * np.sqrt(stage.log_evidence_variance)
        assert abs(stage.expected_risk - there.expected_risk) < 4 * np.sqrt(there.risk_variance / 4000)


@pytest.mark.parametrize("move", ["auto", "ep", "prior", "random_walk"])
def test_offset_breaks_scale_freedom(line, move):
    problem, exact = line
    path = prior_path(problem)
    assert type(path) is LinearPath
    states = runs(path, Settings(particles=500, move=move), 24)
    assert_evidence(states, exact.log_evidence)
    theta = np.concatenate([path.finish(state.population, None)[0] for state in states[:8]])[:, 0]
    assert stats.kstest(theta, exact.cdf).pvalue > 0.001


@pytest.mark.parametrize("ties", ["half", "strict"])
def test_one_coefficient_is_two_points(ties):
    x, y = np.array([0.0, 1.0, 2.0, 2.0, 5.0]), np.array([0, 1, 0, 1, 1])
    problem = linear_gaussian_problem(x[:, None], y, 6.0, ties=ties)
    exact = exact_line(x, y, 6.0, ties=ties)
    assert isinstance(prior_path(problem), DirectionPath)
    states = runs(prior_path(problem), Settings(particles=500), 24)
    assert_evidence(states, exact.log_evidence)
    state = run_tempering(prior_path(problem), Settings(particles=4000), np.random.default_rng(0))
    positive = np.mean(state.population.x > 0)
    truth = 1 - float(exact.cdf(0.0))
    assert abs(positive - truth) < 3 * np.sqrt(truth * (1 - truth) / 4000)


def test_a_target_given_by_functions(plane):
    _, exact = plane
    X, y = plane_data()
    path = ModelPath(
        prior_logp=lambda theta: stats.norm.logpdf(theta).sum(axis=1),
        risk=lambda theta: linear_risk(theta, X, y),
        prior_draw=lambda size, rng: rng.standard_normal((size, 2)),
        gamma=GAMMA,
        dimension=2,
    )
    assert_evidence(runs(path, Settings(particles=500), 24), exact.log_evidence)


def test_evidence_does_not_depend_on_the_prior_scale(plane):
    problem, _ = plane
    prior = replace(problem.prior, factor=7.0 * problem.prior.factor)
    wide = replace(problem, scores=replace(problem.scores, prior=prior))
    one, other = (run_tempering(prior_path(p), Settings(), np.random.default_rng(4)) for p in (problem, wide))
    assert one.log_evidence == pytest.approx(other.log_evidence, abs=1e-12)


def test_same_generator_same_run(plane):
    problem, _ = plane
    a, b = (run_tempering(prior_path(problem), Settings(), np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(a.population.x, b.population.x)


def test_moving_on_keeps_the_distribution(plane):
    problem, exact = plane
    path, rng = prior_path(problem), np.random.default_rng(6)
    state = run_tempering(path, Settings(particles=2000), rng)
    moved = move_on(path, Settings(particles=2000), state, rng)
    assert not np.array_equal(moved.population.x, state.population.x)
    assert moved.stages == state.stages
    angle = np.mod(np.arctan2(moved.population.x[:, 1], moved.population.x[:, 0]), 2 * np.pi)
    assert stats.kstest(angle, exact.cdf).pvalue > 0.001


# -- starting from a fit ---------------------------------------------------------------------------------------------


def test_bridge_is_exact_whatever_the_fit(plane):
    problem, exact = plane
    mean = exact.mean + np.array([0.3, -0.2])
    states = runs(bridge_path(prior_path(problem), mean, [[0.5, 0.1], [0.1, 0.3]]), Settings(particles=500), 24)
    assert_evidence(states, exact.log_evidence)


def test_bridge_in_theta_space(line):
    problem, exact = line
    states = runs(bridge_path(prior_path(problem), [exact.mean], [[0.3]]), Settings(particles=500), 24)
    assert_evidence(states, exact.log_evidence)


def test_bridge_of_one_coefficient():
    x, y = np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 1, 0, 1])
    problem = linear_gaussian_problem(x[:, None], y, 5.0)
    states = runs(bridge_path(prior_path(problem), [0.5], [[0.6]]), Settings(particles=500), 24)
    assert_evidence(states, exact_line(x, y, 5.0).log_evidence)


def test_bridge_needs_few_stages(plane):
    problem, exact = plane
    state = run_tempering(
        bridge_path(prior_path(problem), exact.mean, 0.4 * np.eye(2)), Settings(), np.random.default_rng(0)
    )
    assert len(state.stages) - 1 <= 2
    assert np.isnan(state.stages[0].gamma)
    assert state.stages[-1].gamma == GAMMA


@pytest.mark.parametrize(
    ("mean", "covariance", "message"),
    [
        ([1.0], np.eye(2), "for 2 coefficients"),
        ([1.0, np.nan], np.eye(2), "NaN or infinite"),
        ([1.0, 0.0], -np.eye(2), "must be positive definite"),
    ],
)
def test_bridge_refuses_what_is_not_a_fit(plane, mean, covariance, message):
    with pytest.raises(ValueError, match=message):
        bridge_path(prior_path(plane[0]), mean, covariance)


# -- charts ----------------------------------------------------------------------------------------------------------


# -- faults ----------------------------------------------------------------------------------------------------------


def faulty(bad):
    """A plane target whose log-density cannot be computed where ``bad(theta)``."""
    X, y = plane_data()

    def risk(theta):
        return np.where(bad(theta), np.nan, linear_risk(theta, X, y))

    return ModelPath(
        prior_logp=lambda theta: stats.norm.logpdf(theta).sum(axis=1),
        risk=risk,
        prior_draw=lambda size, rng: rng.standard_normal((size, 2)),
        gamma=GAMMA,
        dimension=2,
    )


def test_failed_evaluations_are_counted_and_have_no_weight():
    path = faulty(lambda theta: theta[:, 0] > 1.0)
    with pytest.warns(TemperingWarning, match=r"at \d+ of the 4000 starting points.*proposed points"):
        state = run_tempering(path, Settings(), np.random.default_rng(0))
    assert state.stages[0].failed > 100
    assert state.population.x[:, 0].max() <= 1.0
    assert np.isfinite(state.population.energies.risk).all()


def test_failed_particles_count_as_zeros_in_the_evidence(plane):
    """Cutting the half plane x < 0 off a symmetric problem must remove its mass from Z, not rescale what is left."""
    _, exact = plane
    path = faulty(lambda theta: theta[:, 0] < 0.0)
    inside = float(exact.cdf(np.pi / 2) + 1 - exact.cdf(3 * np.pi / 2))
    assert_evidence(runs(path, Settings(particles=500), 24), exact.log_evidence + np.log(inside))


def test_nothing_but_failures_is_an_error():
    with pytest.raises(FloatingPointError, match="all 4000 points that the 1000 particles may start from"):
        run_tempering(faulty(lambda theta: np.ones(len(theta), bool)), Settings(), np.random.default_rng(0))


def test_constant_risk_takes_one_stage():
    problem = linear_gaussian_problem(np.ones((4, 2)), [0, 1, 0, 1], 10.0)
    state = run_tempering(prior_path(problem), Settings(), np.random.default_rng(0))
    assert len(state.stages) == 2
    assert state.log_evidence == pytest.approx(-5.0)
    assert state.stages[-1].log_evidence_variance == pytest.approx(0.0, abs=1e-12)


def test_a_single_pair():
    problem = linear_gaussian_problem([[0.0, 0.0], [1.0, 1.0]], [0, 1], 3.0)
    states = runs(prior_path(problem), Settings(particles=500), 24)
    assert_evidence(states, np.log((1 + np.exp(-3.0)) / 2))


def test_two_particles_run():
    problem = linear_gaussian_problem([[0.0, 0.0], [1.0, 1.0]], [0, 1], 3.0)
    state = start(prior_path(problem), Settings(particles=2), np.random.default_rng(0))
    state = advance(prior_path(problem), Settings(particles=2), state, np.random.default_rng(0))
    assert np.isfinite(state.log_evidence)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"particles": 1}, "particles must be a whole number, better hundreds, at least 2; got 1"),
        ({"ess_threshold": 1.0}, "ess_threshold"),
        ({"decorrelation": 0.0}, "decorrelation"),
        ({"max_moves": 0}, "max_moves"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        Settings(**settings)


def test_bad_move(plane, line):
    with pytest.raises(ValueError, match=r'move must be "auto", .* or "random_walk"; got .nuts.\.'):
        run_tempering(prior_path(plane[0]), Settings(move="nuts"), np.random.default_rng(0))
    with pytest.raises(ValueError, match="linear scores without an offset"):
        run_tempering(prior_path(line[0]), Settings(move="direction"), np.random.default_rng(0))


def simulated(n, d, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = rng.random(n) < 1 / (1 + np.exp(1.1 - X @ (0.3 * rng.standard_normal(d))))
    return linear_gaussian_problem(X, y, float(n))


def test_one_random_walk_move_warns():
    """The paper's single move is off by tens of nats at d = 50; that must not happen in silence."""
    problem = simulated(400, 30, 1)
    with pytest.warns(TemperingWarning, match="left particles correlated with where they started"):
        run_tempering(prior_path(problem), Settings(move="random_walk", max_moves=1), np.random.default_rng(0))


def test_too_few_particles_for_a_fit():
    problem = simulated(100, 30, 1)
    with pytest.warns(TemperingWarning, match="too few to fit"):
        run_tempering(
            prior_path(problem), Settings(particles=100, move="gaussian", max_moves=2), np.random.default_rng(0)
        )
    assert start(prior_path(problem), Settings(particles=100), np.random.default_rng(0)).move == "ep"
    path = prior_path(problem)
    generic = ModelPath(lambda theta: stats.norm.logpdf(theta).sum(axis=1), path.risk, path.draw, 1.0, 30)
    assert start(generic, Settings(particles=100), np.random.default_rng(0)).move == "prior"


@pytest.mark.slow
def test_fifty_dimensions():
    """Default moves agree with the start from EP, another path; the paper's single move is far off, and warns."""
    problem = simulated(1500, 50, 2)
    path = prior_path(problem)
    fit = fitting.fit(problem)
    bridge = run_tempering(
        bridge_path(path, fit.posterior.mean, fit.posterior.covariance),
        Settings(particles=4000),
        np.random.default_rng(0),
    )
    truth = bridge.log_evidence
    results = [run_tempering(path, Settings(), np.random.default_rng(seed)).stages[-1] for seed in range(4)]
    pooled = combine([r.log_evidence for r in results], [r.log_evidence_variance for r in results])
    assert pooled.agree
    assert abs(pooled.estimate - truth) < 3 * pooled.standard_error
    with pytest.warns(TemperingWarning, match="left particles correlated"):
        wrong = run_tempering(path, Settings(move="random_walk", max_moves=1), np.random.default_rng(0))
    assert abs(wrong.log_evidence - truth) > 10


@pytest.mark.slow
def test_gaussian_process_with_500_latent_scores():
    rng = np.random.default_rng(7)
    X = rng.standard_normal((500, 4))
    y = rng.random(500) < 1 / (1 + np.exp(1 - 3 * np.sin(2 * X[:, 0]) - X[:, 2]))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=-1)) + 1e-6 * np.eye(500)
    path = prior_path(linear_gaussian_problem(np.eye(500), y, 500.0, prior_covariance=K))
    states = [run_tempering(path, Settings(), np.random.default_rng(seed)) for seed in range(3)]
    assert np.ptp([state.log_evidence for state in states]) < 1.0
    assert min(stage.acceptance_rate for state in states for stage in state.stages[1:]) > 0.2


# -- when moves stop -------------------------------------------------------------------------------------------------


def test_squares_show_particles_stuck_in_the_tails():
    """Signs that are thrown anew decorrelate every coordinate, and leave the tails where they were."""
    rng = np.random.default_rng(0)
    path = ModelPath(lambda x: x[:, 0], lambda x: rng.random(len(x)), lambda size, rng: None, 1.0, 2)

    def features(x):
        return _features(path, Population(x, path.evaluate(x), np.arange(len(x))))

    x = rng.standard_normal((4000, 2))
    begin = features(x)
    assert correlation_of(begin, features(rng.standard_normal((4000, 2)))) < 0.06
    assert correlation_of(begin, features(x * rng.choice([-1.0, 1.0], x.shape))) > 0.99
    assert correlation_of(begin, begin) == pytest.approx(1.0)
    assert correlation_of(features(np.ones((5, 2))), features(np.ones((5, 2)))) < 1.0


def test_points_far_out_in_a_chart_are_compared_as_directions(plane):
    path = bridge_path(prior_path(plane[0]), [1.0, -0.5], np.eye(2))
    far = path.embed(np.array([[1e6], [1e9]]))
    np.testing.assert_allclose(far[0], far[1], atol=1e-5)


@pytest.mark.parametrize(("max_moves", "moves"), [(200, 10), (9, 9), (8, 8), (5, 5)])
def test_a_quarter_as_many_moves_follow(plane, monkeypatch, max_moves, moves):
    """Particles that have forgotten their start at the eighth move are not taken at the eighth move."""
    correlations = iter([0.5] * 7 + [0.01] + [0.9] * 9)
    monkeypatch.setattr(tempering, "correlation_of", lambda begin, now: next(correlations))
    path, settings, rng = prior_path(plane[0]), Settings(max_moves=max_moves), np.random.default_rng(0)
    stage = advance(path, settings, start(path, settings, rng), rng).stages[-1]
    assert stage.moves == moves
    assert stage.correlation == (0.01 if moves >= 8 else 0.5)


def test_signs_are_refreshed_after_every_move(plane):
    class Counting(DirectionPath):
        refreshed = 0

        def refresh(self, population, temperature, rng):
            Counting.refreshed += 1
            return super().refresh(population, temperature, rng)

    path, settings, rng = Counting(plane[0]), Settings(), np.random.default_rng(0)
    state = run_tempering(path, settings, rng)
    assert path.chart_of(state.population.x, np.full(1000, 1e-3)) is not None  # the last moves were in a chart
    before = Counting.refreshed
    move_on(path, replace(settings, max_moves=3, decorrelation=1e-9), state, rng)
    assert Counting.refreshed - before == 3


def test_variance_of_a_few_chains():
    """That of the mean of the chains' weights, relative to its square, with one degree of freedom lost."""
    rng = np.random.default_rng(0)
    weights = rng.random((50, 8))  # states of 8 chains
    means = weights.mean(axis=0)
    expected = means.var(ddof=1) / 8 / means.mean() ** 2
    parent = np.tile(np.arange(8), 50)
    assert stage_variance((weights / weights.sum()).ravel(), parent) == pytest.approx(expected)


def test_next_temperature_meets_the_threshold_or_the_end():
    tilt = -np.random.default_rng(3).random(500)
    found = next_temperature(tilt, 2.0, 500.0, 0.5)
    assert effective_sample_size((found - 2.0) * tilt) == pytest.approx(250, rel=1e-5)
    assert next_temperature(tilt, 2.0, 2.5, 0.5) == 2.5
    assert next_temperature(np.full(10, -0.3), 0.0, 1e6, 0.9) == 1e6  # a constant risk


def test_next_temperature_counts_living_particles():
    tilt = -np.random.default_rng(4).random(500)
    tilt[:400] = -np.inf
    found = next_temperature(tilt, 0.0, 1e4, 0.5)
    assert effective_sample_size(found * tilt) == pytest.approx(50, rel=1e-5)


def test_next_temperature_always_advances():
    tilt = np.array([0.0, -1e30, -1e30])
    assert 0.0 < next_temperature(tilt, 0.0, 1.0, 0.9) <= 1.0
