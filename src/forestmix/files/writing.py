"""``save``: an object to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from forestmix.checks import one_of
from forestmix.errors import ArgumentError
from forestmix.files.codec import Writer
from forestmix.files.container import write_file, xarray_library
from forestmix.files.registry import TOP, all_codecs
from forestmix.files.seal import FORMAT


def save(obj: Any, path: str | os.PathLike[str], weights: str = "inside") -> None:
    """Write an object to a NetCDF-4 file, from which ``forestmix.load`` returns an equal one.

    The file is written beside ``path`` and put in its place when it is whole, so a file that stands there is replaced
    or left as it was.

    Args:
        obj: a ``Result``, ``Posterior``, ``Fit``, ``DEF`` or ``ForestMixtureModel``.
        path: where to; ``.nc`` is the usual ending.
        weights: "inside" writes W too; "reference" only its checksum, and ``load(path, weights=W)`` needs it.

    """
    reference = one_of("weights", weights, ("inside", "reference")) == "reference"
    xarray_library()
    writer = Writer(all_codecs(reference=reference))
    tree = writer.write(obj, type(obj).__name__.lower())
    kind = tree.get("kind") if isinstance(tree, dict) else None
    if kind not in TOP:
        raise ArgumentError(
            f"obj must be a Result, a Posterior, a Fit, a DEF or a ForestMixtureModel; got {type(obj).__name__}."
        )
    write_file(Path(path), tree, writer.arrays, _attributes(kind))


def _attributes(kind: str) -> dict[str, Any]:
    # At first use: to import it takes half as long as to import NumPy.
    from importlib.metadata import version

    return {
        "title": f"forestmix {kind}",
        "kind": kind,
        "format_version": FORMAT,
        "forestmix_version": version("forestmix"),
    }
