"""What the command line shows: bars while it works, tables when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from forestmix.cli.show import show_line, show_rows
from forestmix.data import DatasetStatus
from forestmix.paper import Outcome
from forestmix.paper.claims import GAPS, cost_table
from forestmix.paper.output import summary_table
from forestmix.paper.settings import Bar


@contextmanager
def experiment_bars() -> Iterator[Bar]:
    """Show a bar for each experiment within a ``with`` block, on standard error."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        @contextmanager
        def bar(title: str, total: float) -> Iterator[Callable[[float], object]]:
            task = progress.add_task(title, total=total)
            yield partial(progress.advance, task)

        yield bar


class DownloadBar:
    """A bar for the bytes of each file that pooch downloads; pooch sets ``total`` and calls the methods."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task: TaskID | None = None
        self.total = 0

    def update(self, amount: int) -> None:
        """Move the bar on by so many bytes; the first ones of a file start a new bar."""
        if self.task is None:
            self.task = self.progress.add_task("", total=self.total)
        self.progress.advance(self.task, amount)

    def reset(self) -> None:
        """Empty the bar, which pooch does before it fills it."""
        if self.task is not None:
            self.progress.reset(self.task, total=self.total)

    def close(self) -> None:
        """End the bar of one file."""
        if self.task is not None:
            self.progress.remove_task(self.task)
        self.task = None


@contextmanager
def download_bar() -> Iterator[DownloadBar]:
    """Show the progress of downloads within a ``with`` block."""
    columns = BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield DownloadBar(progress)


def show_outcome(outcome: Outcome, report: Path) -> None:
    """Show the summary, the comparison beyond the paper, the claims, and where the report is."""
    title = f"After {outcome.settings.iterations} parallel steps: median (least to greatest)"
    show_rows(title, *summary_table(outcome.panels), text_columns=2)
    for race in outcome.races:
        header, rows, _ = cost_table(race, GAPS[:1])
        show_rows(f"Beyond the paper, {race.title}", header, rows)
    words = {True: Text("held", "green"), False: Text("FAILED", "red")}
    claims: list[list[str | Text]] = [[words[claim.held], claim.sentence, claim.evidence] for claim in outcome.claims]
    show_rows("Claims of the paper", ["", "claim", "numbers"], claims, text_columns=3)
    held = sum(claim.held for claim in outcome.claims)
    show_line(f"{held} of {len(outcome.claims)} claims of the paper held.", "green" if outcome.held else "red")
    show_line(f"Report: {report}")


def show_datasets(statuses: Iterable[DatasetStatus], cache: Path) -> None:
    """Show which data sets are in the cache."""
    header = ["name", "state", "download", "what it is", "licence"]
    rows = [
        [found.name, state.label, f"{found.download_bytes / 1e6:.0f} MB", found.title, found.licence]
        for found, state in ((status.dataset, status.state) for status in statuses)
    ]
    show_rows("", header, rows, text_columns=len(header))
    show_line(f"Cache: {cache}")
