"""blackjax: meanfield_vi with Adam, compiled loops of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.contenders.jax_models import log_likelihood
from benchmarks.problems.store import load

#: Draws for a step, as for the other contenders; the default of the library is 100.
DRAWS = 1


class BlackjaxVi:
    """It starts at means of 0 by itself."""

    def __init__(self, folder: Path) -> None:
        problem = load(folder)
        value, precision = log_likelihood(problem), problem.prior_sd**-2
        self.density = lambda y: value(y) - 0.5 * precision * jnp.sum(y**2)
        self.size = problem.shape[1]
        self.state: Any = None
        self.key = jax.random.key(0)

    def advance(self, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Make so many steps more; return mean and sd."""
        if self.state is None:
            self._begin(rate)
        self.key, now = jax.random.split(self.key)
        self.state = jax.block_until_ready(self.many(now, self.state, steps))
        return np.asarray(self.state.mu), np.exp(np.asarray(self.state.rho))

    def _begin(self, rate: float) -> None:
        algorithm = blackjax.meanfield_vi(self.density, optax.adam(rate), DRAWS)
        self.state = algorithm.init(jnp.zeros(self.size))

        def many(key: Any, state: Any, steps: int) -> Any:
            def step(number: int, now: Any) -> Any:
                return algorithm.step(jax.random.fold_in(key, number), now)[0]

            return jax.lax.fori_loop(0, steps, step, state)

        self.many = jax.jit(many)
