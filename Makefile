# The commands of the tree; `make` alone lists them. Each does all that it needs on a bare Debian 12 or 13.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help deps peers python-environment build python demo demo-torch test test-environment test-python
.PHONY: deb wheel test-wheel bench endurance gpu-build gpu-test gpu-bench
.PHONY: asan tsan fuzz mutants chaos format format-check lint clean
SHELL := /bin/bash

# Compile and test jobs at once.
JOBS ?= $(shell nproc)
# Tests at once. Many wait for nodes and trainers, and for time that passes, more than they compute.
TEST_JOBS ?= $(shell echo $$((2 * $(JOBS))))
# Warnings stop the build where CI is set.
WERROR ?= $(if $(CI),ON,OFF)
# Of make asan and make tsan: unit, or all for the tests that start nodes and trainers too.
SCOPE ?= unit
# OFF leaves out the Python package, with its tests.
PYTORCH ?= ON
# Of make wheel: for which Python. With CPython 3.12 or newer one wheel serves all later versions.
WHEEL_PYTHON ?= $(or $(shell tools/stable_pythons | head -1),python3)
# Of make test-wheel: the oldest Python of this machine that such a wheel is for.
WHEEL_TEST_PYTHON ?= $(or $(shell tools/stable_pythons | tail -1),python3)
# Of make demo-torch: how it shards.
PARALLEL ?= fsdp hsdp tp
# Further arguments to CMake's configuration, e.g. CMAKE_ARGS=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache.
CMAKE_ARGS ?=

CONFIGURE = cmake -DSHOAL_WERROR=$(WERROR) $(CMAKE_ARGS) --preset
COMPILE = cmake --build -j $(JOBS) --preset
# The package of python/ is built where its environment is complete (recipes expand this when they begin).
HAS_PYTHON = $(filter ON,$(PYTORCH))$(shell tools/python_environment --check && echo :complete)
WITH_PYTHON = $(if $(filter ON:complete,$(HAS_PYTHON)),-DSHOAL_PYTHON=ON \
  -DPython_EXECUTABLE=$(CURDIR)/build/venv/bin/python,-DSHOAL_PYTHON=OFF)
CONFIGURE_RELEASE = $(CONFIGURE) release $(WITH_PYTHON)

help:
	@echo 'make demo          two nodes, four trainers: save, kill, commit, load; then 4,096 ranks simulated'
	@echo 'make test          build and run every test; PYTORCH=OFF leaves out those that need PyTorch'
	@echo 'make bench         run every benchmark; prints docs/explanation/performance.md'
	@echo 'make endurance     20,000 saves with retention, restarts and loads; shows what grows'
	@echo 'make gpu-test      the tests of gpu/ alone: needs a compiler, CMake, GoogleTest and, for a GPU, nvcc'
	@echo 'make gpu-bench     measure kernels and copies on a GPU; status 2 without one'
	@echo 'make build         build everything into build/release'
	@echo 'make python        build the Python package into build/release/python'
	@echo 'make test-python   build it and run its tests alone, which make test runs too'
	@echo 'make wheel         build a self-contained wheel of it into build/wheel'
	@echo 'make test-wheel    test the wheel where no other library is, and pip install .'
	@echo 'make deb           build Debian packages into build/release/packages'
	@echo 'make demo-torch    PyTorch on four ranks (FSDP2, HSDP, TP): killed while saving, and continued'
	@echo '                   with PARALLEL=fsdp, hsdp or tp only one of them'
	@echo 'make deps          install the Debian packages that are missing'
	@echo 'make peers         install Open MPI, Slurm, promtool and PyTorch, for tests that need them'
	@echo 'make asan          unit tests under the address and undefined-behaviour sanitizers (by clang)'
	@echo 'make tsan          unit tests under the thread sanitizer'
	@echo '                   with SCOPE=all the tests that start nodes and trainers too'
	@echo 'make fuzz          each fuzz target for ten seconds (docs/how-to/fuzz.md)'
	@echo 'make chaos         five minutes of real jobs under failures, audited (docs/how-to/chaos.md); as root'
	@echo 'make mutants       put bugs into the roles one at a time, and see whether shoal fuzz finds them'
	@echo 'make format        format the C++ files; format-check only says which differ'
	@echo 'make lint          check the house rules: who includes whom, length of lines'
	@echo 'make clean         remove build/'
	@echo
	@echo 'Variables: JOBS=$(JOBS) TEST_JOBS=$(TEST_JOBS) WERROR=$(WERROR) SCOPE=$(SCOPE)'
	@echo '           PYTORCH=$(PYTORCH) CMAKE_ARGS=$(CMAKE_ARGS)'

deps:
	@tools/timed --begin
	@tools/timed set-up tools/install_deps

peers:
	@tools/timed 'launchers and peers' tools/install_peers

build: deps
	@tools/timed configure $(CONFIGURE_RELEASE)
	@tools/timed build $(COMPILE) release

python-environment: deps
	@tools/timed 'Python environment' tools/python_environment

python: python-environment
	@tools/timed configure $(CONFIGURE_RELEASE)
	@tools/timed build $(COMPILE) release --target python

demo-torch: python
	@tools/timed demo examples/demo_torch.sh build/release $(PARALLEL)

test-python: python
	@PYTHONPATH=build/release/python build/venv/bin/python -m pytest -q -n auto

# Debian packages, in build/release/packages.
deb: build
	@cd build/release && cpack -G DEB >/dev/null && ls packages/*.deb

# Takes libraries and program as make build makes them, and compiles only the extension module again.
wheel: deps
	@tools/install_python
	@tools/timed configure $(CONFIGURE_RELEASE)
	@tools/timed build $(COMPILE) release --target shoal shoal_client
	@tools/timed wheel packaging/build_wheel build/release $(WHEEL_PYTHON) build/wheel

test-wheel: wheel
	@tools/timed 'test of the wheel' tests/install/wheel_test build/wheel/*.whl $(WHEEL_TEST_PYTHON)
	@tools/timed 'test of pip install' tests/install/pip_test python3 build/release
	@tools/timed --summary

# Builds only what the demo runs.
demo: deps
	@tools/timed configure $(CONFIGURE_RELEASE)
	@tools/timed build $(COMPILE) release --target cli/all examples/all
	@tools/timed demo examples/demo.sh build/release
	@printf '\nSimulated: a save of llama3-405b by 4,096 ranks that come to it up to half a second apart:\n'
	@tools/timed simulation build/release/cli/shoal sim --ranks 4096 --arrival-skew-ms 500 --sweep mode=all
	@tools/timed --summary

# Where PyTorch cannot be installed, the tests of the Python package are left out, except with peers required.
test-environment: deps
	@[ $(PYTORCH) != ON ] || tools/timed 'Python environment' tools/python_environment || \
	  { [ -z "$$SHOAL_REQUIRE_PEERS" ] && echo 'The tests of the Python package are left out.'; }

# ctest's own lines close it.
test: test-environment
	@tools/timed configure $(CONFIGURE_RELEASE)
	@tools/timed build $(COMPILE) release
	@tools/timed --summary
	@ctest --preset release -j $(TEST_JOBS)

# On a quiet machine. The page is standard output; what happens goes to standard error.
bench:
	@tools/install_deps >&2
	@tools/install_deps libbenchmark-dev bindfs >&2
	@$(CONFIGURE_RELEASE) >&2
	@$(COMPILE) release --target benchmarks cli/all examples/all >&2
	@bench/run build/release

# On a quiet machine it takes some five minutes.
endurance:
	@tools/install_deps >&2
	@$(CONFIGURE_RELEASE) >&2
	@$(COMPILE) release --target cli/all sharded_trainer >&2
	@bench/endurance/day_of_saves build/release

# gpu/ alone, for machines with a GPU and without the other libraries.
gpu-build:
	@cmake -DSHOAL_WERROR=$(WERROR) $(CMAKE_ARGS) -S gpu -B build/gpu
	@cmake --build build/gpu -j $(JOBS) --target unit_tests gpu_benchmarks

gpu-test: gpu-build
	@ctest --test-dir build/gpu --output-on-failure --no-tests=error -j $(JOBS)

gpu-bench: gpu-build
	@build/gpu/bench/kernels_bench; kernels=$$?; build/gpu/bench/stager_bench && exit $$kernels

asan tsan: sanitized = $@$(if $(filter all,$(SCOPE)),-all)
asan tsan: deps
	@[ $@ = tsan ] || tools/timed set-up tools/install_deps --clang
	@tools/timed 'configure $@' $(CONFIGURE) $@
	@tools/timed 'build $@' $(COMPILE) $(sanitized)
	@tools/timed --summary
	@tools/sanitized_tests $(sanitized) -j $(JOBS)

fuzz: deps
	@JOBS=$(JOBS) WERROR=$(WERROR) CMAKE_ARGS='$(CMAKE_ARGS)' tools/timed fuzz tools/fuzz 10

chaos: deps
	@tools/timed configure $(CONFIGURE_RELEASE)
	@tools/timed build $(COMPILE) release --target shoal sharded_trainer
	@build/release/cli/shoal chaos --for 5m

mutants: deps
	@CMAKE_ARGS='$(CMAKE_ARGS)' tools/mutants

format:
	@tools/format

format-check:
	@tools/format --check

lint:
	@tools/check_style
	@tools/check_style_test

clean:
	rm -rf build
