"""What the command line shows: bars while it works, tables when it is done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich import box
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
from rich.table import Table

from forestmix.data import DatasetStatus
from forestmix.paper import Meter, Outcome
from forestmix.paper.costs import COSTS, GAPS, cost_to_reach
from forestmix.paper.output import summary


class BarMeter(Meter):
    """A bar for each experiment, on standard error."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task, self.total = TaskID(0), 0

    def begin(self, title: str, total: int) -> None:
        """Start a bar."""
        self.task, self.total = self.progress.add_task(title, total=total), total

    def advance(self, amount: float = 1) -> None:
        """Move the bar on."""
        self.progress.advance(self.task, amount)

    def end(self) -> None:
        """Fill the bar."""
        self.progress.update(self.task, completed=self.total)


@contextmanager
def experiment_bars() -> Iterator[BarMeter]:
    """Show a bar for each experiment within a ``with`` block."""
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield BarMeter(progress)


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
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield DownloadBar(progress)


def show_outcome(outcome: Outcome, report: Path) -> None:
    """Show the summary, the comparison beyond the paper, the claims, and where the report is."""
    console = Console()
    console.print(_summary_table(outcome))
    for table in _race_tables(outcome):
        console.print(table)
    console.print(_claim_table(outcome))
    held = sum(claim.held for claim in outcome.claims)
    colour = "green" if outcome.held else "red"
    console.print(f"[{colour}]{held} of {len(outcome.claims)} claims of the paper held.[/{colour}]")
    # Without wrapping, so that the path can be copied.
    console.print(f"Report: {report}", soft_wrap=True, highlight=False, markup=False)


def show_datasets(statuses: Iterable[DatasetStatus], cache: Path) -> None:
    """Show which data sets are in the cache."""
    table = Table("name", "state", "download", "what it is", "licence", box=box.SIMPLE_HEAD)
    for status in statuses:
        dataset = status.dataset
        size = f"{dataset.download_bytes / 1e6:.0f} MB"
        table.add_row(dataset.name, status.state.label, size, dataset.title, dataset.licence)
    console = Console()
    console.print(table)
    console.print(f"Cache: {cache}", soft_wrap=True, highlight=False, markup=False)


def _table(title: str, *columns: str, text_columns: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for place, column in enumerate(columns):
        table.add_column(column, justify="left" if place < text_columns else "right")
    return table


def _summary_table(outcome: Outcome) -> Table:
    title = f"After {outcome.settings.iterations} parallel steps: median (least to greatest)"
    table = _table(title, "panel", "curve", "runs", "loss", "relative gap to the optimum", text_columns=2)
    for row in summary(outcome.panels):
        spread = (
            f"{row[f'{name}_median']:.3g} ({row[f'{name}_min']:.3g} to {row[f'{name}_max']:.3g})"
            for name in ("loss", "gap")
        )
        table.add_row(row["panel"], row["curve"], str(row["runs"]), *spread)
    return table


def _race_tables(outcome: Outcome) -> Iterable[Table]:
    for race in outcome.races:
        title = f"Beyond the paper, {race.title}: cost of a median gap of {GAPS[0]:.0%}"
        table = _table(title, "algorithm", *COSTS.values())
        for curve in race.curves:
            cost = cost_to_reach(curve, GAPS[0])
            table.add_row(curve.label, *(cost.short(name) for name in COSTS))
        yield table


def _claim_table(outcome: Outcome) -> Table:
    table = _table("Claims of the paper", "", "claim", "numbers", text_columns=3)
    for claim in outcome.claims:
        table.add_row("[green]held[/green]" if claim.held else "[red]FAILED[/red]", claim.sentence, claim.evidence)
    return table
