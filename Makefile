# Everything a newcomer needs: make demo, make test. Only Python, pip and make are assumed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The version whose CPU build the tests are known to pass with; any torch from 2.4 on serves a user.
TORCH ?= torch==2.13.0

.PHONY: demo test integrations lint format bench survey engines clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[run,view,dev]"
	touch $@

demo: $(VENV)/.installed
	$(BIN)/stepscope generate --prompt "A Logo With Bold Large Text" --seed 0 --profile --perf-dump-path perf.json
	@echo "To type stepscope as above: . $(BIN)/activate"

test: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not gpu" -q

# Gradio, Jupyter and a local Ray for real: three minutes to install 340 MB, three to run.
integrations: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[integrations,ray]"
	$(BIN)/python -m pytest -q tests/test_gradio.py tests/test_jupyter.py tests/test_sweep_ray.py

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What can be measured without a GPU, each against a named reference in the same run.
bench: $(VENV)/.installed
	$(BIN)/python benchmarks/observer_cost.py
	$(BIN)/python benchmarks/read_trace.py
	$(BIN)/python benchmarks/report_speed.py
	$(BIN)/python benchmarks/trace_size.py
	$(BIN)/python benchmarks/null_experiment.py
	$(BIN)/python benchmarks/killed_sweep.py

# Every pipeline class of the installed diffusers, tiny: an hour on two busy cores. Goes on where it stopped.
survey: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement benchmarks/survey/requirements.txt
	$(BIN)/python benchmarks/survey_diffusers.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# How many requests the server gets; 10000 take a quarter of an hour.
REQUESTS ?= 1000

# SGLang, vLLM-Omni and cache-dit for real on this CPU: 9 minutes from nothing on two idle cores, 20 on busy ones;
# 3.4 GB in .engines beside the 1.9 GB of .venv. Python 3.11 must be there, whatever PYTHON is.
engines: $(VENV)/.installed
	$(BIN)/python benchmarks/engines/setup_engines.py
	$(BIN)/python benchmarks/engines/demonstrate.py
	$(BIN)/python benchmarks/engines/mishaps.py
	$(BIN)/python benchmarks/engines/server.py $(REQUESTS)
