# Needs Python 3.11 or later and make; everything else goes into .venv. Another Python: make demo PYTHON=python3.12
PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SETUP := pyproject.toml constraints.txt $(wildcard setup.py)
# a type checker takes a module's parameter for "Tensor | Module": tests may use it as what it is
IN_TESTS := $(addprefix --disable-error-code=,arg-type index operator union-attr)
CASES ?= 5000
SEED ?= 1
CSRC := src/mufuru/kernels/csrc
SANITIZE := $(CXX) -std=c++17 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -Wall -Wextra

ARM64 := $(or $(ARM64_CXX),aarch64-linux-gnu-g++)
FLAGS = $(shell $(PYTHON) -c 'import runpy; print(*runpy.run_path("src/mufuru/kernels/build.py")["FLAGS"])')

.PHONY: help demo check test slow fuzz format sanitize arm64 docs clean

help:  ## say what there is
	@sed -n 's/^\([a-z0-9]*\):.*  ## \(.*\)/make \1 \t\2/p' $(MAKEFILE_LIST) | expand -t 14

demo: .venv/experiments  ## train nn.GRU and MuFuRU on Boolean formulae, side by side; table, figures and a report
	$(BIN)/mufuru reproduce logic --short --output runs/demo
	@echo "Look inside what they learned: $(BIN)/mufuru explore runs/demo"

check: .venv/dev  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src examples docs benchmarks
	MYPYPATH=tests:tests/experiments:tests/programs $(BIN)/mypy $(IN_TESTS) tests

# threads that wait leave the core to others; a process that is done takes half of what the other has left
test: check  ## every check: format, lint, types, tests, examples and docs
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -n 2 --dist worksteal

slow: .venv/dev  ## the long tests: models that train, further compilations and exports
	$(BIN)/python -m pytest -m slow

fuzz: .venv/dev  ## random programs on the native kernel and on the reference; others: make fuzz CASES=20000 SEED=7
	$(BIN)/python tests/programs/fuzz.py --cases $(CASES) --seed $(SEED)

format: .venv/dev  ## format the code and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

sanitize:  ## run the native kernel without Python, under AddressSanitizer and UndefinedBehaviorSanitizer
	mkdir -p build/sanitize
	$(SANITIZE) -c $(CSRC)/plain.cpp -o build/sanitize/plain.o
	$(SANITIZE) -mavx2 -mfma -c $(CSRC)/avx2.cpp -o build/sanitize/avx2.o
	$(SANITIZE) -mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma -c $(CSRC)/avx512.cpp -o build/sanitize/avx512.o
	$(SANITIZE) -mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma -c $(CSRC)/avx512bf16.cpp -o build/sanitize/avx512bf16.o
	$(SANITIZE) -c $(CSRC)/entry.cpp -o build/sanitize/entry.o
	$(SANITIZE) -I$(CSRC) tests/kernels/native_check.cpp build/sanitize/*.o -pthread -o build/sanitize/native_check
	build/sanitize/native_check

arm64:  ## run the native kernel on an emulated ARM64 processor (Debian: apt install g++-aarch64-linux-gnu qemu-user)
	mkdir -p build/arm64
	$(ARM64) $(FLAGS) -Werror -DMUFURU_PORTABLE_ONLY -c $(CSRC)/plain.cpp -o build/arm64/plain.o
	$(ARM64) $(FLAGS) -Werror -DMUFURU_PORTABLE_ONLY -c $(CSRC)/entry.cpp -o build/arm64/entry.o
	$(ARM64) -std=c++17 -O2 -I$(CSRC) tests/kernels/native_check.cpp build/arm64/*.o -static -pthread -o build/arm64/native_check
	qemu-aarch64 build/arm64/native_check

docs: .venv/dev  ## write the generated parts of docs/ anew and build the site into build/site
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --quiet

clean:  ## remove .venv and everything built
	rm -rf .venv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -o -name '*.egg-info' | xargs rm -rf

# the stamps say that an installation is complete; torch is large and installed once
.venv/experiments: $(SETUP)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mufuru needs Python 3.11 or later, this is %d.%d: name another with make PYTHON=..." % sys.version_info[:2])'
	$(PYTHON) -m venv .venv
	@echo "Installing mufuru and torch into .venv: once, and it takes a while"
	$(INSTALL) -e '.[explore]'
	@touch $@

.venv/dev: .venv/experiments
	@echo "Installing the tools for development into .venv: once"
	$(INSTALL) -e '.[dev]'
	@touch $@
