"""BayesPy: variational message passing with one node for each latent, which is the mean-field factorisation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from bayespy.nodes import Add, GaussianARD, SumMultiply

from benchmarks.problems.store import load


class BayespyVmp:
    """The nodes are built inside the clock: BayesPy has no other way to be given a problem."""

    def __init__(self, folder: Path) -> None:
        self.problem = load(folder)

    def run(self, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and sd after so many sweeps over the latents."""
        problem = self.problem
        latents = [GaussianARD(0.0, problem.prior_sd**-2) for _ in range(problem.shape[1])]
        terms = [SumMultiply(",", latent, problem.matrix[:, j]) for j, latent in enumerate(latents)]
        rows = GaussianARD(Add(*terms), problem.noise_sd**-2)
        rows.observe(problem.x - problem.bias)
        # Node by node rather than by its engine, which would evaluate the bound after every sweep.
        for _ in range(sweeps):
            for latent in latents:
                latent.update()
        moments = np.array([[float(part) for part in latent.get_moments()[:2]] for latent in latents])
        return moments[:, 0], np.sqrt(moments[:, 1] - moments[:, 0] ** 2)
