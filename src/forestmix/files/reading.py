"""``load``: an object from a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from forestmix.errors import ForestmixError
from forestmix.files.codec import Reader
from forestmix.files.container import open_file
from forestmix.files.registry import TOP, all_codecs
from forestmix.files.seal import FileError


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
