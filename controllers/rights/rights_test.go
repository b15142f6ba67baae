// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/plan/observed"
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
	served := validation.ServedKind{Resource: "pods", Namespaced: true}
	needed := ListRequired("shop", spec, validation.Options{Served: []validation.ServedKind{served, served}})
	user := authenticationv1.UserInfo{Username: "u", UID: "1", Groups: []string{"g", "h"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}}}
	missing, err := missingOf(t.Context(), a, user, needed)
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

// A user of many rights does not take all requests that the operator may send at a time.
func TestReviewsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flying, answers := make(chan Right, 100), make(chan bool)
		needed := make([]Right, 2*maxReviews)
		for i := range needed {
			needed[i].Name = string(rune('a' + i))
		}
		done := make(chan []Right)
		go func() {
			missing, err := FindMissing(t.Context(), needed, func(_ context.Context, r Right) (bool, error) {
				flying <- r
				return <-answers, nil
			})
			if err != nil {
				t.Error(err)
			}
			done <- missing
		}()
		synctest.Wait()
		if n := len(flying); n != maxReviews {
			t.Errorf("%d reviews are in flight, want %d", n, maxReviews)
		}
		for range needed {
			answers <- false
		}
		if missing := <-done; !slices.Equal(missing, needed) {
			t.Errorf("missing are %v, want all in their order", missing)
		}
	})
}

// A panic of a review is a review that failed.
func TestReviewThatPanics(t *testing.T) {
	missing, err := FindMissing(t.Context(), []Right{{Verb: "get", Resource: "pods"}}, func(context.Context, Right) (bool, error) { panic("oh") })
	if want := "cannot determine whether the user may get pods"; missing != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, %v; want %s", missing, err, want)
	}
}

func missingOf(ctx context.Context, reviews Reviews, user authenticationv1.UserInfo, needed []Right) ([]Right, error) {
	return FindMissing(ctx, needed, func(ctx context.Context, r Right) (bool, error) { return IsAllowed(ctx, reviews, NewSubject(user), r) })
}

func texts(rights []Right) []string {
	var out []string
	for _, r := range rights {
		out = append(out, r.String())
	}
	return out
}

// A review that fails, for whatever reason, is no permission.
func TestReviewThatFails(t *testing.T) {
	a := &authority{err: errors.New("the API server is busy")}
	_, err := missingOf(t.Context(), a, authenticationv1.UserInfo{Username: "u"}, []Right{{Verb: "get", Resource: "pods", Namespace: "shop"}})
	if want := `cannot determine whether user "u" may get pods in namespace "shop": the API server is busy`; err == nil || err.Error() != want {
		t.Fatalf("got %v", err)
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
			if got := slices.Contains(texts(ListRequired("shop", &tc.spec, validation.Options{DefaultServiceAccount: "cleaning"})), impersonate); got != tc.want {
				t.Errorf("%s: %s is asked for: %t", tc.reason, impersonate, got)
			}
		})
	}
}

// sinkAuth names a Secret.
func sinkAuth(namespace, name string) *v1alpha1.ClusterSinkAuth {
	return &v1alpha1.ClusterSinkAuth{Type: v1alpha1.SinkAuthBearer, SecretRef: v1alpha1.ClusterSecretKeyReference{
		Namespace: namespace, SecretKeyReference: v1alpha1.SecretKeyReference{Name: name, Key: "value"},
	}}
}

// TestOfDelivery lists what is asked again before an event is sent: nothing of what was done meanwhile.
func TestOfDelivery(t *testing.T) {
	account := &v1alpha1.ServiceAccountReference{Name: "bot"}
	pods := []v1alpha1.ClusterTarget{{Name: "pods", Delete: true, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}}
	for name, tc := range map[string]struct {
		spec v1alpha1.Work
		want []string
	}{
		"Operator": {v1alpha1.Work{Targets: pods, CloudEventSinkAuth: sinkAuth("", "token")}, []string{`get secrets "token" in namespace "shop"`}},
		"Account": {v1alpha1.Work{Targets: pods, ServiceAccount: account, CloudEventSinkAuth: sinkAuth("", "token")},
			[]string{`get secrets "token" in namespace "shop"`, `impersonate serviceaccounts "bot" in namespace "shop"`}},
		"Elsewhere": {v1alpha1.Work{Cluster: true, Targets: pods, CloudEventSinkAuth: sinkAuth("ops", "token")}, []string{`get secrets "token" in namespace "ops"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(ListForDelivery("shop", &tc.spec))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestOf lists what each part of a spec asks of its author. It is asked for whether the Cleaner acts as the operator or as a
// ServiceAccount: nobody gets by an account what they may not do themselves.
func TestOf(t *testing.T) {
	target := func(name, kind string, remove bool) v1alpha1.ClusterTarget {
		return v1alpha1.ClusterTarget{Name: name, Delete: remove, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: kind}}}
	}
	rule := func(actions ...v1alpha1.RuleAction) v1alpha1.CommonSpec {
		return v1alpha1.CommonSpec{Rules: []v1alpha1.Rule{{Name: "r", ForEach: "pods.items", Actions: actions}}}
	}
	pods := []v1alpha1.ClusterTarget{target("pods", "Pod", false)}
	anywhere := v1alpha1.ResolveTargets([]v1alpha1.ClusterTarget{{Name: "pods", HelmReleases: &v1alpha1.ClusterHelmReleases{}}})
	named := target("pods", "Pod", true)
	named.Reference.Name = "a"
	unseen := target("pods", "Pod", true)
	unseen.IncludeWhenEvaluating = new(bool)
	chosen := target("pods", "Pod", false)
	chosen.Reference.NamespaceSelector = &metav1.LabelSelector{}
	several := target("pods", "Pod", false)
	several.Reference.Namespaces, several.Reference.ExcludeNamespaces = []string{"a", "b"}, []string{"b"}
	ofGroup := target("jobs", "Job", true)
	ofGroup.Reference.APIGroup = "batch"
	inOne := target("pods", "Pod", false)
	inOne.Reference.Namespace = "ops"
	served := []validation.ServedKind{{Resource: "pods", Namespaced: true}}
	confirming := func(entries ...v1alpha1.Confirm) v1alpha1.CommonSpec {
		return v1alpha1.CommonSpec{Rules: []v1alpha1.Rule{{Name: "r", ForEach: "pods.items", Confirm: entries, Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}}}}
	}
	releases := v1alpha1.ResolveTargets([]v1alpha1.ClusterTarget{
		{Name: "pods", HelmReleases: &v1alpha1.ClusterHelmReleases{Namespaces: []string{"a"}}}, target("maps", "ConfigMap", false),
	})
	secrets := []validation.ServedKind{{Resource: "secrets", Namespaced: true}, {Resource: "configmaps", Namespaced: true}}
	byObject := v1alpha1.RuleAction{Object: "item.map", Patch: &v1alpha1.PatchAction{}}
	seen, metadata := named, target("pods", "Pod", false)
	seen.Delete, metadata.IncludeWhenEvaluating = false, new(bool)
	for name, tc := range map[string]struct {
		namespace string
		spec      v1alpha1.Work
		served    []validation.ServedKind
		want      []string
	}{
		"Seen":      {"shop", v1alpha1.Work{Targets: pods}, served, []string{`list pods in namespace "shop"`, `watch pods in namespace "shop"`}},
		"Deleted":   {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{target("pods", "Pod", true)}}, served, []string{`delete pods in namespace "shop"`, `get pods in namespace "shop"`, `list pods in namespace "shop"`, `watch pods in namespace "shop"`}},
		"Named":     {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{named}}, served, []string{`delete pods "a" in namespace "shop"`, `get pods "a" in namespace "shop"`, `watch pods "a" in namespace "shop"`}},
		"NamedSeen": {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{seen}}, served, []string{`get pods "a" in namespace "shop"`, `watch pods "a" in namespace "shop"`}},
		"Unseen":    {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{unseen}}, served, []string{`delete pods in namespace "shop"`, `get pods in namespace "shop"`, `list pods in namespace "shop"`}},
		"NotServed": {"shop", v1alpha1.Work{Targets: pods}, []validation.ServedKind{{}}, []string{"list all resources of the core group", "watch all resources of the core group"}},
		"Account": {"shop", v1alpha1.Work{Targets: pods, ServiceAccount: &v1alpha1.ServiceAccountReference{Name: "bot"}}, served,
			[]string{`list pods in namespace "shop"`, `watch pods in namespace "shop"`, `impersonate serviceaccounts "bot" in namespace "shop"`}},
		"AccountElsewhere": {"", v1alpha1.Work{Cluster: true, Targets: pods, ServiceAccount: &v1alpha1.ServiceAccountReference{Namespace: "ops", Name: "bot"}}, served,
			[]string{"list pods in all namespaces", "watch pods in all namespaces", `impersonate serviceaccounts "bot" in namespace "ops"`}},
		"RuleDelete": {"shop", v1alpha1.Work{Targets: pods, CommonSpec: rule(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})}, served,
			[]string{`delete pods in namespace "shop"`, `get pods in namespace "shop"`, `list pods in namespace "shop"`, `watch pods in namespace "shop"`}},
		"RuleOfAccount": {"shop", v1alpha1.Work{Targets: pods, ServiceAccount: &v1alpha1.ServiceAccountReference{Name: "bot"}, CommonSpec: rule(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})}, served,
			[]string{`delete pods in namespace "shop"`, `get pods in namespace "shop"`, `list pods in namespace "shop"`, `watch pods in namespace "shop"`, `impersonate serviceaccounts "bot" in namespace "shop"`}},
		"RuleEvict": {"shop", v1alpha1.Work{Targets: pods, CommonSpec: rule(v1alpha1.RuleAction{Evict: &v1alpha1.EvictAction{}})}, served,
			[]string{`get pods in namespace "shop"`, `list pods in namespace "shop"`, `watch pods in namespace "shop"`, `create pods/eviction in namespace "shop"`}},
		"RulePatch": {"shop", v1alpha1.Work{Targets: pods, CommonSpec: rule(v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Subresource: "status"}})}, served,
			[]string{`get pods in namespace "shop"`, `list pods in namespace "shop"`, `watch pods in namespace "shop"`, `patch pods/status in namespace "shop"`}},
		"RuleRemoveFinalizer": {"shop", v1alpha1.Work{Targets: pods, CommonSpec: rule(v1alpha1.RuleAction{RemoveFinalizer: &v1alpha1.RemoveFinalizerAction{}})}, served,
			[]string{`get pods in namespace "shop"`, `list pods in namespace "shop"`, `patch pods in namespace "shop"`, `watch pods in namespace "shop"`}},
		"RuleUninstall": {"shop", v1alpha1.Work{Targets: anywhere, CommonSpec: rule(v1alpha1.RuleAction{HelmUninstall: &v1alpha1.HelmUninstallAction{}})}, []validation.ServedKind{{Resource: "secrets", Namespaced: true}},
			[]string{`delete secrets in namespace "shop"`, `get secrets in namespace "shop"`, `list secrets in namespace "shop"`, `update secrets in namespace "shop"`, `watch secrets in namespace "shop"`}},
		"RuleUninstallAnywhere": {"", v1alpha1.Work{Cluster: true, Targets: anywhere, CommonSpec: rule(v1alpha1.RuleAction{HelmUninstall: &v1alpha1.HelmUninstallAction{}})}, []validation.ServedKind{{Resource: "secrets", Namespaced: true}},
			[]string{"delete secrets in all namespaces", "get secrets in all namespaces", "list secrets in all namespaces", "update secrets in all namespaces", "watch secrets in all namespaces"}},
		"RuleReport": {"shop", v1alpha1.Work{Targets: pods, CommonSpec: rule(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}})}, served,
			[]string{`list pods in namespace "shop"`, `watch pods in namespace "shop"`}},
		"ConfirmSet": {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{seen}, CommonSpec: confirming(v1alpha1.Confirm{Target: "pods"})}, served,
			[]string{`get pods "a" in namespace "shop"`, `watch pods "a" in namespace "shop"`}},
		"ConfirmList": {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{metadata}, CommonSpec: confirming(v1alpha1.Confirm{Target: "pods"})}, served,
			[]string{`list pods in namespace "shop"`}},
		"ConfirmName": {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{metadata}, CommonSpec: confirming(v1alpha1.Confirm{Target: "pods", Name: "'a'"})}, served,
			[]string{`get pods in namespace "shop"`, `list pods in namespace "shop"`}},
		"ConfirmAllAndName": {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{metadata}, CommonSpec: confirming(v1alpha1.Confirm{Target: v1alpha1.ConfirmAll}, v1alpha1.Confirm{Target: "none"}, v1alpha1.Confirm{Target: "pods", Name: "'a'"})}, served,
			[]string{`get pods in namespace "shop"`, `list pods in namespace "shop"`}},
		"ReportAndDelete": {"shop", v1alpha1.Work{Targets: pods, CommonSpec: rule(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}, v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})}, served,
			[]string{`delete pods in namespace "shop"`, `get pods in namespace "shop"`, `list pods in namespace "shop"`, `watch pods in namespace "shop"`}},
		"OfAGroup": {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{ofGroup}}, []validation.ServedKind{{Resource: "jobs", Namespaced: true}},
			[]string{`delete jobs.batch in namespace "shop"`, `get jobs.batch in namespace "shop"`, `list jobs.batch in namespace "shop"`, `watch jobs.batch in namespace "shop"`}},
		"ConfirmAll": {"shop", v1alpha1.Work{Targets: pods, CommonSpec: confirming(v1alpha1.Confirm{Target: v1alpha1.ConfirmAll})}, served,
			[]string{`list pods in namespace "shop"`, `watch pods in namespace "shop"`}},
		"Selector": {"", v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{chosen}}, served,
			[]string{"list namespaces", "watch namespaces", "list pods in all namespaces", "watch pods in all namespaces"}},
		"Namespaces":    {"", v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{several}}, served, []string{`list pods in namespace "a"`, `watch pods in namespace "a"`}},
		"InNamespace":   {"", v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{inOne}}, served, []string{`list pods in namespace "ops"`, `watch pods in namespace "ops"`}},
		"ClusterScoped": {"shop", v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{target("nodes", "Node", false)}}, []validation.ServedKind{{Resource: "nodes"}}, []string{"list nodes", "watch nodes"}},
		"SinkAuth":      {"shop", v1alpha1.Work{CloudEventSinkAuth: sinkAuth("", "token")}, nil, []string{`get secrets "token" in namespace "shop"`}},
		"SinkAuthElsewhere": {"", v1alpha1.Work{Cluster: true, CloudEventSinkAuth: sinkAuth("ops", "token")}, nil,
			[]string{`get secrets "token" in namespace "ops"`}},
		"Releases": {"shop", v1alpha1.Work{Targets: releases[:1]}, secrets[:1], []string{`list secrets in namespace "shop"`, `watch secrets in namespace "shop"`}},
		"ReleasesDelete": {"", v1alpha1.Work{Cluster: true, Targets: releases[:1], CommonSpec: rule(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})}, secrets[:1],
			[]string{`delete secrets in namespace "a"`, `get secrets in namespace "a"`, `list secrets in namespace "a"`, `watch secrets in namespace "a"`}},
		"ReleasesBesidePatched": {"shop", v1alpha1.Work{Targets: releases, CommonSpec: rule(byObject)}, secrets,
			[]string{`get configmaps in namespace "shop"`, `list configmaps in namespace "shop"`, `patch configmaps in namespace "shop"`, `watch configmaps in namespace "shop"`,
				`list secrets in namespace "shop"`, `watch secrets in namespace "shop"`}},
		"Release": {"shop", v1alpha1.Work{Helm: &v1alpha1.Helm{Release: "r", Delete: true}}, nil,
			[]string{`delete secrets in namespace "shop"`, `get secrets in namespace "shop"`, `list secrets in namespace "shop"`, `update secrets in namespace "shop"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(ListRequired(tc.namespace, &tc.spec, validation.Options{Served: tc.served}))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// As many namespaces as may be asked about are asked about one by one, and those that are excluded are not; of more, all are.
func TestNamespacesAreAskedAboutOneByOne(t *testing.T) {
	for _, tc := range []struct {
		namespaces, want int
		everywhere       bool
	}{
		{namespaces: maxSpread / 2, want: maxSpread - 2}, {namespaces: maxSpread/2 + 1, want: 2, everywhere: true},
	} {
		target := v1alpha1.ClusterTarget{Name: "pods", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}, ExcludeNamespaces: []string{"n0"}}}
		for i := range tc.namespaces {
			target.Reference.Namespaces = append(target.Reference.Namespaces, fmt.Sprint("n", i))
		}
		spec := &v1alpha1.Work{Cluster: true, Targets: []v1alpha1.ClusterTarget{target}}
		got := ListRequired("", spec, validation.Options{Served: []validation.ServedKind{{Resource: "pods", Namespaced: true}}}) // list and watch
		if len(got) != tc.want {
			t.Errorf("of %d namespaces %d rights are asked about, want %d", tc.namespaces, len(got), tc.want)
		}
		for _, r := range got {
			if r.Everywhere != tc.everywhere || (r.Namespace == "") != tc.everywhere || r.Namespace == "n0" {
				t.Errorf("it asks for %+v", r)
			}
		}
	}
}

// A review asks about all that makes up a right, and one that fails allows nothing.
func TestAReviewIsOfOneRight(t *testing.T) {
	a := &authority{}
	right := Right{Verb: "create", Group: "apps", Resource: "things", Subresource: "eviction", Namespace: "shop", Name: "a"}
	if allowed, err := IsAllowed(t.Context(), a, Subject{User: "u"}, right); allowed || err != nil {
		t.Errorf("allowed: %t, %v", allowed, err)
	}
	want := []authorizationv1.SubjectAccessReviewSpec{{User: "u", ResourceAttributes: &authorizationv1.ResourceAttributes{
		Verb: "create", Group: "apps", Resource: "things", Subresource: "eviction", Namespace: "shop", Name: "a",
	}}}
	if diff := cmp.Diff(want, a.asked); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	a.err = errors.New("the API server is busy")
	if allowed, err := IsAllowed(t.Context(), a, Subject{User: "u"}, right); allowed || err == nil {
		t.Errorf("allowed: %t, %v", allowed, err)
	}
}

// The right to everything is the one that a cluster-admin has.
func TestTheRightToEverything(t *testing.T) {
	a := &authority{}
	if _, err := IsAllowed(t.Context(), a, Subject{User: "u"}, NewRightToEverything()); err != nil {
		t.Fatal(err)
	}
	want := []authorizationv1.SubjectAccessReviewSpec{{User: "u", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}}}
	if diff := cmp.Diff(want, a.asked); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestRightsAreFew shows that what a spec of the largest size asks for is bounded, whatever its targets, rules, actions and namespaces give when
// they are multiplied.
func TestRightsAreFew(t *testing.T) {
	var names []string
	for i := range 256 {
		names = append(names, fmt.Sprint("n", i))
	}
	for _, cluster := range []bool{false, true} {
		spec, served := &v1alpha1.Work{Cluster: cluster}, []validation.ServedKind{}
		for i := range 64 {
			target := v1alpha1.ClusterTarget{Name: fmt.Sprint("t", i), Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: fmt.Sprint("K", i)}}}
			if cluster {
				target.Reference.Namespaces = names
			}
			spec.Targets = append(spec.Targets, target)
			served = append(served, validation.ServedKind{Resource: fmt.Sprint("k", i), Namespaced: true})
		}
		for range 64 {
			r := v1alpha1.Rule{ForEach: "[]"}
			for range 16 {
				r.Actions = append(r.Actions, v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			}
			spec.Rules = append(spec.Rules, r)
		}
		got := ListRequired("shop", spec, validation.Options{Served: served})
		if len(got) != 64*4 { // get, list, watch and delete
			t.Errorf("cluster %t: %d rights are asked about, want %d", cluster, len(got), 64*4)
		}
		for _, r := range got {
			if r.Everywhere != cluster {
				t.Errorf("it asks for %+v", r)
			}
		}
	}
}

// Of kinds that are not served nothing can be used, and while it is not known whether one is served, nothing is known.
func TestListUsed(t *testing.T) {
	of := func(kind string) v1alpha1.ClusterTarget {
		return v1alpha1.ClusterTarget{Name: strings.ToLower(kind), Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: kind}}}
	}
	spec := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{of("Pod"), of("Widget"), of(v1alpha1.AnyKind)}}
	resolve := func(state observed.TargetState) func(context.Context, *v1alpha1.Reference) (validation.ServedKind, observed.TargetState, string) {
		return func(_ context.Context, r *v1alpha1.Reference) (validation.ServedKind, observed.TargetState, string) {
			switch r.Kind {
			case "Pod":
				return validation.ServedKind{Resource: "pods", Namespaced: true}, observed.Complete, ""
			case "Widget":
				return validation.ServedKind{}, state, "no answer"
			}
			t.Errorf("it asks about %s", r.Kind)
			return validation.ServedKind{}, state, ""
		}
	}
	used, unknown := ListUsed(t.Context(), "shop", spec, validation.Options{}, resolve(observed.NoSuchKind))
	var got []string
	for _, r := range used {
		got = append(got, r.String())
	}
	if want := []string{`list pods in namespace "shop"`, `watch pods in namespace "shop"`}; unknown != "" || !slices.Equal(got, want) {
		t.Errorf("got %v, %q", got, unknown)
	}
	if used, unknown := ListUsed(t.Context(), "shop", spec, validation.Options{}, resolve(observed.Failed)); len(used) > 0 || unknown != "Cannot check the rights of the author: no answer." {
		t.Errorf("got %v, %q", used, unknown)
	}
}
