"""The three experiments of the paper's Figure 2, over several images and seeds.

In all three, an iteration is one parallel step, and the curve is the ridge objective at the posterior means.
"""

from __future__ import annotations

from collections.abc import Callable

import forestmix as fmx
from forestmix.paper.curves import Curve, Panel, run_steps
from forestmix.paper.draws import Draw, draw_all, draw_digits, draw_photographs
from forestmix.paper.problems import kernel_problem, region_problem, window_problem
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
