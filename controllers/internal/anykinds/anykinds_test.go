// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package anykinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// cluster is what a Finder asks.
type cluster struct {
	resources map[string][]string // by group version
	err       error
	// allowed are rights of users, as "user verb resource".
	allowed map[string]bool
	asked   []string
	// own are the rules of the operator, and ownAsked the namespaces that were asked about.
	own      []authorizationv1.ResourceRule
	ownErr   error
	ownAsked []string
	clock    *clocktesting.FakeClock
}

func (c *cluster) ServerPreferredResourcesWithContext(context.Context) (lists []*metav1.APIResourceList, err error) {
	for gv, resources := range c.resources {
		list := &metav1.APIResourceList{GroupVersion: gv}
		for _, r := range resources {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: strings.TrimSuffix(r, "!"), Kind: r, Namespaced: !strings.HasSuffix(r, "!"), Verbs: metav1.Verbs{"list", "watch", "delete"},
			})
		}
		lists = append(lists, list)
	}
	return lists, c.err
}

func (c *cluster) Create(_ context.Context, r *authorizationv1.SelfSubjectRulesReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectRulesReview, error) {
	c.ownAsked = append(c.ownAsked, r.Spec.Namespace)
	r.Status.ResourceRules = c.own
	return r, c.ownErr
}

// Read shows no definitions.
func (c *cluster) Read(context.Context, snapshot.Query) observed.Target {
	return observed.Target{State: observed.Complete}
}

// newCluster serves two namespaced kinds and a cluster-scoped one, which the operator may clean.
func newCluster() *cluster {
	return &cluster{
		resources: map[string][]string{"v1": {"configmaps", "secrets"}, "storage.k8s.io/v1": {"storageclasses!"}},
		own:       []authorizationv1.ResourceRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
		allowed:   map[string]bool{}, clock: clocktesting.NewFakeClock(time.Now()),
	}
}

func (c *cluster) finder() *Finder {
	client := fake.NewClientset()
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		asked := review.Spec.User + " " + review.Spec.ResourceAttributes.Verb + " " + review.Spec.ResourceAttributes.Resource
		c.asked = append(c.asked, asked)
		review.Status.Allowed = c.allowed[asked]
		return true, review, nil
	})
	return NewFinder(Options{
		Namespace: "cleaner-system", Kinds: served.NewDirectory(c.clock, c), Watched: c, Own: c, Clock: c.clock,
		Reviews: identity.NewKindReviews(client.AuthorizationV1().SubjectAccessReviews(), c.clock),
	})
}

// query asks for what is annotated in a namespace; empty: in the cluster.
func query(namespace string, except ...string) *snapshot.Query {
	q := &snapshot.Query{Kind: v1alpha1.AnyKind, OfAnyKind: true, MetadataOnly: true, Annotations: "x", Kinds: anykind.Request{Exclude: except}, Labels: labels.Everything()}
	if namespace != "" {
		q.Namespaces.Names, q.Kinds.Namespaces, q.Kinds.NamespacedOnly = []string{namespace}, []string{namespace}, true
	}
	return q
}

func subjects(namespace string, change ...func(*Subjects)) Subjects {
	s := Subjects{Cleaner: types.NamespacedName{Namespace: namespace, Name: "c"}, Verbs: []string{"delete"}}
	for _, ch := range change {
		ch(&s)
	}
	return s
}

func byAlice(s *Subjects) { s.Author = &rights.Subject{User: "alice"} }

func asAccount(s *Subjects) { s.Account = identity.Account{Namespace: "shop", Name: "tenant"} }

// find says what is found, as the kinds, and those that are skipped with the reason.
func find(t *testing.T, f *Finder, s Subjects, q *snapshot.Query) (out []string) {
	t.Helper()
	kinds, skipped, err := f.Begin(s).FindKinds(t.Context(), q)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	for _, k := range kinds {
		out = append(out, k.GroupResource().String())
	}
	for _, k := range skipped {
		out = append(out, "not "+k.String()+": "+k.Reason)
	}
	return out
}

func TestFindKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*cluster)
		subjects Subjects
		query    *snapshot.Query
		want     []string
	}{
		"Cluster":   {subjects: subjects(""), query: query(""), want: []string{"configmaps", "secrets", "storageclasses.storage.k8s.io"}},
		"Namespace": {subjects: subjects("shop"), query: query("shop"), want: []string{"configmaps", "secrets"}},
		"Exclude":   {subjects: subjects("shop"), query: query("shop", "secrets"), want: []string{"configmaps"}},
		"ByNobody":  {subjects: subjects("shop", byAlice), query: query("shop"), want: []string{"not configmaps: the author is not allowed to delete", "not secrets: the author is not allowed to delete"}},
		"ByAlice":   {change: func(c *cluster) { c.allowed["alice delete secrets"] = true }, subjects: subjects("shop", byAlice), query: query("shop"), want: []string{"secrets", "not configmaps: the author is not allowed to delete"}},
		"ByAliceAll": {change: func(c *cluster) { c.allowed["alice delete *"] = true }, subjects: subjects("shop", byAlice), query: query("shop"), // each kind is asked about
			want: []string{"not configmaps: the author is not allowed to delete", "not secrets: the author is not allowed to delete"}},
		"AsAccount": {change: func(c *cluster) { c.allowed["system:serviceaccount:shop:tenant delete configmaps"] = true }, subjects: subjects("shop", asAccount), query: query("shop"),
			want: []string{"configmaps", `not secrets: ServiceAccount shop/tenant is not allowed to delete`}},
		"ByAliceAsAccount": {change: func(c *cluster) {
			c.allowed["alice delete secrets"], c.allowed["system:serviceaccount:shop:tenant delete configmaps"] = true, true
		}, subjects: subjects("shop", byAlice, asAccount), query: query("shop"),
			want: []string{"not configmaps: the author is not allowed to delete", `not secrets: ServiceAccount shop/tenant is not allowed to delete`}},
		"OperatorMayNot": {change: func(c *cluster) { c.own[0].Resources = []string{"secrets"} }, subjects: subjects("shop"), query: query("shop"),
			want: []string{"secrets", "not configmaps: the operator is not allowed to list and watch and delete"}},
		"GroupUnknown": {change: func(c *cluster) {
			c.err = &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "metrics.example.com", Version: "v1"}: errors.New("away")}}
		}, subjects: subjects("shop"), query: query("shop"), want: []string{"configmaps", "secrets", "not *.metrics.example.com: the API server cannot say now which kinds the group has; those that were known stay"}},
		"NoDiscovery": {change: func(c *cluster) { c.err = errors.New("away") }, subjects: subjects("shop"), query: query("shop"), want: []string{"error: cannot list the kinds that the API server serves: away"}},
		"NoRules":     {change: func(c *cluster) { c.ownErr = errors.New("away") }, subjects: subjects("shop"), query: query("shop"), want: []string{"error: cannot list the operator's own rights: away"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster()
			if tc.change != nil {
				tc.change(c)
			}
			if diff := cmp.Diff(tc.want, find(t, c.finder(), tc.subjects, tc.query)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What the operator may not do costs no review of others, and its own rights are asked about once in a while: those in its own namespace where
// all namespaces are meant.
func TestTheOperatorComesFirst(t *testing.T) {
	c := newCluster()
	c.own[0].APIGroups = []string{"none.example.com"}
	f := c.finder()
	for range 3 {
		find(t, f, subjects("", byAlice), query(""))
	}
	if len(c.asked) > 0 {
		t.Errorf("it was asked %v", c.asked)
	}
	if diff := cmp.Diff([]string{"cleaner-system"}, c.ownAsked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.clock.Step(ownServes)
	find(t, f, subjects("shop"), query("shop"))
	find(t, f, subjects(""), query(""))
	if diff := cmp.Diff([]string{"cleaner-system", "shop", "cleaner-system"}, c.ownAsked); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for n := range maxOwn + 1 {
		find(t, f, subjects("x"), query(fmt.Sprint("n", n)))
	}
	if len(f.own) > maxOwn {
		t.Errorf("the rights in %d namespaces are kept", len(f.own))
	}
}

// In a pass the kinds are found out once, a query for each is watched besides the definitions, and they are found out again within minutes.
func TestKindsOfOnePass(t *testing.T) {
	c := newCluster()
	k := c.finder().Begin(subjects("shop", byAlice))
	c.allowed["alice delete secrets"] = true
	var got []string
	for range 3 {
		got = nil
		for _, q := range k.ExpandQuery(t.Context(), query("shop")) {
			got = append(got, q.Kind)
		}
	}
	if diff := cmp.Diff([]string{"CustomResourceDefinition", "secrets"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.asked) != 2 {
		t.Errorf("it was asked %v", c.asked)
	}
	if at := k.NextCheck(); !at.Equal(c.clock.Now().Add(lookAgain)) {
		t.Errorf("it looks again at %s", at)
	}
	one := snapshot.Query{Kind: "Pod"}
	if got := k.ExpandQuery(t.Context(), &one); len(got) != 1 || got[0].Kind != "Pod" {
		t.Errorf("another query becomes %v", got)
	}
	var none *Kinds
	if got := none.ExpandQuery(t.Context(), &one); len(got) != 1 || !none.NextCheck().IsZero() {
		t.Errorf("without targets of all kinds: %v", got)
	}
	failing := newCluster()
	failing.err = errors.New("away")
	if got := failing.finder().Begin(subjects("shop")).ExpandQuery(t.Context(), query("shop")); len(got) != 1 {
		t.Errorf("without discovery %d queries are watched", len(got))
	}
}

// While the kinds cannot be found out, what was watched stays watched, and they are looked for again soon.
func TestWatchesStayWhileKindsAreUnknown(t *testing.T) {
	c := newCluster()
	f := c.finder()
	watched := func(of Subjects) int {
		t.Helper()
		return len(f.Begin(of).ExpandQuery(t.Context(), query("")))
	}
	if got := watched(subjects("")); got != 4 { // three kinds, and the definitions
		t.Fatalf("%d queries are watched", got)
	}
	c.ownErr = errors.New("away")
	c.clock.Step(ownServes)
	for range 3 { // each failed pass leaves them to the next
		if got := watched(subjects("")); got != 4 {
			t.Errorf("%d queries are watched after an error", got)
		}
	}
	k := f.Begin(subjects(""))
	if _, _, err := k.FindKinds(t.Context(), query("")); err == nil || !k.NextCheck().Equal(c.clock.Now().Add(rights.RetryAfter)) {
		t.Errorf("it looks again at %s: %v", k.NextCheck(), err)
	}
	c.ownErr = nil
	if got := watched(subjects("")); got != 4 {
		t.Errorf("%d queries are watched afterwards", got)
	}
}

// What was found for a Cleaner that is not evaluated any longer is forgotten.
func TestKindsAreForgotten(t *testing.T) {
	c := newCluster()
	f := c.finder()
	for _, name := range []string{"a", "b"} {
		s := subjects("")
		s.Cleaner.Name = name
		find(t, f, s, query(""))
		c.clock.Step(forgetAfter)
	}
	if len(f.selections.of) != 1 {
		t.Errorf("those of %d Cleaners are kept", len(f.selections.of))
	}
}
