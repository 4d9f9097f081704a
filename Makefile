# make demo | test | sanitize | prove | prove-pairs | lint | docs | docs-site | wheels | venv | core | venv-core | kerberos | kafka | clean
#
# Everything is installed into $(VENV). PYTHON=python3.13 make test selects another interpreter, which gets a
# virtual environment of its own.

PYTHON ?= python3
VENV ?= $(if $(filter python3,$(PYTHON)),.venv,.venv-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
DEMO ?=
KAFKA ?=
WHEELS ?=
PYTEST ?=
WORKERS ?= 3
# The processes that tests start, some thousands, read bytecode instead of compiling the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: core demo test pytest sanitize prove prove-pairs lint docs docs-site wheels venv venv-core kerberos kafka clean

demo: $(VENV)/.demo  ## DEMO="--workers 4" passes options on
	$(BIN)/shmaccum demo $(DEMO)

TESTS ?=

test: lint pytest  ## TESTS=tests/record PYTEST="-x -k name" choose; WORKERS=0 runs all in one process

# A module's tests stay together, because they share expensive fixtures. Each worker has its own Apache Kafka. Many
# tests wait more than they work, so two cores can run three workers.
pytest: core
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(TESTS) $(PYTEST)

# Over a core with AddressSanitizer and UBSan: every input of the corpus and some new ones, and the tests of what uses
# the core most.
FUZZ ?= --seconds 30
SANITIZED := tests/core tests/accumulator/append tests/producer/test_producer.py tests/producer/test_send_batch.py \
	tests/producer/test_compression.py tests/sender/test_response_handler.py tests/sender/test_loop.py \
	tests/sender/test_batch_splitter.py

sanitize: $(VENV)/.test  ## FUZZ="slab --seconds 600" passes options on
	$(BIN)/python -m tools.fuzz --sanitize $(FUZZ)
	$(BIN)/python -m tools.sanitized -m pytest -o "pythonpath=tests tests/support" -n $(WORKERS) --dist loadfile $(SANITIZED)

# Minutes on two cores: 2, 8 and 2; and 8 for the pairs.
prove: core  ## explores schedules; kills and stops each operation at each of its steps; STEP="--jobs 4" passes options on
	$(BIN)/python -m tools.explore --long
	$(BIN)/python -m tools.step $(STEP)
	$(BIN)/python -m tools.step --stop $(STEP)

prove-pairs: core  ## kills a second process at each of its stores, while the first one is dead or stopped
	$(BIN)/python -m tools.step --pairs $(STEP)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH=$(BIN):$$PATH $(BIN)/cython-lint --max-line-length 120 shmaccum/core tools/explore
	$(BIN)/python -m mypy.stubtest shmaccum._core --concise --allowlist tools/stubtest.txt --mypy-config-file pyproject.toml
	$(BIN)/python -m tools.generate_docs --check

docs: $(VENV)/.test
	$(BIN)/python -m tools.generate_docs

# Not --quiet: it would drop the warnings before --strict counts them.
docs-site: $(VENV)/.docs  ## the guide and the reference, in build/site; a broken link or docstring is an error
	$(BIN)/python -m tools.docs_site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

wheels: $(VENV)/.wheels  ## the sdist and all wheels, in dist/, checked and tried; WHEELS="--only cp312" passes options on
	$(BIN)/python -m tools.wheels $(WHEELS)

venv: $(VENV)/.test

core: $(VENV)/.core  ## compiles shmaccum/core/ in place, where the editable install finds it

venv-core: $(VENV)/.test-core  ## without Spark, for the core's tests alone

kerberos: $(VENV)/.test  ## packages for the tests with a KDC, which are skipped without them; takes a minute or two
	$(PYTHON) -m tools.setup_env $(VENV) kerberos

kafka:  ## KAFKA="--nodes 3 --sasl --tls" passes options on; python3 -m tools.kafka stop stops it
	$(PYTHON) -m tools.kafka start $(KAFKA)

# The stamps: an environment is rebuilt only if it is older than its sources.
$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m tools.setup_env $(VENV) demo
	@touch $@

$(VENV)/.test: pyproject.toml tools/kafka/jars.py tools/monitoring/prometheus.py tools/spark_jvm.py
	$(PYTHON) -m tools.setup_env $(VENV) test
	@touch $@ $(VENV)/.demo

$(VENV)/.core: $(VENV)/.test setup.py $(wildcard shmaccum/core/*)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

$(VENV)/.test-core: pyproject.toml
	$(PYTHON) -m tools.setup_env $(VENV) test-core
	@touch $@

$(VENV)/.wheels: pyproject.toml
	$(PYTHON) -m tools.setup_env $(VENV) wheels
	@touch $@

$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m tools.setup_env $(VENV) docs
	@touch $@

clean:
	-$(PYTHON) -m tools.kafka stop
	rm -rf .kafka .venv .venv-* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-out
