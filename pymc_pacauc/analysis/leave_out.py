"""Cross-validation without refitting, of whatever result allows it."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from pymc_pacauc.ep.leave_out import LeaveOut
from pymc_pacauc.model.approximation import EPApproximation
from pymc_pacauc.model.results import as_result

__all__ = ["leave_out"]


def leave_out(result: Any, groups: ArrayLike | None = None, **options: Any) -> LeaveOut:
    """Cross-validated scores of every observation; see :meth:`EPApproximation.leave_out`.

    Parameters
    ----------
    result
        What ``pm.fit(method=pac.EP())`` or ``pac.GaussianVB()`` returned, or what holds it.
    groups
        Group label of each observation for k-fold or grouped cross-validation; by default each is left out alone.
    **options
        ``refine``, ``n_jobs``, ``progressbar``.
    """
    found = as_result(result)
    if isinstance(found, EPApproximation):
        return found.leave_out(groups, **options)
    if hasattr(found, "fit"):
        return found.fit.leave_out(groups, **options)
    raise TypeError(
        "Leaving observations out means removing EP's sites, and draws have none: use what pm.fit(method=pac.EP()) "
        'returned; for tempering SMC, pac.select_gamma(model, [gamma], method="smc") cross-validates by refitting.'
    )
