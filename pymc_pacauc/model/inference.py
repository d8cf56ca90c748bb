"""Expectation propagation and Gaussian variational Bayes through ``pm.fit(method=...)``.

:meth:`EP.fit` reads the arrays off the model (:func:`~pymc_pacauc.model.read.problem_of`), fits them
(:func:`pymc_pacauc.fitting.fit`), and wraps the fit as an
:class:`~pymc_pacauc.model.approximation.EPApproximation`.

*Scales* (:func:`warn_of_scales`). The prior makes covariates of large scale important. In ``benchmarks/scales.py`` the
scales of the covariates have a given ratio. Where those of large scale rank best, results do not change up to a ratio
of a million. Where they rank worst, the posterior is poor: on Pima the AUC of the mean score is 0.85 up to a ratio of
ten, 0.76 at a hundred, 0.69 at a million; from a hundred on EP may not converge or be wrong by a nat or two, and SMC
from the prior mixes badly and warns. So the warning starts at a hundred.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.variational.inference import Inference
from rich.progress import TextColumn

from pymc_pacauc.ep.fit import fit
from pymc_pacauc.ep.plan import ACCURACIES, MAX_SWEEPS, Plan, choose_plan
from pymc_pacauc.fitting import plan_of
from pymc_pacauc.interrupt import returns_early
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.auc_term import arrays_of, auc_terms
from pymc_pacauc.model.compat import LateBar
from pymc_pacauc.model.nested import HyperModel, fit_nested, read_model
from pymc_pacauc.model.read import ModelProblem

MOST = 100.0  # ratio of standard deviations warned of, see above: results are poor from there on; doubled, fewer are


class ScaleWarning(UserWarning):
    """Warning that the scales of covariates differ so much that the prior excludes some of them.

    See Also
    --------
    pymc_pacauc.EP : Warns when it is fitted.
    pymc_pacauc.AUCClassifier : Standardises the columns by itself.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2)) * [1.0, 1e7]
    >>> with pm.Model():
    ...     auc = pac.AUCPotential("auc", X @ pm.Normal("theta", size=2), X[:, 0] > 0.3, gamma=40)
    ...     with warnings.catch_warnings():
    ...         warnings.simplefilter("error", pac.results.ScaleWarning)  # stop instead of warning
    ...         pm.fit(method=pac.EP(), progressbar=False)
    Traceback (most recent call last):
        ...
    pymc_pacauc.model.inference.ScaleWarning: The covariates of theta have very different scales...
    """


def warn_of_scales(source: ModelProblem) -> None:
    """Warn where scores are X @ theta and its columns, and the terms of the scores under the prior, differ too much.

    Then the scores are those of the largest covariates, whatever the labels say, unless theta is far out in the tails
    of its prior.
    """
    problem = source.problem
    if not problem.prior.independent:
        return
    arrays = arrays_of(auc_terms(source.model))
    for variable, part in zip(source.variables, source.layout.slices, strict=True):
        X = problem.X[:, part]
        if variable.type.ndim != 1 or not any(np.array_equal(X, array) for array in arrays):
            continue
        raw = X.std(axis=0)
        scale, moving = raw * problem.prior.factor[part], np.flatnonzero(raw > 0)
        if moving.size and all(sd[moving].max() > MOST * sd[moving].min() for sd in (raw, scale)):
            low, high = moving[scale[moving].argmin()], moving[scale[moving].argmax()]
            warnings.warn(
                f"The covariates of {variable.name} have very different scales: column {high} varies "
                f"{scale[high] / scale[low]:.2g} times as much as column {low}, in units of the prior. The prior then "
                "favours columns of large scale, so that the AUC may be low, and EP inaccurate or not converge. "
                "Standardise the covariates.",
                ScaleWarning,
                stacklevel=5,
            )


def approximate(
    source: ModelProblem, plan: Plan | None = None, *, n_jobs: int | None = None, progressbar: bool = True
) -> EPApproximation:
    """Fit the problem of a model as the plan says, with a progress bar once it has taken a while."""
    plan = choose_plan(source.problem) if plan is None else plan
    shown = {"change": ("change", ".1e"), "log Z": ("log_evidence", ".2f"), "E[risk]": ("expected_risk", ".4f")}
    columns = [TextColumn(f"{k} {{task.fields[{name}]:{form}}}", markup=False) for k, (name, form) in shown.items()]
    with LateBar(f"{'EP' if plan.power else 'VB'} sweeps", *columns, show=progressbar) as bar:

        def show(record: dict[str, Any]) -> None:
            bar.update(int(record["sweep"]), plan.max_sweeps, **record)

        return EPApproximation(fit(source.problem, plan, n_jobs=n_jobs, callback=show), source)


class EP(Inference):
    """Fit a Gaussian approximation by expectation propagation, for ``pm.fit(method=pac.EP())``.

    Works for any model whose scores are affine in variables with Gaussian or independent priors (such as
    :func:`~pymc_pacauc.SpikeSlab`), also given up to six hyper-parameters; another model is refused with the variable
    and the reason. Ctrl-C returns the approximation after the present sweep, marked ``interrupted``; a second Ctrl-C
    raises KeyboardInterrupt at once.

    Parameters
    ----------
    power : float, default 1.0
        1 for EP; smaller for fractional EP.
    pairs : str or int, default "auto"
        Which pairs to use. ``"all"``: every pair. An int: a random subset of the pairs, those within groups of this
        many rows, with an error that ``sampling_error`` estimates; if that of the mean is above 0.3 posterior standard
        deviations, larger groups are used, with a warning. ``"auto"``: all pairs up to 250 000, else groups large
        enough for an error of some hundredths of a posterior standard deviation.
    start : approximation, optional
        An earlier approximation to begin from, for example at another gamma.
    tolerance : float, default 1e-6
        Relative change of the natural parameters at which to stop.
    max_sweeps : int, default 200
        Sweeps after which to give up, with a warning.
    n_jobs : int, optional
        Threads, by default one per core.
    random_seed : int, Generator or None, default 0
        Seed of the subsample: the same each time, unless another is given.
    client : dask.distributed.Client, optional
        Client of a cluster whose workers divide the pairs; see :mod:`pymc_pacauc.cluster`.
    hyper : {"integrate", "maximize"}, default "integrate"
        Treatment of hyper-parameters, where the model is Gaussian given up to six of them (scales, lengthscales,
        weights of a mixture): integrate over their posterior, or use its mode (in PyMC's unconstrained coordinates).
        See :mod:`pymc_pacauc.tune.nested`.
    model : pymc.Model, optional
        The model; by default the one on the context stack when :meth:`fit` is called.

    Raises
    ------
    ValueError
        If ``hyper`` is neither "integrate" nor "maximize".

    See Also
    --------
    GaussianVB : The same by variational Bayes.
    TemperingSMC : Draws of the exact posterior, for any scores.
    pymc_pacauc.results.EPApproximation : What ``pm.fit`` returns.

    References
    ----------
    T. P. Minka (2001), Expectation propagation for approximate Bayesian inference, UAI 17.

    J. Ridgway, P. Alquier, N. Chopin, F. Liang (2014), PAC-Bayesian AUC classification and scoring, NeurIPS 27.

    Examples
    --------
    >>> import numpy as np, pymc as pm
    >>> import pymc_pacauc as pac
    >>> X = np.random.default_rng(1).normal(size=(40, 2))
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=2)
    ...     auc = pac.AUCPotential("auc", X @ theta, X[:, 0] > 0.3, gamma=40)
    ...     approx = pm.fit(method=pac.EP(), progressbar=False)
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
        tolerance: float = ACCURACIES["fit"].tolerance,
        max_sweeps: int = MAX_SWEEPS,
        n_jobs: int | None = None,
        random_seed: Any = 0,
        client: Any = None,
        hyper: str = "integrate",
        model: pm.Model | None = None,
    ):
        # No super().__init__: there is no operator or objective to optimise.
        self.hist: NDArray[np.float64] = np.empty(0)
        self.state = None
        if hyper not in ("integrate", "maximize"):
            raise ValueError(f'hyper must be "integrate" or "maximize"; got {hyper!r}.')
        self.model, self.start, self.hyper, self.n_jobs = model, start, hyper, n_jobs
        self.options: dict[str, Any] = {
            "power": power,
            "pairs": pairs,
            "tolerance": tolerance,
            "max_sweeps": max_sweeps,
            "random_seed": random_seed,
            "client": client,
        }
        self._approx: EPApproximation | None = None

    @property
    def approx(self) -> EPApproximation | None:
        """Approximation of the last fit; None before."""
        return self._approx

    @returns_early
    def fit(
        self, n: int = 10_000, score=None, callbacks=None, progressbar: bool = True, **kwargs: Any
    ) -> EPApproximation:
        """Fit the model; ``pm.fit`` calls this.

        Parameters
        ----------
        n : int, default 10000
            Most sweeps over the pairs, together with ``max_sweeps``: the smaller counts.
        score : object, optional
            Ignored; PyMC passes it.
        callbacks : sequence of callable, optional
            Each is called at the end with the approximation, its history and the number of sweeps.
        progressbar : bool, default True
            Whether to show one when the fit takes more than a second.
        **kwargs : dict
            Ignored; PyMC passes them.

        Returns
        -------
        EPApproximation
            The approximation.

        Raises
        ------
        NotLinearGaussianError
            If the scores are not affine in variables that EP can treat.
        ImportError
            If ``client`` was given and Dask is not installed.

        Warns
        -----
        ConvergenceWarning
            If the fit does not converge.
        ScaleWarning
            If the scales of covariates differ very much.

        See Also
        --------
        EP.refine : Go on from where the last fit ended.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> with pm.Model() as model:
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        >>> pac.EP(model=model).fit(progressbar=False).converged
        True
        """
        model = pm.modelcontext(self.model)
        options: dict[str, Any] = {**self.options, "max_sweeps": min(n, self.options["max_sweeps"])}
        how: dict[str, Any] = {"n_jobs": self.n_jobs, "progressbar": progressbar}
        source = read_model(model)
        if isinstance(source, HyperModel):
            self._approx = fit_nested(source, self.method, self.hyper, **how, **options)
        else:
            warn_of_scales(source)
            start = None if self.start is None else self.start.fit
            self._approx = approximate(source, plan_of(source.problem, self.method, start=start, **options), **how)
        self.hist = self._approx.hist
        for callback in callbacks or ():
            callback(self._approx, self.hist, len(self.hist))
        return self._approx

    def refine(self, n: int, progressbar: bool = True) -> EPApproximation:
        """Continue from where the last fit ended.

        Parameters
        ----------
        n : int
            Most sweeps over the pairs.
        progressbar : bool, default True
            Whether to show one when the fit takes more than a second.

        Returns
        -------
        EPApproximation
            The new approximation.

        Raises
        ------
        NotLinearGaussianError
            If the model was changed to one that EP cannot treat.

        Warns
        -----
        ConvergenceWarning
            If the fit does not converge.

        See Also
        --------
        EP.fit : The first fit.

        Examples
        --------
        >>> import numpy as np, pymc as pm, pymc_pacauc as pac
        >>> X = np.array([[0.0], [1.0], [2.0]])
        >>> with pm.Model() as model:
        ...     theta = pm.Normal("theta", size=1)
        ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
        >>> inference = pac.EP(model=model)
        >>> first = inference.fit(progressbar=False)
        >>> inference.refine(10, progressbar=False).converged
        True
        """
        self.start = self._approx
        return self.fit(n, progressbar=progressbar)


class GaussianVB(EP):
    """Fit the best Gaussian in the variational sense, for ``pm.fit(method=pac.GaussianVB())``.

    Maximises ``-gamma E_q[risk] - KL(q, prior)``, both in closed form; ``log_evidence`` is that bound. This is the
    limit of power zero of fractional EP.

    Parameters
    ----------
    **options : Any
        ``pairs``, ``start``, ``tolerance``, ``max_sweeps``, ``n_jobs``, ``random_seed``, ``client``, ``hyper`` and
        ``model``, as in :class:`EP`; not ``power``, whose limit zero this is.

    Raises
    ------
    TypeError
        If an option is unknown.

    See Also
    --------
    EP : Expectation propagation, usually closer to the exact posterior.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X = np.array([[0.0], [1.0], [2.0]])
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", X @ theta, [0, 0, 1], gamma=3.0)
    ...     approx = pm.fit(method=pac.GaussianVB(), progressbar=False)
    >>> approx.method, approx.converged
    ('GaussianVB', True)
    """

    name = "GaussianVB"
    method = "vb"

    def __init__(self, **options: Any):
        super().__init__(**options)
