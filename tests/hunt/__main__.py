"""``python -m tests.hunt``: generate problems, judge forestmix on them, and print what failed."""

import argparse
import multiprocessing
import sys
from collections import Counter
from pathlib import Path

from .generate import generate
from .judge import judge
from .known import KNOWN
from .problems import KINDS
from .table import table, write


def main():
    """Run the hunt; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.hunt", description=__doc__)
    parser.add_argument("--problems", type=int, default=3000, help="how many, over all families")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=KINDS, action="append", help="only this one; may be given several times")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--known", action="store_true", help="only the problems that were once answered wrongly")
    parser.add_argument("--table", action="store_true", help="print the table of docs/ranges.md")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page, docs/ranges.md")
    parser.add_argument("--verbose", action="store_true", help="print every problem")
    arguments = parser.parse_args()
    verdicts = hunt(arguments)
    if arguments.table:
        print(table(verdicts))
    if arguments.write:
        write(arguments.write, table(verdicts))
    failed = [v for v in verdicts if v.failures]
    kinds = Counter((v.problem.kind, kind) for v in failed for kind in {kind for kind, _ in v.failures})
    for (family, kind), count in sorted(kinds.items()):
        print(f"{family}: {kind} in {count} problems")
    print(f"{len(verdicts)} problems, {len(failed)} failed, {sum(v.unknown for v in verdicts)} unknown to the oracle")
    return 1 if failed else 0


def hunt(arguments):
    """Judge the known problems and the generated ones; show progress on a terminal, and failures as they come."""
    names = arguments.family or list(KINDS)
    problems = [] if arguments.family else list(KNOWN)
    if not arguments.known:
        problems += generate(names, arguments.problems, arguments.seed)
    verdicts, terminal = [], sys.stderr.isatty()
    for k, verdict in enumerate(judged(problems, arguments.jobs)):
        verdicts.append(verdict)
        show(verdict, arguments.verbose)
        if terminal:
            failed = sum(bool(v.failures) for v in verdicts)
            print(f"\r{k + 1} of {len(problems)}, {failed} failed", end="", file=sys.stderr, flush=True)
    if terminal:
        print(file=sys.stderr)
    return verdicts


def judged(problems, jobs):
    """Yield a verdict for each problem, in their order; several processes judge several at a time."""
    if jobs == 1:
        yield from map(judge, problems)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(judge, problems, chunksize=4)


def show(verdict, verbose):
    """Print a problem's failures with the line of code that repeats it."""
    if verdict.failures or verbose:
        print(f"{verdict.problem.name} {verdict.problem.kind} {verdict.problem.options} {verdict.statuses} "
              f"{verdict.seconds:.2f} s")  # fmt: skip
        for kind, text in verdict.failures:
            print(f"  {kind}: {text}")
    if verdict.failures:
        print(f"  {verdict.problem.line()}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
