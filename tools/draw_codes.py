"""Draw docs/codes.png: non-negative codes of MNIST digits, with a map of their uncertainty.

A dictionary of strokes is learned from the digits in the package: codes have an exponential prior, so they are not
negative and mostly small, and are inferred with forestmix; each atom is then set to its non-negative optimum, which
needs the mean and variance of every code. Digits that were not used for it, with a band of each hidden, are
coded and reconstructed; the map shows the standard deviation of each pixel under the posterior of the codes::

    python tools/draw_codes.py --out docs/codes.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

import forestmix as fmx
from forestmix.data import load_mnist_sample
from forestmix.plots.style import RC

matplotlib.use("Agg")
from matplotlib import pyplot

ATOMS, NOISE, RATE = 64, 0.2, 5.0
ROUNDS, STEPS = 15, 3
SHOWN = 7
BAND = slice(11, 18)
SHADE = "#8FA3B5"


def coder(W: np.ndarray) -> fmx.DEF:
    """Return the model of non-negative codes: pixels with Gaussian noise, codes with an exponential prior."""
    return fmx.DEF(fmx.Layer(fmx.Gaussian(NOISE), W), prior=fmx.Prior(fmx.Exponential(RATE)))


def learn(images: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return a dictionary by variational expectation maximisation, its atoms not negative and of length at most 4."""
    rng = np.random.default_rng(seed)
    W = np.abs(images[rng.choice(len(images), ATOMS, replace=False)].T + 0.1 * rng.random((784, ATOMS)))
    result = None
    for _ in range(ROUNDS):
        W = W * np.minimum(1, 4 / np.linalg.norm(W, axis=0))
        result = fmx.infer(coder(W), images, init=result, tol=1e-2, max_iter=8)
        mean = result.mean
        second = mean.T @ mean + np.diag((result.sd**2).sum(axis=0))
        first = images.T @ mean
        for _ in range(STEPS):
            # One atom after another, each to its non-negative optimum with the others held.
            for k in range(ATOMS):
                W[:, k] = np.maximum(W[:, k] + (first[:, k] - W @ second[:, k]) / (second[k, k] + 1e-9), 0)
    return W


def main() -> None:
    """Learn, code, draw and say how well it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/codes.png"))
    out = parser.parse_args().out
    train, test = (load_mnist_sample(split).images.reshape(-1, 784) / 255.0 for split in ("train", "test"))
    labels = load_mnist_sample("test").labels
    W = learn(train[::2])
    chosen = np.array([np.flatnonzero(labels == digit)[3] for digit in (0, 2, 3, 4, 5, 7, 8)][:SHOWN])
    x = test[chosen]
    hidden = x.reshape(-1, 28, 28).copy()
    hidden[:, BAND] = np.nan
    result = fmx.infer(coder(W), hidden.reshape(-1, 784), tol=1e-4, max_iter=200)
    prediction = result.posterior("factorised").predict()
    draw(out, W, x, hidden, result, prediction)
    missing = np.isnan(hidden.reshape(-1, 784))
    error = np.sqrt(np.mean((prediction.eta_mean - x)[missing] ** 2))
    expected = np.sqrt(np.mean(prediction.eta_sd[missing] ** 2 + NOISE**2))
    active = (result.mean > 0.05).sum(axis=1).mean()
    print(f"{out}: {ATOMS} atoms, {active:.1f} codes above 0.05 on average, {result.n_iter.max()} iterations,")
    print(f"root mean square error of hidden pixels {error:.3f}, expected by the posterior {expected:.3f},")
    print(f"spread of those pixels {x[missing].std():.3f}")


def draw(out: Path, W: np.ndarray, x: np.ndarray, hidden: np.ndarray, result: fmx.Result, prediction) -> None:
    """Draw rows of digits: seen, reconstructed, uncertainty and truth; then codes with intervals, and atoms."""
    with pyplot.rc_context(RC):
        figure = pyplot.figure(figsize=(9.6, 8.2), layout="constrained")
        upper, lower = figure.subfigures(2, 1, height_ratios=[4.2, 2.2])
        axes = upper.subplots(4, SHOWN)
        seen = matplotlib.colormaps["gray_r"].copy()
        seen.set_bad(SHADE)
        rows = (
            ("seen", hidden, seen, (0, 1)),
            ("posterior mean", prediction.eta_mean.reshape(-1, 28, 28), "gray_r", (0, 1)),
            ("posterior sd", prediction.eta_sd.reshape(-1, 28, 28), "magma", (0, prediction.eta_sd.max())),
            ("the whole digit", x.reshape(-1, 28, 28), "gray_r", (0, 1)),
        )
        for row, (label, images, colours, limits) in zip(axes, rows, strict=True):
            for axis, image in zip(row, images, strict=True):
                drawn = axis.imshow(image, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
                axis.set(xticks=[], yticks=[])
                axis.grid(False)
                axis.spines[:].set_visible(False)
            row[0].set_ylabel(label)
            if label == "posterior sd":
                upper.colorbar(drawn, ax=list(row), fraction=0.012, pad=0.01)
        _draw_codes(lower, W, result)
        figure.savefig(out, dpi=110)


def _draw_codes(panel, W: np.ndarray, result: fmx.Result) -> None:
    """Draw the codes of one digit with their intervals, and the atoms that it uses most."""
    left, right = panel.subfigures(1, 2, width_ratios=[1.35, 1])
    digit = 2
    mean = result.mean[digit]
    low, high = (end[digit] for end in result.layers[0].interval(0.9))
    order = np.argsort(mean)[::-1][:24]
    axis = left.subplots()
    axis.bar(range(len(order)), mean[order], color="#56B4E9", width=0.8)
    axis.vlines(range(len(order)), low[order], high[order], color="#222222", linewidth=1.2)
    axis.set(title="largest codes of the third digit, with 90 % intervals", xlabel="atom, by its code", xticks=[])
    axis.set_ylim(0, None)
    atoms = right.subplots(3, 6)
    for cell, k in zip(atoms.ravel(), order, strict=False):
        cell.imshow(W[:, k].reshape(28, 28), cmap="gray_r", interpolation="nearest")
        cell.set(xticks=[], yticks=[])
        cell.grid(False)
        cell.spines[:].set(visible=True, color="#D0D0D0")
    right.suptitle("their atoms, largest first", fontsize=10)


if __name__ == "__main__":
    main()
