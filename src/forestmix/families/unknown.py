"""Unknown scales of a family, whatever its shape: of a Gaussian, and of the Gaussian parts of a mixed one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.families.gaussian import Gaussian
from forestmix.families.mixed import Mixed
from forestmix.families.weighted import Weighted, weighted
from forestmix.scales import FromData, Scale


def scales_of(family: Any) -> tuple[Scale, ...]:
    """Return the unknown scales of a family, in order of first appearance."""
    one = getattr(family, "unweighted", family)
    if isinstance(one, Mixed):
        return tuple(dict.fromkeys(scale for part in one.families for scale in scales_of(part)))
    return one.places.unknowns if isinstance(one, Gaussian) and one.places is not None else ()


def variables_of(family: Any, scale: Scale, size: int) -> Array:
    """Return which of ``size`` variables have an unknown scale, as a mask."""
    found = np.zeros(size, bool)
    if scale not in scales_of(family):
        return found
    one = family.unweighted
    if not isinstance(one, Mixed):
        return one.places.variables(scale, size)
    for k, part in enumerate(one.families):
        rows = np.flatnonzero(one.which == k)
        found[rows] = variables_of(part, scale, len(rows))
    return found


def with_scales(family: Any, values: Mapping[Scale, float]) -> Any:
    """Return the family with numbers in the place of its unknown scales."""

    def known(part: Gaussian) -> Gaussian:
        return part if part.places is None else part.with_sd(part.places.resolve(values))

    return _with_gaussians(family, known) if scales_of(family) else family


def with_default_scale(family: Any) -> Any:
    """Return the family of rows of the data, with an unknown scale where a Gaussian's was left out."""
    return _with_gaussians(family, lambda part: part.with_sd(FromData()) if part.sd_left_out else part)


def _with_gaussians(family: Any, change: Callable[[Gaussian], Gaussian]) -> Any:
    """Return the family with its Gaussian parts changed."""
    if isinstance(family, Gaussian):
        return change(family)
    if isinstance(family, Weighted):
        return weighted(_with_gaussians(family.unweighted, change), family.weight)
    if isinstance(family, Mixed):
        family = copy(family)
        family.families = tuple(_with_gaussians(part, change) for part in family.families)
    return family
