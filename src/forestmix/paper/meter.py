"""Progress of the experiments; this meter shows nothing, so that nobody has to ask whether there is one."""

from __future__ import annotations


class Meter:
    """A meter that shows nothing. The command line has one that draws a bar for each experiment."""

    def begin(self, title: str, total: int) -> None:
        """Start the bar of an experiment of ``total`` units of work."""

    def advance(self, amount: float = 1) -> None:
        """Move the bar on."""

    def end(self) -> None:
        """Fill the bar: an experiment that converged early has work left over."""
