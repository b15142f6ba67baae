// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/test/operator"
)

// older is this chart as an earlier version might have been, but that the operator of today runs with it: it has the rights to
// the signing key and the webhook for authors. It was packaged from a copy of charts/cleaner in which
//   - version and appVersion are 0.0.1,
//   - the CRDs lack the version v1alpha and the field spec.limits,
//   - there is neither the preset pods nor its value,
//   - the template terminating-pods is missing, podgc-orphaned has another default, and podgc-ancient (podgc-terminated by
//     another name) is shipped, which no later version has.
const older = "testdata/cleaner-0.0.1.tgz"

// precious is what no change of the release may touch.
const precious = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: later, namespace: default}
spec:
  ttl: 30d
  targets:
  - name: old
    reference: {version: v1, kind: ConfigMap, name: old}
    delete: true
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: ancient}
spec:
  lifecycle: Recurring
  mode: DryRun
  templateRef: {name: podgc-ancient}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: orphaned}
spec:
  lifecycle: Recurring
  mode: DryRun
  templateRef: {name: podgc-orphaned}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: CleanerTemplate
metadata: {name: own}
spec:
  template:
    targets:
    - name: pods
      reference: {version: v1, kind: Pod}
    rules:
    - name: all
      forEach: pods.items
      when: "false"
      actions:
      - delete: {}
`

// A release goes through all that can become of it: installed by an older chart, upgraded to this one, uninstalled, and
// installed again. Cleaners, ClusterCleaners and templates outlive all of it as they are.
func TestLife(t *testing.T) {
	l := newLab(t)
	before := l.everything()

	_, err := l.install(older, "", nil)
	l.must(err)
	l.run()
	_, err = l.upgrade(older, "")
	l.must(err)
	if got := l.templates(); !slices.Contains(got, "podgc-ancient") || slices.Contains(got, "terminating-pods") {
		t.Fatalf("the older chart is not what it should be: it ships %v", got)
	}
	l.must(l.apply(precious))
	kept := l.treasure()
	certificates := l.certificates()
	if l.may("create", "pods/eviction") || l.served("v1alpha") || l.keepsLimits("before") {
		t.Fatal("the older chart differs in nothing from this one: the test cannot fail")
	}

	// While the webhook does not answer, templates whose text is new are not written, and all else is. It can be repeated.
	l.gate.To(0)
	if _, err := l.upgrade(path, ""); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Fatalf("the upgrade does without the webhook: %v", err)
	}
	l.unharmed("by an upgrade that fails", kept)
	l.gate.To(l.manager.WebhookPort)
	_, err = l.upgrade(path, "")
	l.must(err)
	l.unharmed("by the upgrade", kept)
	if got := l.certificates(); got != certificates {
		t.Error("the upgrade has taken the webhook's certificates away: no Cleaner can be written until the operator has made others")
	}
	want := append(shipped(t), "own", "podgc-ancient")
	slices.Sort(want)
	if diff := cmp.Diff(want, l.templates()); diff != "" {
		t.Errorf("templates after the upgrade:\n%s", diff)
	}
	if got := l.quarantine(); got != "40s" {
		t.Errorf("the upgrade has left the template podgc-orphaned as it was: its default is %s", got)
	}
	l.eventually("the new preset is in force", func(context.Context) (string, error) {
		if !l.may("create", "pods/eviction") {
			return "the operator is not allowed to evict Pods", nil
		}
		return "", nil
	})
	if !l.served("v1alpha") || !l.keepsLimits("after") {
		t.Error("the CRDs are as they were before the upgrade")
	}
	l.cleans()

	_, err = l.upgrade(older, "") // with this chart's templates, and podgc-ancient is its own already
	l.must(err)
	l.unharmed("by going back", kept)
	if l.served("v1alpha") || l.quarantine() != "90s" {
		t.Errorf("to go back has left CRDs or templates as they were: %s", l.quarantine())
	}
	_, err = l.upgrade(path, "")
	l.must(err)
	l.unharmed("by upgrading once more", kept)

	// A template of somebody else in the place of one that is shipped is not blended with it either.
	l.must(l.Delete(t.Context(), &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: "pod-ip-pressure"}}))
	if out, err := l.Kubectl(t.Context(), "apply", "--server-side", "-f", "../../config/templates/pod-ip-pressure/template.yaml"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := l.upgrade(path, ""); err == nil || !strings.Contains(err.Error(), "pod-ip-pressure was left by somebody else") {
		t.Errorf("a template of somebody else is taken over: %v", err)
	}
	l.must(l.Delete(t.Context(), &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: "pod-ip-pressure"}}))
	_, err = l.upgrade(path, "")
	l.must(err)
	delete(kept, "CleanerTemplate pod-ip-pressure") // it is made anew

	// Given up, templates stay as they are, and are not taken back with an old text.
	_, err = l.upgrade(path, "{templates: {enabled: false}}")
	l.must(err)
	if _, err := l.upgrade(older, "{templates: {enabled: true}}"); err == nil || !strings.Contains(err.Error(), "was left by cleaner-"+version(t)) {
		t.Errorf("templates that were given up are taken back by another version: %v", err)
	}
	_, err = l.upgrade(path, "{templates: {enabled: true}}")
	l.must(err)
	l.unharmed("by giving them up for a while", kept)

	l.stop()
	r, err := action.NewUninstall(l.helm()).Run(name)
	l.must(err)
	t.Logf("Helm says: %s", r.Info)
	l.unharmed("by the uninstall", kept)
	l.leaves(before, want)

	again, err := l.install(path, "", nil)
	l.must(err)
	if again.Info.Status != release.StatusDeployed {
		t.Errorf("installed again, the release is %s", again.Info.Status)
	}
	l.unharmed("by installing again", kept)
	l.run()
	l.cleans()
	l.unharmed("by the new operator", kept)

	// Helm would take templates of another version over as they are.
	l.stop()
	_, err = action.NewUninstall(l.helm()).Run(name)
	l.must(err)
	const advice = "kubectl delete cleanertemplate pod-ip-pressure"
	if _, err := l.install(older, "", nil); err == nil || !strings.Contains(err.Error(), advice) {
		t.Fatalf("templates of another version are taken over: %v", err)
	}
	if out, err := l.Kubectl(t.Context(), "delete", "cleanertemplates", "-l", "app.kubernetes.io/instance=cleaner"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, err = l.install(older, "", nil)
	l.must(err)
	if got := l.quarantine(); got != "90s" {
		t.Errorf("the template podgc-orphaned is not the older one's: its default is %s", got)
	}
}

// quarantine is the default that the template podgc-orphaned has.
func (l *lab) quarantine() string {
	l.Helper()
	template, text := &v1alpha1.CleanerTemplate{}, ""
	l.must(l.Get(l.Context(), client.ObjectKey{Name: "podgc-orphaned"}, template))
	l.must(json.Unmarshal(template.Spec.Parameters[0].Default.Raw, &text))
	return text
}

// treasure are the UIDs of all that was made of precious, and of all templates, by kind and name.
func (l *lab) treasure() map[string]string {
	l.Helper()
	all := map[string]string{}
	add := func(kind string, o client.Object) {
		if o.GetDeletionTimestamp() != nil {
			l.Errorf("%s %s is being deleted", kind, o.GetName())
		}
		all[kind+" "+o.GetName()] = string(o.GetUID())
	}
	cleaners, clusterCleaners, templates := &v1alpha1.CleanerList{}, &v1alpha1.ClusterCleanerList{}, &v1alpha1.CleanerTemplateList{}
	l.must(l.List(l.Context(), cleaners, client.InNamespace(metav1.NamespaceDefault)))
	l.must(l.List(l.Context(), clusterCleaners))
	l.must(l.List(l.Context(), templates))
	for i := range cleaners.Items {
		add("Cleaner", &cleaners.Items[i])
	}
	for i := range clusterCleaners.Items {
		add("ClusterCleaner", &clusterCleaners.Items[i])
	}
	for i := range templates.Items {
		add("CleanerTemplate", &templates.Items[i])
	}
	return all
}

// unharmed checks that all that was kept is there, and that it is the same and not made anew.
func (l *lab) unharmed(by string, kept map[string]string) {
	l.Helper()
	now := l.treasure()
	for id, was := range kept {
		if now[id] != was {
			l.Errorf("%s is harmed %s: it was %q and is %q", id, by, was, now[id])
		}
	}
	cleaner := &v1alpha1.Cleaner{}
	l.must(l.Get(l.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "later"}, cleaner))
	if cleaner.Generation != 1 || len(cleaner.Spec.Targets) != 1 {
		l.Errorf("the Cleaner is changed %s: %+v", by, cleaner.Spec)
	}
}

// certificates are those of the webhook, as the Pods serve them and as the API server trusts them.
func (l *lab) certificates() string {
	l.Helper()
	secret, configuration := &corev1.Secret{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	l.must(l.Get(l.Context(), client.ObjectKey{Namespace: namespace, Name: operator.WebhookSecret}, secret))
	l.must(l.Get(l.Context(), client.ObjectKey{Name: operator.WebhookConfiguration}, configuration))
	all := string(secret.Data["tls.crt"])
	for _, w := range configuration.Webhooks {
		all += string(w.ClientConfig.CABundle)
	}
	return all
}

// may says whether the presets give the operator a right. One that is of no preset has gone with the aggregation.
func (l *lab) may(verb, resource string) bool {
	l.Helper()
	role := &rbacv1.ClusterRole{}
	l.must(l.Get(l.Context(), client.ObjectKey{Name: "cleaner-targets"}, role))
	if len(role.Rules) == 0 {
		l.Error("the operator has lost all its rights")
	}
	return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
	})
}

// served says whether Cleaners can be read in this version.
func (l *lab) served(version string) bool {
	l.Helper()
	client, err := dynamic.NewForConfig(l.Config())
	l.must(err)
	cleaners := schema.GroupVersionResource{Group: v1alpha1.GroupVersion.Group, Version: version, Resource: "cleaners"}
	_, err = client.Resource(cleaners).List(l.Context(), metav1.ListOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		l.Fatal(err)
	}
	return err == nil
}

// keepsLimits says whether the field spec.limits is stored.
func (l *lab) keepsLimits(name string) bool {
	l.Helper()
	cleaner := &v1alpha1.ClusterCleaner{}
	l.must(l.apply(`
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: ` + name + `}
spec:
  lifecycle: Recurring
  mode: DryRun
  limits: {maxActions: 5, per: 1h}
  templateRef: {name: podgc-orphaned}
`))
	l.must(l.Get(l.Context(), client.ObjectKey{Name: name}, cleaner))
	l.must(l.Delete(l.Context(), cleaner))
	return cleaner.Spec.Limits != nil
}

// everything are the objects in the cluster but Events, as kind, namespace and name.
func (l *lab) everything() sets.Set[string] {
	l.Helper()
	config := l.Config()
	config.WarningHandler = rest.NoWarnings{} // some kinds are old
	disc, err := discovery.NewDiscoveryClientForConfig(config)
	l.must(err)
	dyn, err := dynamic.NewForConfig(config)
	l.must(err)
	lists, err := disc.ServerPreferredResources()
	l.must(err)
	all := sets.New[string]()
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		l.must(err)
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" {
				continue
			}
			found, err := dyn.Resource(gv.WithResource(r.Name)).List(l.Context(), metav1.ListOptions{})
			l.must(err)
			for _, o := range found.Items {
				all.Insert(r.Kind + " " + o.GetNamespace() + "/" + o.GetName())
			}
		}
	}
	return all
}

// leaves checks what an uninstall leaves behind: what is precious, and no more than is said here.
func (l *lab) leaves(before sets.Set[string], templates []string) {
	l.Helper()
	want := sets.New(
		"CustomResourceDefinition /cleaners.cleaner.vtex.dev", "CustomResourceDefinition /clustercleaners.cleaner.vtex.dev",
		"CustomResourceDefinition /cleanertemplates.cleaner.vtex.dev",
		"APIService /v1alpha1.cleaner.vtex.dev", "APIService /v1alpha.cleaner.vtex.dev", // made by the API server for the CRDs
		"Cleaner default/later", "ClusterCleaner /ancient", "ClusterCleaner /orphaned",
		"Lease "+namespace+"/cleaner.vtex.dev", "Lease "+namespace+"/cleaner.vtex.dev-replica-0", // made by the operator, as those of shards
		"Secret "+namespace+"/cleaner-signing-key", // made by the operator: with it the authors of what is left stay known
	)
	for _, t := range templates {
		want.Insert("CleanerTemplate /" + t)
	}
	for shard := range shards.Count {
		want.Insert(fmt.Sprintf("Lease %s/cleaner.vtex.dev-shard-%d", namespace, shard))
	}
	l.eventually("the uninstall leaves what is precious, and nothing else", func(context.Context) (string, error) {
		return cmp.Diff(sets.List(want), sets.List(l.everything().Difference(before))), nil
	})
}
