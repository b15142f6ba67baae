// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/vtex/cleaner/"

// allowed lists, for each package of the product, those of this module that it may import. A package that is missing
// here fails the test: somebody has to say where it stands.
func allowed() map[string][]string {
	return map[string][]string{
		"api/v1alpha1":                                {},
		"api/v1alpha":                                 {"api/v1alpha1"},
		"api/cronschedule":                            {},
		"api/protection":                              {"api/v1alpha1"},
		"api/validation":                              {"api/cronschedule", "api/protection", "api/v1alpha1"},
		"celenv":                                      {"api/v1alpha1", "celenv/budget", "celenv/compilecost", "celenv/expr", "celenv/hoist", "celenv/library", "celenv/lookups", "celenv/parts", "celenv/projection", "celenv/resulttype", "celenv/timedependence", "celenv/usage"},
		"celenv/objectschema":                         {},
		"celenv/hoist":                                {"celenv/budget", "celenv/expr"},
		"celenv/lookups":                              {"celenv/budget", "celenv/expr"},
		"celenv/params":                               {"api/v1alpha1"},
		"celenv/parts":                                {"celenv/budget", "celenv/expr", "celenv/library"},
		"celenv/resulttype":                           {},
		"celenv/speccache":                            {"api/v1alpha1", "celenv"},
		"celenv/usage":                                {"celenv/expr", "celenv/library", "celenv/objectschema", "celenv/projection", "celenv/references"},
		"celenv/projection":                           {"celenv/references"},
		"celenv/references":                           {},
		"celenv/compilecost":                          {"celenv/budget", "celenv/expr"},
		"celenv/expr":                                 {},
		"celenv/budget":                               {"celenv/compact", "celenv/expr", "celenv/library"},
		"celenv/compact":                              {},
		"celenv/timedependence":                       {"celenv/budget", "celenv/expr"},
		"celenv/library":                              {"api/v1alpha1", "celenv/addresses", "celenv/compact", "celenv/references"},
		"celenv/addresses":                            {},
		"controllers/plan":                            {"api/protection", "api/v1alpha1", "celenv", "celenv/expr", "celenv/lookups", "celenv/params", "controllers/plan/askedreads", "controllers/plan/backoff", "controllers/plan/fortimers", "controllers/plan/groupfloor", "controllers/plan/idlepatches", "controllers/plan/itemerrors", "controllers/plan/itemtrace", "controllers/plan/observed", "controllers/plan/stringhash", "controllers/plan/limits", "controllers/plan/monotime", "controllers/plan/ownerpatches", "controllers/plan/reuse", "controllers/plan/runrow"},
		"controllers/plan/askedreads":                 {"controllers/plan/observed"},
		"controllers/plan/observed":                   {"api/v1alpha1", "controllers/plan/backoff"},
		"controllers/plan/reuse":                      {"celenv/lookups"},
		"controllers/plan/stringhash":                 {},
		"controllers/plan/monotime":                   {},
		"controllers/plan/duesince":                   {"controllers/plan/monotime"},
		"controllers/plan/backoff":                    {},
		"controllers/plan/idlepatches":                {"controllers/plan/backoff", "controllers/plan/stringhash"},
		"controllers/plan/runrow":                     {"api/v1alpha1", "celenv/expr", "controllers/plan/observed"},
		"controllers/plan/itemerrors":                 {"api/v1alpha1", "celenv/expr"},
		"controllers/plan/itemtrace":                  {"celenv/parts"},
		"controllers/plan/ownerpatches":               {"api/v1alpha1"},
		"controllers/plan/planjson":                   {"api/v1alpha1", "controllers/plan", "controllers/plan/observed"},
		"controllers/plan/fortimers":                  {"api/v1alpha1", "controllers/plan/stringhash", "controllers/plan/monotime"},
		"controllers/plan/groupfloor":                 {},
		"controllers/plan/limits":                     {"api/v1alpha1"},
		"controllers/plan/life":                       {"api/v1alpha1", "celenv", "celenv/expr", "celenv/projection", "controllers/plan", "controllers/plan/backoff", "controllers/plan/fortimers", "controllers/plan/observed", "controllers/plan/stringhash", "controllers/plan/monotime", "controllers/plan/runrow", "controllers/plan/itemerrors"},
		"controllers/plan/schedule":                   {"api/cronschedule", "api/v1alpha1"},
		"controllers/snapshot":                        {"api/v1alpha1", "celenv/projection", "celenv/usage", "controllers/anykind", "controllers/internal/contain", "controllers/plan/observed", "controllers/releaseitem"},
		"controllers/anykind":                         {"api/protection", "api/v1alpha1", "controllers/plan/observed"},
		"controllers/internal/anykinds":               {"api/v1alpha1", "controllers/anykind", "controllers/internal/identity", "controllers/internal/served", "controllers/plan/monotime", "controllers/rights", "controllers/snapshot"},
		"controllers/internal/passreads":              {"api/v1alpha1", "controllers/internal/memoryquota", "controllers/plan/observed", "controllers/snapshot"},
		"controllers/liveconfirm":                     {"api/v1alpha1", "controllers/internal/contain", "controllers/internal/served", "controllers/plan", "controllers/plan/observed", "controllers/snapshot"},
		"controllers/notfound":                        {},
		"controllers/kindschemas":                     {"api/v1alpha1", "celenv", "celenv/expr", "celenv/objectschema", "celenv/usage", "controllers/releaseitem"},
		"controllers/internal/contain":                {},
		"controllers/internal/wire":                   {"celenv/projection", "controllers/internal/contain", "controllers/jsontrim"},
		"controllers/internal/labelgroups":            {"controllers/internal/cachedobjects", "controllers/internal/served", "controllers/snapshot"},
		"controllers/internal/listdiff":               {"controllers/internal/cachedobjects", "controllers/internal/labelgroups"},
		"controllers/internal/keptparts":              {"celenv/projection", "controllers/snapshot"},
		"controllers/internal/alarms":                 {"controllers/internal/placedheap"},
		"controllers/internal/rightswatch":            {"controllers/internal/contain", "controllers/internal/served"},
		"controllers/internal/watches":                {"controllers/internal/alarms", "controllers/internal/cachedobjects", "controllers/internal/contain", "controllers/internal/keptparts", "controllers/internal/labelgroups", "controllers/internal/listdiff", "controllers/internal/memorybudget", "controllers/internal/nameturns", "controllers/internal/news", "controllers/internal/rightswatch", "controllers/internal/served", "controllers/internal/wakeups", "controllers/internal/wire", "controllers/plan/observed", "controllers/plan/monotime", "controllers/snapshot"},
		"controllers/internal/news":                   {"controllers/plan/monotime"},
		"controllers/internal/wakeups":                {"controllers/internal/news"},
		"controllers/internal/freshness":              {"controllers/internal/contain", "controllers/internal/live", "controllers/internal/served", "controllers/internal/watches", "controllers/internal/wire", "controllers/plan/observed", "controllers/snapshot"},
		"controllers/internal/faults":                 {},
		"controllers/internal/actuate":                {"api/v1alpha1", "controllers/internal/contain", "controllers/internal/fair", "controllers/internal/faults", "controllers/internal/wire", "controllers/notfound", "controllers/plan", "controllers/plan/life", "controllers/plan/observed", "controllers/plan/ownerpatches", "controllers/snapshot"},
		"controllers/internal/actuate/helm":           {"api/v1alpha1", "controllers/internal/actuate/helm/manifests", "controllers/internal/faults", "controllers/internal/jsonscan", "controllers/internal/recordtext", "controllers/notfound", "controllers/plan", "controllers/plan/observed"},
		"controllers/releaseitem":                     {"api/v1alpha1", "celenv/objectschema", "celenv/projection", "controllers/internal/jsonscan", "controllers/internal/recordtext"},
		"controllers/releasereader":                   {"api/v1alpha1", "controllers/internal/actuate/helm", "controllers/plan", "controllers/plan/observed"},
		"controllers/internal/outbox":                 {"api/v1alpha1", "controllers/internal/contain", "controllers/internal/fair", "controllers/internal/faults", "controllers/plan", "controllers/plan/observed", "controllers/plan/runrow"},
		"controllers/internal/metrics":                {},
		"controllers/internal/events":                 {"controllers/internal/contain", "controllers/internal/sanitize"},
		"controllers/internal/evalcancel":             {"api/v1alpha1"},
		"controllers/internal/statusfindings":         {"api/v1alpha1", "controllers/internal/sanitize", "controllers/plan"},
		"controllers/internal/sanitize":               {},
		"controllers/internal/fieldchecks":            {"api/v1alpha1", "api/validation", "celenv", "celenv/speccache", "controllers/internal/contain", "controllers/internal/resolvedspec", "controllers/internal/sanitize", "controllers/kindschemas"},
		"controllers/internal/memorybudget":           {},
		"controllers/internal/memoryquota":            {},
		"controllers/internal/nameturns":              {},
		"controllers/internal/signedrecords":          {"api/v1alpha1", "controllers/signing"},
		"controllers/internal/fair":                   {"controllers/internal/placedheap"},
		"controllers/internal/placedheap":             {},
		"controllers/requestdeadline":                 {},
		"controllers/jsontrim":                        {},
		"controllers/internal/uninstallpool":          {"controllers/internal/fair", "controllers/plan/life"},
		"controllers/internal/reportdedup":            {"controllers/plan", "controllers/plan/stringhash"},
		"controllers/internal/patched":                {"controllers/plan", "controllers/plan/stringhash"},
		"controllers/shards":                          {"controllers/plan/monotime"},
		"controllers/internal/cachedcleaners":         {"api/v1alpha1", "controllers/internal/metrics", "controllers/shards"},
		"controllers/cachetrim":                       {"api/v1alpha1", "controllers/internal/sanitize", "controllers/internal/statusfindings", "controllers/jsontrim"},
		"controllers/internal/identity":               {"api/v1alpha1", "controllers/anykind", "controllers/author", "controllers/plan/observed", "controllers/rights", "controllers/signing", "controllers/snapshot"},
		"controllers/internal/skew":                   {"api/v1alpha1"},
		"controllers/author":                          {"api/v1alpha1", "controllers/signing"},
		"controllers/rights":                          {"api/v1alpha1", "api/validation", "controllers/anykind", "controllers/plan/observed"},
		"controllers/signing":                         {},
		"controllers/signing/keyring":                 {"api/v1alpha1", "controllers/signing"},
		"controllers/internal/clients":                {"controllers/internal/actuate", "controllers/internal/actuate/helm", "controllers/internal/fair", "controllers/internal/freshness", "controllers/internal/identity", "controllers/internal/live", "controllers/internal/watches", "controllers/plan", "controllers/plan/observed", "controllers/snapshot"},
		"controllers/internal/credentials":            {"api/v1alpha1", "controllers/internal/clients", "controllers/internal/identity", "controllers/internal/outbox", "controllers/plan/observed", "controllers/rights", "controllers/signing", "controllers/snapshot"},
		"controllers/internal/cleanerstore":           {"api/v1alpha1", "controllers/author", "controllers/cachetrim", "controllers/internal/faults", "controllers/internal/sanitize", "controllers/internal/signedrecords", "controllers/signing"},
		"controllers/internal/actionlog":              {"api/v1alpha1", "controllers/cachetrim", "controllers/internal/cleanerstore", "controllers/internal/events", "controllers/internal/metrics", "controllers/internal/outbox", "controllers/internal/sanitize", "controllers/plan", "controllers/plan/life"},
		"controllers/internal/statusreport":           {"api/v1alpha1", "api/validation", "controllers/cachetrim", "controllers/internal/cleanerstore", "controllers/internal/identity", "controllers/internal/outbox", "controllers/internal/sanitize", "controllers/plan", "controllers/plan/life", "controllers/plan/observed", "controllers/plan/itemerrors"},
		"controllers/internal/uninstalls":             {"api/v1alpha1", "controllers/author", "controllers/internal/actionlog", "controllers/internal/actuate", "controllers/internal/actuate/helm", "controllers/internal/cleanerstore", "controllers/internal/clients", "controllers/internal/contain", "controllers/internal/identity", "controllers/internal/sanitize", "controllers/internal/signedrecords", "controllers/plan", "controllers/plan/backoff", "controllers/plan/life", "controllers/plan/monotime", "controllers/plan/observed", "controllers/rights", "controllers/signing", "controllers/snapshot"},
		"controllers/internal/timergaps":              {},
		"controllers/internal/liverows":               {"api/v1alpha1", "controllers/internal/actuate", "controllers/internal/cachedobjects", "controllers/internal/served", "controllers/plan", "controllers/plan/life", "controllers/plan/observed", "controllers/snapshot", "controllers/plan/runrow"},
		"controllers/internal/rehearsed":              {"api/v1alpha1", "controllers/internal/sanitize", "controllers/plan", "controllers/plan/backoff", "controllers/plan/stringhash", "controllers/plan/life", "controllers/plan/monotime"},
		"controllers/internal/resolvedspec":           {"api/v1alpha1", "config/templates", "controllers/author"},
		"controllers/internal/triggers":               {"api/v1alpha1", "controllers/author", "controllers/internal/cleanerstore", "controllers/internal/identity", "controllers/internal/resolvedspec", "controllers/plan", "controllers/plan/monotime", "controllers/plan/schedule", "controllers/rights"},
		"controllers/internal/remembered":             {"api/v1alpha1", "controllers/cachetrim", "controllers/internal/memoryquota", "controllers/internal/patched", "controllers/internal/rehearsed", "controllers/internal/reportdedup", "controllers/internal/sanitize", "controllers/plan", "controllers/plan/backoff", "controllers/plan/fortimers", "controllers/plan/idlepatches", "controllers/plan/life", "controllers/plan/limits", "controllers/plan/reuse"},
		"controllers":                                 {"api/v1alpha1", "api/validation", "celenv", "celenv/projection", "celenv/speccache", "controllers/author", "controllers/internal/actionlog", "controllers/internal/actuate", "controllers/internal/actuate/helm", "controllers/internal/anykinds", "controllers/internal/cachedcleaners", "controllers/internal/cleanerstore", "controllers/internal/clients", "controllers/internal/contain", "controllers/internal/credentials", "controllers/internal/evalcancel", "controllers/internal/events", "controllers/internal/fair", "controllers/internal/faults", "controllers/internal/fieldchecks", "controllers/internal/identity", "controllers/internal/liverows", "controllers/internal/memorybudget", "controllers/internal/memoryquota", "controllers/internal/metrics", "controllers/internal/outbox", "controllers/internal/passreads", "controllers/internal/rehearsed", "controllers/internal/remembered", "controllers/internal/reportdedup", "controllers/internal/resolvedspec", "controllers/internal/sanitize", "controllers/internal/served", "controllers/internal/signedrecords", "controllers/internal/skew", "controllers/internal/statusfindings", "controllers/internal/statusreport", "controllers/internal/timergaps", "controllers/internal/triggers", "controllers/internal/uninstallpool", "controllers/internal/uninstalls", "controllers/internal/watches", "controllers/kindschemas", "controllers/liveconfirm", "controllers/notfound", "controllers/plan", "controllers/plan/duesince", "controllers/plan/life", "controllers/plan/limits", "controllers/plan/monotime", "controllers/plan/observed", "controllers/rights", "controllers/shards", "controllers/signing", "controllers/snapshot", "controllers/plan/runrow"},
		"config/templates":                            {"api/v1alpha1"},
		"webhooks":                                    {"api/v1alpha1", "api/validation", "celenv", "celenv/expr", "config/templates", "controllers/anykind", "controllers/author", "controllers/kindschemas", "controllers/plan/observed", "controllers/rights", "controllers/signing", "webhooks/serving"},
		"webhooks/serving":                            {},
		"cmd/kubectl-cleaner":                         {"api/protection", "api/v1alpha1", "api/validation", "celenv", "cmd/internal/protectedkinds", "cmd/internal/version", "cmd/kubectl-cleaner/internal/casetest", "cmd/kubectl-cleaner/internal/cluster", "cmd/kubectl-cleaner/internal/forecast", "cmd/kubectl-cleaner/internal/manifests", "cmd/kubectl-cleaner/internal/output", "cmd/kubectl-cleaner/internal/planning", "cmd/kubectl-cleaner/internal/progress", "cmd/kubectl-cleaner/internal/timeline", "cmd/kubectl-cleaner/internal/ui", "cmd/kubectl-cleaner/internal/whynot", "controllers/jsontrim", "controllers/plan", "controllers/plan/observed", "controllers/plan/planjson", "controllers/releasereader", "controllers/rights", "controllers/snapshot"},
		"config/crd":                                  {},
		"cmd/manager":                                 {"api/protection", "api/v1alpha1", "api/validation", "cmd/internal/protectedkinds", "cmd/internal/version", "controllers", "controllers/cachetrim", "controllers/jsontrim", "controllers/requestdeadline", "controllers/shards", "controllers/signing", "controllers/signing/keyring", "webhooks", "webhooks/serving"},
		"cmd/kubectl-cleaner/internal/ui":             {"api/v1alpha1", "cmd/kubectl-cleaner/internal/forecast", "cmd/kubectl-cleaner/internal/manifests", "cmd/kubectl-cleaner/internal/output", "cmd/kubectl-cleaner/internal/timeline", "cmd/kubectl-cleaner/internal/whynot", "controllers/plan/planjson"},
		"cmd/kubectl-cleaner/internal/cluster":        {"api/v1alpha1", "api/validation", "cmd/kubectl-cleaner/internal/manifests", "cmd/kubectl-cleaner/internal/progress", "controllers/anykind", "controllers/jsontrim", "controllers/kindschemas", "controllers/plan/observed", "controllers/rights", "controllers/snapshot"},
		"cmd/kubectl-cleaner/internal/casetest":       {"api/protection", "api/v1alpha1", "cmd/kubectl-cleaner/internal/manifests", "cmd/kubectl-cleaner/internal/output", "cmd/kubectl-cleaner/internal/planning", "controllers/plan", "controllers/plan/observed", "controllers/plan/planjson", "controllers/snapshot"},
		"cmd/kubectl-cleaner/internal/manifests":      {"api/v1alpha1", "api/validation", "celenv", "celenv/expr", "celenv/objectschema", "cmd/kubectl-cleaner/internal/output", "config/crd", "config/templates", "controllers/kindschemas", "controllers/snapshot"},
		"cmd/kubectl-cleaner/internal/planning":       {"api/v1alpha1", "celenv/expr", "celenv/objectschema", "cmd/kubectl-cleaner/internal/manifests", "controllers/kindschemas", "controllers/liveconfirm", "controllers/plan", "controllers/plan/fortimers", "controllers/plan/itemtrace", "controllers/plan/observed", "controllers/plan/schedule", "controllers/plan/stringhash", "controllers/snapshot"},
		"cmd/kubectl-cleaner/internal/whynot":         {"api/v1alpha1", "cmd/kubectl-cleaner/internal/planning", "controllers/anykind", "controllers/plan", "controllers/plan/itemtrace", "controllers/plan/observed", "controllers/plan/planjson", "controllers/snapshot"},
		"cmd/kubectl-cleaner/internal/output":         {"api/v1alpha1"},
		"cmd/kubectl-cleaner/internal/progress":       {"cmd/kubectl-cleaner/internal/output"},
		"cmd/kubectl-cleaner/internal/forecast":       {"api/v1alpha1", "cmd/kubectl-cleaner/internal/planning", "controllers/plan", "controllers/plan/fortimers", "controllers/plan/limits", "controllers/plan/monotime", "controllers/plan/observed", "controllers/plan/planjson", "controllers/plan/schedule", "controllers/snapshot"},
		"cmd/kubectl-cleaner/internal/timeline":       {"api/v1alpha1", "cmd/kubectl-cleaner/internal/forecast", "cmd/kubectl-cleaner/internal/output"},
		"controllers/internal/cachedobjects":          {"api/v1alpha1", "controllers/internal/wire", "controllers/plan/observed", "controllers/releaseitem", "controllers/snapshot"},
		"controllers/internal/live":                   {"controllers/internal/cachedobjects", "controllers/internal/served", "controllers/internal/wire", "controllers/notfound", "controllers/plan/observed", "controllers/snapshot"},
		"controllers/internal/served":                 {"api/v1alpha1", "controllers/anykind", "controllers/internal/contain", "controllers/internal/wire", "controllers/plan/backoff", "controllers/plan/observed", "controllers/snapshot"},
		"controllers/internal/jsonscan":               {},
		"controllers/internal/recordtext":             {},
		"controllers/internal/actuate/helm/manifests": {},
		"cmd/internal/protectedkinds":                 {"api/protection"},
		"cmd/internal/version":                        {},
	}
}

// doors lists, for each dependency that only some may use, the packages that may.
func doors() map[string][]string {
	return map[string][]string{
		"github.com/google/cel-go":         {"celenv", "celenv/budget", "celenv/compact", "celenv/compilecost", "celenv/expr", "celenv/hoist", "celenv/library", "celenv/lookups", "celenv/parts", "celenv/resulttype", "celenv/timedependence", "celenv/usage"},
		"k8s.io/apiserver":                 {"celenv", "celenv/budget", "celenv/library", "controllers/internal/identity"},
		"helm.sh/helm":                     {"controllers/internal/actuate/helm"},
		"github.com/cloudevents/sdk-go":    {"controllers/internal/outbox"},
		"github.com/prometheus":            {"controllers/internal/metrics"},
		"k8s.io/client-go/tools/cache":     {"controllers/internal/watches", "controllers/signing/keyring"},
		"k8s.io/client-go/tools/reference": {},
		"k8s.io/client-go/tools/events":    {}, // they have no bounds
		"k8s.io/client-go/tools/record":    {},

		"k8s.io/client-go/kubernetes/typed/events": {"controllers/internal/events"},

		"github.com/open-policy-agent/cert-controller": {"webhooks"},
	}
}

// pure is the package that decides from nothing but its input, with all below it.
const pure = "controllers/plan"

// impure is what these may not import.
func impure() []string {
	return []string{"net", "net/http", "os", "io", "math/rand", "math/rand/v2", "k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/utils/clock"}
}

// within says that an import path is a package, or lies below it; a door names a module without its major version.
func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
}

func TestImports(t *testing.T) {
	rules, seen := allowed(), map[string]bool{}
	for _, top := range []string{"api", "celenv", "config", "controllers", "cmd", "webhooks"} {
		err := filepath.WalkDir(filepath.Join("..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			pkg := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), ".."+string(filepath.Separator)))
			may, known := rules[pkg]
			if !known {
				t.Errorf("%s is not in the table of allowed imports", pkg)
			}
			seen[pkg] = true
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return err
				}
				check(t, pkg, path, imported, may)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for pkg := range rules {
		if !seen[pkg] {
			t.Errorf("%s is in the table of allowed imports and does not exist", pkg)
		}
	}
}

func check(t *testing.T, pkg, path, imported string, may []string) {
	t.Helper()
	if ours, ok := strings.CutPrefix(imported, module); ok && !slices.Contains(may, ours) {
		t.Errorf("%s must not import %s", path, ours)
	}
	for door, keepers := range doors() {
		if within(imported, door) && !slices.Contains(keepers, pkg) {
			t.Errorf("%s must not import %s: only %s may", path, imported, strings.Join(keepers, ", "))
		}
	}
	if within(pkg, pure) && slices.ContainsFunc(impure(), func(p string) bool { return within(imported, p) }) {
		t.Errorf("%s must stay pure, and imports %s", path, imported)
	}
}
