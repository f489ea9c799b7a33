"""Run the benchmarks: ``make bench``, or ``python -m benchmarks elbo --size small`` for one of them, quickly."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib import import_module
from pathlib import Path

from benchmarks.harness.facts import machine_facts
from benchmarks.harness.figures import draw
from benchmarks.harness.page import POSTERIOR_PAGE, REGRESSION_PAGE, verdict, write_page
from benchmarks.harness.results import FILE, POSTERIOR_FILE, REGRESSION_FILE, Results, Section, load, save
from benchmarks.harness.worker import Worker

#: In the order of the page. Modules are imported when they run, so that the page can be written without contenders.
SECTIONS = (
    "machine",
    "gaussian_mean",
    "gaussian_meanfield",
    "elbo",
    "scaling",
    "coordinate",
    "startup",
    "scaling_out",
    "generated",
)
#: What the posterior page is written from, likewise; not part of ``make bench``.
POSTERIORS = ("posteriors", "beside", "coverage", "scale_coverage", "leave_one_out", "sparse_sds", "random_effects")
#: What the regression page is written from, likewise.
REGRESSIONS = ("ridge", "formulas")
#: Pages besides docs/benchmarks.md, by the file of their numbers: their sections and what frames them.
PAGES = {POSTERIOR_FILE: (POSTERIORS, POSTERIOR_PAGE), REGRESSION_FILE: (REGRESSIONS, REGRESSION_PAGE)}
#: Older benchmarks that print and write nothing.
PRINTED = ("windows", "passes", "expectations", "engines", "launch", "latents", "forest")
NAMES = SECTIONS + POSTERIORS + REGRESSIONS + PRINTED
SIZES = ("small", "default", "large")


def meter(name: str) -> Callable[[str], None]:
    """Return what says on the terminal what runs now, and since when."""
    began = time.perf_counter()

    def say(what: str) -> None:
        print(f"[{name} {time.perf_counter() - began:6.1f} s] {what}", file=sys.stderr, flush=True)

    return say


def run_section(name: str, size: str) -> Section:
    """Measure one section, and note when and how long."""
    began = time.perf_counter()
    folder = "benchmarks.sections" if name in SECTIONS else "benchmarks"
    section = import_module(f"{folder}.{name}").measure(size, meter(name))
    section.size, section.date = size, date.today().isoformat()
    section.seconds = time.perf_counter() - began
    return section


def render(results: Results, folder: Path, file: str = FILE) -> None:
    """Write the page of a file of numbers, and its plots."""
    if file in PAGES:
        sections, frame = PAGES[file]
        path = (folder / file).with_suffix(".md")
        write_page(results, sections, path, {}, frame)
    else:
        path = folder / "benchmarks.md"
        write_page(results, SECTIONS, path, draw(results, folder))
    print(f"wrote {path}")
    for section in results.sections.values():
        for target in section.targets:
            print(f"  {verdict(section, target):<12} {target.claim}: {target.measured} (target {target.target})")


def arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all of the first {len(SECTIONS)} when left out"
    )
    parser.add_argument("--size", choices=SIZES, default="default", help="small: a smoke run; large: full sizes")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the page (docs)")
    parser.add_argument("--render", type=Path, metavar="JSON", help="write the page from stored results, run nothing")
    options = parser.parse_args()
    for name in options.names:
        if name not in NAMES:
            parser.error(f"unknown benchmark {name!r}; there are: {', '.join(NAMES)}")
    return options


def main() -> int:
    """Run what was asked for; the page keeps its other sections, and is written anew after each."""
    options = arguments()
    if options.render is not None:
        render(load(options.render), options.out, options.render.name)
        return 0
    Worker.empty_cache = options.size != "small"
    began = time.perf_counter()
    written = set()
    for name in options.names or SECTIONS:
        if name in PRINTED:
            import_module(f"benchmarks.{name}").main()
            continue
        path = options.out / next((file for file, (names, _) in PAGES.items() if name in names), FILE)
        section = run_section(name, options.size)
        save(load(path).merged({name: section}, machine_facts()), path)
        written.add(path)
    for path in sorted(written):
        render(load(path), options.out, path.name)
    print(f"{time.perf_counter() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
