// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/celtest"
)

var (
	// born is when every Cleaner of these tests was created.
	born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// pod is an object with metadata and a value.
func pod(name string, change ...func(*observed.Object)) observed.Object {
	o := observed.Object{
		Ref:   observed.Ref{Resource: pods, Kind: "Pod", Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Value: map[string]any{"metadata": map[string]any{"name": name}, "status": map[string]any{"phase": "Succeeded"}},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// seen is a target that was read completely.
func seen(objects ...observed.Object) observed.Target {
	return observed.Target{State: observed.Complete, Resource: pods, Namespaced: true, Objects: objects}
}

// podTarget is a target over all Pods.
func podTarget(name string, change ...func(*v1alpha1.ClusterTarget)) v1alpha1.ClusterTarget {
	t := v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", MatchLabels: map[string]string{}}}}
	for _, c := range change {
		c(&t)
	}
	return t
}

func deleted(t *v1alpha1.ClusterTarget) { t.Delete = true }
func quiet(t *v1alpha1.ClusterTarget)   { t.IncludeWhenEvaluating = new(false) }
func asNull(t *v1alpha1.ClusterTarget)  { t.OnMissing = v1alpha1.OnMissingAsNull }
func named(name string) func(*v1alpha1.ClusterTarget) {
	return func(t *v1alpha1.ClusterTarget) { t.Reference.MatchLabels, t.Reference.Name = nil, name }
}

// input is what is decided on: a day after the Cleaner was created.
func input(t testing.TB, spec *v1alpha1.Work, s ...observed.Target) Input {
	t.Helper()
	programs := celtest.CompileWork(t, spec)
	return Input{
		Owner: Owner{Namespace: "shop", Name: "c", UID: "cleaner", Created: born},
		Spec:  spec, Programs: programs, Snapshot: s, Now: born.Add(24 * time.Hour),
	}
}

func TestCompute(t *testing.T) {
	finished := `pods.items.all(p, p.status.phase == "Succeeded")`
	type want struct {
		Verdict v1alpha1.Verdict
		Reason  string
		Steps   []string
		Next    time.Duration // after the Cleaner's creation; 0: none
	}
	day := 24 * time.Hour
	cases := map[string]struct {
		reason string
		spec   v1alpha1.Work
		seen   []observed.Target
		change func(*Input)
		want   want
	}{
		"BeforeTheTTL": {
			reason: "before the ttl has passed nothing is looked at",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "25h"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{{State: observed.Forbidden}},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonWaitingForTTL, Next: 25 * time.Hour},
		},
		"AtTheTTL": {
			reason: "at the very instant of the ttl it acts",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "1d"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{seen(pod("a"))},
			want:   want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Steps: []string{"targets.pods a"}, Next: day + time.Hour},
		},
		"Suspended": {
			reason: "a suspended Cleaner waits for an event only",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Suspend: true}, Targets: []v1alpha1.ClusterTarget{podTarget("pods")}},
			seen:   []observed.Target{seen()},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonSuspended},
		},
		"Unsynced": {
			reason: "what is still being read is not empty",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"pods.items.size() == 0"}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{{State: observed.Unsynced}},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNotSynced, Next: day + time.Hour},
		},
		"Forbidden": {
			reason: "what may not be read is not empty, whatever onMissing says",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"pods == null"}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", asNull)}},
			seen:   []observed.Target{{State: observed.Forbidden}},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonAccessDenied, Next: day + time.Hour},
		},
		"TooLarge": {
			reason: "what the operator has no memory for is not empty, whatever onMissing says",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"pods == null"}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", asNull)}},
			seen:   []observed.Target{{State: observed.TooLarge}},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonTooLarge, Next: day + time.Hour},
		},
		"Unknown": {
			reason: "the zero value of a target never deletes",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted, quiet)}},
			seen:   []observed.Target{{}},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonReadFailed, Next: day + time.Hour},
		},
		"NotServedWaits": {
			reason: "a kind that is not served is waited for",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{{State: observed.NoSuchKind}},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonKindNotServed, Next: day + time.Hour},
		},
		"NotServedAsNull": {
			reason: "or it is null, if the author says so",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"pods == null"}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", asNull)}},
			seen:   []observed.Target{{State: observed.NoSuchKind}},
			want:   want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Next: day + time.Hour},
		},
		"NoteHoldsNothingUp": {
			reason: "a target that is neither seen nor deleted is a note",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("note", quiet), podTarget("pods", deleted)}},
			seen:   []observed.Target{{State: observed.NoSuchKind}, seen(pod("a"))},
			want:   want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Steps: []string{"targets.pods a"}, Next: day + time.Hour},
		},
		"MissingWaits": {
			reason: "a named object that is missing is waited for",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"p != null"}}, Targets: []v1alpha1.ClusterTarget{podTarget("p", named("a"))}},
			seen:   []observed.Target{seen()},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonTargetMissing, Next: day + time.Hour},
		},
		"MissingNotIncluded": {
			reason: "one that no condition sees has nothing to delete, and holds nothing up",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("p", named("a"), quiet, deleted)}},
			seen:   []observed.Target{seen()},
			want:   want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Next: day + time.Hour},
		},
		"False": {
			reason: "a condition that is false waits until retry.period",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Retry: &v1alpha1.Retry{Period: "5h"}, Conditions: []string{"true", "pods.items.size() > 1"}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{seen(pod("a"))},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonConditionsNotMet, Next: day + 5*time.Hour},
		},
		"ErrorBeatsFalse": {
			reason: "an error is said even where another condition is false",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"false", `pods.items[0].spec.x == "1"`}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{seen(pod("a"))},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonEvaluationFailed, Next: day + time.Hour},
		},
		"UnseenGoesFirst": {
			reason: "what no condition sees is deleted first, and an object of two targets once",
			spec: v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{finished}}, Targets: []v1alpha1.ClusterTarget{
				podTarget("pods", deleted), podTarget("unseen", deleted, quiet), podTarget("again", deleted, named("b")),
			}},
			seen: []observed.Target{seen(pod("a"), pod("b")), seen(pod("z")), seen(pod("b"))},
			want: want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Steps: []string{"targets.unseen z", "targets.pods a", "targets.pods b"}, Next: day + time.Hour},
		},
		"ClusterScoped": {
			reason: "a Cleaner deletes only in its own namespace",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("nodes", deleted)}},
			seen:   []observed.Target{{State: observed.Complete, Resource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}}},
			want:   want{Verdict: v1alpha1.VerdictInvalid, Reason: v1alpha1.ReasonInvalidSpec},
		},
		"AllProtected": {
			reason: "a plan of nothing but protected objects is blocked",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{seen(pod("a", func(o *observed.Object) { o.Protected = true }))},
			want:   want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonProtected, Next: day + time.Hour},
		},
		"ProtectedNamespace": {
			reason: "nothing is deleted in a protected namespace",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{seen(pod("a"))},
			change: func(in *Input) { in.Protection.Namespaces = []string{"shop"} },
			want:   want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonProtected, Next: day + time.Hour},
		},
		"TooMany": {
			reason: "one run deletes at most 5,000 objects",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			seen:   []observed.Target{seen(many(MaxRows + 1)...)},
			want:   want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonTooManyObjects, Steps: []string{"targets.pods p-00000"}, Next: day + time.Hour},
		},
		"ReleasePending": {
			reason: "a release that somebody is changing blocks the commit",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Helm: &v1alpha1.Helm{Release: "r", Delete: true}},
			change: func(in *Input) { in.Release = &observed.Release{State: observed.ReleasePending, Name: "r"} },
			want:   want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonReleasePending, Next: day + time.Hour},
		},
		"ReleaseHasHooks": {
			reason: "and so does one with delete hooks, which nobody may skip unasked",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Helm: &v1alpha1.Helm{Release: "r", Delete: true}},
			change: func(in *Input) {
				in.Release = &observed.Release{State: observed.ReleaseDeployed, Name: "r", HasHooks: true, HooksBlocked: "nobody answers for its hooks"}
			},
			want: want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonReleaseHasHooks, Next: day + time.Hour},
		},
		"ReleaseHooksWaived": {
			reason: "but the author may",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Helm: &v1alpha1.Helm{Release: "r", Delete: true, DisableHooks: true}},
			change: func(in *Input) {
				in.Release = &observed.Release{State: observed.ReleaseDeployed, Name: "r", HasHooks: true, HooksBlocked: "nobody answers for its hooks"}
			},
			want: want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Next: day + time.Hour},
		},
		"ReleaseRunsHooks": {
			reason: "and hooks that can be run are in nobody's way",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Helm: &v1alpha1.Helm{Release: "r", Delete: true}},
			change: func(in *Input) {
				in.Release = &observed.Release{State: observed.ReleaseDeployed, Name: "r", HasHooks: true}
			},
			want: want{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Next: day + time.Hour},
		},
		"ReleaseUnreadable": {
			reason: "and one whose record cannot be read",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Helm: &v1alpha1.Helm{Release: "r", Delete: true}},
			change: func(in *Input) {
				in.Release = &observed.Release{Blocked: v1alpha1.ReasonReleaseUnreadable, Detail: "corrupt"}
			},
			want: want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonReleaseUnreadable, Next: day + time.Hour},
		},
		"TargetsNotRead": {
			reason: "a snapshot of something else decides nothing",
			spec:   v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}},
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonReadFailed, Next: day + time.Hour},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, &tc.spec, tc.seen...)
			if tc.change != nil {
				tc.change(&in)
			}
			p := ComputePlan(t.Context(), in)
			got := want{Verdict: p.Verdict, Reason: p.Reason}
			for i := range p.Steps {
				got.Steps = append(got.Steps, p.Steps[i].Rule+" "+p.Steps[i].Object.Name)
			}
			if len(got.Steps) > MaxRows { // a blocked plan lists what it would have done
				got.Steps = got.Steps[:1]
			}
			if !p.Next.IsZero() {
				got.Next = p.Next.Sub(born)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s:\n-want +got\n%s%s", tc.reason, diff, p.Message)
			}
			if p.Message == "" {
				t.Error("a plan says why")
			}
		})
	}
}

// Of several targets that are not known well enough each is named, and no other; the first one gives the reason.
func TestAPlanNamesEachTargetItWaitsFor(t *testing.T) {
	spec := &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{TTL: "0s"},
		Targets:    []v1alpha1.ClusterTarget{podTarget("first"), podTarget("second"), podTarget("third"), podTarget("fourth"), podTarget("unused", quiet)},
	}
	got := ComputePlan(t.Context(), input(t, spec, seen(), observed.Target{State: observed.Forbidden, Detail: "it may not be read."}, seen(), observed.Target{State: observed.Unsynced, Detail: "it is being read"}, observed.Target{State: observed.Failed, Detail: "no answer"}))
	want := `Target "second": it may not be read. Target "fourth": it is being read.`
	if got.Verdict != v1alpha1.VerdictWait || got.Reason != v1alpha1.ReasonAccessDenied || got.Message != want {
		t.Errorf("got %s, %s: %s, want %s", got.Verdict, got.Reason, got.Message, want)
	}
}

// Expressions see one object of a target that names it, and a list of one that selects; null of what is not there or not known.
func TestWhatExpressionsSeeOfATarget(t *testing.T) {
	a, b := pod("a"), pod("b")
	for name, tc := range map[string]struct {
		target v1alpha1.ClusterTarget
		seen   observed.Target
		want   any
	}{
		"Named":         {podTarget("t", named("a")), seen(a), a.Value},
		"NamedMissing":  {podTarget("t", named("a")), seen(), nil},
		"NamedUnknown":  {podTarget("t", named("a")), observed.Target{State: observed.Failed, Objects: []observed.Object{a}}, nil},
		"NamedUnserved": {podTarget("t", named("a")), observed.Target{State: observed.NoSuchKind}, nil},
		"List":          {podTarget("t"), seen(a, b), map[string]any{"items": []any{a.Value, b.Value}}},
		"ListOfNone":    {podTarget("t"), seen(), map[string]any{"items": []any{}}},
		"ListUnknown":   {podTarget("t"), observed.Target{State: observed.Failed, Objects: []observed.Object{a}}, nil},
		"ListUnserved":  {podTarget("t"), observed.Target{State: observed.NoSuchKind}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Spec: &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{podTarget("unused", quiet), tc.target}}, Snapshot: observed.Snapshot{seen(b), tc.seen}}
			if diff := cmp.Diff(map[string]any{"t": tc.want}, in.targetValues()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestAReleaseSaysWhyItStays shows each reason for which a release is not uninstalled, and that no other stops it.
func TestAReleaseSaysWhyItStays(t *testing.T) {
	deployed := observed.Release{State: observed.ReleaseDeployed, Name: "r"}
	for name, tc := range map[string]struct {
		helm    v1alpha1.Helm
		release *observed.Release
		change  func(*Input)
		reason  string
		message string
		taken   bool
	}{
		"Deployed":    {helm: v1alpha1.Helm{Release: "r", Delete: true}, release: &deployed, taken: true},
		"NotRead":     {helm: v1alpha1.Helm{Release: "r", Delete: true}},
		"NotToDelete": {helm: v1alpha1.Helm{Release: "r"}, release: &deployed},
		"Gone":        {helm: v1alpha1.Helm{Release: "r", Delete: true}, release: &observed.Release{State: observed.ReleaseGone, Name: "r"}},
		"Protected": {
			helm: v1alpha1.Helm{Release: "r", Delete: true}, release: &deployed, change: func(in *Input) { in.Protection.Namespaces = []string{"shop"} },
			reason: v1alpha1.ReasonProtected, message: `Release "r" is not uninstalled: namespace "shop" is protected.`,
		},
		"TheOperators": {
			helm: v1alpha1.Helm{Release: "r", Delete: true}, release: &deployed, change: func(in *Input) { in.Protection.Own = "shop" },
			reason: v1alpha1.ReasonProtected, message: `Release "r" is not uninstalled: namespace "shop" is the namespace of the operator.`,
		},
		"Unreadable": {
			helm: v1alpha1.Helm{Release: "r", Delete: true}, release: &observed.Release{State: observed.ReleaseDeployed, Blocked: v1alpha1.ReasonReleaseUnreadable, Detail: "corrupt"},
			reason: v1alpha1.ReasonReleaseUnreadable, message: "corrupt",
		},
		"Pending": {
			helm: v1alpha1.Helm{Release: "r", Delete: true}, release: &observed.Release{State: observed.ReleasePending},
			reason: v1alpha1.ReasonReleasePending, message: `Release "r" is being installed, upgraded or rolled back.`,
		},
		"Hooks": {
			helm: v1alpha1.Helm{Release: "r", Delete: true}, release: &observed.Release{State: observed.ReleaseDeployed, HasHooks: true, HooksBlocked: "nobody answers for its hooks"},
			reason: v1alpha1.ReasonReleaseHasHooks, message: `Release "r" is not uninstalled: nobody answers for its hooks.`,
		},
		"HooksDisabled": {
			helm:    v1alpha1.Helm{Release: "r", Delete: true, DisableHooks: true},
			release: &observed.Release{State: observed.ReleaseDeployed, HasHooks: true, HooksBlocked: "nobody answers for its hooks"}, taken: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			in, p := Input{Owner: Owner{Namespace: "shop"}, Spec: &v1alpha1.Work{Helm: &tc.helm}, Release: tc.release}, Plan{}
			if tc.change != nil {
				tc.change(&in)
			}
			if reason, message := in.releaseStep(&p); reason != tc.reason || message != tc.message || (p.Release != nil) != tc.taken {
				t.Errorf("got %q: %q, taken: %t", reason, message, p.Release != nil)
			}
		})
	}
}

func many(n int) []observed.Object {
	out := make([]observed.Object, n)
	for i := range out {
		out[i] = pod(fmt.Sprintf("p-%05d", i))
	}
	return out
}

func TestComputeIsDeterministic(t *testing.T) {
	spec := &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`pods.items.groupBy(p, p.status.phase).all(k, k == "Succeeded")`}},
		Targets:    []v1alpha1.ClusterTarget{podTarget("pods", deleted)},
	}
	in := input(t, spec, seen(many(50)...))
	first := ComputePlan(t.Context(), in)
	for range 20 {
		if diff := cmp.Diff(first, ComputePlan(t.Context(), in)); diff != "" {
			t.Fatalf("equal inputs gave different plans:\n%s", diff)
		}
	}
}

func TestProtection(t *testing.T) {
	in := func(group, resource, namespace, name string) *observed.Object {
		return &observed.Object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Namespace: namespace, Name: name}}
	}
	p := Protection{Namespaces: []string{"kube-system"}, AllowedKinds: []string{"roles.rbac.authorization.k8s.io", "cleaners.cleaner.vtex.dev"}}
	cases := map[string]struct {
		object *observed.Object
		want   string // a part of the reason; empty: not protected
	}{
		"Pod":             {in("", "pods", "shop", "a"), ""},
		"Namespace":       {in("", "pods", "kube-system", "a"), `"kube-system" is protected`},
		"Release":         {in("", "secrets", "shop", "sh.helm.release.v1.shop.v1"), "Helm release"},
		"OtherSecret":     {in("", "secrets", "shop", "token"), ""},
		"Node":            {in("", "nodes", "", "a"), "--allow-protected-kinds=nodes"},
		"Volume":          {in("", "persistentvolumes", "", "a"), "protected"},
		"CRD":             {in("apiextensions.k8s.io", "customresourcedefinitions", "", "a"), "protected"},
		"Webhook":         {in("admissionregistration.k8s.io", "validatingwebhookconfigurations", "", "a"), "protected"},
		"APIService":      {in("apiregistration.k8s.io", "apiservices", "", "a"), "protected"},
		"RoleBinding":     {in("rbac.authorization.k8s.io", "rolebindings", "shop", "a"), "protected"},
		"AllowedRole":     {in("rbac.authorization.k8s.io", "roles", "shop", "a"), ""},
		"Cleaner":         {in("cleaner.vtex.dev", "cleaners", "shop", "a"), "never changes"},
		"RoleOfOpenShift": {in("authorization.openshift.io", "clusterrolebindings", "", "a"), "protected"},
		"Project":         {in("project.openshift.io", "projects", "", "a"), "--allow-protected-kinds=projects.project.openshift.io"},
		"GroupOfUsers":    {in("user.openshift.io", "groups", "", "a"), "protected"},
		"NodesOfAnother":  {in("example.test", "nodes", "shop", "a"), ""},
		"SecretsOfOthers": {in("example.test", "secrets", "shop", "sh.helm.release.v1.shop.v1"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := p.ForbidsDelete(tc.object)
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestProtectionOfRelease(t *testing.T) {
	p := Protection{Namespaces: []string{"kube-system"}, Own: "cleaner-system", AllowedKinds: []string{"clusterroles.rbac.authorization.k8s.io", "nodes"}}
	cases := map[string]struct {
		group, resource, namespace string
		protected                  bool
	}{
		"Config":           {"", "configmaps", "shop", false},
		"Role":             {"rbac.authorization.k8s.io", "roles", "shop", false},
		"Cleaner":          {"cleaner.vtex.dev", "cleaners", "shop", false},
		"InProtected":      {"", "configmaps", "kube-system", true},
		"InTheOperators":   {"", "configmaps", "cleaner-system", true},
		"NamespaceItself":  {"", "namespaces", "", true},
		"CRD":              {"apiextensions.k8s.io", "customresourcedefinitions", "", true},
		"Volume":           {"", "persistentvolumes", "", true},
		"StorageClass":     {"storage.k8s.io", "storageclasses", "", true},
		"GivenFree":        {"rbac.authorization.k8s.io", "clusterroles", "", false},
		"GivenFreeInCore":  {"", "nodes", "", false},
		"FreeOnlyInAGroup": {"example.com", "clusterroles", "", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ref := observed.Ref{Resource: schema.GroupVersionResource{Group: tc.group, Version: "v1", Resource: tc.resource}, Namespace: tc.namespace, Name: "a"}
			if got := p.OfRelease(ref, tc.namespace != ""); (got != "") != tc.protected {
				t.Errorf("got %q, want protected: %v", got, tc.protected)
			}
		})
	}
}

// What was refused is said before what gives errors, and both before what is waited for.
func TestTrouble(t *testing.T) {
	wrong := []v1alpha1.ItemError{{Rule: "r", Message: "no such key"}}
	stuck := func(reason string) Plan {
		return Plan{DeferReason: reason, DeferDetail: "pods a: forbidden", Errors: wrong}
	}
	for want, p := range map[string]Plan{
		v1alpha1.ReasonDeletionRefused: stuck(v1alpha1.ReasonDeletionRefused), v1alpha1.ReasonTargetUnstable: stuck(v1alpha1.ReasonTargetUnstable),
		v1alpha1.ReasonRecreationLoop: stuck(v1alpha1.ReasonRecreationLoop), v1alpha1.ReasonEvaluationFailed: {Errors: wrong}, "": {},
	} {
		if got, message := p.FindTrouble(); got != want || (message == "") != (want == "") {
			t.Errorf("it says %q (%s), want %q", got, message, want)
		}
	}
	first := rule(func(r *v1alpha1.Rule) { r.When, r.Confirm = `item.metadata.name == "a"`, nil })
	in := over(t, cluster(first, rule(func(r *v1alpha1.Rule) { r.Name, r.When, r.For = "young", "true", "1h" })), p("a"), p("b"))
	in.Backoff = backoff.Failures{}
	in.Backoff.RecordFailure("uid-a", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
	got := ComputePlan(t.Context(), in)
	if got.Reason != v1alpha1.ReasonDeletionRefused || len(got.Pending) == 0 {
		t.Errorf("it says %s: %s (%d are pending)", got.Reason, got.Message, len(got.Pending))
	}

	// Of several that wait the one that is refused is named, though another one comes first.
	in = over(t, cluster(rule()), p("a"), p("b"), p("c"))
	in.Backoff, in.Recreations = backoff.Failures{}, backoff.Recreations{}
	for !in.Backoff["uid-a"].IsUnstable() {
		in.Backoff.RecordConflict("uid-a", v1alpha1.ReasonDeletionRefused, 1, in.Now)
	}
	looping(in.Recreations, p("b"), in.Now)
	if got := ComputePlan(t.Context(), in); got.DeferReason != v1alpha1.ReasonRecreationLoop || !strings.Contains(got.DeferDetail, "Pod shop/b") || len(got.Deferred) != 2 {
		t.Errorf("it says %s: %s, of %v", got.DeferReason, got.DeferDetail, got.Deferred)
	}
	in.Backoff.RecordFailure("uid-c", v1alpha1.ReasonDeletionRefused, "forbidden", in.Now)
	if got := ComputePlan(t.Context(), in); got.Reason != v1alpha1.ReasonDeletionRefused || !strings.Contains(got.Message, "Pod shop/c") || len(got.Deferred) != 3 {
		t.Errorf("it says %s: %s, of %v", got.Reason, got.Message, got.Deferred)
	}
}

// looping is that others of the object's name were deleted until there was a loop.
func looping(r backoff.Recreations, o observed.Object, now time.Time) {
	for i := 0; !r.RecordDeletion(o.Place(), types.UID(fmt.Sprint("earlier-", i)), now); i++ {
	}
}

// Equal errors are one, with a number; an error without a number is of one item.
func TestCountFailing(t *testing.T) {
	for want, errs := range map[int][]v1alpha1.ItemError{0: nil, 1: {{}}, 4: {{Count: 3}, {Count: 0}}} {
		if got := (&Plan{Errors: errs}).CountFailing(); got != want {
			t.Errorf("%d items of %v fail, want %d", got, errs, want)
		}
	}
}
