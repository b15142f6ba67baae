// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	helmtime "helm.sh/helm/v3/pkg/time"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// attempts is how often an object that changed between the read and the DELETE is looked at again.
	attempts = 5
	// firstWait and longestWait are the waits between two looks at objects that are going.
	firstWait   = 250 * time.Millisecond
	longestWait = 5 * time.Second
)

// session is one uninstall. It stands between Helm and the API server: Helm says what, the session whether.
type session struct {
	u *Uninstaller
	// ctx is here because Helm's interfaces have no place for it.
	ctx   context.Context
	want  Committed
	guard Guard
	// deadline is when there is no more waiting.
	deadline time.Time

	// hooks says that hooks are run: hookCounts of each event. Those of the events in doneEvents have ended well.
	hooks      bool
	hookCounts map[release.HookEvent]int
	doneEvents []string
	// event is which hooks Helm has come to, hooksLeft how many of them have not ended well yet, and skipEvent that an earlier try
	// has run them.
	event     release.HookEvent
	hooksLeft int
	skipEvent bool
	// madeObjects are the objects of the hooks of event that are there because of this uninstall.
	madeObjects map[plan.Ref]bool

	// lastRead is the release as it was read last: while its Secret is as it was, it is not decoded again.
	lastRead *record
	// rights are those of want, once they were asked for.
	rights rightSet

	outcome Outcome
	// hookFailure is the hook that failed.
	hookFailure error
	// halted is why nothing is written any more. Helm reduces errors to text, or logs them and goes on: so the first
	// one is remembered here, and every later request fails with it.
	halted error
}

// errEnded goes with an outcome that is no failure.
var errEnded = errors.New("the release is not the one that was decided on, or not all of it is gone")

// endWith halts with an outcome.
func (s *session) endWith(state OutcomeState) error {
	s.outcome.State = state
	return s.haltWith(errEnded)
}

// haltWith stops all further writes.
func (s *session) haltWith(err error) error {
	if s.halted == nil {
		s.halted = err
	}
	return s.halted
}

func (s *session) isHalted() bool { return s.halted != nil }

// runUninstall has Helm uninstall the release, and says how it came out.
func (s *session) runUninstall() error {
	err := s.checkRelease()
	if err == nil {
		err = s.runHelm()
	}
	switch {
	case s.hookFailure != nil && (s.halted == nil || errors.Is(s.halted, errEnded)):
		s.outcome.State = HookFailed
		return s.hookFailure
	case s.hookFailure != nil:
		s.outcome.State = HookFailed
		return errors.Join(s.hookFailure, s.halted)
	case s.halted != nil:
		err = s.halted
	}
	switch {
	case errors.Is(err, errEnded):
		return nil
	case err != nil:
		return err
	}
	s.outcome.State = Done
	return nil
}

// checkRelease looks for all that could keep the uninstall from its end before anything is written.
func (s *session) checkRelease() error {
	h, err := s.readCommitted()
	if err != nil {
		return err
	}
	newest, _ := h.newestRecord()
	// What is checked here is what is deleted and run, also when no digest was recorded: a change ends this try.
	s.want.Digest = newest.content.digest
	if err := s.checkHooks(newest); err != nil {
		return err
	}
	reach, err := s.u.resolveManifest(s.ctx, newest)
	if err != nil {
		return err
	}
	blocked, err := s.u.findBlocker(s.ctx, reach, s.want.Namespace, s.want.Name)
	switch {
	case err != nil:
		return err
	case blocked != nil:
		return blocked
	}
	s.outcome.Kept = reach.kept
	return nil
}

// checkHooks finds out whether there are hooks to run, and which of them were. Only of an uninstall that the caller has begun
// is it believed that some were.
func (s *session) checkHooks(newest record) error {
	s.hooks = len(newest.getDeleteHooks()) > 0 && !s.want.DisableHooks
	if !s.hooks {
		return nil
	}
	_, why, err := s.u.resolveHooks(s.ctx, newest)
	switch {
	case err != nil:
		return err
	case why != "":
		return &BlockedError{Reason: v1alpha1.ReasonReleaseHasHooks, Detail: why}
	}
	s.hookCounts = map[release.HookEvent]int{}
	for _, h := range newest.getDeleteHooks() {
		for _, event := range h.Events { // one that names an event twice is run twice
			s.hookCounts[event]++
		}
	}
	if done := newest.secret.Annotations[hooksDoneAnnotation]; done != "" && s.isOurUninstall(newest) {
		s.doneEvents = strings.Split(done, ",")
	}
	s.startEvent(release.HookPreDelete)
	return nil
}

// runHelm runs Helm's uninstall. The history is not kept: Helm deletes the Secrets when all objects are gone, because
// DeleteWithPropagationPolicy waits for that, and the newest one last. Until then the release is `uninstalling`, and
// another try goes through the same steps; `uninstalled` would have to be told from an uninstall that kept the history.
func (s *session) runHelm() error {
	releases := s.newStorage()
	err := s.markThroughStorage(releases)
	if err == nil {
		uninstall := action.NewUninstall(&action.Configuration{
			Releases:   releases,
			KubeClient: &kubeClient{s: s},
			Log:        func(string, ...any) {},
		})
		uninstall.DisableHooks = !s.hooks
		_, err = uninstall.Run(s.want.Name)
	}
	if err != nil && s.halted == nil && s.hookFailure == nil {
		// Helm found no Secrets where there were some a moment ago: somebody else was faster.
		if _, ended := s.readCommitted(); errors.Is(ended, errEnded) {
			return ended
		}
	}
	return err
}

// markThroughStorage has Helm's storage write that the release is being uninstalled, before anything else is: Helm itself would run
// pre-delete hooks first, and an uninstall that was cut short there would not be carried on.
func (s *session) markThroughStorage(releases *storage.Storage) error {
	newest, err := releases.Last(s.want.Name)
	if err != nil {
		return err
	}
	newest.SetStatus(release.StatusUninstalling, uninstallingSays)
	newest.Info.Deleted = helmtime.Time{Time: s.u.clock.Now()}
	return releases.Update(newest)
}

// isOurUninstall says that the release is uninstalling because the caller has begun that. Whoever may write the record can write the
// status, and not the mark.
func (s *session) isOurUninstall(r record) bool {
	mark := r.uninstallMark()
	return r.releaseStatus() == release.StatusUninstalling && mark != "" && (mark == s.want.Mark || mark == s.want.Begun)
}

// readCommitted reads the release, and ends the session when it is no longer the one that was decided on. One whose uninstall was
// begun and that says something else now is in nobody's hands but those of who changed it.
func (s *session) readCommitted() (history, error) {
	if s.halted != nil {
		return nil, s.halted
	}
	h, err := s.u.readHistory(s.ctx, s.want.Namespace, s.want.Name, s.lastRead)
	if err != nil {
		return nil, s.haltWith(err)
	}
	if state := h.compareWith(s.want); state != Unfinished {
		return nil, s.endWith(state)
	}
	newest, _ := h.newestRecord()
	s.lastRead = &newest
	switch {
	case s.want.Digest == "" || s.want.Digest == newest.content.digest:
		return h, nil
	case s.isOurUninstall(newest):
		return nil, s.haltWith(fmt.Errorf("its record, Secret %q, was changed since it was decided on: nothing of what it says now is deleted or run; "+
			"restore the record, or look at what it says and uninstall the release with Helm", newest.secret.Name))
	default:
		return nil, s.endWith(Upgraded)
	}
}

// readMarked reads the release as it is before each write to come, and halts when it does not bear the caller's mark any more.
func (s *session) readMarked() (record, error) {
	h, err := s.readCommitted()
	if err != nil {
		return record{}, err
	}
	newest, _ := h.newestRecord()
	switch {
	case newest.releaseStatus() != release.StatusUninstalling:
		return record{}, s.haltWith(fmt.Errorf("its status is %q, which is not %q", newest.releaseStatus(), release.StatusUninstalling))
	case !s.isOurUninstall(newest):
		return record{}, s.haltWith(fmt.Errorf("its record, Secret %q, does not bear the mark of this uninstall any more: somebody has changed its annotation %s", newest.secret.Name, v1alpha1.AnnotationUninstall))
	}
	return newest, nil
}

// stopIfRefused stops before a write that the guard refused.
func (s *session) stopIfRefused(what string, refused error) error {
	if refused == nil {
		return nil
	}
	s.outcome.State = Stopped
	return s.haltWith(fmt.Errorf("stopped before %s: %w", what, refused))
}

// mayDelete is asked between the read of an object and its DELETE.
func (s *session) mayDelete(ref plan.Ref) error {
	if _, err := s.readMarked(); err != nil {
		return err
	}
	return s.stopIfRefused("the deletion of "+ref.String(), s.guard.MayDelete(ref))
}

// deleteObject deletes one object, unless it is to be kept. What has to be waited for is returned.
func (s *session) deleteObject(o object) (*plan.Ref, error) {
	for range attempts {
		live, err := s.getMetadata(o.Ref)
		if isObjectMissing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", o.Ref, err)
		}
		ref := refAt(o.Ref, live)
		if because := s.u.reasonToKeep(ref, live, s.want); because != "" {
			s.outcome.Kept = append(s.outcome.Kept, Kept{ref, because})
			return nil, nil
		}
		if live.DeletionTimestamp != nil {
			return &ref, nil
		}
		if !s.isRightReviewed(o, "delete") {
			s.outcome.Kept = append(s.outcome.Kept, Kept{ref, "the right to delete it was not reviewed when the release was decided on"})
			return nil, nil
		}
		if err := s.mayDelete(ref); err != nil {
			return nil, err
		}
		faults.PassPoint("before the DELETE of an object of the release")
		err = s.u.metadata.Resource(ref.Resource).Namespace(ref.Namespace).Delete(s.ctx, ref.Name, newDeleteOptions(ref))
		faults.PassPoint("after the DELETE of an object of the release")
		switch {
		case isObjectMissing(err):
			return nil, nil
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("cannot delete %s: %w", ref, err)
		}
		s.outcome.Deleted = append(s.outcome.Deleted, ref)
		return &ref, nil
	}
	return nil, fmt.Errorf("cannot delete %s: it changed %d times just before its deletion", o.Ref, attempts)
}

// deleteObjects deletes the objects and returns when they are gone.
func (s *session) deleteObjects(objects []object) error {
	var going []plan.Ref
	var failed []error
	for _, o := range objects {
		ref, err := s.deleteObject(o)
		if s.halted != nil {
			return s.halted
		}
		if err != nil {
			failed = append(failed, err)
		}
		if ref != nil {
			going = append(going, *ref)
		}
	}
	if len(failed) > 0 {
		return s.haltWith(errors.Join(failed...))
	}
	return s.waitUntilGone(going)
}

// waitUntilGone returns when the objects are gone, and ends the session when they still are not when its time is over.
func (s *session) waitUntilGone(refs []plan.Ref) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		remaining, err := s.findRemaining(refs)
		if err != nil {
			return s.haltWith(err)
		}
		if len(remaining) == 0 {
			return nil
		}
		left := s.deadline.Sub(s.u.clock.Now())
		if left <= 0 {
			s.outcome.Remaining = remaining
			return s.endWith(Terminating)
		}
		select {
		case <-s.ctx.Done():
			return s.haltWith(s.ctx.Err())
		case <-s.u.clock.After(min(wait, left)):
		}
	}
}

// findRemaining returns those of the objects that are still there. Another object under the same name is not.
func (s *session) findRemaining(refs []plan.Ref) ([]Remaining, error) {
	var there []Remaining
	for _, ref := range refs {
		live, err := s.getMetadata(ref)
		if isObjectMissing(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot see whether %s is gone: %w", ref, err)
		}
		if live.UID == ref.UID {
			there = append(there, Remaining{refAt(ref, live), live.Finalizers})
		}
	}
	return there, nil
}

func (s *session) getMetadata(ref plan.Ref) (*metav1.PartialObjectMetadata, error) {
	return s.u.metadata.Resource(ref.Resource).Namespace(ref.Namespace).Get(s.ctx, ref.Name, metav1.GetOptions{})
}

// refAt is a reference to the version of an object that was read.
func refAt(ref plan.Ref, live metav1.Object) plan.Ref {
	ref.UID, ref.ResourceVersion = live.GetUID(), live.GetResourceVersion()
	return ref
}

// newDeleteOptions returns the options of every DELETE: exactly the version that was read.
func newDeleteOptions(ref plan.Ref) metav1.DeleteOptions {
	background := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &ref.UID, ResourceVersion: &ref.ResourceVersion},
		PropagationPolicy: &background,
	}
}

// isObjectMissing says whether the API server said that this object does not exist. A 404 that names nothing, and that of a path that is
// not served, say nothing about objects.
func isObjectMissing(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name != ""
}
