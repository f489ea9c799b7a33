"""The page: the pictures, a line for each claim, the tables, and what is needed to run the same again."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from forestmix.paper.claims import GAPS, Claim, cost_table, verdict
from forestmix.paper.output import environment, summary_table, write_bytes
from forestmix.paper.run import Outcome
from forestmix.paper.settings import Settings
from forestmix.report.html import Part, heading, paragraph, picture, render_page, table

TITLE = "Figure 2 of the forest mixture bound, reproduced"


def write_report(folder: Path, outcome: Outcome) -> Path:
    """Write ``report.html`` into the folder and return its path."""
    path = folder / "report.html"
    write_bytes(path, render_report(outcome).encode())
    return path


def render_report(outcome: Outcome) -> str:
    """Return the page."""
    parts = [_figure(outcome), _claims(outcome.claims), _summary(outcome)]
    if outcome.races:
        parts.append(_beyond(outcome))
    return render_page(TITLE, _opening(outcome), [*parts, _settings(outcome)])


def command(settings: Settings) -> str:
    """Return the command that runs the same again."""
    words = ["forestmix reproduce", *settings.figures, f"--seed {settings.seed} --repeats {settings.repeats}"]
    words.append(f"--images {settings.images} --iterations {settings.iterations}")
    return " ".join(words + ["--full"] * settings.full + ["--no-beyond"] * (not settings.beyond))


def _opening(outcome: Outcome) -> str:
    held = sum(claim.held for claim in outcome.claims)
    lead = (
        "The experiments of “A Forest Mixture Bound for Block-Free Parallel Inference” (Lawton, Galstyan and "
        "Ver Steeg, UAI 2018), run again on MNIST and CIFAR-10."
    )
    verdict = f"{held} of {len(outcome.claims)} claims of the paper held in this run."
    return paragraph(lead, "lead") + paragraph(verdict, f"verdict {'good' if outcome.held else 'bad'}")


def _figure(outcome: Outcome) -> Part:
    runs = outcome.settings.images * outcome.settings.repeats
    caption = (
        f"The ridge regression loss at the posterior means after each parallel step. Line: median over {runs} runs "
        f"({outcome.settings.images} images for each of {outcome.settings.repeats} seeds); band: their full range; "
        "dotted: the median optimum, in the colour of its problem, or black where all curves of a panel have the same. "
        "What counts is how soon a curve meets its own dotted line."
    )
    titles = "; ".join(panel.title for panel in outcome.panels)
    return Part("Figure 2", _picture(outcome, "figure2", f"Loss over iterations. Panels: {titles}.", caption))


def _picture(outcome: Outcome, name: str, description: str, caption: str) -> str:
    return picture(outcome.pictures[f"{name}.svg"], outcome.pictures[f"{name}-narrow.svg"], description, caption)


def _claims(claims: Iterable[Claim]) -> Part:
    def line(claim: Claim) -> str:
        word, kind = ("Held.", "held") if claim.held else ("FAILED.", "failed")
        evidence = escape(claim.evidence[0].upper() + claim.evidence[1:] + ".")
        return (
            f'<div class="claim"><p><strong class="{kind}">{word}</strong> {escape(claim.sentence)}</p>'
            f'<p class="evidence">{evidence}</p></div>'
        )

    explanation = (
        "A relative gap is (f − f*) / f*, with f the loss and f* its least value, found by conjugate gradients. A "
        "claim holds when the medians over images and seeds bear it out. "
        "No image is counted twice. Each kernel width stands for one trained network."
    )
    return Part("The paper’s claims", "\n".join([paragraph(explanation), *map(line, claims)]))


def _summary(outcome: Outcome) -> Part:
    steps = outcome.settings.iterations
    text = f"After {steps} parallel steps, over all images and seeds: median (least to greatest). See summary.csv."
    shown = table(*summary_table(outcome.panels), "summary", label="Where each curve ends", text_columns=2)
    return Part("Where each curve ends", paragraph(text) + shown)


def _beyond(outcome: Outcome) -> Part:
    caption = (
        "Relative gap on two of the problems, for the images of the first seed: median line, full range. The same runs "
        "are shown against parallel steps (as many processors as latents), against sweeps (as many updates as latents: "
        "equal work), and against the seconds they took on this machine, without compilation."
    )
    explanation = (
        f"Parallel steps, sweeps and seconds until the median gap is {', '.join(f'{gap:.4g}' for gap in GAPS)}. "
        "“>”: the run ended before. Bold: the least; times that differ by less than a factor of two are equal."
    )
    description = "Relative gap over parallel steps, sweeps and seconds, a row for each problem."
    parts = [_picture(outcome, "beyond", description, caption), paragraph(explanation)]
    for race in outcome.races:
        header, rows, least = cost_table(race, GAPS)
        costs = table(header, rows, f"costs-{race.name}", label=f"Costs, {race.title}", strong=least)
        parts += [heading(race.title), paragraph(verdict(race)), costs]
    return Part("Beyond the paper: where FM wins, and where it does not", "\n".join(parts))


def _settings(outcome: Outcome) -> Part:
    settings = outcome.settings
    images = {
        f"{panel.name}, seed {curve.seed}": ", ".join(curve.images)
        for panel in outcome.panels
        for curve in panel.curves
    }
    rows = [
        ["seeds", ", ".join(map(str, settings.seeds))],
        ["iterations", str(settings.iterations)],
        ["data", "complete data sets" if settings.full else "samples in the package"],
        *([f"images of {name}", value] for name, value in images.items()),
        *([name, value] for name, value in environment().items()),
    ]
    again = f"<p>Run the same again: <code>{escape(command(settings))}</code></p>"
    shown = table(["setting", "value"], rows, "settings", label="Seeds and versions", text_columns=2)
    return Part("Seeds and versions", again + shown)
