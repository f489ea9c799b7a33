"""Checkpoints: all that a run needs to go on, in one file that is always whole.

The file is an ``.npz`` archive of plain arrays and a description in JSON, so that to read one runs no code of its own.
It is written beside the old one and then put in its place, which is atomic: a run that is killed at any moment leaves
the last checkpoint or the one before. It holds the memory of the algorithm too, so a resumed run takes the same steps.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import time
import zipfile
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from reprlib import repr as shown
from typing import Any

import numpy as np

from forestmix.arrays import Array, host
from forestmix.errors import ArgumentError
from forestmix.inference.status import Status
from forestmix.model import DEF, Observations
from forestmix.saving import replacing

#: Changes with what is written.
FORMAT = 4
#: How far the products with W that identify it may be apart: another number of threads rounds them differently.
SAME = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-3}


class NoCheckpoint:
    """Keeps nothing."""

    def restore(self, run: Any) -> bool:
        """Return whether the run goes on from a checkpoint."""
        return False

    def save(self, run: Any, *, at_end: bool = False) -> None:
        """Write a checkpoint if one is due."""


class Checkpoint(NoCheckpoint):
    """A file that a run goes on from, and leaves its state in.

    Args:
        path: where it is; there need not be one yet.
        seconds: between two checkpoints; 0 writes one after every iteration.
        model: the model.
        data: the observations.
        algorithm: the algorithm, with its options.

    """

    def __init__(self, path: Any, seconds: float, model: DEF, data: Observations, algorithm: Any) -> None:
        if not isinstance(path, str | os.PathLike) or not Path(path).absolute().parent.is_dir():
            raise ArgumentError(f"checkpoint must be a path in a folder that exists; got {shown(path)}.")
        if any(layer.weights.on_device for layer in model.layers):
            raise ArgumentError("checkpoint must be None for W in an array of another library.")
        self.path, self.seconds, self.written = Path(path), seconds, time.monotonic()
        self.digest, self.probes = digest_of(model, data, algorithm), probes_of(model)

    def restore(self, run: Any) -> bool:
        """Put the run where the checkpoint was written; refuse one of another model, of other data or options."""
        if not self.path.exists():
            return False
        found = _read(self.path)
        if found["digest"] != self.digest or not same_probes(found["probes"], self.probes):
            raise ArgumentError(
                f"checkpoint must be of the same model, data and algorithm; {self.path} is of others. Remove the file, "
                "or give another path."
            )
        run.restore(found["run"])
        return True

    def save(self, run: Any, *, at_end: bool = False) -> None:
        """Write a checkpoint if the last one is old enough, or the run is at its end."""
        if at_end or time.monotonic() - self.written >= self.seconds:
            _write(self.path, {"digest": self.digest, "probes": self.probes, "run": run.state()})
            self.written = time.monotonic()


def _write(path: Path, tree: Any) -> None:
    """Write arrays and the description of a tree, atomically."""
    arrays: list[Array] = []
    described = json.dumps({"format": FORMAT, "tree": encode(tree, arrays)})
    named = {f"array{k}": array for k, array in enumerate(arrays)}
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez(file, allow_pickle=False, description=np.array(described), **named)


def _read(path: Path) -> Any:
    wrong = ArgumentError(f"checkpoint must be a file that infer wrote, or not exist; {path} is something else.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            described = json.loads(archive["description"].item())
            arrays = [archive[f"array{k}"] for k in range(len(archive.files) - 1)]
    except (OSError, ValueError, KeyError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise wrong from error
    if described.get("format") != FORMAT:
        raise ArgumentError(f"checkpoint must be of format {FORMAT}; {path} is of {described.get('format')!r}.")
    return decode(described["tree"], arrays)


def encode(value: Any, arrays: list[Array]) -> Any:
    """Return a description of a tree of numbers, arrays, containers and objects; arrays go to ``arrays``.

    Of a dataclass or a named tuple it has the fields; of other objects of forestmix, which identify a run and are not
    read again, all but weights.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Status):
        return {"status": value.name}
    if isinstance(value, dict):
        return {"dict": {key: encode(part, arrays) for key, part in value.items()}}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return {"objects": [encode(part, arrays) for part in value.ravel()]}
    names = _field_names(type(value))
    if names is None and type(value).__module__.startswith("forestmix.") and not hasattr(value, "__array__"):
        names = [name for name in vars(value) if name != "weights"]
    if names is not None:
        parts = {name: encode(getattr(value, name), arrays) for name in names}
        return {"class": f"{type(value).__module__}:{type(value).__qualname__}", "fields": parts}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [encode(part, arrays) for part in value]}
    if hasattr(value, "__array__"):
        arrays.append(np.asarray(value))
        return {"array": len(arrays) - 1}
    return value


def decode(described: Any, arrays: list[Array]) -> Any:
    """Return the tree of a description."""
    if not isinstance(described, dict):
        return described
    if "class" in described:
        return _made(described["class"], {name: decode(part, arrays) for name, part in described["fields"].items()})
    ((kind, content),) = described.items()
    if kind == "array":
        return arrays[content]
    if kind == "status":
        return Status[content]
    if kind == "dict":
        return {key: decode(part, arrays) for key, part in content.items()}
    parts = [decode(part, arrays) for part in content]
    return np.array(parts, object) if kind == "objects" else tuple(parts) if kind == "tuple" else parts


def _made(name: str, values: dict[str, Any]) -> Any:
    """Return an object of one of forestmix's own classes of fields, with these values."""
    module, _, label = name.partition(":")
    found = getattr(importlib.import_module(module), label, None) if module.startswith("forestmix.") else None
    if not isinstance(found, type) or _field_names(found) != list(values):
        raise ArgumentError(f"checkpoint must be of this version of forestmix; it has a {name}.")
    return found(**values)


def _field_names(kind: type) -> list[str] | None:
    """Return the names of the fields of a dataclass or a named tuple, ``None`` for anything else."""
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    return list(getattr(kind, "_fields", ())) or None


def digest_of(*values: Any) -> str:
    """Return a hash of everything in objects but their weights, which ``probes_of`` stands for."""
    arrays: list[Array] = []
    found = hashlib.sha256(json.dumps(encode(values, arrays), default=repr).encode())
    for array in arrays:
        found.update(f"{array.shape}{array.dtype}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def probes_of(model: DEF) -> list[Array]:
    """Return ``W^T r`` of each layer for a fixed r: one pass, wherever W is."""
    generator = np.random.default_rng(0)
    return [
        host(layer.weights.adjoint(generator.standard_normal(layer.size).astype(layer.dtype))) for layer in model.layers
    ]


def same_probes(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Return whether products that identify weights are of the same ones."""
    return len(first) == len(second) and all(map(_close, first, second))


def _close(first: Array, second: Array) -> bool:
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    size = max(float(np.max(np.abs(first))), float(np.max(np.abs(second))))
    return bool(np.max(np.abs(first - second)) <= SAME[first.dtype] * size)
