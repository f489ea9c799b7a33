"""Codec of forest mixture models."""

from __future__ import annotations

from typing import Any

import numpy as np

from forestmix.errors import ForestmixError
from forestmix.files.codec import Codec, record
from forestmix.files.models import built_generator, generator_fields
from forestmix.forest.estimator import ForestMixtureModel
from forestmix.forest.parameters import ForestParameters

#: What learning leaves beside the forest; a model from given parameters has none of it.
_LEARNED = ("elbo_", "elbo_trace_", "converged_", "n_iter_")


def _fields(model: ForestMixtureModel) -> dict[str, Any]:
    settings, seed = model.get_params(), model.random_state
    if isinstance(seed, np.random.Generator):
        settings["random_state"] = generator_fields(seed)
    elif not (seed is None or isinstance(seed, int | np.integer)):
        raise ForestmixError(
            f"A file cannot hold random_state={seed!r}; set it to a seed, a numpy.random.Generator or None."
        )
    fitted = model.__sklearn_is_fitted__()
    return {
        "settings": settings,
        "forest": model._forest if fitted else None,
        "responsibilities": model.responsibilities_ if fitted else None,
        "learned": {name: getattr(model, name) for name in _LEARNED if hasattr(model, name)},
        "names": [str(name) for name in model.feature_names_in_] if hasattr(model, "feature_names_in_") else None,
    }


def _build(given: dict[str, Any]) -> ForestMixtureModel:
    settings = given["settings"]
    if isinstance(settings["random_state"], dict):
        settings["random_state"] = built_generator(settings["random_state"])
    model = ForestMixtureModel(**settings)
    if given["forest"] is not None:
        model._set(given["forest"], given["responsibilities"])
    for name, value in given["learned"].items():
        if name not in _LEARNED:
            raise ValueError(f"a forest mixture has no {name}")
        setattr(model, name, value)
    if given["names"] is not None:
        model.feature_names_in_ = np.array(given["names"], object)
    return model


CODECS = (
    record("parameters of a forest", ForestParameters),
    Codec("forest mixture model", ForestMixtureModel, _fields, _build),
)
