"""Tempering SMC as a PyMC step method: ``pm.sample(step=pac.TemperingSMC())``.

A chain is one independent run of :mod:`pymc_pacauc.smc.tempering`, whose docstring has the algorithm and its cost. Each
tuning step runs one stage of the path (stages that are left run before the first draw), so that the progress bar shows
the temperature; its draws are the particles of the final population in random order. If there are more draws than
particles, the population is moved again and its particles are used again.

Everything is stored in ``sample_stats``, because ``pm.sample`` has no hook to attach objects to its result. *Every*
draw has what a certificate needs (its run, the log evidence and its variance, the expected risk of the final
population, the provenance), so that any selection of draws suffices. The record of the path is spread over the draws: a
draw stores one stage, ``path_stage``, from the last to the first and again, in the stats ``path_*``, and, with
``keep_particles``, one particle of every stage. :mod:`pymc_pacauc.analysis.gamma_path` reads them back. So the path
survives pickling, processes, slicing and files.
"""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import Any

import numpy as np
import pymc as pm
from pymc.exceptions import SamplingError
from pymc.stats.convergence import SamplerWarning, WarningType
from pymc.step_methods import STEP_METHODS
from pymc.step_methods.compound import BlockedStep, Competence, StepMethodState
from pymc.step_methods.state import dataclass_state
from pymc.util import get_random_generator, get_value_vars_from_user_vars
from pymc.vartypes import discrete_types
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.scalar.basic import Second
from pytensor.tensor.shape import Shape, Shape_i
from rich.progress import TextColumn
from rich.table import Column

from pymc_pacauc.interrupt import CarefulHandler, raises_interrupts
from pymc_pacauc.model.auc_term import NotLinearGaussianError, is_auc_risk
from pymc_pacauc.model.graph import FlatVariables, flat_variables
from pymc_pacauc.model.graph_path import FITTED, PyMCPath
from pymc_pacauc.model.read import problem_of
from pymc_pacauc.model.results import fitted_to, opened
from pymc_pacauc.model.score_function import read_scores
from pymc_pacauc.numerics import FloatArray
from pymc_pacauc.problem.problem import Problem
from pymc_pacauc.problem.provenance import Provenance
from pymc_pacauc.problem.score_function import PART, PARTS, STAT
from pymc_pacauc.smc.moves import choose_move
from pymc_pacauc.smc.paths import Population, bridge_path, prior_path
from pymc_pacauc.smc.tempering import Settings, Stage, State, advance, diagnose, move_on, start

logger = logging.getLogger("pymc")  # where people look for messages of pm.sample

PATH_STATS = tuple(f"path_{field.name}" for field in fields(Stage))
NUMBERS = (
    *("gamma", "log_evidence", "log_evidence_variance", "expected_risk", "expected_risk_variance", "particle_ess"),
    *("acceptance_rate", "risk", "log_tilt", "model_logp", "progress"),
)
SHOWN = {"progress": ("Gamma", ":.0%"), "stage": ("Stage", ""), "particle_ess": ("ESS", ":.0f")}
SHOWN["acceptance_rate"] = ("Accepted", ":.2f")  # in the progress bar: title of the column and format
STAGES_KEPT = 32  # of which a draw stores a particle; doubled, at_gamma finds stages half as far, in twice the memory


@dataclass_state
class TemperingSMCState(StepMethodState):
    tune: bool


class TemperingSMC(BlockedStep):
    """Sample AUC Gibbs posteriors exactly by tempering SMC (the paper's Algorithm 1), as a PyMC step.

    Parameters
    ----------
    vars : list of variables, optional
        Must be all free variables of the model, or None.
    particles : int, default 1000
        Number of particles of a run. For more draws than particles, the population is moved again.
    ess_threshold : float, default 0.5
        Share of the effective sample size that a stage keeps (the paper's tau).
    move : str, default "auto"
        ``"auto"``, or one of ``"direction"``, ``"ep"``, ``"gaussian"``, ``"prior"``, ``"random_walk"``; see
        :mod:`pymc_pacauc.smc.moves`.
    start : approximation or (mean, covariance), optional
        None to start from the prior, which gives the posterior and the evidence at every gamma on the way; or an
        approximation returned by ``pm.fit(method=pac.EP())``, or a pair (mean, covariance) in the unconstrained space
        of the free variables, which needs one to three stages.
    decorrelation : float, default 0.05
        A stage moves its particles until their correlation with their positions at its start is below this.
    max_moves : int, default 200
        Most moves of a stage.
    keep_particles : bool, default False
        Keep the particles of up to 32 stages, so that :func:`~pymc_pacauc.at_gamma` can use the nearest one.
    **of_pymc : dict
        Passed by PyMC: ``model`` (by default the one on the context stack), ``rng``, ``initial_point`` (ignored:
        particles start from the prior or from ``start``), ``compile_kwargs`` and ``blocked``.

    Raises
    ------
    ValueError
        If an option is out of its range, ``vars`` are not all free variables, or the model has no AUC term.
    TypeError
        If an option is unknown, or ``start`` is neither a fit of these variables nor a mean and a covariance.
    SamplingError
        If the log-density is NaN or infinite at all draws from the prior.

    Warns
    -----
    TemperingWarning
        Where a run may be wrong: few distinct particles, moves that are not accepted or do not decorrelate.

    See Also
    --------
    EP : A Gaussian approximation, much quicker.
    log_evidence : Log evidence of the draws.
    tempering_path : Stages of the runs.
    at_gamma : The posterior at a smaller gamma.

    Notes
    -----
    ``sample_stats`` has, for each draw, ``gamma``, ``log_evidence``, ``particle_ess`` (of the last stage's weights),
    ``acceptance_rate`` (of its moves), ``stage``, ``risk``, ``log_tilt`` (the derivative of the log-density in gamma),
    ``lp``, and the record of the path, which :func:`~pymc_pacauc.tempering_path` and
    :func:`~pymc_pacauc.log_evidence` read.

    Models whose scores are affine in Gaussian variables run on arrays without any call into PyTensor; all others are
    evaluated as one vectorised graph. ``pm.sample_smc`` tempers the same path for any PyMC model; it does not check
    that its number of moves suffices, and its evidence has no standard error.

    References
    ----------
    J. Ridgway, P. Alquier, N. Chopin, F. Liang (2014), PAC-Bayesian AUC classification and scoring, NeurIPS 27.

    P. Del Moral, A. Doucet, A. Jasra (2006), Sequential Monte Carlo samplers, JRSS B 68(3),
    doi:10.1111/j.1467-9868.2006.00553.x.

    H.-D. Dau, N. Chopin (2022), Waste-free sequential Monte Carlo, JRSS B 84(1), doi:10.1111/rssb.12475.

    Examples
    --------
    >>> import numpy as np, pymc as pm, pymc_pacauc as pac
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 1, 0, 1]
    >>> with pm.Model():
    ...     theta = pm.Normal("theta", size=1)
    ...     auc = pac.AUCPotential("auc", X @ theta, y, gamma=4.0)
    ...     idata = pm.sample(500, step=pac.TemperingSMC(), chains=2, cores=1, random_seed=1, progressbar=False)
    >>> bool(abs(pac.log_evidence(idata).estimate - np.log((np.exp(-1) + np.exp(-3)) / 2)) < 0.1)
    True
    """

    name = "tempering_smc"
    default_blocked = True
    default_tune_steps = 50  # read by PyMC >= 6; a tuning step is a stage, or idle when the target is reached
    stats_dtypes_shapes: dict[str, tuple[Any, Any]] = {  # noqa: RUF012 (an instance that keeps particles has its own)
        "tune": (bool, []),
        "warning": (SamplerWarning, None),
        **dict.fromkeys((*NUMBERS, *PATH_STATS), (np.float64, [])),
        **dict.fromkeys(("stage", "run", "path_stage", PART, PARTS), (np.int64, [])),
        **{name: (dtype, []) for name, dtype in Provenance.stats_dtypes().items()},
    }
    _state_class = TemperingSMCState

    @raises_interrupts
    def __init__(
        self,
        vars: Any = None,  # noqa: A002 (PyMC's name)
        *,
        particles: int = 1000,
        ess_threshold: float = 0.5,
        move: str = "auto",
        start: Any = None,
        decorrelation: float = 0.05,
        max_moves: int = 200,
        keep_particles: bool = False,
        **of_pymc: Any,
    ):
        unknown = sorted(set(of_pymc) - {"model", "rng", "initial_point", "compile_kwargs", "blocked"})
        if unknown:
            raise TypeError(f"TemperingSMC has no option {unknown[0]!r}; help(pac.TemperingSMC) lists its options.")
        model = pm.modelcontext(of_pymc.get("model"))
        self.vars = _all_variables(vars, model)
        self.blocked = of_pymc.get("blocked", True)
        self.rng = get_random_generator(of_pymc.get("rng"))
        self.tune = True
        self._target, problem = _target(model)
        self._constants = fitted_to(model, "TemperingSMC", problem).as_stats()
        self._score_function = read_scores(model).pieces()  # spread over the draws like the stages
        self._settings = Settings(particles, ess_threshold, move, decorrelation, max_moves, states=1)
        self._variables = flat_variables(model)
        _check_start(self._target, model, self._variables)  # also compiles: here once, not in every process
        self._path = self._target if start is None else _started(self._target, start)
        choose_move(move, self._path, particles)  # or say now that this model has no such move
        self._keep = bool(keep_particles)
        # Array-valued stats: NumPy turns a sub-array type into trailing dimensions.
        arrays: dict[str, Any] = {STAT: (np.uint8, self._score_function[0][STAT].shape)}
        if self._keep:
            arrays["path_particles"] = np.float64, (STAGES_KEPT, self._target.coefficients)
            arrays |= dict.fromkeys(("path_tilt", "path_kept_gamma"), (np.float64, (STAGES_KEPT,)))
        self.stats_dtypes_shapes = self.stats_dtypes_shapes | {k: (np.dtype(v), []) for k, v in arrays.items()}
        self.stats_dtypes = [{name: dtype for name, (dtype, _) in self.stats_dtypes_shapes.items()}]
        self._reset()

    # -- chains ------------------------------------------------------------------------------------------------------

    def set_rng(self, rng: Any) -> None:  # PyMC up to 6.2
        """Set the source of randomness; PyMC up to 6.2 calls this."""
        self.rng = get_random_generator(rng, copy=False)
        self._reset()

    def setup_chain(self, rng: Any, tune: int, draws: int) -> None:  # PyMC from 6.3
        """Set the source of randomness of a chain; PyMC from 6.3 on calls this."""
        self.set_rng(rng)

    def _reset(self) -> None:
        """Forget the last chain: PyMC runs several with one instance when there is one core."""
        self._state: State | None = None
        self._shared_stats: dict[str, Any] = {}
        self._handed_out = 0
        self._kept: list[tuple[float, FloatArray, FloatArray]] = []
        self._points: list[dict[str, np.ndarray]] = []  # of a population, and the stats of its particles
        self._particle_stats: list[dict[str, float]] = []
        self._warnings: tuple[str, ...] = ()

    # -- the run -----------------------------------------------------------------------------------------------------

    def step(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Return the next draw with its statistics; PyMC calls this."""
        try:
            found = self._next(point)
            self._handed_out += not self.tune
            return found
        except KeyboardInterrupt:
            logger.warning(self._interrupted())
            raise

    @raises_interrupts
    def _next(self, point: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        if self.tune:
            if not self._finished:
                self._run_stage()
            return point, [self._stats(None)]
        draw = self._handed_out
        if draw % self._settings.particles == 0:
            self._hand_out()
        return {**point, **self._points[draw % self._settings.particles]}, [self._stats(draw)]

    def _run_stage(self) -> None:
        if self._state is None:
            self._run_number = int(self.rng.spawn(1)[0].integers(2**52))
            self._enter(start(self._path, self._settings, self.rng))
        self._enter(advance(self._path, self._settings, self._run, self.rng))

    def _hand_out(self) -> None:
        """Prepare the population in random order, so that any number of draws is a random sample of it."""
        while not self._finished:
            self._run_stage()
        if self._handed_out:
            self._state = move_on(self._path, self._settings, self._run, self.rng)
            self._share()
        theta, risk = self._path.finish(self._run.population, self.rng)
        order = self.rng.permutation(len(theta))
        theta, risk = theta[order], risk[order]
        logp, tilt = self._target.log_density(theta, risk)
        self._points = self._variables.points(theta)
        columns = {"risk": risk, "model_logp": logp, "log_tilt": tilt}
        self._particle_stats = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _interrupted(self) -> str:
        """Say what an interruption loses."""
        if self._finished:
            return (
                f"TemperingSMC: interrupted after {self._handed_out} draws of this chain, which are valid; "
                "only those still to come are lost."
            )
        reached = 0.0 if self._state is None else self._state.temperature / self._path.end
        return (
            f"TemperingSMC: interrupted {reached:.0%} of the way to the posterior: this chain has no draws yet, and "
            "its particles, which are not from the posterior, are lost. Start again; fewer particles, or a start from "
            "a fit (start=), take less time."
        )

    @property
    def _run(self) -> State:
        """The state of a run under way."""
        assert self._state is not None
        return self._state

    @property
    def _finished(self) -> bool:
        return self._state is not None and self._state.temperature >= self._path.end

    def _enter(self, state: State) -> None:
        """Take over the state after a stage."""
        self._state = state
        self._share()
        if self._keep and not np.isnan(state.stages[-1].gamma):
            side = self.rng.spawn(1)[0]  # keeping particles must not change the draws
            theta, risk = self._path.finish(state.population, side)
            order = side.permutation(len(theta))
            _, tilt = self._target.log_density(theta, risk)
            self._kept.append((state.stages[-1].gamma, theta[order], tilt[order]))
        if self._finished:
            self._warnings = diagnose(self._path, self._settings, state)

    def _share(self) -> None:
        """Compute the stats that all draws of a population share, and those of the stages.

        The expected risk is that of all states kept; states of one parent count as one in its variance.
        """
        stages, visited = self._run.stages, self._run.visited
        last = vars(stages[-1])
        risk = np.where(np.isnan(visited.energies.risk), 0.0, visited.energies.risk)
        excess = np.bincount(visited.parent, (risk - risk.mean()) / risk.size)
        self._shared_stats = {
            **self._constants,
            "warning": None,
            "run": self._run_number,
            "stage": len(stages) - 1,
            "progress": self._run.temperature / self._path.end,
            **{name: last[name] for name in ("gamma", "log_evidence", "log_evidence_variance", "acceptance_rate")},
            "particle_ess": last["ess"],
            "expected_risk": float(risk.mean()),
            "expected_risk_variance": float(excess @ excess),
            "risk": last["expected_risk"],  # this and the following: of a tuning step
            "log_tilt": np.nan,
            "model_logp": np.nan,
        }
        self._path_stats = [
            {"path_stage": k, **{f"path_{name}": float(value) for name, value in vars(stage).items()}}
            for k, stage in enumerate(stages)
        ][::-1]

    def _stats(self, draw: int | None) -> dict[str, Any]:
        """Return the stats of a draw, or of a tuning step (None), whose record is of the stage reached."""
        place = draw or 0  # the last stage first, and round again
        stats = self._shared_stats | self._path_stats[place % len(self._path_stats)]
        stats |= self._score_function[place % len(self._score_function)]
        stats["tune"] = self.tune
        if draw is not None:
            stats |= self._particle_stats[draw % self._settings.particles]
        if draw == 0 and self._warnings:
            message = "TemperingSMC: " + " ".join(self._warnings)
            stats["warning"] = SamplerWarning(WarningType.CONVERGENCE, message, "warn")
        if self._keep:
            stats |= self._kept_stats(draw)
        return stats

    def _kept_stats(self, draw: int | None) -> dict[str, Any]:
        """Return the draw-th particle of every stage kept, at most STAGES_KEPT of them evenly spread."""
        particles = np.full((STAGES_KEPT, self._target.coefficients), np.nan)
        tilts, gammas = np.full(STAGES_KEPT, np.nan), np.full(STAGES_KEPT, np.nan)
        if draw is not None:
            chosen = np.unique(np.linspace(0, len(self._kept) - 1, STAGES_KEPT).round().astype(int))
            for slot, k in enumerate(chosen):
                gammas[slot], theta, tilt = self._kept[k]
                if draw < len(theta):
                    particles[slot], tilts[slot] = theta[draw], tilt[draw]
        return {"path_particles": particles, "path_tilt": tilts, "path_kept_gamma": gammas}

    # -- PyMC's questions --------------------------------------------------------------------------------------------

    @staticmethod
    def competence(var: Any, has_grad: bool) -> Competence:
        """Tell PyMC whether to choose this step for a variable: ideal in a model with an exact AUC term.

        PyMC asks about one variable at a time and does not pass the model. Inside ``with model:`` it is on the context
        stack; elsewhere the variables that feed an AUC risk carry a tag that lists them, and those without a gradient
        are ours.
        """
        model = pm.modelcontext(None) if pm.Model.get_context(error_if_none=False) is not None else None
        if model is not None and var in set(model.free_RVs):
            together = model.free_RVs if any(map(is_auc_risk, ancestors(model.potentials))) else []
        else:
            together = [] if has_grad else getattr(var.tag, "feed_auc_risk", [])
        ideal = together and not any(map(_has_own_step, together))
        return Competence.IDEAL if ideal else Competence.INCOMPATIBLE

    @staticmethod
    def _progressbar_config(n_chains: int = 1) -> tuple[list[Any], dict[str, list[Any]]]:
        columns = [
            TextColumn(f"{{task.fields[{name}]{form}}}", table_column=Column(title, ratio=1))
            for name, (title, form) in SHOWN.items()
        ]
        return columns, {name: [0] * n_chains for name in SHOWN}

    @staticmethod
    def _make_progressbar_update_functions() -> tuple[Any, ...]:
        handler = CarefulHandler()  # lives as long as PyMC's progress bars, shown or not: while draws are recorded

        def update(stats: dict[str, Any], handler: CarefulHandler = handler) -> dict[str, Any]:
            return {name: stats[name] for name in SHOWN}

        return (update,)


def _all_variables(chosen: Any, model: pm.Model) -> list[Any]:
    """Return the model's value variables; refuse a choice of some of them."""
    discrete = [v.name for v in model.free_RVs if v.dtype in discrete_types]
    if discrete:
        raise ValueError(
            f"TemperingSMC moves continuous variables; {', '.join(discrete)} are discrete. "
            "Marginalise them, or use a continuous prior such as pac.SpikeSlab."
        )
    without = [v.name for v in model.free_RVs if not _has_density(v)]
    if without:
        raise ValueError(
            f"TemperingSMC needs a prior with a density, and the log-density of {', '.join(without)} does not depend "
            "on its value: replace improper distributions (pm.Flat) by proper ones. Variables with a step method of "
            "their own (trees of pymc_bart) are sampled by pm.sample() without step=."
        )
    if chosen is not None:
        given = set(get_value_vars_from_user_vars(chosen, model))
        missing = [v.name for v in model.value_vars if v not in given]
        if missing:
            raise ValueError(
                "vars must be all free variables of the model, because TemperingSMC weights whole points; missing: "
                f"{', '.join(missing)}. Call pm.sample(step=pac.TemperingSMC()) inside `with model:`."
            )
    return list(model.value_vars)


def _target(model: pm.Model) -> tuple[Any, Problem | None]:
    """Return the path from the prior: on arrays where the model is linear-Gaussian, otherwise by its graph."""
    try:
        with np.errstate(all="ignore"):  # probing a model that is not may overflow
            problem = problem_of(model).problem
    except NotLinearGaussianError:
        return PyMCPath(model), None
    return (prior_path(problem) if problem.sites is None else PyMCPath(model)), problem


def _started(path: Any, start: Any) -> Any:
    """Return the path that starts from a fit."""
    from pymc_pacauc.model.nested import NestedApproximation  # ArviZ, which need not be imported with every model

    start = opened(start)
    if isinstance(start, NestedApproximation) and isinstance(path, PyMCPath):
        return path.bridge_from(start._draw(FITTED * path.dimension, np.random.default_rng(0))[0])
    return bridge_path(path, *_gaussian_of(start))


def _gaussian_of(fit: Any) -> tuple[Any, Any]:
    """Return mean and covariance of an approximation, or the pair itself."""
    if moved := getattr(getattr(fit, "source", None), "moved", ()):
        raise TypeError(
            f"start is an approximation of {', '.join(moved)}, which PyMC samples by other variables (transformed, "
            "with a point mass at zero, or with scales): it is not a Gaussian of these. Start from the prior (leave "
            "start out)."
        )
    posterior = getattr(getattr(fit, "fit", fit), "posterior", fit)  # the Gaussian as it was fitted
    if hasattr(posterior, "mean") and hasattr(posterior, "covariance"):
        return posterior.mean, posterior.covariance
    if isinstance(fit, tuple | list) and len(fit) == 2:
        return fit[0], fit[1]
    raise TypeError(
        f"start must be the result of pm.fit(method=pac.EP()), or (mean, covariance); got {type(fit).__name__}."
    )


def _has_density(variable: Variable) -> bool:
    """Return whether the log-density of a random variable depends on its value, not only on its shape."""
    value = variable.type()
    try:
        reached, left = set(), [pm.logp(variable, value)]
    except NotImplementedError:
        return False
    while left:
        each = left.pop()
        if each is value:
            return True
        if each.owner is None or each in reached or isinstance(each.owner.op, Shape | Shape_i):
            continue
        reached.add(each)
        fills = isinstance(getattr(each.owner.op, "scalar_op", None), Second)  # a constant in the shape of the first
        left += each.owner.inputs[1:] if fills else each.owner.inputs
    return False


def _has_own_step(variable: Variable) -> bool:
    """Return whether a variable has no density, but a step method of its own, as BART's trees have."""
    others = [method for method in _step_methods() if method is not TemperingSMC]
    return not _has_density(variable) and any(Competence.IDEAL in m._competence([variable], False) for m in others)


def _check_start(path: Any, model: pm.Model, variables: FlatVariables) -> None:
    """Refuse a model whose log-density is not finite at any draw from the prior, with the terms that are not."""
    rng = np.random.default_rng(0)
    try:
        x = path.draw(64, rng)
    except NotImplementedError as error:
        raise ValueError(
            "TemperingSMC starts from draws of the prior, which is improper: replace improper distributions (pm.Flat, "
            f"pm.HalfFlat) by proper ones. ({str(error).splitlines()[0]})"
        ) from error
    energies = path.evaluate(x)
    if energies.finite.any():
        return
    point = variables.points(path.finish(Population(x, energies, np.arange(len(x))), rng)[0])[0]
    bad = [f"{name} = {value}" for name, value in model.point_logps(point).items() if not np.isfinite(value)]
    raise SamplingError(
        f"The log-density is NaN or infinite at all of {len(x)} draws from the prior. Terms: {', '.join(bad)}; "
        f"at {', '.join(f'{name} = {value}' for name, value in point.items())}."
    )


def _step_methods() -> list[type[BlockedStep]]:
    """Return the list that ``pm.sample`` chooses from; in PyMC 5 other packages may have replaced it in its module."""
    return vars(pm).get("STEP_METHODS", STEP_METHODS)


if TemperingSMC not in _step_methods():
    _step_methods().append(TemperingSMC)
