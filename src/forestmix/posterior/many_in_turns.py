"""Many observations where W is in chunks too: its workers are asked for one chunk of observations after another.

A task on a worker cannot ask the other workers for their chunks of W, so this process takes the turns. It has one chunk
of x at a time in its memory; the results are here, or in a folder of Zarr's (``many_files.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import between_zero_and_one, one_of
from forestmix.model import DEF, observations
from forestmix.posterior.many import (
    NUMBERS,
    Infer,
    LayerArrays,
    MappedPosterior,
    MappedResult,
    blocks_of_observations,
)  # fmt: skip
from forestmix.posterior.result import KINDS, Result

#: Makes the result of one chunk of observations.
Made = Callable[[], Result]


class ResultInTurns(MappedResult):
    """The outcome for observations whose chunks were inferred one after another, when ``infer`` was called."""

    def __init__(
        self, model: DEF, layers: Sequence[LayerArrays], numbers: dict[str, Any], made: Sequence[Made]
    ) -> None:
        super().__init__(model, layers, numbers, ())
        self._made = tuple(made)

    def posterior(self, kind: str = "corrected", *, tol: float = 0.01, rng: int = 0) -> PosteriorInTurns:
        """Return the posterior to report; it asks the chunks of W, so each chunk of observations has its turn."""
        one_of("kind", kind, KINDS)
        between_zero_and_one("tol", tol)
        return PosteriorInTurns(self.model, [partial(_posterior_of, one, kind, tol, rng) for one in self._made])

    def persist(self) -> ResultInTurns:
        """Return this: the chunks have been inferred."""
        return self


class PosteriorInTurns(MappedPosterior):
    """The posterior of such observations: ``interval`` and ``map`` take a turn of each chunk too, when they are called.

    No more than the posterior of one chunk of observations is in memory: its factors are far larger than its moments.
    """

    def __init__(self, model: DEF, made: Sequence[Callable[[], Any]]) -> None:
        self.model, self._in_turn = model, tuple(made)
        found = [[(layer.mean, layer.sd) for layer in one().layers] for one in self._in_turn]
        self.layers = tuple(LayerArrays(*map(_whole, zip(*layer, strict=True))) for layer in zip(*found, strict=True))

    def interval(self, level: float = 0.9, layer: int = 0) -> tuple[Any, Any]:
        """Return both ends of the central interval of each latent of a layer, (N, m)."""
        between_zero_and_one("level", level)
        low, high = map(_whole, zip(*(one().layers[layer].interval(level) for one in self._in_turn), strict=True))
        return low, high

    def map(self, function: Callable[[Any], Any], shape: tuple[int, ...] = (), dtype: Any = np.float64) -> Any:
        """Return what a function gives for the ``Posterior`` of each chunk, (N, *shape)."""
        counts = self.counts
        parts = [
            np.asarray(function(one()), dtype).reshape(count, *shape)
            for one, count in zip(self._in_turn, counts, strict=True)
        ]
        return _whole(parts)


def inferred_in_turns(model: DEF, x: Any, run: Infer) -> ResultInTurns:
    """Infer the chunks of a Dask array (N, n), one after another, and return what they come to."""
    blocks, _ = blocks_of_observations(x)
    found = [_without_data(run(model, computed(block))) for block in blocks]
    numbers = {name: _whole([np.asarray(getattr(one, name)) for one in found]) for name in NUMBERS}
    layers = [
        LayerArrays(*(_whole([getattr(one.layers[k], name) for one in found]) for name in ("mean", "sd")))
        for k in range(len(model.latent_sizes))
    ]
    made = [partial(_with_data, one, model, block) for one, block in zip(found, blocks, strict=True)]
    return ResultInTurns(model, layers, numbers, made)


def inferred_again(run: Infer, model: DEF, block: Any) -> Result:
    """Return the result of a chunk of observations of which a file has the moments only."""
    return run(model, computed(block))


def computed(block: Any) -> Array:
    """Return a delayed chunk of observations."""
    return np.asarray(block.compute())


def _without_data(found: Result) -> Result:
    """Return a result without its observations, which are read again where they are asked for."""
    return found if found.joint is not None else replace(found, data=None)  # type: ignore[arg-type]


def _with_data(found: Result, model: DEF, block: Any) -> Result:
    return found if found.joint is not None else replace(found, data=observations(model, computed(block)))


def _posterior_of(made: Made, kind: str, tol: float, rng: int) -> Any:
    return made().posterior(kind, tol=tol, rng=rng)


def _whole(parts: Sequence[Any]) -> Any:
    """Return arrays as the chunks of one Dask array."""
    import dask.array

    return dask.array.concatenate([dask.array.from_array(np.asarray(part), chunks=-1) for part in parts])
