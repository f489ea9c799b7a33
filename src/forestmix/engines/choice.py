"""Which engine runs a model: the reference where loading or compiling kernels would take longer than the whole run.

Measured by ``python -m benchmarks engines``: at the limit an evaluation takes about 1 ms longer than a compiled one,
and a run has some tens of them. To load kernels takes 0.3 s, to compile them some seconds.
"""

from __future__ import annotations

from forestmix.checks import one_of
from forestmix.engines.chunked import ChunkedEngine
from forestmix.engines.grid import GridEngine
from forestmix.engines.protocol import Engine
from forestmix.engines.reference import ReferenceEngine
from forestmix.errors import ArgumentError
from forestmix.model import DEF

#: Entries of W that are stored, times the number of observations, up to which the reference engine runs a model.
SMALL = 2**18
ENGINES = ("auto", "reference", "compiled")


def choose_engine(name: str, model: DEF, n_observations: int, *, sweeps: bool = False) -> Engine:
    """Return the engine of a name; "auto" is the reference for small models and arrays of other libraries.

    ``sweeps``: coordinate updates are asked for, which the compiled engine alone has.
    """
    one_of("engine", name, ENGINES)
    on_device = model.layers[0].weights.on_device
    if name == "compiled" and on_device:
        raise ArgumentError(
            "engine must be 'auto' or 'reference' for W in an array of another library; got 'compiled'."
        )
    if on_device and sweeps:
        raise ArgumentError("W must be a NumPy array or sparse for coordinate updates and groups.")
    if len(model.layers) == 1 and model.layers[0].weights.chunks is not None:
        return _over_chunks(name, model, n_observations)
    entries = sum(layer.weights.stored for layer in model.layers) * n_observations
    small = entries <= SMALL and not sweeps
    return _engine(reference=name == "reference" or on_device or (name == "auto" and small))


def _over_chunks(name: str, model: DEF, n_observations: int) -> Engine:
    """Return the engine for weights in chunks; "auto" goes by the largest chunk."""
    chunks = model.layers[0].weights.chunks
    entries = max(shape.rows * shape.columns for shape in chunks.shapes) * n_observations
    inner = _engine(reference=name == "reference" or (name == "auto" and entries <= SMALL))
    return ChunkedEngine(inner) if len(chunks.columns) == 1 else GridEngine(inner)


def _engine(*, reference: bool) -> ReferenceEngine:
    if reference:
        return ReferenceEngine()
    from forestmix.engines.compiled.engine import CompiledEngine

    return CompiledEngine()
