"""Priors of a regression: weak defaults on the scale of the data, and those that are set by name.

With s the standard deviation of a Gaussian response and 1 for other families, and the moments of a column x taken over
the rows (with their case weights)::

    a fixed effect      N(0, (2.5 s / sd(x))^2)
    the intercept       N(c, (2.5 s)^2 + sum_j (sd0_j mean(x_j))^2),  c the mean response on the scale of the predictor
    effects of groups   N(0, tau^2),  tau ~ HalfNormal(2.5 s / sd(x)),  or 2.5 s for an intercept
    noise               sd ~ HalfStudentT(3, 2.5 s)

So a change of x by one of its standard deviations moves the response by 2.5 of its own at most, or so. The formulas are
those of rstanarm and bambi; the sum makes the intercept as wide at ``x = 0`` as the others are at their means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from forestmix.arrays import Array
from forestmix.checks import is_number
from forestmix.errors import ArgumentError, unknown_name
from forestmix.families import Gaussian
from forestmix.model import Prior
from forestmix.regression.formula import Design
from forestmix.scales import HalfNormal, HalfStudentT, InverseGamma, Scale
from forestmix.weights import Weights, as_weights
from forestmix.weights.blocks import blocks_of

#: Standard deviations of the response that one of a column may move it, and degrees of freedom of the noise.
WIDTH, NOISE_DF = 2.5, 3.0
#: Residuals that are rounding, in units of the response, and the sd that rows with no others have: with a smaller one
#: the evidence of the other scales would be lost to rounding.
EXACT, NO_NOISE = 1e-6, 1e-4
#: Entries of a sparse design that are taken as a dense one to find its rank.
SMALL = 2**18
#: ``prior="flat"``: this many times as wide as the default, which no data set tells from infinitely wide.
FLAT = 1e5
INTERCEPT, NOISE, FIXED = "Intercept", "noise", "fixed"


@dataclass(frozen=True)
class BlockPrior:
    """Prior of a block: the mean of each effect, and its sd, one for each or an unknown one for all."""

    mean: Array
    sd: Array | Scale

    def entries(self) -> list[Any]:
        """Return one sd for each effect: numbers, or the same unknown scale."""
        return [self.sd] * len(self.mean) if isinstance(self.sd, Scale) else self.sd.tolist()


@dataclass(frozen=True)
class Priors:
    """The priors of all blocks by name, and that of the noise of a Gaussian response (None for other families)."""

    blocks: dict[str, BlockPrior]
    noise: float | Scale | None

    @property
    def mean(self) -> Array:
        """Prior mean of every effect, in the order of the design's columns."""
        return np.concatenate([block.mean for block in self.blocks.values()])

    @property
    def sd(self) -> list[Any]:
        """Prior sd of every effect, numbers and unknown scales."""
        return [entry for block in self.blocks.values() for entry in block.entries()]

    @property
    def unknown(self) -> dict[str, Scale]:
        """The unknown scales by the name of their block, and "noise"."""
        found = {name: block.sd for name, block in self.blocks.items() if isinstance(block.sd, Scale)}
        return {**found, **({NOISE: self.noise} if isinstance(self.noise, Scale) else {})}

    def __str__(self) -> str:
        lines = [(name, _shown(block)) for name, block in self.blocks.items()]
        if self.noise is not None:
            lines.append((NOISE, f"sd {_number(self.noise)}"))
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of every column of a design, weighted by the cases."""

    mean: Array
    sd: Array

    @property
    def spread(self) -> Array:
        """What one unit of a column is measured in: its sd; its size where it is constant; 1 where it is zero."""
        return np.where(self.sd > 1e-10 * np.abs(self.mean), self.sd, np.where(self.mean == 0, 1.0, np.abs(self.mean)))


def moments(matrix: Any, weights: Array | None) -> Moments:
    """Return the weighted mean and sd of each column, with all the weights equal when left out."""
    share = np.full(matrix.shape[0], 1 / matrix.shape[0]) if weights is None else weights / weights.sum()
    W = as_weights(matrix).in_double()
    mean = W.adjoint(share).astype(np.float64)
    if W.dense or W.chunks is not None:
        variance = W.sum_over_rows(_squares_about, share, shared=(mean,))
    else:
        variance = W.square().adjoint(share) - mean**2
    return Moments(mean, np.sqrt(np.maximum(variance, 0)))


def _squares_about(weights: Weights, share: Array, mean: Array) -> Array:
    """Return ``sum_i share_i (w_ij - mean_j)^2`` for each column, some rows at a time."""
    total = np.zeros(len(mean))
    for rows in blocks_of(len(share), 24 * len(mean)):
        total += share[rows] @ (weights.dense_rows(rows) - mean) ** 2
    return total


def _sums_of_rows(matrix: Any, columns: slice) -> Array:
    """Return the sum of some columns in each row, as one column."""
    inside = np.zeros(matrix.shape[1])
    inside[columns] = 1
    return np.asarray(as_weights(matrix).forward(inside)).reshape(-1, 1)


def default_priors(
    design: Design, matrix: Any, centre: float, unit: float, weights: Array | None, noise: float | Scale | None
) -> Priors:
    """Return the defaults: ``centre`` is the mean response on the scale of the predictor, ``unit`` is s above.

    ``matrix`` is an array, a sparse matrix, or weights in chunks.
    """
    fixed = moments(matrix, weights)
    found = Moments(fixed.mean[: design.n_fixed], fixed.sd[: design.n_fixed])
    width = WIDTH * unit / found.spread
    blocks = {}
    for block in design.fixed:
        mean, sd = np.zeros(block.size), width[block.columns]
        if block.name == INTERCEPT:
            others = np.delete(width * found.mean, block.columns.start)
            mean, sd = np.full(1, centre), np.full(1, np.hypot(WIDTH * unit, np.linalg.norm(others)))
        blocks[block.name] = BlockPrior(mean, sd)
    for term in design.grouped:
        for block in term.blocks:
            # One entry of the expression's column in each row, so the rows' sums are that column.
            column = _sums_of_rows(matrix, block.columns)
            scale = HalfNormal(float(WIDTH * unit / moments(column, weights).spread[0]))
            blocks[block.name] = BlockPrior(np.zeros(block.size), scale)
    return Priors(blocks, noise)


def default_noise(matrix: Any, y: Array, unit: float, weights: Array | None) -> float | Scale:
    """Return the prior of the noise's sd, or ``NO_NOISE s`` where a linear predictor fits all cases exactly.

    The evidence of more cases than the design has rank then grows beyond all bounds as the noise goes to 0, so that
    there is nothing to learn of it. A case weight is that many cases.
    """
    n, m = matrix.shape
    cases = n if weights is None else float(np.sum(weights))
    for rows in (slice(0, 2 * m + 20), slice(0, n)):
        residual, rank = _least_squares(matrix[rows], y[rows])
        if cases <= rank or residual > EXACT * unit:
            return HalfStudentT(NOISE_DF, WIDTH * unit)
    return NO_NOISE * unit


def _least_squares(matrix: Any, y: Array) -> tuple[float, int]:
    """Return the root mean square that least squares leave, and the rank; of a large sparse matrix at most it."""
    is_sparse = bool(scipy.sparse.issparse(matrix))
    rank = min(matrix.shape)
    if isinstance(matrix, scipy.sparse.linalg.LinearOperator) or (is_sparse and np.prod(matrix.shape) > SMALL):
        found = scipy.sparse.linalg.lsqr(matrix, y, atol=1e-12, btol=1e-12)[0]
    else:
        matrix = matrix.toarray() if is_sparse else matrix
        found, _, rank, _ = np.linalg.lstsq(matrix, y)
    return float(np.sqrt(np.mean((y - matrix @ found) ** 2))), int(rank)


def set_priors(
    defaults: Priors, design: Design, given: Mapping[str, Any] | str | None, cases: float = np.inf
) -> Priors:  # fmt: skip
    """Return the priors with those that were given by the name of a term, of a column, "fixed" or "noise".

    A number is an sd around 0, a pair ``(mean, sd)``; a scale such as ``HalfNormal(1.0)`` is an unknown sd that the
    columns of the term share. "flat" makes all fixed effects as wide as makes no difference, and the noise too where
    these effects alone explain the ``cases`` and are fewer: with groups it could go to 0.
    """
    if isinstance(given, str):
        if given != "flat":
            raise ArgumentError(f"prior must be a dictionary by the names of terms, or 'flat'; got {given!r}.")
        given = dict.fromkeys((block.name for block in design.fixed), "flat")
        if isinstance(defaults.noise, Scale) and not design.grouped and cases > design.n_fixed:
            given[NOISE] = "flat"
    if not isinstance(given, Mapping | None):
        raise ArgumentError(f"prior must be a dictionary by the names of terms, or 'flat'; got {given!r}.")
    blocks, noise = dict(defaults.blocks), defaults.noise
    fixed = {block.name: block for block in design.fixed}
    columns = {name: place for place, name in enumerate(design.fixed_names)}
    for name, value in (given or {}).items():
        if name in blocks and (name == FIXED or (name == NOISE and noise is not None)):
            raise ArgumentError(
                f"prior[{name!r}] has two meanings here: a column is called {name!r}. Rename the column."
            )
        if name == NOISE and noise is not None:
            noise = _noise(value, noise)
        elif name == FIXED:
            for other in fixed:
                if other != INTERCEPT:
                    blocks[other] = _block_prior(other, value, blocks[other])
        elif name in blocks:
            blocks[name] = _block_prior(name, value, blocks[name])
        elif name in columns:
            owner = next(block for block in design.fixed if block.columns.start <= columns[name] < block.columns.stop)
            blocks[owner.name] = _with_column(blocks[owner.name], columns[name] - owner.columns.start, name, value)
        else:
            known = [*blocks, *columns, FIXED, *([] if noise is None else [NOISE])]
            raise unknown_name("A name in prior", name, known)
    return Priors(blocks, noise)


def _noise(value: Any, default: float | Scale) -> float | Scale:
    """Return the prior of the noise; "flat" is all but flat in its logarithm, which makes a Student t of an effect."""
    if isinstance(value, str) and value == "flat" and isinstance(default, HalfStudentT):
        return InverseGamma(1 / FLAT, (default.scale / FLAT) ** 2)
    return _scale(NOISE, value)


def _block_prior(name: str, value: Any, default: BlockPrior) -> BlockPrior:
    if isinstance(value, str) and value == "flat" and not isinstance(default.sd, Scale):
        return BlockPrior(default.mean, FLAT * default.sd)
    mean, sd = _mean_and_sd(name, value)
    size = len(default.mean)
    return BlockPrior(np.full(size, mean), sd if isinstance(sd, Scale) else np.full(size, sd))


def _with_column(block: BlockPrior, place: int, name: str, value: Any) -> BlockPrior:
    """Return the prior of a block with that of one column set."""
    mean, sd = _mean_and_sd(name, value)
    if isinstance(sd, Scale) or isinstance(block.sd, Scale):
        raise ArgumentError(f"prior[{name!r}] must be a number or (mean, sd); unknown scales are set for whole terms.")
    means, sds = block.mean.copy(), block.sd.copy()
    means[place], sds[place] = mean, sd
    return BlockPrior(means, sds)


def _mean_and_sd(name: str, value: Any) -> tuple[float, float | Scale]:
    """Return what was given as a prior: an sd, a pair, a Gaussian, or a Prior."""
    if isinstance(value, Prior) and isinstance(value.family, Gaussian):
        return float(value.bias), float(value.family.sd)
    if isinstance(value, Gaussian):
        return 0.0, float(value.sd)
    if isinstance(value, tuple) and len(value) == 2 and is_number(value[0]) and np.isfinite(value[0]):
        return float(value[0]), _scale(name, value[1])
    return 0.0, _scale(name, value)


def _scale(name: str, value: Any) -> float | Scale:
    if isinstance(value, Scale):
        return value
    if is_number(value) and 0 < value < np.inf:
        return float(value)
    raise ArgumentError(
        f"prior[{name!r}] must be an sd above 0, {'' if name == NOISE else 'a pair (mean, sd), '}or a scale such as "
        f"forestmix.scales.HalfNormal(1.0); got {value!r}."
    )


def _shown(block: BlockPrior) -> str:
    """Return a prior in a few words: the range of the sds where columns differ."""
    if isinstance(block.sd, Scale):
        return f"N(0, sd^2), sd {_number(block.sd)}"
    low, high = block.sd.min(), block.sd.max()
    sd = f"{low:.4g}" if np.isclose(low, high) else f"{low:.4g} to {high:.4g}"
    return f"N({block.mean[0]:.4g}, sd^2), sd = {sd}"


def _number(scale: float | Scale) -> str:
    """Return a scale with four digits of its parameters."""
    if not isinstance(scale, Scale):
        return f"= {scale:.4g}"
    values = ", ".join(f"{getattr(scale, name):.4g}" if is_number(getattr(scale, name)) else str(getattr(scale, name))
                       for name in scale.parameters())  # fmt: skip
    return f"~ {type(scale).__name__}({values})"
