"""All codecs that there are, and what may stand at the top of a file."""

from __future__ import annotations

from typing import Any

from forestmix.errors import MissingExtraError
from forestmix.files import families, models, posteriors, results, weights
from forestmix.files.codec import Codec

#: What a file may hold, as the tree calls it.
TOP = ("model", "result", "posterior", "posterior of each", "fit", "fit without rows", "forest mixture model")


def all_codecs(*, reference: bool = False, given: Any = None) -> tuple[Codec, ...]:
    """Return the codecs of every type.

    Args:
        reference: whether weights are written as references.
        given: the weights that references are to be read as.

    """
    own = (*families.CODECS, *models.CODECS, *posteriors.CODECS, *results.CODECS)
    return (*own, *_regression(), *weights.codecs(reference, given), *_forest())


def _regression() -> tuple[Codec, ...]:
    from forestmix.files import regressions

    return regressions.CODECS


def _forest() -> tuple[Codec, ...]:
    """Return those of forest mixtures; none without scikit-learn, which they are made of."""
    try:
        from forestmix.files import forests
    except MissingExtraError:
        return ()
    return forests.CODECS
