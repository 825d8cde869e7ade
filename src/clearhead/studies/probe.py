"""The small reader on top of frozen vectors: scikit-learn's logistic regression, as the articles use it."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np

from clearhead.errors import InputError


def scikit_learn(part: str) -> Any:
    """A module of scikit-learn, or an error that says how to get it."""
    try:
        return importlib.import_module(f"sklearn.{part}")
    except ImportError:
        raise InputError("This study needs scikit-learn: pip install 'clearhead[train]'.") from None


def logistic_regression(standardised: bool = False, strength: float = 1.0, steps: int = 1000) -> Any:
    """With scikit-learn's own settings, and time enough to converge.

    standardised   features get mean 0 and variance 1 first, so that vectors of any scale are judged alike
    strength       how freely the weights may grow (scikit-learn's C)
    """
    classifier = scikit_learn("linear_model").LogisticRegression(C=strength, max_iter=steps)
    if not standardised:
        return classifier
    return scikit_learn("pipeline").make_pipeline(scikit_learn("preprocessing").StandardScaler(), classifier)


def fitted(probe: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """A fit that ends at its last step is good enough for a comparison, and no reason to warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scikit_learn("exceptions").ConvergenceWarning)
        return probe.fit(x, y)
