# Everything a person runs. PYTHON: the interpreter the environment is made from (3.11 to 3.13).
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-runs test-system test-long mutations tiers device-test wheelhouse deb lint docs reference notebook clean

demo: $(VENV)/.laptop
	$(BIN)/hushgrid run scenarios/case14.yaml --transport mqtt --broker embedded

# The first tier, for every commit: each room by its mirror, in less than 90 s on two idle cores. No process, no broker.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not runs and not long and not system" --ignore=tests/system

# The second: whole runs in memory, custody, recounts, every algorithm with every mechanism, studies, attacks.
test-runs: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "runs and not long and not system" --ignore=tests/system

# Fleets of real daemons on real brokers: run, attacked, killed, without their broker. Four at a time: they mostly wait.
test-system: $(VENV)/.dev
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m "system and not long and not device" tests/system

# The storms, and every example of every property, drawn anew: all but the shorter system tests.
test-long: $(VENV)/.dev
	HUSHGRID_EXAMPLES=thorough $(BIN)/python -m pytest -n 2 -m "(long or not system) and not device"

# The mistakes that the first tier must see, each made in a copy of the tree (tests/mutations.py).
mutations: $(VENV)/.dev
	$(BIN)/python -m tests.mutations

# Which tests are of the first tier: by what each costs, recorded now, and by those mistakes.
tiers: $(VENV)/.dev
	rm -f .pytest_cache/costs
	HUSHGRID_PROFILE=.pytest_cache/costs $(BIN)/python -m pytest -p tests.support.profile -n 2 -m "not long and not system" --ignore=tests/system
	$(BIN)/python -m tests.mutations .pytest_cache/costs

# A Debian system that boots, with a fleet installed from its wheelhouse, and what goes wrong on a device. As root, with
# debootstrap and systemd-container; the first time it fetches the packages of the system.
device-test: $(VENV)/.dev
	$(BIN)/python -m pytest -m device -s tests/system/device

# Everything that a device installs, with hashes, in wheelhouse/: `make wheelhouse ARCH=aarch64 PYTHON=3.11` (3.11 to 3.13).
wheelhouse deb: ARCH := $(shell uname -m)
wheelhouse:
	sh deploy/wheelhouse.sh wheelhouse $(ARCH) $(subst python3,$(shell python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'),$(PYTHON))

# A Debian package of that wheelhouse, which installs without a network: hushgrid_VERSION_ARCH.deb.
deb: wheelhouse
	sh deploy/deb.sh wheelhouse

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation as a site in site/, readable without a network. A warning or a link that leads nowhere is an error.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --config-file .ci/mkdocs.yml

# docs/reference/, from the program's own declarations.
reference: $(VENV)/.dev
	$(BIN)/python docs/generate.py

# docs/notebook.ipynb, executed again.
notebook: $(VENV)/.dev
	$(BIN)/jupyter execute --inplace docs/notebook.ipynb

# An environment with the package and one of its extras, made again when pyproject.toml changes.
$(VENV)/.%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build dist site wheelhouse *.deb *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
