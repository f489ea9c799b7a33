"""Solvers of the ridge problem: SciPy's and scikit-learn's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, cg, lsmr

from benchmarks.problems.store import load

#: More latents (and rows) than this, and a direct method would not fit into memory.
LARGEST_DIRECT = 20_000
MAX_ITERATIONS = 100_000


class RidgeSolvers:
    """``minimise |x - W y|^2 + penalty |y|^2``. Nothing here compiles, so all of them share a process."""

    def __init__(self, folder: Path) -> None:
        from sklearn.linear_model import Ridge

        problem = load(folder)
        self.W, self.target = problem.matrix, problem.x - problem.bias
        self.sparse = problem.is_sparse
        self.penalty = (problem.noise_sd / problem.prior_sd) ** 2
        self.Ridge = Ridge

    def run(self, solver: str, tolerance: float) -> np.ndarray:
        """Return y by a method of this class, or by the solver of ``Ridge`` that is named after a colon."""
        name, _, option = solver.partition(":")
        return getattr(self, name)(tolerance, option) if option else getattr(self, name)(tolerance)

    def lsmr(self, tolerance: float) -> np.ndarray:
        """``scipy.sparse.linalg.lsmr`` with damping."""
        return lsmr(
            self.W, self.target, damp=self.penalty**0.5, atol=tolerance, btol=tolerance, conlim=0,
            maxiter=MAX_ITERATIONS,
        )[0]  # fmt: skip

    def cg(self, tolerance: float, preconditioner: str = "") -> np.ndarray:
        """``scipy.sparse.linalg.cg`` on the normal equations, which are not formed."""
        m = self.W.shape[1]
        normal = LinearOperator((m, m), lambda y: self.W.T @ (self.W @ y) + self.penalty * y, dtype=np.float64)
        scale = LinearOperator((m, m), self._jacobi(), dtype=np.float64) if preconditioner else None
        return cg(normal, self.W.T @ self.target, rtol=tolerance, maxiter=MAX_ITERATIONS, M=scale)[0]

    def cholesky(self, tolerance: float) -> np.ndarray:
        """Form the smaller of the two Gram matrices by BLAS, then ``scipy.linalg.cho_solve``; it has no tolerance."""
        W = self.W.toarray() if self.sparse else self.W
        n, m = W.shape
        gram = W @ W.T if n < m else W.T @ W
        gram[np.diag_indices_from(gram)] += self.penalty
        factor = scipy.linalg.cho_factor(gram, overwrite_a=True, check_finite=False)
        if n < m:
            return W.T @ scipy.linalg.cho_solve(factor, self.target, check_finite=False)
        return scipy.linalg.cho_solve(factor, W.T @ self.target, check_finite=False)

    def ridge(self, tolerance: float, solver: str) -> np.ndarray:
        """``sklearn.linear_model.Ridge`` without an intercept, which the model does not have."""
        ridge = self.Ridge(
            alpha=self.penalty, solver=solver, fit_intercept=False, tol=tolerance, max_iter=MAX_ITERATIONS,
            random_state=0,
        )  # fmt: skip
        return ridge.fit(self.W, self.target).coef_

    def _jacobi(self) -> Any:
        squares = self.W.multiply(self.W).sum(axis=0) if self.sparse else np.einsum("ij,ij->j", self.W, self.W)
        inverse = 1 / (np.asarray(squares).ravel() + self.penalty)
        return lambda y: inverse * y.ravel()
