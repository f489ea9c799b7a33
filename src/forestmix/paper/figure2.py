"""The three experiments of the paper's Figure 2, over several images and seeds, and a comparison beyond them.

In the three, an iteration is one parallel step, and the curve is the ridge objective at the posterior means. Beyond the
paper more algorithms run on two of its problems, against parallel steps, sweeps over W, and seconds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import forestmix as fmx
from forestmix.paper.curves import Panel, run_race, run_steps
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
from forestmix.paper.settings import Bar, Settings, no_bar

SIDES = (1, 3, 7, 15)
WIDTHS = (3, 5, 7)
ORDERS = ("cyclic", "random")


def paper_algorithm() -> fmx.ForestMixture:
    """Return the paper's Algorithm 1: plain steps on its own bound."""
    return fmx.ForestMixture(objective="fm", accelerate=False)


def run_panel(name: str, settings: Settings, bar: Bar = no_bar) -> Panel:
    """Run one experiment of Figure 2."""
    contenders, draw, title = _EXPERIMENTS[name]
    draws, steps = draw_all(draw, settings.seeds, settings.images, settings.full), settings.iterations
    with bar(f"Figure {name[3:]}: {title}", len(contenders(draws[0])) * steps * len(draws)) as advance:
        curves = tuple(
            run_steps(problem, label, algorithm, steps, advance)
            for images in draws
            for label, (problem, algorithm) in contenders(images).items()
        )
    return Panel(name, title, curves)


#: What is run, by label.
Contenders = dict[str, tuple[RidgeProblem, object]]


def _windows(draw: Draw) -> Contenders:
    return {f"s = {side}": (window_problem(draw, side), paper_algorithm()) for side in SIDES}


def _kernels(draw: Draw) -> Contenders:
    return {f"k = {width}": (kernel_problem(draw, width), paper_algorithm()) for width in WIDTHS}


def _regions(draw: Draw) -> Contenders:
    problem = region_problem(draw)
    algorithms: dict[str, object] = {f"CAVI, {order}": fmx.CAVI(order, 1, draw.seed) for order in ORDERS}
    algorithms |= {f"blocks, {order}": fmx.BlockCoordinate(problem.blocks, order, 1, draw.seed) for order in ORDERS}
    algorithms["FM"] = paper_algorithm()
    return {label: (problem, algorithm) for label, algorithm in algorithms.items()}


#: For each panel: what is run on the images of a seed, how these are drawn, and the title.
_EXPERIMENTS: dict[str, tuple[Callable[[Draw], Contenders], Callable[..., Draw], str]] = {
    "fig2a": (_windows, draw_digits, "FM on windows of different sizes"),
    "fig2b": (_kernels, draw_photographs, "FM on CNN kernels of different widths"),
    "fig2c": (_regions, draw_digits, "CAVI, blocks and FM on 16 regions"),
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


def run_races(settings: Settings, bar: Bar = no_bar) -> tuple[Panel, ...]:
    """Run every algorithm on the region problem and on the windows of side 7, with the images of the first seed."""
    draw = draw_digits(settings.seed, settings.images, settings.full)
    problems = {"regions": region_problem(draw), "windows7": window_problem(draw, 7)}
    contenders = {name: _algorithms(problem) for name, problem in problems.items()}
    limit, races = SWEEPS * settings.iterations, []
    with bar("Beyond the paper", limit * sum(map(len, contenders.values()))) as advance:
        for name, problem in problems.items():
            curves = [run_race(problem, label, run, limit, TARGET, advance) for label, run in contenders[name].items()]
            races.append(Panel(name, f"{problem.title}, {problem.n_latent:,} latents", tuple(curves)))
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
