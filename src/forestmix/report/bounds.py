"""Sections on the forest mixture bound: what it loses on each row, who the parents are, and what that says of speed."""

from __future__ import annotations

import numpy as np

import forestmix as fmx
from forestmix import plots
from forestmix.report.frame import Part, drawn
from forestmix.report.html import paragraph
from forestmix.report.sections import attempt
from forestmix.report.subject import Subject

#: Entries of W up to which epsilon is shown.
MOST_ENTRIES = 4_000_000


def gap(subject: Subject) -> Part | None:
    """Return the gap between both bounds on each row, at a factorised q."""
    if subject.q is None:
        return None
    return Part("Gap of the forest mixture bound", attempt(lambda: _gap(subject)))


def _gap(subject: Subject) -> str:
    values = np.asarray(fmx.gap(subject.known.model, subject.x, subject.q), np.float64)
    total, worst = float(values.sum()), int(np.argmax(values))
    text = (
        f"The forest mixture bound is {total:,.4g} nats below the ELBO, {values.mean():.3g} in a row on average. "
        "It is 0 for a row with one parent, and grows where many latents with wide posteriors share a row."
    )
    description = f"Gap of each row; the greatest is {values[worst]:.3g} nats, in row {worst}."
    caption = "By how much Jensen’s inequality makes the bound looser than the ELBO on each row."
    return paragraph(text) + drawn(lambda axes: plots.plot_gap(values, axes), description, caption, height=2.9)


def parents(subject: Subject) -> Part | None:
    """Return how forest-like the model is, and the map of parents at a factorised q."""
    if len(subject.model.layers) > 1:
        return None
    weights = subject.model.layers[0].weights
    likeness = fmx.forest_likeness(weights)
    parts = [paragraph(speed(likeness))]
    if subject.q is not None and weights.nnz <= MOST_ENTRIES:
        parts.append(attempt(lambda: _map(subject)))
    return Part("Parents and forest-likeness", "\n".join(parts))


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
    return drawn(lambda axes: plots.plot_parents(epsilon, axes), description, caption)
