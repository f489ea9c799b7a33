"""Gaussian problems: the paper's windows, windows of a large image, and a dense random W."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import forestmix as fmx
from benchmarks.problems.store import Problem
from forestmix import data

#: size: side of the large image, shape of the dense W
SIZES = {"small": (60, (600, 300)), "default": (700, (8000, 4000)), "large": (1000, (8000, 4000))}


def mosaic(side: int) -> np.ndarray:
    """Return a square picture of MNIST digits side by side, grey values from 0 to 1."""
    digits = data.load_mnist_sample().images
    count = -(-side // 28)
    chosen = digits[np.arange(count * count) % len(digits)].reshape(count, count, 28, 28)
    return chosen.transpose(0, 2, 1, 3).reshape(count * 28, count * 28)[:side, :side] / 255.0


def mnist_windows() -> Problem:
    """Return the paper's problem: 7 x 7 windows over one digit, unit variances."""
    digit = data.load_mnist_sample().images[0] / 255.0
    return Problem("MNIST digit, 7 x 7 windows", "gaussian", fmx.windows((28, 28), 7), 2 * digit.ravel() - 1)


def image_windows(side: int) -> Problem:
    """Return 7 x 7 windows centred on each pixel of a large image."""
    W = fmx.windows((side, side), 7, "centred")
    title = f"{side} x {side} image, 7 x 7 windows ({W.nnz / 1e6:.3g} M entries)"
    return Problem(title, "gaussian", W, 2 * mosaic(side).ravel() - 1)


def dense_random(shape: tuple[int, int]) -> Problem:
    """Return a W of independent normal entries, with the noise of a regression."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal(shape)
    x = W @ rng.standard_normal(shape[1]) + rng.standard_normal(shape[0])
    return Problem(f"dense random {shape[0]} x {shape[1]}", "gaussian", W, x)


def gaussian_problems(size: str) -> dict[str, Callable[[], Problem]]:
    """Return what builds each problem; they are large, so one at a time; a smoke run has one of them."""
    side, shape = SIZES[size]
    problems = {
        "mnist": mnist_windows,
        "image": lambda: image_windows(side),
        "dense": lambda: dense_random(shape),
    }
    return {"dense": problems["dense"]} if size == "small" else problems
