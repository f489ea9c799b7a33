"""A problem of the hunt: arrays, options, and the line of code that runs it."""

from dataclasses import dataclass, field, replace

import numpy as np

#: Parameters of a family of latents in the order of its constructor; a bias stands beside them in the prior.
PARAMETERS = {
    "gaussian": ("sd",), "laplace": ("scale",), "exponential": ("rate",), "spike_slab": ("inclusion", "sd"),
    "bernoulli": (), "poisson": (),
}  # fmt: skip
CLASSES = {
    "gaussian": "Gaussian", "laplace": "Laplace", "exponential": "Exponential", "spike_slab": "SpikeSlab",
    "bernoulli": "Bernoulli", "poisson": "Poisson", "binomial": "Binomial",
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A model, observations and the options of ``infer``.

    ``rows`` names the family of each row, ``parameter`` is the noise sd of Gaussian rows and the trials of Binomial
    ones; ``prior`` has the parameters of the latents' family and ``bias``; ``above`` is (W1, b1, sd1) of a second
    latent layer, whose prior it then is. ``x`` is (n,) or (N, n).
    """

    kind: str
    rows: np.ndarray
    parameter: np.ndarray
    W: np.ndarray
    b: np.ndarray
    latents: str
    prior: dict
    x: np.ndarray
    options: dict = field(default_factory=dict)
    above: tuple | None = None
    name: str = ""

    @property
    def single(self):
        """Whether x is one observation."""
        return self.x.ndim == 1

    @property
    def eps(self):
        """The rounding of the precision that the weights set."""
        return float(np.finfo(self.W.dtype).eps)

    @property
    def objective(self):
        """The bound that is climbed."""
        return self.options.get("objective", "elbo")

    @property
    def representable(self):
        """Whether prior and precisions are in the range of the weights' type; an error may say that they are not."""
        with np.errstate(all="ignore"):
            cast = {name: np.asarray(values).astype(self.W.dtype) for name, values in self.prior.items()}
            noise = np.where(self.rows == "gaussian", self.parameter, 1.0).astype(self.W.dtype)
            if not np.isfinite(np.sum((self.W / noise[:, None]) ** 2)):
                return False
        positive = all(np.all(cast[name] > 0) for name in PARAMETERS[self.latents])
        return positive and np.all(cast.get("inclusion", 0.5) < 1)

    def alone(self, k):
        """Return the problem of one observation of a batch."""
        return replace(self, x=self.x[k])

    def source(self):
        """Return code that makes the model ``M`` and runs ``infer``; importing names is left to the caller."""
        families = sorted(set(self.rows.tolist()))
        parts = [_row_family(f, self.parameter[self.rows == f]) for f in families]
        which = [families.index(f) for f in self.rows.tolist()]
        family = parts[0] if len(parts) == 1 else f"fmx.Mixed([{', '.join(parts)}], {which})"
        layers = [f"fmx.Layer({family}, {_code(self.W, True)}, {_code(self.b)})"]
        if self.above is not None:
            W, b, sd = self.above
            layers.append(f"fmx.Layer(fmx.Gaussian({_code(sd)}), {_code(W, True)}, {_code(b)})")
        given = ", ".join(_code(self.prior[name]) for name in PARAMETERS[self.latents])
        bias = f", {_code(self.prior['bias'])}" if np.any(self.prior["bias"]) else ""
        prior = f"fmx.Prior(fmx.{CLASSES[self.latents]}({given}){bias})"
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"M = fmx.DEF({', '.join(layers)}, prior={prior}); r = fmx.infer(M, {_code(self.x, True)}{options})"

    def line(self):
        """Return a line of code that stands by itself."""
        return f"import numpy as np, forestmix as fmx; nan = np.nan; {self.source()}; print(r, r.mean)"

    def run(self):
        """Run the line and return the result."""
        import forestmix

        names = {"np": np, "fmx": forestmix, "nan": np.nan}
        exec(self.source(), names)  # the very line that a failure prints
        return names["r"]


def _row_family(name, parameter):
    given = _code(parameter) if name in ("gaussian", "binomial") else ""
    return f"fmx.{CLASSES[name]}({given})"


def _code(values, whole=False):
    """Return code for an array: unless it is needed whole, one number where all are the same. Only W can be float32."""
    array = np.asarray(values)
    if not whole and array.ndim == 1 and array.size and np.all(array == array[0]):
        return repr(float(array[0]))
    listed = repr(array.astype(float).tolist())
    return f"np.array({listed}, np.float32)" if array.dtype == np.float32 else listed
