# The image that is built, and that deploy puts into the cluster.
IMG ?= controller:latest
# The same of cleaner-scheduler, for those who have switched it on in config/default.
SCHEDULER_IMG ?= cleaner-scheduler:latest
KUBECTL ?= kubectl
DOCKER ?= docker
GO ?= go
ARCH ?= $(shell $(GO) env GOARCH)

# What is built: the version that is written in one file, and the commit, if git knows it.
VERSION ?= $(shell cat cmd/internal/version/VERSION)
COMMIT ?= $(shell git describe --always --abbrev=40 --dirty --exclude='*' 2>/dev/null)
STAMP = -X github.com/vtex/cleaner/cmd/internal/version.stamped=$(VERSION) -X github.com/vtex/cleaner/cmd/internal/version.commit=$(COMMIT)

# The scheduler is a module of its own. It says which kube-scheduler it is, and of what Cleaner.
KUBERNETES = $(shell $(GO) -C scheduler list -m -f '{{.Version}}' k8s.io/kubernetes)
SCHEDULER_VERSION = $(KUBERNETES)+cleaner.$(VERSION)
SCHEDULER_STAMP = -X k8s.io/component-base/version.gitVersion=$(SCHEDULER_VERSION) -X k8s.io/component-base/version.gitCommit=$(COMMIT) -X k8s.io/client-go/pkg/version.gitVersion=$(SCHEDULER_VERSION)

# Programs are static: no C compiler is needed, and they run in an empty image.
export CGO_ENABLED = 0

BIN := $(CURDIR)/bin
CONTROLLER_GEN := $(BIN)/controller-gen
CRD_REF_DOCS := $(BIN)/crd-ref-docs
GOLANGCI_LINT := $(BIN)/golangci-lint
TESTSUMMARY := $(BIN)/testsummary
GOVULNCHECK := $(BIN)/govulncheck

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

##@ Look around

.PHONY: help
help: ## Show this help.
	@if [ -t 1 ] && [ -z "$$NO_COLOR" ] && [ "$$TERM" != dumb ]; then blue=$$(printf '\033[36m') plain=$$(printf '\033[0m'); fi; \
	awk -v blue="$$blue" -v plain="$$plain" 'BEGIN {FS = ":.*## "} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  %s%-20s%s %s\n", blue, $$1, plain, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## Show the operator at work in a control plane on this machine. Needs nothing but Go.
	@echo "Building the demo: some minutes the first time, seconds later."
	@$(GO) run ./hack/demo $(ARGS)

.PHONY: pictures
pictures: ## Make the pictures of the documentation: from a real run of the demo, and of kubectl cleaner ui in Chromium.
	@mkdir -p $(BIN)
	$(GO) run ./hack/demo > $(BIN)/demo.txt
	$(GO) run ./hack/recording < $(BIN)/demo.txt > docs/pictures/demo.svg
	PICTURES=$(CURDIR)/docs/pictures $(GO) -C test/ui test -count=1 -run='^TestPictures$$' .

##@ Develop

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate the DeepCopy functions of api/.
	$(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./api/v1alpha1

.PHONY: manifests
manifests: $(CONTROLLER_GEN) ## Generate config/crd/bases and config/rbac/role.yaml from the markers in Go files.
	$(CONTROLLER_GEN) crd paths="./api/v1alpha;./api/v1alpha1" output:crd:dir=config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=manager paths=./cmd/manager output:rbac:dir=config/rbac

.PHONY: docs
docs: $(CRD_REF_DOCS) ## Generate docs/reference/api.md from api/.
	$(CRD_REF_DOCS) --log-level=ERROR --source-path=api/v1alpha1 --config=hack/refdocs/config.yaml --templates-dir=hack/refdocs --renderer=markdown --output-path=$(BIN)/api.md
	cat -s $(BIN)/api.md > docs/reference/api.md

.PHONY: bundle
bundle: ## Generate bundle/, for OLM, from config/manifests. ARGS=--image=NAME@DIGEST names the image of a release.
	$(GO) run ./hack/bundle $(ARGS)

.PHONY: chart
chart: ## Bring charts/cleaner up to date with config/ and with its values, check it, and package it into dist/.
	$(GO) run ./hack/chart -package dist

.PHONY: fmt
fmt: ## Format the Go files.
	gofmt -l -w .

.PHONY: vet
vet: ## Let the compiler's checks read the code.
	$(GO) vet ./...
	$(GO) -C scheduler vet ./...
	$(GO) -C test/alerts vet ./...
	$(GO) -C test/ui vet ./...
	$(GO) -C hack/plots vet ./...

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Check the code with the linters of .golangci.yml.
	$(GOLANGCI_LINT) run ./...
	$(GOLANGCI_LINT) run --tests=false --enable-only=unused ./... # what only tests use is not used
	cd scheduler && $(GOLANGCI_LINT) run ./...
	cd test/alerts && $(GOLANGCI_LINT) run ./...
	cd test/ui && $(GOLANGCI_LINT) run ./...
	cd hack/plots && $(GOLANGCI_LINT) run ./...

.PHONY: verify
verify: generate manifests docs chart bundle fmt ## Check that all that is generated is up to date.
	$(GO) -C scheduler mod tidy # its requirements follow those of the main module
	$(GO) -C test/alerts mod tidy
	$(GO) -C test/ui mod tidy
	$(GO) -C hack/plots mod tidy
	git diff --exit-code

##@ Test

.PHONY: test
test: $(TESTSUMMARY) ## Run all tests, from units to the operator on a real control plane. The first time builds that: ten minutes.
	$(TESTSUMMARY) ./...
	cd scheduler && $(TESTSUMMARY) ./...
	cd test/alerts && $(TESTSUMMARY) ./...
	cd test/ui && $(TESTSUMMARY) ./...
	cd hack/plots && $(TESTSUMMARY) ./...
	@for name in "$$CHROMIUM" chromium chromium-browser google-chrome google-chrome-stable; do command -v "$$name" >/dev/null && exit; done; \
	echo "NOT CHECKED: how the pages of kubectl cleaner ui are in a browser. No Chromium was found; CHROMIUM may name one."

.PHONY: test-race
test-race: export CGO_ENABLED = 1
test-race: $(TESTSUMMARY) ## Run all tests with the race detector, which needs a C compiler.
	@command -v $${CC:-cc} >/dev/null || { echo "test-race needs a C compiler, and $${CC:-cc} was not found"; exit 1; }
	$(TESTSUMMARY) -race ./...
	cd scheduler && $(TESTSUMMARY) -race ./...
	cd test/alerts && $(TESTSUMMARY) -race ./...
	cd test/ui && $(TESTSUMMARY) -race ./...
	cd hack/plots && $(TESTSUMMARY) -race ./...

.PHONY: bench
bench: ## Measure the operator as a whole against bare client-go, on a control plane on this machine.
	@$(GO) run ./hack/bench $(ARGS)

.PHONY: bench-units
bench-units: ## Run the benchmarks of single packages.
	$(GO) test -run='^$$' -bench=. -benchmem ./...
	$(GO) -C scheduler test -run='^$$' -bench=. -benchmem ./...

.PHONY: mutants
mutants: ## Plant mistakes in the code, one at a time, and say which of them no test catches. Takes most of an hour.
	@$(GO) run ./hack/mutants $(ARGS)

# How long each target is fuzzed.
FUZZTIME ?= 10m
# How many random cases a property is checked with.
CHECKS ?= 5000

.PHONY: fuzz
fuzz: ## Fuzz what reads hostile input, FUZZTIME for each: reviews, Helm records, statuses, events of watches; and check long what every test run checks shortly: projections, reused results, and watches that fail.
	$(GO) test -run='^$$' -fuzz='^FuzzReview$$' -fuzztime=$(FUZZTIME) ./webhooks
	$(GO) test -run='^$$' -fuzz='^FuzzRecord$$' -fuzztime=$(FUZZTIME) ./controllers/internal/actuate/helm
	$(GO) test -run='^$$' -fuzz='^FuzzStatus$$' -fuzztime=$(FUZZTIME) ./controllers/plan/life
	$(GO) test -run='^$$' -fuzz='^FuzzWatchEvents$$' -fuzztime=$(FUZZTIME) ./controllers/internal/wire
	FRESHNESS_ROUNDS=400 $(GO) test -run='^TestEachAnswerWasTrueSinceItWasAskedFor$$' -timeout=30m ./controllers/internal/freshness
	WATCHES_ROUNDS=400 $(GO) test -run='^TestNobodyMissesAnything$$' -timeout=60m ./controllers/internal/watches
	$(GO) test -run='^(TestProjectedObjectsGiveTheSameResults|TestRefsFindTheSameInProjectedObjects)$$' -timeout=60m ./celenv -rapid.checks=$(CHECKS)
	$(GO) test -run='^TestRefsAreTheSameOnWhatIsKept$$' -timeout=60m ./celenv/library -rapid.checks=$(CHECKS)
	$(GO) test -run='^(TestReusedResultsChangeNoPlan|TestPlansOfChangesAreThoseOfAll)$$' -timeout=60m ./controllers/plan -rapid.checks=$(CHECKS)
	$(GO) test -run='^TestChangesLeadToWhatThereIs$$' -timeout=60m ./controllers/internal/cachedobjects -rapid.checks=$(CHECKS)

##@ Build and run

.PHONY: build
build: ## Build the programs into bin/. What is compiled serves tests and the demo too; releases are built by make image.
	$(GO) build -buildvcs=false -ldflags="$(STAMP)" -o $(BIN)/ ./cmd/...

.PHONY: scheduler
scheduler: ## Build cleaner-scheduler into bin/. The first time takes some minutes: it compiles kube-scheduler.
	$(GO) -C scheduler build -buildvcs=false -ldflags="$(SCHEDULER_STAMP)" -o $(BIN)/ ./cmd/...

.PHONY: run
run: ## Run the operator on this machine, against the cluster of the current kubeconfig.
	$(GO) run ./cmd/manager --leader-elect=false --namespace=cleaner-system --sink-allow-loopback --webhook=false --act-without-author

.PHONY: docker-build
docker-build: ## Build the image IMG, for linux on ARCH, from a program that Go builds here. No base image is pulled.
	GOOS=linux GOARCH=$(ARCH) $(GO) build -trimpath -buildvcs=false -ldflags="-s -w $(STAMP)" -o $(BIN)/image/manager ./cmd/manager
	$(DOCKER) build --platform=linux/$(ARCH) -f Dockerfile -t $(IMG) $(BIN)/image

##@ Release

# What is built for which platforms, and where the archives of the plugin are going to be found.
PLATFORMS ?= linux/amd64,linux/arm64
PLUGIN_PLATFORMS ?= linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64
RELEASE_URL ?= https://github.com/vtex/cleaner/releases/download/v$(VERSION)
# No file of a release is newer than its commit, so that the same commit gives the same bytes.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
RELEASE = $(GO) run ./hack/release --version=$(VERSION) --commit=$(COMMIT) --date=$(SOURCE_DATE_EPOCH)

.PHONY: image
image: ## Build the image for PLATFORMS into dist/image, an OCI layout with SBOMs. Needs no container daemon.
	@mkdir -p dist
	$(RELEASE) --platforms=$(PLATFORMS) --out=dist/image image

.PHONY: image-push
image-push: ## Push dist/image to a registry as IMG, and the SBOMs that refer to it.
	@[ "$(IMG)" != controller:latest ] || { echo "IMG says where to push to, such as make image-push IMG=registry.example.com/cleaner:$(VERSION)"; exit 1; }
	$(GO) run ./hack/release push --from=dist/image $(IMG)

.PHONY: scheduler-image
scheduler-image: ## Build the image of cleaner-scheduler for PLATFORMS into dist/scheduler-image, as make image does.
	@mkdir -p dist
	$(RELEASE) --platforms=$(PLATFORMS) --of=cleaner-scheduler --out=dist/scheduler-image image

.PHONY: scheduler-image-push
scheduler-image-push: ## Push dist/scheduler-image to a registry as SCHEDULER_IMG, and what refers to it.
	@[ "$(SCHEDULER_IMG)" != cleaner-scheduler:latest ] || { echo "SCHEDULER_IMG says where to push to, such as make scheduler-image-push SCHEDULER_IMG=registry.example.com/cleaner-scheduler:$(VERSION)"; exit 1; }
	$(GO) run ./hack/release push --from=dist/scheduler-image $(SCHEDULER_IMG)

.PHONY: plugin
plugin: ## Build the archives of kubectl-cleaner for PLUGIN_PLATFORMS into dist/plugin, with krew's manifest.
	@rm -rf dist/plugin
	$(RELEASE) --platforms=$(PLUGIN_PLATFORMS) --url=$(RELEASE_URL) --out=dist/plugin plugin

.PHONY: release
release: plugin chart ## Make dist/release, from which users install without building: manifests that run the image IMG, chart, plugin, checksums.
	@[ "$(IMG)" != controller:latest ] || { echo "IMG says which image is installed, such as make release IMG=registry.example.com/cleaner:$(VERSION)"; exit 1; }
	@rm -rf dist/release
	$(RELEASE) --image=$(IMG) --out=dist/release files dist/cleaner-$(VERSION).tgz $$(ls dist/plugin/* | grep -v /checksums.txt)

.PHONY: vuln
vuln: build scheduler $(GOVULNCHECK) ## Look for known vulnerabilities in the programs. Says so if the database GOVULNDB cannot be reached; STRICT=1 fails then.
	@$(GO) run ./hack/vuln --govulncheck=$(GOVULNCHECK) $(if $(STRICT),--strict) $(BIN)/manager $(BIN)/kubectl-cleaner $(BIN)/cleaner-scheduler

##@ Use a cluster

.PHONY: install
install: ## Install the CRD in the cluster of the current kubeconfig.
	$(KUBECTL) apply --server-side -k config/crd

.PHONY: uninstall
uninstall: ## Remove the CRD, and with it all Cleaners.
	$(KUBECTL) delete --ignore-not-found -k config/crd

.PHONY: deploy
deploy: ## Deploy the operator with image IMG to the cluster of the current kubeconfig.
	$(KUBECTL) kustomize config/default | sed 's#image: controller:latest#image: $(IMG)#; s#image: cleaner-scheduler:latest#image: $(SCHEDULER_IMG)#' | $(KUBECTL) apply --server-side -f -

.PHONY: templates
templates: ## Apply the templates that are shipped. The operator has to run: its webhook is asked.
	$(KUBECTL) apply --server-side -k config/templates

.PHONY: undeploy
undeploy: ## Remove all that deploy put there.
	$(KUBECTL) delete --ignore-not-found -k config/default

# Tools are built from the versions that the go.mod files in hack/ name, and again only when those change.

$(CONTROLLER_GEN): hack/tools/go.mod hack/tools/go.sum
	$(GO) build -C hack/tools -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen

$(CRD_REF_DOCS): hack/tools/go.mod hack/tools/go.sum
	$(GO) build -C hack/tools -o $@ github.com/elastic/crd-ref-docs

$(GOLANGCI_LINT): hack/lint/go.mod hack/lint/go.sum
	$(GO) build -C hack/lint -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(GOVULNCHECK): hack/tools/go.mod hack/tools/go.sum
	$(GO) build -C hack/tools -o $@ golang.org/x/vuln/cmd/govulncheck

$(TESTSUMMARY): $(wildcard hack/testsummary/*.go)
	$(GO) build -o $@ ./hack/testsummary
