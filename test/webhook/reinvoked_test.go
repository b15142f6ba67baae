// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changing is a webhook of somebody else that is asked after ours about the Cleaners of a namespace, and sets their ttl: to ttl, so often
// as it is asked.
func (e *env) changing(t *testing.T, namespace string, ttl func() string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		patch := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{
			UID: review.Request.UID, Allowed: true, PatchType: &patch, Patch: fmt.Appendf(nil, `[{"op":"add","path":"/spec/ttl","value":%q}]`, ttl()),
		}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}))
	t.Cleanup(server.Close)
	again, none := admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.SideEffectClassNone
	theirs := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "zz-" + namespace}, // they are asked in the order of their names
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "ttl.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"cleaner.vtex.dev"}, APIVersions: []string{"*"}, Resources: []string{"cleaners"}},
			}},
			NamespaceSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
			ReinvocationPolicy: &again, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := e.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Delete(context.WithoutCancel(t.Context()), theirs); err != nil {
			t.Error(err)
		}
	})
}

// TestAnotherWebhookChangesTheSpec shows a webhook that changes a spec after its author was stored: the author is stored again, for the
// spec as it is then. One that changes it each time has the last word, and so its spec is refused.
func TestAnotherWebhookChangesTheSpec(t *testing.T) {
	e := shared
	alice := func(t *testing.T) (string, client.Client) {
		ns := e.namespace(t)
		subject := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "alice-" + ns}
		e.grant(t, ns, "alice", subject, configMapEditor()...)
		as, _ := e.as(t, subject.Name)
		return ns, as
	}
	t.Run("Once", func(t *testing.T) {
		ns, as := alice(t)
		e.changing(t, ns, func() string { return "1s" })
		var u *unstructured.Unstructured
		eventually(t, "the other webhook is asked", func(ctx context.Context) string {
			u = cleaner(t, ns, "c", fmt.Sprintf(waiting, "x"))
			if err := as.Create(ctx, u, client.DryRunAll); err != nil {
				return err.Error()
			}
			if ttl, _, _ := unstructured.NestedString(u.Object, "spec", "ttl"); ttl != "1s" {
				return "the ttl is " + ttl
			}
			return ""
		})
		u = cleaner(t, ns, "c", fmt.Sprintf(waiting, "x"))
		if err := as.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		e.becomes(t, client.ObjectKeyFromObject(u), "TargetMissing")
		if got := e.authorOf(t, u); !strings.Contains(got, `"username":"alice-`) {
			t.Errorf("the author is %s", got)
		}
	})
	t.Run("EachTime", func(t *testing.T) {
		ns, as := alice(t)
		var asked atomic.Int64
		e.changing(t, ns, func() string { return fmt.Sprintf("%ds", asked.Add(1)) })
		eventually(t, "the spec is refused", func(ctx context.Context) string {
			err := as.Create(ctx, cleaner(t, ns, "c", fmt.Sprintf(waiting, "x")), client.DryRunAll)
			if err == nil {
				err = errors.New("it is admitted")
			}
			if !strings.Contains(err.Error(), "another admission webhook has changed the spec after its author was stored") {
				return err.Error()
			}
			return ""
		})
	})
}
