# `make` lists what there is. Everything runs on the CPU, inside .venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
ARGS ?=

venv := .venv
py := $(venv)/bin/python
stamp := $(venv)/.dimoo-setup

.PHONY: help setup test demo studio lint clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  \033[36mmake %-7s\033[0m %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(stamp)  ## create .venv and install DiMOO with everything, for development

test: $(stamp)  ## run the tests; choose some with ARGS="-k resolve"
	@$(py) -m pytest $(ARGS)

demo: $(stamp)  ## draw, edit and answer with the embedded model; pictures land in out/demo
	@$(py) -m dimoo_training.demo --out out/demo $(ARGS)

studio: $(stamp)  ## open the studio with the embedded model
	@$(py) -m dimoo studio $(ARGS)

lint: $(stamp)  ## check style and common mistakes with ruff
	@$(py) -m ruff check .

clean:  ## remove caches, builds and out/; keeps .venv
	@rm -rf build dist out .pytest_cache .ruff_cache .hypothesis
	@find . -path ./$(venv) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# Runs once, and again when the dependencies change. A .venv from another tool is used as it is.
$(stamp): pyproject.toml constraints.txt | $(py)
	@$(py) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'constraints.txt needs Python 3.11 or newer: remove $(venv) and run make setup PYTHON=python3.11'; exit 1; }
	@$(py) -m pip --version >/dev/null 2>&1 || $(py) -m ensurepip --upgrade
	$(py) -m pip install --quiet --upgrade pip
	$(py) -m pip install --quiet -c constraints.txt -e '.[app,train,ray,dev]'
	@touch $@

$(py):
	$(PYTHON) -m venv $(venv)
