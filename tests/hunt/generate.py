"""Problems by family, number and seed: each has a generator of its own, so that any of them can be made alone."""

from dataclasses import replace

import numpy as np

from .problems import KINDS


def generate(names, count, seed):
    """Yield about ``count`` problems, the families in turn."""
    order = list(KINDS)
    for k in range(-(-count // len(names))):
        for name in names:
            rng = np.random.default_rng([seed, order.index(name), k])
            yield replace(KINDS[name](rng), name=f"[{seed}, {name}, {k}]")
