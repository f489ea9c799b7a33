"""The posterior of a regression's effects, with unknown scales integrated."""

from __future__ import annotations

from typing import Any, NamedTuple

from forestmix.arrays import Array
from forestmix.model import DEF
from forestmix.run import infer
from forestmix.scales import Scale


class Solution(NamedTuple):
    """A posterior, posteriors of the unknown scales, and the value of each scale in each component."""

    posterior: Any
    scales: dict[Scale, Any]
    values: dict[Scale, Array]


def solve(model: DEF, y: Array) -> Solution:
    """Return the posterior of the effects given the responses."""
    return Solution(infer(model, y).posterior(), {}, {})
