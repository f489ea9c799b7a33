"""Run the benchmarks: ``make bench``, or ``python -m benchmarks windows`` for one of them."""

import sys

from benchmarks import expectations, latents, nuts, passes, windows

BENCHMARKS = {
    "windows": windows.main,
    "passes": passes.main,
    "expectations": expectations.main,
    "latents": latents.main,
    "nuts": nuts.main,
}


def main() -> int:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"unknown benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
        return 2
    for name in names:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
