"""``forestmix data``: the complete data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

data_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="List, fetch and verify the complete data sets; the demo does not need them.",
)

Name = Annotated[str, typer.Argument(help="mnist or cifar10; see [bold]forestmix data list[/bold].")]


@data_app.command("list")
def list_command() -> None:
    """Show the data sets, and which of them are in the cache.

    Example: [bold]forestmix data list[/bold]
    """
    from forestmix.cli.terminal import show_datasets
    from forestmix.data import cache_directory, list_datasets

    show_datasets(list_datasets(), cache_directory())


@data_app.command("fetch")
def fetch_command(
    name: Name,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A local directory or tarball to read in place of the network.", show_default=False
        ),
    ] = None,
) -> None:
    """Put a data set into the cache, and check it.

    The cache is the folder in the environment variable FORESTMIX_DATA, or else your user cache.

    Example: [bold]forestmix data fetch mnist[/bold]
    """
    from forestmix.cli.terminal import download_bar
    from forestmix.data import fetch

    with download_bar() as bar:
        path = fetch(name, source, progress=typer.echo, bar=bar)
    typer.echo(f"{name}: {path}")


@data_app.command("verify")
def verify_command(name: Name) -> None:
    """Check a data set in the cache against its known checksum; the exit code is 1 if it is absent or damaged.

    Example: [bold]forestmix data verify mnist[/bold]
    """
    from forestmix.data import State, verify

    status = verify(name)
    typer.echo(f"{name}: {status.state.value} ({status.path})")
    if status.state is not State.PRESENT:
        typer.echo(f"Run: forestmix data fetch {name}")
        raise typer.Exit(1)
