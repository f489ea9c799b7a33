"""The images of a seed: which ones, and how they are scaled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import forestmix as fmx
from forestmix import data

Floats = npt.NDArray[np.float64]

#: How many digits the paper averages for b.
AVERAGED = 1000


@dataclass(frozen=True, eq=False)
class Draw:
    """Observations for one seed.

    ``x``: (N, n), each pixel in [-1, 1]; ``bias``: b, (n,) or one number; ``names``: where each image stands in its
    data set, such as "train/1234".
    """

    seed: int
    x: Floats
    bias: Floats | float
    names: tuple[str, ...]


def scale(images: npt.NDArray[np.uint8]) -> Floats:
    """Return pixels of 0 to 255 as numbers from -1 to 1."""
    return images.astype(np.float64) / 127.5 - 1.0


def draw_digits(seed: int, count: int, full: bool = False, taken: Collection[str] = ()) -> Draw:
    """Draw ``count`` digits of MNIST for x, none of them in ``taken``, and 1000 others whose mean is b."""
    load = data.load_mnist if full else data.load_mnist_sample
    splits = {split: load(split) for split in ("train", "test")}
    names = [f"{split}/{place}" for split, part in splits.items() for place in part.index]
    images = np.concatenate([part.images for part in splits.values()])
    order = np.random.default_rng(seed).permutation(len(names))
    mean = scale(images[order[:AVERAGED]]).mean(axis=0)
    digits = _choose(order[AVERAGED:], names, count, taken, full)
    return Draw(seed, scale(images[digits]).reshape(count, -1), mean.ravel(), tuple(names[k] for k in digits))


def draw_photographs(seed: int, count: int, full: bool = False, taken: Collection[str] = ()) -> Draw:
    """Draw ``count`` test images of CIFAR-10 for x, none in ``taken``, with b = 0; pixels by channel, row, column."""
    pool = data.load_cifar10("test") if full else data.load_cifar10_sample()
    names = [f"test/{place}" for place in pool.index]
    chosen = _choose(np.random.default_rng(seed).permutation(len(names)), names, count, taken, full)
    x = scale(pool.images[chosen]).transpose(0, 3, 1, 2).reshape(count, -1)
    return Draw(seed, x, 0.0, tuple(names[k] for k in chosen))


def draw_all(draw: Callable[..., Draw], seeds: Sequence[int], count: int, full: bool) -> list[Draw]:
    """Draw for every seed, no image twice: a repeated image would count as evidence twice."""
    draws: list[Draw] = []
    for seed in seeds:
        taken = {name for earlier in draws for name in earlier.names}
        draws.append(draw(seed, count, full, taken))
    return draws


def _choose(order: Any, names: Sequence[str], count: int, taken: Collection[str], full: bool) -> Any:
    """Return the first ``count`` places in ``order`` whose images are not taken."""
    free = [place for place in order if names[place] not in taken]
    if count > len(free):
        more = "" if full else " The complete data sets have more: use --full."
        used = f" after the {len(taken)} of earlier seeds" if taken else ""
        raise fmx.ArgumentError(f"images must be at most {len(free)}, as many as are left{used}; got {count}.{more}")
    return np.array(free[:count])
