"""viabel: mean-field Gaussian, exclusive KL, Adam with averaged iterates; gradients by autograd."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

# viabel imports PyStan 2, which no longer installs, for Stan models alone; there are none here.
sys.modules.setdefault("pystan", ModuleType("pystan"))

import autograd.numpy as anp  # noqa: E402
import numpy as np  # noqa: E402
import tqdm  # noqa: E402
from autograd.extend import defvjp, primitive  # noqa: E402

tqdm.trange = partial(tqdm.trange, disable=True)
anp.product = anp.prod  # viabel uses the name that NumPy 2 dropped

from viabel import ExclusiveKL, MFGaussian, Model  # noqa: E402
from viabel.optimization import Adam  # noqa: E402

from benchmarks.problems.store import load  # noqa: E402

#: Draws for a step, as for the other contenders; the default of the library is 10.
DRAWS = 1
FIRST_LOG_SD = -2.0


class ViabelVi:
    """It starts from the prior mean."""

    def __init__(self, folder: Path) -> None:
        problem = load(folder)
        W, x, precision = problem.matrix, problem.x, problem.prior_sd**-2

        @primitive
        def linear(y: Any) -> Any:
            return np.asarray((W @ y.T).T)

        defvjp(linear, lambda answer, y: lambda outer: np.asarray((W.T @ outer.T).T))
        partition = anp.exp if problem.family == "poisson" else lambda eta: anp.logaddexp(0.0, eta)

        def log_density(y: Any) -> Any:
            eta = problem.bias + linear(y)
            return anp.sum(x * eta - partition(eta), axis=-1) - 0.5 * precision * anp.sum(y**2, axis=-1)

        m = problem.shape[1]
        self.objective = ExclusiveKL(MFGaussian(m), Model(log_density), DRAWS)
        self.last = np.concatenate([np.zeros(m), np.full(m, FIRST_LOG_SD)])
        self.optimiser: Any = None

    def advance(self, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Make so many steps more; return mean and sd, averaged over the last fifth of them."""
        if self.optimiser is None:
            self.optimiser = Adam(rate)
        results = self.optimiser.optimize(steps, self.objective, self.last)
        self.last = results["variational_param_history"][-1]
        mean, log_sd = np.split(results["opt_param"], 2)
        return mean, np.exp(log_sd)
