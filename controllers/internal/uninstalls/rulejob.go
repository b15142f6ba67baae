// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package uninstalls

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

// RuleJob finishes uninstalls that rules of a Cleaner have begun, one after the other, for as long as a review of the author serves. Those that it does
// not reach are due again. What has begun is finished also after an edit, but never for an author who may not, and never against suspend.
type RuleJob struct {
	Environment
	Helm     Uninstaller
	Key      types.NamespacedName
	ReadSlot helm.ReadSlot
	// Owner is the Cleaner, and Ring signs for it and verifies who its author is.
	Owner v1alpha1.Owner
	Ring  signing.Ring
	// Author is the author whom Review asks about.
	Author author.Author
	Review func(ctx context.Context, release *observed.Release, disableHooks bool) ([]rights.Right, identity.Refusal)
	// Decides is the fingerprint of the spec as it is now, and Rules are its rules.
	Decides string
	Rules   []v1alpha1.Rule
	// Releases are those that are due.
	Releases []Begun
	Ended    chan<- []Attempt
	Log      logr.Logger
}

// Do tries to finish the uninstalls, and says what that came to, even after a panic: the Cleaner waits for it.
func (j *RuleJob) Do(ctx context.Context) {
	ctx, cancel := context.WithTimeoutCause(ctx, reviewServes, errStale)
	defer cancel()
	var attempts []Attempt
	for i := range j.Releases {
		if ctx.Err() != nil {
			break
		}
		a := Attempt{Begun: j.Releases[i], Reason: v1alpha1.ReasonUninstallFailed}
		if p := contain.CatchPanic(func() { a = j.finishRelease(ctx, j.Releases[i]) }); p != nil {
			a.Why = sanitize.CleanText(p.Error())
		}
		attempts = append(attempts, a)
	}
	j.Ended <- attempts
	j.Wake(j.Key)
}

// finishRelease tries to finish one uninstall. It does not wait for hooks to end or objects to go: the release is looked at again.
func (j *RuleJob) finishRelease(ctx context.Context, b Begun) Attempt {
	a := Attempt{Begun: b, Reason: v1alpha1.ReasonUninstallFailed}
	rel, mark, ok := j.readBegun(ctx, &a)
	if !ok {
		return a
	}
	a.RuleMark = mark
	uninstall, disabled := j.findOptions(mark)
	reviewedAt := j.Clock.Now()
	reviewed, refused := j.Review(ctx, &rel.Release, disabled)
	if refused.IsRefusal() {
		a.Why = sanitize.CleanText(refused.AsPhrase())
		return a
	}
	want := helm.UninstallRequest{
		Namespace: b.Namespace, Name: b.Release, Revision: rel.Revision, UID: rel.UID, FirstDeployed: rel.FirstDeployed, Digest: mark.Digest,
		Rights: reviewed, Begun: rel.Mark, DisableHooks: disabled, KeepHistory: mark.KeepHistory, Self: selfOf(j.Owner),
	}
	signed, err := signedrecords.SignRuleMark(j.Ring, j.Owner, mark)
	if err != nil {
		a.Why = sanitize.CleanText(err.Error())
		return a
	}
	want.Mark = signed
	SetTimeouts(&want, &v1alpha1.Helm{Timeout: uninstall.Timeout}, true)
	job := &Job{
		Environment: j.Environment, Key: j.Key, UID: j.Owner.GetUID(), Decides: mark.Decides, Rule: mark.Rule, Want: want,
		ReviewedAt: reviewedAt, Author: j.Author, Ring: j.Ring, Log: j.Log,
	}
	watch := startStopwatch(j.Clock)
	out, err := j.Helm.Uninstall(ctx, watch.skipWaits(j.ReadSlot), want, &uninstallGuard{Job: job, ctx: ctx})
	if len(out.Created)+len(out.Deleted) == 0 {
		err = watch.explainCut(err)
	}
	j.noteOutcome(&a, out, err)
	return a
}

// readBegun reads a release whose uninstall was begun, and its mark. If nothing of it is done in this attempt, it is not ok, and a says why.
func (j *RuleJob) readBegun(ctx context.Context, a *Attempt) (rel helm.Release, mark signedrecords.RuleMark, ok bool) {
	watch := startStopwatch(j.Clock)
	rel, err := j.Helm.ReadRelease(ctx, watch.skipWaits(j.ReadSlot), a.Namespace, a.Release)
	err = watch.explainCut(err)
	mark, ours := signedrecords.ReadRuleMark(j.Ring, j.Owner, rel.UID, rel.Revision, rel.Mark)
	switch {
	case err != nil:
		j.noteOutcome(a, helm.Outcome{}, err)
	case rel.State == observed.ReleaseGone:
		a.Ended, a.Gone = true, true
	case rel.UID != a.Record, rel.Revision != a.Revision:
		a.Ended, a.Why = true, "the release was upgraded or installed again, or its release Secret was created again"
	case rel.State == observed.ReleaseDeployed && monotime.ElapsedTime(a.since, j.Clock.Now()) < markLands: // the answer to its mark may be lost
		a.Reason, a.Why = v1alpha1.ReasonUninstalling, "it is unknown whether its uninstall has begun"
	case rel.State != observed.ReleaseUninstalling, !ours: // or it was never marked
		a.Ended, a.Why = true, "the release does not have the mark of this uninstall"
	case rel.Blocked != "":
		a.Why = sanitize.CleanText(rel.Detail)
	default:
		return rel, mark, true
	}
	return rel, mark, false
}

// findOptions returns how the rule of a mark uninstalls releases. After an edit of the spec, hooks are not run: they may not be what its author
// wants now.
func (j *RuleJob) findOptions(mark signedrecords.RuleMark) (uninstall v1alpha1.HelmUninstallAction, disableHooks bool) {
	found := findUninstall(j.Rules, mark.Rule)
	if found == nil {
		return v1alpha1.HelmUninstallAction{}, true
	}
	return *found, found.DisableHooks || mark.Decides != j.Decides
}

// noteOutcome notes what an uninstall came to.
func (j *RuleJob) noteOutcome(a *Attempt, out helm.Outcome, err error) {
	a.Actions, a.Deleted, a.Kept = listActions(a.Rule, out, j.Clock), len(out.Deleted), len(out.Kept)
	a.Progressed = len(out.Created)+len(out.Deleted) > 0
	switch {
	case err != nil && isCut(err): // the next attempt continues
		a.Reason = v1alpha1.ReasonUninstalling
	case err != nil:
		a.Why = sanitize.CleanText(err.Error())
	case out.State == helm.Done:
		a.Ended, a.Uninstalled, a.Reason = true, true, ""
	case out.State == helm.Replaced:
		a.Ended, a.Why = true, "it was installed again meanwhile"
	case out.State == helm.Upgraded, out.State == helm.Pending:
		a.Ended, a.Why = true, describeState(out)
	default: // hooks are running, or objects are terminating
		a.Reason, a.Why = v1alpha1.ReasonUninstalling, describeState(out)
	}
}

// TellAttempts reports what attempts to finish uninstalls came to. A release that another client has taken over waits, as after a failure: maybe
// another Cleaner wants it too.
func TellAttempts(journal *actionlog.Journal, log logr.Logger, failures backoff.Failures, attempts []Attempt, now time.Time) {
	for i := range attempts {
		a := &attempts[i]
		journal.RememberActions(a.Actions...)
		switch {
		case a.Uninstalled:
			actionlog.TellUninstalled(journal, a.Rule, a.Name(), a.Kept)
		case a.Gone:
			journal.NoteEvent(corev1.EventTypeNormal, v1alpha1.EventReasonUninstalled, "HelmUninstall", "%s: %s is gone", a.Rule, a.Name())
		case a.Ended:
			failures.RecordFailure(a.Record, v1alpha1.ReasonUninstallFailed, a.Why, now)
			journal.NoteEvent(corev1.EventTypeWarning, v1alpha1.ReasonUninstallFailed, "HelmUninstall", "%s: the uninstall of %s has ended: %s", a.Rule, a.Name(), a.Why)
		}
		log.Info("Tried to finish an uninstall", "rule", a.Rule, "release", a.Namespace+"/"+a.Release, "uninstalled", a.Uninstalled, "gone", a.Gone, "ended", a.Ended, "why", a.Why)
	}
}
