# `make demo` migrates a VM, `make test` runs all tests, `make check` the quick ones. They install the tools that they
# need (scripts/setup.sh). `make help` lists all targets.

export CGO_ENABLED = 0
GO ?= go
# The version: the content of the file VERSION. A build of another commit than its tag names the commit, too.
RELEASE := $(shell cat VERSION)
COMMIT := $(shell git describe --tags --always --dirty --match 'v$(RELEASE)' 2>/dev/null)
VERSION := $(RELEASE)$(if $(COMMIT),$(if $(filter v$(RELEASE),$(COMMIT)),,-dev+$(COMMIT)))
LDFLAGS := -s -w -X github.com/decamp/decamp/internal/buildinfo.linked=$(VERSION)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  \1\t/' | expand -t 14

.PHONY: docs
docs: ## build the documentation site into build/site
	@scripts/docs.sh

.PHONY: screens
screens: build ## record the terminal screens of the documentation on an emulated host
	@scripts/screens.sh

.PHONY: build
build: ## build ./decamp, one static binary, and ./decamp-lab, the emulator
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o decamp ./cmd/decamp
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o decamp-lab ./cmd/decamp-lab

.PHONY: nbdkit-plugin
nbdkit-plugin: ## build build/nbdkit-nfc-plugin.so, the plugin for nbdkit (needs a C compiler)
	@scripts/setup.sh plugin
	scripts/nbdkit-plugin.sh build/nbdkit-nfc-plugin.so $(VERSION)

# Docker is not needed. DECAMP_MINISIGN_KEY contains the key of the signature; see docs/releasing.md.
.PHONY: release
release: ## build archives, packages, images, clients and checksums of a release into dist/
	@scripts/setup.sh clients plugin
	cd release && $(GO) run -trimpath . -root .. -out ../dist

.PHONY: demo
demo: build ## migrate a real Linux guest from an emulated ESXi, verify it, boot it
	@scripts/setup.sh demo
	@scripts/demo.sh

.PHONY: check
check: ## format, vet, staticcheck and the quick tests, in two minutes: before each commit
	@scripts/setup.sh test
	@scripts/check.sh

.PHONY: test
test: ## run all tests and checks, as CI does (CPU=1: record processor time)
	@scripts/setup.sh test
	@scripts/test.sh

.PHONY: generate
generate: ## write the published schemas, and the Python client that is generated from them
	@scripts/setup.sh test
	$(GO) test -count 1 ./test/schema -update
	@scripts/generate-client.sh

# Finds tests that depend on time: RUNS whole runs, half of them beside a load of LOAD.
.PHONY: test-repeat
test-repeat: ## run all tests RUNS (10) times, at least half beside a load of LOAD (20)
	@scripts/setup.sh test
	@RUNS=$(RUNS) LOAD=$(LOAD) scripts/repeat.sh

.PHONY: test-slow
test-slow: ## run all tests with all variants, and long crash tests
	@scripts/setup.sh slow
	$(GO) test -tags slow -timeout 60m -count 1 ./...
	cd release && $(GO) vet -tags slow . && $(GO) test -tags slow -timeout 60m -count 1 .
	cd test/kubevirt && $(GO) vet ./...
	cd test/packaging && $(GO) vet ./...
	cd test/otlp && $(GO) vet ./... && $(GO) test -trimpath -count 1 ./...

# Debian guests of several kinds: built once, converted, booted and checked.
.PHONY: test-guests
test-guests: ## convert real Debian guests to virtio and boot them (root, 25 to 40 minutes)
	@scripts/setup.sh guests
	$(GO) test -tags guests -timeout 90m -count 1 -v ./test/guests

# DISKS images of each writer; decamp and other programs read them.
DISKS ?= 100
.PHONY: test-differential
test-differential: ## read DISKS (100) images of each other writer, and compare with other readers
	@scripts/setup.sh test
	DECAMP_DIFFERENTIAL=$(DISKS) $(GO) test -timeout 120m -count 1 -v ./test/differential

# Each test kills the server of a landing, or cuts its power, KILLS times.
KILLS ?= 1000
.PHONY: test-kills
test-kills: ## kill the landing server KILLS (1000) times in each test
	@scripts/setup.sh test
	KILLS=$(KILLS) $(GO) test -timeout 60m -count 1 -v -run 'Killed|PowerCut|DestinationFails' ./test/nfs | grep -vE '^ *(=== |--- PASS: .*/|kill_test.go)'

# Plans of 200 VMs; the server and the workers are killed at random. A failure prints its seed: DECAMP_SEED=N repeats it.
DECAMP_CHAOS ?= 1h
.PHONY: test-chaos
test-chaos: ## kill server and workers of 200-VM plans for DECAMP_CHAOS (1h)
	@scripts/setup.sh test
	DECAMP_CHAOS=$(DECAMP_CHAOS) $(GO) test -timeout 24h -count 1 -v -run TestChaos ./test/fleet

# The appliance of virt-v2v boots the kernel of the test guests: this machine may have none.
.PHONY: test-v2v
test-v2v: ## convert a Debian guest and a generated Windows with the real virt-v2v (15 to 30 minutes)
	@scripts/setup.sh v2v
	@scripts/v2v-guest.sh
	@release=$$(ls build/kernel/lib/modules) && export SUPERMIN_KERNEL="$(CURDIR)/build/kernel/boot/vmlinuz-$$release" \
		SUPERMIN_KERNEL_VERSION="$$release" SUPERMIN_MODULES="$(CURDIR)/build/kernel/lib/modules/$$release" && \
		$(GO) test -trimpath -tags v2v -timeout 60m -count 1 -v -run VirtV2V ./test/cli

# The first run builds the API server from its module: 15 minutes on two cores.
.PHONY: test-kube
test-kube: ## migrate to the real API server of Kubernetes (the first run takes 15 to 30 minutes)
	@scripts/setup.sh kube
	@scripts/kube.sh
	$(GO) test -trimpath -tags kube -timeout 30m -count 1 -v -run RealAPIServer ./internal/targets/kubevirt

.PHONY: test-race
test-race: ## all tests under the race detector (needs a C compiler)
	@scripts/setup.sh test
	CGO_ENABLED=1 $(GO) test -race -timeout 60m ./...

.PHONY: audit
audit: ## gosec with a triaged list, staticcheck, licences, known vulnerabilities
	@scripts/audit.sh

# All fuzz targets, one after the other.
FUZZTIME ?= 30s
.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME (30s) each
	@scripts/fuzz.sh $(FUZZTIME)

# make mutate PKG=blockcopy, or PKG=server:authenticate.go,role.go; without PKG all packages of scripts/mutate.sh.
.PHONY: mutate
mutate: ## change one operator at a time and report the changes that no test detects
	@scripts/mutate.sh $(PKG)

# make bench ONLY=https runs one part.
.PHONY: bench
bench: ## measure all figures, beside other programs (ONLY=https for a part)
	@scripts/setup.sh bench
	$(GO) build -trimpath -o build/bin/govc ./test/govc
	$(GO) build -trimpath -o build/bin/bench ./test/bench
	@PATH="$(CURDIR)/build/bin:$$PATH" build/bin/bench $(if $(ONLY),-only $(ONLY))

.PHONY: guest
guest: ## build the test guests
	@scripts/setup.sh demo
	$(GO) run ./test/guest/cmd/buildguest

.PHONY: clean
clean: ## remove what make built
	rm -rf build dist decamp decamp-lab
