"""The commands. What they need is imported inside them, so that ``forestmix --help`` is quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import forestmix as fmx
from forestmix.cli.data import data_app
from forestmix.cli.forest import forest
from forestmix.cli.group import ErrorReportingGroup, exit_code, working
from forestmix.cli.infer import infer
from forestmix.cli.options import RowFamily
from forestmix.cli.regress import compare, loaded_as, predict, regress

if TYPE_CHECKING:
    from forestmix.paper import Settings

#: Sizes of the demo: several images and seeds, within a minute on two cores.
DEMO_IMAGES, DEMO_REPEATS = 3, 2
DEMO_FORMULA = "visits ~ age + smoker + C(ward) + (1 | subject) + offset(log(months))"

app = typer.Typer(
    cls=ErrorReportingGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What infer, regress or forest saved.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; FILE with the ending .html without it.")
    ] = None,
) -> None:
    """Write a report: a verdict, summary, pictures, checks, settings, on one page that needs nothing else.

    Example: [bold]forestmix report fit.nc --out report.html[/bold]
    """
    from forestmix.cli.inputs import check_out
    from forestmix.cli.show import show_line
    from forestmix.report import write_saved

    page = out or file.with_suffix(".html")
    check_out(page, files=False)
    loaded = loaded_as(file, object, "anything that was saved")
    with working("Writing the report"):
        write_saved(page, loaded)
    show_line(f"Report: {page}")


for command in (infer, regress, predict, compare, report, forest):
    app.command()(command)
app.add_typer(data_app, name="data")

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for the output; files in it are replaced.")]
Seed = Annotated[int, typer.Option(min=0, help="First seed: it decides the images, the mean b and the random orders.")]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"forestmix {fmx.__version__}")
        raise typer.Exit


@app.callback()
def forestmix(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Block-free parallel variational inference in deep exponential families.

    Start with [bold]forestmix demo[/bold]. It needs no network. With data of your own:

    [bold]forestmix infer W.npz x.npy --family bernoulli --out r.nc[/bold]

    [bold]forestmix regress data.csv "y ~ a + (1 | g)" --family poisson --out fit.nc[/bold]

    [bold]forestmix report fit.nc[/bold]

    Exit codes: 0 all is well; 1 a run did not converge, or a claim of the
    paper or a check of data failed; 2 wrong usage, or an error, such as a full
    disk; 130 interrupted, with what there is so far in the file of --out;
    141 nobody reads the output any more.
    """


@app.command()
def demo(out: Out = Path("forestmix-demo"), seed: Seed = 0) -> None:
    """Reproduce the paper's Figure 2, then fit a regression, all on data in the package.

    It takes one to two minutes on two cores.

    Example: [bold]forestmix demo --out demo[/bold], then open demo/report.html
    and demo/regression.html.
    """
    from forestmix.paper import Settings

    held = _run(Settings(seed=seed, images=DEMO_IMAGES, repeats=DEMO_REPEATS), out)
    _demo_regression(out)
    if not held:
        raise typer.Exit(1)


def _demo_regression(folder: Path) -> None:
    """Fit doctor visits of 150 people, write the fit and its report, and show the summary and the same as commands.

    An installation without the extras that this needs shows how to get them.
    """
    from importlib import resources

    from forestmix.cli.show import show_line
    from forestmix.errors import MissingExtraError
    from forestmix.paper.output import write_bytes

    table, fit, page = (folder / name for name in ("clinic.csv", "regression.nc", "regression.html"))
    write_bytes(table, (resources.files("forestmix.data") / "tables" / "clinic.csv").read_bytes())
    show_line(f'\n$ forestmix regress {table} "{DEMO_FORMULA}" --family poisson --out {fit}', "bold")
    try:
        regress(table, DEMO_FORMULA, RowFamily.poisson, out=fit)
    except MissingExtraError as error:
        show_line(f"The regression is left out. {error}")
        return
    show_line(f"\n$ forestmix report {fit}", "bold")
    report(fit, page)


@app.command()
def reproduce(
    figures: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIGURE", help="fig2a, fig2b, fig2c; all three when left out.", show_default=False),
    ] = None,
    out: Out = Path("forestmix-figure2"),
    seed: Seed = 0,
    repeats: Annotated[int, typer.Option(min=1, help="How many seeds: SEED, SEED + 1, and so on.")] = 3,
    images: Annotated[int, typer.Option(min=1, help="Images for each seed.")] = 5,
    iterations: Annotated[int, typer.Option(min=1, help="Parallel steps of every algorithm.")] = 200,
    full: Annotated[bool, typer.Option("--full", help="Draw images from the complete, fetched data sets.")] = False,
    beyond: Annotated[bool, typer.Option(help="Also compare more algorithms than the paper does.")] = True,
) -> None:
    """Run the experiments of the paper's Figure 2 and check its claims.

    [bold]fig2a[/bold] FM on windows of different sizes over MNIST digits.
    [bold]fig2b[/bold] FM on the first-layer kernels of networks trained on CIFAR-10.
    [bold]fig2c[/bold] CAVI, blocks and FM on 16 regions of MNIST digits.

    The folder gets figure2 and beyond (PNG, SVG), a CSV file for each panel, summary.csv, claims.json,
    settings.json, timings.csv and report.html.

    Example: [bold]forestmix reproduce fig2a fig2c --images 10 --out figure2[/bold]
    """
    from forestmix.paper import FIGURES, Settings

    chosen = tuple(figures) if figures else FIGURES
    settings = Settings(chosen, seed, repeats, images, iterations, full, beyond)
    if not _run(settings, out):
        raise typer.Exit(1)


def _run(settings: Settings, out: Path) -> bool:
    """Run, write, show; return whether all claims held."""
    from forestmix.cli.terminal import experiment_bars, show_outcome
    from forestmix.paper import run_experiments, write_outcome
    from forestmix.paper.output import prepare_folder
    from forestmix.report import write_report

    prepare_folder(out)  # before the work, which would be lost
    with experiment_bars() as bar:
        outcome = run_experiments(settings, bar)
    write_outcome(out, outcome)
    show_outcome(outcome, write_report(out, outcome))
    return outcome.held


def main() -> None:
    """Run the command line."""
    sys.exit(exit_code(lambda: app(prog_name="forestmix")))
