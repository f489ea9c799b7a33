"""A forest as a graph of networkx."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forestmix.arrays import Array
from forestmix.errors import MissingExtraError


def forest_graph(parents: Array, weights: Array, strengths: Array, chances: Array, names: Sequence[str]) -> Any:
    """Return a directed graph with an edge from each tree's latent to its variables.

    Latents are nodes ``("tree", j)``, variables are nodes with their names. An edge has ``weight`` (that of the model),
    ``strength`` (0 to 1) and ``probability`` (of this parent).
    """
    try:
        import networkx
    except ImportError as error:
        raise MissingExtraError("to_networkx needs networkx: pip install 'forestmix[forest]'") from error
    graph = networkx.DiGraph()
    graph.add_nodes_from((("tree", int(j)), {"kind": "latent", "tree": int(j)}) for j in sorted(set(parents.tolist())))
    for i, name in enumerate(names):
        tree = int(parents[i])
        graph.add_node(name, kind="variable", tree=tree, index=i)
        graph.add_edge(
            ("tree", tree),
            name,
            weight=float(weights[i]),
            strength=float(strengths[i]),
            probability=float(chances[i]),
        )
    return graph
