"""The one loop on maps whose answers are known: each safeguard acts where it should, and is needed there."""

import signal
from dataclasses import dataclass, replace

import numpy as np
import pytest

from pymc_pacauc.ep.loop import ConvergenceWarning, Iteration, MixingHistory, Policy, mixed_step, solve_fixed_point
from pymc_pacauc.fitting import fit
from pymc_pacauc.interrupt import returns_early
from pymc_pacauc.problem.problem import linear_gaussian_problem, spike_slab_problem

PLAIN = Policy(damping=1.0, least_damping=0.1, plain_steps=10**9)


@dataclass(frozen=True, eq=False)
class Sight:
    image: np.ndarray
    change: float
    bound: float = 0.0
    final: bool = True

    @property
    def record(self):
        return {"bound": self.bound}


def iteration(function, *, bound=lambda x: 0.0, inside=lambda x: True, final=lambda x: True, seen=None):
    """The map x -> function(x), by steps without a metric."""

    def sweep(x, pace):
        if seen is not None:
            seen.append((x.copy(), pace))
        image = function(x)
        return Sight(image, float(np.linalg.norm(image - x)), bound(x), final(x))

    return Iteration(
        sweep=sweep,
        plain=lambda x, sight, damping: (damping * (sight.image - x), 0),
        flat=lambda x: x,
        metric=lambda x, sight: lambda step: step,
        move=lambda x, sight, step: x + step if inside(x + step) else None,
    )


def solve(function, start, policy=PLAIN, *, tolerance=1e-10, max_sweeps=200, callback=None, **options):
    return solve_fixed_point(
        iteration(function, **options),
        np.asarray(start, float),
        policy,
        tolerance=tolerance,
        max_sweeps=max_sweeps,
        callback=callback,
    )


def linear(seed=0, d=6, size=0.9):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((d, d))
    A *= size / np.abs(np.linalg.eigvals(A)).max()
    b = rng.standard_normal(d)
    return A, b, np.linalg.solve(np.eye(d) - A, b)


class TestMixing:
    def test_a_linear_map_is_solved_in_as_many_steps_as_it_has_dimensions(self):
        A, b, fixed = linear()
        mixed = replace(PLAIN, plain_steps=0, memory=10, growth=np.inf)
        found = solve(lambda x: A @ x + b, np.zeros(6), mixed)
        assert found.converged
        assert len(found.history) <= 9
        np.testing.assert_allclose(found.point, fixed, atol=1e-8)
        assert len(solve(lambda x: A @ x + b, np.zeros(6)).history) > 50

    def test_it_solves_maps_that_repel(self):
        A, b, fixed = linear(size=3.0)
        found = solve(lambda x: A @ x + b, np.zeros(6), replace(PLAIN, plain_steps=0, memory=10, growth=np.inf))
        np.testing.assert_allclose(found.point, fixed, atol=1e-6)

    def test_the_history_is_not_changed_and_is_bounded(self):
        rng = np.random.default_rng(1)
        history = MixingHistory()
        for _ in range(8):
            before = history
            step, history = mixed_step(before, *rng.standard_normal((3, 5)), memory=3)
            assert step.shape == (5,)
        assert len(history.moves) == len(history.changes) == 3
        assert before.moves[-1] is history.moves[-2]

    def test_the_first_step_is_the_plain_one(self):
        plain = np.array([1.0, 2.0])
        np.testing.assert_array_equal(mixed_step(MixingHistory(), np.zeros(2), plain, plain, 3)[0], plain)

    def test_the_metric_decides(self):
        """One past residual: the share that minimises the weighed residual, in closed form."""
        history = MixingHistory((np.zeros(2), np.array([1.0, 1.0])))
        weighed = np.array([0.5, 3.0])
        change = weighed - 1.0
        share = change @ weighed / (change @ change)
        step, _ = mixed_step(history, np.zeros(2), np.array([2.0, 1.0]), weighed, 3)
        np.testing.assert_allclose(step, np.array([2.0, 1.0]) - share * np.array([2.0, 1.0]))


class TestSafeguards:
    def test_oscillation_is_damped(self):
        """x -> -1.4 x flips and grows: undamped it never settles."""
        found = solve(lambda x: -1.4 * x, [1.0], replace(PLAIN, growth=1.2))
        assert found.converged
        assert found.interventions.restarts > 0
        still = solve(lambda x: -1.4 * x, [1.0], replace(PLAIN, growth=1.2, damping_factor=1.0), max_sweeps=50)
        assert not still.converged

    def test_damping_recovers_while_the_change_falls(self):
        seen = []
        policy = replace(PLAIN, damping=0.1, recovered_damping=0.3)
        solve(lambda x: 0.5 * x, [1.0], policy, seen=seen)
        assert seen[0][1].damping == 0.1
        assert seen[-1][1].damping == 0.3

    def test_a_step_out_of_the_domain_is_halved(self):
        found = solve(lambda x: x - 3.0 * x, [1.0], replace(PLAIN, growth=np.inf), inside=lambda x: x[0] > 0)
        assert found.converged
        assert found.interventions.halved_steps > 1
        assert found.point[0] > 0

    def test_where_no_step_stays_in_the_domain_the_loop_ends(self):
        found = solve(lambda x: -x, [1.0], inside=lambda x: False)
        assert not found.converged
        assert len(found.history) == 1
        few = solve(lambda x: -x, [1.0], replace(PLAIN, all_halvings=5), inside=lambda x: 0.9 < x[0] <= 1.0)
        assert few.interventions.halved_steps == 6 or len(few.history) <= 6

    def test_a_step_that_is_not_a_number_ends_the_loop(self):
        found = solve(lambda x: x * np.nan if x[0] < 0.5 else 0.4 * x, [1.0])
        assert not found.converged
        assert len(found.history) == 2

    def test_a_step_that_loses_the_bound_is_taken_back(self):
        """x -> 3 - 2 x flies off its fixed point 1, which maximises the bound; nothing else is watching."""
        alone = replace(PLAIN, growth=np.inf)

        def bound(x):
            return -float((x[0] - 1.0) ** 2)

        seen = []
        guarded = solve(lambda x: 3.0 - 2.0 * x, [1.2], replace(alone, loss=0.5), bound=bound, seen=seen)
        (kept, _), (lost, _), (after, pace) = seen[2:5]
        assert bound(lost) < bound(kept) - 0.5
        assert pace.damping == pytest.approx(0.7)
        np.testing.assert_allclose(after, kept + 0.7 * (3.0 - 3.0 * kept))  # from where it was, by less
        assert guarded.converged
        assert guarded.interventions.rejected_steps > 0
        assert guarded.interventions.restarts == 0
        free = solve(lambda x: 3.0 - 2.0 * x, [1.2], alone, bound=bound, max_sweeps=20)
        assert abs(free.point[0] - 1.0) > 100.0
        ended = solve(lambda x: 3.0 - 2.0 * x, [1.2], replace(alone, loss=0.5), bound=bound, max_sweeps=4)
        assert ended.history[-1]["bound"] < -2.0  # it ended on a step that is not kept
        assert ended.seen.bound == bound(ended.point) > -1.0

    def test_patience_ends_a_loop_that_does_not_get_closer(self):
        slow = lambda x: np.array([np.cos(x[0] * 1e3), np.sin(x[1] * 1e3)])  # noqa: E731
        found = solve(slow, [0.3, 0.7], replace(PLAIN, patience=10))
        assert 11 <= len(found.history) < 60
        assert len(solve(slow, [0.3, 0.7]).history) == 200

    def test_a_small_change_is_final_only_where_it_says_so(self):
        count = []

        def final(x):
            count.append(1)
            return len(count) > 4

        assert len(solve(lambda x: x, [1.0], final=final).history) == 5

    def test_what_is_returned_belongs_together_and_the_next_point_is_known(self):
        found = solve(lambda x: 0.5 * x, [1.0], max_sweeps=3)
        np.testing.assert_allclose(found.point, 0.25)
        np.testing.assert_allclose(found.seen.image, 0.125)
        np.testing.assert_allclose(found.following, 0.125)
        assert [row["sweep"] for row in found.history] == [1, 2, 3]

    def test_growth_discards_what_the_mixing_knew(self):
        """A map that changes for another once: mixing begins anew from there, after plain steps."""
        A, b, _ = linear(size=0.99)
        seen = []

        def other(x):
            return A @ x + b if len(seen) < 6 else A.T @ x - 5.0 * b

        found = solve(other, np.zeros(6), replace(PLAIN, plain_after_restart=2, plain_steps=0), seen=seen)
        assert found.interventions.restarts >= 1
        turns = [pace.turn for _, pace in seen]
        assert turns[:6] == [0] + 5 * [0]
        assert turns[6:9] == [6, 7, 7]
        assert found.converged

    def test_the_turn_stands_still_while_steps_are_mixed(self):
        A, b, _ = linear(size=0.99)
        seen = []
        solve(lambda x: A @ x + b, np.zeros(6), replace(PLAIN, plain_steps=4), seen=seen)
        assert [pace.turn for _, pace in seen[:8]] == [0, 1, 2, 3, 4, 4, 4, 4]


class TestInterruption:
    def test_elsewhere_it_propagates(self):
        with pytest.raises(KeyboardInterrupt):
            solve(lambda x: signal.raise_signal(signal.SIGINT) or 0.5 * x, [1.0])

    def test_where_fits_return_early_the_sweep_counts(self):
        calls = []

        def halve(x):
            calls.append(1)
            if len(calls) == 4:
                signal.raise_signal(signal.SIGINT)
            return 0.5 * x

        found = returns_early(solve)(halve, [1.0])
        assert found.interrupted
        assert not found.converged
        np.testing.assert_allclose(found.point, 0.125)
        assert len(found.history) == 4

    def test_the_second_one_raises_at_once(self):
        calls = []

        def stubborn(x):
            calls.append(1)
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            calls.append(2)

        with pytest.raises(KeyboardInterrupt):
            returns_early(solve)(stubborn, [1.0])
        assert calls == [1]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert solve(lambda x: 0.5 * x, [1.0]).converged  # nothing is left of it

    @pytest.mark.parametrize("at", [1, 4, 9])
    @pytest.mark.parametrize("method", ["ep", "vb", "sparse"])
    def test_a_fit_is_returned_as_it_is(self, method, at):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((80, 4))
        y = X[:, 0] + rng.logistic(size=80) > 0
        problem = (
            spike_slab_problem(X, y, 80.0, inclusion_probability=0.2, v0=0.0)
            if method == "sparse"
            else linear_gaussian_problem(X, y, 80.0)
        )

        def stop(row):
            if row["sweep"] == at:
                signal.raise_signal(signal.SIGINT)

        with pytest.warns(ConvergenceWarning, match=r"interrupted after \d+ sweeps, and is returned as it was then"):
            result = returns_early(fit)(problem, "ep" if method == "sparse" else method, callback=stop)
        assert result.interrupted
        assert not result.converged
        assert at <= result.sweeps <= at + 1
        risk = problem.risk(result.posterior.draw(20_000, rng)) if method != "sparse" else None
        if risk is not None:
            assert abs(risk.mean() - result.expected_risk) < 4 * risk.std() / np.sqrt(risk.size)
        again = fit(problem, "ep" if method == "sparse" else method, start=result)
        assert again.converged
