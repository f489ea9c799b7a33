"""Unknown scales of a family, whatever its shape: of a Gaussian, and of the Gaussian parts of a mixed one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.families.gaussian import Gaussian
from forestmix.families.mixed import Mixed
from forestmix.scales import FromData, Scale


def scales_of(family: Any) -> tuple[Scale, ...]:
    """Return the unknown scales of a family, in order of first appearance."""
    if isinstance(family, Mixed):
        return tuple(dict.fromkeys(scale for part in family.families for scale in scales_of(part)))
    return family.places.unknowns if isinstance(family, Gaussian) and family.places is not None else ()


def variables_of(family: Any, scale: Scale, size: int) -> Array:
    """Return which of ``size`` variables have an unknown scale, as a mask."""
    found = np.zeros(size, bool)
    part: Any
    for part, rows in family.parts() if isinstance(family, Mixed) else [(family, np.arange(size))]:
        if scale in scales_of(part):
            found[rows] = part.places.variables(scale, len(rows))
    return found


def with_scales(family: Any, values: Mapping[Scale, float]) -> Any:
    """Return the family with numbers in the place of its unknown scales."""
    return _with_gaussians(
        family, lambda part: part if part.places is None else part.with_sd(part.places.resolve(values))
    )


def with_default_scale(family: Any) -> Any:
    """Return the family of rows of the data, with an unknown scale where a Gaussian's was left out."""
    return _with_gaussians(family, lambda part: part.with_sd(FromData()) if part.sd_left_out else part)


def _with_gaussians(family: Any, change: Callable[[Gaussian], Gaussian]) -> Any:
    if isinstance(family, Mixed):
        return family.with_families(_with_gaussians(part, change) for part in family.families)
    return change(family) if isinstance(family, Gaussian) else family
