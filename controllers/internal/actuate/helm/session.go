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

	// hooks says that hooks are run: runs of each event. Those of the events in noted have ended well.
	hooks bool
	runs  map[release.HookEvent]int
	noted []string
	// event is which hooks Helm has come to, left how many of them have not ended well yet, and skip that an earlier try
	// has run them.
	event release.HookEvent
	left  int
	skip  bool
	// made are the objects of the hooks of event that are there because of this uninstall.
	made map[plan.Ref]bool

	// known is the release as it was read last: while its Secret is as it was, it is not decoded again.
	known *record
	// rights are those of want, once they were asked for.
	rights rightSet

	outcome Outcome
	// failed is the hook that failed.
	failed error
	// halted is why nothing is written any more. Helm reduces errors to text, or logs them and goes on: so the first
	// one is remembered here, and every later request fails with it.
	halted error
}

// errEnded goes with an outcome that is no failure.
var errEnded = errors.New("the release is not the one that was decided on, or not all of it is gone")

// end halts with an outcome.
func (s *session) end(state OutcomeState) error {
	s.outcome.State = state
	return s.halt(errEnded)
}

// halt stops all further writes.
func (s *session) halt(err error) error {
	if s.halted == nil {
		s.halted = err
	}
	return s.halted
}

func (s *session) isHalted() bool { return s.halted != nil }

// uninstall has Helm uninstall the release, and says how it came out.
func (s *session) uninstall() error {
	err := s.check()
	if err == nil {
		err = s.helm()
	}
	switch {
	case s.failed != nil && (s.halted == nil || errors.Is(s.halted, errEnded)):
		s.outcome.State = HookFailed
		return s.failed
	case s.failed != nil:
		s.outcome.State = HookFailed
		return errors.Join(s.failed, s.halted)
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

// check looks for all that could keep the uninstall from its end before anything is written.
func (s *session) check() error {
	h, err := s.committed()
	if err != nil {
		return err
	}
	newest, _ := h.newest()
	// What is checked here is what is deleted and run, also when no digest was recorded: a change ends this try.
	s.want.Digest = newest.said.digest
	if err := s.checkHooks(newest); err != nil {
		return err
	}
	reach, err := s.u.reach(s.ctx, newest)
	if err != nil {
		return err
	}
	blocked, err := s.u.blocked(s.ctx, reach, s.want.Namespace, s.want.Name)
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
	s.hooks = len(newest.deleteHooks()) > 0 && !s.want.DisableHooks
	if !s.hooks {
		return nil
	}
	_, why, err := s.u.runnableHooks(s.ctx, newest)
	switch {
	case err != nil:
		return err
	case why != "":
		return &BlockedError{Reason: v1alpha1.ReasonReleaseHasHooks, Detail: why}
	}
	s.runs = map[release.HookEvent]int{}
	for _, h := range newest.deleteHooks() {
		for _, event := range h.Events { // one that names an event twice is run twice
			s.runs[event]++
		}
	}
	if done := newest.secret.Annotations[hooksDoneAnnotation]; done != "" && s.begun(newest) {
		s.noted = strings.Split(done, ",")
	}
	s.enter(release.HookPreDelete)
	return nil
}

// helm is Helm's uninstall. The history is not kept: Helm deletes the Secrets when all objects are gone, because
// DeleteWithPropagationPolicy waits for that, and the newest one last. Until then the release is `uninstalling`, and
// another try goes through the same steps; `uninstalled` would have to be told from an uninstall that kept the history.
func (s *session) helm() error {
	releases := s.storage()
	err := s.mark(releases)
	if err == nil {
		uninstall := action.NewUninstall(&action.Configuration{
			Releases:   releases,
			KubeClient: &kubeClient{s: s},
			Log:        func(string, ...any) {},
		})
		uninstall.DisableHooks = !s.hooks
		_, err = uninstall.Run(s.want.Name)
	}
	if err != nil && s.halted == nil && s.failed == nil {
		// Helm found no Secrets where there were some a moment ago: somebody else was faster.
		if _, ended := s.committed(); errors.Is(ended, errEnded) {
			return ended
		}
	}
	return err
}

// mark has Helm's storage write that the release is being uninstalled, before anything else is: Helm itself would run
// pre-delete hooks first, and an uninstall that was cut short there would not be carried on.
func (s *session) mark(releases *storage.Storage) error {
	newest, err := releases.Last(s.want.Name)
	if err != nil {
		return err
	}
	newest.SetStatus(release.StatusUninstalling, uninstallingSays)
	newest.Info.Deleted = helmtime.Time{Time: s.u.clock.Now()}
	return releases.Update(newest)
}

// begun says that the release is uninstalling because the caller has begun that. Whoever may write the record can write the
// status, and not the mark.
func (s *session) begun(r record) bool {
	mark := r.mark()
	return r.status() == release.StatusUninstalling && mark != "" && (mark == s.want.Mark || mark == s.want.Begun)
}

// committed reads the release, and ends the session when it is no longer the one that was decided on. One whose uninstall was
// begun and that says something else now is in nobody's hands but those of who changed it.
func (s *session) committed() (history, error) {
	if s.halted != nil {
		return nil, s.halted
	}
	h, err := s.u.records(s.ctx, s.want.Namespace, s.want.Name, s.known)
	if err != nil {
		return nil, s.halt(err)
	}
	if state := h.is(s.want); state != Unfinished {
		return nil, s.end(state)
	}
	newest, _ := h.newest()
	s.known = &newest
	switch {
	case s.want.Digest == "" || s.want.Digest == newest.said.digest:
		return h, nil
	case s.begun(newest):
		return nil, s.halt(fmt.Errorf("its record, Secret %q, was changed since it was decided on: nothing of what it says now is deleted or run; "+
			"restore the record, or look at what it says and uninstall the release with Helm", newest.secret.Name))
	default:
		return nil, s.end(Upgraded)
	}
}

// marked reads the release as it is before each write to come, and halts when it does not bear the caller's mark any more.
func (s *session) marked() (record, error) {
	h, err := s.committed()
	if err != nil {
		return record{}, err
	}
	newest, _ := h.newest()
	switch {
	case newest.status() != release.StatusUninstalling:
		return record{}, s.halt(fmt.Errorf("its status is %q, which is not %q", newest.status(), release.StatusUninstalling))
	case !s.begun(newest):
		return record{}, s.halt(fmt.Errorf("its record, Secret %q, does not bear the mark of this uninstall any more: somebody has changed its annotation %s", newest.secret.Name, v1alpha1.AnnotationUninstall))
	}
	return newest, nil
}

// obey stops before a write that the guard refused.
func (s *session) obey(what string, refused error) error {
	if refused == nil {
		return nil
	}
	s.outcome.State = Stopped
	return s.halt(fmt.Errorf("stopped before %s: %w", what, refused))
}

// mayDelete is asked between the read of an object and its DELETE.
func (s *session) mayDelete(ref plan.Ref) error {
	if _, err := s.marked(); err != nil {
		return err
	}
	return s.obey("the deletion of "+ref.String(), s.guard.MayDelete(ref))
}

// remove deletes one object, unless it is to be kept. What has to be waited for is returned.
func (s *session) remove(o object) (*plan.Ref, error) {
	for range attempts {
		live, err := s.get(o.Ref)
		if isGone(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", o.Ref, err)
		}
		ref := at(o.Ref, live)
		if because := s.u.reasonToKeep(ref, live, s.want); because != "" {
			s.outcome.Kept = append(s.outcome.Kept, Kept{ref, because})
			return nil, nil
		}
		if live.DeletionTimestamp != nil {
			return &ref, nil
		}
		if !s.reviewed(o, "delete") {
			s.outcome.Kept = append(s.outcome.Kept, Kept{ref, "the right to delete it was not reviewed when the release was decided on"})
			return nil, nil
		}
		if err := s.mayDelete(ref); err != nil {
			return nil, err
		}
		faults.Point("before the DELETE of an object of the release")
		err = s.u.metadata.Resource(ref.Resource).Namespace(ref.Namespace).Delete(s.ctx, ref.Name, preconditions(ref))
		faults.Point("after the DELETE of an object of the release")
		switch {
		case isGone(err):
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

// removeAll deletes the objects and returns when they are gone.
func (s *session) removeAll(objects []object) error {
	var going []plan.Ref
	var failed []error
	for _, o := range objects {
		ref, err := s.remove(o)
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
		return s.halt(errors.Join(failed...))
	}
	return s.await(going)
}

// await returns when the objects are gone, and ends the session when they still are not when its time is over.
func (s *session) await(refs []plan.Ref) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		remaining, err := s.remaining(refs)
		if err != nil {
			return s.halt(err)
		}
		if len(remaining) == 0 {
			return nil
		}
		left := s.deadline.Sub(s.u.clock.Now())
		if left <= 0 {
			s.outcome.Remaining = remaining
			return s.end(Terminating)
		}
		select {
		case <-s.ctx.Done():
			return s.halt(s.ctx.Err())
		case <-s.u.clock.After(min(wait, left)):
		}
	}
}

// remaining are those of the objects that are still there. Another object under the same name is not.
func (s *session) remaining(refs []plan.Ref) ([]Remaining, error) {
	var there []Remaining
	for _, ref := range refs {
		live, err := s.get(ref)
		if isGone(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot see whether %s is gone: %w", ref, err)
		}
		if live.UID == ref.UID {
			there = append(there, Remaining{at(ref, live), live.Finalizers})
		}
	}
	return there, nil
}

func (s *session) get(ref plan.Ref) (*metav1.PartialObjectMetadata, error) {
	return s.u.metadata.Resource(ref.Resource).Namespace(ref.Namespace).Get(s.ctx, ref.Name, metav1.GetOptions{})
}

// at is a reference to the version of an object that was read.
func at(ref plan.Ref, live metav1.Object) plan.Ref {
	ref.UID, ref.ResourceVersion = live.GetUID(), live.GetResourceVersion()
	return ref
}

// preconditions are the options of every DELETE: exactly the version that was read.
func preconditions(ref plan.Ref) metav1.DeleteOptions {
	background := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &ref.UID, ResourceVersion: &ref.ResourceVersion},
		PropagationPolicy: &background,
	}
}

// isGone says whether the API server said that this object does not exist. A 404 that names nothing, and that of a path that is
// not served, say nothing about objects.
func isGone(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name != ""
}
