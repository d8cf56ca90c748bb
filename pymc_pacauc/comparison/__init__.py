"""Which observations are compared, and what a wrong order costs: pairs, kinds of comparisons, risks, folds."""
