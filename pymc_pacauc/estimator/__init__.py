"""scikit-learn estimators: ``fit``, ``decision_function``, ``predict_proba``, with the posterior as attributes.

They use the array layer and do not import PyMC; they need the ``sklearn`` extra.
"""

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "AUCClassifier and ConcordanceEstimator need scikit-learn 1.5 or later: pip install 'pymc-pacauc[sklearn]'."
    ) from None
