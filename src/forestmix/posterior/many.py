"""Many observations: the chunks of a Dask array are inferred one by one, and their results are Dask arrays.

``many_chunks.py`` says where that is done; ``many_files.py`` writes the results to Zarr instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import between_zero_and_one, one_of
from forestmix.errors import ForestmixError
from forestmix.inference.status import Status
from forestmix.model import DEF
from forestmix.posterior.many_chunks import Chunks, Infer, Part, Turns, tasks_of, turns_of
from forestmix.posterior.result import KINDS, Result
from forestmix.posterior.scale_terms import scale_names
from forestmix.weights.dask_chunks import is_dask

#: What there is for each observation beside the moments of its latents.
NUMBERS = {"objective": np.float64, "converged": np.bool_, "n_iter": np.int64, "status": np.object_}


@dataclass(frozen=True)
class LayerArrays:
    """Moments of one layer of latents, as Dask arrays (N, m), or of one unknown scale, (N,)."""

    mean: Any
    sd: Any


class MappedMoments:
    """Moments of latents as Dask arrays in chunks of observations; nothing is computed until somebody asks."""

    def __init__(self, layers: Sequence[LayerArrays]) -> None:
        self.layers = tuple(layers)

    @property
    def mean(self) -> Any:
        """Means of the one latent layer, a Dask array (N, m); deep models have them in ``layers``."""
        return self._only("mean").mean

    @property
    def sd(self) -> Any:
        """Standard deviations, likewise."""
        return self._only("sd").sd

    @property
    def counts(self) -> tuple[int, ...]:
        """How many observations each chunk has."""
        return tuple(self.layers[0].mean.chunks[0])

    def arrays(self) -> dict[str, Any]:
        """Return all arrays, by their names in a file: ``mean`` and ``sd``, or ``mean_0``, ``sd_0``, ..."""
        return named_moments([(layer.mean, layer.sd) for layer in self.layers])

    def to_zarr(self, path: Any) -> None:
        """Write all arrays to a folder in Zarr's format, chunk by chunk; each observation is inferred once."""
        from forestmix.posterior.many_files import write_arrays

        write_arrays(path, self.arrays())

    def _only(self, name: str) -> LayerArrays:
        if len(self.layers) > 1:
            raise ForestmixError(f"{name} is for models with one latent layer. Use layers[k].{name}, k = 0 the lowest.")
        return self.layers[0]


class MappedResult(MappedMoments):
    """The outcome of ``infer`` for observations in a Dask array: what ``Result`` has, in Dask arrays.

    ``objective``, ``converged``, ``status`` and ``n_iter`` are (N,), ``mean`` and ``sd`` (N, m). ``dask.compute`` of
    several of them infers each chunk once; ``persist()`` leaves the outcomes with the workers, ``to_zarr`` on disk.
    """

    def __init__(self, model: DEF, layers: Sequence[LayerArrays], numbers: dict[str, Any], chunks: Chunks) -> None:
        super().__init__(layers)
        self.model = model
        self.objective, self.converged = numbers["objective"], numbers["converged"]
        self.n_iter, self.status = numbers["n_iter"], numbers["status"]
        self._chunks = chunks
        self.shared: dict[str, Any] = {}

    @cached_property
    def message(self) -> str:
        """How many observations ended how, for which all are inferred."""
        kinds, counts = np.unique([one.name for one in self.status.compute()], return_counts=True)
        total = int(np.sum(counts))
        pairs = zip(kinds, counts, strict=True)
        return "\n".join(f"{count} of {total} observations: {Status[kind].value}" for kind, count in pairs)

    @property
    def scales(self) -> dict[str, Any]:
        """Unknown scales by name: moments of each observation's own, as Dask arrays (N,); posteriors of shared ones."""
        if self.shared:
            return self.shared

        def moments(name: str) -> LayerArrays:
            parts = [Part(partial(_scale_moment, name=name, part=part), (), np.float64) for part in ("mean", "sd")]
            return LayerArrays(*self._chunks.arrays(parts))

        return {name: moments(name) for name in scale_names(self.model)}

    def posterior(self, kind: str = "corrected", *, tol: float = 0.01, rng: int = 0) -> MappedPosterior:
        """Return the posterior to report, as Dask arrays; the arguments are those of ``Result.posterior``."""
        one_of("kind", kind, KINDS)
        between_zero_and_one("tol", tol)
        return MappedPosterior(self.model, self._chunks.posteriors(self.model, kind, tol, rng))

    def persist(self) -> MappedResult:
        """Infer all chunks, and leave what they come to with the workers; in memory where there are none."""
        if isinstance(self._chunks, Turns):  # have been inferred
            return self
        chunks = self._chunks.persist()
        kept = MappedResult(self.model, *parts_of(self.model, chunks), chunks)
        kept.shared = self.shared
        return kept

    def arrays(self) -> dict[str, Any]:
        """Return all arrays by name."""
        return {**super().arrays(), **{name: getattr(self, name) for name in NUMBERS}}

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, self.model.latent_sizes))
        return f"<MappedResult of {len(self.objective)} observations in {len(self.counts)} chunks, {sizes} latents>"


class MappedPosterior(MappedMoments):
    """The posterior of observations in a Dask array: means, standard deviations and intervals, chunk by chunk."""

    def __init__(self, model: DEF, chunks: Chunks) -> None:
        super().__init__(_layers(model, chunks))
        self.model, self._chunks = model, chunks

    def interval(self, level: float = 0.9, layer: int = 0) -> tuple[Any, Any]:
        """Return both ends of the central interval of each latent of a layer, as Dask arrays (N, m)."""
        between_zero_and_one("level", level)
        shape = (self.model.latent_sizes[layer],)
        ends = [partial(_interval_end, layer=layer, level=level, end=end) for end in (0, 1)]
        low, high = self._chunks.arrays([Part(end, shape, self.model.dtype) for end in ends])
        return low, high

    def map(self, function: Callable[[Any], Any], shape: tuple[int, ...] = (), dtype: Any = np.float64) -> Any:
        """Return what a function gives for the ``Posterior`` of each chunk, as a Dask array (N, *shape).

        Predictions, leave-one-out and draws of observations are had by it (docs/scaling.md).
        """
        (found,) = self._chunks.arrays([Part(function, tuple(shape), np.dtype(dtype))])
        return found


def is_dask_batch(x: Any) -> bool:
    """Return whether data are a Dask array of two axes, which is then not loaded whole."""
    return is_dask(x) and hasattr(x, "to_delayed") and hasattr(x, "chunks") and getattr(x, "ndim", 0) == 2


def mapped_result(model: DEF, x: Any, run: Infer, *, in_turns: bool) -> MappedResult:
    """Return the inference of a Dask array (N, n), chunked by observations; ``in_turns`` it is done at once."""
    chunks = turns_of(run, model, x, keep=True) if in_turns else tasks_of(run, model, x)
    return MappedResult(model, *parts_of(model, chunks), chunks)


def named_moments(layers: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Return means and standard deviations of layers by name."""
    if len(layers) == 1:
        return dict(zip(("mean", "sd"), layers[0], strict=True))
    pairs = enumerate(layers)
    return {f"{name}_{k}": part for k, layer in pairs for name, part in zip(("mean", "sd"), layer, strict=True)}


def parts_of(model: DEF, chunks: Chunks) -> tuple[list[LayerArrays], dict[str, Any]]:
    """Return the moments of each layer of results, and the numbers of ``NUMBERS``."""
    numbers = chunks.arrays([Part(attrgetter(name), (), kind) for name, kind in NUMBERS.items()])
    return _layers(model, chunks), dict(zip(NUMBERS, numbers, strict=True))


def _layers(model: DEF, chunks: Chunks) -> list[LayerArrays]:
    """Return the moments of each layer, of results or posteriors."""
    moments = [
        Part(partial(_moment, layer=k, name=name), (size,), model.dtype)
        for k, size in enumerate(model.latent_sizes)
        for name in ("mean", "sd")
    ]
    arrays = chunks.arrays(moments)
    return [LayerArrays(mean, sd) for mean, sd in zip(arrays[::2], arrays[1::2], strict=True)]


def _moment(held: Any, layer: int, name: str) -> Array:
    return np.asarray(getattr(held.layers[layer], name))


def _scale_moment(result: Result, name: str, part: str) -> Array:
    return np.array([getattr(one, part) for one in result.scales[name]])


def _interval_end(posterior: Any, layer: int, level: float, end: int) -> Array:
    return np.asarray(posterior.layers[layer].interval(level)[end])
