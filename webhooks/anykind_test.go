// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/anykind"
)

// manyKinds serves ConfigMaps, Secrets, StorageClasses, which are cluster-scoped, and so many more kinds of a group.
type manyKinds struct{ more int }

func (m manyKinds) ServerPreferredResourcesWithContext(context.Context) ([]*metav1.APIResourceList, error) {
	verbs := metav1.Verbs{"list", "watch", "delete"}
	lists := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: verbs}, {Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: verbs},
		}},
		{GroupVersion: "storage.k8s.io/v1", APIResources: []metav1.APIResource{{Name: "storageclasses", Kind: "StorageClass", Verbs: verbs}}},
	}
	if m.more < 0 {
		return nil, errAway
	}
	group := &metav1.APIResourceList{GroupVersion: "example.com/v1"}
	for n := range m.more {
		group.APIResources = append(group.APIResources, metav1.APIResource{Name: fmt.Sprintf("kinds%03d", n), Kind: fmt.Sprintf("Kind%03d", n), Namespaced: true, Verbs: verbs})
	}
	return append(lists, group), nil
}

// ownRules are the rules of the operator.
type ownRules []authorizationv1.ResourceRule

func (o ownRules) Create(_ context.Context, r *authorizationv1.SelfSubjectRulesReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error) {
	if o == nil {
		return nil, errAway
	}
	r.Status.ResourceRules = o
	return r, nil
}

// everyRule allows the operator all.
var everyRule = ownRules{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}

// counted counts reviews.
type counted struct {
	grants
	mu    sync.Mutex
	asked []string
}

func (c *counted) Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	c.mu.Lock()
	a := r.Spec.ResourceAttributes
	if r.Spec.User == "alice" {
		c.asked = append(c.asked, a.Verb+" "+a.Resource)
	}
	c.mu.Unlock()
	return c.grants.Create(ctx, r, o)
}

// anyOf is a ClusterCleaner that deletes what has a label in a namespace, of any kind.
func anyOf(change ...func(*v1alpha1.ClusterCleaner)) *v1alpha1.ClusterCleaner {
	c := &v1alpha1.ClusterCleaner{
		ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "1", CreationTimestamp: metav1.NewTime(moment)},
		Spec: v1alpha1.ClusterCleanerSpec{
			CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring, Limits: &v1alpha1.Limits{MaxActions: 100}, Rules: []v1alpha1.Rule{
				{Name: "all", ForEach: "stale.items", When: "true", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}},
			}},
			Targets: []v1alpha1.ClusterTarget{{Name: "stale", Reference: v1alpha1.ClusterReference{
				Reference: v1alpha1.Reference{Kind: "*", MatchLabels: map[string]string{"stage": "stale"}}, Namespaces: []string{"shop"},
			}}},
		},
	}
	for _, ch := range change {
		ch(c)
	}
	return c
}

// reviewAny answers for a spec, of a user with rights, where the operator has rules.
func reviewAny(t *testing.T, c *v1alpha1.ClusterCleaner, rights []string, own ownRules, kinds allKinds) (string, []string) {
	t.Helper()
	v := town(t, nil)
	asked := &counted{grants: grants{rights: rights}}
	v.reviews, v.rules, v.allKinds = asked, own, kinds
	req := asking(t, "ClusterCleaner", c, nil)
	got := answered((&ownerValidator{v, func() v1alpha1.Owner { return &v1alpha1.ClusterCleaner{} }}).reviewSpec(t.Context(), &req, c))
	slices.Sort(asked.asked)
	return got, asked.asked
}

// The author is reviewed for each kind: what is denied is skipped and named, and without any kind the spec is refused.
func TestAnyKindIsReviewedKindByKind(t *testing.T) {
	for name, tc := range map[string]struct {
		rights []string
		own    ownRules
		kinds  allKinds
		change func(*v1alpha1.ClusterCleaner)
		want   string
	}{
		"All": {rights: []string{"*"}, own: everyRule, kinds: manyKinds{}, want: "allowed"},
		"Some": {rights: []string{"delete configmaps", "list configmaps"}, own: everyRule, kinds: manyKinds{},
			want: `allowed spec.targets[0].reference.kind: 1 kinds are skipped: user "alice" is not allowed to delete and list secrets`},
		"NotToList": {rights: []string{"delete configmaps", "list configmaps", "delete secrets"}, own: everyRule, kinds: manyKinds{},
			want: `allowed spec.targets[0].reference.kind: 1 kinds are skipped: user "alice" is not allowed to delete and list secrets`},
		"None": {own: everyRule, kinds: manyKinds{},
			want: `Forbidden: spec.targets[0].reference.kind: no kind is left for target "stale": user "alice" is not allowed to delete and list configmaps, secrets (ClusterCleaner of cleaner.vtex.dev c)`},
		"OnlyReports": {rights: []string{"list configmaps", "list secrets"}, own: everyRule, kinds: manyKinds{},
			change: func(c *v1alpha1.ClusterCleaner) {
				c.Spec.Rules[0].Actions[0] = v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}
			}, want: "allowed"},
		"Excluded": {own: everyRule, kinds: manyKinds{}, change: func(c *v1alpha1.ClusterCleaner) {
			c.Spec.Targets[0].Reference.ExcludeKinds = []string{"secrets", "configmaps"}
		},
			want: `Forbidden: spec.targets[0].reference.kind: no kind is left for target "stale": excludeKinds leaves out all kinds (ClusterCleaner of cleaner.vtex.dev c)`},
		"ExcludedByAShortName": {rights: []string{"*"}, own: everyRule, kinds: manyKinds{}, change: func(c *v1alpha1.ClusterCleaner) {
			c.Spec.Targets[0].Reference.ExcludeKinds = []string{"secrets", "cm"}
		},
			want: "allowed spec.targets[0].reference.excludeKinds: no kind that could be selected has the name cm: write the resource in full, such as configmaps or deployments.apps"},
		"OperatorMayNot": {rights: []string{"*"}, own: ownRules{{Verbs: []string{"list", "watch", "delete"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}, kinds: manyKinds{},
			want: "allowed spec.targets[0].reference.kind: 1 kinds are skipped: the operator is not allowed to list and watch and delete secrets"},
		"DiscoveryAway": {rights: []string{"*"}, own: everyRule, kinds: manyKinds{more: -1}, want: "ServiceUnavailable: cannot list the kinds that the API server serves: the API server is away: try again"},
		"RulesAway":     {rights: []string{"*"}, kinds: manyKinds{}, want: "ServiceUnavailable: cannot list the operator's own rights: the API server is away: try again"},
	} {
		t.Run(name, func(t *testing.T) {
			c := anyOf()
			if tc.change != nil {
				tc.change(c)
			}
			if got, _ := reviewAny(t, c, tc.rights, tc.own, tc.kinds); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// The operator's own kinds come first, and no ClusterCleaner costs more than 512 reviews. Also a user who may do everything is asked about for each
// kind: an authorizer may deny one of them.
func TestReviewsOfAnyKindAreBounded(t *testing.T) {
	if _, asked := reviewAny(t, anyOf(), []string{"*"}, everyRule, manyKinds{more: 100}); len(asked) != 2*102 || slices.Contains(asked, "delete *") {
		t.Errorf("of one who may do everything was asked %v", asked)
	}
	only := ownRules{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"*"}}}
	if _, asked := reviewAny(t, anyOf(), []string{"delete configmaps", "list configmaps"}, only, manyKinds{more: 100}); len(asked) != 4 {
		t.Errorf("it was asked about what the operator may not: %v", asked)
	}
	some := anyOf(func(c *v1alpha1.ClusterCleaner) { // targets of the same kinds are asked about once
		second := c.Spec.Targets[0]
		second.Name, second.Reference.MatchLabels = "other", map[string]string{"stage": "other"}
		c.Spec.Targets = append(c.Spec.Targets, second)
	})
	got, asked := reviewAny(t, some, []string{"delete configmaps", "list configmaps"}, everyRule, manyKinds{more: 300})
	if len(asked) != 2*anykind.MaxKinds {
		t.Errorf("%d reviews", len(asked))
	}
	if want := "spec.targets[0].reference.kind: 301 kinds are skipped: "; !strings.Contains(got, want) || !strings.Contains(got, "and 291 more kinds") {
		t.Errorf("it says %s", got)
	}
	all := make([]string, 0, 600)
	for n := range 300 {
		all = append(all, fmt.Sprintf("delete kinds%03d", n), fmt.Sprintf("list kinds%03d", n))
	}
	got, _ = reviewAny(t, anyOf(), append(all, "delete configmaps", "list configmaps", "delete secrets", "list secrets"), everyRule, manyKinds{more: 300})
	if want := "46 kinds are skipped: a ClusterCleaner stands for at most 256 kinds, in each namespace that it names alone, and takes at most 1024 watches: 46 kinds are too many: leave out kinds with excludeKinds kinds254"; !strings.Contains(got, want) {
		t.Errorf("it says %s", got)
	}
}

// Without namespaces a ClusterCleaner is reviewed for cluster-scoped kinds too.
func TestAnyKindOfTheCluster(t *testing.T) {
	for _, namespaces := range [][]string{nil, {"shop"}} {
		c := anyOf(func(c *v1alpha1.ClusterCleaner) { c.Spec.Targets[0].Reference.Namespaces = namespaces })
		_, asked := reviewAny(t, c, []string{"delete configmaps", "list configmaps"}, everyRule, manyKinds{})
		if slices.Contains(asked, "delete storageclasses") != (namespaces == nil) {
			t.Errorf("in namespaces %v it was asked %v", namespaces, asked)
		}
	}
}

// The author of a template answers for those who use it: nothing is skipped for them, so they need the rights to all kinds.
func TestATemplateOfAnyKindNeedsAllKinds(t *testing.T) {
	template := bodyOf(func(b *v1alpha1.CleanerTemplate) {
		of := anyOf().Spec
		b.Spec.Template.Conditions, b.Spec.Template.Rules = nil, of.Rules
		b.Spec.Template.Targets = of.Targets
	})
	for _, tc := range []struct {
		rights []string
		want   string
	}{
		{[]string{"delete *", "list *"}, "allowed"},
		{[]string{"delete configmaps", "list configmaps", "list *"}, `Forbidden: a CleanerTemplate may only do what its author may: user "alice" is not allowed to delete all resources of all groups (CleanerTemplate of cleaner.vtex.dev c)`},
	} {
		v := town(t, tc.rights)
		if got := answered((&templateValidator{v, clock.RealClock{}}).Handle(t.Context(), asking(t, "CleanerTemplate", template, nil))); got != tc.want {
			t.Errorf("got  %s\nwant %s", got, tc.want)
		}
	}
}
