"""Problems by family, number and seed: each has a generator of its own, so that any of them can be made alone."""

from dataclasses import replace

import numpy as np

from .problems import KINDS, LARGEST


def generate(names, count, seed, iterations=None, largest=LARGEST):
    """Yield about ``count`` problems, the families in turn.

    Args:
        names: of the families.
        count: how many problems, rounded up to as many for each family.
        seed: of all of them.
        iterations: fewer iterations than each would be given.
        largest: rows and latents at most.

    """
    order = list(KINDS)
    for k in range(-(-count // len(names))):
        for name in names:
            rng = np.random.default_rng([seed, order.index(name), k])
            problem = KINDS[name](rng, largest)
            if iterations is not None:
                limit = min(problem.options["max_iter"], iterations)
                problem = replace(problem, options={**problem.options, "max_iter": limit})
            yield replace(problem, name=f"[{seed}, {name}, {k}]")
