"""The tables of docs/ranges.md: what was drawn, how runs ended, and how far from the optimum."""

import itertools
from collections import Counter

import numpy as np

#: Edges of the condition numbers by which results with Gaussian latents are told apart.
CONDITIONS = (1.0, 1e4, 1e8, 1e12, 1e16, np.inf)


#: What stands around the tables in docs/ranges.md.
BEGIN, END = "<!-- tables of python -m tests.hunt -->", "<!-- end of the tables -->"


def write(path, text):
    """Put the tables in the place of those that a page has."""
    page = path.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


def table(verdicts):
    """Return the tables in Markdown: by family, what was drawn, and by condition number."""
    kinds = dict.fromkeys(v.problem.kind for v in verdicts)
    groups = {kind: [v for v in verdicts if v.problem.kind == kind] for kind in kinds}
    ends = ["| family | problems | CONVERGED | other ends | iterations, median and most | worst, sds | worst, nats |"]
    drawn = ["| family | noise sd | prior sd or scale | nonzero weights | largest x | condition number up to |"]
    ends += [_rule(ends[0]), *(_ends(kind, group) for kind, group in groups.items())]
    drawn += [_rule(drawn[0]), *(_drawn(kind, group) for kind, group in groups.items())]
    return "\n".join([*ends, "", *drawn, "", *_by_condition(verdicts)])


def _rule(header):
    return "|" + "---|" * (header.count("|") - 1)


def _ends(kind, verdicts):
    statuses = Counter(s for v in verdicts for s in v.statuses)
    total, converged = sum(statuses.values()), statuses.pop("CONVERGED", 0)
    others = ", ".join(f"{name} {count}" for name, count in statuses.most_common()) or "none"
    iterations = [i for v in verdicts for i in v.iterations] or [0]
    worst = " | ".join(_worst(verdicts, name) for name in ("sds", "nats"))
    return (
        f"| {kind} | {len(verdicts)} | {converged / total:.1%} of {total} | {others} | "
        f"{np.median(iterations):.0f}, {max(iterations)} | {worst} |"
    )


def _drawn(kind, verdicts):
    problems = [v.problem for v in verdicts]
    noise = np.concatenate([p.parameter[p.rows == "gaussian"] for p in problems])
    names = ("sd", "scale", "rate")
    scales = np.concatenate([p.prior[name] for p in problems for name in names if name in p.prior] or [[]])
    sizes = np.concatenate([np.abs(p.W[p.W != 0]).ravel() for p in problems]).astype(float)
    largest = max((np.nanmax(np.abs(p.x), initial=0) for p in problems), default=0)
    condition = max((c for v in verdicts for c in v.conditions), default=None)
    return f"| {kind} | {_range(noise)} | {_range(scales)} | {_range(sizes)} | {largest:.0e} | {_number(condition)} |"


def _by_condition(verdicts):
    """Return how accelerated runs, the default, ended by condition number, float64 problems within its reach."""
    lines = ["| condition number | observations | CONVERGED | worst, sds | worst, nats |"]
    lines.append(_rule(lines[0]))
    chosen = [v for v in verdicts if v.conditions and set(v.problem.options) <= {"max_iter"} and not v.beyond]
    rows = [(c, s) for v in chosen for c, s in zip(v.conditions, v.statuses, strict=False)]
    for low, high in itertools.pairwise(CONDITIONS):
        inside = [s for c, s in rows if low <= c < high]
        if not inside:
            continue
        near = [v for v in chosen if low <= max(v.conditions) < high]
        worst = (_worst(near, name) for name in ("sds", "nats"))
        share = inside.count("CONVERGED") / len(inside)
        lines.append(f"| {low:.0e} to {high:.0e} | {len(inside)} | {share:.1%} | {' | '.join(worst)} |")
    return lines


def _worst(verdicts, name):
    return _number(max((value for v in verdicts for value in getattr(v, name)), default=None))


def _range(values):
    return f"{np.min(values):.0e} to {np.max(values):.0e}" if len(values) else ""


def _number(value):
    return "" if value is None else f"{max(value, 0.0):.1e}"
