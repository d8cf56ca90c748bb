"""Hyper-parameters chosen on arrays: gamma by folds or by coverage, lengthscales and prior scales by evidence."""
