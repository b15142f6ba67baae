// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package uninstalls carries out uninstalls of releases as jobs, and asks before each request whether it may. When one begins is decided
// elsewhere.
package uninstalls

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/internal/cleanerstore"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/signing"
)

const (
	// defaultHelmTimeout is helm.timeout where a spec gives none.
	defaultHelmTimeout = 5 * time.Minute
	// maxHelmWait is how long an attempt may occupy a place of the pool to wait for hooks to end and objects to go: the next attempt continues,
	// after the others that wait for a place. It only looks, for laterHelmWait: so what hangs hardly takes a place.
	maxHelmWait   = 30 * time.Second
	laterHelmWait = time.Second
	// reviewServes is how long an uninstall may run before the rights of its author are reviewed again: an attempt that takes longer ends.
	reviewServes = time.Minute
	// slowTry is how long an attempt without progress may last before it counts as a failure.
	slowTry = 5 * time.Second
)

// errStale ends an uninstall that has waited or run for so long that its confirmation and the rights of its author are too old. It is no
// failure: both are checked again, and it gets a place again.
var errStale = errors.New("the confirmation is too old")

// Environment is what jobs ask about and tell.
type Environment struct {
	Own         *clients.Set // the operator's
	Clock       clock.PassiveClock
	Lease       interface{ Fresh() bool }
	FinishGrace time.Duration
	// FindCleaner returns a Cleaner as the watch knows it. The caller must not change it.
	FindCleaner func(ctx context.Context, key types.NamespacedName) (v1alpha1.Owner, error)
	// Fingerprint returns the fingerprint of what a Cleaner does now.
	Fingerprint func(ctx context.Context, c v1alpha1.Owner) (string, error)
	// SuspectClock says that the clock is not trusted; empty if it is.
	SuspectClock func() string
	// Wake asks for a pass over a Cleaner.
	Wake func(key types.NamespacedName)
}

// Job uninstalls the release of one run.
type Job struct {
	Environment
	Clients *clients.Set
	Key     types.NamespacedName
	UID     types.UID
	Run     int64
	// Decides is the fingerprint that the run was committed with.
	Decides string
	Want    helm.UninstallRequest
	// ReadSlot is waited for before a record is read.
	ReadSlot helm.ReadSlot
	// Start lets the uninstall begin; else one that was begun is finished.
	Start       bool
	ConfirmedAt time.Time
	// ReviewedAt is when the author was found to be allowed to do it. Ring verifies who it is now.
	ReviewedAt time.Time
	Author     author.Author
	Ring       signing.Ring
	Ended      chan<- End
	Log        logr.Logger
	// Rule is the rule that has begun the uninstall; empty: a run has.
	Rule string
}

// End is how an uninstall ended.
type End struct {
	Run         int64 // whose uninstall it was
	Uninstalled bool  // it came to its end
	Why         string
	Actions     []v1alpha1.Action
}

// SetTimeouts bounds a job: hooks by helm.timeout of the spec, if there is one, and how long this attempt may occupy its place.
func SetTimeouts(want *helm.UninstallRequest, spec *v1alpha1.Helm, waits bool) {
	want.HookTimeout = defaultHelmTimeout
	if spec != nil {
		if timeout, err := spec.Timeout.Parse(defaultHelmTimeout); err == nil {
			want.HookTimeout = timeout
		}
	}
	want.Timeout = min(want.HookTimeout, maxHelmWait)
	if waits {
		want.Timeout = min(want.Timeout, laterHelmWait)
	}
}

func (j *Job) uninstallRelease(ctx context.Context) (helm.Outcome, error) {
	if missing := j.Clients.DescribeMissing(ctx, j.Own.Live); missing != "" {
		return helm.Outcome{}, errors.New(missing)
	}
	return j.Clients.Helm.Uninstall(ctx, j.ReadSlot, j.Want, &uninstallGuard{Job: j, ctx: ctx})
}

// Do uninstalls, and says how that ended, even by a panic: the Cleaner waits for it.
func (j *Job) Do(ctx context.Context) {
	end := End{Run: j.Run}
	if p := contain.CatchPanic(func() { end = j.uninstallInTime(ctx) }); p != nil {
		end.Why = sanitize.CleanText(p.Error())
	}
	j.Ended <- end
	j.Wake(j.Key)
}

// uninstallInTime uninstalls, for no longer than the review of the author is valid, and says how that ended. An attempt that was too slow to do anything
// has failed: the next one waits, and others get its slot.
func (j *Job) uninstallInTime(ctx context.Context) End {
	began := j.Clock.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, reviewServes-monotime.ElapsedTime(j.ReviewedAt, began), errStale)
	defer cancel()
	out, err := j.uninstallRelease(ctx)
	_, failed := errors.AsType[*helm.HookError](err)
	if err != nil && !failed && errors.Is(context.Cause(ctx), errStale) {
		err = errStale
	}
	took := monotime.ElapsedTime(began, j.Clock.Now())
	if errors.Is(err, errStale) && took >= slowTry && len(out.Created)+len(out.Deleted) == 0 {
		err = describeSlow(took)
	}
	return j.describeEnd(out, err)
}

// stopwatch measures how long something takes, without its waits for a slot.
type stopwatch struct {
	clock  clock.PassiveClock
	began  time.Time
	waited time.Duration
}

func startStopwatch(c clock.PassiveClock) *stopwatch { return &stopwatch{clock: c, began: c.Now()} }

// skipWaits returns a slot whose wait does not count.
func (w *stopwatch) skipWaits(slot helm.ReadSlot) helm.ReadSlot {
	if slot == nil {
		return nil
	}
	return func(ctx context.Context) (func(), error) {
		asked := w.clock.Now()
		defer func() { w.waited += monotime.ElapsedTime(asked, w.clock.Now()) }()
		return slot(ctx)
	}
}

func (w *stopwatch) elapsed() time.Duration {
	return max(0, monotime.ElapsedTime(w.began, w.clock.Now())-w.waited)
}

// explainCut says that an attempt was too slow, if it was cut for that; else the error is what it was.
func (w *stopwatch) explainCut(err error) error {
	if took := w.elapsed(); err != nil && isCut(err) && took >= slowTry {
		return describeSlow(took)
	}
	return err
}

// describeSlow is the error of an attempt that took so long and did nothing.
func describeSlow(took time.Duration) error {
	return fmt.Errorf("an attempt made no progress in %s: the API server is too slow, or the release is too large", took.Round(time.Second))
}

// describeEnd returns the End for an outcome.
func (j *Job) describeEnd(out helm.Outcome, err error) End {
	end := End{Run: j.Run, Uninstalled: out.State == helm.Done, Actions: listActions("helm", out, j.Clock)}
	switch {
	case errors.Is(err, errStale):
	case err != nil:
		end.Why = sanitize.CleanText(err.Error())
	default:
		end.Why = describeState(out)
	}
	return end
}

// listActions lists what an uninstall has done for a rule, for the status.
func listActions(rule string, out helm.Outcome, c clock.PassiveClock) (actions []v1alpha1.Action) {
	note := func(ref observed.Ref, result string) {
		actions = append(actions, v1alpha1.Action{
			Object: ref.String(), UID: string(ref.UID), Rule: rule, Action: "helmUninstall", Time: actionlog.AtSecond(c), Result: result,
		})
	}
	for _, ref := range out.Created {
		note(ref, "created for a hook")
	}
	for _, ref := range out.Deleted {
		note(ref, "deleted")
	}
	for _, k := range out.Kept {
		note(k.Ref, "kept: "+sanitize.CleanText(k.Because))
	}
	return actions
}

// describeState says in words what keeps an uninstall from its end; empty if nothing does.
func describeState(out helm.Outcome) string {
	switch {
	case out.State == helm.Upgraded:
		return "the release was upgraded, or its release Secret was modified"
	case out.State == helm.Pending:
		return "the release is being installed, upgraded or rolled back"
	case out.State == helm.HookRunning:
		return sanitize.CleanText(out.Hook + " has not finished yet")
	case out.State == helm.Terminating && len(out.Remaining) > 0:
		return sanitize.CleanText(fmt.Sprintf("%d objects of the release still exist, such as %s", len(out.Remaining), out.Remaining[0]))
	}
	return ""
}

// uninstallGuard is asked before each request of an uninstall that changes something. What the guard of a batch asks in controllers, it asks
// too: that this process owns the Cleaner, that it is not suspended, that the clock is trusted. But what has begun is finished after an edit, and
// for a run after a deletion of the Cleaner while it is held, and each refusal is said to people.
type uninstallGuard struct {
	*Job
	ctx context.Context
}

// MayStart is asked before the release is marked as uninstalling.
func (j *uninstallGuard) MayStart() error {
	if !j.Start {
		return errors.New("the release no longer has the mark of this uninstall")
	}
	if monotime.ElapsedTime(j.ConfirmedAt, j.Clock.Now()) >= life.ConfirmationServes {
		return errStale
	}
	c, err := j.knownCleaner()
	if err != nil {
		return err
	}
	fingerprint, err := j.Fingerprint(j.ctx, c)
	switch {
	case err != nil:
		return err
	case c.GetDeletionTimestamp() != nil:
		return errors.New("the Cleaner was deleted")
	case fingerprint != j.Decides:
		return errors.New("the spec was edited")
	}
	return nil
}

// MayDelete is asked before each deletion in a release that is uninstalling.
func (j *uninstallGuard) MayDelete(ref observed.Ref) error { return j.mayFinish("delete", ref) }

// MayRunHook is asked before what hooks of a release that is uninstalling need is created.
func (j *uninstallGuard) MayRunHook(ref observed.Ref) error { return j.mayFinish("runHook", ref) }

// MayNote is asked before something is noted in the record of a release that is uninstalling.
func (j *uninstallGuard) MayNote(ref observed.Ref) error { return j.mayFinish("note", ref) }

// mayFinish is asked before each request that changes something of a release whose uninstall has begun. The uninstall is finished
// whatever the spec says now; but never for an author who was not reviewed, never against suspend, and after a deletion only for a run, while
// the Cleaner is held.
func (j *uninstallGuard) mayFinish(verb string, ref observed.Ref) error {
	c, err := j.knownCleaner()
	if err != nil {
		return err
	}
	now := j.Clock.Now()
	switch {
	case c.GetDeletionTimestamp() != nil && (j.Rule != "" || !now.Before(c.GetDeletionTimestamp().Add(j.FinishGrace))):
		return errors.New("the Cleaner was deleted")
	case monotime.ElapsedTime(j.ReviewedAt, now) >= reviewServes:
		return errStale
	}
	if who, _ := author.Read(j.Ring, c); !reflect.DeepEqual(who.Author, j.Author) {
		return errStale
	}
	j.logIntent(verb, ref)
	return nil
}

// logIntent records a request before it is sent.
func (j *uninstallGuard) logIntent(verb string, ref observed.Ref) {
	log, rule := j.Log, "helm"
	if j.Rule != "" {
		rule = j.Rule
		log = log.WithValues("evaluation", j.ReviewedAt.UTC().Format(time.RFC3339Nano), "release", j.Want.Namespace+"/"+j.Want.Name, "record", j.Want.UID)
	}
	log.Info("Intent", "run", j.Run, "rule", rule, "verb", verb, "object", ref.String(), "uid", ref.UID, "resourceVersion", ref.ResourceVersion, "decides", j.Decides)
}

// knownCleaner returns the Cleaner as the watch knows it, if its run may continue.
func (j *uninstallGuard) knownCleaner() (v1alpha1.Owner, error) {
	if !j.Lease.Fresh() {
		return nil, cleanerstore.ErrNotOwner
	}
	c, err := j.FindCleaner(j.ctx, j.Key)
	if err != nil {
		return nil, err
	}
	switch {
	case c.GetUID() != j.UID:
		return nil, errors.New("the Cleaner is gone")
	case life.IsPaused(c.Common()):
		return nil, errors.New("the Cleaner is suspended")
	case j.SuspectClock() != "":
		return nil, errors.New(j.SuspectClock())
	}
	return c, nil
}
