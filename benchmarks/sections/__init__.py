"""The sections of docs/benchmarks.md, in its order; each module has ``measure(size, say)``, which returns a Section."""
