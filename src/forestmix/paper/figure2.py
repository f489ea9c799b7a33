"""The three experiments of the paper's Figure 2, over several images and seeds, and a comparison beyond them.

In the three, an iteration is one parallel step, and the curve is the ridge objective at the posterior means. Beyond the
paper more algorithms run on two of its problems, against parallel steps, sweeps over W, and seconds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import forestmix as fmx
from forestmix.paper.curves import Curve, Panel, run_race, run_steps
from forestmix.paper.problems import (
    Draw,
    RidgeProblem,
    draw_all,
    draw_digits,
    draw_photographs,
    kernel_problem,
    region_problem,
    window_problem,
)
from forestmix.paper.settings import Meter, Settings

SIDES = (1, 3, 7, 15)
WIDTHS = (3, 5, 7)
ORDERS = ("cyclic", "random")


def paper_algorithm() -> fmx.ForestMixture:
    """Return the paper's Algorithm 1: plain steps on its own bound."""
    return fmx.ForestMixture(objective="fm", accelerate=False)


def run_panel(name: str, settings: Settings, meter: Meter | None = None) -> Panel:
    """Run one experiment of Figure 2."""
    experiment, draw, title, curves = _EXPERIMENTS[name]
    meter = meter or Meter()
    meter.begin(f"Figure {name[3:]}: {title}", curves * settings.iterations * settings.repeats)
    draws = draw_all(draw, settings.seeds, settings.images, settings.full)
    done = tuple(curve for images in draws for curve in experiment(images, settings.iterations, meter))
    meter.end()
    return Panel(name, title, done)


def _windows(draw: Draw, steps: int, meter: Meter) -> list[Curve]:
    return [run_steps(window_problem(draw, side), f"s = {side}", paper_algorithm(), steps, meter) for side in SIDES]


def _kernels(draw: Draw, steps: int, meter: Meter) -> list[Curve]:
    return [run_steps(kernel_problem(draw, k), f"k = {k}", paper_algorithm(), steps, meter) for k in WIDTHS]


def _regions(draw: Draw, steps: int, meter: Meter) -> list[Curve]:
    problem = region_problem(draw)
    algorithms: dict[str, object] = {f"CAVI, {order}": fmx.CAVI(order, 1, draw.seed) for order in ORDERS}
    algorithms |= {f"blocks, {order}": fmx.BlockCoordinate(problem.blocks, order, 1, draw.seed) for order in ORDERS}
    algorithms["FM"] = paper_algorithm()
    return [run_steps(problem, label, algorithms[label], steps, meter) for label in algorithms]


#: For each panel: how to run a seed, what to draw for it, the title, and the number of curves.
_EXPERIMENTS: dict[str, tuple[Callable[[Draw, int, Meter], list[Curve]], Callable[..., Draw], str, int]] = {
    "fig2a": (_windows, draw_digits, "FM on windows of different sizes", len(SIDES)),
    "fig2b": (_kernels, draw_photographs, "FM on CNN kernels of different widths", len(WIDTHS)),
    "fig2c": (_regions, draw_digits, "CAVI, blocks and FM on 16 regions", 1 + 2 * len(ORDERS)),
}


#: A run ends when every image is within this relative gap, or after so many sweeps for each iteration of Figure 2.
TARGET = 1e-3
SWEEPS = 5
#: Groups that hold every eighth latent: neighbours, which overlap most, are in different groups.
INTERLEAVED = 8

FM = "FM (paper)"
ELBO = "FM on the ELBO"
ACCELERATED = "FM + conjugate gradients"
REGIONS = "FM in 16 regions"
GROUPS = f"FM in {INTERLEAVED} groups"
BLOCKS = "blocks"
CAVI = "cyclic CAVI"
SHUFFLED = "random-order CAVI"


def run_races(settings: Settings, meter: Meter | None = None) -> tuple[Panel, ...]:
    """Run every algorithm on the region problem and on the windows of side 7, with the images of the first seed."""
    meter = meter or Meter()
    draw = draw_digits(settings.seed, settings.images, settings.full)
    problems = {"regions": region_problem(draw), "windows7": window_problem(draw, 7)}
    contenders = {name: _algorithms(problem) for name, problem in problems.items()}
    limit = SWEEPS * settings.iterations
    meter.begin("Beyond the paper", limit * sum(map(len, contenders.values())))
    races = []
    for name, problem in problems.items():
        curves = [run_race(problem, label, run, limit, TARGET, meter) for label, run in contenders[name].items()]
        races.append(Panel(name, f"{problem.title}, {problem.n_latent:,} latents", tuple(curves)))
    meter.end()
    return tuple(races)


def _algorithms(problem: RidgeProblem) -> dict[str, object]:
    m = problem.n_latent
    interleaved = [np.arange(first, m, INTERLEAVED) for first in range(INTERLEAVED)]
    algorithms: dict[str, object] = {
        FM: paper_algorithm(),
        ELBO: fmx.ForestMixture(objective="elbo", accelerate=False),
        ACCELERATED: fmx.ForestMixture(objective="elbo", accelerate="cg"),
        GROUPS: fmx.ForestMixture(objective="elbo", groups=interleaved),
    }
    if problem.blocks is not None:  # one group after another, and one variable of every block at once
        algorithms[REGIONS] = fmx.ForestMixture(objective="elbo", groups=problem.blocks)
        algorithms[BLOCKS] = fmx.BlockCoordinate(problem.blocks)
    return algorithms | {CAVI: fmx.CAVI(), SHUFFLED: fmx.CAVI("random", seed=problem.draw.seed)}
