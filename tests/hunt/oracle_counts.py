"""Binary latents and counts under rows that are counts, by enumeration of their states."""

import itertools

import numpy as np
import scipy

#: States that are enumerated at most.
STATES = 300_000


class CountOracle:
    """The log-likelihood at every state of the latents, an array with an axis of ``lengths[j]`` for each."""

    def __init__(self, rows, trials, W, b, prior_bias, latents, x, lengths):
        seen = ~np.isnan(x)
        states = np.array(list(itertools.product(*[range(length) for length in lengths])), float)
        eta = states @ W[seen].T + b[seen]
        self.lengths = lengths
        self.log_likelihood = row_terms(rows[0], x[seen], trials[seen], eta).sum(axis=1).reshape(lengths)
        self.log_prior = [log_prior(latents, bias, length) for bias, length in zip(prior_bias, lengths, strict=True)]

    def evidence(self):
        """Return ``log p(x)``, or less by what lies beyond the tables."""
        total = self.log_likelihood
        for j, table in enumerate(self.log_prior):
            total = total + np.expand_dims(table, [k for k in range(len(self.lengths)) if k != j])
        return float(scipy.special.logsumexp(total))

    def value(self, tables):
        """Return the ELBO of tables of probabilities."""
        total = self.log_likelihood
        for table in tables:
            total = np.tensordot(table, total, axes=(0, 0))
        pairs = zip(tables, self.log_prior, strict=True)
        return float(total - sum(np.sum(scipy.special.rel_entr(table, np.exp(prior))) for table, prior in pairs))

    def sweep(self, tables):
        """Return the tables after one sweep of coordinate ascent."""
        tables = list(tables)
        for j in range(len(tables)):
            total = np.moveaxis(self.log_likelihood, j, -1)
            for k, table in enumerate(tables):
                if k != j:
                    total = np.tensordot(table, total, axes=(0, 0))
            tables[j] = scipy.special.softmax(total + self.log_prior[j])
        return tables


def row_terms(family, x, trials, eta):
    """Return the log-likelihood of every row at every state."""
    if family == "poisson":
        with np.errstate(over="ignore"):
            return x * eta - np.exp(eta) - scipy.special.gammaln(x + 1)
    log_factorial = [scipy.special.gammaln(count + 1) for count in (trials, x, trials - x)]
    return (
        log_factorial[0]
        - log_factorial[1]
        - log_factorial[2]
        - x * np.logaddexp(0, -eta)
        - (trials - x) * np.logaddexp(0, eta)
    )


def log_prior(latents, bias, length):
    """Return the log probabilities of 0, 1, ... under the prior."""
    if latents == "bernoulli":
        return np.array([-np.logaddexp(0, bias), -np.logaddexp(0, -bias)])
    y = np.arange(length)
    return bias * y - np.exp(bias) - scipy.special.gammaln(y + 1)
