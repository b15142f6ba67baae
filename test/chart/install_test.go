// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"

	"github.com/vtex/cleaner/config/templates"
)

// shipped are the names of the templates that the repository has.
func shipped(t *testing.T) []string {
	t.Helper()
	all, err := templates.All()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, template := range all {
		names = append(names, template.Name)
	}
	return names
}

// Installed in an empty cluster, the operator admits Cleaners by its webhook and cleans. The templates come with the upgrade
// that the notes ask for.
func TestInstall(t *testing.T) {
	l := newLab(t)
	r, err := l.install(path, "{podDisruptionBudget: {enabled: true}, networkPolicy: {enabled: true}}", nil)
	l.must(err)
	const second = "helm upgrade cleaner oci://ghcr.io/vtex/charts/cleaner --version 0.1.0 --namespace cleaner-system --reuse-values"
	if !strings.Contains(r.Info.Notes, second) {
		t.Errorf("the notes do not say how to get the templates:\n%s", r.Info.Notes)
	}
	if got := l.templates(); len(got) > 0 {
		t.Errorf("there are templates already: %v", got)
	}
	l.run()
	l.cleans()

	upgrade := action.NewUpgrade(l.helm())
	upgrade.Namespace, upgrade.ReuseValues = namespace, true
	r, err = upgrade.RunWithContext(t.Context(), name, load(t, path), nil)
	l.must(err)
	if diff := cmp.Diff(shipped(t), l.templates()); diff != "" {
		t.Errorf("templates (-shipped +installed):\n%s", diff)
	}
	if strings.Contains(r.Info.Notes, "helm upgrade") {
		t.Errorf("the notes still ask for an upgrade:\n%s", r.Info.Notes)
	}
	examples := load(t, path).Metadata.Annotations["artifacthub.io/crdsExamples"]
	for _, doc := range strings.Split("\n"+examples, "\n- ")[1:] {
		l.must(l.apply(strings.ReplaceAll(doc, "\n  ", "\n")))
	}
	l.cleans()
}
