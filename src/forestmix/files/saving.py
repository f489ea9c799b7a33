"""``save`` and ``load``: an object to a file and back, and all codecs that there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from forestmix.checks import one_of
from forestmix.errors import ArgumentError, ForestmixError, MissingExtraError
from forestmix.files import models, results
from forestmix.files import weights as of_weights
from forestmix.files.codec import Codec, Reader, Writer
from forestmix.files.container import open_file, write_file, xarray_library
from forestmix.files.seal import FORMAT, FileError

#: What a file may hold, as the tree calls it.
TOP = ("model", "result", "posterior", "posterior of each", "fit", "fit without rows", "forest mixture model")


def all_codecs(*, reference: bool = False, given: Any = None) -> tuple[Codec, ...]:
    """Return the codecs of every type.

    Args:
        reference: whether weights are written as references.
        given: the weights that references are to be read as.

    """
    from forestmix.files import regressions

    own = (*models.CODECS, *results.CODECS, *regressions.CODECS, *of_weights.codecs(reference, given))
    try:
        from forestmix.files import forests
    except MissingExtraError:  # without scikit-learn there are no forest mixtures
        return own
    return (*own, *forests.CODECS)


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


def load(path: str | os.PathLike[str], weights: Any = None) -> Any:
    """Return what ``save`` wrote to a file: a ``Result``, ``Posterior``, ``Fit``, ``DEF`` or ``ForestMixtureModel``.

    Nothing in a file is ever run. A file that was cut or changed, or that another program wrote, is an error.

    Args:
        path: the file.
        weights: W, for a file that was saved with ``weights="reference"``; a list of them for a deep model. They must
            be those that the file was saved with, which is checked.

    """
    path = Path(path)
    codecs = all_codecs(given=weights)
    with open_file(path) as (tree, arrays, _):
        kind = tree.get("kind") if isinstance(tree, dict) else None
        if kind not in TOP:
            raise FileError(f"{path} holds {kind!r}, which this version of forestmix cannot load.")
        if kind not in {codec.kind for codec in codecs}:
            raise FileError(f"{path} holds a {kind}, which needs scikit-learn: pip install 'forestmix[forest]'.")
        try:
            return Reader(codecs, arrays).read(tree)
        except ForestmixError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
            raise FileError(f"{path} does not describe a {kind} that can be built: {error!r}.") from error
