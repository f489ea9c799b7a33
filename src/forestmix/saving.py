"""Methods that models, results, posteriors and fits share: files, and data for other libraries (docs/files.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
