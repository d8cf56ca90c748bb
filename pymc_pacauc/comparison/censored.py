"""Concordance of scores with censored times, as blocks of pairs: **a high score means an early event**.

*Harrell's C.* Observation i, whose event was observed at t_i, is compared with j if j was still followed then:
t_j > t_i, or t_j = t_i and j censored (its event, if any, is later). Two events at the same time are not compared;
equal scores count one half. 1 - risk is Harrell's C.

*Blocks.* Number the distinct times 0, 2, 4, ... An event has this number r_i, and an observation ends at r_j, or at
r_j + 1 if it was censored: i is compared with j if the first number is below the second one, a staircase
(:func:`pymc_pacauc.comparison.pairs.staircase`). So are entry times and competing risks, below.

*Inverse censoring weights* (Uno et al.). Harrell's C depends on the distribution of censoring. Weighting every event at
time t by 1 / G(t)^2, G(t) = P(censored after t), estimates P(score_i > score_j | t_i < t_j, t_i < tau) instead, if
censoring is independent of times and scores. G is the Kaplan-Meier estimate with event and censoring exchanged; an
event and a censoring at the same time count as event first. With strata, every stratum has its own G, so that
independence within strata is enough (R's ``survival::concordance`` does the same); strata of a few observations are too
small for it.

*Entry times* (left truncation). An observation that entered at ``entry_j``, and would not have been observed with an
event before, was at risk at t_i if entry_j < t_i: other pairs are left out, of each block by a staircase in -t_i and
-entry_j.

*Competing risks* (Wolbers et al.). An observation with an event of another cause will never have the event of interest,
so it is compared with every event of the cause, earlier or later: a second set of blocks, for competing events up to
t_i. Only code 0 is censoring. With weights, pairs still at risk have 1 / (G(t_i-) G(t_i)), pairs with a competing event
1 / (G(t_i-) G(t_j-)), G(t-) = P(not censored before t).

*Horizon* (Hung & Chiang; Blanche et al.). The cumulative/dynamic AUC(t) compares events of the cause until t with
observations free of it at t: those followed longer than t, and competing events until t. Observations censored until t
are in no pair; weights compensate for them: 1 / G(t_i) for events, 1 / G(t) for those followed longer, 1 / G(t_j-) for
competing events. With several horizons the risk is their mean.

References: Harrell et al. (1982), doi:10.1001/jama.1982.03320430047030; Uno et al. (2011), doi:10.1002/sim.4154;
Wolbers et al. (2014), doi:10.1093/biostatistics/kxt059; Hung & Chiang (2010), doi:10.1002/cjs.10046; Blanche, Dartigues
& Jacqmin-Gadda (2013), doi:10.1002/sim.5958.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy  # scipy.stats, a second to import, at its first use
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from pymc_pacauc.comparison.kinds import members_of, observation_weights
from pymc_pacauc.comparison.pairs import Block, Pairs, label_codes, staircase
from pymc_pacauc.comparison.risk import checked_risk
from pymc_pacauc.numerics import FloatArray, check_whole, number_vector, tails


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """Estimate of survival from each distinct ``time`` on.

    ``log_variance`` is Greenwood's variance of log ``survival``; infinite where survival is 0.
    """

    time: FloatArray
    survival: FloatArray
    log_variance: FloatArray

    def interval(self, ci_prob: float) -> tuple[FloatArray, FloatArray]:
        """Compute a pointwise interval, symmetric on the scale of log(-log S), so that it is within (0, 1).

        Before the first event it is 1 to 1; where survival is 0 it is NaN, because the formula is not defined.
        """
        z = ndtri(tails(ci_prob)[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(self.survival)
            half = z * np.sqrt(self.log_variance) / -log
            lower, upper = np.exp(log * np.exp(half)), np.exp(log * np.exp(-half))
        none_yet = self.survival == 1.0
        return np.where(none_yet, 1.0, lower), np.where(none_yet, 1.0, upper)


def survival_curve(time: FloatArray, event: NDArray[Any], cause: int = 1) -> SurvivalCurve:
    """Estimate the share without an event of the cause after each distinct time.

    The Kaplan-Meier estimate; with events of other causes, one minus the Aalen-Johansen cumulative incidence. The
    variance is that of the delta method (Marubini and Valsecchi, 1995), for one cause Greenwood's.

    Examples
    --------
    >>> survival_curve(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])).survival
    array([0.75, 0.5 , 0.  ])
    >>> survival_curve(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1, 2, 0, 1])).survival
    array([0.75, 0.75, 0.25])
    """
    at, place = np.unique(time, return_inverse=True)
    events, leaving, mine = (np.bincount(place, each) for each in (event != 0, np.ones(time.size), event == cause))
    at_risk = time.size - np.concatenate([[0.0], np.cumsum(leaving)[:-1]])
    share, free = np.zeros(at.size), np.cumprod((at_risk - events) / at_risk)
    with np.errstate(divide="ignore"):
        np.divide(events, at_risk * (at_risk - events), out=share, where=events > 0)
    if (mine == events).all():
        return SurvivalCurve(at, free, np.cumsum(share))
    before = np.concatenate([[1.0], free[:-1]])  # share free of any event just before each time
    incidence = np.cumsum(before * mine / at_risk)
    share[~np.isfinite(share)] = 0.0  # infinite at the last time if it is an event: no later increment uses it
    own, both = before**2 * mine * (at_risk - mine) / at_risk**3, before * mine / at_risk**2
    sums = [np.cumsum(each) for each in (share, incidence * share, incidence**2 * share, own, both, incidence * both)]
    variance = incidence**2 * sums[0] - 2 * incidence * sums[1] + sums[2] + sums[3]
    variance -= 2 * (incidence * sums[4] - sums[5])
    with np.errstate(divide="ignore", invalid="ignore"):
        return SurvivalCurve(at, 1.0 - incidence, np.maximum(variance, 0.0) / (1.0 - incidence) ** 2)


# Smallest share G still followed: below it a handful of events decide Uno's C, and one may weigh as much as 10 000
# others, which is refused. Doubled, so are times at which up to 2 % are followed.
LEAST_FOLLOWED = 0.01


@np.errstate(under="ignore")  # SciPy looks up the number next to 0
def censoring_survival(
    time: FloatArray, event: NDArray[np.bool_], *, at: FloatArray | None = None, before: bool = False
) -> FloatArray:
    """Estimate P(C > t), or with ``before`` P(C >= t), of the censoring time C by Kaplan-Meier, at ``time`` or ``at``.

    Examples
    --------
    >>> time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])
    >>> censoring_survival(time, event)
    array([1. , 0.5, 0.5, 0.5])
    >>> censoring_survival(time, event, before=True)
    array([1. , 1. , 1. , 0.5])
    """
    distinct, place = np.unique(time, return_inverse=True)
    ranks = scipy.stats.CensoredData.right_censored(2 * place + ~event, event)  # at equal times events are first
    passed = np.searchsorted(distinct, time if at is None else at, "left" if before else "right")
    return np.asarray(scipy.stats.ecdf(ranks).sf.evaluate(2 * passed - 1))


def _check_followed(time: FloatArray, survival: FloatArray, used: NDArray[np.bool_], option: str) -> None:
    """Refuse weights of events ``used`` at times where the censoring survival is below ``LEAST_FOLLOWED``."""
    lost = used & (survival < LEAST_FOLLOWED)
    if lost.any():
        first = f"{time[lost].min():g}"
        raise ValueError(
            f"weights: inverse censoring weights explode for {int(lost.sum())} event(s) from time {first} on, when "
            f"less than {LEAST_FOLLOWED:.0%} are followed. Compare earlier events only, for example {option}={first}."
        )


def concordance_risk(
    scores: ArrayLike,
    time: ArrayLike,
    event: ArrayLike,
    *,
    strata: ArrayLike | None = None,
    weights: ArrayLike | str | None = None,
    tau: float | None = None,
    cause: int = 1,
    horizon: ArrayLike | None = None,
    entry: ArrayLike | None = None,
    ties: str = "half",
) -> Any:
    """Compute the exact risk ``1 - C`` of each score vector ``scores[..., n]``, C the concordance with censored times.

    A high score means an early event.

    Parameters
    ----------
    scores : array_like, shape (..., n)
        One score per observation, any number of leading batch dimensions.
    time : array_like, shape (n,)
        When each observation had its event or was last seen, at least 0.
    event : array_like, shape (n,)
        Whether it was an event: booleans, or 0 (censored) and 1; or the cause of the event, 0 where it was censored.
    strata : array_like, shape (n,), default None
        Compare within these groups only.
    weights : array_like, shape (n,), or "ipcw", default None
        None for Harrell's C; ``"ipcw"`` for Uno's, in which inverse probabilities of censoring, estimated within each
        stratum, compensate for censoring; or one positive number per observation: a pair has their product as weight.
    tau : float, default None
        Compare events before this time only.
    cause : int, default 1
        The code in ``event`` of the events of interest. Those of other causes count as never having it (Wolbers' C).
    horizon : float or array_like, default None
        Compute the cumulative/dynamic AUC at this time instead: events until then against those free of it then, with
        inverse probabilities of censoring as weights; for several horizons, their mean.
    entry : array_like, shape (n,), default None
        When each observation came under observation, before its ``time``, where that was later than time 0: it is
        compared with later events only. For Harrell's and Wolbers' C.
    ties : {"half", "strict"}, default "half"
        What tied scores cost, as in :func:`~pymc_pacauc.empirical_risk`.

    Returns
    -------
    ndarray, shape (...)
        The risk of each score vector.

    Raises
    ------
    ValueError
        If no pair can be compared, an argument is out of its range, or inverse censoring weights explode.

    See Also
    --------
    empirical_risk : The same for classes.
    ConcordancePotential : The same risk in a PyMC model.
    ConcordanceEstimator : Fit a linear risk score to censored times.

    References
    ----------
    F. E. Harrell et al. (1982), Evaluating the yield of medical tests, JAMA 247(18),
    doi:10.1001/jama.1982.03320430047030.

    H. Uno et al. (2011), On the C-statistics for evaluating overall adequacy of risk prediction procedures with
    censored survival data, Statistics in Medicine 30(10), doi:10.1002/sim.4154.

    Examples
    --------
    >>> float(concordance_risk([0.9, 0.4, 0.7], time=[1.0, 2.0, 3.0], event=[True, True, False]).round(4))
    0.3333

    The third died of something else, and so counts as free of the event at any time:

    >>> float(concordance_risk([0.9, 0.4, 0.7], time=[1.0, 3.0, 2.0], event=[1, 1, 2]).round(4))
    0.3333

    Who has the event within 2 years?

    >>> float(concordance_risk([0.9, 0.4, 0.7], time=[1.0, 2.0, 3.0], event=[1, 1, 0], horizon=2.0))
    0.5
    """
    options: dict[str, Any] = {"weights": weights, "tau": tau, "cause": cause, "horizon": horizon, "entry": entry}
    return checked_risk(scores, concordance(time, event, strata=strata, **options), ties, "time")


def concordance(
    time: ArrayLike,
    event: ArrayLike,
    *,
    strata: ArrayLike | None = None,
    weights: ArrayLike | str | None = None,
    tau: float | None = None,
    cause: int = 1,
    horizon: ArrayLike | None = None,
    entry: ArrayLike | None = None,
) -> Pairs:
    """Find the pairs of observations that censored times can compare: those of :func:`concordance_risk`.

    A pair is comparable only if the earlier time is an event.

    Parameters
    ----------
    time : array_like, shape (n,)
        When each observation had its event or was last seen, at least 0.
    event : array_like, shape (n,)
        Whether it was an event: booleans, or 0 (censored) and 1; or the cause of the event, 0 where it was censored.
    strata : array_like, shape (n,), optional
        Compare within these groups only.
    weights : array_like, shape (n,), or "ipcw", optional
        None for Harrell's C, ``"ipcw"`` for Uno's, or one positive number per observation.
    tau : float, optional
        Compare events before this time only.
    cause : int, default 1
        The code in ``event`` of the events of interest.
    horizon : float or array_like, optional
        Compare events until this time with those free of it then.
    entry : array_like, shape (n,), optional
        When each observation came under observation, as in :func:`concordance_risk`.

    Returns
    -------
    Pairs
        The pairs with their weights; the first observation of a pair should score higher.

    Raises
    ------
    ValueError
        If there is nothing to compare, an argument has no meaning, or inverse censoring weights explode.

    See Also
    --------
    concordance_risk : The share of these pairs that scores get wrong.
    bipartite : The pairs of two classes.

    Examples
    --------
    >>> concordance([1.0, 2.0, 3.0, 4.0], [True, False, True, True]).n_pairs
    4
    """
    times = number_vector("time", time, "a finite time >= 0 per observation")
    if (times < 0.0).any():
        raise ValueError(f"time has {int((times < 0.0).sum())} negative value(s): a time is at least 0.")
    codes = event_codes(event, times.size)
    _check_cause(cause, codes)
    if isinstance(weights, str) and weights != "ipcw":
        raise ValueError(f'weights must be None, "ipcw" or one number per observation; got {weights!r}.')
    entered = None if entry is None else _check_entry(entry, times)
    if entered is not None and (horizon is not None or isinstance(weights, str)):
        raise ValueError("entry is for Harrell's and Wolbers' C: leave weights=\"ipcw\" and horizon out.")
    members = [np.arange(times.size)] if strata is None else members_of(label_codes("strata", strata, times.size))
    if horizon is not None:
        if tau is not None:
            raise ValueError("tau and horizon exclude each other: events after the horizon are not used anyway.")
        pairs = _at_horizons(times, codes, cause, members, _check_horizon(horizon))
    else:
        pairs = _over_time(times, codes, cause, members, tau, ipcw=isinstance(weights, str))
    if entered is not None:
        pairs = replace(pairs, blocks=tuple(part for b in pairs.blocks for part in staircase(b, -times, -entered)))
        if not pairs.blocks:
            raise ValueError("entry leaves no pair to compare: nobody had entered before another observation's event.")
    if weights is None or isinstance(weights, str):
        return pairs
    return pairs.times(observation_weights(weights, times.size))


def _check_entry(entry: ArrayLike, time: FloatArray) -> FloatArray:
    entered = number_vector("entry", entry, "a finite time per observation")
    if entered.shape != time.shape:
        raise ValueError(f"entry must have shape {time.shape}, one per time; got {entered.shape}.")
    late = int((entered >= time).sum())
    if late:
        raise ValueError(f"entry must be before time; for {late} of {time.size} observation(s) it is not.")
    return entered


def _over_time(
    time: FloatArray, codes: NDArray[np.intp], cause: int, members: list[NDArray[np.intp]], tau: Any, *, ipcw: bool
) -> Pairs:
    """Return Harrell's, Uno's or Wolbers' pairs within each of the strata ``members``."""
    events, competing = codes != 0, (codes != 0) & (codes != cause)
    used = codes == cause if tau is None else (codes == cause) & (time < _check_time("tau", tau))
    if not used.any():
        first = time[codes == cause].min()
        raise ValueError(f"tau={tau:g} leaves no event: the first of cause {cause} is at time {first:g}.")
    rank = 2 * np.unique(time, return_inverse=True)[1]
    blocks: list[Block] = []
    skipped = 0
    for part in members:
        mine, others = part[used[part]], part[competing[part]]
        weights: list[FloatArray | None] = [None] * 3
        if ipcw:
            followed = partial(censoring_survival, time[part], events[part])
            after, before = followed(at=time[mine]), followed(at=time[mine], before=True)
            with np.errstate(divide="ignore"):  # events in no pair may have an infinite weight
                at_risk = 1.0 / (after * (before if competing.any() else after))
            weights = [at_risk, 1.0 / before, 1.0 / followed(at=time[others], before=True)]
        found = [
            *staircase(Block(mine, part, weights[0]), rank, rank + ~events),
            *staircase(Block(mine, others, weights[1], weights[2]), -rank - 1, -rank),
        ]
        if ipcw and found:
            compared = np.isin(mine, np.concatenate([block.positive for block in found]))
            _check_followed(time[mine], after, compared, "tau")
        skipped += not found
        blocks += found
    if not blocks:
        raise ValueError("time and event leave no pair to compare: nobody is followed beyond an event.")
    return Pairs(time.size, tuple(blocks), "censored times", skipped_strata=skipped, estimated_weights=ipcw)


def _at_horizons(
    time: FloatArray, codes: NDArray[np.intp], cause: int, members: list[NDArray[np.intp]], horizons: FloatArray
) -> Pairs:
    """Return the pairs of cumulative/dynamic AUCs; each horizon has the same total weight."""
    blocks: list[Block] = []
    skipped: set[int] = set(range(len(members)))
    for horizon in horizons:
        here = []
        for k, part in enumerate(members):
            t, code = time[part], codes[part]
            case, other = (code == cause) & (t <= horizon), (code != cause) & (code != 0) & (t <= horizon)
            control = (t > horizon) | other
            if not (case.any() and control.any()):
                continue
            after = censoring_survival(t, code != 0)
            _check_followed(t, after, case, "horizon")
            followed = censoring_survival(t, code != 0, at=np.array([horizon]))[0]
            if followed < LEAST_FOLLOWED:
                raise ValueError(
                    f"horizon={horizon:g} is too late: less than {LEAST_FOLLOWED:.0%} would be followed until then; "
                    f"times go to {t.max():g}."
                )
            before = np.where(other, censoring_survival(t, code != 0, before=True), followed)
            block = Block(part[case], part[control], 1.0 / after[case], 1.0 / before[control])
            here.append(block)
            skipped.discard(k)
        if not here:
            raise ValueError(
                f"Nothing can be compared at horizon={horizon:g}: it needs events of cause {cause} until then, and "
                f"observations free of it then; times go from {time.min():g} to {time.max():g}."
            )
        total = sum(block.total_weight for block in here)
        blocks += [replace(block, weight=block.weight / total) for block in here]
    return Pairs(time.size, tuple(blocks), "censored times", skipped_strata=len(skipped), estimated_weights=True)


def event_codes(event: ArrayLike, n: int) -> NDArray[np.intp]:
    """Return the cause of each event, 0 for censored: from booleans, or from whole numbers >= 0; shape (n,)."""
    given = np.asarray(event)
    if given.shape != (n,):
        raise ValueError(f"event must have shape ({n},), one per time; got {given.shape}.")
    if given.dtype != bool:
        values = number_vector("event", event, "0 where it was censored, 1 (or True) where the event was seen")
        wrong = values[(values < 0.0) | (values % 1.0 != 0.0)]
        if wrong.size:
            raise ValueError(f"event must be boolean, or 0 (censored) and whole numbers for causes; got {wrong[0]:g}.")
        given = values
    return given.astype(np.intp)


def _check_cause(cause: Any, codes: NDArray[np.intp]) -> None:
    if not (codes == check_whole("cause", cause, what="a code of event, a whole number")).any():
        seen = ", ".join(map(str, np.unique(codes[codes > 0])[:5]))
        if seen:
            raise ValueError(f"cause={cause} does not occur in event, which has the codes {seen}.")
        raise ValueError(f"event has no event: all {codes.size} observations are censored (0).")


def _check_time(name: str, value: Any) -> float:
    if not (np.ndim(value) == 0 and isinstance(value, int | float | np.number) and 0.0 < value < np.inf):
        raise ValueError(f"{name} must be one finite time > 0; got {value!r}.")
    return float(value)


def _check_horizon(horizon: ArrayLike) -> FloatArray:
    values = np.atleast_1d(np.asarray(horizon))
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"horizon must be a time or a list of times; got {horizon!r}.")
    return np.array([_check_time("horizon", value) for value in np.unique(values)])
