"""What a run of the experiments is asked to do, and how it tells of its progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import forestmix as fmx
from forestmix.checks import one_of, whole_number

#: The three panels of the paper's Figure 2.
FIGURES = ("fig2a", "fig2b", "fig2c")


@dataclass(frozen=True)
class Settings:
    """Which experiments to run, on what.

    Args:
        figures: the panels of Figure 2.
        seed: the first seed. A seed decides the images, the mean b and the random orders.
        repeats: how many seeds: ``seed``, ``seed + 1``, ...
        images: images for each seed.
        iterations: parallel steps of every algorithm in Figure 2.
        full: draw the images from the complete data sets, which must have been fetched.
        beyond: also run the comparison beyond the paper.

    """

    figures: tuple[str, ...] = FIGURES
    seed: int = 0
    repeats: int = 3
    images: int = 5
    iterations: int = 200
    full: bool = False
    beyond: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.figures, (tuple, list)):
            raise fmx.ArgumentError(f"figures must be a list of some of {', '.join(FIGURES)}; got {self.figures!r}.")
        chosen = {one_of("figure", name, FIGURES) for name in self.figures}
        if not chosen:
            raise fmx.ArgumentError(f"figures must hold at least one of {', '.join(FIGURES)}; got none.")
        for name, least in (("seed", 0), ("repeats", 1), ("images", 1), ("iterations", 1)):
            whole_number(name, getattr(self, name), least)
        # Each once, in the order of the paper, however they were asked for.
        object.__setattr__(self, "figures", tuple(name for name in FIGURES if name in chosen))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the run."""
        return tuple(range(self.seed, self.seed + self.repeats))


#: Shows progress: ``with bar(title, total) as advance``, and ``advance(amount)`` moves it on.
Bar = Callable[[str, float], AbstractContextManager[Callable[[float], object]]]


@contextmanager
def no_bar(title: str, total: float) -> Iterator[Callable[[float], object]]:
    """Show nothing, so that nobody has to ask whether there is a bar; the command line draws one."""
    yield lambda amount: None
