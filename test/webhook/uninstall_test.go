// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
)

// halfUninstalled is a release of a ConfigMap that a finalizer holds and of a ServiceAccount, which goes after it, and the
// Cleaner that has begun to uninstall it.
func (e *env) halfUninstalled(t *testing.T, ns, name string, as client.Client) *unstructured.Unstructured {
	t.Helper()
	_, err := helmtest.Install(t.Context(), e.Config(), ns, name, helmtest.Chart{Templates: map[string]string{
		"holder.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-holder, finalizers: [example.com/hold]}\n", name),
		"prize.yaml":  fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: %s-prize}\n", name),
	}})
	if err != nil {
		t.Fatal(err)
	}
	u := cleaner(t, ns, name, fmt.Sprintf(`{ttl: 0s, helm: {release: %s, delete: true}}`, name))
	if err := as.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the uninstall of "+name+" has begun", func(ctx context.Context) string {
		cm := &corev1.ConfigMap{}
		if err := e.Get(ctx, client.ObjectKey{Namespace: ns, Name: name + "-holder"}, cm); err != nil {
			return err.Error()
		}
		if cm.DeletionTimestamp == nil {
			return "the ConfigMap is not deleted yet"
		}
		return ""
	})
	return u
}

// goes waits until an object is gone.
func (e *env) goes(t *testing.T, o client.Object) {
	t.Helper()
	eventually(t, o.GetName()+" goes", func(ctx context.Context) string {
		if err := e.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there (%v)", err)
		}
		return ""
	})
}

// TestAnUninstallIsFinishedForItsAuthorOnly shows an uninstall that is half done when its author loses the rights: the rest of
// the release stays, until somebody who has them is the author, or the Cleaner is deleted.
func TestAnUninstallIsFinishedForItsAuthorOnly(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	if err := operator.Grant(t.Context(), e.Cluster, "helm", authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets"}); err != nil {
		t.Fatal(err)
	}
	all := append(configMapEditor(),
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "update", "delete"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "delete"}})
	user := func(name string, rules []rbacv1.PolicyRule) (rbacv1.Subject, client.Client) {
		u := rbacv1.Subject{Kind: rbacv1.UserKind, Name: name + "-" + ns}
		e.grant(t, ns, name, u, rules...)
		as, _ := e.as(t, u.Name)
		return u, as
	}
	alice, asAlice := user("alice", all)
	bob, asBob := user("bob", configMapEditor())
	_, asCarol := user("carol", all)
	dave, asDave := user("dave", all)
	edited, deleted, back := e.halfUninstalled(t, ns, "edited", asAlice), e.halfUninstalled(t, ns, "deleted", asAlice), e.halfUninstalled(t, ns, "back", asDave)
	finished := e.halfUninstalled(t, ns, "finished", asCarol)

	if err := e.manager.Kill(); err != nil { // what it was told lately it would believe for some minutes
		t.Fatal(err)
	}
	for _, name := range []string{"alice", "dave"} {
		if err := e.Delete(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, u := range []*unstructured.Unstructured{edited, deleted, back, finished} {
		holder := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: u.GetName() + "-holder"}}
		if err := e.Patch(t.Context(), holder, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			t.Fatal(err)
		}
	}
	if err := asBob.Delete(t.Context(), finished.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	var err error
	if e.manager, err = operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Webhook: e.gate, Args: []string{"--min-interval=100ms", "--finish-grace=45s"}}); err != nil {
		t.Fatal(err)
	}
	prize := func(u *unstructured.Unstructured) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: u.GetName() + "-prize"}}
	}
	const half = `AuthorLacksRights: Run 1: release %q is partly uninstalled, and the rest is waiting. The author of the spec, user %q, is not allowed to `
	for u, author := range map[*unstructured.Unstructured]string{edited: alice.Name, deleted: alice.Name, back: dave.Name} {
		e.becomes(t, client.ObjectKeyFromObject(u), fmt.Sprintf(half, u.GetName(), author))
	}

	t.Run("DeletedAndAllowed", func(t *testing.T) {
		t.Parallel()
		e.goes(t, finished.DeepCopy())
		e.goes(t, prize(finished))
	})
	t.Run("Edited", func(t *testing.T) {
		t.Parallel()
		key := client.ObjectKeyFromObject(edited)
		replace := func(as client.Client) {
			spec := fmt.Sprintf(`[{"op":"replace","path":"/spec","value":{"ttl":"%s","targets":[{"name":"cm","reference":{"version":"v1","kind":"ConfigMap","name":"x"},"delete":true}]}}]`, map[bool]string{true: "1h", false: "2h"}[as == asBob])
			eventually(t, "the spec is edited", func(ctx context.Context) string { // the webhook has just begun to answer again
				if err := as.Patch(ctx, edited.DeepCopy(), client.RawPatch("application/json-patch+json", []byte(spec))); err != nil {
					return err.Error()
				}
				return ""
			})
		}
		replace(asBob)
		e.becomes(t, key, fmt.Sprintf(half, edited.GetName(), bob.Name))
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(prize(edited)), prize(edited)); err != nil {
			t.Fatalf("somebody without rights has the uninstall finished by an edit: %v", err)
		}
		replace(e.Client)
		e.goes(t, prize(edited))
		e.becomes(t, key, "WaitingForTTL")
	})
	t.Run("Deleted", func(t *testing.T) {
		t.Parallel()
		if err := asBob.Delete(t.Context(), deleted.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		e.goes(t, deleted.DeepCopy())
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(prize(deleted)), prize(deleted)); err != nil {
			t.Errorf("what its author may not delete is gone with the Cleaner: %v", err)
		}
		eventually(t, "an Event says what is left", func(ctx context.Context) string {
			said, err := e.Kubectl(ctx, "get", "events", "-n", ns, "--field-selector", "involvedObject.name="+deleted.GetName(), "-o", "jsonpath={.items[*].message}")
			if err != nil {
				return err.Error()
			}
			if !strings.Contains(string(said), `release "deleted" is left partly uninstalled`) {
				return "the Events say " + string(said)
			}
			return ""
		})
	})
	t.Run("GivenBack", func(t *testing.T) {
		t.Parallel()
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(prize(back)), prize(back)); err != nil {
			t.Fatalf("what its author may not delete is gone: %v", err)
		}
		e.grant(t, ns, "again", dave, all...)
		e.goes(t, back.DeepCopy())
		e.goes(t, prize(back))
	})
}

// TestARuleUninstallsNothingForAnAuthorWithoutRights has an author who may not delete one of the kinds of a chart uninstall it by a rule: nothing of
// the release is touched, and the status says which right is missing. When the author is given it, the release goes.
func TestARuleUninstallsNothingForAnAuthorWithoutRights(t *testing.T) {
	e := shared
	ns := e.namespace(t)
	if err := operator.Grant(t.Context(), e.Cluster, "helm", authorizationv1.ResourceAttributes{Verb: "watch", Resource: "secrets"}); err != nil {
		t.Fatal(err)
	}
	eve := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "eve-" + ns}
	e.grant(t, ns, "eve", eve, append(configMapEditor(), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "update", "delete"}})...)
	as, _ := e.as(t, eve.Name)
	_, err := helmtest.Install(t.Context(), e.Config(), ns, "web", helmtest.Chart{Templates: map[string]string{
		"config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n",
		"prize.yaml":  "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web-prize}\n",
	}})
	if err != nil {
		t.Fatal(err)
	}
	record := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sh.helm.release.v1.web.v1"}}
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(record), record); err != nil {
		t.Fatal(err)
	}
	before := record.ResourceVersion
	u := cleaner(t, ns, "c", `{lifecycle: Recurring, targets: [{name: releases, helmReleases: {}}], rules: [{name: all, forEach: releases.items, when: "true", actions: [{helmUninstall: {}}]}]}`)
	if err := as.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	e.becomes(t, client.ObjectKeyFromObject(u), fmt.Sprintf("UninstallFailed: An action failed and will be retried: Secret %s/sh.helm.release.v1.web.v1: The author of the spec, user %q, is not allowed to ", ns, eve.Name))
	if err := e.Get(t.Context(), client.ObjectKeyFromObject(record), record); err != nil || record.ResourceVersion != before {
		t.Errorf("the record was touched: %v", err)
	}
	for _, o := range []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-prize"}}} {
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Errorf("an object of the release is gone: %v", err)
		}
	}
	e.grant(t, ns, "more", eve, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get", "delete"}})
	e.goes(t, record)
	e.goes(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web-prize"}})
}
