# `make` lists what there is. Everything runs on the CPU, inside .venv.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
GPU_PYTHON ?= $(firstword $(wildcard $(py)) $(PYTHON))
MODEL ?= dimoo-tiny
ARGS ?=

venv := .venv
py := $(venv)/bin/python
stamp := $(venv)/.dimoo-setup

.PHONY: help setup test demo studio screenshots bench gpu-check train-small self-grpo lint clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  \033[36mmake %-11s\033[0m %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(stamp)  ## create .venv and install DiMOO with everything, for development

test: $(stamp)  ## run the tests; choose some with ARGS="-k resolve"
	@$(py) -m pytest $(ARGS)

demo: $(stamp)  ## draw, edit and answer with the embedded model; pictures land in out/demo
	@$(py) -m dimoo_training.demo --out out/demo $(ARGS)

bench: $(stamp)  ## measure every CPU number (35 minutes, two quiet cores); goes on after a stop; some with ARGS="--part drawing"
	@$(py) -m dimoo.bench.suite --out assets/benchmarks $(ARGS)
	@$(if $(ARGS),true,$(py) -m dimoo_app.bench --out assets/benchmarks/studio.json)

# Needs no setup: any Python with torch, triton and transformers, such as `make gpu-check GPU_PYTHON=python3.12`.
gpu-check:  ## check and measure kernels and presets on an NVIDIA GPU, in less than 8 minutes
	@PYTHONPATH=.:kernels $(GPU_PYTHON) -m dimoo.bench.gpu --out assets/benchmarks $(ARGS)

# On a machine without diffusers, bring runs/vq-small and the pictures in runs/small along, and run the last line.
train-small: $(stamp)  ## train dimoo-small (128x128) on a GPU: image tokenizer, pictures, model; goes on after a stop
	@test -e runs/vq-small/config.json || $(py) -m dimoo train vq --recipe small --out runs/vq-small
	@$(py) -m dimoo train pictures --recipe small --vq runs/vq-small --out runs/small
	@$(py) -m dimoo train sft --recipe small --vq runs/vq-small --out runs/small $(ARGS)

self-grpo: $(stamp)  ## run the experiments on Self-GRPO from MODEL=folder (4 hours); goes on where it stopped
	@$(py) -m dimoo_training.rl.experiments --model $(MODEL) $(ARGS)

studio: $(stamp)  ## open the studio with the embedded model
	@$(py) -m dimoo studio $(ARGS)

screenshots: $(stamp)  ## drive the studio in a browser: out/screenshots, and the README's two pictures of it
	@$(py) -m pytest -m browser $(ARGS)
	@cp out/screenshots/create-light.png assets/pictures/studio-create.png
	@cp out/screenshots/paint-light.png assets/pictures/studio-paint.png

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
