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
		"api/v1alpha1":                      {},
		"api/v1alpha":                       {"api/v1alpha1"},
		"api/facts":                         {"api/v1alpha1"},
		"api/validation":                    {"api/facts", "api/v1alpha1"},
		"celenv":                            {"api/v1alpha1", "celenv/expr", "celenv/library", "celenv/meter", "celenv/moving"},
		"celenv/expr":                       {},
		"celenv/meter":                      {"celenv/expr", "celenv/library"},
		"celenv/moving":                     {"celenv/expr", "celenv/meter"},
		"celenv/library":                    {"api/v1alpha1", "celenv/addresses"},
		"celenv/addresses":                  {},
		"controllers/plan":                  {"api/facts", "api/v1alpha1", "celenv", "celenv/expr"},
		"controllers/snapshot":              {"api/v1alpha1", "controllers/internal/contain", "controllers/plan"},
		"controllers/confirm":               {"api/v1alpha1", "controllers/internal/contain", "controllers/plan", "controllers/snapshot"},
		"controllers/notfound":              {},
		"controllers/internal/contain":      {},
		"controllers/internal/wire":         {"controllers/internal/contain"},
		"controllers/internal/watches":      {"api/v1alpha1", "controllers/internal/contain", "controllers/internal/wire", "controllers/notfound", "controllers/plan", "controllers/snapshot"},
		"controllers/internal/faults":       {},
		"controllers/internal/actuate":      {"api/v1alpha1", "controllers/internal/contain", "controllers/internal/faults", "controllers/internal/wire", "controllers/notfound", "controllers/plan", "controllers/snapshot"},
		"controllers/internal/actuate/helm": {"api/v1alpha1", "controllers/internal/faults", "controllers/plan"},
		"controllers/releases":              {"api/v1alpha1", "controllers/internal/actuate/helm", "controllers/plan"},
		"controllers/internal/outbox":       {"api/v1alpha1", "controllers/internal/contain", "controllers/internal/faults", "controllers/plan"},
		"controllers/internal/metrics":      {},
		"controllers/internal/events":       {"controllers/internal/contain"},
		"controllers/internal/evaluating":   {"api/v1alpha1"},
		"controllers/internal/findings":     {"api/v1alpha1", "controllers/internal/shown"},
		"controllers/internal/shown":        {"controllers/internal/events"},
		"controllers/internal/ration":       {},
		"controllers/internal/reported":     {"controllers/plan"},
		"controllers/internal/patched":      {"controllers/plan"},
		"controllers/leader":                {"controllers/plan"},
		"controllers/trimmed":               {"api/v1alpha1", "controllers/internal/events"},
		"controllers/internal/identity":     {"controllers/author", "controllers/plan", "controllers/rights", "controllers/snapshot"},
		"controllers/internal/skew":         {"api/v1alpha1"},
		"controllers/author":                {"api/v1alpha1", "controllers/signing"},
		"controllers/rights":                {"api/v1alpha1", "api/validation", "controllers/plan"},
		"controllers/signing":               {},
		"controllers/signing/keyring":       {"api/v1alpha1", "controllers/signing"},
		"controllers": {
			"api/v1alpha1", "api/validation", "celenv", "config/templates", "controllers/author", "controllers/confirm", "controllers/notfound", "controllers/plan", "controllers/rights", "controllers/signing", "controllers/snapshot", "controllers/internal/watches",
			"controllers/internal/actuate", "controllers/internal/actuate/helm", "controllers/internal/faults", "controllers/internal/identity",
			"controllers/trimmed", "controllers/internal/contain", "controllers/internal/evaluating", "controllers/internal/findings", "controllers/internal/shown", "controllers/internal/events", "controllers/internal/outbox", "controllers/internal/metrics", "controllers/internal/ration", "controllers/internal/patched", "controllers/internal/reported", "controllers/internal/skew",
		},
		"config/templates": {"api/v1alpha1"},
		"webhooks": {
			"api/v1alpha1", "api/validation", "celenv", "config/templates", "controllers/author", "controllers/plan", "controllers/rights", "controllers/signing", "webhooks/serving",
		},
		"webhooks/serving": {},
		"cmd/kubectl-cleaner": {
			"api/facts", "api/v1alpha1", "api/validation", "celenv", "cmd/internal/version", "config/crd", "config/templates", "controllers/confirm", "controllers/plan", "controllers/releases",
			"controllers/snapshot",
		},
		"config/crd": {},
		"cmd/manager": {
			"api/facts", "api/v1alpha1", "api/validation", "cmd/internal/version", "controllers", "controllers/leader", "controllers/trimmed", "controllers/signing", "controllers/signing/keyring", "webhooks", "webhooks/serving",
		},
		"cmd/internal/version": {},
	}
}

// doors lists, for each dependency that only some may use, the packages that may.
func doors() map[string][]string {
	return map[string][]string{
		"github.com/google/cel-go":         {"celenv", "celenv/expr", "celenv/library", "celenv/meter", "celenv/moving"},
		"k8s.io/apiserver":                 {"celenv", "celenv/library", "celenv/meter", "controllers/internal/identity"},
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

// impure is what controllers/plan may not import, so that a plan depends on nothing but its input.
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
	if pkg == "controllers/plan" && slices.ContainsFunc(impure(), func(p string) bool { return within(imported, p) }) {
		t.Errorf("%s must stay pure, and imports %s", path, imported)
	}
}
