"""Load mutated copies of a file: ``python fuzz.py file count seed``. Prints how many of each ending there were."""

import collections
import random
import resource
import sys
import tempfile
import tracemalloc
from pathlib import Path

import forestmix as fmx


def mutated(content, rng):
    """Return the bytes with some flipped, overwritten, cut off, left out, repeated, or put in."""
    content, kind = bytearray(content), rng.randrange(6)
    place, length = rng.randrange(len(content)), rng.choice([1, 4, 100, 5000])
    if kind == 0:
        for _ in range(rng.choice([1, 1, 3, 50])):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    elif kind == 1:
        content[place : place + length] = rng.randbytes(length)
    elif kind == 2:
        del content[place:]
    elif kind == 3:
        del content[place : place + length]
    elif kind == 4:
        content[place:place] = content[place : place + length] or b"x"
    else:
        content[place:place] = rng.randbytes(length)
    return bytes(content)


def main(path, count, seed):
    whole, rng = Path(path).read_bytes(), random.Random(seed)
    fmx.load(path)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    endings = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "mutated.nc"
        tracemalloc.start()
        for _ in range(count):
            changed = mutated(whole, rng)
            target.write_bytes(changed)
            tracemalloc.reset_peak()
            try:
                fmx.load(target)
                endings["loaded" if changed == whole else "loaded a changed file"] += 1
            except fmx.ForestmixError:
                endings["refused"] += 1
            assert tracemalloc.get_traced_memory()[1] < 4 * len(whole) + 2**23
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
    assert grown < 2**16, f"{grown} KB more than for the whole file"
    print(dict(endings))


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
