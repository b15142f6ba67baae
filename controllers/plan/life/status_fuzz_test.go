// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

const (
	// maxFuzzedRows bounds the rows of a made-up run, and maxRequests what may be asked for until it has to be over.
	maxFuzzedRows = 40
	maxRequests   = 400
	// fuzzedRelease is the release of the spec.
	fuzzedRelease = "app"
)

// stranger carries on what somebody has written into a status, as a process does that knows nothing of it.
type stranger struct {
	*testing.T
	work   *v1alpha1.Work
	view   View
	memory Memory
	// script says how the world answers; when it has come to its end all succeeds.
	script []byte
}

// next is the next choice of the script.
func (s *stranger) next() byte {
	if len(s.script) == 0 {
		return 0
	}
	b := s.script[0]
	s.script = s.script[1:]
	return b
}

func (s *stranger) status() *v1alpha1.CleanerStatus { return s.view.Cleaner.State() }

// sights are what reads of rows show: the object as the row names it, unless the script says otherwise. Whether it may be
// touched is what the decisions say.
func (s *stranger) sights(rows []int) map[int]Sight {
	out := map[int]Sight{}
	for _, i := range rows {
		row, err := runrow.ParseRow(s.status().Run.Rows[i])
		if err != nil {
			out[i] = Sight{Failed: err.Error()}
			continue
		}
		o := observed.Object{Ref: row.Ref}
		belongs := Belonging{Resource: pods, Matches: true}
		sight := Sight{UID: row.UID, ResourceVersion: row.ResourceVersion, Refused: RefuseRow(plan.Owner{Namespace: "shop", Name: "c"}, s.work, row, &o, belongs, plan.Protection{})}
		switch s.next() % 6 {
		case 1:
			sight = Sight{Missing: true}
		case 2:
			sight = Sight{Failed: "timeout"}
		case 3:
			sight.UID = "another"
		case 4:
			sight.Terminating = true
		case 5:
			sight.ResourceVersion += "0"
		}
		if len(s.script) == 0 && s.memory.Rows != nil && i < len(s.memory.Rows) && s.memory.Rows[i].State == RowDeleted {
			sight = Sight{Missing: true}
		}
		out[i] = sight
	}
	return out
}

// mayDelete fails unless the spec stands for a row: this is what the decisions are held to, in other words than theirs.
func (s *stranger) mayDelete(i int) runrow.Row {
	row, err := runrow.ParseRow(s.status().Run.Rows[i])
	if err != nil || row.Rule != "targets.pods" || row.Namespace != "shop" || row.Resource != pods {
		s.Fatalf("row %q is to be deleted, which the spec does not stand for", s.status().Run.Rows[i])
	}
	return row
}

// act fails unless the spec stands for the rows. What rules want of theirs is judged anew before.
func (s *stranger) act(rows []int) {
	for _, i := range rows {
		if row, err := runrow.ParseRow(s.status().Run.Rows[i]); err != nil || row.Rule != "r" {
			s.mayDelete(i)
		}
		answers := []RowAnswer{
			{Did: v1alpha1.OutcomeDeleted}, {Did: v1alpha1.OutcomeDeleted, Gone: true}, {Did: v1alpha1.OutcomeGone}, {Did: v1alpha1.OutcomePatched, Left: "9"},
			{Replaced: true}, {Failed: "forbidden"}, {Did: v1alpha1.OutcomePatched, Failed: "timeout", Lost: true},
		}
		s.memory.RecordAnswer(i, answers[int(s.next())%len(answers)], s.view.Now)
	}
}

// verdicts are what is to become of the open rows.
func (s *stranger) verdicts() map[int]RowVerdict {
	out := map[int]RowVerdict{}
	for i := range s.memory.Rows {
		verdicts := []RowVerdict{{Version: "7"}, {Kept: "nobody wants it"}, {Unread: "timeout"}, {Until: s.view.Now.Add(time.Second)}}
		if s.memory.Rows[i].State == RowOpen {
			out[i] = verdicts[int(s.next())%len(verdicts)]
		}
	}
	return out
}

// release is how the release of the run is found.
func (s *stranger) release() observed.Release {
	h := s.status().Run.Helm
	states := []observed.ReleaseState{observed.ReleaseGone, observed.ReleaseDeployed, observed.ReleasePending, observed.ReleaseUninstalling}
	return observed.Release{
		State: states[int(s.next())%len(states)], Name: h.Name, Revision: h.Revision, FirstDeployed: h.FirstDeployed.Time, Digest: h.Digest,
		Begun: s.next()%2 == 0,
	}
}

// uninstall fails unless the spec asks for the release, but for one whose uninstall was begun: that is finished.
func (s *stranger) uninstall(start bool) {
	if rel := s.memory.Release; start == rel.HasBegun() {
		s.Fatalf("an uninstall is to begin: %t, and it has: %t", start, rel.HasBegun())
	}
	if h := s.status().Run.Helm; start && h.Name != fuzzedRelease {
		s.Fatalf("release %q is to be uninstalled, which the spec does not name", h.Name)
	}
	s.memory.Busy = true
	why := ""
	if s.next()%2 == 1 {
		why = "timeout"
	}
	s.memory.RecordUninstall(why, s.view.Now)
}

// wait passes the time that is waited for. False: only an event ends it.
func (s *stranger) wait(r Request) bool {
	if r.Reason == "" {
		s.Fatalf("it waits and does not say for what: %+v", r)
	}
	if r.InLine && s.next()%2 == 0 { // its turn comes first
		s.view.Slot = SlotHeld
		s.memory.NewPass()
		return true
	}
	if r.Until.IsZero() {
		return false
	}
	if !r.Until.After(s.view.Now) {
		s.Fatalf("it waits for a moment that has come: %+v at %s", r, s.view.Now)
	}
	s.view.Now = r.Until
	s.memory.NewPass()
	return true
}

// carryOut does what is asked for. False: it has come to rest.
func (s *stranger) carryOut(r Request) bool {
	status := s.status()
	for _, i := range r.Rows {
		if status.Run == nil || i < 0 || i >= len(status.Run.Rows) {
			s.Fatalf("%s is about row %d, which there is not", r.Kind, i)
		}
	}
	switch r.Kind {
	case Idle:
		return s.wait(r)
	case Evaluate, DeleteSelf:
		return false
	case LookRows, Settle:
		sights := s.sights(r.Rows)
		s.memory.RecordSights(status.Run, sights, s.view.Now)
		if r.Kind == Settle {
			s.memory.RecordSettleLook(s.view.Now)
		}
	case LookRelease:
		s.memory.RecordRelease(status.Run, s.release(), s.view.Now)
	case Recheck:
		outcomes := []JudgeOutcome{JudgeTrue, JudgeFailed, JudgeFalse, JudgeUndecidable}
		s.memory.RecordJudgement(Judgement{Outcome: outcomes[int(s.next())%len(outcomes)], Why: "why", Rows: s.verdicts()}, s.view.Now)
	case ReviewAuthor:
		if s.next()%2 == 1 {
			s.memory.RecordReviewRefused(v1alpha1.ReasonAuthorLacksRights, "why", s.view.Now.Add(time.Minute))
		} else {
			s.memory.RecordReview(nil, s.view.Now)
		}
	case Act:
		s.act(r.Rows)
	case AskSlot:
		s.view.Slot = SlotAsked
	case StartUninstall, FinishUninstall:
		if s.view.Slot != SlotHeld {
			s.Fatalf("%s without a slot", r.Kind)
		}
		s.view.Slot = NoSlot
		s.uninstall(r.Kind == StartUninstall)
	default:
		s.write(r)
	}
	return true
}

// write changes the Cleaner as a request says.
func (s *stranger) write(r Request) {
	status := s.status()
	switch r.Kind {
	case WriteResult:
		status.Run = FinishRun(status.Run, &s.memory, r.Result, r.Message, s.view.Now)
		s.memory = Memory{}
	case MoveToUnsent:
		status.Unsent, status.Run = nil, nil
	case ClearRecord:
		status.Run, status.Unsent = nil, nil
	case ClearUnsent:
		status.Unsent = nil
	case RemoveFinalizer, GiveUp:
		s.view.Cleaner.SetFinalizers(nil)
	default:
		s.Fatalf("%s is asked for", r.Kind)
	}
}

// FuzzStatus writes anything into a status and has it carried on: nothing panics, nothing is deleted that the spec does not
// stand for, and it comes to rest, or says for what it waits.
func FuzzStatus(f *testing.F) {
	row := func(rule string, o observed.Object) string { return runrow.Row{Rule: rule, Ref: o.Ref}.String() }
	secret := pod("s")
	secret.Resource.Resource = "secrets"
	elsewhere := pod("e")
	elsewhere.Namespace = "other"
	open := &v1alpha1.Run{Number: 1, Decides: "v1:x", Rows: []string{
		row("targets.pods", pod("a")), row("targets.pods", secret), row("targets.pods", elsewhere), row("targets.kept", pod("b")), row("r", pod("c")), "v2|what nobody can read", "",
	}}
	for _, run := range []*v1alpha1.Run{
		open,
		{Number: 1, Decides: "v1:x", Lifecycle: v1alpha1.LifecycleRecurring, Rows: open.Rows},
		{Number: 1, Decides: "v1:other", Rows: open.Rows, Helm: &v1alpha1.HelmRelease{Name: fuzzedRelease, Revision: 1}},
		{Number: 1, Decides: "v1:x", Helm: &v1alpha1.HelmRelease{Name: "other", Revision: 1}},
		{Number: -1, Result: "Nonsense", Outcomes: []v1alpha1.RowOutcome{{Row: "x", Outcome: "y"}}},
		{Result: v1alpha1.ResultPartial, Rows: open.Rows},
	} {
		for _, status := range []v1alpha1.CleanerStatus{{Run: run}, {Unsent: run}, {Run: run, Unsent: run, Runs: -7}} {
			text, err := json.Marshal(status)
			if err != nil {
				f.Fatal(err)
			}
			for _, flags := range []uint8{0, 1, 2, 4, 6, 8, 16, 32, 33} {
				f.Add(text, flags, []byte{0, 1, 2, 3, 4, 5})
			}
		}
	}
	f.Fuzz(func(t *testing.T, text []byte, flags uint8, script []byte) {
		c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "shop", UID: "cleaner"}}
		c.Spec.Helm = &v1alpha1.Helm{Release: fuzzedRelease, Delete: true}
		c.Spec.Rules = []v1alpha1.Rule{{Name: "r"}}
		if json.Unmarshal(text, &c.Status) != nil || c.Status.Run != nil && len(c.Status.Run.Rows) > maxFuzzedRows {
			t.Skip("no status, or too long a one for a test")
		}
		has := func(bit uint8) bool { return flags>>bit&1 == 1 }
		if has(0) {
			c.Spec.CloudEventSink = "http://sink"
		}
		if !has(1) {
			c.Finalizers = []string{v1alpha1.Finalizer}
		}
		if has(2) {
			c.DeletionTimestamp = &metav1.Time{Time: born}
		}
		c.Spec.Suspend = has(3)
		if has(5) {
			c.Spec.Lifecycle = v1alpha1.LifecycleRecurring
		}
		work := c.Work()
		work.Targets = []v1alpha1.ClusterTarget{podTarget("pods", deleted), podTarget("kept")}
		s := &stranger{T: t, work: work, script: script[:min(len(script), 100)]}
		s.view = View{
			Cleaner: c, Helm: c.Spec.Helm, Decides: "v1:x", Delivered: has(4), Now: born, SettleFor: time.Minute, FinishGrace: 30 * time.Second,
		}
		for range maxRequests {
			r := Next(s.view, &s.memory)
			if !s.carryOut(r) {
				return
			}
		}
		t.Fatalf("it does not come to rest: %+v with %+v", c.Status.Run, s.memory)
	})
}
