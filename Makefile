# The few commands there are. Each sets up what it needs: a virtual environment in .venv.
# TORCH says which torch: on Linux, point pip at PyTorch's CPU index first (PIP_INDEX_URL or PIP_EXTRA_INDEX_URL) for the small build.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PUBLIC := .venv-openenv
TORCH ?= torch==2.13.0
# Many tests wait for a container or a process: two at a time, each file in one of them, use two cores well.
TEST_WORKERS ?= 2
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false

.PHONY: quickstart test check bench notebooks clean help

help:
	@echo "make quickstart   train a tiny model on blackjack over real environment servers, with a learning curve"
	@echo "make test         run all tests"
	@echo "make check        lint, types, imports between rooms"
	@echo "make images       build the environments' Docker images"
	@echo "make notebooks    build the notebooks from their scripts"

# torch first and by itself, so that nothing else decides which build of it comes.
$(VENV)/.train: pyproject.toml environments/blackjack_env/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable ".[train]" --editable environments/blackjack_env
	touch $@

$(VENV)/.dev: $(VENV)/.train $(wildcard environments/*/pyproject.toml)
	$(BIN)/python -m pip install --quiet --editable ".[train,dev]" $(patsubst %/pyproject.toml,--editable %,$(wildcard environments/*/pyproject.toml))
	touch $@

include images.mk

quickstart: $(VENV)/.train
	$(BIN)/python recipes/quickstart.py configs/blackjack_cpu.yaml $(ARGS)

# The public package, with its server and clients, for the tests that let both packages talk.
$(PUBLIC)/.openenv: tests/interop/requirements.txt
	test -x $(PUBLIC)/bin/python || $(PYTHON) -m venv $(PUBLIC)
	$(PUBLIC)/bin/python -m pip install --quiet --requirement $<
	touch $@

test: $(VENV)/.dev $(PUBLIC)/.openenv
	$(BIN)/python -m pytest --numprocesses $(TEST_WORKERS) --dist loadfile $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

notebooks: $(VENV)/.dev
	$(BIN)/jupytext --to ipynb notebooks/*.py

clean:
	rm -rf $(VENV) $(PUBLIC) outputs build dist *.egg-info
