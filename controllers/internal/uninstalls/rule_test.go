// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstalls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
)

// fakeHelm has one release with two objects and, like helm.Uninstaller, marks it before anything else.
type fakeHelm struct {
	release helm.Release
	// unread is why it cannot be read, and fails why the mark cannot be written.
	unread, fails error
	// ends is what an attempt comes to that marks nothing; when it marks, all is deleted.
	ends helm.Outcome
	// failed is why an attempt fails when all is marked, and then what it comes to.
	failed error
	then   helm.OutcomeState
	wants  []helm.UninstallRequest
	did    []string
	// reads is called when it is read.
	reads func()
}

func (f *fakeHelm) ReadRelease(ctx context.Context, slot helm.ReadSlot, _, _ string) (helm.Release, error) {
	f.did = append(f.did, "read")
	if slot != nil {
		leave, err := slot(ctx)
		if err != nil {
			return f.release, err
		}
		defer leave()
	}
	if f.reads != nil {
		f.reads()
	}
	return f.release, f.unread
}

func (f *fakeHelm) Uninstall(_ context.Context, _ helm.ReadSlot, want helm.UninstallRequest, guard helm.Guard) (out helm.Outcome, err error) {
	f.wants = append(f.wants, want)
	stopped := func(err error) (helm.Outcome, error) {
		out.State = helm.Stopped
		return out, fmt.Errorf("stopped: %w", err)
	}
	if f.ends.State != "" {
		return f.ends, nil
	}
	if want.Begun == "" {
		if err := guard.MayStart(); err != nil {
			return stopped(err)
		}
		f.did = append(f.did, "mark")
		if f.fails != nil {
			return out, f.fails
		}
	}
	if f.failed != nil || f.then != "" {
		out.State = f.then
		return out, f.failed
	}
	for _, name := range []string{"a", "b"} {
		ref := observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Kind: "ConfigMap", Namespace: "shop", Name: name, UID: types.UID("uid-" + name)}
		if err := guard.MayDelete(ref); err != nil {
			return stopped(err)
		}
		f.did = append(f.did, "delete "+name)
		out.Deleted = append(out.Deleted, ref)
	}
	out.State = helm.Done
	return out, nil
}

// aRelease is revision 3 of a release as it was read.
func aRelease() helm.Release {
	return helm.Release{Release: observed.Release{State: observed.ReleaseDeployed, Name: "web", Revision: 3, UID: "record", FirstDeployed: now, Digest: "v1:d"}}
}

// aStep uninstalls that release.
func aStep() *plan.Step {
	return &plan.Step{Rule: "old", Verb: plan.VerbHelmUninstall, Object: observed.Object{
		Ref: observed.Ref{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret", Namespace: "shop", Name: "sh.helm.release.v1.web.v3", UID: "record", ResourceVersion: "7",
		},
		OfRelease: true,
	}}
}

// fakeGuard is the guard of a pass.
type fakeGuard struct {
	pace, may error
	intents   []string
}

func (g *fakeGuard) LimitWait(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}
func (g *fakeGuard) WaitForPace(context.Context) error { return g.pace }
func (g *fakeGuard) MaySend(context.Context) error     { return g.may }
func (g *fakeGuard) LogIntent(s *plan.Step, version string) {
	g.intents = append(g.intents, string(s.Verb)+" "+s.Object.Name+" "+version)
}

// rulesOf has a rule that uninstalls releases.
func rulesOf(action v1alpha1.HelmUninstallAction) []v1alpha1.Rule {
	return []v1alpha1.Rule{{Name: "other"}, {Name: "old", Actions: []v1alpha1.RuleAction{{HelmUninstall: &action}}}}
}

func newStarter(t *testing.T, f *fakeHelm) *Starter {
	t.Helper()
	job := newTestJob(t, alice, nil)
	c, err := job.FindCleaner(t.Context(), job.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &Starter{
		Helm: f, Owner: c, Ring: job.Ring, Decides: "v1:x", Rules: rulesOf(v1alpha1.HelmUninstallAction{}), Clock: job.Clock,
		Review: func(context.Context, *observed.Release, bool) ([]rights.Right, identity.Refusal) {
			return []rights.Right{{Verb: "delete", Resource: "configmaps", Namespace: "shop"}}, identity.Refusal{}
		},
	}
}

// TestAStepBeginsAnUninstall shows that a step marks its release at the version that was decided on, after all checks, and deletes nothing.
func TestAStepBeginsAnUninstall(t *testing.T) {
	f, g := &fakeHelm{release: aRelease()}, &fakeGuard{}
	s := newStarter(t, f)
	out, begun := s.StartStep(t.Context(), aStep(), "7", g)
	if out.Kind != life.AnswerDone || out.Gone || begun == nil {
		t.Fatalf("got %+v, %+v", out, begun)
	}
	if diff := cmp.Diff([]string{"read", "mark"}, f.did); diff != "" {
		t.Errorf("it did (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"helmUninstall sh.helm.release.v1.web.v3 7"}, g.intents); diff != "" {
		t.Errorf("it told (-want +got):\n%s", diff)
	}
	want := f.wants[0]
	if want.ResourceVersion != "7" || want.UID != "record" || want.Revision != 3 || want.Digest != "v1:d" || len(want.Rights) != 1 || want.Begun != "" || want.DisableHooks || want.Timeout != 0 {
		t.Errorf("it asks for %+v", want)
	}
	if m, ours := signedrecords.ReadRuleMark(s.Ring, s.Owner, "record", 3, want.Mark); !ours || m.Rule != "old" || m.Decides != "v1:x" || m.Digest != "v1:d" {
		t.Errorf("its mark says %+v, %t", m, ours)
	}
	if begun.Name() != "release shop/web" || begun.Record != "record" || begun.Rule != "old" {
		t.Errorf("begun is %+v", begun)
	}
}

// TestHistoryIsKept shows that the records stay if the rule says so, also when what has begun is finished after an edit.
func TestHistoryIsKept(t *testing.T) {
	f := &fakeHelm{release: aRelease()}
	s := newStarter(t, f)
	s.Rules = rulesOf(v1alpha1.HelmUninstallAction{KeepHistory: true})
	if _, begun := s.StartStep(t.Context(), aStep(), "7", &fakeGuard{}); begun == nil || !begun.KeepHistory || !f.wants[0].KeepHistory {
		t.Errorf("it begins %+v", begun)
	}
	f = &fakeHelm{release: aRelease()}
	j := newRuleJob(t, f, nil)
	mark := j.Releases[0].RuleMark
	mark.KeepHistory = true
	signed, err := signedrecords.SignRuleMark(j.Ring, j.Owner, mark)
	if err != nil {
		t.Fatal(err)
	}
	f.release.Mark, j.Rules = signed, nil
	ended := make(chan []Attempt, 1)
	j.Ended = ended
	j.Do(t.Context())
	if got := (<-ended)[0]; !got.Uninstalled || !f.wants[0].KeepHistory {
		t.Errorf("it comes to %+v", got)
	}
}

// TestWhatKeepsAStepFromItsUninstall shows what becomes of a step whose release is not marked, and when it counts as begun all the same.
func TestWhatKeepsAStepFromItsUninstall(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, "x", errors.New("changed"))
	for name, tc := range map[string]struct {
		release func(r *helm.Release)
		helm    func(f *fakeHelm)
		step    func(s *plan.Step)
		starter func(s *Starter)
		guard   fakeGuard
		version string
		kind    life.AnswerKind
		says    string
		begun   bool
		marks   bool // the request to mark it was sent
	}{
		"NoVersion": {version: "none", kind: life.AnswerConflict, says: "must be read first"},
		"Unreadable": {helm: func(f *fakeHelm) {
			f.unread = &helm.BlockedError{Reason: v1alpha1.ReasonReleaseUnreadable, Detail: "it is odd"}
		}, kind: life.AnswerRefused, says: "it is odd"},
		"Slow":      {helm: func(f *fakeHelm) { f.unread = fmt.Errorf("x: %w", helm.ErrTooSlow) }, kind: life.AnswerUnsent, says: "too long"},
		"Gone":      {release: func(r *helm.Release) { r.State = observed.ReleaseGone }, kind: life.AnswerConflict, says: "is gone"},
		"Older":     {release: func(r *helm.Release) { r.Revision, r.UID = 4, "newer" }, kind: life.AnswerRefused, says: "revision 3 of release \"web\" is not its newest, which is 4"},
		"Newer":     {release: func(r *helm.Release) { r.Revision, r.UID = 2, "older" }, kind: life.AnswerConflict, says: "is 2, and not 3"},
		"Recreated": {release: func(r *helm.Release) { r.UID = "another" }, kind: life.AnswerConflict, says: "release"},
		"Pending": {
			release: func(r *helm.Release) {
				r.State, r.Blocked, r.Detail = observed.ReleasePending, v1alpha1.ReasonReleasePending, "it is pending"
			}, kind: life.AnswerRefused, says: "it is pending",
		},
		"Outside":   {release: func(r *helm.Release) { r.Blocked, r.Detail = v1alpha1.ReasonReleaseOutsideNamespace, "it reaches out" }, kind: life.AnswerRefused, says: "it reaches out"},
		"Hooks":     {release: func(r *helm.Release) { r.HasHooks, r.HooksBlocked = true, "nobody answers for them" }, kind: life.AnswerRefused, says: "nobody answers for them"},
		"NoHooks":   {release: func(r *helm.Release) { r.HasHooks, r.HooksBlocked = true, "nobody answers for them" }, starter: disablesHooks, kind: life.AnswerDone, begun: true, marks: true},
		"Rights":    {starter: refuses, kind: life.AnswerRefused, says: "alice may not"},
		"Pace":      {guard: fakeGuard{pace: errors.New("too fast")}, kind: life.AnswerUnsent, says: "too fast"},
		"NotSent":   {guard: fakeGuard{may: cleanerstore.ErrOutdated}, kind: life.AnswerUnsent, says: cleanerstore.ErrOutdated.Error()},
		"Changed":   {helm: func(f *fakeHelm) { f.ends = helm.Outcome{State: helm.Upgraded} }, kind: life.AnswerConflict, says: "Upgraded"},
		"Stale":     {helm: func(f *fakeHelm) { f.fails = fmt.Errorf("cannot mark: %w", conflict) }, kind: life.AnswerConflict, says: "changed", marks: true},
		"Lost":      {helm: func(f *fakeHelm) { f.fails = errors.New("connection reset") }, kind: life.AnswerLost, says: "connection reset", begun: true, marks: true},
		"AllGoing":  {helm: func(f *fakeHelm) { f.then = helm.Terminating }, kind: life.AnswerDone, begun: true, marks: true}, // no request is needed
		"TakenThen": {helm: func(f *fakeHelm) { f.then = helm.Upgraded }, kind: life.AnswerLost, says: "Upgraded", begun: true, marks: true},
		"Breaks":    {helm: func(f *fakeHelm) { f.failed = errors.New("no discovery") }, kind: life.AnswerLost, says: "no discovery", begun: true, marks: true},
		"NoRelease": {step: func(s *plan.Step) { s.Object.OfRelease = false }, kind: life.AnswerRefused, says: "it is not the record of a release"},
		"OddName":   {step: func(s *plan.Step) { s.Object.Name = "web" }, kind: life.AnswerRefused, says: "it is not the record of a release"},
		"NoUID":     {step: func(s *plan.Step) { s.Object.UID = "" }, kind: life.AnswerRefused, says: "it is not the record of a release"},
		"NoKey":     {starter: func(s *Starter) { s.Ring = newTestJob(t, alice, nil).Ring }, kind: life.AnswerDone, begun: true, marks: true}, // another key signs as well
		"OthersJustBegan": {release: func(r *helm.Release) {
			r.State, r.Mark, r.Modified = observed.ReleaseUninstalling, "old/v1:x/v1:d/forged", now.Add(-takeOver+time.Minute)
		}, kind: life.AnswerRefused, says: "it is taken over if it is still there in 1m0s"},
		"HelmJustBegan": {release: func(r *helm.Release) { r.State, r.Modified = observed.ReleaseUninstalling, now }, kind: life.AnswerRefused, says: "another client"},
		"BeganLongAgo": {release: func(r *helm.Release) {
			r.State, r.Modified = observed.ReleaseUninstalling, now.Add(-takeOver)
		}, kind: life.AnswerDone, begun: true, marks: true},
		"BeginsInAYear": {release: func(r *helm.Release) {
			r.State, r.Modified = observed.ReleaseUninstalling, now.AddDate(1, 0, 0)
		}, kind: life.AnswerDone, begun: true, marks: true},
		"OthersMark": {release: func(r *helm.Release) { r.State, r.Mark = observed.ReleaseUninstalling, "old/v1:x/v1:d/forged" }, kind: life.AnswerDone, begun: true, marks: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeHelm{release: aRelease()}
			if tc.release != nil {
				tc.release(&f.release)
			}
			if tc.helm != nil {
				tc.helm(f)
			}
			s, step, version := newStarter(t, f), aStep(), "7"
			if tc.starter != nil {
				tc.starter(s)
			}
			if tc.step != nil {
				tc.step(step)
			}
			if tc.version != "" {
				version = ""
			}
			out, begun := s.StartStep(t.Context(), step, version, &tc.guard)
			if out.Kind != tc.kind || !strings.Contains(out.Why, tc.says) || (begun != nil) != tc.begun {
				t.Errorf("got %d %q, begun %t", out.Kind, out.Why, begun != nil)
			}
			if marks := len(tc.guard.intents) > 0; marks != tc.marks {
				t.Errorf("it was told of: %t", marks)
			}
			for _, did := range f.did {
				if strings.HasPrefix(did, "delete") {
					t.Error("it has deleted something")
				}
			}
		})
	}
}

func disablesHooks(s *Starter) { s.Rules = rulesOf(v1alpha1.HelmUninstallAction{DisableHooks: true}) }

func refuses(s *Starter) {
	s.Review = func(context.Context, *observed.Release, bool) ([]rights.Right, identity.Refusal) {
		return nil, identity.Refusal{Reason: v1alpha1.ReasonAuthorLacksRights, Message: "alice may not."}
	}
}

// TestASlowReadIsAFailure shows that a release that takes too long to read is tried again later, and not at once in each pass.
func TestASlowReadIsAFailure(t *testing.T) {
	f := &fakeHelm{release: aRelease(), unread: fmt.Errorf("x: %w", context.DeadlineExceeded)}
	s := newStarter(t, f)
	clock := clocktesting.NewFakePassiveClock(now)
	s.Clock, f.reads = clock, func() { clock.SetTime(clock.Now().Add(slowTry)) }
	if out, begun := s.StartStep(t.Context(), aStep(), "7", &fakeGuard{}); out.Kind != life.AnswerRefused || begun != nil || !strings.Contains(out.Why, "takes too long") {
		t.Errorf("got %+v", out)
	}
	s.Slot = func(context.Context) (func(), error) {
		clock.SetTime(clock.Now().Add(time.Hour))
		return func() {}, nil
	}
	f.reads = func() {}
	if out, _ := s.StartStep(t.Context(), aStep(), "7", &fakeGuard{}); out.Kind != life.AnswerUnsent {
		t.Errorf("after a wait in line, got %+v", out)
	}
	f.unread = context.Canceled
	if out, _ := s.StartStep(t.Context(), aStep(), "7", &fakeGuard{}); out.Kind != life.AnswerUnsent {
		t.Errorf("after an edit, got %+v", out)
	}
}

// What this operator has begun before is taken up, and not begun a second time.
func TestAStepTakesUpWhatHasBegun(t *testing.T) {
	f, g := &fakeHelm{release: aRelease()}, &fakeGuard{}
	s := newStarter(t, f)
	mark, err := signedrecords.SignRuleMark(s.Ring, s.Owner, signedrecords.RuleMark{Rule: "earlier", Decides: "v1:y", Digest: "v1:e", Record: "record", Revision: 3})
	if err != nil {
		t.Fatal(err)
	}
	f.release.State, f.release.Mark = observed.ReleaseUninstalling, mark
	out, begun := s.StartStep(t.Context(), aStep(), "7", g)
	if out.Kind != life.AnswerDone || begun == nil || begun.Rule != "earlier" || begun.Digest != "v1:e" || len(f.wants)+len(g.intents) > 0 {
		t.Errorf("got %+v, %+v, and sends %d requests", out, begun, len(f.wants))
	}
}

// A rehearsal reads and asks, and writes nothing.
func TestARehearsalMarksNothing(t *testing.T) {
	f := &fakeHelm{release: aRelease()}
	if out := newStarter(t, f).RehearseStep(t.Context(), aStep(), &fakeGuard{}); out.Kind != life.AnswerDone || len(f.wants) > 0 {
		t.Errorf("got %+v", out)
	}
	s := newStarter(t, f)
	refuses(s)
	if got := s.RehearseStep(t.Context(), aStep(), &fakeGuard{}); got.Why != "alice may not" {
		t.Errorf("got %+v", got)
	}
}

// newRuleJob is a job that finishes the uninstall of a release, which is marked.
func newRuleJob(t *testing.T, f *fakeHelm, change func(c *v1alpha1.Cleaner)) *RuleJob {
	t.Helper()
	job := newTestJob(t, alice, change)
	c, err := job.FindCleaner(t.Context(), job.Key)
	if err != nil {
		t.Fatal(err)
	}
	mark := signedrecords.RuleMark{Rule: "old", Decides: "v1:x", Digest: "v1:d", Record: "record", Revision: 3}
	signed, err := signedrecords.SignRuleMark(job.Ring, c, mark)
	if err != nil {
		t.Fatal(err)
	}
	f.release.State, f.release.Mark = observed.ReleaseUninstalling, signed
	return &RuleJob{
		Environment: job.Environment, Helm: f, Key: job.Key, Owner: c, Ring: job.Ring, Author: alice, Decides: "v1:x", Rules: rulesOf(v1alpha1.HelmUninstallAction{Timeout: "90s"}),
		Review: newStarter(t, f).Review, Releases: []Begun{{RuleMark: mark, Namespace: "shop", Release: "web"}}, Ended: make(chan []Attempt, 1), Log: logr.Discard(),
	}
}

// TestWhatHasBegunIsFinished shows what an attempt to finish an uninstall comes to.
func TestWhatHasBegunIsFinished(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(c *v1alpha1.Cleaner)
		given  func(j *RuleJob, f *fakeHelm)
		want   Attempt
		did    []string
		hooks  bool // they are run
	}{
		"Done":   {reason: "all goes", want: Attempt{Ended: true, Uninstalled: true, Progressed: true, Deleted: 2}, did: []string{"delete a", "delete b"}, hooks: true},
		"Edited": {reason: "what has begun is finished, without hooks", given: func(j *RuleJob, _ *fakeHelm) { j.Decides = "v1:y" }, want: Attempt{Ended: true, Uninstalled: true, Progressed: true, Deleted: 2}, did: []string{"delete a", "delete b"}},
		"NoRule": {reason: "nor with the rule", given: func(j *RuleJob, _ *fakeHelm) { j.Rules = nil }, want: Attempt{Ended: true, Uninstalled: true, Progressed: true, Deleted: 2}, did: []string{"delete a", "delete b"}},
		"Gone": {reason: "another client was faster", given: func(_ *RuleJob, f *fakeHelm) {
			f.release = helm.Release{Release: observed.Release{State: observed.ReleaseGone}}
		}, want: Attempt{Ended: true, Gone: true}},
		"Upgraded": {reason: "another revision was not decided on", given: func(_ *RuleJob, f *fakeHelm) { f.release.Revision, f.release.UID = 4, "newer" }, want: Attempt{Ended: true, Why: "upgraded"}},
		"Unmarked": {reason: "it was never marked, or rolled back", given: func(_ *RuleJob, f *fakeHelm) { f.release.State = observed.ReleaseDeployed }, want: Attempt{Ended: true, Why: "does not have the mark"}},
		"Unsure": {
			reason: "its mark may be on the way", given: func(j *RuleJob, f *fakeHelm) { f.release.State, j.Releases[0].since = observed.ReleaseDeployed, now },
			want: Attempt{Reason: v1alpha1.ReasonUninstalling, Why: "it is unknown whether its uninstall has begun"},
		},
		"Replaced": {reason: "another release has its name", given: func(_ *RuleJob, f *fakeHelm) { f.ends = helm.Outcome{State: helm.Replaced} }, want: Attempt{Ended: true, Why: "installed again"}, hooks: true},
		"Copied":   {reason: "the mark is of another Secret", given: func(j *RuleJob, f *fakeHelm) { f.release.UID, j.Releases[0].Record = "copy", "copy" }, want: Attempt{Ended: true, Why: "does not have the mark"}},
		"Forged":   {reason: "anybody may write an annotation", given: func(_ *RuleJob, f *fakeHelm) { f.release.Mark = "old/v1:x/v1:d/x.y" }, want: Attempt{Ended: true, Why: "does not have the mark"}},
		"Unread":   {reason: "it is tried again", given: func(_ *RuleJob, f *fakeHelm) { f.unread = errors.New("no connection") }, want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "no connection"}},
		"Rights":   {reason: "never for an author who may not", given: func(j *RuleJob, f *fakeHelm) { s := newStarter(t, f); refuses(s); j.Review = s.Review }, want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "alice may not"}},
		"Protected": {
			reason: "not while it is blocked", given: func(_ *RuleJob, f *fakeHelm) {
				f.release.Blocked, f.release.Detail = v1alpha1.ReasonProtected, "it is protected"
			}, want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "it is protected"},
		},
		"Suspended": {reason: "never against suspend", change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "the Cleaner is suspended"}},
		"DryRun":    {reason: "nor in a dry run", change: func(c *v1alpha1.Cleaner) { c.Spec.Mode = v1alpha1.ModeDryRun }, want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "the Cleaner is suspended"}},
		"Deleted": {
			reason: "nor when the Cleaner is gone", change: func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)} },
			want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "the Cleaner was deleted"},
		},
		"JustDeleted": {
			reason: "nor when it was just deleted, and something holds it", change: func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: now} },
			want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "the Cleaner was deleted"},
		},
		"NotOwner":      {reason: "nor by a process that does not own it", given: func(j *RuleJob, _ *fakeHelm) { j.Lease = leading(false) }, want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: cleanerstore.ErrNotOwner.Error()}},
		"AnotherAuthor": {reason: "who is reviewed first", given: func(j *RuleJob, _ *fakeHelm) { j.Author = author.Author{Username: "bob"} }, want: Attempt{Reason: v1alpha1.ReasonUninstalling}},
		"Terminating": {
			reason: "it is looked at again", given: func(_ *RuleJob, f *fakeHelm) {
				f.ends = helm.Outcome{State: helm.Terminating, Remaining: []helm.Remaining{{Ref: observed.Ref{Kind: "ConfigMap", Namespace: "shop", Name: "a"}, Finalizers: []string{"x/y"}}}}
			},
			want: Attempt{Reason: v1alpha1.ReasonUninstalling, Why: "1 objects of the release still exist, such as ConfigMap shop/a (x/y)"}, hooks: true,
		},
		"HookRunning": {
			reason: "as long as it may take", given: func(_ *RuleJob, f *fakeHelm) {
				f.ends = helm.Outcome{State: helm.HookRunning, Hook: "pre-delete hook Job shop/a"}
			},
			want: Attempt{Reason: v1alpha1.ReasonUninstalling, Why: "pre-delete hook Job shop/a has not finished yet"}, hooks: true,
		},
		"HookFailed": {
			reason: "it runs again", given: func(_ *RuleJob, f *fakeHelm) {
				f.failed = &helm.HookError{Hook: "pre-delete hook Job shop/a", Why: "it failed"}
			},
			want: Attempt{Reason: v1alpha1.ReasonUninstallFailed, Why: "pre-delete hook Job shop/a failed: it failed"}, hooks: true,
		},
		"Taken": {reason: "another client has taken it", given: func(_ *RuleJob, f *fakeHelm) { f.ends = helm.Outcome{State: helm.Pending} }, want: Attempt{Ended: true, Why: "being installed, upgraded"}, hooks: true},
	} {
		t.Run(name, func(t *testing.T) {
			f, woken := &fakeHelm{release: aRelease()}, 0
			j := newRuleJob(t, f, tc.change)
			j.Wake = func(types.NamespacedName) { woken++ }
			if tc.given != nil {
				tc.given(j, f)
			}
			ended := make(chan []Attempt, 1)
			j.Ended = ended
			j.Do(t.Context())
			got := (<-ended)[0]
			if got.Ended != tc.want.Ended || got.Uninstalled != tc.want.Uninstalled || got.Gone != tc.want.Gone || got.Progressed != tc.want.Progressed || got.Deleted != tc.want.Deleted ||
				!strings.Contains(got.Why, tc.want.Why) || tc.want.Why == "" && got.Why != "" || !got.Ended && got.Reason != tc.want.Reason || woken != 1 {
				t.Errorf("%s: got %+v", tc.reason, got)
			}
			if diff := cmp.Diff(append([]string{"read"}, tc.did...), f.did); diff != "" {
				t.Errorf("%s: it did (-want +got):\n%s", tc.reason, diff)
			}
			for _, want := range f.wants {
				if want.DisableHooks == tc.hooks && tc.want.Why != "the Cleaner is suspended" && len(tc.did) > 0 {
					t.Errorf("%s: hooks are left out: %t", tc.reason, want.DisableHooks)
				}
				if want.Begun != f.release.Mark || want.Mark != f.release.Mark || want.Digest != "v1:d" || want.Timeout > time.Second || tc.hooks && want.HookTimeout != 90*time.Second {
					t.Errorf("%s: it asks for %+v", tc.reason, want)
				}
			}
		})
	}
}

// A panic ends one attempt: the others are made, and the Cleaner is told of all.
func TestAPanicEndsOneAttempt(t *testing.T) {
	f := &fakeHelm{release: aRelease()}
	j := newRuleJob(t, f, nil)
	review, calls := j.Review, 0
	j.Review = func(ctx context.Context, r *observed.Release, disabled bool) ([]rights.Right, identity.Refusal) {
		if calls++; calls == 1 {
			panic("odd")
		}
		return review(ctx, r, disabled)
	}
	j.Releases = append(j.Releases, j.Releases[0])
	ended := make(chan []Attempt, 1)
	j.Ended = ended
	j.Do(t.Context())
	if got := <-ended; len(got) != 2 || !strings.Contains(got[0].Why, "odd") || got[0].Reason != v1alpha1.ReasonUninstallFailed || !got[1].Uninstalled {
		t.Errorf("got %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if j.Do(ctx); len(<-ended) != 0 {
		t.Error("an attempt begins after the process was told to stop")
	}
}
