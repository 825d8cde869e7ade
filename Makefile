# Two commands: `make run` shows Clearhead at work, `make test` proves it. Both set up what they need in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# A stamp is named after what was installed, so a change of requirements, and nothing else, installs again.
SUM    := $(shell cat pyproject.toml zoo/pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
CORE   := $(VENV)/.core-$(SUM)
STUDIO := $(VENV)/.studio-$(SUM)
DEV    := $(VENV)/.dev-$(SUM)
WEB    := node_modules/.installed-$(shell cksum package.json | cut -d' ' -f1)

.PHONY: run test test-slow lint lint-web bench help clean
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

run: $(STUDIO)  ## a transformer at work in the terminal, then the studio in the browser
	@$(BIN)/clearhead walk "Once upon a time there was a king"
	@echo 'Once upon a time there was a king. The same model goes on:'
	@$(BIN)/clearhead generate "Once upon a time there was a king" --max-new-tokens 60 --top-k 40 --temperature 0.7 --seed 9
	@echo 'Two dogs are playing in the snow. In German, by the Transformer that came with the package:'
	@$(BIN)/clearhead generate "Two dogs are playing in the snow." --model translate-en-de --num-beams 5
	@$(BIN)/clearhead studio

test: $(DEV) lint  ## lint, type-check and run the test suite
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 -m "not slow" --durations 20

test-slow: $(DEV)  ## the checks that take minutes
	@$(BIN)/python -m pytest -n 2 -m slow

lint: $(DEV) lint-web  ## ruff, mypy and biome
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# The pages have no build; npm only brings what formats and checks their JavaScript and CSS.
ifneq ($(shell command -v npm),)
lint-web: $(WEB)
	@test ! -e $(WEB) || node_modules/.bin/biome check --error-on-warnings
else
lint-web:
	@echo "npm is not here, so the pages' JavaScript and CSS were not checked. Install Node.js to check them."
	@test -z "$(CI)"
endif

bench: $(DEV)  ## trace overhead, load time and memory, start-up time
	@$(BIN)/python benchmarks/foundation.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) node_modules .pytest_cache .mypy_cache .ruff_cache build zoo/build src/*.egg-info zoo/src/*.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Clearhead needs Python 3.11 or newer; $(PYTHON) is older. Say: make PYTHON=/path/to/python3.11 …"; exit 1; }
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

# torch first: an unpinned request for it by another package would fetch a different build.
$(CORE): | $(BIN)/python
	@echo "Installing Clearhead and what it needs (once; a few minutes) …"
	@$(PIP) torch==2.13.0 setuptools
	@$(PIP) --no-build-isolation --editable . --editable ./zoo
	@rm -f $(VENV)/.core-* && touch $@

$(STUDIO): $(CORE)
	@$(PIP) --no-build-isolation --editable ".[studio]"
	@rm -f $(VENV)/.studio-* && touch $@

$(DEV): $(CORE)
	@echo "Installing what the tests need (once) …"
	@$(PIP) --no-build-isolation --editable ".[dev]"
	@$(PIP) --no-deps fastai==2.8.12 retro-pytorch==0.3.9
	@rm -f $(VENV)/.dev-* && touch $@

$(WEB):
	@echo "Installing what checks JavaScript and CSS (once) …"
	@npm install --loglevel=error --no-audit --no-fund && rm -f node_modules/.installed-* && touch $@ || \
	  { echo "npm could not fetch it, so the pages' JavaScript and CSS are not checked."; test -z "$(CI)"; }
