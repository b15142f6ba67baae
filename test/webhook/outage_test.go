// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// invalid is a spec that only the webhook refuses, and why.
const (
	invalid    = "ttl: 1d\ntargets: [{name: pods, reference: {version: v1, kind: Pod, name: a}, delete: true}]\nconditions: [pod == null]"
	invalidWhy = `spec.conditions[0]: 1:1: there is no target or variable "pod"; did you mean "pods"?`
)

// asked waits until the webhook is asked, and answers.
func (e *env) asked(t *testing.T, ns, what string) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) string {
		err := e.Create(ctx, cleaner(t, ns, "asked", invalid), client.DryRunAll)
		switch {
		case err == nil:
			return "an invalid Cleaner was admitted"
		case strings.HasPrefix(err.Error(), denied+invalidWhy):
			return ""
		}
		return err.Error()
	})
}

// Every replica answers, also the one that owns nothing yet.
func TestReplicaThatOwnsNothing(t *testing.T) {
	ns := shared.namespace(t)
	owner := func() string {
		out, err := operator.FindOwner(t.Context(), shared, ns)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := owner()
	shared.replica(t, "-2")
	shared.asked(t, ns, "the replica that owns nothing answers")
	if after := owner(); after != before || before == "" {
		t.Errorf("the owner has changed: %q, %q", before, after)
	}
}

// The operator notes on its Lease that there is a key. When the Secret is gone it makes no other one, and no spec is written until
// somebody restores it.
func TestALostKeyStaysLost(t *testing.T) {
	ns, at := shared.namespace(t), client.ObjectKey{Namespace: operator.Namespace, Name: "cleaner-signing-key"}
	if err := shared.Create(t.Context(), cleaner(t, ns, "signed", podsToDelete)); err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{}
	if err := shared.Get(t.Context(), client.ObjectKey{Namespace: operator.Namespace, Name: "cleaner.vtex.dev"}, lease); err != nil {
		t.Fatal(err)
	}
	if lease.Annotations["cleaner.vtex.dev/signing-key-made"] == "" || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("the Lease is %+v", lease)
	}
	secret := &corev1.Secret{}
	if err := shared.Get(t.Context(), at, secret); err != nil {
		t.Fatal(err)
	}
	if err := shared.Delete(t.Context(), secret.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	restored := false
	restore := func() {
		if restored {
			return
		}
		restored = true
		copied := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name}, Data: secret.Data}
		if err := shared.Create(context.WithoutCancel(t.Context()), copied); err != nil {
			t.Error(err)
		}
	}
	defer restore()
	eventually(t, "the key is lost", func(ctx context.Context) string {
		err := shared.Create(ctx, cleaner(t, ns, "new", podsToDelete), client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), "has lost the signing key") {
			return ""
		}
		return fmt.Sprintf("a Cleaner was admitted, or refused for another reason: %v", err)
	})
	if err := shared.Get(t.Context(), at, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret is there (%v)", err)
	}
	restore()
	eventually(t, "the key is back", func(ctx context.Context) string {
		if err := shared.Create(ctx, cleaner(t, ns, "new", podsToDelete), client.DryRunAll); err != nil {
			return err.Error()
		}
		return ""
	})
}

// replica runs one more manager, which alone is asked until the end of the test.
func (e *env) replica(t *testing.T, name string, args ...string) *operator.Process {
	t.Helper()
	p, err := operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Name: name, Webhook: e.gate, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.gate.To(e.manager.WebhookPort)
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// While nobody answers, no spec is written, and each try says why. What is stored goes on: it can be labelled and
// deleted, and it cleans up and goes, finalizer and all.
func TestOutage(t *testing.T) {
	ns := shared.namespace(t)
	victim := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "victim"}}
	if err := shared.Create(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	stored := []string{
		"ttl: 0s\ntargets:\n- {name: victim, reference: {version: v1, kind: ConfigMap, name: victim}, delete: true}\n- {name: go, reference: {version: v1, kind: ConfigMap, name: go}}",
		podsToDelete,
	}
	for i, spec := range stored {
		if err := shared.Create(t.Context(), cleaner(t, ns, []string{"works", "deleted"}[i], spec)); err != nil {
			t.Fatal(err)
		}
	}

	shared.gate.To(0)
	defer func() {
		shared.gate.To(shared.manager.WebhookPort)
		shared.asked(t, ns, "the webhook is back")
	}()
	eventually(t, "the webhook is down", func(ctx context.Context) string {
		err := shared.Create(ctx, cleaner(t, ns, "new", podsToDelete), client.DryRunAll)
		if err != nil && strings.Contains(err.Error(), `failed calling webhook "author.cleaners.cleaner.vtex.dev"`) {
			return ""
		}
		return "a Cleaner was admitted, or refused for another reason"
	})
	label := func(name string) error {
		return shared.Patch(t.Context(), cleaner(t, ns, name, "{}"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"a": "b"}}}`)))
	}
	if err := label("deleted"); err != nil {
		t.Errorf("a label cannot be set: %v", err)
	}
	err := shared.Patch(t.Context(), cleaner(t, ns, "deleted", "{}"), client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"ttl": "2d"}}`)))
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a spec can be changed: %v", err)
	}
	if err := shared.Delete(t.Context(), cleaner(t, ns, "deleted", "{}")); err != nil {
		t.Errorf("a Cleaner cannot be deleted: %v", err)
	}
	// The condition that it waits for comes true now: it writes its finalizer, deletes, takes the finalizer off, and goes.
	if err := shared.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "go"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the Cleaner cleans", func(ctx context.Context) string {
		c := &v1alpha1.Cleaner{}
		if err := shared.Get(ctx, client.ObjectKey{Namespace: ns, Name: "works"}, c); !apierrors.IsNotFound(err) {
			return "it is there: " + describe(c)
		}
		return ""
	})
	if err := shared.Get(t.Context(), client.ObjectKeyFromObject(victim), victim); !apierrors.IsNotFound(err) {
		t.Errorf("the victim is there: %v", err)
	}
}

func describe(c *v1alpha1.Cleaner) string {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return "no status"
	}
	return ready.Reason + ": " + ready.Message
}

// Two replicas that lose their certificates make new ones at the same moment, agree on one, and serve it; the API server
// is told its authority.
func TestCertificatesAreMadeAnew(t *testing.T) {
	ns := shared.namespace(t)
	other := shared.replica(t, "-3")
	authority := func() []byte {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := shared.Get(t.Context(), client.ObjectKey{Name: operator.WebhookConfiguration}, config); err != nil {
			t.Fatal(err)
		}
		return config.Webhooks[0].ClientConfig.CABundle
	}
	before := authority()
	if len(before) == 0 {
		t.Fatal("there is no authority")
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operator.Namespace, Name: operator.WebhookSecret}}
	if err := shared.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(`{"data": null}`))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a new authority, of the certificate that is kept", func(ctx context.Context) string {
		if err := shared.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return err.Error()
		}
		if now := authority(); bytes.Equal(now, before) || !bytes.Equal(now, secret.Data["ca.crt"]) {
			return "the old one, or another one than in the Secret"
		}
		return ""
	})
	for _, port := range []int{other.WebhookPort, shared.manager.WebhookPort} {
		shared.gate.To(port)
		shared.asked(t, ns, "the replica serves by it")
	}
}

// With --webhook-cert=files it serves what lies in the folder, and makes nothing itself.
func TestCertificatesOfSomebodyElse(t *testing.T) {
	ns := shared.namespace(t)
	other := shared.replica(t, "-4", "--webhook-cert=files", "--webhook-cert-dir="+shared.manager.WebhookDir, "--require-service-account")
	want := denied + "spec.serviceAccountName: is required by this operator: write the name of a ServiceAccount in the namespace of the Cleaner that has the rights that the Cleaner needs"
	eventually(t, "it answers, by its own rules", func(ctx context.Context) string {
		err := shared.Create(ctx, cleaner(t, ns, "c", podsToDelete), client.DryRunAll)
		if err == nil || err.Error() != want {
			return fmt.Sprintf("another answer: %v", err)
		}
		return ""
	})
	if err := shared.Create(t.Context(), cleaner(t, ns, "c", podsToDelete+"serviceAccountName: sweeper\n"), client.DryRunAll); err != nil {
		t.Error(err)
	}
	log, err := os.ReadFile(other.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte("cert-rotation")) {
		t.Error("it makes certificates")
	}
}

// What gets in while there is no webhook is refused by the operator, in the same words. When there is one again such a
// Cleaner is not stuck: it can be labelled, mended and deleted, and not be broken otherwise.
func TestInvalidOneThatGotIn(t *testing.T) {
	e, err := newEnv(t.Context(), shared.binary)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	ns := e.namespace(t)
	for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		if _, err := e.Kubectl(t.Context(), "delete", kind, operator.WebhookConfiguration); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "an invalid Cleaner gets in", func(ctx context.Context) string {
		if err := e.Create(ctx, cleaner(t, ns, "broken", invalid+"\nserviceAccountName: sweeper")); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := e.Create(t.Context(), cleaner(t, ns, "nobody", podsToDelete)); err != nil {
		t.Fatal(err)
	}
	if err := operator.InstallWithWebhook(t.Context(), e.Cluster); err != nil {
		t.Fatal(err)
	}
	if _, err := operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Webhook: e.gate, Args: []string{"--require-service-account"}}); err != nil {
		t.Fatal(err)
	}
	for name, why := range map[string]string{"broken": invalidWhy, "nobody": "spec.serviceAccountName: is required by this operator: "} {
		eventually(t, name+" is invalid", func(ctx context.Context) string {
			c := &v1alpha1.Cleaner{}
			if err := e.Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, c); err != nil {
				return err.Error()
			}
			valid := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionValid)
			if valid == nil || valid.Status != metav1.ConditionFalse || !strings.Contains(valid.Message, why) {
				return describe(c)
			}
			return ""
		})
	}
	e.asked(t, ns, "the webhook is there")
	patch := func(patch string) error {
		return e.Patch(t.Context(), cleaner(t, ns, "broken", "{}"), client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	if err := patch(`{"metadata": {"finalizers": ["example.com/a"]}}`); err != nil {
		t.Errorf("metadata cannot be written: %v", err)
	}
	if err := patch(`{"metadata": {"finalizers": null}}`); err != nil {
		t.Errorf("a finalizer cannot be taken off: %v", err)
	}
	if err := patch(`{"spec": {"ttl": "2d"}}`); err == nil || !strings.Contains(err.Error(), invalidWhy) {
		t.Errorf("an edit that does not mend it is admitted: %v", err)
	}
	if err := patch(`{"spec": {"conditions": ["pods == null"]}}`); err != nil {
		t.Errorf("it cannot be mended: %v", err)
	}
}
