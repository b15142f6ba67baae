// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	helmtime "helm.sh/helm/v3/pkg/time"
)

const (
	// attempts is how often an object that changed between the read and the DELETE is looked at again.
	attempts = 5
	// firstWait and longestWait are the waits between two looks at objects that are going.
	firstWait   = 250 * time.Millisecond
	longestWait = 5 * time.Second
)

// attempt is one call of Uninstall: its input, its result so far, and whether it may still write.
type attempt struct {
	u *Uninstaller
	// ctx is here because Helm's interfaces have no place for it.
	ctx   context.Context
	slot  ReadSlot
	want  UninstallRequest
	guard Guard
	// deadline is when there is no more waiting.
	deadline time.Time

	outcome Outcome
	// halted is why this attempt may no longer write. Helm reduces errors to text, or logs them and continues: so the first one is remembered
	// here, and every later request fails with it.
	halted error
}

// session is one uninstall. It sits between Helm and the API server: Helm decides what to do, and the session whether that is allowed.
type session struct {
	attempt *attempt
	records *releaseRecords
	objects *objectDeleter
	hooks   *hookRunner
}

// Uninstall carries the uninstall of exactly that release to its end, or says why not. It blocks for as long as
// requests take, and up to want.Timeout for hooks to end and objects to go; it returns soon after ctx ends. The Outcome
// is what was done also when there is an error.
func (u *Uninstaller) Uninstall(ctx context.Context, slot ReadSlot, want UninstallRequest, guard Guard) (Outcome, error) {
	s := u.newSession(ctx, slot, want, guard)
	if err := s.runUninstall(); err != nil {
		return s.attempt.outcome, fmt.Errorf("cannot uninstall release %q: %w", want.Name, err)
	}
	return s.attempt.outcome, nil
}

// newSession returns a session that has done nothing yet.
func (u *Uninstaller) newSession(ctx context.Context, slot ReadSlot, want UninstallRequest, guard Guard) *session {
	t := &attempt{u: u, ctx: ctx, slot: slot, want: want, guard: guard, deadline: u.clock.Now().Add(want.Timeout)}
	records := &releaseRecords{attempt: t}
	objects := &objectDeleter{attempt: t, records: records}
	return &session{attempt: t, records: records, objects: objects, hooks: &hookRunner{attempt: t, records: records, objects: objects}}
}

// errEnded goes with an outcome that is no failure.
var errEnded = errors.New("the release is not the one that was decided on, or not all of it is gone")

// endWith halts with an outcome.
func (t *attempt) endWith(state OutcomeState) error {
	t.outcome.State = state
	return t.haltWith(errEnded)
}

// haltWith stops all further writes.
func (t *attempt) haltWith(err error) error {
	if t.halted == nil {
		t.halted = err
	}
	return t.halted
}

// timeLeft is how long this attempt may still wait.
func (t *attempt) timeLeft() time.Duration { return t.deadline.Sub(t.u.clock.Now()) }

func (t *attempt) isHalted() bool { return t.halted != nil }

// runUninstall has Helm uninstall the release, and says how it came out.
func (s *session) runUninstall() error {
	err := s.checkRelease()
	if err == nil {
		err = s.runHelm()
	}
	switch {
	case s.hooks.failure != nil && (s.attempt.halted == nil || errors.Is(s.attempt.halted, errEnded)):
		s.attempt.outcome.State = HookFailed
		return s.hooks.failure
	case s.hooks.failure != nil:
		s.attempt.outcome.State = HookFailed
		return errors.Join(s.hooks.failure, s.attempt.halted)
	case s.attempt.halted != nil:
		err = s.attempt.halted
	}
	switch {
	case errors.Is(err, errEnded):
		return nil
	case err != nil:
		return err
	}
	s.attempt.outcome.State = Done
	return nil
}

// checkRelease looks for all that could keep the uninstall from its end before anything is written.
func (s *session) checkRelease() error {
	h, err := s.records.readCommitted()
	if err != nil {
		return err
	}
	newest, _ := h.newestRecord()
	// What is checked here is what is deleted and run, also when no digest was recorded: a change ends this attempt.
	s.attempt.want.Digest = newest.content.digest
	if err := s.hooks.checkHooks(newest); err != nil {
		return err
	}
	reach, err := s.attempt.u.resolveManifest(s.attempt.ctx, newest)
	if err != nil {
		return err
	}
	blocked, err := s.attempt.u.findBlocker(s.attempt.ctx, s.attempt.slot, reach, s.attempt.want.Namespace, s.attempt.want.Name)
	switch {
	case err != nil:
		return err
	case blocked != nil:
		return blocked
	}
	s.attempt.outcome.Kept = reach.kept
	return nil
}

// runHelm runs Helm's uninstall. The history is not kept: Helm deletes the Secrets when all objects are gone, because
// DeleteWithPropagationPolicy waits for that, and the newest one last. Until then the release is `uninstalling`, and
// another attempt goes through the same steps; `uninstalled` would have to be told from an uninstall that kept the history.
func (s *session) runHelm() error {
	releases := s.newStorage()
	err := s.markThroughStorage(releases)
	if err == nil {
		uninstall := action.NewUninstall(&action.Configuration{
			Releases:   releases,
			KubeClient: &kubeClient{attempt: s.attempt, objects: s.objects, hooks: s.hooks},
			Log:        func(string, ...any) {},
		})
		uninstall.DisableHooks = !s.hooks.needed
		_, err = uninstall.Run(s.attempt.want.Name)
	}
	if err != nil && s.attempt.halted == nil && s.hooks.failure == nil {
		// Helm found no Secrets where there were some a moment ago: another client was faster.
		if _, ended := s.records.readCommitted(); errors.Is(ended, errEnded) {
			return ended
		}
	}
	return err
}

// markThroughStorage has Helm's storage write that the release is being uninstalled, before anything else is: Helm itself would run
// pre-delete hooks first, and an uninstall that was cut short there would not be carried on.
func (s *session) markThroughStorage(releases *storage.Storage) error {
	newest, err := releases.Last(s.attempt.want.Name)
	if err != nil {
		return err
	}
	newest.SetStatus(release.StatusUninstalling, uninstallingSays)
	newest.Info.Deleted = helmtime.Time{Time: s.attempt.u.clock.Now()}
	return releases.Update(newest)
}

// stopIfRefused stops before a write that the guard refused.
func (t *attempt) stopIfRefused(what string, refused error) error {
	if refused == nil {
		return nil
	}
	t.outcome.State = Stopped
	return t.haltWith(fmt.Errorf("stopped before %s: %w", what, refused))
}
