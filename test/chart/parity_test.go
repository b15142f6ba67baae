// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/hack/kustomize"
)

// configured is the annotation by which the scheduler's Pods are restarted when their configuration changes.
const configured = "cleaner.vtex.dev/configuration"

// kustomized is config/default with some of config/components more.
func kustomized(t *testing.T, components ...string) objects {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../config")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "default", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	more := &strings.Builder{}
	for _, c := range components {
		fmt.Fprintf(more, "- ../components/%s\n", c)
	}
	on := strings.Replace(string(text), "components:\n", "components:\n"+more.String(), 1)
	if err := os.WriteFile(file, []byte(on), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := kustomize.Build(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	return collect(t, built)
}

// The chart makes the objects that kustomize makes, by default and with each switch that both have. All of them are equal
// but for what tells releases apart: labels, and what selects by them; and for the image.
func TestSameAsKustomize(t *testing.T) {
	for values, components := range map[string][]string{
		"": nil,
		"{presets: {helm: true, hooks: true, nodes: true, sinks: true, spiderpool: true}}": {"helm", "hooks", "nodes", "sinks", "spiderpool"},
		"{webhook: {certificates: {source: cert-manager}}}":                                {"certmanager"},
		"{metrics: {serviceMonitor: {enabled: true}}}":                                     {"prometheus"},
		"{metrics: {prometheusRule: {enabled: true}, dashboard: {enabled: true}}}":         {"alerts", "dashboard"},
		"{scheduler: {enabled: true}}":                                                     {"scheduler"},
	} {
		t.Run(values, func(t *testing.T) {
			want, got := kustomized(t, components...), render(t, name, values)
			delete(want, "Namespace "+namespace) // Helm makes it, with --create-namespace
			if diff := cmp.Diff(want.names(), got.names()); diff != "" {
				t.Fatalf("objects (-kustomize +chart):\n%s", diff)
			}
			for id := range want {
				if diff := cmp.Diff(plain(want[id]), plain(got[id])); diff != "" {
					t.Errorf("%s (-kustomize +chart):\n%s", id, diff)
				}
			}
		})
	}
}

// plain is an object without what may differ.
func plain(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	labels, annotations := u.GetLabels(), u.GetAnnotations()
	for key := range labels { // those that mean something to others stay
		if strings.HasPrefix(key, "app.kubernetes.io/") || strings.HasPrefix(key, "helm.sh/") {
			delete(labels, key)
		}
	}
	delete(annotations, "helm.sh/resource-policy")
	u.SetLabels(nil)
	u.SetAnnotations(nil)
	if len(labels) > 0 {
		u.SetLabels(labels)
	}
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	switch u.GetKind() {
	case "NetworkPolicy":
		unstructured.RemoveNestedField(u.Object, "spec", "podSelector")
	case "Service", "ServiceMonitor":
		unstructured.RemoveNestedField(u.Object, "spec", "selector")
	case "Deployment":
		unstructured.RemoveNestedField(u.Object, "spec", "selector")
		unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "labels")
		// By it an upgrade restarts the Pods, which kustomize leaves to whoever changes the configuration.
		unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "annotations", configured)
		if annotations, _, _ := unstructured.NestedMap(u.Object, "spec", "template", "metadata", "annotations"); len(annotations) == 0 {
			unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "annotations")
		}
		for _, c := range u.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any) {
			delete(c.(map[string]any), "image")
			delete(c.(map[string]any), "imagePullPolicy")
		}
	}
	return u.Object
}
