"""The report on anything that can be saved: a fit, a result, a posterior, a forest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from forestmix.paper.output import environment, write_bytes
from forestmix.report.html import Part, drawn, paragraph, render_page, table
from forestmix.report.sections import all_sections, opening
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
    return render_page(subject.title, opening(subject), [*all_sections(subject), settings(_facts(subject))])


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


def is_forest(saved: Any) -> bool:
    """Whether this is a forest, without importing scikit-learn, which forests need."""
    return all(hasattr(saved, name) for name in ("parents_", "responsibilities_", "strengths_"))


def render_forest(model: Any, names: list[str] | None = None) -> str:
    """Return the page on a fitted ``ForestMixtureModel``."""
    labels = [str(name) for name in model.names(names)]
    parts = [_picture(model, labels), _parents(model, labels)]
    shown = ("n_trees", "family", "parents", "parent_prior", "n_init", "n_moves", "random_state")
    facts = {name.removesuffix("_"): str(getattr(model, name)) for name in shown if hasattr(model, name)}
    facts |= {"ELBO": f"{model.elbo_:,.6g}", "sweeps": str(model.n_iter_)} if hasattr(model, "elbo_") else {}
    return render_page(f"Forest of {len(labels)} variables", _opening(model), [*parts, settings(facts)])


def forest_table(model: Any, labels: list[str]) -> list[list[str]]:
    """Return variable, tree, its probability and the strength of each edge, tree by tree, the strongest first."""
    order = np.lexsort((-model.strengths_, model.parents_))
    chance = model.responsibilities_[np.arange(len(labels)), model.parents_]
    return [
        [labels[i], str(model.parents_[i]), f"{chance[i]:.3f}", f"{model.strengths_[i]:.3f}"] for i in order.tolist()
    ]


def _opening(model: Any) -> str:
    converged = getattr(model, "converged_", True)
    sure = float(np.mean(model.responsibilities_.max(axis=1) > 0.95))
    trees = len(np.unique(model.parents_))
    cut = not converged and model.n_iter_ < model.max_iter
    how = "Converged" if converged else f"Not converged, {'it was stopped' if cut else 'raise max_iter'}"
    text = f"{how}: {trees} trees; "
    text += f"{100 * sure:.0f} % of the variables have a parent of probability above 0.95."
    return paragraph(text, f"verdict {'good' if converged else 'bad'}")


def _picture(model: Any, labels: list[str]) -> Part:
    from forestmix.plots.forest import plot_forest

    counts = np.bincount(model.parents_, minlength=model.responsibilities_.shape[1])
    description = "Forest of the most probable parents. " + "; ".join(
        f"tree {tree}: {count} variables" for tree, count in enumerate(counts) if count
    )
    caption = "Thick edges: strong dependence on the tree’s latent. Pale variables: an uncertain parent."
    picture = drawn(lambda axes: plot_forest(model, labels, axes), description, caption, height=7.0)
    return Part("Forest", picture)


def _parents(model: Any, labels: list[str]) -> Part:
    header = ["variable", "tree", "probability", "strength"]
    shown = table(header, forest_table(model, labels), "parents", label="Parents of the variables", sortable=True)
    return Part("Parents", paragraph("Strength: correlation of a variable with its parent, 0 to 1.") + shown)
