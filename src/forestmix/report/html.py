"""Small pieces of HTML. Every text that comes in is escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape


def table(header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: int = 1, identifier: str = "") -> str:
    """Return a table; the first columns hold text, the others numbers, which are aligned at the right."""

    def line(cells: Sequence[str], tag: str) -> str:
        kinds = ("" if place < text_columns else ' class="number"' for place in range(len(cells)))
        return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    name = f' id="{escape(identifier)}"' if identifier else ""
    return f"<table{name}>\n<thead><tr>{line(header, 'th')}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def picture(svg: bytes, description: str, caption: str) -> str:
    """Return a figure with the picture inside the page."""
    content = base64.b64encode(svg).decode()
    image = f'<img alt="{escape(description)}" src="data:image/svg+xml;base64,{content}">'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>"


def items(sentences: Iterable[str]) -> str:
    """Return a list of sentences."""
    return "<ul>\n" + "\n".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "\n</ul>"


def section(title: str, *parts: str) -> str:
    """Return a section under a heading."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def number(value: float) -> str:
    """Return a number with four significant digits."""
    return f"{value:.4g}"
