// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

// authority answers reviews, and keeps what it was asked.
type authority struct {
	mu    sync.Mutex
	asked []authorizationv1.SubjectAccessReviewSpec
	err   error
}

func (a *authority) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, r.Spec)
	if a.err != nil || ctx.Err() != nil {
		return nil, errors.Join(a.err, ctx.Err())
	}
	answer := r.DeepCopy()
	answer.Status.EvaluationError = "nobody knows" // that is no permission
	return answer, nil
}

// The API server is asked about the user as it knows it, and once about each right.
func TestMissingAsksForTheWholeUser(t *testing.T) {
	a := &authority{}
	target := v1alpha1.ClusterTarget{Name: "a", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}
	spec := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{target, target}}
	served := validation.Served{Resource: "pods", Namespaced: true}
	needed := rights("shop", spec, validation.Options{Served: []validation.Served{served, served}})
	user := authenticationv1.UserInfo{Username: "u", UID: "1", Groups: []string{"g", "h"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}}}
	missing, err := (&validator{reviews: a}).missing(t.Context(), user, needed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`list pods in namespace "shop"`, `watch pods in namespace "shop"`}, texts(missing)); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "u", UID: "1", Groups: []string{"g", "h"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: "shop"},
	}
	if len(a.asked) != 2 {
		t.Fatalf("%d reviews", len(a.asked))
	}
	for _, got := range a.asked {
		want.ResourceAttributes.Verb = got.ResourceAttributes.Verb
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func texts(rights []right) []string {
	var out []string
	for _, r := range rights {
		out = append(out, r.String())
	}
	return out
}

// A review that fails, for whatever reason, is no permission.
func TestReviewThatFails(t *testing.T) {
	a := &authority{err: errors.New("the API server is busy")}
	_, err := (&validator{reviews: a}).missing(t.Context(), authenticationv1.UserInfo{Username: "u"}, []right{{verb: "get", resource: "pods", namespace: "shop"}})
	if want := `cannot find out whether user "u" may get pods in namespace "shop": the API server is busy`; err == nil || err.Error() != want {
		t.Fatalf("got %v", err)
	}
	if got := unavailable(err); got.Allowed || got.Result.Code != 503 {
		t.Errorf("got %v", got)
	}
}

// An answer has an end, however many rights are missing.
func TestAnswerIsBounded(t *testing.T) {
	var missing []right
	var found validation.Findings
	for i := range 60 {
		missing = append(missing, right{verb: "get", resource: fmt.Sprint("kind", i)})
		found = append(found, validation.Finding{Path: "spec", Message: fmt.Sprint("wrong ", i), Severity: validation.Error})
	}
	req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: "c"}}
	if got := forbidden(req, "u", missing).Result.Message; !strings.HasSuffix(got, `user "u" may not get kind19; and 40 more`) {
		t.Errorf("got %s", got)
	}
	got := invalid(req, found).Result
	if !strings.HasSuffix(got.Message, "spec: wrong 19\nand 40 more") || len(got.Details.Causes) != 20 {
		t.Errorf("got %s", got.Message)
	}
}

// TestRightsOfTheDefaultAccount has a release uninstalled as an account that the author does not name.
func TestRightsOfTheDefaultAccount(t *testing.T) {
	const impersonate = `impersonate serviceaccounts "cleaning" in namespace "shop"`
	for name, tc := range map[string]struct {
		reason string
		spec   v1alpha1.Work
		want   bool
	}{
		"Release": {"what it contains is not reviewed", v1alpha1.Work{Helm: &v1alpha1.Helm{Release: "r", Delete: true}}, true},
		"Note":    {"nothing is uninstalled", v1alpha1.Work{Helm: &v1alpha1.Helm{Release: "r"}}, false},
		"Targets": {"the author's own rights were reviewed", v1alpha1.Work{}, false},
		"Named":   {"it is another account", v1alpha1.Work{Helm: &v1alpha1.Helm{Release: "r", Delete: true}, ServiceAccount: &v1alpha1.ServiceAccountReference{Name: "mine"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := slices.Contains(texts(rights("shop", &tc.spec, validation.Options{DefaultServiceAccount: "cleaning"})), impersonate); got != tc.want {
				t.Errorf("%s: %s is asked for: %t", tc.reason, impersonate, got)
			}
		})
	}
}
