"""The report on anything that can be saved: a fit, a result, a posterior, a forest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from forestmix.paper.output import environment, write_bytes
from forestmix.report import bounds, sections
from forestmix.report.forest import is_forest, render_forest
from forestmix.report.frame import Part, render_page
from forestmix.report.html import paragraph, table
from forestmix.report.subject import Subject, subject_of


def write_saved(path: Path, saved: Any, names: list[str] | None = None) -> Path:
    """Write the report on what was saved or just computed, and return its path."""
    write_bytes(path, render_saved(saved, names).encode())
    return path


def render_saved(saved: Any, names: list[str] | None = None) -> str:
    """Return the page: the verdict first, then what there is to say, then settings and versions.

    Args:
        saved: a ``Fit``, ``Result``, ``Posterior`` or ``ForestMixtureModel``.
        names: of the latents, or of the variables of a forest; their own when left out.

    """
    if is_forest(saved):
        return render_forest(saved, names)
    subject = subject_of(saved, names)
    made = [
        sections.summary(subject), sections.groups(subject), sections.scales(subject), sections.convergence(subject),
        sections.predictive(subject), sections.left_out(subject), bounds.gap(subject), bounds.parents(subject),
        settings(_facts(subject)),
    ]  # fmt: skip
    return render_page(subject.title, sections.opening(subject), [part for part in made if part is not None])


def settings(facts: dict[str, str]) -> Part:
    """Return what was fitted, and the versions that it was fitted with."""
    rows = [[name, value] for name, value in (facts | environment()).items()]
    shown = table(["setting", "value"], rows, "settings", label="Settings and versions", text_columns=2)
    return Part("Settings and versions", paragraph("Versions are those that made this report.") + shown)


def _facts(subject: Subject) -> dict[str, str]:
    model, result = subject.model, subject.result
    facts = {
        "rows": f"{model.n_observed:,}",
        "latents": ", ".join(f"{size:,}" for size in model.latent_sizes),
        "posterior": subject.posterior.kind,
        "precision": str(model.dtype),
    }
    if subject.fit is not None:
        facts |= {"formula": subject.fit.formula, "family": subject.fit.family, "priors": str(subject.fit.priors)}
    else:
        facts |= {"family": model.layers[0].family.name, "prior": repr(model.prior.family)[:300]}
    if result is not None:
        facts |= {"algorithm": result.algorithm, "objective": result.objective_name}
    return facts
