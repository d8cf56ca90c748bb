"""The search for a fixed point under spikes."""

from pymc_pacauc import fitting
from pymc_pacauc.ep import spike_search as search
from pymc_pacauc.ep.prior_sites import settle_prior_sites
from pymc_pacauc.problem.problem import (
    spike_slab_problem,
)
from tests.oracles import sparse_data


def test_passes_over_the_prior_sites_are_bounded(monkeypatch):
    X, y, _ = sparse_data(60, 5)
    problem = spike_slab_problem(X, y, 60.0, inclusion_probability=0.2, v0=0.01)
    made = []

    def counted(*arguments, **options):
        found = settle_prior_sites(*arguments, **options)
        made.append(found.passes)
        return found

    monkeypatch.setattr(search, "settle_prior_sites", counted)
    assert fitting.fit(problem).converged
    assert len(made) > 5
    made.clear()
    monkeypatch.setattr(search, "PASSES_PER_SWEEP", 0)
    fitting.fit(problem)  # by the other way, which needs none
    assert len(made) == 1
