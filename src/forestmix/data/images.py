"""What every loader of images returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forestmix.errors import unknown_name

SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Images:
    """Images with their labels, and where each stands in the complete split it comes from.

    ``images`` is uint8, (count, height, width) in grey or (count, height, width, 3) in colour; ``labels`` is
    uint8 and ``index`` int64, both (count,).
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.uint8]
    index: npt.NDArray[np.int64]


def check_split(split: str) -> None:
    """Raise if ``split`` is not the name of one."""
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
