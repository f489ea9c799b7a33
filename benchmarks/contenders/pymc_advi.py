"""PyMC: ADVI with Adam; a sparse W goes through PyTensor's sparse products."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import scipy.sparse as sparse

from benchmarks.problems.store import Problem, load

logging.getLogger("pymc").setLevel(logging.ERROR)


class PymcAdvi:
    """It starts from the prior mean."""

    def __init__(self, folder: Path) -> None:
        self.problem = load(folder)
        self.inference: Any = None

    def advance(self, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Make so many steps more; return mean and sd."""
        if self.inference is None:
            self._begin()
            self.inference.fit(steps, obj_optimizer=pm.adam(learning_rate=rate), progressbar=False)
        else:
            self.inference.refine(steps, progressbar=False)
        parameters = self.inference.approx.params_dict
        return parameters["mu"].get_value(), np.logaddexp(0.0, parameters["rho"].get_value())

    def _begin(self) -> None:
        m = self.problem.shape[1]
        with pm.Model():
            y = pm.Normal("y", 0.0, self.problem.prior_sd, shape=m)
            eta = self.problem.bias + _product(self.problem, y)
            if self.problem.family == "poisson":
                pm.Poisson("x", mu=pm.math.exp(eta), observed=self.problem.x)
            else:
                pm.Bernoulli("x", logit_p=eta, observed=self.problem.x)
            self.inference = pm.ADVI(start={"y": np.zeros(m)}, random_seed=0)


def _product(problem: Problem, y: Any) -> Any:
    if not problem.is_sparse:
        return pm.math.dot(problem.matrix, y)
    from pytensor import sparse as symbolic

    W = symbolic.as_sparse_or_tensor_variable(sparse.csr_matrix(problem.matrix))
    return symbolic.dot(W, y[:, None])[:, 0]
