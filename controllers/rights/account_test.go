// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

// lacking allows all but these verbs, and counts what it was asked.
type lacking struct {
	mu    sync.Mutex
	verbs []string
	asked int
	err   error
	user  authorizationv1.SubjectAccessReviewSpec
}

func (l *lacking) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	l.user = r.Spec
	answer := r.DeepCopy()
	answer.Status.Allowed = !slices.Contains(l.verbs, r.Spec.ResourceAttributes.Verb)
	return answer, l.err
}

// The account needs what the spec does, but not the right to act as itself; and no right can name a kind that is not served.
func TestListForAccount(t *testing.T) {
	target := func(name, kind string) v1alpha1.ClusterTarget {
		return v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: kind}}}
	}
	spec := &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Rules: []v1alpha1.Rule{{Name: "r", ForEach: "pods.items", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}}},
		Targets:    []v1alpha1.ClusterTarget{target("pods", "Pod"), target("widgets", "Widget")}, ServiceAccount: &v1alpha1.ServiceAccountReference{Name: "bot"},
	}
	o := validation.Options{Served: []validation.ServedKind{{Resource: "pods", Namespaced: true}, {}}}
	want := []string{`delete pods in namespace "shop"`, `get pods in namespace "shop"`, `list pods in namespace "shop"`, `watch pods in namespace "shop"`}
	if diff := cmp.Diff(want, texts(ListForAccount("shop", spec, o))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if all := texts(ListRequired("shop", spec, o)); len(all) != len(want)+3 { // to act as the account, and two for the kind that is not served
		t.Errorf("the author needs %q", all)
	}
}

// A ServiceAccount is reviewed with the groups that the API server gives it.
func TestFindAccountLacks(t *testing.T) {
	needed := []Right{{Verb: "list", Resource: "pods"}, {Verb: "delete", Resource: "pods"}, {Verb: "watch", Resource: "pods"}}
	reviews := &lacking{verbs: []string{"delete"}}
	missing, err := FindAccountLacks(t.Context(), reviews, NewAccountSubject("shop", "bot"), needed)
	if err != nil || len(missing) != 1 || missing[0].Verb != "delete" {
		t.Errorf("missing are %v, %v", missing, err)
	}
	if reviews.user.User != "system:serviceaccount:shop:bot" || !slices.Equal(reviews.user.Groups, []string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}) {
		t.Errorf("asked about %+v", reviews.user)
	}
	reviews.err = errors.New("away")
	if _, err := FindAccountLacks(t.Context(), reviews, NewAccountSubject("shop", "bot"), needed); err == nil {
		t.Error("an answer that failed is one")
	}
}

// Of very many rights, few are asked about.
func TestAccountReviewsAreBounded(t *testing.T) {
	needed := []Right{{Verb: "impersonate", Resource: "serviceaccounts"}}
	for i := range 10 * maxAccountReviews {
		needed = append(needed, Right{Verb: "list", Resource: "pods", Namespace: fmt.Sprint(i)})
	}
	before := slices.Clone(needed)
	if got := ListOfAccount(needed); len(got) != maxAccountReviews || got[0].Verb != "list" {
		t.Errorf("%d rights, the first is %v", len(got), got[0])
	}
	if !slices.Equal(before, needed) {
		t.Error("the list of the author has changed")
	}
}

func TestDescribeLacks(t *testing.T) {
	right := func(verb string) Right { return Right{Verb: verb, Resource: "pods", Namespace: "shop"} }
	for want, missing := range map[string][]Right{
		`the operator is not allowed to list pods in namespace "shop": apply what 'kubectl cleaner rights -f FILE' prints`: {right("list")},
		`the operator is not allowed to a pods in namespace "shop"; b pods in namespace "shop"; c pods in namespace "shop"; and 2 more: apply what 'kubectl cleaner rights -f FILE' prints`: {
			right("a"), right("b"), right("c"), right("d"), right("e"),
		},
	} {
		if got := DescribeLacks("the operator", missing); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
