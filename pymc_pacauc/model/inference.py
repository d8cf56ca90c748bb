"""Expectation propagation and Gaussian variational Bayes through ``pm.fit(method=...)``.

The life of ``pm.fit(method=pac.EP())``: :meth:`EP.fit` asks :func:`~pymc_pacauc.model.extract.problem_of` for the
arrays, :func:`pymc_pacauc.fitting.fit` for a fit of them, and wraps it as an
:class:`~pymc_pacauc.model.approximation.EPApproximation`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.variational.inference import Inference
from rich.progress import TextColumn

from pymc_pacauc.fitting import MAX_SWEEPS, TOLERANCE, fit
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.extract import ModelProblem, problem_of
from pymc_pacauc.model.progress import LateBar
from pymc_pacauc.model.scaling import warn_of_scales

__all__ = ["EP", "GaussianVB", "approximate"]


def approximate(
    source: ModelProblem,
    method: str = "ep",
    *,
    start: EPApproximation | None = None,
    progressbar: bool = True,
    **options: Any,
) -> EPApproximation:
    """Fit the problem of a model, with a progress bar once it has taken a while."""
    columns = [
        TextColumn("change {task.fields[change]:.1e}"),
        TextColumn("log Z {task.fields[log_evidence]:.2f}"),
        TextColumn("E[risk] {task.fields[expected_risk]:.4f}", markup=False),
    ]
    total = options.get("max_sweeps", MAX_SWEEPS)
    with LateBar(f"{method.upper()} sweeps", *columns, show=progressbar) as bar:
        fitted = fit(
            source.problem,
            method,
            start=None if start is None else start.fit,
            callback=lambda record: bar.update(int(record["sweep"]), total, **record),
            **options,
        )
    return EPApproximation(fitted, source)


class EP(Inference):
    """Expectation propagation, for ``pm.fit(method=pac.EP())``.

    Works for any model whose scores are affine in Gaussian variables or in a :func:`~pymc_pacauc.SpikeSlab` variable; a
    model that is not is refused with the variable and the reason. Interrupting it (Ctrl-C) returns the approximation so
    far, marked as not converged.

    Parameters
    ----------
    power
        1 for EP; smaller for fractional EP.
    pairs
        ``"all"``: every pair is used, and the result is exact. A number of rows: these are dealt into groups of so many
        along the score and compared within their group, which changes the result by its ``sampling_error``. ``"auto"``:
        all where that is cheap (up to 5 million), else groups large enough for an error of some hundredths of a
        posterior standard deviation.
    start
        An earlier approximation to begin from, for example at another gamma.
    tolerance
        Relative change of the natural parameters at which to stop.
    max_sweeps
        Sweeps after which to give up, with a warning.
    n_jobs
        Threads, by default one per core.
    random_seed
        Of the deal, where pairs are dealt: the same each time, unless another is given.
    client
        A ``dask.distributed.Client`` whose workers share the pairs instead; see :mod:`pymc_pacauc.cluster`.
    model
        The model; by default the one on the context stack when :meth:`fit` is called.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> import pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=2)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP())
    >>> approx.converged
    True
    """

    name = "EP"
    method = "ep"

    def __init__(
        self,
        *,
        power: float = 1.0,
        pairs: str | int = "auto",
        start: EPApproximation | None = None,
        tolerance: float = TOLERANCE,
        max_sweeps: int = MAX_SWEEPS,
        n_jobs: int | None = None,
        random_seed: Any = 0,
        client: Any = None,
        model: pm.Model | None = None,
    ):
        # No super().__init__: there is no operator or objective to optimise.
        self.hist: NDArray[np.float64] = np.empty(0)
        self.state = None
        self.model = model
        self.start = start
        self.options: dict[str, Any] = {
            "power": power,
            "pairs": pairs,
            "tolerance": tolerance,
            "max_sweeps": max_sweeps,
            "n_jobs": n_jobs,
            "random_seed": random_seed,
            "client": client,
        }
        self._approx: EPApproximation | None = None

    @property
    def approx(self) -> EPApproximation | None:
        return self._approx

    def fit(
        self, n: int = 10_000, score=None, callbacks=None, progressbar: bool = True, **kwargs: Any
    ) -> EPApproximation:
        """Fit the model; ``n`` bounds the number of sweeps together with ``max_sweeps``."""
        source = problem_of(pm.modelcontext(self.model))
        warn_of_scales(source)
        options: dict[str, Any] = {**self.options, "max_sweeps": min(n, self.options["max_sweeps"])}
        self._approx = approximate(source, self.method, start=self.start, progressbar=progressbar, **options)
        self.hist = self._approx.hist
        for callback in callbacks or ():
            callback(self._approx, self.hist, len(self.hist))
        return self._approx

    def refine(self, n: int, progressbar: bool = True) -> EPApproximation:
        """Go on from where the last fit ended."""
        self.start = self._approx
        return self.fit(n, progressbar=progressbar)


class GaussianVB(EP):
    """The best Gaussian in the variational sense, for ``pm.fit(method=pac.GaussianVB())``.

    Maximises ``-gamma E_q[risk] - KL(q, prior)``, both in closed form; ``log_evidence`` is that bound. The parameters
    are those of :class:`EP`, without ``power``: this is EP's limit of power zero.
    """

    name = "GaussianVB"
    method = "vb"

    def __init__(
        self,
        *,
        pairs: str | int = "auto",
        start: EPApproximation | None = None,
        tolerance: float = TOLERANCE,
        max_sweeps: int = MAX_SWEEPS,
        n_jobs: int | None = None,
        random_seed: Any = 0,
        client: Any = None,
        model: pm.Model | None = None,
    ):
        super().__init__(
            pairs=pairs,
            start=start,
            tolerance=tolerance,
            max_sweeps=max_sweeps,
            n_jobs=n_jobs,
            random_seed=random_seed,
            client=client,
            model=model,
        )
