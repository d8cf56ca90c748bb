"""Kaplan and Meier's product-limit estimate: the share without an event, from times some of which are censored.

Among those still followed at an event time, the share that has its event then is known whoever was censored before;
one minus these shares, multiplied up, is the estimate. Of an event and a censoring at one time the event came first.

Weights that undo censoring (Uno, Cai, Pencina, D'Agostino and Wei, 2011).

Harrell's concordance compares an event with whoever is still followed then, and so estimates a quantity that depends
on the censoring. Weighting every event at time t by 1 / G(t)^2, G(t) = P(censored after t), estimates
P(score_i > score_j | t_i < t_j, t_i < tau) instead, if censoring is independent of times and scores. G is estimated by
Kaplan and Meier with the roles of event and censoring exchanged; of an event and a censoring at one time, the event
came first.

With strata, every stratum has a G of its own. Pairs are within strata, so independence within strata is then enough:
hospitals may follow their patients for different times. (R's ``survival::concordance`` does the same; scikit-survival
and lifelines have no Uno's C with strata.) It needs strata with more than a handful of observations; for many small
ones, say matched pairs, compare by Harrell's C.

Concordance of scores with censored times: **a high score means an early event**.

Observation i, whose event was seen at t_i, is compared with j when j was still followed then: t_j > t_i, or t_j = t_i
and j censored (its event, if any, comes later). Two events at one time are not compared; equal scores count one half.
These are Harrell's rules, and 1 - risk is his C.

*A staircase in blocks.* Sort by time. The pairs across the middle are {events of the earlier half} x {later half}, a
complete bipartite block (or two, where the middle falls within tied times); those within each half are found in the
same way. An observation is in one block for every halving, so n log n indices hold all of the up to n^2 / 2 pairs.
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


def survival_curve(time: FloatArray, event: NDArray[np.bool_]) -> SurvivalCurve:
    """Share without event after each of the distinct times.

    Examples
    --------
    >>> survival_curve(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True])).survival
    array([0.75, 0.5 , 0.  ])
    """
    at, place = np.unique(time, return_inverse=True)
    events, leaving = np.bincount(place, event), np.bincount(place)
    at_risk = time.size - np.concatenate([[0.0], np.cumsum(leaving)[:-1]])
    share = np.zeros(at.size)
    with np.errstate(divide="ignore"):
        np.divide(events, at_risk * (at_risk - events), out=share, where=events > 0)
    return SurvivalCurve(at, product_limit(at_risk, events), at_risk, np.cumsum(share))


def product_limit(at_risk: NDArray[Any], leaving: NDArray[Any]) -> FloatArray:
    """Running product of 1 - leaving / at_risk; a time at which nobody is at risk changes nothing."""
    step = np.ones(at_risk.size)
    np.divide(at_risk - leaving, at_risk, out=step, where=at_risk > 0)
    return np.asarray(np.cumprod(step))


LEAST_FOLLOWED = 0.01  # the smallest G: what Uno's C says of later times rests on a handful of events


def censoring_survival(time: FloatArray, event: NDArray[np.bool_]) -> FloatArray:
    """Kaplan and Meier's estimate of P(C > t) at each of the times given.

    Examples
    --------
    >>> censoring_survival(np.array([1.0, 2.0, 2.0, 3.0]), np.array([True, True, False, True]))
    array([1. , 0.5, 0.5, 0.5])
    """
    _, place = np.unique(time, return_inverse=True)
    events, censored = np.bincount(place, event), np.bincount(place, ~event)
    at_risk = time.size - np.concatenate([[0], np.cumsum(events + censored)[:-1]]) - events
    return product_limit(at_risk, censored)[place.reshape(-1)]


def ipcw(time: FloatArray, event: NDArray[np.bool_], used: NDArray[np.bool_]) -> FloatArray:
    """1 / G(t)^2 of the events ``used``, and 0 for everyone else; an error where that explodes."""
    survival = censoring_survival(time, event)
    lost = used & (survival < LEAST_FOLLOWED)
    if lost.any():
        raise ValueError(
            f"Inverse censoring weights explode for {int(lost.sum())} event(s) from time {time[lost].min():g} on: less "
            f"than {LEAST_FOLLOWED:.0%} would be followed longer than that, so that one event weighs as much as "
            f"{LEAST_FOLLOWED**-2:g} or more others. Compare earlier events only, for example tau={time[lost].min():g}."
        )
    weights = np.zeros(time.size)
    weights[used] = survival[used] ** -2.0
    return weights


def concordance_risk(
    scores: ArrayLike,
    time: ArrayLike,
    event: ArrayLike,
    *,
    strata: ArrayLike | None = None,
    weights: ArrayLike | str | None = None,
    tau: float | None = None,
    ties: str = "half",
) -> Any:
    """Exact risk ``1 - C`` of each score vector ``scores[..., n]``, C the concordance with censored times.

    A high score means an early event.

    Parameters
    ----------
    scores
        Array of shape ``(..., n)``: one score per observation, any number of leading batch dimensions.
    time
        When each observation had its event or was last seen, at least 0.
    event
        Whether it was an event: booleans, or 0 and 1.
    strata
        Compare within these groups only.
    weights
        None for Harrell's C; ``"ipcw"`` for Uno's, in which inverse probabilities of censoring, estimated within each
        stratum, make up for those lost; or one positive number per observation, a pair weighing their product.
    tau
        Compare events before this time only.
    ties
        What tied scores cost, as in :func:`~pymc_pacauc.empirical_risk`.

    Examples
    --------
    >>> float(concordance_risk([0.9, 0.4, 0.7], time=[1.0, 2.0, 3.0], event=[True, True, False]).round(4))
    0.3333
    """
    return checked_risk(scores, concordance(time, event, strata=strata, weights=weights, tau=tau), ties, "time")


def concordance(
    time: ArrayLike,
    event: ArrayLike,
    *,
    strata: ArrayLike | None = None,
    weights: ArrayLike | str | None = None,
    tau: float | None = None,
) -> Pairs:
    """The pairs of :func:`concordance_risk`.

    Examples
    --------
    >>> concordance([1.0, 2.0, 3.0, 4.0], [True, False, True, True]).n_pairs
    4
    """
    times = number_vector("time", time, "a finite time >= 0 per observation")
    if (times < 0.0).any():
        raise ValueError(f"time has {int((times < 0.0).sum())} negative value(s): a time is at least 0.")
    events = event_mask(event, times.size)
    used = events if tau is None else events & (times < _check_tau(tau))
    if not used.any():
        if tau is None:
            raise ValueError(f"There is no event: all {times.size} observations are censored.")
        raise ValueError(f"There is no event before tau={tau:g}: nothing can be compared.")
    codes = None if strata is None else strata_codes(strata, times.size)
    members = [np.arange(times.size)] if codes is None else members_of(codes)
    parts = [list(_blocks(part, times[part], events[part], used[part])) for part in members]
    blocks = tuple(block for part in parts for block in part)
    if not blocks:
        raise ValueError("No two observations can be compared: nobody is followed beyond an event.")
    pairs = Pairs(times.size, blocks, "censored times", skipped_strata=sum(not part for part in parts))
    if weights is None:
        return pairs
    if isinstance(weights, str):
        if weights != "ipcw":
            raise ValueError(f'weights must be None, "ipcw" or one number per observation; got {weights!r}.')
        factors, compared = np.zeros(times.size), np.zeros(times.size, dtype=bool)
        for block in blocks:
            compared[block.positive] = True  # an event that nobody is followed beyond is in no pair
        for part in members:
            factors[part] = ipcw(times[part], events[part], compared[part])
        factors /= factors[compared].mean()
        weighted = tuple(replace(b, positive_weights=factors[b.positive]) for b in blocks)
        return replace(pairs, blocks=weighted, estimated_weights=True)
    return pairs.times(observation_weights(weights, times.size))


def event_mask(event: ArrayLike, n: int) -> NDArray[np.bool_]:
    """Whether each observation had its event, from booleans or from 0 and 1."""
    given = np.asarray(event)
    if given.shape != (n,):
        raise ValueError(f"event must have shape ({n},), one per time; got {given.shape}.")
    if given.dtype != bool:
        values = number_vector("event", event, "True where the event was seen, False where it was censored")
        if not np.isin(values, (0.0, 1.0)).all():
            raise ValueError(
                "event must be boolean, or 0 (censored) and 1 (event): several kinds of event are not one."
            )
        given = values == 1.0
    return given


def _check_tau(tau: Any) -> float:
    if not (np.ndim(tau) == 0 and isinstance(tau, int | float | np.number) and 0.0 < tau < np.inf):
        raise ValueError(f"tau must be one finite time > 0; got {tau!r}.")
    return float(tau)


def _blocks(
    members: NDArray[np.intp], time: FloatArray, event: NDArray[np.bool_], used: NDArray[np.bool_]
) -> Iterator[Block]:
    """Blocks of the pairs among ``members``, of events that are ``used``."""
    order = np.lexsort((~event, time))  # at one time, events before those censored
    index, t, e, u = members[order], time[order], event[order], used[order]
    segments = [(0, t.size)]
    while segments:
        low, high = segments.pop()
        middle = (low + high) // 2
        if high - low < 2 or not u[low : high - 1].any():
            continue
        segments += [(middle, high), (low, middle)]
        start = low + int(np.searchsorted(t[low:middle], t[middle]))  # from here on tied with the first of the later
        before = low + np.flatnonzero(u[low:start])
        if before.size:
            yield Block(index[before], index[middle:high])
        at = start + np.flatnonzero(u[start:middle])
        if at.size:
            after = middle + np.flatnonzero((t[middle:high] > t[middle]) | ~e[middle:high])
            if after.size:
                yield Block(index[at], index[after])
