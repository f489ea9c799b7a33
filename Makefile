# Everything a newcomer runs. Each target makes the environment it needs; only python3, pip and make are assumed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Of the benchmarks: small, default or large.
SIZE ?= default

.PHONY: demo test test-arrays test-arviz test-lowest test-wheel lint bench docs clean

# Python compiles a module when it is first imported, and most are not: pip need not compile all of them. That holds
# only where what was compiled is kept; otherwise every process of the tests would compile it again.
unexport PYTHONDONTWRITEBYTECODE

# An environment per set of extras would be slower to make than one with a stamp for each.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable .
	touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[$*]"
	touch $@

# Beside the base: pandas and formulaic for the regression by a formula, xarray and h5netcdf for its file.
demo: $(VENV)/.installed-regression,io
	$(BIN)/forestmix demo --out demo-output

# Installing keeps one core busy, so the environments are made side by side; then each process of tests has a core.
test:
	$(MAKE) --jobs 3 --output-sync=target lint test-lowest test-wheel
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# The quick tests with the lowest versions that pyproject.toml allows, in an environment of their own.
test-lowest:
	$(PYTHON) tools/check_lowest.py

# The first block of the README with the wheel alone, in an environment that is made for it and removed.
test-wheel:
	$(PYTHON) tools/check_wheel.py

# Torch and JAX are large, and not needed for anything else: an environment of their own.
$(VENV)-arrays/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-arrays
	$(VENV)-arrays/bin/python -m pip install --quiet --no-compile --editable ".[test,arrays]"
	touch $@

test-arrays: $(VENV)-arrays/.installed
	$(VENV)-arrays/bin/python -m pytest tests/engines

# ArviZ 0.23 and 1.x need Pythons of their own: an environment for each that is present.
test-arviz:
	$(PYTHON) tools/check_arviz.py

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks --size $(SIZE)

docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W -b html docs docs/_build/html

clean:
	rm -rf $(VENV) $(VENV)-arrays $(VENV)-arviz-* $(VENV)-lowest demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
