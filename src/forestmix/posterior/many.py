"""Many observations: the chunks of a Dask array are inferred one by one, wherever Dask runs them.

Each chunk of observations is one task, and what it comes to stays where it was computed, as a chunk of Dask arrays.
``many_files.py`` writes it to Zarr instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from forestmix.arrays import Array
from forestmix.checks import between_zero_and_one, one_of
from forestmix.errors import ForestmixError
from forestmix.inference.status import Status
from forestmix.model import DEF
from forestmix.posterior.result import KINDS, Result
from forestmix.posterior.scale_terms import scale_names
from forestmix.weights.dask_chunks import is_dask

#: What there is for each observation beside the moments of its latents.
NUMBERS = {"objective": np.float64, "converged": np.bool_, "n_iter": np.int64, "status": np.object_}

#: ``infer`` with its options.
Infer = Callable[[DEF, Any], Result]


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

    def __init__(self, model: DEF, layers: Sequence[LayerArrays], numbers: dict[str, Any], outcomes: Any) -> None:
        super().__init__(layers)
        self.model = model
        self.objective, self.converged = numbers["objective"], numbers["converged"]
        self.n_iter, self.status = numbers["n_iter"], numbers["status"]
        self._outcomes = tuple(outcomes)
        self.shared: dict[str, Any] = {}

    @classmethod
    def of(cls, model: DEF, outcomes: Sequence[Any], counts: Sequence[int]) -> Self:
        """Return the arrays of delayed outcomes, each of so many observations."""
        numbers = {name: _array(outcomes, counts, (), kind, _field, name) for name, kind in NUMBERS.items()}
        return cls(model, _layers(model, outcomes, counts), numbers, outcomes)

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

        def moments(name: str, part: str) -> Any:
            return _array(self._outcomes, self.counts, (), np.float64, _scale_moment, name, part)

        return {name: LayerArrays(moments(name, "mean"), moments(name, "sd")) for name in scale_names(self.model)}

    def posterior(self, kind: str = "corrected", *, tol: float = 0.01, rng: int = 0) -> MappedPosterior:
        """Return the posterior to report, as Dask arrays; the arguments are those of ``Result.posterior``."""
        one_of("kind", kind, KINDS)
        between_zero_and_one("tol", tol)
        made, model = delayed(_posterior_of), constant(self.model)
        return MappedPosterior(self.model, [made(one, model, kind, tol, rng) for one in self._outcomes], self.counts)

    def persist(self) -> MappedResult:
        """Infer all chunks, and leave what they come to with the workers; in memory where there are none."""
        import dask

        kept = MappedResult.of(self.model, dask.persist(*self._outcomes), self.counts)
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

    def __init__(self, model: DEF, posteriors: Sequence[Any], counts: Sequence[int]) -> None:
        super().__init__(_layers(model, posteriors, counts))
        self.model, self._posteriors = model, tuple(posteriors)

    def interval(self, level: float = 0.9, layer: int = 0) -> tuple[Any, Any]:
        """Return both ends of the central interval of each latent of a layer, as Dask arrays (N, m)."""
        between_zero_and_one("level", level)
        shape = (self.model.latent_sizes[layer],)
        ends = (
            _array(self._posteriors, self.counts, shape, self.model.dtype, _interval_end, layer, level, k)
            for k in (0, 1)
        )
        low, high = ends
        return low, high

    def map(self, function: Callable[[Any], Any], shape: tuple[int, ...] = (), dtype: Any = np.float64) -> Any:
        """Return what a function gives for the ``Posterior`` of each chunk, as a Dask array (N, *shape).

        Predictions, leave-one-out and draws of observations are had by it (docs/scaling.md).
        """
        return _array(self._posteriors, self.counts, tuple(shape), np.dtype(dtype), _applied, function)


def is_dask_batch(x: Any) -> bool:
    """Return whether data are a Dask array of two axes, which is then not loaded whole."""
    return is_dask(x) and hasattr(x, "to_delayed") and hasattr(x, "chunks") and getattr(x, "ndim", 0) == 2


def mapped_result(model: DEF, x: Any, run: Infer) -> MappedResult:
    """Return the inference of a Dask array (N, n), chunked by observations; nothing is computed yet."""
    blocks, counts = blocks_of_observations(x)
    shared, inferred = constant(model), delayed(outcome_of)
    return MappedResult.of(model, [inferred(run, shared, block) for block in blocks], counts)


def blocks_of_observations(x: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the chunks of a Dask array as delayed blocks of whole observations, and how many each has."""
    whole = x if len(x.chunks[1]) == 1 else x.rechunk({1: -1})
    if np.isnan(whole.shape[0]):
        whole = whole.compute_chunk_sizes()
    return list(whole.to_delayed()[:, 0]), tuple(int(count) for count in whole.chunks[0])


def outcome_of(run: Infer, model: DEF, block: Any) -> Result:
    """Return the result of one chunk without the model, which would travel with it."""
    return replace(run(model, np.asarray(block)), model=None)  # type: ignore[arg-type]


def named_moments(layers: Sequence[tuple[Any, Any]]) -> dict[str, Any]:
    """Return means and standard deviations of layers by name."""
    if len(layers) == 1:
        return dict(zip(("mean", "sd"), layers[0], strict=True))
    pairs = enumerate(layers)
    return {f"{name}_{k}": part for k, layer in pairs for name, part in zip(("mean", "sd"), layer, strict=True)}


def constant(value: Any) -> Any:
    """Return a task that returns a value: it reaches each worker once, and is made anew if a worker is lost."""
    import dask

    return dask.delayed(value, pure=False, traverse=False)


def delayed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose calls are tasks; what it is given is not looked into."""
    import dask

    made: Callable[..., Any] = dask.delayed(function, pure=False, traverse=False)
    return made


def _layers(model: DEF, held: Sequence[Any], counts: Sequence[int]) -> list[LayerArrays]:
    """Return the moments of each layer, of delayed results or posteriors."""

    def moments(layer: int, size: int, name: str) -> Any:
        return _array(held, counts, (size,), model.dtype, _moment, layer, name)

    sizes = enumerate(model.latent_sizes)
    return [LayerArrays(*(moments(k, size, name) for name in ("mean", "sd"))) for k, size in sizes]


def _array(
    held: Sequence[Any], counts: Sequence[int], shape: tuple[int, ...], kind: Any, part: Callable[..., Array],
    *which: Any,
) -> Any:  # fmt: skip
    """Return the Dask array whose chunks are a part of each of some delayed objects."""
    import dask.array

    taken = delayed(part)
    chunks = [
        dask.array.from_delayed(taken(one, *which), (count, *shape), dtype=kind)
        for one, count in zip(held, counts, strict=True)
    ]
    return dask.array.concatenate(chunks)


def _field(result: Result, name: str) -> Array:
    return np.asarray(getattr(result, name))


def _moment(held: Any, layer: int, name: str) -> Array:
    return np.asarray(getattr(held.layers[layer], name))


def _applied(posterior: Any, function: Callable[[Any], Any]) -> Array:
    return np.asarray(function(posterior))


def _scale_moment(result: Result, name: str, part: str) -> Array:
    return np.array([getattr(one, part) for one in result.scales[name]])


def _interval_end(posterior: Any, layer: int, level: float, end: int) -> Array:
    return np.asarray(posterior.layers[layer].interval(level)[end])


def _posterior_of(outcome: Result, model: DEF, kind: str, tol: float, rng: int) -> Any:
    """Return the posterior of one chunk."""
    return replace(outcome, model=model).posterior(kind, tol=tol, rng=rng)
