"""The ridge regression problems of the paper's experiments (section 7), and the images of a seed.

With Gaussian layers, the mean of the mean-field posterior minimises::

    f(mu) = ||x - (b + W mu)||^2 / (2 sigma_x^2) + ||mu||^2 / (2 sigma_y^2)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

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


DIGIT_SHAPE = (28, 28)
PHOTOGRAPH_SHAPE = (32, 32)
#: The side of a region of the last experiment, and of the windows clipped to it.
REGION = 7


@dataclass(frozen=True, eq=False)
class RidgeProblem:
    """One W with a batch of observations.

    Args:
        title: what W is, in a few words.
        weights: W, (n, m).
        draw: x, b and the seed they came from.
        blocks: latents that share no row of W with those of another block, where W has such blocks.
        sd_x: standard deviation of a row given the latents.
        sd_y: prior standard deviation of a latent.

    """

    title: str
    weights: Any
    draw: Draw
    blocks: tuple[Any, ...] | None = None
    sd_x: float = 1.0
    sd_y: float = 1.0

    @cached_property
    def model(self) -> fmx.DEF:
        """The model whose posterior mean solves the problem."""
        layer = fmx.Layer(fmx.Gaussian(sd=self.sd_x), self.weights, self.draw.bias)
        return fmx.DEF(layer, prior=fmx.Prior(fmx.Gaussian(sd=self.sd_y)))

    @property
    def n_latent(self) -> int:
        """The number of latents, m."""
        return self.model.n_latent

    def loss(self, mean: Floats) -> Floats:
        """Return the ridge objective (paper, section 7) at the means (N, m) of each observation, (N,)."""
        residual = self.draw.x - (self.draw.bias + self.model.layers[0].weights.forward(mean))
        fit = np.sum(residual**2, axis=-1) / (2 * self.sd_x**2)
        return np.asarray(fit + np.sum(mean**2, axis=-1) / (2 * self.sd_y**2))

    @cached_property
    def optimum(self) -> Floats:
        """The least value of the objective for each observation, (N,), by conjugate gradients."""
        solver = fmx.ForestMixture(objective="elbo", accelerate=True)
        result = fmx.infer(self.model, self.draw.x, solver, tol=1e-10, max_iter=20_000)
        ended = {status.name for status in result.status}
        if not ended <= {"CONVERGED", "STALLED"}:
            raise fmx.ForestmixError(f"the reference optimum of {self.title} was not reached: {result.message}")
        return self.loss(result.mean)

    def gap(self, loss: Floats) -> Floats:
        """Return (f - f*) / f*, never below 0, for losses (..., N)."""
        return np.maximum(loss - self.optimum, 0.0) / self.optimum


def window_problem(draw: Draw, side: int) -> RidgeProblem:
    """All windows of ``side`` x ``side`` pixels that overlap a digit, clipped to it."""
    return RidgeProblem(f"{side} x {side} windows", fmx.windows(DIGIT_SHAPE, side), draw)


def kernel_problem(draw: Draw, width: int) -> RidgeProblem:
    """First-layer kernels, ``width`` wide, of a network trained on CIFAR-10, around every pixel."""
    # In double precision, so that gaps far below float32's rounding can be told from 0.
    kernels = data.load_cifar10_kernels(width).astype(np.float64)
    return RidgeProblem(f"{width} x {width} kernels", fmx.Convolution(kernels, PHOTOGRAPH_SHAPE, "centred"), draw)


def region_problem(draw: Draw) -> RidgeProblem:
    """All windows of 7 x 7 pixels, clipped to each of the 16 regions of 7 x 7 pixels; a region is a block."""
    inside, side = fmx.windows((REGION, REGION), REGION), DIGIT_SHAPE[0] // REGION
    # The pixels of the image in the order of the blocks: region by region.
    pixels = np.arange(np.prod(DIGIT_SHAPE)).reshape(side, REGION, side, REGION).transpose(0, 2, 1, 3).ravel()
    weights = scipy.sparse.block_diag([inside] * side**2, format="csr")[np.argsort(pixels)]
    blocks = tuple(np.split(np.arange(weights.shape[1]), side**2))
    return RidgeProblem("7 x 7 windows in 16 regions", weights, draw, blocks)
