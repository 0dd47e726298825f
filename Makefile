# Everything a person runs. PYTHON: the interpreter the environment is made from (3.11 to 3.13).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-long lint clean

demo: $(VENV)/.laptop
	$(BIN)/hushgrid run scenarios/case14.yaml --transport mqtt --broker embedded

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not long"

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m long

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# An environment with the package and one of its extras, made again when pyproject.toml changes.
$(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
