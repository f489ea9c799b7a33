"""Passes over W to a relative gap of 1e-8 in the ELBO, for rows that are not Gaussian.

A pass is one evaluation of the rows, or one inner iteration of conjugate gradients (two products with W and
no one-dimensional expectations); a step that was refused counts too. For the
first four problems the column "prototype" has the best of three methods, in plain NumPy, before there was a library.
Contenders:

- accelerated: what ``accelerate=True`` does, Newton steps that keep their inner products as a metric;
- Newton-CG: the same with no metric and an inner solve at every step;
- L-BFGS, metric D: on the means, started from the forest mixture curvature rescaled by the last pair;
- plain: forest mixture steps.

The last columns say where the default tolerance stops: the relative distance from the optimum, and the largest error of
a mean in posterior standard deviations.
"""

from dataclasses import dataclass
from unittest import mock

import numpy as np
from scipy import sparse

import forestmix as fmx
from forestmix.inference.base import Proposal, Steps
from forestmix.inference.metric import MetricNewton
from forestmix.inference.plain import plain_retreats
from forestmix.problem.conjugate import dot, quotient

GAP = 1e-8
LIMIT, PLAIN_LIMIT = 2000, 4000
#: name: family, rows, latents, density, best of the design's three methods
PROBLEMS = {
    "Bernoulli 4000 x 800, dense": (fmx.Bernoulli(), 4000, 800, 1.0, 11),
    "Bernoulli 4000 x 800, 2 %": (fmx.Bernoulli(), 4000, 800, 0.02, 12),
    "Poisson 4000 x 800, 2 %": (fmx.Poisson(), 4000, 800, 0.02, 59),
    "Poisson 3000 x 300, dense": (fmx.Poisson(), 3000, 300, 1.0, 36),
}
#: Ill-conditioned ones, neighbouring columns correlated by 0.98: these decide which method is the default.
CORRELATED = {"Bernoulli, correlated": (fmx.Bernoulli(), 1.0), "Poisson, correlated": (fmx.Poisson(), 0.03)}


class SecantMemory(Steps):
    """L-BFGS on the means; the variances take their fixed point at every step."""

    def __init__(self):
        self.pairs, self.last = [], None

    def forget(self, which):
        """Drop the pairs."""
        self.pairs = []

    def propose(self, problem, point):
        """Return the step of the two-loop recursion."""
        rows, at = problem.rows, point.rows
        if self.last is not None:
            change, fall = at.q.mean - self.last[0], self.last[1] - at.gradient
            if (dot(change, fall) > 0).all():
                self.pairs = [*self.pairs, (change, fall)][-10:]
        self.last = (at.q.mean, at.gradient)
        metric = rows.prior.precision + rows.curvature(at)
        rest, shares = at.gradient, []
        for change, fall in reversed(self.pairs):
            shares.append(quotient(dot(change, rest), dot(change, fall)))
            rest = rest - shares[-1] * fall
        scale = 1.0
        if self.pairs:
            change, fall = self.pairs[-1]
            scale = quotient(dot(change, fall), dot(fall, fall / metric))
        step = scale * rest / metric
        for (change, fall), share in zip(self.pairs, reversed(shares), strict=True):
            step = step + change * (share - quotient(dot(fall, step), dot(change, fall)))
        q = point.q.moved(at.q.mean + step, rows.precision(at) ** -0.5)
        return Proposal(q, 1, problem.size, retreats=plain_retreats(problem, point))


@dataclass(frozen=True)
class Secant(fmx.ForestMixture):
    """The forest mixture algorithm with that accelerator in place of its own."""

    def start(self, problem, point):
        """Return a memory without pairs."""
        return SecantMemory()


def build(family, n, m, density, seed=0):
    """Return a model with weights of unit row variance, and an observation drawn from it."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, m)) * (rng.random((n, m)) < density) / np.sqrt(m * density)
    model = fmx.DEF(fmx.Layer(family, W if density == 1 else sparse.csr_array(W)))
    return model, model.sample(rng).x


def build_correlated(family, scale, n=800, m=100, seed=0):
    """Return a regression whose columns are a random walk that forgets slowly, under a wide prior."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((n, m))
    for j in range(1, m):
        W[:, j] = 0.98 * W[:, j - 1] + np.sqrt(1 - 0.98**2) * W[:, j]
    model = fmx.DEF(fmx.Layer(family, scale * W), prior=fmx.Prior(fmx.Gaussian(3.0)))
    return model, model.sample(rng).x


def passes(model, x, algorithm, best, max_iter=LIMIT):
    """Return the passes until the ELBO is within GAP of the best, or None."""
    trace = fmx.infer(model, x, algorithm, tol=1e-12, max_iter=max_iter).trace
    there = np.flatnonzero(trace.objective >= best - GAP * abs(best))
    assert (np.diff(trace.objective) >= -1e-9 * np.abs(trace.objective[1:])).all()
    return int(1 + trace.sweeps[there[0]]) if len(there) else None


def main() -> None:
    print(f"Passes over W to a relative gap of {GAP:g} in the ELBO")
    header = ("problem", "accelerated", "Newton-CG", "L-BFGS", "plain", "prototype", "default gap", "mean / sd")
    print(f"{header[0]:<28}" + "".join(f"{name:>13}" for name in header[1:]))
    problems = {name: (build(*sizes), design) for name, (*sizes, design) in PROBLEMS.items()}
    problems |= {name: (build_correlated(*sizes), "-") for name, sizes in CORRELATED.items()}
    for name, ((model, x), design) in problems.items():
        tight = fmx.infer(model, x, tol=1e-12)
        best = tight.objective
        accelerated = passes(model, x, fmx.ForestMixture(), best)
        with mock.patch.object(MetricNewton, "_keep"):
            newton_cg = passes(model, x, fmx.ForestMixture(), best)
        secant = passes(model, x, Secant(), best)
        plain = passes(model, x, fmx.ForestMixture(accelerate=False), best, PLAIN_LIMIT)
        default = fmx.infer(model, x)
        gap = (best - default.objective) / abs(best)
        error = np.abs((default.mean - tight.mean) / tight.sd).max()
        counts = [count or f"> {LIMIT}" for count in (accelerated, newton_cg, secant)]
        counts += [plain or f"> {PLAIN_LIMIT}", design]
        print(f"{name:<28}" + "".join(f"{count!s:>13}" for count in counts) + f"{gap:>13.1e}{error:>13.1e}")


if __name__ == "__main__":
    main()
