"""Microseconds of one evaluation of all statistics: the reference engine beside the compiled one, W dense.

Both have evaluated once before, so nothing is compiled or prepared in the time. They take turns, and the shortest of
many times counts. The last column is after how many evaluations compiling would have paid, if it takes ten seconds.
"""

import time

import numpy as np

import forestmix as fmx
from forestmix.engines.compiled.engine import CompiledEngine
from forestmix.engines.protocol import Spread, Want
from forestmix.engines.reference import ReferenceEngine
from forestmix.latents import GaussianFactors
from forestmix.model import observations

SHAPES = [(50, 5), (50, 20), (500, 10), (500, 100), (2000, 20), (2000, 200), (5000, 50), (5000, 1000)]
FAMILIES = {"gaussian": fmx.Gaussian(1.0), "bernoulli": fmx.Bernoulli(), "poisson": fmx.Poisson()}
SECONDS = 0.5
COMPILING = 10.0


def contenders(name, shape, objective):
    """Return two calls that evaluate the same model at the same point."""
    rng = np.random.default_rng(0)
    m = shape[1]
    model = fmx.DEF(fmx.Layer(FAMILIES[name], rng.standard_normal(shape) / np.sqrt(m)))
    layer, data = model.layers[0], observations(model, model.sample(rng).x)
    q = GaussianFactors(rng.standard_normal((1, m)), np.full((1, m), 0.3))
    spread = Spread.ABSOLUTE if objective == "fm" else Spread.SQUARED

    def evaluation(engine):
        rows = engine.observe(layer, data)
        return lambda: engine.statistics(layer, rows, q, Want.ALL, spread)

    return [evaluation(engine) for engine in (ReferenceEngine(), CompiledEngine())]


def shortest_times(calls):
    """Return the shortest time of each, in microseconds."""
    best, end = [np.inf] * len(calls), time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for k, call in enumerate(calls):
            start = time.perf_counter()
            call()
            best[k] = min(best[k], 1e6 * (time.perf_counter() - start))
    return best


def main() -> None:
    print("rows              n x m objective  reference  compiled  ratio  pays after")
    for name in FAMILIES:
        for shape in SHAPES:
            for objective in ("fm", "elbo"):
                calls = contenders(name, shape, objective)
                for call in calls:
                    call()
                reference, compiled = shortest_times(calls)
                pays = f"{1e6 * COMPILING / (reference - compiled):,.0f}" if reference > compiled else "never"
                print(
                    f"{name:<10} {f'{shape[0]} x {shape[1]}':>12} {objective:>9} {reference:>10,.0f} {compiled:>9,.0f} "
                    f"{reference / compiled:>6.1f} {pays:>11}"
                )


if __name__ == "__main__":
    main()
