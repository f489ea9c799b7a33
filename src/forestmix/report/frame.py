"""The frame that every report has: one page with its style and its small script inside, and nothing from elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any, NamedTuple

from forestmix.plots.style import look
from forestmix.report.html import anchor, picture, section

#: Width and height of a picture in inches, for a desktop and for a phone.
WIDE, NARROW = (8.4, 3.5), (4.3, 3.2)


class Part(NamedTuple):
    """A section of the page."""

    title: str
    content: str


def render_page(title: str, opening: str, parts: Sequence[Part]) -> str:
    """Return a page: the opening, links to the sections, the sections."""
    template = Template((resources.files("forestmix.report") / "page.html").read_text("utf-8"))
    links = " ".join(f'<a href="#{anchor(part.title)}">{escape(part.title)}</a>' for part in parts)
    contents = f'<nav aria-label="Sections">{links}</nav>' if len(parts) > 1 else ""
    body = "\n".join([opening, contents, *(section(part.title, part.content) for part in parts)])
    return template.substitute(title=escape(title), body=body)


def drawn(
    draw: Callable[[Any], object], description: str, caption: str, *, height: float = 0.0, panels: int = 1
) -> str:
    """Return a figure for both widths of screen.

    Args:
        draw: draws on axes, or on an array of them.
        description: what the picture shows, for people who do not see it.
        caption: how to read it.
        height: of a panel in inches; the usual one when left out.
        panels: number of axes: side by side on a desktop, below each other on a phone.

    """
    wide = _svg(draw, (WIDE[0], height or WIDE[1]), (1, panels))
    narrow = _svg(draw, (NARROW[0], panels * (height or NARROW[1])), (panels, 1))
    return picture(wide, narrow, description, caption)


def _svg(draw: Callable[[Any], object], size: tuple[float, float], grid: tuple[int, int]) -> bytes:
    """Return a picture; a figure of its own, not pyplot's, needs no display and leaves nothing behind."""
    from matplotlib.figure import Figure

    stream = io.BytesIO()
    with look():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(*grid, squeeze=False).ravel()
        draw(axes if len(axes) > 1 else axes[0])
        # A drawing without axes keeps its shape, so that there may be much empty paper around it.
        box = None if any(one.axison for one in axes) else "tight"
        figure.savefig(stream, format="svg", dpi=150, metadata={"Date": None}, bbox_inches=box)
    return stream.getvalue()
