"""Choosing the number of trees by the log-likelihood of observations held out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import whole_number
from forestmix.errors import ArgumentError
from forestmix.forest.settings import generator_of

if TYPE_CHECKING:
    from forestmix.forest.estimator import ForestMixtureModel


@dataclass(frozen=True)
class TreeSelection:
    """Held-out scores for numbers of trees.

    ``candidates``: the numbers tried; ``scores``: average log-likelihood of an observation held out, (candidates,
    folds); ``model``: fitted on all of X with ``best`` trees.
    """

    candidates: Array
    scores: Array
    model: ForestMixtureModel

    @property
    def mean(self) -> Array:
        """Mean score of each candidate."""
        return np.asarray(self.scores.mean(axis=1))

    @property
    def standard_error(self) -> Array:
        """Standard error, over folds, of each candidate's difference to the best; 0 for the best."""
        difference = self.scores - self.scores[np.argmax(self.mean)]
        return np.asarray(difference.std(axis=1, ddof=1) / np.sqrt(self.scores.shape[1]))

    @property
    def best(self) -> int:
        """The candidate with the highest mean."""
        return int(self.candidates[np.argmax(self.mean)])

    @property
    def smallest(self) -> int:
        """The smallest candidate whose mean is within one standard error of the best."""
        return int(self.candidates[np.argmax(self.mean >= self.mean.max() - self.standard_error)])

    def __repr__(self) -> str:
        pairs = ", ".join(f"{c}: {s:.4g}" for c, s in zip(self.candidates, self.mean, strict=True))
        return f"TreeSelection(best={self.best}, smallest={self.smallest}, mean score {{{pairs}}})"

    def plot(self, axes: Any = None) -> Any:
        """Plot the held-out scores against the number of trees."""
        from forestmix.plots.forest import plot_selection

        return plot_selection(self, axes)


def select_n_trees(
    X: Any, candidates: Iterable[int], *, model: ForestMixtureModel | None = None, folds: int = 5, random_state: Any = 0
) -> TreeSelection:
    """Score numbers of trees on observations held out, and fit the best on all of X.

    Args:
        X: observations, (N, n); NaN marks a missing entry.
        candidates: numbers of trees to try.
        model: an estimator whose other settings are used; the default one when left out.
        folds: number of parts, each held out once.
        random_state: seed of the split into parts.

    """
    from forestmix.forest.estimator import ForestMixtureModel  # first: it says what is missing without scikit-learn

    # isort: split
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    numbers = _numbers_of_trees(candidates)
    model = ForestMixtureModel(random_state=0) if model is None else model
    if not isinstance(model, ForestMixtureModel):
        raise ArgumentError(f"model must be a ForestMixtureModel or None; got {type(model).__name__}.")
    N = len(ForestMixtureModel()._numbers(X, reset=True))
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or not 2 <= folds <= N:
        raise ArgumentError(f"folds must be a whole number from 2 to the {N} observations; got {shown(folds)}.")
    parts = np.array_split(generator_of(random_state).permutation(N), folds)
    splits = [(np.setdiff1d(np.arange(N), held_out), held_out) for held_out in parts]
    models = [clone(model).set_params(n_trees=number) for number in numbers]
    scores = np.array([cross_val_score(each, X, cv=splits, error_score="raise") for each in models])
    return TreeSelection(np.array(numbers), scores, models[int(np.argmax(scores.mean(axis=1)))].fit(X))


def _numbers_of_trees(candidates: Any) -> list[int]:
    try:
        given = [] if isinstance(candidates, str | bytes) else list(candidates)
    except TypeError:
        given = []
    if not given:
        raise ArgumentError(
            f"candidates must be a list of numbers of trees, such as [1, 2, 3]; got {shown(candidates)}."
        )
    return sorted({whole_number("every entry of candidates", candidate) for candidate in given})
