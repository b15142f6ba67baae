// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstalls

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func begunRelease(name string) Begun {
	return Begun{RuleMark: signedrecords.RuleMark{Rule: "old", Record: types.UID("record-" + name), Revision: 3}, Namespace: "shop", Release: name}
}

// attempt ends the job that runs with these attempts.
func attempt(t *testing.T, u *UnderWay, at time.Time, attempts ...Attempt) {
	t.Helper()
	_, ended := u.TakeDue(at)
	if ended == nil {
		t.Fatal("nothing is due")
	}
	if due, _ := u.TakeDue(at); due != nil || u.HasDue(at) || !u.NextAttempt(at.Add(-time.Hour)).IsZero() || u.ReceiveAttempts(at) != nil {
		t.Error("while a job runs, another one begins")
	}
	ended <- attempts
	if !u.HasAttempts() || len(u.ReceiveAttempts(at)) != len(attempts) || u.HasAttempts() {
		t.Error("the attempts are not received once")
	}
}

// TestWhenReleasesAreLookedAtAgain shows that what makes progress is looked at again soon, and what does not, less and less often.
func TestWhenReleasesAreLookedAtAgain(t *testing.T) {
	waits := func(a Attempt, times int) (out []time.Duration) {
		u, at := &UnderWay{}, now
		u.AddBegun(begunRelease("web"), now)
		for range times {
			a.Begun = begunRelease("web")
			attempt(t, u, at, a)
			next := u.NextAttempt(at)
			out = append(out, next.Sub(at))
			at = next
		}
		return out
	}
	s := time.Second
	for name, tc := range map[string]struct {
		a    Attempt
		want []time.Duration
	}{
		"Progress": {Attempt{Reason: v1alpha1.ReasonUninstalling, Progressed: true}, []time.Duration{s, s, s}},
		"Held":     {Attempt{Reason: v1alpha1.ReasonUninstalling}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 60 * s, 60 * s}},
		"Fails":    {Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "x"}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 128 * s, 256 * s, 300 * s}},
	} {
		if diff := cmp.Diff(tc.want, waits(tc.a, len(tc.want))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestUnderWay(t *testing.T) {
	u := &UnderWay{}
	if u.ListRecords() != nil || u.HasDue(now) || u.IsFull() || !u.NextAttempt(now).IsZero() || u.ReceiveAttempts(now) != nil {
		t.Error("the zero value knows something")
	}
	u.NoteStarted(begunRelease("web"), now)
	if u.HasDue(now) || !u.NextAttempt(now).Equal(now.Add(firstLook)) || !u.HasDue(now.Add(firstLook)) {
		t.Error("it is not due a second later")
	}
	u.LookAgain()
	if due, _ := u.TakeDue(now); len(due) != 1 || due[0].Release != "web" {
		t.Errorf("due are %+v", due)
	}
	u = &UnderWay{}
	for i := range plan.MaxUninstalls {
		if u.IsFull() {
			t.Fatalf("there is no room for %d", i)
		}
		u.AddBegun(begunRelease(fmt.Sprint("r", i)), now.Add(time.Duration(-i)*time.Second))
	}
	if !u.IsFull() || len(u.ListRecords()) != plan.MaxUninstalls || !u.ListRecords()["record-r0"] {
		t.Errorf("it has %v", u.ListRecords())
	}
	again := begunRelease("r0")
	again.Rule = "another"
	u.AddBegun(again, now)
	due, ended := u.TakeDue(now)
	if len(due) != plan.MaxUninstalls || due[0].Release != "r15" || due[15].Release != "r0" || due[15].Rule != "old" {
		t.Errorf("due are %+v", due)
	}
	ended <- []Attempt{{Begun: due[0], Ended: true}, {Begun: begunRelease("forgotten"), Ended: true}}
	if u.ReceiveAttempts(now); u.IsFull() || u.ListRecords()["record-r15"] || !u.HasDue(now) {
		t.Error("what has ended is under way, or what was not reached is not due")
	}
}

// What is under way is said where a plan has nothing to say that a person must know first.
func TestDescribeIn(t *testing.T) {
	nothing := plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNothingToDo, Message: "Nothing to clean up."}
	acts := plan.Plan{Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, Message: "There are items to act on."}
	refused := acts
	refused.DeferReason, refused.DeferDetail = v1alpha1.ReasonDeletionRefused, "Pod shop/a: no"
	held := Attempt{Reason: v1alpha1.ReasonUninstalling, Why: "1 objects of the release still exist, such as ConfigMap shop/a (x/y)"}
	fails := Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "pre-delete hook Job shop/a failed: it failed"}
	for name, tc := range map[string]struct {
		releases      []string
		attempt       *Attempt
		plan          plan.Plan
		reason, says  string
		deferredFirst string
	}{
		"None":    {plan: nothing, reason: v1alpha1.ReasonNothingToDo, says: "Nothing to clean up."},
		"Begun":   {releases: []string{"web"}, plan: nothing, reason: v1alpha1.ReasonUninstalling, says: "Release shop/web is being uninstalled."},
		"More":    {releases: []string{"web", "api"}, plan: nothing, reason: v1alpha1.ReasonUninstalling, says: "Release shop/api is being uninstalled, and 1 more."},
		"Held":    {releases: []string{"web"}, attempt: &held, plan: nothing, reason: v1alpha1.ReasonUninstalling, says: "Release shop/web is being uninstalled: 1 objects of the release still exist, such as ConfigMap shop/a (x/y)."},
		"Fails":   {releases: []string{"web"}, attempt: &fails, plan: nothing, reason: v1alpha1.ReasonUninstallFailed, says: "An action failed and will be retried: release shop/web: pre-delete hook Job shop/a failed: it failed"},
		"Acts":    {releases: []string{"web"}, attempt: &held, plan: acts, reason: v1alpha1.ReasonConditionsMet, says: "There are items to act on."},
		"Trouble": {releases: []string{"web"}, attempt: &fails, plan: acts, reason: v1alpha1.ReasonConditionsMet, says: "There are items to act on.", deferredFirst: v1alpha1.ReasonUninstallFailed},
		"Refused": {releases: []string{"web"}, attempt: &fails, plan: refused, reason: v1alpha1.ReasonConditionsMet, says: "There are items to act on.", deferredFirst: v1alpha1.ReasonDeletionRefused},
		"Invalid": {releases: []string{"web"}, attempt: &fails, plan: plan.Plan{Verdict: v1alpha1.VerdictInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			u := &UnderWay{}
			for _, release := range tc.releases {
				u.AddBegun(begunRelease(release), now)
			}
			if tc.attempt != nil {
				a := *tc.attempt
				a.Begun = begunRelease(tc.releases[0])
				attempt(t, u, now, a)
			}
			got := u.DescribeIn(tc.plan, now)
			if got.Reason != tc.reason || got.Message != tc.says {
				t.Errorf("got %s: %s", got.Reason, got.Message)
			}
			if tc.deferredFirst != "" && got.DeferReason != tc.deferredFirst {
				t.Errorf("the trouble is %s: %s", got.DeferReason, got.DeferDetail)
			}
			if tc.attempt != nil && tc.reason != "" && !got.Next.Equal(now.Add(time.Second)) {
				t.Errorf("it is evaluated again at %s", got.Next)
			}
		})
	}
}

// reading answers queries with the Secrets of releases.
type reading struct {
	target  observed.Target
	queries []snapshot.Query
}

func (r *reading) Read(_ context.Context, q snapshot.Query) observed.Target {
	r.queries = append(r.queries, q)
	return r.target
}

// TestAnotherProcessFindsWhatHasBegun shows that a mark counts that this operator has signed for this Cleaner and this Secret, that it is looked for
// once, in the namespaces of the targets, and whatever else these select.
func TestAnotherProcessFindsWhatHasBegun(t *testing.T) {
	job := newTestJob(t, alice, nil)
	c, err := job.FindCleaner(t.Context(), job.Key)
	if err != nil {
		t.Fatal(err)
	}
	mark := signedrecords.RuleMark{Rule: "old", Decides: "v1:x", Digest: "v1:d", Record: "record", Revision: 3}
	signed, err := signedrecords.SignRuleMark(job.Ring, c, mark)
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name string, uid types.UID, annotation string) observed.Object {
		return observed.Object{
			Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: "shop", Name: name, UID: uid}, OfRelease: true,
			Value: map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationUninstall: annotation}}},
		}
	}
	live := &reading{target: observed.Target{State: observed.Unsynced, Detail: "not yet", Objects: []observed.Object{
		secret("sh.helm.release.v1.web.v3", "record", signed), secret("sh.helm.release.v1.copy.v3", "copy", signed), secret("sh.helm.release.v1.web.v4", "record", signed),
		secret("sh.helm.release.v1.api.v1", "api", ""), secret("web", "record", signed), secret("sh.helm.release.v1.db.v1", "db", "old/v1:x/v1:d/x.y"),
	}}}
	work := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{
		{Name: "pods", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}},
		{Name: "releases", HelmReleases: &v1alpha1.ClusterHelmReleases{HelmReleases: v1alpha1.HelmReleases{MatchLabels: map[string]string{"status": "deployed"}}}},
	}}
	u := &UnderWay{}
	if err := u.FindBegun(t.Context(), live, job.Ring, c, work, now); err != nil || len(live.queries) > 0 {
		t.Errorf("for a spec that uninstalls nothing there are %d queries, %v", len(live.queries), err)
	}
	work.Rules = rulesOf(v1alpha1.HelmUninstallAction{})
	if err := u.FindBegun(t.Context(), live, job.Ring, c, work, now); err == nil || !strings.Contains(err.Error(), "not yet") || u.ListRecords() != nil {
		t.Errorf("what cannot be read is said to be there: %v", err)
	}
	live.target.State = observed.Complete
	for range 2 {
		if err := u.FindBegun(t.Context(), live, job.Ring, c, work, now); err != nil {
			t.Fatal(err)
		}
	}
	due, _ := u.TakeDue(now)
	if len(due) != 1 || due[0].RuleMark != mark || due[0].Name() != "release shop/web" {
		t.Errorf("due are %+v", due)
	}
	if len(live.queries) != 2 {
		t.Fatalf("there are %d queries", len(live.queries))
	}
	if q := live.queries[1]; q.Labels.String() != "owner=helm,status=uninstalling" || q.Fields.String() != "type=helm.sh/release.v1" || q.Namespace != "shop" || !q.OfReleases || q.MetadataOnly || q.Reads != nil {
		t.Errorf("the query is %+v", q)
	}
}
