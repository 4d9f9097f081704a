# make demo | test | lint | docs | venv | clean
#
# Everything is installed into $(VENV). PYTHON=python3.13 make test chooses another interpreter, which gets a
# virtual environment of its own.

PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
DEMO ?=
PYTEST ?=

.PHONY: demo test lint docs venv clean

demo: $(VENV)/.demo  ## DEMO="--workers 4" passes options on
	$(BIN)/shmaccum demo $(DEMO)

test: lint  ## PYTEST="tests/record -x" passes options on
	$(BIN)/pytest $(PYTEST)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.generate_docs --check

docs: $(VENV)/.test
	$(BIN)/python -m tools.generate_docs

venv: $(VENV)/.test

# The stamps: an environment is made anew only where it is older than what it is made from.
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m tools.setup_env $(VENV) demo
	@touch $@

$(VENV)/.test: pyproject.toml
	$(PYTHON) -m tools.setup_env $(VENV) test
	@touch $@ $(VENV)/.demo

clean:
	rm -rf .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-out
