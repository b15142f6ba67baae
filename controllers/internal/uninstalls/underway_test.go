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
	if due, _ := u.TakeDue(at); due != nil || u.AskDue(at) || !u.NextAttempt().IsZero() || u.ReceiveAttempts(at) != nil {
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
		u, at := &UnderWay{}, now.Add(firstLook)
		u.NoteStarted(begunRelease("web"), now)
		for range times {
			a.Begun = begunRelease("web")
			if !u.AskDue(at) {
				t.Fatal("it is not due")
			}
			attempt(t, u, at, a)
			next := u.NextAttempt()
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
	if u.ListRecords() != nil || u.AskDue(now) || u.IsFull("shop") || !u.NextAttempt().IsZero() || u.ReceiveAttempts(now) != nil {
		t.Error("the zero value knows something")
	}
	u.NoteStarted(begunRelease("web"), now)
	if u.AskDue(now) || !u.NextAttempt().Equal(now.Add(firstLook)) || !u.AskDue(now.Add(firstLook)) {
		t.Error("it is not due a second later")
	}
	if !u.NextAttempt().IsZero() {
		t.Error("the Cleaner is to be woken for what it has just found to be due")
	}
	u.LookAgain()
	if due, _ := u.TakeDue(now); len(due) != 1 || due[0].Release != "web" {
		t.Errorf("due are %+v", due)
	}
	u = &UnderWay{}
	for i := range maxActiveOfNamespace {
		if u.IsFull("shop") {
			t.Fatalf("there is no room for %d", i)
		}
		u.NoteStarted(begunRelease(fmt.Sprint("r", i)), now.Add(time.Duration(-i)*time.Second))
	}
	if !u.IsFull("shop") || u.IsFull("blog") || len(u.ListRecords()) != maxActiveOfNamespace || !u.ListRecords()["record-r0"] {
		t.Errorf("it has %v", u.ListRecords())
	}
	again := begunRelease("r0")
	again.Rule = "another"
	u.AddBegun(again, now)
	due, ended := u.TakeDue(now.Add(firstLook))
	if len(due) != maxActiveOfNamespace || due[0].Release != "r7" || due[7].Release != "r0" || due[7].Rule != "old" {
		t.Errorf("due are %+v", due)
	}
	ended <- []Attempt{{Begun: due[0], Ended: true}, {Begun: begunRelease("forgotten"), Ended: true}}
	if u.ReceiveAttempts(now); u.IsFull("shop") || u.ListRecords()["record-r7"] || !u.AskDue(now.Add(firstLook)) {
		t.Error("what has ended is under way, or what was not reached is not due")
	}
}

// inNamespace is a release of a namespace.
func inNamespace(namespace, name string) Begun {
	b := begunRelease(namespace + "-" + name)
	b.Namespace = namespace
	return b
}

// TestNamespacesHaveTheirTurns shows that many releases of one namespace neither take all room nor come before those of another.
func TestNamespacesHaveTheirTurns(t *testing.T) {
	u := &UnderWay{}
	for i := range 3 {
		u.NoteStarted(inNamespace("a", fmt.Sprint(i)), now)
		u.NoteStarted(inNamespace("b", fmt.Sprint(i)), now.Add(time.Duration(i)*time.Second))
	}
	u.NoteStarted(inNamespace("c", "0"), now.Add(time.Minute))
	var order []string
	due, _ := u.TakeDue(now.Add(time.Hour))
	for i := range due {
		order = append(order, due[i].Release)
	}
	if diff := cmp.Diff([]string{"a-0", "b-0", "c-0", "a-1", "b-1", "a-2", "b-2"}, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	u = &UnderWay{}
	u.AddBegun(inNamespace("a", "stuck"), now.Add(-time.Hour))
	u.NoteStarted(inNamespace("a", "web"), now)
	if due, _ := u.TakeDue(now.Add(time.Hour)); due[0].Release != "a-web" {
		t.Errorf("due are %+v", due)
	}
	u = &UnderWay{}
	for i := range maxActive {
		u.NoteStarted(inNamespace(fmt.Sprint("n", i), "web"), now)
	}
	if !u.IsFull("another") {
		t.Error("there is no bound for all namespaces")
	}
}

// TestWhatIsStuckStopsNoOthers shows that releases that make no progress for a long time leave room for others, up to a bound.
func TestWhatIsStuckStopsNoOthers(t *testing.T) {
	u, at := &UnderWay{}, now.Add(firstLook)
	var held []Attempt
	for i := range maxActiveOfNamespace {
		held = append(held, Attempt{Begun: begunRelease(fmt.Sprint("r", i)), Reason: v1alpha1.ReasonUninstalling, Why: "x"})
		u.NoteStarted(held[i].Begun, now)
	}
	for range 7 { // a second, then twice as long each time
		if !u.IsFull("shop") {
			t.Fatalf("there is room at %s", at)
		}
		attempt(t, u, at, held...)
		u.AskDue(at)
		at = u.NextAttempt()
	}
	if u.IsFull("shop") {
		t.Error("releases that are stuck leave no room")
	}
	for i := range maxUnderWayOfNamespace - maxActiveOfNamespace {
		u.AddBegun(begunRelease(fmt.Sprint("s", i)), at)
	}
	if !u.IsFull("shop") || u.IsFull("blog") {
		t.Error("there is no bound for releases of a namespace that are stuck")
	}
	for i := range maxUnderWay {
		u.AddBegun(inNamespace(fmt.Sprint("n", i), "web"), at)
	}
	if !u.IsFull("blog") {
		t.Error("there is no bound for releases that are stuck")
	}
}

// TestDescribeScheduled shows what a Cleaner says between two times of its schedule.
func TestDescribeScheduled(t *testing.T) {
	u := &UnderWay{}
	says := func(paused bool, reason, message, failing string) {
		t.Helper()
		if diff := cmp.Diff(Scheduled{reason, message, failing}, u.DescribeScheduled(paused)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	says(false, "", "", "")
	u.NoteStarted(begunRelease("web"), now)
	says(false, v1alpha1.ReasonUninstalling, "Being uninstalled: release shop/web.", "")
	says(true, v1alpha1.ReasonWaitingForSchedule, "Waiting for the next scheduled time. Partly uninstalled: release shop/web.", "")
	attempt(t, u, now.Add(firstLook), Attempt{Begun: begunRelease("web"), Reason: v1alpha1.ReasonUninstallFailed, Why: "it is protected"})
	says(false, v1alpha1.ReasonUninstallFailed, "An action failed and will be retried: release shop/web: it is protected", "")
	attempt(t, u, now.Add(time.Hour), Attempt{Begun: begunRelease("web"), Reason: v1alpha1.ReasonUninstalling})
	says(false, v1alpha1.ReasonUninstalling, "Being uninstalled: release shop/web.", "release shop/web")
	attempt(t, u, now.Add(2*time.Hour), Attempt{Begun: begunRelease("web"), Ended: true})
	says(false, v1alpha1.ReasonWaitingForSchedule, "Waiting for the next scheduled time.", "")
	says(false, "", "", "")
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
		paused        bool
		reason, says  string
		deferredFirst string
	}{
		"None":    {plan: nothing, reason: v1alpha1.ReasonNothingToDo, says: "Nothing to clean up."},
		"Begun":   {releases: []string{"web"}, plan: nothing, reason: v1alpha1.ReasonUninstalling, says: "Being uninstalled: release shop/web."},
		"More":    {releases: []string{"web", "api"}, plan: nothing, reason: v1alpha1.ReasonUninstalling, says: "Being uninstalled: release shop/api, and 1 more."},
		"Held":    {releases: []string{"web"}, attempt: &held, plan: nothing, reason: v1alpha1.ReasonUninstalling, says: "Being uninstalled: release shop/web: 1 objects of the release still exist, such as ConfigMap shop/a (x/y)."},
		"Fails":   {releases: []string{"web"}, attempt: &fails, plan: nothing, reason: v1alpha1.ReasonUninstallFailed, says: "An action failed and will be retried: release shop/web: pre-delete hook Job shop/a failed: it failed"},
		"Full":    {releases: strings.Fields("a b c d e f g h"), plan: nothing, reason: v1alpha1.ReasonUninstalling, says: "Being uninstalled: release shop/a, and 7 more. Other releases wait until one of these is gone."},
		"DryRun":  {releases: []string{"web"}, plan: plan.Plan{Reason: v1alpha1.ReasonDryRun, Message: "Mode is DryRun."}, reason: v1alpha1.ReasonDryRun, says: "Mode is DryRun. Partly uninstalled: release shop/web.", paused: true},
		"Paused":  {releases: []string{"web"}, plan: nothing, reason: v1alpha1.ReasonNothingToDo, says: "Nothing to clean up. Partly uninstalled: release shop/web.", paused: true},
		"Acts":    {releases: []string{"web"}, attempt: &held, plan: acts, reason: v1alpha1.ReasonConditionsMet, says: "There are items to act on."},
		"Trouble": {releases: []string{"web"}, attempt: &fails, plan: acts, reason: v1alpha1.ReasonConditionsMet, says: "There are items to act on.", deferredFirst: v1alpha1.ReasonUninstallFailed},
		"Refused": {releases: []string{"web"}, attempt: &fails, plan: refused, reason: v1alpha1.ReasonConditionsMet, says: "There are items to act on.", deferredFirst: v1alpha1.ReasonDeletionRefused},
		"Invalid": {releases: []string{"web"}, attempt: &fails, plan: plan.Plan{Verdict: v1alpha1.VerdictInvalid}},
	} {
		t.Run(name, func(t *testing.T) {
			u := &UnderWay{}
			for _, release := range tc.releases {
				u.NoteStarted(begunRelease(release), now.Add(-firstLook))
			}
			if tc.attempt != nil {
				a := *tc.attempt
				a.Begun = begunRelease(tc.releases[0])
				attempt(t, u, now, a)
			}
			got := u.DescribeIn(tc.plan, tc.paused)
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
