"""A problem as plain arrays in a folder, so that every contender's process reads the same numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sparse


@dataclass(frozen=True, eq=False)
class Problem:
    """One observation of a model with one layer: ``x_i ~ family(bias + sum_j w_ij y_j)``, ``y_j ~ N(0, prior_sd^2)``.

    Args:
        title: what it is, in a few words, with its size.
        family: "gaussian", "bernoulli" or "poisson".
        matrix: W, an array or a CSR array.
        x: the observation, (n,).
        bias: the same number for every row.
        prior_sd: of every latent.
        noise_sd: of a Gaussian row.
        kernel: where W is a blur: its symmetric kernel, centred on each pixel.
        image_shape: of that blur.
        note: what a reader should know about the data.

    """

    title: str
    family: str
    matrix: Any
    x: np.ndarray
    bias: float = 0.0
    prior_sd: float = 1.0
    noise_sd: float = 1.0
    kernel: np.ndarray | None = None
    image_shape: tuple[int, int] | None = None
    note: str = ""

    @property
    def is_sparse(self) -> bool:
        """Whether W is stored by its entries."""
        return sparse.issparse(self.matrix)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and latents."""
        return self.matrix.shape


PLAIN = ("title", "family", "bias", "prior_sd", "noise_sd", "image_shape", "note")
PARTS = ("data", "indices", "indptr")


def save(problem: Problem, folder: Path) -> None:
    """Write the problem."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = {name: getattr(problem, name) for name in PLAIN} | {"shape": problem.shape}
    (folder / "problem.json").write_text(json.dumps(plain), "utf-8")
    arrays = {"x": problem.x}
    if problem.kernel is not None:
        arrays["kernel"] = problem.kernel
    if problem.is_sparse:
        arrays |= {name: getattr(problem.matrix, name) for name in PARTS}
    else:
        arrays["matrix"] = problem.matrix
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def load(folder: Path) -> Problem:
    """Return the problem in ``folder``."""
    plain = json.loads((folder / "problem.json").read_text("utf-8"))
    shape = tuple(plain.pop("shape"))
    plain["image_shape"] = plain["image_shape"] and tuple(plain["image_shape"])
    arrays = {path.stem: np.load(path) for path in folder.glob("*.npy")}
    if "matrix" in arrays:
        matrix = arrays["matrix"]
    else:
        matrix = sparse.csr_array(tuple(arrays[name] for name in PARTS), shape=shape)
    return Problem(**plain, matrix=matrix, x=arrays["x"], kernel=arrays.get("kernel"))
