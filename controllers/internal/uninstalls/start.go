// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstalls

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

// Uninstaller reads releases and uninstalls them. helm.Uninstaller is one.
type Uninstaller interface {
	ReadRelease(ctx context.Context, slot helm.ReadSlot, namespace, name string) (helm.Release, error)
	Uninstall(ctx context.Context, slot helm.ReadSlot, want helm.UninstallRequest, guard helm.Guard) (helm.Outcome, error)
}

// takeOver is how long after another client has begun to uninstall a release a rule waits before it does so itself: they would hinder each other.
const takeOver = time.Hour

// Starter begins uninstalls for the rules of a Cleaner: it marks a release as uninstalling, and deletes nothing. What has begun is finished by a
// RuleJob.
type Starter struct {
	Helm Uninstaller
	Slot helm.ReadSlot
	// Owner is the Cleaner, and Ring signs for it.
	Owner v1alpha1.Owner
	Ring  signing.Ring
	// Decides is the fingerprint of the spec.
	Decides string
	// Rules are those of the spec.
	Rules []v1alpha1.Rule
	Clock clock.PassiveClock
	// Review asks whether the author may have a release uninstalled, as Reviewer.ReviewRelease does.
	Review func(ctx context.Context, release *observed.Release, disableHooks bool) ([]rights.Right, identity.Refusal)
}

// errLater ends an uninstall as soon as the release is marked. It is no failure.
var errLater = errors.New("the rest is done later")

// startGuard lets a release be marked, if that may be, and nothing else be done.
type startGuard struct {
	may func() error
	// refused is why it may not be marked, sent says that the mark may have been written, and marked that it was.
	refused      error
	sent, marked bool
}

// MayStart is asked before the release is marked.
func (g *startGuard) MayStart() error {
	g.refused = g.may()
	g.sent = g.refused == nil
	return g.refused
}

// MayDelete is asked before a deletion, when the release is marked.
func (g *startGuard) MayDelete(observed.Ref) error { return g.stop() }

// MayRunHook is asked before an object of a hook is created, when the release is marked.
func (g *startGuard) MayRunHook(observed.Ref) error { return g.stop() }

// MayNote is asked before something is noted in the record, when the release is marked.
func (g *startGuard) MayNote(observed.Ref) error { return g.stop() }

func (g *startGuard) stop() error {
	g.marked = true
	return errLater
}

// StartStep begins the uninstall that a step asks for, of the release whose newest revision is recorded in the step's object at a version. begun is
// not nil if it has begun, or may have.
func (s *Starter) StartStep(ctx context.Context, step *plan.Step, version string, guard actuate.Guard) (out actuate.Outcome, begun *Begun) {
	if version == "" { // the answer to an earlier step did not say it
		return NewOutcome(life.AnswerConflict, errors.New("its resourceVersion must be read first")), nil
	}
	waiting, end := guard.LimitWait(ctx)
	defer end()
	rel, reviewed, refused := s.examineRelease(waiting, step)
	if refused != nil {
		return *refused, nil
	}
	release, _, _ := step.Object.ReadRevision()
	mark := signedrecords.RuleMark{Rule: step.Rule, Decides: s.Decides, Digest: rel.Digest, Record: rel.UID, Revision: rel.Revision}
	if uninstall := findUninstall(s.Rules, step.Rule); uninstall != nil {
		mark.KeepHistory = uninstall.KeepHistory
	}
	begun = &Begun{RuleMark: mark, Namespace: step.Object.Namespace, Release: release}
	if known, ours := signedrecords.ReadRuleMark(s.Ring, s.Owner, rel.UID, rel.Revision, rel.Mark); ours && rel.State == observed.ReleaseUninstalling {
		begun.RuleMark = known
		return actuate.NewDone(""), begun
	}
	signed, err := signedrecords.SignRuleMark(s.Ring, s.Owner, mark)
	if err != nil {
		return NewOutcome(life.AnswerRefused, err), nil
	}
	want := helm.UninstallRequest{
		Namespace: begun.Namespace, Name: release, Revision: rel.Revision, UID: rel.UID, ResourceVersion: version, FirstDeployed: rel.FirstDeployed, Digest: rel.Digest,
		Rights: reviewed, Mark: signed, DisableHooks: s.disablesHooks(step.Rule), KeepHistory: mark.KeepHistory, Self: selfOf(s.Owner),
	}
	if err := guard.WaitForPace(waiting); err != nil {
		return NewOutcome(life.AnswerUnsent, err), nil
	}
	asked := &startGuard{may: func() error {
		if err := guard.MaySend(ctx); err != nil {
			return err
		}
		guard.LogIntent(step, version)
		return nil
	}}
	got, err := s.Helm.Uninstall(waiting, s.Slot, want, asked)
	return judgeStart(asked, got, err, begun)
}

// judgeStart says what came of the attempt to begin an uninstall.
func judgeStart(asked *startGuard, got helm.Outcome, err error, begun *Begun) (actuate.Outcome, *Begun) {
	_, blocked := errors.AsType[*helm.BlockedError](err)
	switch {
	case asked.marked:
		return actuate.NewDone(""), begun
	case asked.refused != nil:
		return NewOutcome(life.AnswerUnsent, asked.refused), nil
	case asked.sent && err == nil && (got.State == helm.Terminating || got.State == helm.HookRunning): // no request had to be asked about
		return actuate.NewDone(""), begun
	case asked.sent && err == nil: // another client has changed it since: it may bear the mark
		return NewOutcome(life.AnswerLost, fmt.Errorf("the release is %s", got.State)), begun
	case err == nil: // it is another revision or another version, or gone: that is decided again
		return NewOutcome(life.AnswerConflict, fmt.Errorf("the release is %s", got.State)), nil
	case apierrors.IsConflict(err):
		return NewOutcome(life.AnswerConflict, err), nil
	case asked.sent:
		return NewOutcome(life.AnswerLost, err), begun
	case blocked:
		return NewOutcome(life.AnswerRefused, err), nil
	case isCut(err):
		return NewOutcome(life.AnswerUnsent, err), nil
	default:
		return NewOutcome(life.AnswerRefused, err), nil
	}
}

// isCut says that something ended because its time was over, or the operator stops.
func isCut(err error) bool {
	return errors.Is(err, errStale) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, helm.ErrTooSlow)
}

// RehearseStep says what would come of a step, and changes nothing.
func (s *Starter) RehearseStep(ctx context.Context, step *plan.Step, guard actuate.Guard) actuate.Outcome {
	waiting, end := guard.LimitWait(ctx)
	defer end()
	if _, _, refused := s.examineRelease(waiting, step); refused != nil {
		return *refused
	}
	return actuate.NewDone(step.Object.ResourceVersion)
}

// examineRelease reads the release of a step live, and asks whether it may be uninstalled, and for the author. If not, refused is the outcome.
func (s *Starter) examineRelease(ctx context.Context, step *plan.Step) (rel helm.Release, reviewed []rights.Right, refused *actuate.Outcome) {
	rel, kind, err := s.readRelease(ctx, step)
	if err != nil {
		return rel, nil, new(NewOutcome(kind, err))
	}
	disabled := s.disablesHooks(step.Rule)
	if rel.HasHooks && rel.HooksBlocked != "" && !disabled {
		return rel, nil, new(NewOutcome(life.AnswerRefused, fmt.Errorf("release %q: %s", rel.Name, rel.HooksBlocked)))
	}
	reviewed, lacks := s.Review(ctx, &rel.Release, disabled)
	if lacks.IsRefusal() {
		return rel, nil, new(NewOutcome(life.AnswerRefused, errors.New(lacks.AsPhrase())))
	}
	return rel, reviewed, nil
}

// readRelease reads the release of a step live. An error says why its uninstall must not begin now, and kind what that is for the step.
func (s *Starter) readRelease(ctx context.Context, step *plan.Step) (rel helm.Release, kind life.AnswerKind, err error) {
	release, revision, ok := step.Object.ReadRevision()
	if !ok || !step.Object.OfRelease || step.Object.UID == "" {
		return rel, life.AnswerRefused, fmt.Errorf("cannot uninstall %s: it is not the record of a release", step.Object.Ref)
	}
	watch := startStopwatch(s.Clock)
	if rel, err = s.Helm.ReadRelease(ctx, watch.skipWaits(s.Slot), step.Object.Namespace, release); err != nil {
		kind, err = judgeRead(err, release, watch.elapsed())
		return rel, kind, err
	}
	switch {
	case rel.State == observed.ReleaseGone:
		return rel, life.AnswerConflict, fmt.Errorf("release %q is gone", release)
	case rel.Revision > revision: // its target hides newer revisions, or the watch is late
		return rel, life.AnswerRefused, fmt.Errorf("revision %d of release %q is not its newest, which is %d", revision, release, rel.Revision)
	case rel.UID != step.Object.UID, rel.Revision != revision:
		return rel, life.AnswerConflict, fmt.Errorf("the newest revision of release %q is %d, and not %d as it was decided on", release, rel.Revision, revision)
	case rel.Blocked != "":
		return rel, life.AnswerRefused, errors.New(rel.Detail)
	}
	if wait := s.waitForOthers(&rel); wait > 0 {
		return rel, life.AnswerRefused, fmt.Errorf("another client, or another Cleaner, has begun to uninstall it at %s: it is taken over if it is still there in %s",
			rel.Modified.UTC().Format(time.RFC3339), wait.Round(time.Second))
	}
	return rel, life.AnswerDone, nil
}

// judgeRead says what it is for a step that its release could not be read.
func judgeRead(err error, release string, took time.Duration) (life.AnswerKind, error) {
	switch {
	case isCut(err) && took >= slowTry && !errors.Is(err, context.Canceled): // it would be as slow in the next pass
		return life.AnswerRefused, fmt.Errorf("cannot read release %q: %w", release, helm.ErrTooSlow)
	case isCut(err):
		return life.AnswerUnsent, err
	default:
		return life.AnswerRefused, err
	}
}

// waitForOthers is how long the rule waits for another client that has begun to uninstall a release; zero if none has, or not lately.
func (s *Starter) waitForOthers(rel *helm.Release) time.Duration {
	if rel.State != observed.ReleaseUninstalling {
		return 0
	}
	if _, ours := signedrecords.ReadRuleMark(s.Ring, s.Owner, rel.UID, rel.Revision, rel.Mark); ours {
		return 0
	}
	age := s.Clock.Now().Sub(rel.Modified)
	if age <= -takeOver || age >= takeOver { // it says what it likes
		return 0
	}
	return takeOver - max(age, 0)
}

// disablesHooks says that a rule uninstalls releases without their hooks.
func (s *Starter) disablesHooks(rule string) bool {
	uninstall := findUninstall(s.Rules, rule)
	return uninstall == nil || uninstall.DisableHooks
}

// findUninstall returns how a rule uninstalls releases; nil if there is no such rule.
func findUninstall(rules []v1alpha1.Rule, name string) *v1alpha1.HelmUninstallAction {
	for i := range rules {
		if rules[i].Name == name {
			return rules[i].FindUninstall()
		}
	}
	return nil
}

// NewOutcome is the outcome of a step that was not carried out, or may not have been.
func NewOutcome(kind life.AnswerKind, err error) actuate.Outcome {
	return actuate.Outcome{Answer: life.Answer{Kind: kind, Why: err.Error()}}
}

// selfOf is the Cleaner as an object that is not deleted.
func selfOf(c v1alpha1.Owner) observed.Ref {
	return observed.Ref{
		Resource: v1alpha1.GroupVersion.WithResource(v1alpha1.ResourceOf(c).Resource), Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID(),
	}
}
