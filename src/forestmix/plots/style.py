"""How the figures look: one palette that colour-blind readers can tell apart, and one look for all axes."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from forestmix.errors import ArgumentError

#: The palette of Okabe and Ito, in part.
BLUE, SKY, ORANGE, VERMILION, GREEN = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73"
BLACK, GREY = "#222222", "#8A8A8A"
#: With more marks than this, they are pixels inside a vector picture.
MANY = 500

#: For sizes that grow: from dark to light (parts of viridis), and none the colour of an algorithm.
SEQUENCE = ("#2D1160", "#2A788E", "#43BF71", "#BFB200")

# Any: matplotlib types its settings by a list of names that differs between versions.
RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.which": "major",
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.9,
    # The same numbers give the same file: matplotlib would else put random names into an SVG.
    "svg.hashsalt": "forestmix",
    "figure.dpi": 100,
}


#: Colour and dashes of an algorithm, the same wherever it is drawn.
LOOKS = {
    "FM": (BLUE, "-"),
    "FM (paper)": (BLUE, "-"),
    "FM on the ELBO": (SKY, "--"),
    "FM + conjugate gradients": (BLACK, "-"),
    "FM in 16 regions": (GREEN, ":"),
    "FM in 8 groups": (GREEN, "-"),
    "blocks": (ORANGE, "-"),
    "blocks, cyclic": (ORANGE, "-"),
    "blocks, random": (ORANGE, "--"),
    "cyclic CAVI": (VERMILION, "-"),
    "random-order CAVI": (VERMILION, "--"),
    "CAVI, cyclic": (VERMILION, "-"),
    "CAVI, random": (VERMILION, "--"),
}


def look_of(label: str, place: int) -> tuple[str, str]:
    """Return colour and dashes of a line; labels that are not algorithms take theirs by place from the sequence."""
    return LOOKS.get(label, (SEQUENCE[place % len(SEQUENCE)], "-"))


def look() -> Any:
    """Return a context in which figures have the look of forestmix."""
    from matplotlib import rc_context

    return rc_context(RC)


def saved(figure: Any, kind: str = "svg", **options: Any) -> bytes:
    """Return the file of a picture: without dates and versions, so that the same numbers give the same file."""
    stream = io.BytesIO()
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with look():
        figure.savefig(stream, format=kind, dpi=160, metadata=metadata, **options)
    return stream.getvalue()


def one_axes(axes: Any, size: tuple[float, float]) -> Any:
    """Return the axes that were given, or those of a new figure of a size in inches."""
    if axes is not None and not hasattr(axes, "hlines"):
        raise ArgumentError(f"axes must be matplotlib axes; got {type(axes).__name__}.")
    return several_axes(axes, 1, size)[0]


def several_axes(axes: Any, count: int, size: tuple[float, float]) -> Any:
    """Return an array of ``count`` axes: those that were given, or those of a new figure."""
    if axes is None:
        from matplotlib import pyplot

        return np.atleast_1d(pyplot.subplots(1, count, figsize=size, layout="constrained")[1])
    given = np.ravel(np.array(axes, dtype=object))
    wrong = [type(one).__name__ for one in given if not hasattr(one, "hlines")]
    if len(given) != count or wrong:
        found = f"{len(given)} entries" if len(given) != count else ", ".join(wrong)
        raise ArgumentError(f"axes must be {count} matplotlib axes; got {found}.")
    for one in given:  # made elsewhere, so that they get the same spines and grid here
        one.spines[["top", "right"]].set_visible(False)
        one.grid(True, color=RC["grid.color"], linewidth=RC["grid.linewidth"])
        one.set_axisbelow(True)
    return given
