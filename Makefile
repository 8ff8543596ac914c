# What a user and CI call. Needs Go 1.26, a C compiler, and python3 with pip.

# The data folder: runtime library, models, caches. RAGATE_DATA_DIR in the environment moves it.
DATA := $(or $(RAGATE_DATA_DIR),$(CURDIR)/.ragate)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PYTHON ?= python3

# Tests run the packages one after another: several servers with models at once would crowd small machines.
TESTFLAGS ?= -p 1

.PHONY: setup build run test test-race lint bench conformance setup-reference clean

## setup: fetch the ONNX Runtime library and both default models, checked by sha256; does nothing when they are there
setup: build
	@RAGATE_DATA_DIR=$(DATA) bin/ragate setup

## build: the program, in bin/ragate
build:
	@go build -ldflags "-X main.version=$(VERSION)" -o bin/ragate ./cmd/ragate

## run: set up, build and serve on 127.0.0.1:8080 (RAGATE_LISTEN chooses another address)
run: setup
	@RAGATE_DATA_DIR=$(DATA) exec bin/ragate serve

## test: everything, with the real models
test: setup setup-reference
	RAGATE_DATA_DIR=$(DATA) go test $(TESTFLAGS) ./...

## test-race: the packages with goroutines of their own, under the race detector
test-race: setup
	RAGATE_DATA_DIR=$(DATA) go test -race $(TESTFLAGS) ./inference ./server ./simd ./tokenize

## lint: formatting, vet, staticcheck, and known vulnerabilities where their database can be reached
lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go vet ./...
	go tool staticcheck ./...
	@sh tools/vulncheck.sh

## bench: tokenizer, SIMD and scheduler benchmarks, then the server against the raw session
bench: setup setup-reference
	RAGATE_DATA_DIR=$(DATA) sh tools/bench.sh

## conformance: the HTTP cases of a folder beside the clone (CASES), against a server started with each setting they ask for
CASES ?= ../shared/cases
conformance: setup
	RAGATE_DATA_DIR=$(DATA) sh tools/conformance.sh $(CASES)

# The Python packages that tests compute reference answers with.
setup-reference: $(DATA)/python/.complete
$(DATA)/python/.complete: tools/requirements.txt
	rm -rf $(DATA)/python
	$(PYTHON) -m pip install --quiet --no-deps --target $(DATA)/python -r tools/requirements.txt
	touch $@

clean:
	rm -rf bin
