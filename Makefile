# Every target that needs Python makes .venv by itself, once; then it is reused until pyproject.toml,
# constraints.txt or scripts/make_venv.sh change.
#
#   make PYTHON=python3 VENV=none TARGET    use the interpreter at hand and install nothing
#   make PYTHON3=python3.12 TARGET          the interpreter that a new .venv is made from
#   make evaluate EVALUATE="gdn_decode --resume"     arguments of `python -m harness evaluate`

VENV ?= .venv
PYTHON3 ?= python3
EVALUATE ?=
PYTEST ?=

ifeq ($(VENV),none)
PYTHON ?= $(PYTHON3)
READY := modules
else
PYTHON ?= $(VENV)/bin/python
# Written last by make_venv.sh: an interrupted installation leaves none and is made anew.
READY := $(VENV)/complete
endif

.DEFAULT_GOAL := help
.PHONY: help evaluate test test-slow gpu check pack clean modules

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

evaluate: pack  ## pack every room, judge the contest's five and, on a GPU, time them
	$(PYTHON) -m harness evaluate $(EVALUATE)

test test-slow: MODULES = pytest xdist pytest_timeout hypothesis
gpu: MODULES = pytest pytest_timeout
check: MODULES = ruff mypy pytest

test: $(READY)  ## the quick tests: about four minutes on two cores
	$(PYTHON) -m pytest -n auto -m "not slow and not gpu" $(PYTEST)

test-slow: $(READY)  ## the tests that take minutes, without a GPU
	$(PYTHON) -m pytest -n auto -m "slow and not gpu" $(PYTEST)

gpu: $(READY)  ## the tests that need a GPU, both routes
	$(PYTHON) -m pytest tests/gpu -m gpu $(PYTEST)

check: $(READY)  ## style, types, definitions, packing, shape of the repository; changes nothing
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) scripts/make_definitions.py --check
	$(PYTHON) pack.py --all --hash
	$(PYTHON) -m pytest -q tests/unit/test_repository.py

pack: $(READY)  ## write solutions/<room>/solution.json of every room
	$(PYTHON) pack.py --all

clean: $(READY)  ## remove packed solutions; list what else `python -m harness clean` can remove
	$(PYTHON) -m harness clean

# Of VENV=none, which installs nothing: a target's tools are there, or are named.
modules:
	@$(PYTHON) -c 'import importlib.util as u, sys; absent = ", ".join(m for m in sys.argv[1:] if \
	u.find_spec(m) is None); sys.exit(absent and "error: $(PYTHON): expected the modules " + \
	", ".join(sys.argv[1:]) + ", got no " + absent + "; install the extra dev of pyproject.toml, " \
	"or leave VENV=none out" or 0)' $(MODULES)

$(VENV)/complete: pyproject.toml constraints.txt scripts/make_venv.sh
	scripts/make_venv.sh $(VENV) $(PYTHON3)
