"""The sections of a report on a fit, a result or a posterior. Each is empty, and left out, where it does not apply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import forestmix as fmx
from forestmix.plots.intervals import NAMED, ends_of, plot_groups, plot_intervals, plot_scales
from forestmix.plots.rows import plot_gap, plot_loo, plot_parents, plot_predictive
from forestmix.plots.trace import plot_objective, plot_trace
from forestmix.posterior.table import Table, formatted
from forestmix.report.html import Part, bullets, drawn, folded, heading, paragraph, table
from forestmix.report.subject import LEVEL, Subject

#: Rows of a table at most; drawn data sets in the picture of the predictive check.
MOST_ROWS, DATA_SETS = 1000, 50


def opening(subject: Subject) -> str:
    """Return the verdict, what to do, and what must be known first."""
    return attempt(_verdict, subject) + "".join(paragraph(note) for note in subject.notes)


def all_sections(subject: Subject) -> list[Part]:
    """Return the sections that apply, in their order on the page."""
    # What is wrong with the names of the latents is an error; the other sections say why they do not apply.
    made = {"Summary": summary(subject)} | {title: attempt(make, subject) for title, make in SECTIONS.items()}
    return [Part(title, content) for title, content in made.items() if content]


def attempt(make: Callable[[Subject], str], subject: Subject) -> str:
    """Return what ``make`` says of the subject, or why it does not apply."""
    try:
        return make(subject)
    except fmx.ForestmixError as error:
        return paragraph(f"Not for this model: {error}")


def _verdict(subject: Subject) -> str:
    check = subject.check
    advice = list(check.advice)
    if check.misfit:
        advice.append(f"Drawn data differ in their {', '.join(check.misfit)}: try another family, noise or terms.")
    scales = " Unknown scales stand at their means in this verdict." if subject.scales else ""
    kind = "bad" if advice else "good"
    return paragraph(f"{check.verdict}{scales}", f"verdict {kind}") + bullets(advice)


def summary(subject: Subject) -> str:
    """Return the table and the picture of effects, or of the latents of each layer."""
    parts = []
    for layer, (wide, narrow) in enumerate(zip(subject.summaries(), subject.summaries(LEVEL / 2), strict=True)):
        name = f"layer {layer}" if len(subject.posterior.layers) > 1 else "summary"
        parts += [heading(f"Layer {layer}, from the lowest")] if name != "summary" else []
        parts += [paragraph(note) for note in wide.notes]
        parts += [html_table(wide, name.replace(" ", "-"), f"Mean, sd and {100 * LEVEL:g} % interval, {name}")]
        parts += [_intervals(wide, narrow, name, subject.fit)]
    return "\n".join(parts)


def _intervals(wide: Table, narrow: Table, name: str, fit: Any) -> str:
    without = ("Intercept",) if len(wide) > 1 else ()
    count = len(wide) - sum(one in without for one in wide.names)
    low, high = ends_of(wide)
    clear = int(np.sum((low > 0) | (high < 0)))
    description = (
        f"Means with central intervals, {name}: {count} lines or places. {clear} of {len(wide)} intervals of "
        f"{100 * LEVEL:g} % leave out zero."
    )
    caption = f"Dot: mean. Thick: {100 * LEVEL / 2:g} %, thin: {100 * LEVEL:g} % interval."
    caption += "" if fit is None else " ×: what one sd of the column does."
    caption += " The intercept is left out of the picture." if "Intercept" in wide.names and without else ""
    height = 0.9 + 0.26 * max(count, 2) if count <= NAMED else 0.0

    def draw(axes: Any) -> Any:
        if fit is not None:
            return fit.plot(LEVEL, axes, intercept=not without)
        return plot_intervals(wide, narrow, axes, without)

    return drawn(draw, description, caption, height=height)


def groups(subject: Subject) -> str:
    """Return the effects of each level of groups."""
    if subject.fit is None:
        return ""
    parts = []
    for block in (block for term in subject.fit.design.grouped for block in term.blocks):
        found = subject.fit.groups(block.name, LEVEL)
        order = np.argsort(found["mean"])
        ends = [f"{found.names[row]} ({found['mean'][row]:.3g})" for row in (order[0], order[-1])]
        description = (
            f"Effects of {len(found):,} levels of {block.name}, sorted, with intervals: the least is {ends[0]}, "
            f"the greatest {ends[1]}."
        )
        caption = f"Each level of {block.name}: mean and {100 * LEVEL:g} % interval."
        parts += [heading(block.name)]
        parts += [drawn(lambda axes, found=found: plot_groups(found, axes), description, caption)]  # type: ignore[misc]
        shown = html_table(found, f"groups-{len(parts)}", f"Effects of {block.name}")
        parts += [folded(f"All {len(found):,} levels as a table", shown)]
    return "\n".join(parts)


def scales(subject: Subject) -> str:
    """Return the densities of unknown scales."""
    known = subject.scales
    if not known:
        return ""
    ends = [
        f"{name} {one.mean:.3g} ({one.interval()[0]:.3g} to {one.interval()[1]:.3g})" for name, one in known.items()
    ]
    description = f"Posterior densities of unknown scales, mean and 90 % interval: {'; '.join(ends)}."
    return drawn(lambda axes: plot_scales(known, axes), description, "Shaded: the central 90 %.", height=2.9)


def convergence(subject: Subject) -> str:
    """Return how the run went."""
    run = subject.result or subject.fit
    if run is None:
        return ""
    lines = run.message.splitlines() if subject.fit is None else [run.status.value, run.solution.message]
    parts = [paragraph(line) for line in lines if line]
    if len(run.trace) > 1:
        parts.append(_trace(run, bool(subject.scales)))
    return "\n".join(parts)


def _trace(run: Any, scales: bool) -> str:
    """Return the picture of a run; those with a full covariance have no gradient norm."""
    steps, last = len(run.trace) - 1, float(np.mean(run.trace.objective[-1]))
    if not np.isfinite(run.trace.gradient_norm).any():
        what = "Log of prior times evidence" if scales else "Objective"
        description = f"{what} over {steps} iterations; it ends at {last:,.6g}."
        caption = "The objective must not fall."
        if scales:
            caption = "Each iteration tries a set of unknown scales, on the way to the most probable; the best so far."
        return drawn(lambda axes: plot_objective(run, axes), description, caption)
    description = f"Objective and relative gradient norm over {steps} iterations; the objective ends at {last:,.6g}."
    caption = "First: the objective, which must not fall. Second: the relative gradient norm."
    return drawn(lambda axes: plot_trace(run, axes), description, caption, panels=2)


def predictive(subject: Subject) -> str:
    """Return statistics of x beside those of drawn data."""
    found = subject.check.predictive
    rows = [[name, f"{one.observed:.4g}", f"{one.replicated:.4g}", f"{one.p_value:.3f}"] for name, one in found.items()]
    shown = table(["statistic", "of x", "of drawn data", "p-value"], rows, "predictive", label="Predictive check")
    x, counts = subject.x[subject.observed], subject.model.layers[0].family.name != "gaussian"
    description = (
        f"Cumulative distribution of x beside those of {DATA_SETS} data sets drawn from the posterior. "
        + "; ".join(f"{row[0]}: {row[1]} against {row[2]}" for row in rows)
        + "."
    )
    drawn_data = subject.replicated(DATA_SETS)
    picture = drawn(
        lambda axes: plot_predictive(x, drawn_data, counts, axes), description,
        "Thick line: x. Thin lines: data sets drawn from the posterior. They should look alike.",
    )  # fmt: skip
    text = "The p-value is the share of drawn data sets with a greater statistic; near 0 or 1 the model misses it."
    return picture + paragraph(text) + shown


def left_out(subject: Subject) -> str:
    """Return how well each row is predicted by the others."""
    loo = subject.posterior.loo()
    count, doubtful = len(loo.pointwise), len(loo.untrusted)
    trust = "All are to be trusted." if not doubtful else (
        f"{doubtful} of them are not to be trusted, since the posterior without them is too far from the one with them."
    )  # fmt: skip
    text = f"Expected log predictive density {loo.elpd:,.5g}, standard error {loo.se:.3g}, over {count:,} rows. {trust}"
    worst = int(loo.rows[np.argmin(loo.pointwise)])
    description = (
        f"Log predictive density of each row without it; the least is {loo.pointwise.min():.3g}, in row {worst}."
    )
    caption = "Low points are rows that the others do not predict. Crosses: not to be trusted."
    return paragraph(text) + drawn(lambda axes: plot_loo(loo, axes), description, caption)


def html_table(shown: Table, identifier: str, label: str) -> str:
    """Return a table of numbers with names, sortable, cut where it is very long."""
    columns = [formatted(values[:MOST_ROWS]) for values in shown.columns.values()]
    rows = [[name, *cells] for name, *cells in zip(shown.names[:MOST_ROWS], *columns, strict=True)]
    made = table(["name", *shown.columns], rows, identifier, label=label, sortable=True)
    cut = f"The first {MOST_ROWS:,} of {len(shown):,} rows."
    return made + (paragraph(cut) if len(shown) > MOST_ROWS else "")


#: Entries of W up to which epsilon is shown.
MOST_ENTRIES = 4_000_000


def gap(subject: Subject) -> str:
    """Return the gap between both bounds on each row, at a factorised q."""
    if subject.q is None:
        return ""
    values = np.asarray(fmx.gap(subject.known.model, subject.x, subject.q), np.float64)
    total, worst = float(values.sum()), int(np.argmax(values))
    text = (
        f"The forest mixture bound is {total:,.4g} nats below the ELBO, {values.mean():.3g} in a row on average. "
        "It is 0 for a row with one parent, and grows where many latents with wide posteriors share a row."
    )
    description = f"Gap of each row; the greatest is {values[worst]:.3g} nats, in row {worst}."
    caption = "By how much Jensen’s inequality makes the bound looser than the ELBO on each row."
    return paragraph(text) + drawn(lambda axes: plot_gap(values, axes), description, caption, height=2.9)


def parents(subject: Subject) -> str:
    """Return how forest-like the model is, and the map of parents at a factorised q."""
    if len(subject.model.layers) > 1:
        return ""
    weights = subject.model.layers[0].weights
    likeness = fmx.forest_likeness(weights)
    parts = [paragraph(speed(likeness))]
    if subject.q is not None and weights.nnz <= MOST_ENTRIES:
        parts.append(attempt(_map, subject))
    return "\n".join(parts)


def speed(likeness: float) -> str:
    """Return what forest-likeness says of speed.

    With columns of one length and equal sds, the mean of D over that of the rows' own curvature H is its reciprocal.
    """
    opening = f"Forest-likeness of W: {likeness:.3g} (1 for a forest, towards 0 as latents share rows). "
    if likeness > 0.999:
        return opening + (
            "Every row has one parent: the bound is the ELBO, and one parallel step does what a sweep of CAVI does."
        )
    return opening + (
        f"A plain parallel step takes a curvature about {1 / likeness:.3g} times that of one latent alone, so it is "
        "about as many times shorter than a coordinate update. The accelerated default (conjugate gradients, Newton "
        "steps or a factor) does not depend on it in this way."
    )


def _map(subject: Subject) -> str:
    epsilon = fmx.optimal_auxiliary(subject.known.model, subject.q).epsilon
    square = epsilon.multiply(epsilon) if hasattr(epsilon, "multiply") else epsilon**2
    sums = np.asarray(square.sum(axis=1)).ravel()
    number = 1 / sums[sums > 0]
    middle = float(np.median(number)) if len(number) else 0.0
    description = (
        f"Map of epsilon, {epsilon.shape[0]} rows by {epsilon.shape[1]} latents: how much each latent stands for each "
        f"row. The median row has about {middle:.3g} parents of equal share."
    )
    caption = f"{description} Dark: one latent stands for the row. In large maps a dot is the greatest of a tile."
    return drawn(lambda axes: plot_parents(epsilon, axes), description, caption)


#: Titles and makers of the sections after the summary, in the order of the page.
SECTIONS: dict[str, Callable[[Subject], str]] = {
    "Group effects": groups, "Unknown scales": scales, "Convergence": convergence,
    "Predictive check": predictive, "Leave-one-out": left_out, "Gap of the forest mixture bound": gap,
    "Parents and forest-likeness": parents,
}  # fmt: skip
