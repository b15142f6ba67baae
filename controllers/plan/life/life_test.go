// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// rowOf is the row of a Pod, as recorded.
func rowOf(name string) string {
	o := pod(name)
	return runrow.Row{Rule: "targets.pods", Ref: o.Ref}.String()
}

// committed is a Cleaner with an open run of these Pods, and what the process that committed it remembers.
func committed(names ...string) (*v1alpha1.Cleaner, *Memory) {
	c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop", Finalizers: []string{v1alpha1.Finalizer}}}
	c.Status.Run = &v1alpha1.Run{Number: 1, Decides: "v1:x"}
	for _, n := range names {
		c.Status.Run.Rows = append(c.Status.Run.Rows, rowOf(n))
	}
	return c, NewMemory(1, make([]observed.Seen, len(names)), born)
}

func finishedRun(result v1alpha1.Result) *v1alpha1.Run {
	return &v1alpha1.Run{Number: 1, Decides: "v1:x", Result: result}
}

func TestNext(t *testing.T) {
	del := func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: born} }
	sinkOf := func(c *v1alpha1.Cleaner) { c.Spec.CloudEventSink = "http://sink" }
	without := func(c *v1alpha1.Cleaner) { c.Status.Run = nil }
	with := func(run *v1alpha1.Run) func(*v1alpha1.Cleaner) {
		return func(c *v1alpha1.Cleaner) { c.Status.Run = run }
	}
	unsent := func(c *v1alpha1.Cleaner) { c.Status.Unsent = finishedRun(v1alpha1.ResultPartial) }
	free := func(c *v1alpha1.Cleaner) { c.Finalizers = nil }
	helm := func(c *v1alpha1.Cleaner) {
		c.Spec.Helm = &v1alpha1.Helm{Release: "r", Delete: true}
		c.Status.Run.Helm = &v1alpha1.HelmRelease{Name: "r", Revision: 2, UID: "secret", FirstDeployed: metav1.NewMicroTime(born)}
	}
	release := func(s observed.ReleaseState, change ...func(*observed.Release)) func(*Memory) {
		return func(m *Memory) {
			m.Release = &observed.Release{State: s, Name: "r", Revision: 2, UID: "secret", FirstDeployed: born}
			for _, ch := range change {
				ch(m.Release)
			}
		}
	}
	begun := release(observed.ReleaseUninstalling, func(r *observed.Release) { r.Begun = true })
	reviewed := func(after time.Duration) func(*Memory) {
		return func(m *Memory) { m.RecordReview(nil, born.Add(after)) }
	}
	barred := func(m *Memory) {
		m.RecordReviewRefused(v1alpha1.ReasonAuthorLacksRights, "may not", born.Add(time.Minute))
	}
	half := func(m *Memory) { m.PartlyUninstalled = true }
	state := func(s ...RowState) func(*Memory) {
		return func(m *Memory) {
			for i := range s {
				m.Rows[i].State, m.Rows[i].Settled = s[i], true
			}
		}
	}
	unread := func(looks int) func(*Memory) {
		return func(m *Memory) {
			for range looks {
				m.RecordReleaseUnread("403", born)
			}
		}
	}
	cases := map[string]struct {
		reason    string
		rows      []string
		cleaner   []func(*v1alpha1.Cleaner)
		memory    []func(*Memory)
		after     time.Duration // since the commit, or the deletion
		delivered bool
		decides   string
		slot      *Slot // SlotHeld if nil
		want      Request
	}{
		"Waits":              {reason: "no run: evaluate", cleaner: []func(*v1alpha1.Cleaner){without, free}, want: Request{Kind: Evaluate}},
		"FinalizerForNobody": {reason: "a finalizer that nothing needs is taken off", cleaner: []func(*v1alpha1.Cleaner){without}, want: Request{Kind: RemoveFinalizer}},
		"WaitsWithUnsent":    {reason: "what is owed of an earlier run does not stop the next", cleaner: []func(*v1alpha1.Cleaner){without, unsent, sinkOf}, want: Request{Kind: Evaluate}},
		"UnsentDelivered":    {reason: "delivered: drop it", cleaner: []func(*v1alpha1.Cleaner){without, unsent, sinkOf}, delivered: true, want: Request{Kind: ClearUnsent}},
		"SinkRemoved":        {reason: "a sink that is removed counts as delivered", cleaner: []func(*v1alpha1.Cleaner){without, unsent}, want: Request{Kind: ClearUnsent}},
		"DeletedWithUnsent": {
			reason: "a deleted Cleaner is held until the grace is over", cleaner: []func(*v1alpha1.Cleaner){without, unsent, sinkOf, del}, after: 29 * time.Second,
			want: Request{Kind: Idle, Until: born.Add(30 * time.Second), Reason: v1alpha1.ReasonDelivering},
		},
		"GivesUp": {reason: "and then goes, and says what was not delivered", cleaner: []func(*v1alpha1.Cleaner){without, unsent, sinkOf, del}, after: 30 * time.Second, want: Request{Kind: GiveUp}},

		"Restarted": {
			reason: "a process that does not know the run looks first", rows: []string{"a", "b"}, memory: []func(*Memory){func(m *Memory) { *m = Memory{} }},
			want: Request{Kind: LookRows, Rows: []int{0, 1}},
		},
		"RowsOfAnother": {
			reason: "a status that has other rows than this process remembers is looked at", rows: []string{"a", "b"}, memory: []func(*Memory){func(m *Memory) { m.Rows = m.Rows[:1] }},
			want: Request{Kind: LookRows, Rows: []int{0, 1}},
		},
		"Deletes":   {reason: "a fresh confirmation deletes", rows: []string{"a", "b"}, memory: []func(*Memory){state(RowDeleted)}, want: Request{Kind: Act, Rows: []int{1}}},
		"Unchecked": {reason: "a row that was not held against the spec is read, not deleted", rows: []string{"a"}, memory: []func(*Memory){func(m *Memory) { m.Rows[0].Checked = false }}, want: Request{Kind: LookRows, Rows: []int{0}}},
		"Old":       {reason: "an old confirmation does not", rows: []string{"a"}, after: 10 * time.Second, want: Request{Kind: Recheck}},
		"BacksOff": {reason: "a refused row waits", rows: []string{"a"}, memory: []func(*Memory){func(m *Memory) {
			m.Rows[0].Due, m.Rows[0].FailedReason = born.Add(time.Minute), v1alpha1.ReasonDeletionRefused
		}}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonDeletionRefused}},
		"BacksOffPatch": {reason: "the request that was refused is named", rows: []string{"a", "b"}, memory: []func(*Memory){func(m *Memory) {
			m.Rows[0].Due, m.Rows[0].FailedReason = born.Add(time.Minute), v1alpha1.ReasonReadFailed
			m.Rows[1].Due, m.Rows[1].FailedReason = born.Add(time.Minute), v1alpha1.ReasonPatchRefused
		}}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonPatchRefused}},
		"Unread": {reason: "a row that cannot be read is no refusal", rows: []string{"a"}, memory: []func(*Memory){func(m *Memory) {
			m.Rows[0].Due, m.Rows[0].FailedReason = born.Add(time.Minute), v1alpha1.ReasonReadFailed
		}}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonReadFailed}},
		"WaitsOpen": {reason: "and nothing was refused where nothing failed", rows: []string{"a"}, memory: []func(*Memory){func(m *Memory) { m.Rows[0].Due = born.Add(time.Minute) }}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonCleaning}},
		"Unstable":  {reason: "and so does one that changes too fast, which is said", rows: []string{"a"}, memory: []func(*Memory){func(m *Memory) { m.Rows[0].Due, m.Rows[0].Unstable = born.Add(time.Minute), true }}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonTargetUnstable}},
		"UnstableAndRefused": {reason: "a refusal is said first", rows: []string{"a", "b"}, memory: []func(*Memory){func(m *Memory) {
			m.Rows[0].Due, m.Rows[0].Unstable, m.Rows[1].Due = born.Add(time.Minute), true, born.Add(time.Hour)
			m.Rows[1].FailedReason = v1alpha1.ReasonDeletionRefused
		}}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonDeletionRefused}},
		"RecheckBacksOff": {reason: "a failed re-check waits", rows: []string{"a"}, after: 10 * time.Second, memory: []func(*Memory){func(m *Memory) { m.Due = born.Add(time.Minute) }}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonUnconfirmed}},
		"Suspended":       {reason: "suspend keeps the run", rows: []string{"a"}, cleaner: []func(*v1alpha1.Cleaner){func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonSuspended}},
		"DryRun":          {reason: "and so does DryRun", rows: []string{"a"}, cleaner: []func(*v1alpha1.Cleaner){func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeDryRun }}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonSuspended}},
		"Edited":          {reason: "an edit stops it; what is left is read before the result", rows: []string{"a"}, decides: "v1:y", want: Request{Kind: LookRows, Rows: []int{0}}},
		"EditedLooked":    {reason: "then it is Partial", rows: []string{"a"}, decides: "v1:y", memory: []func(*Memory){func(m *Memory) { m.RowsRead = true }}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: "the spec was edited"}},
		"NotDecided":      {reason: "a run that says not what decided it is not of this spec", rows: []string{"a"}, cleaner: []func(*v1alpha1.Cleaner){func(c *v1alpha1.Cleaner) { c.Status.Run.Decides = "" }}, memory: []func(*Memory){func(m *Memory) { m.RowsRead = true }}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: "the spec was edited"}},
		"Deleted":         {reason: "kubectl delete abandons it", rows: []string{"a"}, cleaner: []func(*v1alpha1.Cleaner){del}, memory: []func(*Memory){func(m *Memory) { m.RowsRead = true }}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: "the Cleaner was deleted"}},
		"DeletedDone":     {reason: "even when nothing is left", rows: []string{"a"}, cleaner: []func(*v1alpha1.Cleaner){del}, memory: []func(*Memory){state(RowDeleted)}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: "the Cleaner was deleted"}},
		"KeptARow":        {reason: "a kept row makes it Partial", rows: []string{"a", "b"}, memory: []func(*Memory){state(RowDeleted, RowReplaced)}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: "1 of 2 objects were not deleted"}},
		"Settles":         {reason: "what is deleted must be gone", rows: []string{"a"}, memory: []func(*Memory){state(RowDeleted), func(m *Memory) { m.Rows[0].Settled = false }}, want: Request{Kind: Settle, Rows: []int{0}}},
		"SettledOver":     {reason: "but not for ever", rows: []string{"a"}, after: 10 * time.Minute, memory: []func(*Memory){state(RowDeleted), func(m *Memory) { m.Rows[0].Settled = false }}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}},
		"Completed":       {reason: "all gone: Completed", rows: []string{"a"}, memory: []func(*Memory){state(RowGone)}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}},

		"StoppedUnread": {
			reason: "a stopped run tries to read its release", cleaner: []func(*v1alpha1.Cleaner){helm},
			memory: []func(*Memory){unread(maxReleaseLooks - 1)}, decides: "v1:other", after: time.Hour, want: Request{Kind: LookRelease},
		},
		"StoppedBlind": {
			reason: "but not for ever", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){unread(maxReleaseLooks)}, decides: "v1:other", after: time.Hour,
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `the spec was edited; the state of release "r" is unknown: 403`},
		},
		"OpenUnread": {
			reason: "an open run waits for its release", cleaner: []func(*v1alpha1.Cleaner){helm},
			memory: []func(*Memory){unread(maxReleaseLooks)}, after: time.Hour, want: Request{Kind: LookRelease},
		},
		"LooksAtRelease":  {reason: "the release is read before anything is done to it", cleaner: []func(*v1alpha1.Cleaner){helm}, want: Request{Kind: LookRelease}},
		"Uninstalls":      {reason: "as committed: uninstall", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseDeployed), reviewed(0)}, want: Request{Kind: StartUninstall}},
		"UninstallsLate":  {reason: "not on an old confirmation", cleaner: []func(*v1alpha1.Cleaner){helm}, after: time.Minute, memory: []func(*Memory){release(observed.ReleaseDeployed)}, want: Request{Kind: Recheck}},
		"AsksForSlot":     {reason: "a slot comes first: what is read before it is there may be old then", cleaner: []func(*v1alpha1.Cleaner){helm}, after: time.Minute, slot: new(NoSlot), memory: []func(*Memory){release(observed.ReleaseDeployed)}, want: Request{Kind: AskSlot}},
		"WaitsForSlot":    {reason: "and nothing else is read until then", cleaner: []func(*v1alpha1.Cleaner){helm}, after: time.Minute, slot: new(SlotAsked), memory: []func(*Memory){release(observed.ReleaseDeployed)}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonUninstalling, InLine: true}},
		"ResumesInSlot":   {reason: "nor is one that was begun gone on with elsewhere", cleaner: []func(*v1alpha1.Cleaner){helm}, after: time.Minute, slot: new(NoSlot), memory: []func(*Memory){begun}, want: Request{Kind: AskSlot}},
		"TriesAgainLater": {reason: "one that waits after a failure takes no slot meanwhile", cleaner: []func(*v1alpha1.Cleaner){helm}, slot: new(NoSlot), memory: []func(*Memory){release(observed.ReleaseDeployed), func(m *Memory) { m.Due = born.Add(time.Minute) }}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonUninstallFailed}},
		"SuspendsInLine":  {reason: "one that is suspended wants no slot", cleaner: []func(*v1alpha1.Cleaner){helm, func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }}, slot: new(SlotAsked), memory: []func(*Memory){release(observed.ReleaseDeployed)}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonSuspended}},
		"Resumes":         {reason: "an uninstall that the run has begun is finished without", cleaner: []func(*v1alpha1.Cleaner){helm}, after: time.Minute, memory: []func(*Memory){begun, reviewed(time.Minute)}, want: Request{Kind: FinishUninstall}},
		"Busy":            {reason: "nothing else while an uninstall is under way", cleaner: []func(*v1alpha1.Cleaner){helm, del}, memory: []func(*Memory){func(m *Memory) { m.Busy = true }}, want: Request{Kind: Idle, Until: born.Add(30 * time.Second), Reason: v1alpha1.ReasonUninstalling}},
		"ReleaseGone":     {reason: "gone is done", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseGone)}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}},
		"ReleaseAnew":     {reason: "installed anew is done, and not touched", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.UID, r.FirstDeployed = "other", born.Add(time.Hour) })}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultCompleted}},
		"ReleaseForged":   {reason: "a record that says so is no new one", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.FirstDeployed = born.Add(time.Hour) })}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `release "r" has changed and is now at revision 2`}},
		"ReleaseUpgraded": {reason: "upgraded is Partial", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.Revision = 3 })}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `release "r" has changed and is now at revision 3`}},
		"ReleaseRewritten": {
			reason: "and so is a record that somebody has written anew", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.UID = "other" })},
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `release "r" has changed and is now at revision 2`},
		},
		"ReleaseOverwritten": {
			reason: "and one that says something else, in the same Secret", cleaner: []func(*v1alpha1.Cleaner){helm, func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.Digest = "v1:a" }}, memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.Digest = "v1:b" })},
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `release "r" has changed and is now at revision 2`},
		},
		"ReleaseAsDigested":     {reason: "one that says the same is uninstalled", cleaner: []func(*v1alpha1.Cleaner){helm, func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.Digest = "v1:a" }}, memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.Digest = "v1:a" }), reviewed(0)}, want: Request{Kind: StartUninstall}},
		"ReleaseNeverDigested":  {reason: "an older version recorded no digest", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.Digest = "v1:b" }), reviewed(0)}, want: Request{Kind: StartUninstall}},
		"ForgedRelease":         {reason: "a release that the spec does not name is left alone", cleaner: []func(*v1alpha1.Cleaner){helm, func(c *v1alpha1.Cleaner) { c.Spec.Helm.Release = "other" }}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `spec.helm does not request the uninstall of release "r"`}},
		"ReleaseNotToDelete":    {reason: "nor is one touched that the spec only looks at", cleaner: []func(*v1alpha1.Cleaner){helm, func(c *v1alpha1.Cleaner) { c.Spec.Helm.Delete = false }}, memory: []func(*Memory){release(observed.ReleaseDeployed)}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `spec.helm does not request the uninstall of release "r"`}},
		"StopFinishesRelease":   {reason: "a stop does not leave a release half-way", cleaner: []func(*v1alpha1.Cleaner){helm}, decides: "v1:y", memory: []func(*Memory){begun, reviewed(0)}, want: Request{Kind: FinishUninstall}},
		"DeleteFinishesRelease": {reason: "nor does kubectl delete, within the grace", cleaner: []func(*v1alpha1.Cleaner){helm, del}, after: 29 * time.Second, memory: []func(*Memory){begun, reviewed(29 * time.Second)}, want: Request{Kind: FinishUninstall}},
		"BegunByOthers":         {reason: "an uninstall of somebody else needs a confirmation, as any other", cleaner: []func(*v1alpha1.Cleaner){helm}, after: time.Minute, memory: []func(*Memory){release(observed.ReleaseUninstalling), reviewed(time.Minute)}, want: Request{Kind: Recheck}},
		"BegunByOthersTrue":     {reason: "and is begun when there is one", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseUninstalling), reviewed(0)}, want: Request{Kind: StartUninstall}},
		"BegunByOthersFalse": {
			reason: "it is left to them when the conditions are false", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseUninstalling), reviewed(0), func(m *Memory) { m.Stop = "not true" }},
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `not true; another client is uninstalling release "r"`},
		},
		"BegunByOthersEdited": {
			reason: "when the spec was edited", cleaner: []func(*v1alpha1.Cleaner){helm}, decides: "v1:y", memory: []func(*Memory){release(observed.ReleaseUninstalling), reviewed(0)},
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `the spec was edited; another client is uninstalling release "r"`},
		},
		"BegunByOthersDeleted": {
			reason: "and when the Cleaner was deleted", cleaner: []func(*v1alpha1.Cleaner){helm, del}, memory: []func(*Memory){release(observed.ReleaseUninstalling), reviewed(0)},
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: `the Cleaner was deleted; another client is uninstalling release "r"`},
		},
		"BegunByOthersRewritten": {
			reason: "whoever may write a status may write the rest: it is compared", cleaner: []func(*v1alpha1.Cleaner){helm, func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.Digest = "v1:a" }},
			memory: []func(*Memory){release(observed.ReleaseUninstalling, func(r *observed.Release) { r.Digest = "v1:b" }), reviewed(0)},
			want:   Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `release "r" has changed and is now at revision 2`},
		},
		"BegunAndRewritten": {
			reason: "what the run has begun is gone on with, which says that it cannot be", cleaner: []func(*v1alpha1.Cleaner){helm, func(c *v1alpha1.Cleaner) { c.Status.Run.Helm.Digest = "v1:a" }},
			memory: []func(*Memory){release(observed.ReleaseUninstalling, func(r *observed.Release) { r.Begun, r.Digest = true, "v1:b" }), reviewed(0)},
			want:   Request{Kind: FinishUninstall},
		},
		"MarkedAndDeployed":     {reason: "a mark is no uninstall", cleaner: []func(*v1alpha1.Cleaner){helm}, decides: "v1:y", memory: []func(*Memory){release(observed.ReleaseDeployed, func(r *observed.Release) { r.Begun = true }), reviewed(0)}, want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: "the spec was edited"}},
		"GraceLeavesRelease":    {reason: "after it, it does", cleaner: []func(*v1alpha1.Cleaner){helm, del}, after: 30 * time.Second, want: Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: "the Cleaner was deleted"}},
		"ReviewsBeforeTheStart": {reason: "no uninstall without a look at what the author may do", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){release(observed.ReleaseDeployed)}, want: Request{Kind: ReviewAuthor}},
		"ReviewsBeforeTheRest":  {reason: "nor the rest of one", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){begun}, want: Request{Kind: ReviewAuthor}},
		"ReviewsAfterAStop":     {reason: "whoever has edited the spec", cleaner: []func(*v1alpha1.Cleaner){helm}, decides: "v1:y", memory: []func(*Memory){begun}, want: Request{Kind: ReviewAuthor}},
		"ReviewsAgain":          {reason: "a review serves as long as a confirmation", cleaner: []func(*v1alpha1.Cleaner){helm}, after: 10 * time.Second, memory: []func(*Memory){begun, reviewed(0)}, want: Request{Kind: ReviewAuthor}},
		"Barred": {
			reason: "what the author may not do waits", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){begun, barred},
			want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonAuthorLacksRights},
		},
		"BarredBeforeALook": {
			reason: "and says why in the next pass too", cleaner: []func(*v1alpha1.Cleaner){helm}, memory: []func(*Memory){barred},
			want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonAuthorLacksRights},
		},
		"BarredAfterAStop": {
			reason: "after an edit too", cleaner: []func(*v1alpha1.Cleaner){helm}, decides: "v1:y", memory: []func(*Memory){barred},
			want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonAuthorLacksRights},
		},
		"BarredOver": {reason: "then it is looked again", cleaner: []func(*v1alpha1.Cleaner){helm}, after: time.Minute, memory: []func(*Memory){barred}, want: Request{Kind: LookRelease}},
		"BarredAndDeleted": {
			reason: "a deleted Cleaner waits for as long as its grace", cleaner: []func(*v1alpha1.Cleaner){helm, del}, memory: []func(*Memory){begun, barred},
			want: Request{Kind: Idle, Until: born.Add(30 * time.Second), Reason: v1alpha1.ReasonAuthorLacksRights},
		},
		"BarredAndGone": {
			reason: "and then goes, and says what it leaves", cleaner: []func(*v1alpha1.Cleaner){helm, del}, after: 30 * time.Second, memory: []func(*Memory){half, barred},
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultAbandoned, Message: `the Cleaner was deleted; release "r" is left partly uninstalled: may not`},
		},
		"HalfAndStopped": {
			reason: "what is left of a release is said without a failure, too", cleaner: []func(*v1alpha1.Cleaner){helm}, decides: "v1:y", memory: []func(*Memory){half, release(observed.ReleaseDeployed)},
			want: Request{Kind: WriteResult, Result: v1alpha1.ResultPartial, Message: `the spec was edited; release "r" is left partly uninstalled`},
		},
		"RecheckBacksOffForARelease": {
			reason: "a re-check that failed in this pass waits", cleaner: []func(*v1alpha1.Cleaner){helm}, after: 10 * time.Second,
			memory: []func(*Memory){release(observed.ReleaseDeployed), func(m *Memory) { m.Due = born.Add(time.Minute) }}, want: Request{Kind: Idle, Until: born.Add(time.Minute), Reason: v1alpha1.ReasonUninstallFailed},
		},

		"SendsResult":   {reason: "with a sink the run waits for its 2xx", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultCompleted)), sinkOf}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}},
		"EndsDelivered": {reason: "then the Cleaner deletes itself", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultCompleted)), sinkOf}, delivered: true, want: Request{Kind: DeleteSelf}},
		"EndsSinkless":  {reason: "without a sink at once", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultCompleted))}, want: Request{Kind: DeleteSelf}},
		"LetsGo":        {reason: "deleted and delivered: the finalizer goes", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultCompleted)), sinkOf, del}, delivered: true, want: Request{Kind: RemoveFinalizer}},
		"WaitsForOlder": {reason: "an older event goes first", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultCompleted)), unsent, sinkOf}, want: Request{Kind: Idle, Reason: v1alpha1.ReasonDelivering}},
		"Partial":       {reason: "a Partial run makes room", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultPartial)), sinkOf}, want: Request{Kind: MoveToUnsent}},
		"ForgedAbandon": {reason: "an Abandoned run of a Cleaner that lives does not stick", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultAbandoned))}, want: Request{Kind: MoveToUnsent}},
		"GivesUpResult": {reason: "a dead sink holds a deleted Cleaner for the grace only", cleaner: []func(*v1alpha1.Cleaner){with(finishedRun(v1alpha1.ResultAbandoned)), sinkOf, del}, after: time.Minute, want: Request{Kind: GiveUp}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, m := committed(tc.rows...)
			for _, change := range tc.cleaner {
				change(c)
			}
			for _, change := range tc.memory {
				change(m)
			}
			v := View{Cleaner: c, Helm: c.Spec.Helm, Decides: "v1:x", Now: born.Add(tc.after), Delivered: tc.delivered, SettleFor: 10 * time.Minute, FinishGrace: 30 * time.Second, Slot: SlotHeld}
			if tc.slot != nil {
				v.Slot = *tc.slot
			}
			if tc.decides != "" {
				v.Decides = tc.decides
			}
			if diff := cmp.Diff(tc.want, Next(v, m)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestARefusedRowBacksOff(t *testing.T) {
	_, m := committed("a")
	now, want := born, time.Second
	for range 12 {
		m.RecordAnswer(0, RowAnswer{Failed: "forbidden"}, now)
		if got := m.Rows[0].Due.Sub(now); got != want {
			t.Fatalf("it waits %s, want %s", got, want)
		}
		now, want = m.Rows[0].Due, min(2*want, 5*time.Minute)
	}
	if m.Rows[0].State != RowOpen || m.AllAnswered == false {
		t.Errorf("a refusal is an answer, and leaves the row open: %+v", m.Rows[0])
	}
}

// TestAnObjectWaitsAsLongAsTheAPIServerAsks shows that a longer Retry-After takes the place of the back-off, up to a bound.
func TestAnObjectWaitsAsLongAsTheAPIServerAsks(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: time.Second, time.Second / 2: time.Second, 30 * time.Second: 30 * time.Second, 24 * time.Hour: 5 * time.Minute} {
		_, m := committed("refused", "lost")
		m.RecordAnswer(0, RowAnswer{Failed: "why", RetryAfter: asked}, born)
		m.RecordAnswer(1, RowAnswer{Failed: "why", Lost: true, RetryAfter: asked}, born)
		for i := range m.Rows {
			if got := m.Rows[i].Due.Sub(born); got != want {
				t.Errorf("row %d, asked to wait for %s, waits for %s, want %s", i, asked, got, want)
			}
		}
		b := backoff.Failures{}
		b.RecordFailure("uid", v1alpha1.ReasonDeletionRefused, "why", born)
		b.Postpone("uid", asked, born)
		if got := b["uid"].Until.Sub(born); got != want || b["uid"].Wait != time.Second {
			t.Errorf("an object, asked to wait for %s, waits for %s, want %s, and the next time for twice %s", asked, got, want, b["uid"].Wait)
		}
	}
}

func TestARowThatCannotBeReadIsLeftAlone(t *testing.T) {
	for range 20 { // rows are seen in no order
		c, m := committed("a")
		c.Status.Run.Rows = append(c.Status.Run.Rows, "v2|something else")
		m.RecordSights(c.Status.Run, map[int]Sight{0: {Missing: true}, 1: {Failed: "cannot be read"}}, born)
		v := View{Cleaner: c, Helm: c.Spec.Helm, Decides: "v1:x", Now: born, SettleFor: time.Minute, FinishGrace: time.Minute}
		if got := Next(v, m); got.Kind != WriteResult || got.Result != v1alpha1.ResultPartial {
			t.Fatalf("it does not end: %+v", got)
		}
		run := FinishRun(c.Status.Run, m, v1alpha1.ResultPartial, "", born)
		want := []v1alpha1.Count{{Resource: "pods/v1", Outcome: v1alpha1.OutcomeGone, Count: 1}, {Resource: "unreadable", Outcome: v1alpha1.OutcomeKept, Count: 1}}
		if diff := cmp.Diff(want, run.Counts); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestAProtectedObjectIsNotDeletedAtItsNewVersion(t *testing.T) {
	spec := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}}
	c, m := committed("a", "b")
	newer := func(o *observed.Object) { o.ResourceVersion = "8" }
	in := input(t, spec, seen(pod("a", newer, func(o *observed.Object) { o.Protected = true }), pod("b", newer)))
	m.RecordJudgement(JudgeRun(t.Context(), in, c.Status.Run, m), born)
	if m.Rows[0].Checked || m.Rows[0].Unwanted == "" {
		t.Errorf("the protected object is to be deleted: %+v", m.Rows[0])
	}
	if m.Rows[1].State != RowOpen || m.Rows[1].Now != "8" {
		t.Errorf("the other one is not deleted at its new version: %+v", m.Rows[1])
	}
}

// TestARowIsHeldToItsOwnTarget shows that nothing is done for a row whose target does not select its object any more, because
// another target still sees it.
func TestARowIsHeldToItsOwnTarget(t *testing.T) {
	spec := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted), podTarget("all")}}
	newer := func(o *observed.Object) { o.ResourceVersion = "8" }
	for _, still := range []bool{true, false} {
		c, m := committed("a")
		own, want := seen(), RowVerdict{Kept: `target "pods" no longer selects it`}
		if still {
			own, want = seen(pod("a", newer)), RowVerdict{Version: "8"}
		}
		got := JudgeRun(t.Context(), input(t, spec, own, seen(pod("a", newer))), c.Status.Run, m)
		if diff := cmp.Diff(map[int]RowVerdict{0: want}, got.Rows); diff != "" {
			t.Errorf("still selected by its target %t: -want +got\n%s", still, diff)
		}
	}
}

// Before a result all rows that are left are read: a look at some of them is not enough.
func TestALookAtSomeRowsIsNoneAtAll(t *testing.T) {
	c, m := committed("a", "b")
	there := Sight{UID: "uid-a", ResourceVersion: "7"}
	v := View{Cleaner: c, Decides: "v1:y", Now: born}
	m.RecordSights(c.Status.Run, map[int]Sight{0: there}, born)
	if got := Next(v, m); got.Kind != LookRows {
		t.Errorf("after a look at one of two it asks for %s", got.Kind)
	}
	m.RecordSights(c.Status.Run, map[int]Sight{0: there, 1: {Missing: true}}, born)
	if got := Next(v, m); got.Kind != WriteResult {
		t.Errorf("after a look at both it asks for %s", got.Kind)
	}
}

// A judgement is taken as what it says of each row.
func TestJudged(t *testing.T) {
	newer := observed.Seen{{Object: pod("a", func(o *observed.Object) { o.ResourceVersion = "8" })}}
	for name, tc := range map[string]struct {
		reason  string
		outcome JudgeOutcome
		verdict RowVerdict
		whole   bool
		stops   bool
		want    Entry
	}{
		"True":        {"it is acted on at the version that was judged", JudgeTrue, RowVerdict{Version: "8"}, true, false, Entry{Checked: true, Now: "8", Was: newer}},
		"Unwanted":    {"it is read before it is left alone", JudgeTrue, RowVerdict{Kept: "why"}, true, false, Entry{Unwanted: "why", Was: newer}},
		"Unread":      {"it is asked about again", JudgeTrue, RowVerdict{Unread: "why"}, true, false, Entry{Checked: true, Failed: "why", Due: born.Add(time.Second), backoff: time.Second, Was: newer}},
		"Holds":       {"the time of for is waited for", JudgeTrue, RowVerdict{Until: born.Add(time.Hour)}, true, false, Entry{Checked: true, Due: born.Add(time.Hour), Was: newer}},
		"False":       {"the run stops", JudgeFalse, RowVerdict{Version: "8"}, true, true, Entry{Checked: true}},
		"Failed":      {"nothing is known", JudgeFailed, RowVerdict{}, true, false, Entry{Checked: true}},
		"Taken":       {"somebody else has taken what is missing", JudgeUndecidable, RowVerdict{Version: "8"}, true, true, Entry{Checked: true}},
		"Undecidable": {"this process may have taken it", JudgeUndecidable, RowVerdict{Version: "8"}, false, false, Entry{Checked: true, Now: "8", Was: newer}},
	} {
		t.Run(name, func(t *testing.T) {
			_, m := committed("a")
			m.VoidConfirmation()
			m.AllAnswered = tc.whole
			m.RecordJudgement(Judgement{Outcome: tc.outcome, Why: "why", Rows: map[int]RowVerdict{0: tc.verdict}, seen: map[int]observed.Seen{0: newer}}, born)
			if diff := cmp.Diff(tc.want, m.Rows[0], cmp.AllowUnexported(Entry{})); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			if (m.Stop == "why") != tc.stops {
				t.Errorf("%s: it stops with %q", tc.reason, m.Stop)
			}
			if failed := tc.outcome == JudgeFailed; failed != m.Due.After(born) || failed != (m.Failed == "why") {
				t.Errorf("%s: it is tried again at %s, with %q", tc.reason, m.Due, m.Failed)
			}
			if may := !tc.stops && tc.outcome != JudgeFailed; may != m.IsConfirmed(born) {
				t.Errorf("%s: it may be acted on: %t", tc.reason, !may)
			}
		})
	}
}

func TestAnObjectOfTwoTargets(t *testing.T) {
	spec := &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`watched.status.phase == "Succeeded"`}},
		Targets:    []v1alpha1.ClusterTarget{podTarget("watched", named("a")), podTarget("doomed", deleted, quiet)},
	}
	newer := pod("a", func(o *observed.Object) { o.ResourceVersion, o.Value = "8", nil })
	in := input(t, spec, seen(pod("a")), seen(newer, pod("b", func(o *observed.Object) { o.Value = nil })))
	c, _ := committed()
	run, m, _ := CommitRun(&c.Status, in, "v1:x", plan.ComputePlan(t.Context(), in))
	want := []string{"targets.doomed pods/v1 shop/b uid-b 7", "targets.doomed pods/v1 shop/a uid-a 7"}
	if diff := cmp.Diff(want, run.Rows); diff != "" {
		t.Fatalf("an object is deleted at another version than conditions saw: -want +got\n%s", diff)
	}
	m.RecordAnswer(1, RowAnswer{Did: v1alpha1.OutcomeDeleted}, born)
	gone := input(t, spec, seen(), seen(pod("b")))
	if got := JudgeRun(t.Context(), gone, run, m); got.Outcome != JudgeTrue {
		t.Errorf("what was deleted does not stand as it was: %+v", got)
	}
}

func TestWhatTheAnswerProvesIsNotLookedAt(t *testing.T) {
	for _, gone := range []bool{true, false} {
		c, m := committed("open")
		m.RecordAnswer(0, RowAnswer{Did: v1alpha1.OutcomeDeleted, Gone: gone}, born)
		want := Settle
		if gone {
			want = WriteResult
		}
		if got := Next(View{Cleaner: c, Decides: "v1:x", Now: born, SettleFor: time.Minute}, m); got.Kind != want {
			t.Errorf("gone %t: next is %s, want %s", gone, got.Kind, want)
		}
	}
}

func TestFinishSaysWhatBecameOfEachRow(t *testing.T) {
	c, m := committed("deleted", "gone", "terminating", "replaced", "kept", "unknown", "patched", "evicted")
	held := []string{"example.test/hold"}
	m.Rows[0].State = RowDeleted
	m.Rows[1].State, m.Rows[1].Settled = RowGone, true
	m.Rows[2].State, m.Rows[2].Finalizers = RowDeleted, held
	m.Rows[3].State = RowReplaced
	m.Rows[4].State = RowKept
	m.Rows[6].State, m.Rows[6].Did, m.Rows[6].Finalizers = RowDeleted, v1alpha1.OutcomePatched, held
	m.Rows[7].State, m.Rows[7].Did = RowDeleted, v1alpha1.OutcomeEvicted
	m.RecordSights(c.Status.Run, map[int]Sight{5: {Failed: "timeout"}}, born)
	got := FinishRun(c.Status.Run, m, v1alpha1.ResultPartial, "why", born)
	var outcomes []string
	for _, o := range got.Outcomes {
		row, err := runrow.ParseRow(o.Row)
		if err != nil {
			t.Fatal(err)
		}
		if string(o.Outcome) != row.Name {
			t.Errorf("%s is called %s", row.Name, o.Outcome)
		}
		outcomes = append(outcomes, string(o.Outcome))
	}
	if len(outcomes) != 8 || len(got.Counts) != 8 || got.Rows != nil || got.Result != v1alpha1.ResultPartial || got.Number != 1 {
		t.Errorf("the finished run is %+v", got)
	}
}

func TestWithObjects(t *testing.T) {
	anew := func(o *observed.Object) { o.UID = "another" }
	newer := func(o *observed.Object) { o.ResourceVersion = "8" }
	went := func(o *observed.Object) { o.ResourceVersion = "" }
	old := func(o *observed.Object) { o.Labels = map[string]string{"as": "it was"} }
	cases := map[string]struct {
		reason              string
		objects, were, want []observed.Object
	}{
		"Nothing":  {"nobody is left", nil, []observed.Object{pod("b", went), pod("a", went)}, []observed.Object{pod("a", went), pod("b", went)}},
		"Between":  {"each at its place", []observed.Object{pod("b"), pod("d")}, []observed.Object{pod("e", went), pod("c", went), pod("a", went)}, []observed.Object{pod("a", went), pod("b"), pod("c", went), pod("d"), pod("e", went)}},
		"There":    {"one that is terminating stands as it was", []observed.Object{pod("a", newer), pod("b", newer)}, []observed.Object{pod("a", went)}, []observed.Object{pod("a", went), pod("b", newer)}},
		"MadeAnew": {"another one of its name is seen", []observed.Object{pod("a", anew), pod("b")}, []observed.Object{pod("a", went)}, []observed.Object{pod("a", anew), pod("b")}},
		"Patched":  {"one that is as it was left stands as it was before", []observed.Object{pod("a"), pod("b")}, []observed.Object{pod("a", old)}, []observed.Object{pod("a", old), pod("b")}},
		"Changed":  {"one that somebody has changed since is seen", []observed.Object{pod("a", newer), pod("b")}, []observed.Object{pod("a", old)}, []observed.Object{pod("a", newer), pod("b")}},
		"Deleted":  {"and one that somebody has deleted since is not", []observed.Object{pod("b")}, []observed.Object{pod("a", old)}, []observed.Object{pod("b")}},
		"Namespaces": {
			"the namespace comes first", []observed.Object{pod("b")}, []observed.Object{pod("a", went, func(o *observed.Object) { o.Namespace = "z" })},
			[]observed.Object{pod("b"), pod("a", went, func(o *observed.Object) { o.Namespace = "z" })},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, withObjects(tc.objects, tc.were)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A run that is open takes no step while the clock cannot be trusted, but for its end when the Cleaner is deleted or
// edited.
func TestAnOpenRunAndAClockThatCannotBeTrusted(t *testing.T) {
	run, m, _ := CommitRun(&v1alpha1.CleanerStatus{}, plan.Input{Spec: &v1alpha1.Work{}, Now: born}, "v1:0", plan.Plan{Steps: []plan.Step{{Rule: "targets.pods", Object: pod("a")}}})
	c := &v1alpha1.Cleaner{Status: v1alpha1.CleanerStatus{Run: run}}
	v := View{Cleaner: c, Helm: c.Spec.Helm, Decides: "v1:0", Now: born, Slot: SlotHeld}
	if got := Next(v, m); got.Kind == Idle {
		t.Fatalf("the run has nothing to do, so this shows nothing: %+v", got)
	}
	v.ClockSuspect = true
	want := Request{Kind: Idle, Reason: v1alpha1.ReasonClockSkewSuspected, Until: born.Add(ClockRetry)}
	if diff := cmp.Diff(want, Next(v, m)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	v.Decides = "v1:1"
	if got := Next(v, m); got.Kind == Idle || got.Kind == Act {
		t.Errorf("an edit asks for %s", got.Kind)
	}

	// A release that is uninstalling is finished, but not now.
	v.Decides = "v1:0"
	run.Helm = &v1alpha1.HelmRelease{Name: "r", Revision: 1, UID: "u", FirstDeployed: metav1.NewMicroTime(born)}
	m.Release = &observed.Release{State: observed.ReleaseUninstalling, Begun: true, Name: "r", Revision: 1, UID: "u", FirstDeployed: born}
	c.DeletionTimestamp, v.FinishGrace = &metav1.Time{Time: born}, time.Minute
	if diff := cmp.Diff(want, Next(v, m)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	v.ClockSuspect = false
	m.RecordReview(nil, born)
	if got := Next(v, m); got.Kind != FinishUninstall {
		t.Errorf("when the clock is right it asks for %s", got.Kind)
	}
}
