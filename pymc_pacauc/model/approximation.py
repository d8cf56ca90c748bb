"""The result of ``pm.fit(method=pac.EP())``: PyMC's full-rank Gaussian with evidence, risk, certificates and draws.

PyMC's variational interface expects an :class:`~pymc.variational.opvi.Approximation` that can be sampled. This one
holds an array :class:`~pymc_pacauc.fitting.Fit` and the :class:`~pymc_pacauc.model.read.ModelProblem` it was fitted
to, whatever the prior, and is a :class:`~pymc_pacauc.model.results.Result` like any other.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pytensor
import xarray as xr
from numpy.typing import ArrayLike, NDArray
from pymc.util import get_random_generator
from pymc.variational.approximations import FullRankGroup, SingleGroupApproximation
from pymc.variational.opvi import node_property

from pymc_pacauc.array_result import FitResult, HTMLReport, stats_of, with_pairs
from pymc_pacauc.comparison.risk import pair_risk
from pymc_pacauc.ep.importance import log_mean
from pymc_pacauc.ep.leave_out import LeaveOut, expected_pair_auc
from pymc_pacauc.ep.results import Fit
from pymc_pacauc.interrupt import raises_interrupts
from pymc_pacauc.model.compat import LateBar, pareto_smooth
from pymc_pacauc.model.graph import affine_map
from pymc_pacauc.model.idata import draws_to_inference_data, labelled
from pymc_pacauc.model.read import ModelProblem
from pymc_pacauc.model.results import DEPLOYED, EXACT_MEAN, LARGEST_K, corrected_evidence, fitted_to
from pymc_pacauc.model.score_function import GraphScores, read_scores
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.provenance import Provenance
from pymc_pacauc.problem.score_function import ScoreFunction, write_score
from pymc_pacauc.smc.log_evidence import LogEvidence
from pymc_pacauc.tune.coverage import calibrated_posterior


class _GaussianGroup(FullRankGroup):
    """PyMC's full-rank Gaussian, its mean and Cholesky factor set directly instead of through a softplus."""

    __param_spec__ = {"mu": ("d",), "chol": ("d", "d")}  # noqa: RUF012
    short_name = "pacauc_gaussian"
    alias_names: frozenset[str] = frozenset()

    posterior: Any = None  # mean and factor are set when they are first asked for: O(d^3), and perhaps weighted draws
    refusal = ""

    def create_shared_params(self, start=None):
        mean = np.zeros(self.ddim, dtype=pytensor.config.floatX)
        return {"mu": pytensor.shared(mean, "mu"), "chol": pytensor.shared(np.eye(mean.size, dtype=mean.dtype), "chol")}

    @node_property
    def mean(self):
        return self._of_posterior("mu", lambda q: q.mean)

    @node_property
    def L(self):
        return self._of_posterior("chol", lambda q: np.linalg.cholesky(q.covariance))

    def _of_posterior(self, name, value):
        if self.refusal:
            raise ValueError(self.refusal)
        if self.posterior is not None:
            self.shared_params[name].set_value(value(self.posterior).astype(pytensor.config.floatX))
        return self.params_dict[name]


@dataclass(frozen=True, eq=False)
class PlainEP:
    """Result of EP without corrections: ``mean``, shape (d,), ``covariance``, shape (d, d), and ``log_evidence``."""

    mean: FloatArray
    covariance: FloatArray
    log_evidence: float


@dataclass(frozen=True, eq=False)
class ImportanceSample:
    """Draws of the approximation weighted towards the exact posterior.

    Attributes
    ----------
    idata : InferenceData or DataTree
        The draws, with ``log_weight`` (smoothed, normalised to mean one) and ``risk`` in sample_stats.
    pareto_k : float
        Shape of the weights' tail: below 0.5 the weighted draws can be trusted, above 0.7 they cannot.
    effective_draws : float
        Effective sample size of the weights.
    log_evidence, log_evidence_se : float
        Corrected log evidence and its standard error, in nats.

    See Also
    --------
    EPApproximation.importance_sample : Draw it.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", X @ theta, [0, 1, 0, 1], gamma=4.0)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> weighted = approx.importance_sample(200, random_seed=1)
    >>> weighted.effective_draws <= 200
    True
    """

    idata: Any
    pareto_k: float
    effective_draws: float
    log_evidence: float
    log_evidence_se: float

    def __repr__(self) -> str:
        return (
            f"ImportanceSample(log_evidence={self.log_evidence:.3f} ± {self.log_evidence_se:.3f}, "
            f"effective_draws={self.effective_draws:.0f}, pareto_k={self.pareto_k:.2f})"
        )


def _of_fit(name: str, doc: str) -> Any:
    """Make a property that is the fit's attribute of this name."""

    def value(self: Any) -> Any:
        return getattr(self.fit, name)

    value.__doc__ = doc
    return property(value)


class EPApproximation(HTMLReport, FitResult, SingleGroupApproximation):
    """Gaussian approximation of the AUC Gibbs posterior, with PyMC's interface, evidence and diagnostics.

    It is a distribution of the free variables that the model had when it was fitted, with the ``pm.Data`` of that time:
    data may be changed, and variables added (``gp.conditional``), afterwards.

    Parameters
    ----------
    fit : Fit
        The fit on arrays.
    source : ModelProblem
        The model's variables and how they make the scores.

    Attributes
    ----------
    posterior : Posterior
        ``.mean`` and ``.covariance``, NumPy arrays over the flat free variables in the model's order (a
        :func:`~pymc_pacauc.SpikeSlab` variable with a point mass in place of its slab). Where scores are scale-free (no
        offset, a centred prior), the length of the coefficients has its exact distribution, in draws too, and
        ``.monte_carlo_error`` is the error of the mean, in standard deviations.
    q : PlainEP
        The Gaussian of EP without corrections: ``.mean``, ``.covariance``, ``.log_evidence``. The mean score that is
        deployed (by :func:`~pymc_pacauc.predict_scores`, :meth:`export`) and certified is that of its mean.
    log_evidence : float
        EP's approximation of log Z (for variational Bayes, the lower bound), which has gradients.
    evidence : LogEvidence
        log Z corrected by importance weights, with its standard error: ``.estimate``, ``.standard_error``. Where the
        weights are not reliable, or would take too long, it is ``log_evidence``.
    expected_risk : float
        Expectation of the pair risk under the approximation, in closed form.
    converged, interrupted : bool
        How the fit ended.
    sweeps : int
        Number of sweeps over the pairs.
    history : DataFrame
        A row per sweep: change, log evidence, expected risk.
    interventions : Interventions
        How often each safeguard acted.
    pairs_used : int
        Number of pairs that were used.
    sampling_error : SamplingError
        Error from using a subset of pairs: standard errors of ``log_evidence``, and of the mean in posterior standard
        deviations.
    inclusion_probability : DataArray
        Probability of the slab for each coefficient of a spike-and-slab prior: exact up to the error that
        ``model_average`` states for up to ten coefficients, EP's beyond.
    fitted_to : Provenance
        Record of data, comparison, gamma and method.

    See Also
    --------
    pymc_pacauc.EP : The method that returns one.
    pymc_pacauc.predict_scores : Scores of new rows.
    pymc_pacauc.summary : Coefficients and AUC as a table.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
    >>> approx.converged, bool(approx.posterior.mean[0] > 0)
    (True, True)
    """

    _group_class = _GaussianGroup
    calibrated_spread = False

    def __init__(self, fit: Fit, source: ModelProblem):
        super().__init__(model=source.model)
        self.fit, self.source = fit, source
        self.fits: tuple[Fit, ...] = (fit,)  # of a mixture, those of its components, and their weights
        self.weights = np.ones(1)
        self._scoring: dict[str | None, GraphScores] = {}
        group = self.groups[0]
        if source.moved:
            group.refusal = (
                "PyMC's mean, cov and std are of the free variables, of which the coefficients "
                f"{', '.join(source.moved)} are "
                "functions: use approx.posterior.mean and .covariance, or approx.sample()."
            )
        else:
            group.posterior = self.posterior
        self.fitted_to: Provenance = with_pairs(fitted_to(source.model, fit.method, fit.problem), fit)

    # -- the fit -----------------------------------------------------------------------------------------------------

    method = _of_fit("method", '``"EP"`` or ``"GaussianVB"``.')
    interrupted = _of_fit("interrupted", "Whether the fit was ended from the keyboard.")
    plan = _of_fit("plan", "How it was fitted; prints as one sentence: pairs, coordinates, start, sweeps.")
    pairs_used = _of_fit("pairs_used", "Number of pairs that were used.")
    sampling_error = _of_fit("sampling_error", "Error from using a subset of pairs, zero where all were used.")
    interventions = _of_fit("interventions", "How often each safeguard acted.")
    model_average = _of_fit("model_average", "Weighted draws behind ``inclusion_probability``; None where it is EP's.")

    @property
    def posterior(self) -> Any:
        """Posterior over the flat free variables: ``.mean`` and ``.covariance``; see the class docstring."""
        return self.fit.posterior if self.calibrated_spread else self.fit.corrected

    @property
    def q(self) -> PlainEP:
        """The Gaussian itself, without the exact length."""
        return PlainEP(self.fit.posterior.mean, self.fit.posterior.covariance, self.fit.log_evidence)

    def components(self, name: str) -> list[tuple[float, FloatArray, FloatArray]]:
        """Return the Gaussians that a variable's posterior is a mixture of.

        Parameters
        ----------
        name : str
            Name of a free variable that is no hyper-parameter.

        Returns
        -------
        list of tuple
            Weight, mean, shape (k,), and covariance, shape (k, k), of each.

        Raises
        ------
        ValueError
            If the variable is a hyper-parameter, or the model does not have it.

        See Also
        --------
        pymc_pacauc.prior_from : Use them as a prior.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> with pm.Model():
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> [(weight, mean.shape) for weight, mean, _ in approx.components("theta")]
        [(1.0, (1,))]
        """
        if name not in self._given.parts:
            raise ValueError(
                f"{name} is a hyper-parameter, or no variable of the model, and its posterior is no mixture of "
                f"Gaussians: use {', '.join(self._given.names)}. For a hyper-parameter write a prior with the moments "
                "of approx.hyper_posterior."
            )
        part, parts = self._given.parts[name], zip(self.weights, (each.posterior for each in self.fits), strict=True)
        return [(float(weight), q.mean[part], q.covariance[part, part]) for weight, q in parts]

    @property
    def _given(self) -> ModelProblem:
        """Where coefficients are in each of ``fits``."""
        return self.source

    def _mean(self, quantity: Callable[[Fit], Any]) -> Any:
        """Average a quantity of the fits."""
        return sum(weight * quantity(each) for weight, each in zip(self.weights, self.fits, strict=True))

    @property
    def log_evidence(self) -> float:
        """EP's log evidence in nats; for variational Bayes the lower bound."""
        return self.fit.log_evidence + self.fit.problem.absorbed

    @property
    def expected_risk(self) -> float:
        """Expectation of the pair risk under the approximation, in closed form."""
        return float(self._mean(lambda each: each.expected_risk))

    @property
    def converged(self) -> bool:
        """Whether the approximation is a fixed point to the tolerance."""
        return all(each.converged for each in self.fits)

    @property
    def sweeps(self) -> int:
        """Number of sweeps over the pairs, of all fits."""
        return sum(each.sweeps for each in self.fits)

    @property
    def history(self) -> pd.DataFrame:
        """Change, log evidence and expected risk after each sweep, a DataFrame."""
        return pd.DataFrame(list(self.fit.history)).set_index("sweep")

    @property
    def hist(self) -> FloatArray:
        """Minus the log evidence after each sweep: PyMC's name for the trace of the loss."""
        return -self.history["log_evidence"].to_numpy()

    # -- a result like any other -------------------------------------------------------------------------------------

    @cached_property
    def evidence(self) -> LogEvidence:
        """Log evidence corrected by importance weights, with its error; see the class docstring."""
        found, absorbed = corrected_evidence(self.fit, self.posterior), self.fit.problem.absorbed
        return replace(found, estimate=found.estimate + absorbed)

    @cached_property
    def training_auc(self) -> float:
        """AUC of the mean score, the one to deploy, on the training pairs."""
        scores = self._mean(lambda each: each.problem.X @ each.posterior.score_mean + each.problem.offset)
        return 1.0 - float(pair_risk(scores[None], self.fit.problem.pairs)[0])

    # -- sparse coefficients -----------------------------------------------------------------------------------------

    @property
    def inclusion_probability(self) -> xr.DataArray | dict[str, xr.DataArray]:
        """Probability of the slab for each coefficient of a :class:`~pymc_pacauc.SpikeSlab`; a dict of several."""
        if not self.source.sparse:
            raise AttributeError(
                "The model has no pac.SpikeSlab variable: every coefficient is included with probability 1."
            )
        names = [sparse.name for sparse in self.source.sparse]
        found = {name: self._labelled(name, self._inclusion).rename(f"{name}_inclusion") for name in names}
        return next(iter(found.values())) if len(found) == 1 else found

    def _labelled(self, name: str, values: NDArray[np.float64]) -> xr.DataArray:
        """Return the variable at ``values[d]`` of theta, with the dims and coords it had in the fit."""
        variable, part = self.model[name], values[self.source.parts[name]]
        with self.source.data.held_by(self.model):
            if name in self.source.transformed:
                part = self.source.function(variable)(values[None])[0][0]
            return labelled(self.model, variable, part)

    @property
    def expected_model_size(self) -> float:
        """Expected number of coefficients from the slab, of those that have a spike."""
        return float(sum(self._inclusion[self.source.parts[s.name]].sum() for s in self.source.sparse))

    @property
    def _inclusion(self) -> FloatArray:
        """Inclusion probability of every coefficient, in the order of ``posterior``."""
        return np.asarray(self._mean(lambda each: each.inclusion_probability))

    # -- functions of the model --------------------------------------------------------------------------------------

    def as_fitted(self) -> AbstractContextManager[None]:
        """Restore the model's ``pm.Data`` and coords of the fit within a ``with`` block.

        Returns
        -------
        context manager
            Puts back the present data at its end.

        See Also
        --------
        pymc_pacauc.predict_scores : Scores of new rows, by the model as it was.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> with pm.Model() as model:
        ...     X = pm.Data("X", np.array([[0.0], [1.0], [2.0]]))
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        ...     pm.set_data({"X": np.zeros((3, 1))})
        >>> with approx.as_fitted():
        ...     print(model["X"].get_value().ravel())
        [0. 1. 2.]
        """
        return self.source.data.held_by(self.model)

    def scoring(self, name: str | None = None) -> GraphScores:
        """Describe how a row becomes a score, as the model was when it was fitted.

        Parameters
        ----------
        name : str, optional
            Name of scores that are a ``pm.Deterministic`` of the model; by default those that its potentials compare.

        Returns
        -------
        GraphScores
            Inputs and weights of the scores.

        Raises
        ------
        ValueError
            If the model has no Deterministic of this name.

        See Also
        --------
        pymc_pacauc.predict_scores : Scores of new rows.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> with pm.Model():
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> approx.scoring().linear
        True
        """
        if name not in self._scoring:
            graph = None if name is None else next((v for v in self.model.deterministics if v.name == name), None)
            if name is not None and graph is None:
                raise ValueError(
                    f"var_name={name!r} is no pm.Deterministic of the model; leave var_name out for the scores of its "
                    "potential."
                )
            with self.as_fitted():
                self._scoring[name] = read_scores(self.model, graph, self.source.variables)
        return self._scoring[name]

    @property
    def score_function(self) -> ScoreFunction:
        """The function from a row to its score: inputs, their names, and the weights of their columns."""
        return self.scoring()

    def export(
        self, path: str | os.PathLike[str] | None = None, *, covariance: bool = True, var_name: str | None = None
    ) -> dict[str, Any]:
        """Write scores that are linear in their columns as JSON; see :func:`pymc_pacauc.export`.

        Parameters
        ----------
        path : path-like, optional
            Where to write it.
        covariance : bool, default True
            Whether to write the covariance of the weights; with d columns d^2 numbers.
        var_name : str, optional
            Name of the scores, as in :func:`~pymc_pacauc.predict_scores`.

        Returns
        -------
        dict
            Contents of the file, as in :func:`pymc_pacauc.export`.

        Raises
        ------
        ValueError
            If scores are not linear in the columns.

        See Also
        --------
        pymc_pacauc.export : The same for any result.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> with pm.Model(coords={"column": ["age"]}):
        ...     X = pm.Data("X", np.array([[0.0], [1.0], [2.0]]), dims=(None, "column"))
        ...     theta = pm.Normal("theta", dims="column")
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> approx.export()["columns"]
        ['age']
        """
        function = self.scoring(var_name)
        weights = in_theta(self, function, np.eye(sum(int(np.prod(shape)) for _, shape in function.variables)))
        spread = self.posterior.moments_of(weights)[1] if covariance else None
        return write_score(function, weights @ self.posterior.score_mean, spread, self.fitted_to, path)

    def _mean_points(self) -> tuple[xr.Dataset, FloatArray]:
        """Return all variables at the mean, as if they were a draw, and its weight: scores have their mean there."""
        return self._as_draws(self.posterior.score_mean[None], {}), np.ones(1)

    def _as_draws(self, theta: FloatArray, known: dict[str, FloatArray]) -> xr.Dataset:
        """Make a Dataset of all variables at ``theta[draws, d]``; those in ``known`` have these values instead."""
        found, source = {}, self.source
        for name, shape in zip(source.names, source.layout.shapes, strict=True):
            if name in known:
                values = known[name]
            elif name in source.transformed:
                values = source.function(self.model[name])(theta)[0]
            else:
                values = theta[:, source.parts[name]].reshape(-1, *shape)
            found[name] = (("chain", "draw", *(f"{name}_dim_{i}" for i in range(values.ndim - 1))), values[None])
        return xr.Dataset(found)

    # -- by-products -------------------------------------------------------------------------------------------------

    def calibrated(self, groups: ArrayLike | None = None) -> EPApproximation:
        """Replace the covariance by the sampling covariance of the mean: credible sets have their nominal coverage.

        It is the covariance that the mean has over data sets, orthogonal to its direction (see
        :func:`~pymc_pacauc.tune.coverage.calibrated_posterior`), for intervals of ratios of coefficients, of
        differences of scores, and for coefficients that may be zero, at any gamma. The length of the coefficients is
        not identified, and has a small variance. ``log_evidence`` remains that of the model; risk and divergence, hence
        certificates, are of the new Gaussian.

        Parameters
        ----------
        groups : array_like, shape (n,), optional
            A label per observation, such as its patient: groups are the independent units, not observations.

        Returns
        -------
        EPApproximation
            The same mean with the calibrated covariance.

        Raises
        ------
        ValueError
            For priors that are not Gaussian, for unordered classes, and with fewer than two observations (or groups)
            for each coefficient.

        See Also
        --------
        pymc_pacauc.select_gamma : With ``criterion="coverage"``, a gamma at which credible sets cover.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(40, 2))
        >>> with pm.Model():
        ...     theta = pm.Normal("theta", size=2)
        ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3 * X[:, 1] ** 2, gamma=20)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> approx.calibrated().posterior.covariance.shape
        (2, 2)
        """
        if self.fitted_to.comparison == "unordered classes":
            raise ValueError(
                "calibrated() is for one score; this model has one for each class. pac.AUCClassifier has calibrated "
                "standard deviations of each, coef_sd_."
            )
        posterior = calibrated_posterior(self.fit, groups)
        problem = self.fit.problem
        space = problem.scores.reduced
        mean, root = space.design @ posterior.natural.mean + space.offset, posterior.natural.rooted(space.design)
        unpaid = (0.5 - problem.tie_cost) * problem.tied_share  # half of a tie, which a fit may count otherwise
        risk = 1.0 - expected_pair_auc(mean, root, problem.pairs) - unpaid
        fit: Any = self.fit
        found = EPApproximation(replace(fit, posterior=posterior, expected_risk=risk), self.source)
        found.calibrated_spread = True
        found.groups[0].posterior = posterior
        return found

    @raises_interrupts
    def leave_out(
        self,
        groups: ArrayLike | None = None,
        *,
        refine: int | None = None,
        n_jobs: int | None = None,
        progressbar: bool = True,
    ) -> LeaveOut:
        """Compute cross-validated scores of every observation, by removing its pairs from the fit.

        Parameters
        ----------
        groups : array_like, shape (n,), optional
            Group label of each observation for k-fold or grouped cross-validation; by default each is left out alone.
        refine : int, optional
            Iterations over the remaining pairs after the removal: 0 is cheapest; by default 3 for groups, which is
            usually as good as a new fit, and 10 for single observations.
        n_jobs : int, optional
            Threads, by default one per core.
        progressbar : bool, default True
            Show a progress bar if it takes longer than a moment.

        Returns
        -------
        LeaveOut
            Scores, shape (n,), of unordered classes (n, K), the cross-validated AUC and an error indicator.

        Raises
        ------
        ValueError
            If this is a calibrated approximation, or ``groups`` has another length.

        See Also
        --------
        pymc_pacauc.leave_out : The same for any result.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.random.default_rng(1).normal(size=(40, 2))
        >>> with pm.Model():
        ...     theta = pm.Normal("theta", size=2)
        ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=20)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> approx.leave_out(np.arange(40) % 4, progressbar=False).group_auc.shape
        (4,)
        """
        if self.calibrated_spread:
            raise ValueError(
                "leave_out() is not defined after calibrated(): call leave_out() of the approximation before it."
            )
        classes, n = self._classes, self.fit.problem.n // self._classes
        if classes > 1:  # a row has a score for each class, which go together
            groups = np.tile(np.arange(n) if groups is None else np.asarray(groups), classes)
        with LateBar("leaving out", show=progressbar) as bar:
            found = self.fit.leave_out(groups, refine=refine, n_jobs=n_jobs, callback=bar.update)
        if classes == 1:
            return found
        scores, variance = (each.reshape(classes, n).T for each in (found.scores, found.variance))
        return replace(found, scores=scores, variance=variance, groups=found.groups[:n])

    def evidence_gradient(self) -> Any:
        """Differentiate ``log_evidence`` with respect to the prior.

        Returns
        -------
        EvidenceGradient or SpikeSlabGradient
            For a Gaussian prior, with respect to mean and covariance of the flat free variables; for a spike-and-slab
            prior, with respect to each coefficient's p, v0 and v1.

        Raises
        ------
        UnsupportedError
            For other priors.

        See Also
        --------
        pymc_pacauc.maximize_evidence : Uses the derivatives.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> with pm.Model():
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> bool(approx.evidence_gradient().mean[0] > 0)  # a higher prior mean would fit better
        True
        """
        return self.fit.evidence_gradient()

    @node_property
    def sample_dict_fn(self):
        """Draw each free variable, for PyMC's traces."""
        free = self.source.free

        def draw(draws: int = 100, *, random_seed: Any = None) -> dict[str, FloatArray]:
            values = self._draw(draws, get_random_generator(random_seed))[0]
            parts = zip(free.names, free.slices, free.shapes, strict=True)
            return {name: values[:, part].reshape(draws, *shape) for name, part, shape in parts}

        return draw

    def sample(
        self, draws: int = 500, *, random_seed: Any = None, return_inferencedata: bool = True, **kwargs: Any
    ) -> Any:
        """Draw all variables and Deterministics independently from the approximation.

        Parameters
        ----------
        draws : int, default 500
            Number of draws.
        random_seed : int, Generator or None, optional
            Seed of the draws.
        return_inferencedata : bool, default True
            Whether to return ArviZ data; else PyMC's trace.
        **kwargs : dict
            Passed to PyMC where it makes the trace.

        Returns
        -------
        InferenceData or DataTree
            With ``posterior`` (one chain), ``sample_stats`` and what is needed to score new rows.

        Raises
        ------
        ValueError
            If ``draws`` is below 1.

        See Also
        --------
        EPApproximation.importance_sample : Draws weighted towards the exact posterior.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> with pm.Model():
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> approx.sample(100, random_seed=1)["posterior"]["theta"].shape
        (1, 100, 1)
        """
        if draws < 1:
            raise ValueError(f"draws must be at least 1; got {draws!r}.")
        if not return_inferencedata:
            return super().sample(draws, random_seed=random_seed, return_inferencedata=False, **kwargs)
        values, risk, _ = self._draw(draws, get_random_generator(random_seed))
        constants = {**self._constants, DEPLOYED: self.training_auc}
        for variable in self._exact_means:
            constants[EXACT_MEAN + variable.name] = self._labelled(variable.name, self.posterior.score_mean)
        return self._inference_data(values, {"risk": risk}, constants)

    def _draw(
        self, draws: int, rng: np.random.Generator, *, weighted: bool = False
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw free variables ``[draws, D]``; return also the risk of each, and log weights.

        With ``weighted`` these are towards the exact posterior, and the mean weight is the evidence; else all equal.
        """
        theta, risk, log_weights = self._draw_given(self.fit, self.posterior, draws, rng, weighted=weighted)
        return self.source.free_values(theta, rng), risk, log_weights

    def _draw_given(
        self, fit: Fit, posterior: Any, draws: int, rng: np.random.Generator, *, weighted: bool
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Draw theta, its risk and log weights, by one of the fits; ``posterior`` is its own, perhaps corrected."""
        if weighted:
            found = fit.importance(draws, rng)
            return found.theta, found.risk, found.log_weights + (self.log_evidence - fit.log_evidence)
        theta = posterior.draw(draws, rng)
        return theta, fit.problem.risk(theta), np.zeros(draws)

    @property
    def _exact_means(self) -> Sequence[Any]:
        """Variables at whose means the scores have their mean."""
        return self.source.variables

    def importance_sample(self, draws: int = 1000, *, random_seed: Any = None) -> ImportanceSample:
        """Draw from the approximation and weight by exact posterior / approximation, with Pareto-smoothed weights.

        For scores without an offset only directions are weighted and the length is drawn from its exact law, so the
        draws are not those of :meth:`sample`.

        Parameters
        ----------
        draws : int, default 1000
            Number of draws.
        random_seed : int, Generator or None, optional
            Seed of the draws.

        Returns
        -------
        ImportanceSample
            Weighted draws, the corrected log evidence, and Pareto's k, which says whether they can be trusted.

        Raises
        ------
        ValueError
            If there are too few draws to smooth their weights.

        Warns
        -----
        UserWarning
            If Pareto's k is too large for the weights to be trusted.

        See Also
        --------
        EPApproximation.sample : Draws of the approximation.
        pymc_pacauc.TemperingSMC : Draws of the exact posterior.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> with pm.Model():
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 1, 0, 1], gamma=4.0)
        ...     approx = pm.fit(method=pac.EP(), progressbar=False)
        >>> weighted = approx.importance_sample(500, random_seed=1)
        >>> bool(abs(weighted.log_evidence - np.log((np.exp(-1) + np.exp(-3)) / 2)) < 0.1)
        True
        """
        if draws < 25:  # of which five are smoothed
            raise ValueError(f"draws must be at least 25, to smooth the largest weights; got {draws}.")
        values, risk, log_weights = self._draw(draws, get_random_generator(random_seed), weighted=True)
        log_weights, pareto_k = pareto_smooth(log_weights)
        log_evidence, error = log_mean(log_weights)
        if pareto_k > LARGEST_K:
            warnings.warn(
                f"The importance weights have Pareto k = {pareto_k:.2f} > {LARGEST_K}: their averages, the corrected "
                "evidence included, are unreliable. Use pm.sample(step=pac.TemperingSMC(start=approx)).",
                stacklevel=2,
            )
        relative = np.exp(log_weights - log_evidence)
        stats = {"log_weight": log_weights - log_evidence, "risk": risk}
        constants = {
            **self._constants,
            "log_evidence": log_evidence,
            "log_evidence_variance": error**2,
            "pareto_k": pareto_k,
        }
        idata = self._inference_data(values, stats, constants)
        return ImportanceSample(idata, pareto_k, float(draws / np.mean(relative**2)), log_evidence, error)

    @cached_property
    def _constants(self) -> dict[str, Any]:
        """Statistics that are stored with every draw; see :class:`~pymc_pacauc.model.results.Draws`."""
        return {**stats_of(self), "converged": int(self.converged)}

    def _inference_data(self, values: FloatArray, stats: dict[str, Any], constants: dict[str, Any]) -> Any:
        """Make ArviZ data of the free variables ``values[N, D]``."""
        score_function = self.score_function
        with self.as_fitted():
            return draws_to_inference_data(
                self.model,
                values[None],
                variables=self.source.free,
                sample_stats={name: value[None] for name, value in stats.items()},
                constants=constants,
                method=self.method,
                score_function=score_function,
            )

    @property
    def _classes(self) -> int:
        """Number of unordered classes, whose scores follow each other in the problem; 1 where a row has one score."""
        return self.fitted_to.terms if self.fitted_to.comparison == "unordered classes" else 1

    def __repr__(self) -> str:
        problem, number = self.fit.problem, self.source.layout.dimension
        acted = sum(vars(self.interventions).values())
        safeguards = f" (safeguards acted: {acted}, see .interventions)" if acted else ""
        measure, of_draw = self.fitted_to.measure, 1.0 - self.expected_risk
        lines = [
            f"{self.method} approximation of {'an' if measure in ('AUC', 'M') else 'a'} {measure} Gibbs posterior",
            f"  observations   {problem.n // self._classes} ({problem.pairs.n_pairs} pairs), {number} parameters",
            f"  gamma          {problem.gamma:g}",
            f"  log evidence   {self.log_evidence:.4f}",
            f"  {measure:<15}{self.training_auc:.4f} of the mean score, {of_draw:.4f} of a draw (training)",
        ]
        if self.pairs_used < problem.pairs.n_pairs:
            error = self.sampling_error
            lines.insert(
                2,
                f"  pairs used     {self.pairs_used}, sampled: log evidence ± {error.log_evidence:.2g}, "
                f"mean ± {error.mean:.2g} posterior sd",
            )
        if self.source.sparse:
            lines.append(f"  model size     {self.expected_model_size:.2f} coefficients expected from the slab")
        state = "converged" if self.converged else "INTERRUPTED" if self.interrupted else "NOT CONVERGED"
        lines.append(f"  {state} in {self.sweeps} sweeps{safeguards}")
        return "\n".join(lines)

    __str__ = __repr__


def in_theta(approx: EPApproximation, function: ScoreFunction, rows: FloatArray) -> FloatArray:
    """Write linear functions (k, m) of the variables of a score function as functions (k, d) of theta."""
    found, source, stop = np.zeros((len(rows), approx.source.layout.dimension)), approx.source, 0
    for name, shape in function.variables:
        start, stop = stop, stop + int(np.prod(shape))
        part = rows[:, start:stop]
        if name in source.transformed:
            slopes = affine_map(source.function(approx.model[name]), found.shape[1])[1]
            found += part @ slopes.reshape(len(slopes), -1).T
        else:
            found[:, source.parts[name]] = part
    return found
