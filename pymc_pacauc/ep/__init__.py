"""Expectation propagation (EP): a Gaussian approximation of the AUC Gibbs posterior, and quantities computed from it.

The target is prior(theta) exp(-gamma risk(theta)), a product of the prior and of one factor for each of the n+ n-
compared pairs. EP replaces each factor by a Gaussian *site* of the pair's score difference; the approximation q is the
prior times all sites, and the sites are chosen such that each matches its factor where q is (moment matching).

:func:`pymc_pacauc.ep.plan.choose_plan` decides how a problem is fitted, and :func:`pymc_pacauc.ep.fit.fit` carries the
plan out, by the ``solve`` of :mod:`~pymc_pacauc.ep.gaussian` (all pairs), :mod:`~pymc_pacauc.ep.subsample` (a random
subset of the pairs) or :mod:`~pymc_pacauc.ep.spike_slab` (priors that are not Gaussian). Reading order:

1. :mod:`~pymc_pacauc.ep.sites`: the site of one pair, in closed form;
2. :mod:`~pymc_pacauc.ep.sweep`: the sum of the sites of all pairs, given q;
3. :mod:`~pymc_pacauc.ep.loop`: the fixed-point iteration of such sums;
4. :mod:`~pymc_pacauc.ep.gaussian`: the fit with a Gaussian prior, its evidence and gradient;
5. :mod:`~pymc_pacauc.ep.start`, :mod:`~pymc_pacauc.ep.subsample`, :mod:`~pymc_pacauc.ep.subsample_sums`: good starting
   points, and random subsets of pairs;
6. :mod:`~pymc_pacauc.ep.prior_sites`, :mod:`~pymc_pacauc.ep.spike_slab`, :mod:`~pymc_pacauc.ep.spike_models`: priors
   of single coefficients that are not Gaussian;
7. :mod:`~pymc_pacauc.ep.leave_out` (cross-validation without refitting), :mod:`~pymc_pacauc.ep.importance` (exact
   posterior moments and evidence by weighted draws), :mod:`~pymc_pacauc.ep.kernel` (Gaussian processes): quantities
   computed from a fit.

To add a loss of a pair that depends on its score difference alone, give :mod:`~pymc_pacauc.ep.sites` its four functions
of rho: nothing else knows what a site is made of. A prior with independent coefficients needs no code here: tabulate
its density (:func:`pymc_pacauc.problem.problem.tabulate`) and put a ``Tabulated`` of it into ``Problem.sites``.

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
