"""Data as a batch, with its missing entries; ``forestmix.model.observations`` checks and makes it."""

from __future__ import annotations

from dataclasses import dataclass

from forestmix.arrays import Array


@dataclass(frozen=True)
class Observations:
    """Data for a model as a batch: ``x`` is (N, n), with 0 where it is missing.

    ``observed`` is ``None`` when nothing is missing, else (N, n) with True for an entry that is there, or (1, n) where
    all observations miss the same ones (``shared``).
    ``single`` remembers that the caller gave one observation without a leading axis.
    """

    x: Array
    observed: Array | None
    single: bool

    def take(self, keep: Array) -> Observations:
        """Return the chosen observations."""
        observed = self.observed
        if observed is not None and len(observed) == len(self.x):
            observed = observed[keep]
        return Observations(self.x[keep], observed, self.single)

    def shared(self) -> Observations:
        """Return the same with one row of ``observed`` where it serves all observations."""
        observed = self.observed
        if observed is None or not (observed == observed[:1]).all():
            return self
        return Observations(self.x, observed[:1], self.single)
