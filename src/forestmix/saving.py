"""Methods that models, results, posteriors and fits share: files, and data for other libraries (docs/files.md).

And how every file is written: whole or not at all.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield an empty file beside ``path``, which takes its place at the end: nobody ever sees half a file."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        beside.touch(exist_ok=False)
        yield beside
        with beside.open("r+b") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)  # gone already, unless something went wrong


class Saved:
    """What ``forestmix.load`` returns again."""

    def save(self, path: Any, weights: str = "inside") -> None:
        """Write this to a NetCDF-4 file for ``forestmix.load``; see docs/files.md.

        Args:
            path: where to; a file that stands there is replaced once the new one is whole.
            weights: "inside" writes W too; "reference" only its checksum, and ``load(path, weights=W)`` needs it.

        """
        from forestmix.files import save

        save(self, path, weights)


class Exported(Saved):
    """Results and posteriors. ``names`` are those of the latents; their labels, or numbers, when left out."""

    def to_xarray(self, level: float = 0.9, names: Sequence[Any] | None = None) -> Any:
        """Return mean, sd and interval of each latent, and the trace of a result, as a labelled dataset of xarray."""
        from forestmix.files.views import latent_dataset

        return latent_dataset(self, level, names)

    def to_pandas(self, level: float = 0.9, names: Sequence[Any] | None = None) -> Any:
        """Return mean, sd and interval of each latent as a table of pandas."""
        from forestmix.files.views import latent_frame

        return latent_frame(self, level, names)

    def to_arviz(
        self, size: int = 1000, rng: Any = 0, names: Sequence[Any] | None = None,
        sample_dims: Sequence[str] = ("chain", "draw"),
    ) -> Any:  # fmt: skip
        """Return draws of the latents, what they predict and the log-likelihood as a tree for ArviZ."""
        from forestmix.files.arviz import posterior_tree

        return posterior_tree(self, size, rng, names, sample_dims)
