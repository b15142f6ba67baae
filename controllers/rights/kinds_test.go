// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/anykind"
)

func aKind(group, resource string, namespaced bool) anykind.Kind {
	return anykind.Kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Namespaced: namespaced}
}

// anyWork is a spec that acts on the objects of all kinds in a way.
func anyWork(a v1alpha1.RuleAction, namespaces ...string) *v1alpha1.Work {
	return &v1alpha1.Work{
		Cluster:    true,
		CommonSpec: v1alpha1.CommonSpec{Rules: []v1alpha1.Rule{{Name: "r", ForEach: "all.items", When: "true", Actions: []v1alpha1.RuleAction{a}}}},
		Targets: []v1alpha1.ClusterTarget{{Name: "all", Reference: v1alpha1.ClusterReference{
			Reference: v1alpha1.Reference{Kind: v1alpha1.AnyKind}, HasAnnotation: "x", Namespaces: namespaces,
		}}},
	}
}

var (
	deletes = v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}
	reports = v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}
)

func TestListKindVerbs(t *testing.T) {
	if got := ListKindVerbs(anyWork(deletes)); !slices.Equal(got, []string{"delete", "list"}) {
		t.Errorf("to delete needs %v", got)
	}
	if got := ListKindVerbs(anyWork(reports)); !slices.Equal(got, []string{"list"}) {
		t.Errorf("to report needs %v", got)
	}
	for _, tc := range []struct {
		author   []string
		asItself bool
		want     []string
	}{
		{[]string{"delete", "list"}, true, []string{"list", "watch", "delete"}}, {[]string{"delete", "list"}, false, []string{"list", "watch"}}, {[]string{"list"}, true, []string{"list", "watch"}},
	} {
		if got := ListWatchVerbs(tc.author, tc.asItself); !slices.Equal(got, tc.want) {
			t.Errorf("the operator needs %v, want %v", got, tc.want)
		}
	}
}

// No right to one kind is asked for a target of all kinds: each is reviewed by itself.
func TestAnyKindIsNoRequiredRight(t *testing.T) {
	if got := ListRequired("", anyWork(deletes), validation.Options{Served: []validation.ServedKind{{}}}); len(got) != 0 {
		t.Errorf("required are %v", got)
	}
}

// Who answers for others needs the rights to all kinds: nothing is skipped for them.
func TestListForAllKinds(t *testing.T) {
	var got []string
	for _, r := range ListForAllKinds(anyWork(deletes)) {
		got = append(got, r.String())
	}
	if want := []string{"delete all resources of all groups", "list all resources of all groups"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := ListForAllKinds(&v1alpha1.Work{}); got != nil {
		t.Errorf("without such targets: %v", got)
	}
}

func TestSplitKinds(t *testing.T) {
	kinds := []anykind.Kind{aKind("", "configmaps", true), aKind("apps", "deployments", true), aKind("storage.k8s.io", "storageclasses", false)}
	for name, tc := range map[string]struct {
		allowed []Right
		at      string
		may     []string
	}{
		"Nothing":   {nil, "shop", nil},
		"YesToAll":  {[]Right{{Verb: "delete", Group: "*", Resource: "*"}, {Verb: "list", Group: "*", Resource: "*"}}, "", nil}, // an authorizer may deny one of them
		"OneVerb":   {[]Right{{Verb: "delete", Resource: "configmaps", Namespace: "shop"}}, "shop", nil},
		"Both":      {[]Right{{Verb: "delete", Resource: "configmaps", Namespace: "shop"}, {Verb: "list", Resource: "configmaps", Namespace: "shop"}}, "shop", []string{"configmaps"}},
		"Elsewhere": {[]Right{{Verb: "delete", Resource: "configmaps", Namespace: "bank"}, {Verb: "list", Resource: "configmaps", Namespace: "bank"}}, "shop", nil},
		"Cluster": {[]Right{{Verb: "delete", Group: "storage.k8s.io", Resource: "storageclasses"}, {Verb: "list", Group: "storage.k8s.io", Resource: "storageclasses"},
			{Verb: "delete", Group: "apps", Resource: "deployments", Everywhere: true}, {Verb: "list", Group: "apps", Resource: "deployments", Everywhere: true}}, "", []string{"deployments.apps", "storageclasses.storage.k8s.io"}},
	} {
		t.Run(name, func(t *testing.T) {
			may, denied, err := SplitKinds(t.Context(), kinds, tc.at, []string{"delete", "list"}, func(_ context.Context, r Right) (bool, error) {
				return slices.Contains(tc.allowed, r), nil
			})
			var got []string
			for _, k := range may {
				got = append(got, k.GroupResource().String())
			}
			if diff := cmp.Diff(tc.may, got); diff != "" || err != nil || len(may)+len(denied) != len(kinds) {
				t.Errorf("%d denied: %v (-want +got):\n%s", len(denied), err, diff)
			}
		})
	}
	var mu sync.Mutex
	asked := 0
	if _, _, err := SplitKinds(t.Context(), kinds, "", []string{"list"}, func(context.Context, Right) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if asked++; asked > 1 {
			return false, errors.New("away")
		}
		return false, nil
	}); err == nil {
		t.Error("what could not be asked is an answer")
	}
}

func TestListKindRights(t *testing.T) {
	served := []validation.ServedKind{{Kinds: NameKinds([]anykind.Kind{aKind("", "configmaps", true), aKind("storage.k8s.io", "storageclasses", false)})}}
	for name, tc := range map[string]struct {
		work *v1alpha1.Work
		want []string
	}{
		"Cluster": {anyWork(deletes), []string{
			"delete configmaps in all namespaces", "list configmaps in all namespaces", "watch configmaps in all namespaces",
			"delete storageclasses.storage.k8s.io", "list storageclasses.storage.k8s.io", "watch storageclasses.storage.k8s.io",
		}},
		"Namespace": {anyWork(reports, "shop"), []string{`list configmaps in namespace "shop"`, `watch configmaps in namespace "shop"`}},
	} {
		var got []string
		for _, r := range ListKindRights(tc.work, validation.Options{Served: served}) {
			got = append(got, r.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := ListKindRights(anyWork(deletes), validation.Options{}); got != nil {
		t.Errorf("of unknown kinds: %v", got)
	}
}

// rules answers reviews of the caller's own rights.
type rules struct {
	authorizationv1.SubjectRulesReviewStatus
	err error
	at  string
}

func (r *rules) Create(_ context.Context, review *authorizationv1.SelfSubjectRulesReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error) {
	r.at = review.Spec.Namespace
	review.Status = r.SubjectRulesReviewStatus
	return review, r.err
}

func TestOwn(t *testing.T) {
	r := &rules{SubjectRulesReviewStatus: authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{
		{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"configmaps", "secrets"}},
		{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"one"}},
		{Verbs: []string{"*"}, APIGroups: []string{"apps"}, Resources: []string{"*"}},
	}}}
	own, err := ListOwn(t.Context(), r, "shop")
	if err != nil || r.at != "shop" {
		t.Fatalf("of %q: %v", r.at, err)
	}
	all := []string{"list", "watch", "delete"}
	for _, tc := range []struct {
		kind anykind.Kind
		want bool
	}{
		{aKind("", "configmaps", true), true}, {aKind("", "secrets", true), false}, {aKind("apps", "deployments", true), true}, {aKind("example.com", "configmaps", true), false},
	} {
		if got := own.MayHave(&tc.kind, all); got != tc.want {
			t.Errorf("%s: %t", tc.kind.GroupResource(), got)
		}
	}
	r.Incomplete = true // another authorizer may allow more
	own, err = ListOwn(t.Context(), r, "shop")
	if k := aKind("", "secrets", true); err != nil || !own.MayHave(&k, all) {
		t.Errorf("what is not known is denied: %v", err)
	}
	r.err = errors.New("away")
	if _, err := ListOwn(t.Context(), r, "shop"); err == nil {
		t.Error("no error")
	}
	if got := DescribeVerbs(all); got != "list and watch and delete" {
		t.Errorf("got %q", got)
	}
}
