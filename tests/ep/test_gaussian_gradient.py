"""The gradient of the evidence against finite differences."""

import numpy as np
import pytest

from pymc_pacauc import fitting
from pymc_pacauc.problem.problem import linear_gaussian_problem
from tests.ep.test_leave_out import TIGHT, data, prior


class TestEvidenceGradient:
    @pytest.mark.parametrize("d", [4, 40], ids=["primal", "dual"])
    def test_finite_differences(self, d):
        X, y = data(d=d)
        mean, covariance = prior(d)
        rng = np.random.default_rng(2)
        move = rng.standard_normal((d, d))
        move, shift = move + move.T, rng.standard_normal(d)

        def fit(step, shift_step):
            return fitting.fit(
                linear_gaussian_problem(
                    X, y, 30.0, prior_mean=mean + shift_step * shift, prior_covariance=covariance + step * move
                ),
                **TIGHT,
            )

        gradient = fit(0.0, 0.0).evidence_gradient()
        h = 1e-5
        along = (fit(h, 0.0).log_evidence - fit(-h, 0.0).log_evidence) / (2 * h)
        assert np.sum(gradient.covariance * move) == pytest.approx(along, rel=1e-5, abs=1e-6)
        along = (fit(0.0, h).log_evidence - fit(0.0, -h).log_evidence) / (2 * h)
        assert gradient.mean @ shift == pytest.approx(along, rel=1e-5, abs=1e-6)

    def test_variances(self):
        X, y = data()
        variances = np.array([1.0, 0.5, 2.0, 0.1])
        gradient = fitting.fit(
            linear_gaussian_problem(X, y, 30.0, prior_covariance=variances), **TIGHT
        ).evidence_gradient()
        h = 1e-5 * np.eye(4)[3]
        up, down = (
            fitting.fit(linear_gaussian_problem(X, y, 30.0, prior_covariance=v), **TIGHT).log_evidence
            for v in (variances + h, variances - h)
        )
        assert gradient.variances[3] == pytest.approx((up - down) / 2e-5, rel=1e-5)

    def test_common_scale_is_flat(self):
        X, y = data()
        problem = linear_gaussian_problem(X, y, 30.0, prior_covariance=prior(4)[1])
        assert np.sum(
            fitting.fit(problem, **TIGHT).evidence_gradient().covariance * problem.prior.covariance
        ) == pytest.approx(0, abs=1e-9)
