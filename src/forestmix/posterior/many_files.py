"""Many observations to Zarr, chunk by chunk: nobody holds more than one, and a run that was killed goes on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from forestmix.arrays import Array
from forestmix.errors import ArgumentError, optional
from forestmix.inference.checkpoint import same_probes
from forestmix.inference.progress import NoProgress
from forestmix.inference.status import Status
from forestmix.model import DEF
from forestmix.posterior.many import NUMBERS, LayerArrays, MappedResult, named_moments
from forestmix.posterior.many_chunks import Infer, tasks_of, turns_of

#: Statuses by their codes in a file, and the code of an observation that is still to come.
STATUSES, PENDING = tuple(Status), 255


def inferred_to_zarr(
    model: DEF, x: Any, run: Infer, path: Any, identity: tuple[str, list[Array]], meter: NoProgress, *, in_turns: bool
) -> MappedResult:
    """Infer the chunks of a Dask array and write each to a folder in Zarr's format; return what is there at the end.

    Chunks that the folder has already are not inferred again. ``identity``: a digest of model and options, and products
    with the weights, which a folder that is there must have too (``inference.checkpoint``). ``in_turns``: chunks are
    inferred by this process, one after another (``many_chunks.py``).
    """
    x = _evenly_chunked(x)
    chunks = turns_of(run, model, x, keep=False) if in_turns else tasks_of(run, model, x)
    group = _opened(model, path, chunks.counts, identity)
    spans = list(pairwise([0, *accumulate(chunks.counts)]))
    pending = [k for k, (a, b) in enumerate(spans) if (group["status"][a:b] == PENDING).any()]
    written = {k: partial(_write_chunk, path=str(path), start=spans[k][0]) for k in pending}
    for done, _ in enumerate(chunks.each(written), start=len(spans) - len(pending) + 1):
        meter.share(f"{done} of {len(spans)} chunks of observations", done / len(spans))
    return MappedResult(model, *_read(model, path), chunks)


def write_arrays(path: Any, arrays: dict[str, Any]) -> None:
    """Write Dask arrays of one graph to a folder in Zarr's format, chunk by chunk."""
    import dask.array

    group = _zarr().open_group(str(path), mode="w")
    sources = [one.map_blocks(codes_of, dtype="u1") if one.dtype == object else one for one in arrays.values()]
    targets = [
        _created(group, name, one.shape, max(one.chunks[0]), one.dtype)
        for name, one in zip(arrays, sources, strict=True)
    ]
    _describe(group)
    # Chunks of observations that are uneven may share one of Zarr's, which takes one writer at a time.
    dask.array.store(sources, targets, lock=True)


def codes_of(statuses: Array) -> Array:
    """Return statuses as their codes."""
    return np.array([STATUSES.index(one) for one in statuses], np.uint8)


def statuses_of(codes: Array) -> Array:
    """Return codes as the statuses that they stand for."""
    return np.array(STATUSES, dtype=object)[codes]


def _write_chunk(outcome: Any, path: str, start: int) -> int:
    """Write the outcome of one chunk, its statuses last: they say that the rest is there."""
    group, numbers = _zarr().open_group(path, mode="r+"), {name: np.asarray(getattr(outcome, name)) for name in NUMBERS}
    moments = named_moments([(layer.mean, layer.sd) for layer in outcome.layers])
    rows = slice(start, start + len(numbers["objective"]))
    for name, values in {**moments, **{name: numbers[name] for name in NUMBERS if name != "status"}}.items():
        group[name][rows] = values
    group["status"][rows] = codes_of(numbers["status"])
    return rows.stop - rows.start


def _evenly_chunked(x: Any) -> Any:
    """Return observations in chunks of one size but for the last, as Zarr has them."""
    counts = x.chunks[0]
    if np.isnan(counts[0]):
        x = x.compute_chunk_sizes()
        counts = x.chunks[0]
    even = all(count == counts[0] for count in counts[:-1]) and counts[-1] <= counts[0]
    return x if even else x.rechunk({0: max(counts)})


def _opened(model: DEF, path: Any, counts: Sequence[int], identity: tuple[str, list[Array]]) -> Any:
    """Return the group of arrays at a path: a new one, or one that was left there by the same call."""
    group, (digest, probes), total = _zarr().open_group(str(path), mode="a"), identity, sum(counts)
    if "digest" in group.attrs:
        found = [np.asarray(group[f"probe_{k}"]) for k in range(len(probes)) if f"probe_{k}" in group]
        alike = group.attrs["digest"] == digest and same_probes(found, probes) and group["status"].shape == (total,)
        if not alike or group["status"].chunks != (counts[0],):
            raise ArgumentError(
                f"out must be a new folder, or one of the same model, options and chunks of x; {path} is of others."
            )
        return group
    if len(list(group.keys())):
        raise ArgumentError(f"out must be a new folder, or one that infer wrote; {path} holds something else.")
    moments = named_moments([(((total, size), model.dtype),) * 2 for size in model.latent_sizes])
    shapes = {**moments, **{name: ((total,), kind) for name, kind in NUMBERS.items()}}
    for name, (shape, kind) in shapes.items():
        _created(group, name, shape, counts[0], np.uint8 if name == "status" else kind)
    for k, probe in enumerate(probes):
        names = (f"column_{k}",)
        group.create_array(f"probe_{k}", shape=probe.shape, dtype=probe.dtype, dimension_names=names)[...] = probe
    _describe(group)
    group.attrs["digest"] = digest
    return group


def _created(group: Any, name: str, shape: tuple[int, ...], each: int, kind: Any) -> Any:
    """Return a new array in chunks of ``each`` observations, with dimensions that xarray reads."""
    own = {"mean": "latent", "sd": "latent"}.get(name.partition("_")[0], "") + name.partition("_")[2]
    names = ("observation", own)[: len(shape)]
    return group.create_array(
        name, shape=shape, chunks=(each, *shape[1:]), dtype=np.dtype(kind), dimension_names=names,
        fill_value=PENDING if name == "status" else 0,
    )  # fmt: skip


def _describe(group: Any) -> None:
    group.attrs["statuses"] = [status.name for status in STATUSES]


def _read(model: DEF, path: Any) -> tuple[list[LayerArrays], dict[str, Any]]:
    """Return what a folder has as Dask arrays, which read it when they are asked for: of each layer, and numbers."""
    import dask.array

    def array(name: str) -> Any:
        return dask.array.from_zarr(str(path), component=name)

    numbers = {name: array(name) for name in NUMBERS}
    numbers["status"] = numbers["status"].map_blocks(statuses_of, dtype=object)
    names = list(named_moments([("", "")] * len(model.latent_sizes)))
    layers = [LayerArrays(array(mean), array(sd)) for mean, sd in zip(names[::2], names[1::2], strict=True)]
    return layers, numbers


def _zarr() -> Any:
    return optional("zarr", "Arrays of Zarr need it: pip install 'forestmix[zarr]'.")
