"""Expectation propagation for pair sites: Gaussian and spike-and-slab priors, and what follows from a fit.

:func:`pymc_pacauc.ep.plan.choose_plan` decides how a problem is fitted, and :func:`pymc_pacauc.ep.fit.fit` carries the
plan out, by the ``solve`` of :mod:`~pymc_pacauc.ep.gaussian`, :mod:`~pymc_pacauc.ep.subsample` or
:mod:`~pymc_pacauc.ep.spike_slab`. To read them, begin with :mod:`~pymc_pacauc.ep.sites` (one pair),
:mod:`~pymc_pacauc.ep.sweep` (all pairs), :mod:`~pymc_pacauc.ep.loop` (what EP iterates),
:mod:`~pymc_pacauc.ep.loop` (the loop) and :mod:`~pymc_pacauc.ep.gaussian` (the fit);
:mod:`~pymc_pacauc.ep.spike_slab` adds the sites of a prior to them. What a fit is good for:
:mod:`~pymc_pacauc.ep.leave_out`, :mod:`~pymc_pacauc.ep.gaussian`, :mod:`~pymc_pacauc.ep.importance`. Folds by
which gamma is chosen have a way of their own, :mod:`~pymc_pacauc.ep.leave_out`.

To add a kind of site (another loss of a pair that depends on its score difference), give :mod:`~pymc_pacauc.ep.sites`
its four functions of rho: nothing else knows what a site is made of. To add a prior, write it as a Gaussian times sites
of single coefficients, as :mod:`~pymc_pacauc.ep.spike_slab` does, with an :class:`~pymc_pacauc.ep.loop.Iteration`
that sums the pair sites as they are, and a result with what :class:`~pymc_pacauc.ep.results.Fit` asks for.

References
----------
* Minka (2001), Expectation propagation for approximate Bayesian inference, arXiv:1301.2294.
* Minka (2004), Power EP, Microsoft Research TR-2004-149.
* Seeger (2005), Expectation propagation for exponential families, EPFL-REPORT-161464.
* Ridgway, Alquier, Chopin & Liang (2014), PAC-Bayesian AUC classification and scoring, arXiv:1410.1771.
* Hernández-Lobato, Hernández-Lobato & Suárez (2015), Expectation propagation in linear regression models with
  spike-and-slab priors, doi:10.1007/s10994-014-5475-7.
* Walker & Ni (2011), Anderson acceleration for fixed-point iterations, doi:10.1137/10078356X.
"""
