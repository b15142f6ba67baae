// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// newRevision is the item of a revision of a release.
func newRevision(release string, n int, status string, words ...string) observed.Object {
	o := object(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", "shop", fmt.Sprintf("%s%s.v%d", v1alpha1.ReleaseSecretPrefix, release, n),
		append([]string{"owner=helm", "status=" + status}, words...)...)
	o.OfRelease, o.Value["status"], o.Value["name"] = true, status, release
	return o
}

// newUninstalling is a ClusterCleaner that uninstalls releases.
func newUninstalling(change ...func(r *v1alpha1.Rule)) *v1alpha1.Work {
	work := cluster(rule(append([]func(r *v1alpha1.Rule){func(r *v1alpha1.Rule) {
		r.When, r.Actions = "true", []v1alpha1.RuleAction{{HelmUninstall: &v1alpha1.HelmUninstallAction{}}}
	}}, change...)...))
	work.Targets[0] = v1alpha1.ClusterTarget{Name: "pods", HelmReleases: &v1alpha1.ClusterHelmReleases{}}
	work.Targets = v1alpha1.ResolveTargets(work.Targets)
	return work
}

// uninstalled are the releases that a plan uninstalls.
func uninstalled(p *Plan) (out []string) {
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Verb == VerbHelmUninstall {
			out = append(out, s.DescribeObject()+" "+strings.TrimPrefix(s.Object.Name, v1alpha1.ReleaseSecretPrefix))
		}
	}
	return out
}

// TestWhichReleasesAreUninstalled shows that a release is uninstalled once, by its newest revision, and never one that is protected, that cannot be
// read, or whose uninstall has begun.
func TestWhichReleasesAreUninstalled(t *testing.T) {
	unreadable := newRevision("web", 2, "deployed")
	unreadable.Unreadable = "it is empty"
	secret := newRevision("web", 1, "deployed")
	secret.OfRelease = false
	under := newRevision("web", 1, "deployed")
	for name, tc := range map[string]struct {
		objects   []observed.Object
		begun     []types.UID
		want      []string
		protected int
		errors    string
	}{
		"Deployed":    {objects: []observed.Object{newRevision("web", 1, "deployed")}, want: []string{"release shop/web web.v1"}},
		"Newest":      {objects: []observed.Object{newRevision("web", 2, "superseded"), newRevision("web", 10, "failed"), newRevision("web", 9, "deployed")}, want: []string{"release shop/web web.v10"}},
		"OfEach":      {objects: []observed.Object{newRevision("a", 1, "deployed"), newRevision("a.v", 2, "deployed"), newRevision("a.v1", 3, "deployed")}, want: []string{"release shop/a.v a.v.v2", "release shop/a.v1 a.v1.v3", "release shop/a a.v1"}},
		"Uninstalled": {objects: []observed.Object{newRevision("web", 1, "uninstalled")}},
		"LeftByHelm":  {objects: []observed.Object{newRevision("web", 1, "uninstalling")}, want: []string{"release shop/web web.v1"}},
		"Begun":       {objects: []observed.Object{under}, begun: []types.UID{under.UID}},
		"OthersBegun": {objects: []observed.Object{under}, begun: []types.UID{"another"}, want: []string{"release shop/web web.v1"}},
		"Protected":   {objects: []observed.Object{newRevision("web", 1, "deployed", v1alpha1.ProtectKey+"=true")}, protected: 1},
		"Pending":     {objects: []observed.Object{newRevision("web", 1, "deployed"), newRevision("web", 2, "pending-upgrade")}, protected: 1},
		"Unreadable":  {objects: []observed.Object{newRevision("web", 1, "deployed"), unreadable}, protected: 1},
		"NoRelease":   {objects: []observed.Object{secret}, errors: "Secret shop/sh.helm.release.v1.web.v1 is not an item of a target with helmReleases"},
	} {
		t.Run(name, func(t *testing.T) {
			slices.SortFunc(tc.objects, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
			in := over(t, newUninstalling(), tc.objects...)
			in.Uninstalling = map[types.UID]bool{}
			for _, uid := range tc.begun {
				in.Uninstalling[uid] = true
			}
			got := ComputePlan(t.Context(), in)
			slices.Sort(tc.want)
			steps := uninstalled(&got)
			slices.Sort(steps)
			if diff := cmp.Diff(tc.want, steps); diff != "" || len(got.Steps) != len(tc.want) || got.Counts[0].Protected != tc.protected {
				t.Errorf("%d are protected, there are %d steps (-want +got):\n%s", got.Counts[0].Protected, len(got.Steps), diff)
			}
			if tc.errors == "" && len(got.Errors) > 0 || tc.errors != "" && (len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Message, tc.errors)) {
				t.Errorf("errors: %+v, want %q", got.Errors, tc.errors)
			}
		})
	}
}

// A release whose uninstall has begun is on its way: it is none of those that must be left, and no other action is for its record.
func TestReleasesThatAreLeft(t *testing.T) {
	leaves := newUninstalling(func(r *v1alpha1.Rule) { r.Leave = new(intstr.FromInt32(1)) })
	a, b := newRevision("a", 1, "deployed"), newRevision("b", 1, "deployed")
	marked := newRevision("a", 1, "uninstalling")
	for name, tc := range map[string]struct {
		objects []observed.Object
		begun   map[types.UID]bool
		want    []string
	}{
		"Both":    {objects: []observed.Object{a, b}, want: []string{"release shop/a a.v1"}},
		"Begun":   {objects: []observed.Object{a, b}, begun: map[types.UID]bool{a.UID: true}},
		"Another": {objects: []observed.Object{a, b}, begun: map[types.UID]bool{"another": true}, want: []string{"release shop/a a.v1"}},
		"Marked":  {objects: []observed.Object{marked, b}, begun: map[types.UID]bool{marked.UID: true}},
	} {
		in := over(t, leaves, tc.objects...)
		in.Uninstalling = tc.begun
		got := ComputePlan(t.Context(), in)
		if diff := cmp.Diff(tc.want, uninstalled(&got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	in := over(t, newUninstalling(func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{deletes()} }), newRevision("a", 1, "superseded"))
	if got := ComputePlan(t.Context(), in); len(got.Steps) != 1 {
		t.Errorf("a superseded revision is deleted by %v", shorts(got.Steps))
	}
	in.Uninstalling = map[types.UID]bool{in.Snapshot[0].Objects[0].UID: true}
	if got := ComputePlan(t.Context(), in); len(got.Steps) != 0 {
		t.Errorf("the record of a release whose uninstall has begun is deleted by %v", shorts(got.Steps))
	}
}

// sortedRevisions are the revisions as a target has them: some releases, each with older revisions.
func sortedRevisions(older int, releases ...string) (out []observed.Object) {
	for _, release := range releases {
		for n := range older {
			out = append(out, newRevision(release, n+1, "superseded"))
		}
		out = append(out, newRevision(release, older+1, "deployed"))
	}
	slices.SortFunc(out, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
	return out
}

// TestReleasesCountOnce shows that keep, leave and limits count releases where a rule uninstalls them, however many revisions these have.
func TestReleasesCountOnce(t *testing.T) {
	gone, under := newRevision("a", 12, "uninstalled"), newRevision("a", 12, "uninstalling")
	for name, tc := range map[string]struct {
		change  func(r *v1alpha1.Rule)
		limits  *v1alpha1.Limits
		objects []observed.Object
		begun   map[types.UID]bool
		want    []string
		items   int
		blocked bool
	}{
		"LeaveOne":        {change: func(r *v1alpha1.Rule) { r.Leave = new(intstr.FromInt32(1)) }, objects: sortedRevisions(9, "web"), items: 1},
		"LeaveOneOfTwo":   {change: func(r *v1alpha1.Rule) { r.Leave = new(intstr.FromInt32(1)) }, objects: sortedRevisions(9, "a", "b"), want: []string{"release shop/a a.v10"}, items: 2},
		"KeepTwo":         {change: func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(2)) }, objects: sortedRevisions(3, "a", "b", "c"), want: []string{"release shop/a a.v4"}, items: 3},
		"KeptHistory":     {change: func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(2)) }, objects: append(sortedRevisions(9, "b", "c"), gone), items: 2},
		"UnderWay":        {change: func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(2)) }, objects: append(sortedRevisions(9, "b", "c"), under), begun: map[types.UID]bool{under.UID: true}, items: 2},
		"LeavingByHelm":   {change: func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(2)) }, objects: []observed.Object{newRevision("b", 1, "deployed"), newRevision("c", 1, "deployed"), newRevision("d", 1, "uninstalling")}, items: 3, want: []string{"release shop/d d.v1"}},
		"AllOfFour":       {objects: sortedRevisions(9, "a", "b", "c", "d"), limits: &v1alpha1.Limits{MaxPercent: 20}, items: 4, blocked: true},
		"TwoOfFour":       {change: func(r *v1alpha1.Rule) { r.When = `item.name < "c"` }, objects: sortedRevisions(9, "a", "b", "c", "d"), limits: &v1alpha1.Limits{MaxPercent: 49}, items: 4, blocked: true},
		"HalfIsAllowed":   {change: func(r *v1alpha1.Rule) { r.When = `item.name < "c"` }, objects: sortedRevisions(9, "a", "b", "c", "d"), limits: &v1alpha1.Limits{MaxPercent: 50}, items: 4, want: []string{"release shop/a a.v10", "release shop/b b.v10"}},
		"OnlyKeptHistory": {objects: append(sortedRevisions(0, "a", "b"), newRevision("x", 1, "uninstalled"), newRevision("y", 1, "uninstalled"), newRevision("z", 1, "uninstalled")), limits: &v1alpha1.Limits{MaxPercent: 50}, items: 2, blocked: true},
		"LeftToHelm":      {change: func(r *v1alpha1.Rule) { r.When = `item.name < "c"` }, objects: append(sortedRevisions(2, "a", "b", "c"), newRevision("x", 1, "uninstalling"), newRevision("y", 1, "uninstalling")), limits: &v1alpha1.Limits{MaxPercent: 50}, items: 5, blocked: true},
		"TakenOver":       {change: func(r *v1alpha1.Rule) { r.When = `item.status == "uninstalling"` }, objects: append(sortedRevisions(0, "a", "b"), newRevision("x", 1, "uninstalling"), newRevision("y", 1, "uninstalling")), limits: &v1alpha1.Limits{MaxPercent: 20}, items: 4, blocked: true},
		"GivenTwice":      {change: func(r *v1alpha1.Rule) { r.ForEach, r.Keep = "pods.items + pods.items", new(intstr.FromInt32(1)) }, objects: sortedRevisions(2, "a"), items: 1},
		"NoTwinsOfAName":  {change: func(r *v1alpha1.Rule) { r.Key = "item.name" }, objects: sortedRevisions(2, "a"), items: 1, want: []string{"release shop/a a.v3"}},
	} {
		t.Run(name, func(t *testing.T) {
			work := newUninstalling()
			if tc.change != nil {
				work = newUninstalling(tc.change)
			}
			work.Limits = tc.limits
			slices.SortFunc(tc.objects, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
			in := over(t, work, tc.objects...)
			in.Uninstalling = tc.begun
			got := ComputePlan(t.Context(), in)
			if got.Counts[0].Items != tc.items || (got.Reason == v1alpha1.ReasonLimitExceeded) != tc.blocked {
				t.Errorf("%s %s, counts %+v, errors %+v", got.Verdict, got.Message, got.Counts, got.Errors)
			}
			if tc.blocked {
				return
			}
			if diff := cmp.Diff(tc.want, uninstalled(&got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRecordsAndReleasesAreCountedApart shows that a Cleaner that deletes old records too may do so beyond the percentage of releases, and that
// releases that are gone count as long as limits.per says.
func TestRecordsAndReleasesAreCountedApart(t *testing.T) {
	work := newUninstalling(func(r *v1alpha1.Rule) { r.When = `item.name == "a"` })
	second := work.Rules[0]
	second.Name, second.When, second.Actions = "records", `item.status == "superseded" && item.name != "a"`, []v1alpha1.RuleAction{deletes()}
	work.Rules = append(work.Rules, second)
	work.Limits = &v1alpha1.Limits{MaxPercent: 60}
	in := over(t, work, sortedRevisions(3, "a", "b")...)
	got := ComputePlan(t.Context(), in)
	if got.Verdict != v1alpha1.VerdictAct || len(got.Steps) != 4 {
		t.Fatalf("%s %s: %v", got.Verdict, got.Message, shorts(got.Steps))
	}
	at := slices.IndexFunc(got.Steps, func(s Step) bool { return s.Verb == VerbHelmUninstall })
	done := in.Done.AddAction(in.MakeAction(&got.Steps[at], in.Now))
	work.Rules[0].Name, work.Rules[0].When, work.Rules[1].When = "renamed", `item.name == "b"`, "false"
	in = over(t, work, sortedRevisions(3, "b")...)
	in.Done = done
	if got = ComputePlan(t.Context(), in); got.Reason != v1alpha1.ReasonLimitExceeded || !strings.Contains(got.Message, "2 of 2, 1 by earlier actions") {
		t.Errorf("%s %s: %s", got.Verdict, got.Reason, got.Message)
	}
}

// TestRevisionsOfTwoTargets shows that a release is one item, also if one target selects an older revision of it than another.
func TestRevisionsOfTwoTargets(t *testing.T) {
	for name, change := range map[string]func(r *v1alpha1.Rule){
		"Leave": func(r *v1alpha1.Rule) { r.Leave = new(intstr.FromInt32(1)) },
		"Keep":  func(r *v1alpha1.Rule) { r.Keep = new(intstr.FromInt32(1)) },
	} {
		work := newUninstalling(change, func(r *v1alpha1.Rule) { r.ForEach = "old.items + pods.items" })
		work.Targets = append(work.Targets, work.Targets[0])
		work.Targets[len(work.Targets)-1].Name = "old"
		in := over(t, work, newRevision("web", 1, "superseded"), newRevision("web", 2, "deployed"))
		in.Snapshot = append(in.Snapshot, seen(newRevision("web", 1, "superseded")))
		if got := ComputePlan(t.Context(), in); len(got.Steps) > 0 || got.Counts[0].Items != 1 || len(got.Errors) > 0 {
			t.Errorf("%s: it uninstalls %v, counts %+v, errors %v", name, uninstalled(&got), got.Counts, got.Errors)
		}
	}
}

// An uninstall is one action, and a rule that comes first has the release.
func TestAnUninstallIsOneAction(t *testing.T) {
	work := newUninstalling()
	second := work.Rules[0]
	second.Name = "second"
	work.Rules = append(work.Rules, second)
	work.Limits = &v1alpha1.Limits{MaxActions: 1}
	got := ComputePlan(t.Context(), over(t, work, newRevision("a", 1, "deployed")))
	if got.Verdict != v1alpha1.VerdictAct || len(got.Steps) != 1 || got.Counts[1].Shadowed != 1 {
		t.Errorf("verdict %s, steps %v, counts %+v", got.Verdict, shorts(got.Steps), got.Counts)
	}
	got = ComputePlan(t.Context(), over(t, work, newRevision("a", 1, "deployed"), newRevision("b", 1, "deployed")))
	if got.Verdict != v1alpha1.VerdictBlocked || got.Reason != v1alpha1.ReasonLimitExceeded || !strings.Contains(got.Message, "release shop/a, release shop/b") {
		t.Errorf("verdict %s %s: %s", got.Verdict, got.Reason, got.Message)
	}
}
