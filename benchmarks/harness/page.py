"""docs/benchmarks.md, written from the stored results alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from benchmarks.harness.results import Results, Section, Table, Target

INTRODUCTION = """\
# Benchmarks

Written by `make bench`; do not edit. Contenders take turns in one run on the same machine, with all cores for whoever's
turn it is, so ratios mean something even where times do not. Libraries that are compared have a process each, and a
tenth of a second passes between two of them, in which threads that still wait for work in a loop give up. Where a
section states an accuracy, answers are checked to have reached it by NumPy code of its own before times count. Times
are medians; ratios are medians of the ratios within a round, with their range in brackets. In races on
Gaussian models a short run is made several times in a round, and their median counts. "First call" is a contender's
first run in a fresh process, imports done, compilation included.
"""

RERUN = """\
## Run it again

```bash
make bench                                  # everything; each section says how long it took
.venv/bin/python -m benchmarks --size small # a smoke run: tiny sizes, first calls not from empty caches
.venv/bin/python -m benchmarks elbo startup # some sections; the others stay on this page as they are
.venv/bin/python -m benchmarks --size large # full sizes and more repeats
.venv/bin/python -m benchmarks --render docs/benchmarks.json  # write this page again from stored numbers
```

`windows`, `passes`, `expectations`, `engines`, `launch`, `latents` and `forest` print tables of their own and are run
by name; the last is slow. [Posteriors](posteriors.md) has a page of its own. None of them is part of `make bench`.
"""

POSTERIOR_INTRODUCTION = """\
# Posteriors, measured

Measured by `taskset -c 0 python -m benchmarks posteriors beside coverage scale_coverage leave_one_out sparse_sds
random_effects`, which writes this page anew; a test holds the page to the numbers that it stored. Is what `posterior()`
reports right? It is held to NUTS, to exact solves, to fitting again and to simulated truths, with data that come with
scikit-learn and statsmodels. [How far to trust it](trust.md) says what to make of it. Times are CPU seconds on one
core, of forestmix and of all that stands beside it; what a section took in all is time on the clock, beside other work.
"""

POSTERIOR_RERUN = """\
## Run it again

```bash
python -m benchmarks posteriors              # one section or several; the others stay on this page as they are
python -m benchmarks posteriors --size small # a smoke run
```

Needs `pip install -e ".[bench]"`; `beside` also takes what it finds of pymc-extras and gpboost.
"""

REGRESSION_INTRODUCTION = """\
# Regression, measured

Measured by `python -m benchmarks ridge formulas`, which writes this page anew: `regress` and the estimators beside the
libraries that people come from, on data that come with scikit-learn and statsmodels. Large tables by formula are in
[Posteriors, measured](posteriors.md). Sections may be of different runs. Times are of a machine that had other work to
do, so ratios of less than two say nothing.
"""

REGRESSION_RERUN = """\
## Run it again

```bash
python -m benchmarks ridge               # one section or several; the others stay on this page as they are
python -m benchmarks ridge --size small  # a smoke run
```

Needs `pip install -e ".[bench]"`; `formulas` also takes what it finds of bambi and gpboost.
"""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a bar inside a cell is escaped."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def wrap(text: str) -> str:
    """Return a paragraph in lines of the repository's width."""
    return fill(text, 118, break_long_words=False, break_on_hyphens=False)


class Frame(NamedTuple):
    """What stands before and after the sections of a page."""

    introduction: str
    rerun: str


BENCHMARK_PAGE = Frame(INTRODUCTION, RERUN)
POSTERIOR_PAGE = Frame(POSTERIOR_INTRODUCTION, POSTERIOR_RERUN)
REGRESSION_PAGE = Frame(REGRESSION_INTRODUCTION, REGRESSION_RERUN)


def write_page(
    results: Results, order: Sequence[str], path: Path, figures: dict[str, str], frame: Frame = BENCHMARK_PAGE
) -> None:
    """Write the page.

    Args:
        results: all that is known.
        order: names of sections in the order of the page; others follow.
        path: the file to write.
        figures: file names of the plots, with the text that stands in for each.
        frame: introduction and end of the page.

    """
    names = [name for name in order if name in results.sections]
    names += [name for name in results.sections if name not in order]
    sections = [results.sections[name] for name in names]
    parts = [frame.introduction, _machine(results), _targets(sections)]
    parts += [f"![{text}]({file})\n" for file, text in figures.items()]
    parts += [_section(section) for section in sections]
    parts.append(frame.rerun)
    path.write_text("\n".join(parts), "utf-8")


def verdict(section: Section, target: Target) -> str:
    """Return whether a target was met; a smoke run, whose sizes are tiny, cannot tell."""
    return "smoke run" if section.size == "small" else target.verdict


def _machine(results: Results) -> str:
    return markdown_table(("machine", ""), results.facts.items()) + "\n"


def _targets(sections: Sequence[Section]) -> str:
    """Return the table of all targets, met or not."""
    rows = [
        (section.name, target.claim, target.target, target.measured, verdict(section, target))
        for section in sections
        for target in section.targets
    ]
    if not rows:
        return ""
    met = sum(row[-1] == "met" for row in rows)
    head = f"## Targets\n\n{met} of {len(rows)} met.\n\n"
    return head + markdown_table(("section", "claim", "target", "measured", ""), rows) + "\n"


def _section(section: Section) -> str:
    parts = [f"## {section.title}\n", *(f"{wrap(note)}\n" for note in section.notes)]
    parts += [_table(table) for table in section.tables]
    parts.append(f"`{section.name}`, size {section.size}, {section.date}; {section.seconds:.0f} s in all.\n")
    return "\n".join(parts)


def _table(table: Table) -> str:
    title = f"**{table.title}**\n\n" if table.title else ""
    return title + markdown_table(table.columns, table.rows) + "\n"
