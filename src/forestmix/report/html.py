"""Pieces of HTML, every text in them escaped, and the page that holds all: style, script and pictures inside it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any, NamedTuple

from forestmix.plots.style import look, saved


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    identifier: str,
    *,
    label: str = "",
    text_columns: int = 1,
    strong: Collection[tuple[int, int]] = (),
    sortable: bool = False,
) -> str:
    """Return a table that scrolls by itself where the page is narrow.

    The first columns hold text, the others numbers, aligned at the right. ``label``: what a screen reader calls it;
    ``strong``: row and column of bold cells; ``sortable``: whether a script may make buttons of its headings.
    """
    titles = "".join(
        f'<th scope="col"{_number(column, text_columns)}>{escape(cell)}</th>' for column, cell in enumerate(header)
    )
    body = "\n".join(_row(cells, row, text_columns, strong) for row, cells in enumerate(rows))
    name, kind = escape(identifier), ' class="sortable"' if sortable else ""
    return (
        f'<div class="wide" role="region" aria-label="{escape(label or identifier)}" tabindex="0">\n'
        f'<table id="{name}"{kind}>\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>'
    )


def _row(cells: Sequence[str], row: int, text_columns: int, strong: Collection[tuple[int, int]]) -> str:
    """Return a row whose first cell is its heading."""
    parts = []
    for column, cell in enumerate(cells):
        tag, scope = ("th", ' scope="row"') if column == 0 else ("td", "")
        text = f"<strong>{escape(cell)}</strong>" if (row, column) in strong else escape(cell)
        parts.append(f"<{tag}{scope}{_number(column, text_columns)}>{text}</{tag}>")
    return f"<tr>{''.join(parts)}</tr>"


def _number(column: int, text_columns: int) -> str:
    return "" if column < text_columns else ' class="number"'


def picture(wide: bytes, narrow: bytes, description: str, caption: str) -> str:
    """Return a figure with an SVG picture inside the page; a narrow screen gets one that is drawn for it."""
    wide_address, narrow_address = (
        f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" for svg in (wide, narrow)
    )
    return (
        f'<figure><picture><source media="(max-width: 50rem)" srcset="{narrow_address}">'
        f'<img alt="{escape(description)}" src="{wide_address}"></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def section(title: str, *parts: str) -> str:
    """Return a section under a heading, which other places of the page may link to."""
    return f'<section aria-labelledby="{anchor(title)}">\n<h2 id="{anchor(title)}">{escape(title)}</h2>\n' + (
        "\n".join(parts) + "\n</section>"
    )


def anchor(title: str) -> str:
    """Return the name of a section in an address."""
    return "section-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def heading(text: str) -> str:
    """Return a heading inside a section."""
    return f"<h3>{escape(text)}</h3>"


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def bullets(lines: Iterable[str]) -> str:
    """Return a list; nothing for no lines."""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else ""


def folded(summary: str, *parts: str) -> str:
    """Return what opens on demand, also without scripts."""
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"


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

    with look():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(*grid, squeeze=False).ravel()
        draw(axes if len(axes) > 1 else axes[0])
        # A drawing without axes keeps its shape, so that there may be much empty paper around it.
        box = None if any(one.axison for one in axes) else "tight"
        return saved(figure, bbox_inches=box)
