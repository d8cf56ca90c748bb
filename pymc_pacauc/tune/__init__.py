"""Hyper-parameter selection on arrays: gamma by folds or coverage, prior and lengthscales by evidence, or integrated.

:mod:`~pymc_pacauc.tune.gamma` chooses gamma by cross-validation, :mod:`~pymc_pacauc.tune.coverage` by the coverage of
credible sets, :mod:`~pymc_pacauc.tune.evidence` chooses priors and lengthscales by EP's evidence, and
:mod:`~pymc_pacauc.tune.nested` integrates over hyper-parameters.
"""
