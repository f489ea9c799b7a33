"""Make the tables that ship in the package, by simulation: ``python tools/make_tables.py``.

Nothing here is measured: the numbers are drawn from the models below, so that the tables can be shared freely and the
answers are known. The same seed gives the same files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas

TABLES = Path(__file__).parent.parent / "src" / "forestmix" / "data" / "tables"


def clinic(rng: np.random.Generator) -> pandas.DataFrame:
    """Return doctor visits of 150 people over up to five years, a count with an exposure.

    ``log(rate per month) = -2.3 + 0.025 (age - 50) + 0.4 smoker + ward + person``; wards 0, 0.2, -0.3 and 0.5, people
    N(0, 0.6^2).
    """
    wards = {"east": 0.0, "north": 0.2, "south": -0.3, "west": 0.5}
    people = 150
    age, smoker = rng.integers(20, 80, people), rng.random(people) < 0.3
    ward, effect = rng.choice(list(wards), people), 0.6 * rng.standard_normal(people)
    rows = []
    for person in range(people):
        for year in range(rng.integers(2, 6)):
            months = int(rng.choice([12, 12, 12, 6, 9]))
            eta = -2.3 + 0.025 * (age[person] + year - 50) + 0.4 * smoker[person] + wards[ward[person]] + effect[person]
            visits = rng.poisson(months * np.exp(eta))
            rows.append((f"p{person:03d}", ward[person], age[person] + year, smoker[person], months, visits))
    table = pandas.DataFrame(rows, columns=["subject", "ward", "age", "smoker", "months", "visits"])
    table["age"] = table["age"].astype("Int64")
    table.loc[rng.choice(len(table), 6, replace=False), "age"] = pandas.NA
    return table


def schools(rng: np.random.Generator) -> pandas.DataFrame:
    """Return marks of pupils in classes in 24 schools, a measurement with nested groups.

    ``mark = 43 + 1.5 hours + 0.6 (before - 50) - 2 (large class) + school + class + noise``; sds 4, 2.5 and 7.
    """
    rows = []
    for school in range(24):
        of_school = 4.0 * rng.standard_normal()
        for letter in "abc"[: rng.integers(2, 4)]:
            of_class, large = 2.5 * rng.standard_normal(), bool(rng.random() < 0.4)
            for _ in range(rng.integers(8, 15)):
                hours, before = round(float(rng.gamma(4.0, 1.2)), 1), round(float(50 + 10 * rng.standard_normal()), 0)
                mark = 43 + 1.5 * hours + 0.6 * (before - 50) - 2 * large + of_school + of_class
                mark += 7 * rng.standard_normal()
                rows.append((f"school {school + 1:02d}", letter, "large" if large else "small", hours, before, mark))
    table = pandas.DataFrame(rows, columns=["school", "class", "size", "hours", "before", "mark"])
    return table.round({"mark": 1})


def seeds(rng: np.random.Generator) -> pandas.DataFrame:
    """Return seeds that germinated in 60 pots on 12 benches, successes out of trials.

    ``logit p = 0.3 + 0.8 (treated) + 0.5 (water - 1) + bench``, benches N(0, 0.5^2).
    """
    effect = 0.5 * rng.standard_normal(12)
    rows = []
    for pot in range(60):
        bench, treated, water = pot % 12, bool(rng.random() < 0.5), float(rng.choice([0.5, 1.0, 1.5]))
        trials = int(rng.integers(15, 41))
        logit = 0.3 + 0.8 * treated + 0.5 * (water - 1) + effect[bench]
        rows.append(
            (bench + 1, "coated" if treated else "plain", water, trials, rng.binomial(trials, 1 / (1 + np.exp(-logit))))
        )
    return pandas.DataFrame(rows, columns=["bench", "coat", "water", "seeds", "germinated"])


def main() -> None:
    """Write all tables."""
    TABLES.mkdir(exist_ok=True)
    for seed, make in enumerate((clinic, schools, seeds)):
        make(np.random.default_rng(seed)).to_csv(TABLES / f"{make.__name__}.csv", index=False)


if __name__ == "__main__":
    main()
