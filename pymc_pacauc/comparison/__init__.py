"""Comparisons of observations: pairs as blocks, kinds of comparison, their exact risk, smooth losses, folds, sizes.

A comparison is a :class:`~pymc_pacauc.comparison.pairs.Pairs`; all engines loop over its blocks. To add a kind of
comparison, write a function that returns one, in :mod:`~pymc_pacauc.comparison.kinds`.
"""
