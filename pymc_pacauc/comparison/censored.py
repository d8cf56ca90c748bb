"""Concordance of scores with censored times: **a high score means an early event**.

Observation i, whose event was seen at t_i, is compared with j when j was still followed then: t_j > t_i, or t_j = t_i
and j censored (its event, if any, comes later). Two events at one time are not compared; equal scores count one half.
These are Harrell's rules, and 1 - risk is his C.

*A staircase in blocks.* Sort by time. The pairs across the middle are {events of the earlier half} x {later half}, a
complete bipartite block (or two, where the middle falls within tied times); those within each half are found in the
same way. An observation is in one block for every halving, so n log n indices hold all of the up to n^2 / 2 pairs.

*Weights that undo censoring* (Uno, Cai, Pencina, D'Agostino and Wei, 2011). Harrell's C depends on who was censored
when. Weighting every event at time t by 1 / G(t)^2, G(t) = P(censored after t), estimates
P(score_i > score_j | t_i < t_j, t_i < tau) instead, if censoring is independent of times and scores. G is Kaplan and
Meier's estimate with the roles of event and censoring exchanged; of an event and a censoring at one time, the event
came first. With strata, every stratum has a G of its own: pairs are within strata, so independence within strata is
then enough. (R's ``survival::concordance`` does the same.) It needs strata with more than a handful of observations.

*Entry times.* Who came under observation at ``entry_j`` only, and would not have been seen had its event come before,
was at risk at t_i if entry_j < t_i: pairs without that are left out (left truncation). They are a staircase again,
within each block, of the events by time and the others by entry.

*Competing risks* (Wolbers, Blanche, Koller, Witteman and Gerds, 2014). Who has an event of another cause will never
have the one of interest, so it is compared with every event of the cause, earlier or later: a second staircase, of the
competing events up to t_i. Only code 0 is censoring. With weights, pairs still at risk weigh 1 / (G(t_i-) G(t_i)),
those with a competing event 1 / (G(t_i-) G(t_j-)), G(t-) = P(not censored before t).

*A horizon* (Hung and Chiang, 2010; Blanche, Dartigues and Jacqmin-Gadda, 2013). Cumulative/dynamic AUC(t): events of
the cause until t against those free of it at t, which are those followed longer than t and the competing events until
t. Whoever was censored until t is in no pair; the others stand for them with weights 1 / G(t_i) for the events,
1 / G(t) for those followed longer and 1 / G(t_j-) for the competing events. Of several horizons the risk is the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from pymc_pacauc.comparison.kinds import members_of, observation_weights, strata_codes
from pymc_pacauc.comparison.pairs import Block, Pairs
from pymc_pacauc.comparison.risk import checked_risk
from pymc_pacauc.numerics import FloatArray, number_vector


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """The estimate at each distinct ``time``, from which on it holds, with the ``at_risk`` of that time.

    ``log_variance`` is Greenwood's variance of log ``survival``; infinite where nobody is left.
    """

    time: FloatArray
    survival: FloatArray
    at_risk: FloatArray
    log_variance: FloatArray

    def interval(self, ci_prob: float) -> tuple[FloatArray, FloatArray]:
        """Pointwise, symmetric on the scale of log(-log S), so that it stays within (0, 1).

        Before the first event it is 1 to 1, where nobody is left NaN: this formula has nothing to say there.
        """
        if not 0.0 < ci_prob < 1.0:
            raise ValueError(f"ci_prob must lie strictly between 0 and 1; got {ci_prob!r}.")
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(self.survival)
            half = ndtri(0.5 + 0.5 * ci_prob) * np.sqrt(self.log_variance) / -log
            lower, upper = np.exp(log * np.exp(half)), np.exp(log * np.exp(-half))
        none_yet = self.survival == 1.0
        return np.where(none_yet, 1.0, lower), np.where(none_yet, 1.0, upper)


def survival_curve(time: FloatArray, event: NDArray[Any], cause: int = 1) -> SurvivalCurve:
    """Share without an event of the cause after each of the distinct times.

    Kaplan and Meier's estimate; with events of other causes one minus Aalen and Johansen's cumulative incidence, with
    the delta method's variance (Marubini and Valsecchi, 1995), of which Greenwood's is the case of one cause.

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
    share, free = np.zeros(at.size), product_limit(at_risk, events)
    with np.errstate(divide="ignore"):
        np.divide(events, at_risk * (at_risk - events), out=share, where=events > 0)
    if (mine == events).all():
        return SurvivalCurve(at, free, at_risk, np.cumsum(share))
    before = np.concatenate([[1.0], free[:-1]])  # free of any event just before each time
    incidence = np.cumsum(before * mine / at_risk)
    share[~np.isfinite(share)] = 0.0  # the last event of all: what it adds is multiplied by nothing that comes later
    own, both = before**2 * mine * (at_risk - mine) / at_risk**3, before * mine / at_risk**2
    sums = [np.cumsum(each) for each in (share, incidence * share, incidence**2 * share, own, both, incidence * both)]
    variance = incidence**2 * sums[0] - 2 * incidence * sums[1] + sums[2] + sums[3]
    variance -= 2 * (incidence * sums[4] - sums[5])
    with np.errstate(divide="ignore", invalid="ignore"):
        return SurvivalCurve(at, 1.0 - incidence, at_risk, np.maximum(variance, 0.0) / (1.0 - incidence) ** 2)


def product_limit(at_risk: NDArray[Any], leaving: NDArray[Any]) -> FloatArray:
    """Running product of 1 - leaving / at_risk; a time at which nobody is at risk changes nothing."""
    step = np.ones(at_risk.size)
    np.divide(at_risk - leaving, at_risk, out=step, where=at_risk > 0)
    return np.asarray(np.cumprod(step))


LEAST_FOLLOWED = 0.01  # the smallest G: what Uno's C says of later times rests on a handful of events


def censoring_survival(
    time: FloatArray, event: NDArray[np.bool_], *, at: FloatArray | None = None, before: bool = False
) -> FloatArray:
    """Kaplan and Meier's estimate of P(C > t), or ``before`` of P(C >= t), at each of the times, or ``at`` others.

    Examples
    --------
    >>> time, event = np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])
    >>> censoring_survival(time, event)
    array([1. , 0.5, 0.5, 0.5])
    >>> censoring_survival(time, event, before=True)
    array([1. , 1. , 1. , 0.5])
    """
    distinct, place = np.unique(time, return_inverse=True)
    events, censored = np.bincount(place, event), np.bincount(place, ~event)
    at_risk = time.size - np.concatenate([[0], np.cumsum(events + censored)[:-1]]) - events
    survival = np.concatenate([[1.0], product_limit(at_risk, censored)])
    found: FloatArray = survival[np.searchsorted(distinct, time if at is None else at, "left" if before else "right")]
    return found


def _check_followed(time: FloatArray, survival: FloatArray, used: NDArray[np.bool_], option: str) -> None:
    """Refuse weights that explode: events ``used`` beyond which hardly anyone would be followed."""
    lost = used & (survival < LEAST_FOLLOWED)
    if lost.any():
        raise ValueError(
            f"Inverse censoring weights explode for {int(lost.sum())} event(s) from time {time[lost].min():g} on: less "
            f"than {LEAST_FOLLOWED:.0%} would be followed longer than that, so that one event weighs as much as "
            f"{LEAST_FOLLOWED**-2:g} or more others. Compare earlier events only, for example "
            f"{option}={time[lost].min():g}."
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
        stratum, make up for those lost; or one positive number per observation, a pair weighing their product.
    tau : float, default None
        Compare events before this time only.
    cause : int, default 1
        The code in ``event`` of the events of interest. Those of other causes count as never having it (Wolbers' C).
    horizon : float or array_like, default None
        Judge by the cumulative/dynamic AUC at this time instead: events until then against those free of it then, with
        inverse probabilities of censoring as weights. Of several horizons the mean.
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
        Where there is nothing to compare, an argument has no meaning, or inverse censoring weights explode.

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
    options: dict[str, Any] = {"strata": strata, "weights": weights, "tau": tau, "cause": cause}
    return checked_risk(scores, concordance(time, event, **options, horizon=horizon, entry=entry), ties, "time")


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
        raise ValueError("entry goes with Harrell's and Wolbers' C: leave weights=\"ipcw\" and horizon away.")
    groups = None if strata is None else strata_codes(strata, times.size)
    members = [np.arange(times.size)] if groups is None else members_of(groups)
    if horizon is not None:
        if tau is not None:
            raise ValueError("tau and horizon exclude each other: a horizon looks at no later event anyway.")
        pairs = _at_horizons(times, codes, cause, members, _check_horizon(horizon))
    else:
        pairs = _staircases(times, codes, cause, members, tau, ipcw=isinstance(weights, str))
    if entered is not None:
        pairs = replace(pairs, blocks=tuple(part for b in pairs.blocks for part in _entered(b, times, entered)))
        if not pairs.blocks:
            raise ValueError("No two observations can be compared: nobody had entered before another one's event.")
    if weights is None or isinstance(weights, str):
        return pairs
    return pairs.times(observation_weights(weights, times.size))


def _check_entry(entry: ArrayLike, time: FloatArray) -> FloatArray:
    entered = number_vector("entry", entry, "a finite time per observation")
    if entered.shape != time.shape:
        raise ValueError(f"entry must have shape {time.shape}, one per time; got {entered.shape}.")
    late = int((entered >= time).sum())
    if late:
        raise ValueError(f"entry must be before time; for {late} observation(s) it is not.")
    return entered


def _entered(block: Block, time: FloatArray, entry: FloatArray) -> Iterator[Block]:
    """Blocks of the pairs of a block whose lower one had entered before the event of the higher one.

    Who had entered before the earliest of some events is compared with all of these, the others with halves of them.
    """
    segments = [(block.positive[np.argsort(time[block.positive], kind="stable")], block.negative)]
    while segments:
        events, others = segments.pop()
        early = entry[others] < time[events[0]]
        if early.any():
            yield Block(events, others[early])
        others, half = others[~early], events.size // 2
        if others.size and half:
            segments += [(events[half:], others), (events[:half], others)]


def _staircases(
    time: FloatArray, codes: NDArray[np.intp], cause: int, members: list[NDArray[np.intp]], tau: Any, *, ipcw: bool
) -> Pairs:
    """Harrell's, Uno's and Wolbers' pairs, within each of the ``members``."""
    events, competing = codes != 0, (codes != 0) & (codes != cause)
    used = codes == cause if tau is None else (codes == cause) & (time < _check_time("tau", tau))
    if not used.any():
        raise ValueError(f"There is no event before tau={tau:g}: nothing can be compared.")
    blocks: list[Block] = []
    skipped = 0
    for part in members:
        found = list(_blocks(part, time[part], events[part], used[part]))
        either = part[used[part] | competing[part]]
        others = list(_blocks(either, -time[either], used[either], used[either], competing[either]))
        skipped += not (found or others)
        if ipcw and (found or others):
            found, others = _undo_censoring(part, time, events, found, others, bool(competing.any()))
        blocks += found + others
    if not blocks:
        raise ValueError("No two observations can be compared: nobody is followed beyond an event.")
    return Pairs(time.size, tuple(blocks), "censored times", skipped_strata=skipped, estimated_weights=ipcw)


def _undo_censoring(
    part: NDArray[np.intp],
    time: FloatArray,
    events: NDArray[np.bool_],
    found: list[Block],
    others: list[Block],
    causes: bool,
) -> tuple[list[Block], list[Block]]:
    """Inverse probabilities of censoring for pairs at risk (``found``) and with competing events (``others``)."""
    after, before = np.ones(time.size), np.ones(time.size)
    after[part] = censoring_survival(time[part], events[part])
    before[part] = censoring_survival(time[part], events[part], before=True)
    compared = np.zeros(time.size, dtype=bool)
    for block in found + others:
        compared[block.positive] = True  # an event that nobody is followed beyond is in no pair
    _check_followed(time, after, compared, "tau")
    at_risk = np.zeros(time.size)
    at_risk[compared] = 1.0 / (after[compared] * (before if causes else after)[compared])
    return (
        [replace(b, positive_weights=at_risk[b.positive]) for b in found],
        [replace(b, positive_weights=1 / before[b.positive], negative_weights=1 / before[b.negative]) for b in others],
    )


def _at_horizons(
    time: FloatArray, codes: NDArray[np.intp], cause: int, members: list[NDArray[np.intp]], horizons: FloatArray
) -> Pairs:
    """The pairs of cumulative/dynamic AUCs, each horizon weighing the same."""
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
    """The cause of each event, 0 where there was none: from booleans, or from whole numbers >= 0."""
    given = np.asarray(event)
    if given.shape != (n,):
        raise ValueError(f"event must have shape ({n},), one per time; got {given.shape}.")
    if given.dtype != bool:
        values = number_vector("event", event, "0 where it was censored, 1 (or True) where the event was seen")
        if ((values < 0.0) | (values % 1.0 != 0.0)).any():
            raise ValueError(
                "event must be boolean, or 0 (censored) and 1 (event), or the code of each event's cause, a whole "
                f"number > 0; got {values[(values < 0.0) | (values % 1.0 != 0.0)][0]:g}."
            )
        given = values
    return given.astype(np.intp)


def _check_cause(cause: Any, codes: NDArray[np.intp]) -> None:
    if not (np.ndim(cause) == 0 and isinstance(cause, int | np.integer) and cause > 0):
        raise ValueError(f"cause must be a code of event, a whole number > 0; got {cause!r}.")
    if not (codes == cause).any():
        seen = ", ".join(map(str, np.unique(codes[codes > 0])[:5]))
        if seen:
            raise ValueError(f"There is no event of cause={cause}: event has the codes {seen}.")
        raise ValueError(f"There is no event: all {codes.size} observations are censored (event=0).")


def _check_time(name: str, value: Any) -> float:
    if not (np.ndim(value) == 0 and isinstance(value, int | float | np.number) and 0.0 < value < np.inf):
        raise ValueError(f"{name} must be one finite time > 0; got {value!r}.")
    return float(value)


def _check_horizon(horizon: ArrayLike) -> FloatArray:
    values = np.atleast_1d(np.asarray(horizon))
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"horizon must be a time or a list of times; got {horizon!r}.")
    return np.array([_check_time("horizon", value) for value in np.unique(values)])


def _blocks(
    members: NDArray[np.intp],
    time: FloatArray,
    event: NDArray[np.bool_],
    used: NDArray[np.bool_],
    lower: NDArray[np.bool_] | None = None,
) -> Iterator[Block]:
    """Blocks of the pairs among ``members``: events that are ``used``, against later ones (of those in ``lower``)."""
    order = np.lexsort((~event, time))  # at one time, events before those censored
    index, t, e, u = members[order], time[order], event[order], used[order]
    allowed = np.ones(t.size, dtype=bool) if lower is None else lower[order]
    segments = [(0, t.size)]
    while segments:
        low, high = segments.pop()
        middle = (low + high) // 2
        if high - low < 2 or not u[low : high - 1].any():
            continue
        segments += [(middle, high), (low, middle)]
        start = low + int(np.searchsorted(t[low:middle], t[middle]))  # from here on tied with the first of the later
        later = allowed[middle:high]
        for some, after in (
            (low + np.flatnonzero(u[low:start]), later),
            (start + np.flatnonzero(u[start:middle]), later & ((t[middle:high] > t[middle]) | ~e[middle:high])),
        ):
            if some.size and after.any():
                yield Block(index[some], index[middle:high][after])
