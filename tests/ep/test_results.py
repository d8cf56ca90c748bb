"""What every fit knows of itself, whatever its prior."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from pymc_pacauc.comparison.pairs import bipartite
from pymc_pacauc.ep.loop import ConvergenceWarning
from pymc_pacauc.ep.plan import METHODS
from pymc_pacauc.fitting import fit
from tests.test_fitting import KINDS, TIGHT


class TestProtocol:
    """Each kind of prior and method gives the same things, in the same shapes, with the same meaning."""

    def test_everything_is_there(self, kind):
        make, method = kind
        problem = make()
        result = fit(problem, method)
        assert result.problem is problem
        assert result.method == METHODS[method]
        assert result.converged
        assert not result.interrupted
        assert result.sweeps == len(result.history) >= result.history[-1]["sweep"]
        assert -30.0 < result.log_evidence < 0.0
        assert np.isnan(result.log_evidence_error)
        assert 0.0 < result.expected_risk < 0.5
        assert result.tied_pairs == 0
        assert np.isnan(result.divergence) == (problem.spikes is not None)
        assert result.inclusion_probability.shape == (problem.d,)
        assert (result.inclusion_probability == 1.0).all() == (problem.spikes is None)
        assert (result.model_average is None) == (problem.spikes is None or problem.d > 10)
        assert "converged" in repr(result)

    def test_moments_agree_with_each_other_and_with_draws(self, kind):
        make, method = kind
        problem = make()
        posterior = fit(problem, method).posterior
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((4, problem.d))
        mean, covariance = posterior.moments_of(rows)
        np.testing.assert_allclose(mean, rows @ posterior.mean, atol=1e-12)
        np.testing.assert_allclose(covariance, rows @ posterior.covariance @ rows.T, atol=1e-10)
        np.testing.assert_allclose(posterior.moments_of(rows, variances=True)[1], np.diagonal(covariance), atol=1e-10)
        np.testing.assert_allclose(posterior.variance, np.diagonal(posterior.covariance), rtol=1e-8, atol=1e-12)
        theta = posterior.draw(40_000, rng)
        assert theta.shape == (40_000, problem.d)
        error = np.sqrt(posterior.variance / len(theta))
        assert (np.abs(theta.mean(axis=0) - posterior.mean) < 4.5 * error + 1e-12).all()
        np.testing.assert_allclose(theta.var(axis=0), posterior.variance, rtol=0.2, atol=1e-4)

    def test_expected_risk_is_that_of_draws_of_q(self, kind):
        make, method = kind
        result = fit(make(), method)
        if result.problem.spikes is not None and (result.problem.spikes.ratio == 0.0).any():
            return  # draws of a Dirac spike are of q's marginals, not of q
        risk = result.problem.risk(result.posterior.draw(20_000, np.random.default_rng(2)))
        assert abs(risk.mean() - result.expected_risk) < 4 * risk.std() / np.sqrt(risk.size)

    def test_an_unconverged_fit_describes_the_q_it_returns(self, kind):
        make, method = kind
        problem = make()
        with pytest.warns(ConvergenceWarning):
            result = fit(problem, method, tolerance=1e-14, max_sweeps=2)
        assert not result.converged
        with pytest.warns(ConvergenceWarning):
            again = fit(problem, method, start=result, tolerance=1e-14, max_sweeps=1)
        if problem.spikes is None:  # a start is taken as it is; that of a spike-and-slab prior is settled first
            np.testing.assert_allclose(again.posterior.mean, result.posterior.mean, rtol=1e-12)
            assert again.history[0]["expected_risk"] == pytest.approx(result.expected_risk, rel=1e-12)
            assert again.history[0]["log_evidence"] == pytest.approx(result.log_evidence, rel=1e-12)
        if method == "vb":
            bound = -problem.gamma * result.expected_risk - result.divergence
            assert result.log_evidence == pytest.approx(bound, rel=1e-12)
        difference = problem.X[problem.pairs.blocks[0].positive][:, None] - problem.X[problem.pairs.blocks[0].negative]
        mean, variance = result.posterior.moments_of(difference.reshape(-1, problem.d), variances=True)
        assert ndtr(-mean / np.sqrt(variance)).mean() == pytest.approx(result.expected_risk, abs=1e-9)

    def test_a_start_is_taken(self, kind):
        make, method = kind
        problem = make()
        first = fit(problem, method, **TIGHT)
        again = fit(problem, method, start=first)
        assert again.sweeps <= 3
        np.testing.assert_allclose(again.posterior.mean, first.posterior.mean, atol=1e-5)
        warmer = fit(replace(problem, gamma=33.0), method, start=first, **TIGHT)
        cold = fit(replace(problem, gamma=33.0), method, **TIGHT)
        np.testing.assert_allclose(warmer.posterior.mean, cold.posterior.mean, atol=1e-5)

    def test_leaving_groups_out_approaches_the_refit(self, kind):
        """With the weights of the pairs kept, and at a gamma of one's own; also for unequal groups."""
        make, method = kind
        problem = make()
        result = fit(problem, method, **TIGHT)
        groups = np.repeat([0, 1, 2], [10, 30, 20])
        y = np.zeros(problem.n, dtype=int)
        y[problem.pairs.blocks[0].positive] = 1
        removed, swept = (result.leave_out(groups, refine=sweeps).scores for sweeps in (0, 1))
        assert np.abs(removed - swept).max() > 1e-4
        for gamma in (None, 25.0):
            left = result.leave_out(groups, gamma=gamma, refine=200, tolerance=1e-8)
            assert left.change.max() < 1e-8
            rough = result.leave_out(groups) if gamma is None else result.leave_out(groups, gamma=gamma)
            for g in range(3):
                out = groups == g
                kept = bipartite(y[~out])
                at = problem.gamma_per_pair * kept.n_pairs if gamma is None else gamma
                scores = replace(problem.scores, X=problem.X[~out], offset=problem.offset[~out])
                part = fit(replace(problem, scores=scores, pairs=kept, gamma=at), method, **TIGHT)
                centred = problem.X - problem.X.mean(axis=0)
                mean, variance = part.posterior.moments_of(centred, variances=True)
                np.testing.assert_allclose(left.scores[out], mean[out] / mean.std(), atol=2e-5)
                np.testing.assert_allclose(left.variance[out], variance[out] / mean.var(), rtol=2e-4)
                if gamma is None:  # three sweeps, one of the groups being half of the data
                    assert np.corrcoef(rough.scores[out], mean[out])[0, 1] > (0.98 if problem.d < 10 else 0.85)
                else:  # as many as it takes
                    np.testing.assert_allclose(rough.scores[out], mean[out] / mean.std(), atol=1e-3)

    def test_leaving_one_out(self, kind):
        make, method = kind
        result = fit(make(), method)
        left = result.leave_out()
        assert left.scores.shape == (60,)
        in_sample = 1 - result.problem.risk(result.posterior.mean[None])[0]
        assert (0.5 if result.problem.d < 10 else 0.4) < left.auc < in_sample


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]
