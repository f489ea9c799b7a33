"""Regression from a table: formulas, groups, priors on the scale of the data, and estimators of scikit-learn."""
