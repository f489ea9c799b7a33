"""The table of docs/ranges.md."""

from collections import Counter

import numpy as np


def table(verdicts):
    """Return a line for each family."""
    return "\n".join(_row(kind, [v for v in verdicts if v.problem.kind == kind]) for kind in dict.fromkeys(v.problem.kind for v in verdicts))


def _row(kind, verdicts):
    statuses = Counter(s for v in verdicts for s in v.statuses)
    sds, nats = ([x for v in verdicts for x in getattr(v, n)] for n in ("sds", "nats"))
    iterations = [i for v in verdicts for i in v.iterations]
    return f"{kind} {len(verdicts)} {dict(statuses)} sds {max(sds, default=np.nan):.2g} nats {max(nats, default=np.nan):.2g} iterations {np.median(iterations or [0]):.0f} {max(iterations, default=0)} beyond {sum(v.beyond for v in verdicts)}"
