"""Choices that fits are compared for, on arrays: gamma by folds or by coverage, lengthscales and priors by evidence."""
