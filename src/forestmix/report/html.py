"""Small pieces of HTML. Every text that comes in is escaped."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Sequence
from html import escape


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    identifier: str,
    *,
    text_columns: int = 1,
    strong: Collection[tuple[int, int]] = (),
) -> str:
    """Return a table that scrolls by itself where the page is narrow.

    The first columns hold text, the others numbers, aligned at the right. ``strong``: row and column of bold cells.
    """

    def line(cells: Sequence[str], tag: str, row: int = -1) -> str:
        parts = []
        for column, cell in enumerate(cells):
            kind = "" if column < text_columns else ' class="number"'
            text = f"<strong>{escape(cell)}</strong>" if (row, column) in strong else escape(cell)
            parts.append(f"<{tag}{kind}>{text}</{tag}>")
        return f"<tr>{''.join(parts)}</tr>"

    body = "\n".join(line(cells, "td", row) for row, cells in enumerate(rows))
    name = escape(identifier)
    return (
        f'<div class="wide" role="region" aria-label="{name}" tabindex="0">\n<table id="{name}">\n'
        f"<thead>{line(header, 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def picture(wide: bytes, narrow: bytes, description: str, caption: str) -> str:
    """Return a figure with an SVG picture inside the page; a narrow screen gets the panels below each other."""
    wide_address, narrow_address = (
        f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}" for svg in (wide, narrow)
    )
    return (
        f'<figure><picture><source media="(max-width: 50rem)" srcset="{narrow_address}">'
        f'<img alt="{escape(description)}" src="{wide_address}"></picture>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def section(title: str, *parts: str) -> str:
    """Return a section under a heading."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"
