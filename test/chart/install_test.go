// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/test/operator"
)

// shipped are the names of the templates that the repository has.
func shipped(t *testing.T) []string {
	t.Helper()
	all, err := templates.LoadAll()
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
	r, err := l.install(path, "{podDisruptionBudget: {enabled: true}, networkPolicy: {egress: {enabled: true}}}", nil)
	l.must(err)
	second := "helm upgrade cleaner oci://ghcr.io/vtex/charts/cleaner --version " + version(t) + " --namespace cleaner-system --reuse-values"
	if !strings.Contains(r.Info.Notes, second) {
		t.Errorf("the notes do not say how to get the templates:\n%s", r.Info.Notes)
	}
	if got := l.templates(); len(got) > 0 {
		t.Errorf("there are templates already: %v", got)
	}
	l.run()
	l.cleans()
	if err := operator.StatusIsTheOperators(t.Context(), l.Cluster, metav1.NamespaceDefault); err != nil {
		t.Error(err)
	}

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
	first := regexp.MustCompile(`(?s)  apiVersion: .*?\n\n`).FindString(r.Info.Notes)
	l.must(l.apply(strings.ReplaceAll("\n"+first, "\n  ", "\n")))
	examples := load(t, path).Metadata.Annotations["artifacthub.io/crdsExamples"]
	for _, doc := range strings.Split("\n"+examples, "\n- ")[1:] {
		l.must(l.apply(strings.ReplaceAll(doc, "\n  ", "\n")))
	}
	for title, c := range combinations() {
		t.Run(title, func(t *testing.T) { l.admits(t, render(t, "dry-"+c.release[:4], c.values, c.kinds...)) })
	}
}

// admits checks that the API server takes all objects as they are, and that their Pod fits the Pod Security Standard that
// the namespace enforces. Kinds that come with the programs of others are not served here.
func (l *lab) admits(t *testing.T, o objects) {
	t.Helper()
	strict := &client.CreateOptions{DryRun: []string{metav1.DryRunAll}, Raw: &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}}
	for id, u := range o {
		if group := u.GroupVersionKind().Group; group == "cert-manager.io" || group == "monitoring.coreos.com" {
			continue
		}
		if err := l.Create(t.Context(), u, strict); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s: %v", id, err)
		}
	}
	template := manager(t, o).Spec.Template
	create := func(change func(*corev1.PodSpec)) error {
		pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: *template.Spec.DeepCopy()}
		pod.Name, pod.Namespace, pod.Spec.ServiceAccountName = "manager", namespace, operator.ServiceAccount
		change(&pod.Spec)
		return l.Create(t.Context(), pod, strict)
	}
	if err := create(func(*corev1.PodSpec) {}); err != nil {
		t.Errorf("the Pod is not admitted: %v", err)
	}
	if err := create(func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil }); !apierrors.IsForbidden(err) {
		t.Errorf("the namespace restricts nothing: this test cannot fail: %v", err)
	}
}

// CRDs that were applied by other means are taken over when that is asked for, and the templates then come in one step.
// Given up again, both stay.
func TestCRDsOfOthers(t *testing.T) {
	l := newLab(t)
	if out, err := l.Kubectl(t.Context(), "apply", "--server-side", "-k", "../../config/crd"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := l.install(path, "", nil); err == nil {
		t.Fatal("CRDs of others are taken over unasked")
	}
	_, err := l.install(path, "", func(i *action.Install) { i.TakeOwnership = true })
	l.must(err)
	if diff := cmp.Diff(shipped(t), l.templates()); diff != "" {
		t.Errorf("templates (-shipped +installed):\n%s", diff)
	}
	l.run()
	l.cleans()
	l.must(l.apply(precious))
	kept := l.treasure()
	_, err = l.upgrade(path, "{crds: {enabled: false, keep: false}, templates: {enabled: false}}")
	l.must(err)
	l.unharmed("by giving up CRDs and templates", kept)
}
