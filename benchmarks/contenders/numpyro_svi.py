"""NumPyro: stochastic variational inference with AutoNormal and Adam, compiled loops of steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO, init_to_value
from numpyro.infer.autoguide import AutoNormal

from benchmarks.contenders.jax_models import log_likelihood
from benchmarks.problems.store import load


class NumpyroSvi:
    """One run for each learning rate, all started from the prior mean, which is where forestmix starts."""

    def __init__(self, folder: Path) -> None:
        self.problem = load(folder)
        self.value = log_likelihood(self.problem)
        self.runs: dict[float, tuple[Any, Any, Any]] = {}

    def advance(self, rate: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Make so many steps more at a learning rate; return mean and sd."""
        if rate not in self.runs:
            self.runs[rate] = self._begin(rate)
        svi, state, many = self.runs[rate]
        state = jax.block_until_ready(many(state, steps))
        self.runs[rate] = (svi, state, many)
        parameters = svi.get_params(state)
        return np.asarray(parameters["y_auto_loc"]), np.asarray(parameters["y_auto_scale"])

    def _model(self) -> None:
        m = self.problem.shape[1]
        y = numpyro.sample("y", dist.Normal(0.0, self.problem.prior_sd).expand([m]).to_event(1))
        numpyro.factor("x", self.value(y))

    def _begin(self, rate: float) -> tuple[Any, Any, Any]:
        guide = AutoNormal(self._model, init_loc_fn=init_to_value(values={"y": jnp.zeros(self.problem.shape[1])}))
        svi = SVI(self._model, guide, numpyro.optim.Adam(rate), Trace_ELBO())
        state = svi.init(jax.random.key(0))
        # The number of steps is an argument of the compiled loop, so that it is compiled once.
        many = jax.jit(lambda state, steps: jax.lax.fori_loop(0, steps, lambda _, now: svi.update(now)[0], state))
        return svi, state, many
