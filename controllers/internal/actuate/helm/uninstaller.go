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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Options are what an Uninstaller needs.
type Options struct {
	// Config leads to the API server, as the identity that uninstalls.
	Config *rest.Config
	// Discovery leads there as who may ask which kinds are served and list CustomResourceDefinitions: the operator. Config
	// when nil.
	Discovery *rest.Config
	// ServiceAccount is that identity when it is a ServiceAccount, which Config impersonates. Without it the identity is the operator's own. The
	// rights of an account bound what a release of its namespace can do to others: for such a release hooks are run, and objects outside the
	// namespace deleted. For all others neither is done.
	ServiceAccount types.NamespacedName
	// Protection is what is not deleted with any release.
	Protection plan.Protection
	// Clock measures how long an uninstall waits for hooks to end and for objects to go.
	Clock clock.Clock
	// Shelf keeps what was read of records. Uninstallers of one API server may share it. One of its own if nil.
	Shelf *Shelf
	// Ahead is by how much Clock is ahead of the API server's, whose times objects carry; never negative. Not at all when
	// nil.
	Ahead func() time.Duration
}

// Uninstaller looks at Helm releases and uninstalls them. Between calls it keeps nothing but what records say, on its shelf, and may be
// used by many goroutines.
type Uninstaller struct {
	secrets   corev1client.SecretsGetter
	rbac      rbacv1client.RbacV1Interface
	metadata  metadata.Interface
	crds      metadata.Interface
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterfaceWithContext
	shelf     *Shelf

	account    types.NamespacedName
	protection plan.Protection
	clock      clock.Clock
	ahead      func() time.Duration
}

// New makes an Uninstaller.
func New(o Options) (*Uninstaller, error) {
	secrets, err := corev1client.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for release Secrets: %w", err)
	}
	rbac, err := rbacv1client.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for roles and bindings: %w", err)
	}
	meta, err := metadata.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the objects of releases: %w", err)
	}
	objects, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for hooks: %w", err)
	}
	if o.Discovery == nil {
		o.Discovery = o.Config
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(o.Discovery)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for discovery: %w", err)
	}
	crds, err := metadata.NewForConfig(o.Discovery)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for CustomResourceDefinitions: %w", err)
	}
	if o.Ahead == nil {
		o.Ahead = func() time.Duration { return 0 }
	}
	if o.Shelf == nil {
		o.Shelf = NewShelf()
	}
	return &Uninstaller{
		secrets: secrets, rbac: rbac, metadata: meta, crds: crds, objects: objects, discovery: kinds, shelf: o.Shelf,
		account: o.ServiceAccount, protection: o.Protection, clock: o.Clock, ahead: o.Ahead,
	}, nil
}

// Release is a release as it was read.
type Release struct {
	observed.Release

	// Objects are what its uninstall would delete, by resource, namespace and name. What the chart asks to keep and
	// what is of a kind that is not served is not among them.
	Objects []observed.Ref
}

// BlockedError says that a release must not be uninstalled as it is.
type BlockedError struct {
	// Reason is a reason of api/v1alpha1.
	Reason string
	// Detail says it in words.
	Detail string
}

// Error is the detail.
func (e *BlockedError) Error() string { return e.Detail }

// LoadRelease has the shelf keep what a release's record says, so that ReadRelease does not wait for a slot. What goes wrong is for
// ReadRelease to say.
func (u *Uninstaller) LoadRelease(ctx context.Context, slot ReadSlot, namespace, name string) {
	_, _ = u.readHistory(ctx, slot, namespace, name, nil)
}

// ReadRelease reads a release as it is now. A record that cannot be read is a *BlockedError with the reason ReleaseUnreadable;
// anything else that blocks an uninstall is in the Release. So are hooks, and why they cannot run:
// whether that blocks it depends on what the caller is to do with them. When ctx ends, the error is its cause.
func (u *Uninstaller) ReadRelease(ctx context.Context, slot ReadSlot, namespace, name string) (Release, error) {
	r, err := u.readRelease(ctx, slot, namespace, name)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return Release{}, fmt.Errorf("cannot read release %q: %w", name, err)
	}
	return r, nil
}

func (u *Uninstaller) readRelease(ctx context.Context, slot ReadSlot, namespace, name string) (Release, error) {
	records, err := u.readHistory(ctx, slot, namespace, name, nil)
	if err != nil {
		return Release{}, err
	}
	newest, found := records.newestRecord()
	if !found || newest.releaseStatus() == release.StatusUninstalled {
		return Release{Release: observed.Release{Name: name, State: observed.ReleaseGone}}, nil
	}
	r := Release{Release: observed.Release{
		Name:          name,
		State:         observed.ReleaseDeployed,
		Revision:      int64(newest.version),
		UID:           newest.secret.UID,
		FirstDeployed: newest.firstDeployed(),
		Mark:          newest.uninstallMark(),
		Digest:        newest.content.digest,
		HasHooks:      len(newest.getDeleteHooks()) > 0,
	}}
	switch status := newest.releaseStatus(); {
	case status == release.StatusUninstalling:
		r.State, r.Modified = observed.ReleaseUninstalling, newest.modified()
	case status.IsPending():
		r.State = observed.ReleasePending
		r.Blocked = v1alpha1.ReasonReleasePending
		r.Detail = fmt.Sprintf("release %q is %s", name, status)
		return r, nil
	}
	reach, err := u.resolveManifest(ctx, newest)
	if err != nil {
		return Release{}, err
	}
	for _, o := range reach.objects {
		r.Objects = append(r.Objects, o.Ref)
	}
	hooks, why, err := u.resolveHooks(ctx, newest)
	if err != nil {
		return Release{}, fmt.Errorf("cannot read its hooks: %w", err)
	}
	r.HooksBlocked = why
	rights, hookRights := rightsToDelete(reach, namespace), rightsForHooks(hooks)
	r.Rights, r.HookRights = rights.listRights(), hookRights.listRights()
	blocked, err := u.findBlocker(ctx, slot, reach, namespace, name)
	if err != nil {
		return Release{}, err
	}
	if blocked == nil {
		blocked = checkRightsCount(name, rights, hookRights)
	}
	if because := records.describeProtected(name); blocked == nil && because != "" {
		blocked = &BlockedError{Reason: v1alpha1.ReasonProtected, Detail: because}
	}
	if blocked != nil {
		r.Blocked, r.Detail = blocked.Reason, blocked.Detail
	}
	return r, nil
}

// ReadWanted reads the release that a spec wants uninstalled; nil if there is none. What cannot be read blocks.
func (u *Uninstaller) ReadWanted(ctx context.Context, slot ReadSlot, namespace string, spec *v1alpha1.Helm) *observed.Release {
	if spec == nil || !spec.Delete {
		return nil
	}
	rel, err := u.ReadRelease(ctx, slot, namespace, spec.Release)
	if err == nil {
		return &rel.Release
	}
	blocked := &observed.Release{Name: spec.Release, Blocked: v1alpha1.ReasonReadFailed, Detail: fmt.Sprintf("Release %q: %s.", spec.Release, err)}
	if why, ok := errors.AsType[*BlockedError](err); ok {
		blocked.Blocked = why.Reason
	} else if apierrors.IsForbidden(err) {
		blocked.Blocked = v1alpha1.ReasonAccessDenied
	}
	return blocked
}

// UninstallRequest is the release that was decided on.
type UninstallRequest struct {
	Namespace, Name string
	// Revision, UID and FirstDeployed are those that ReadRelease gave.
	Revision      int64
	UID           types.UID
	FirstDeployed time.Time
	// ResourceVersion is the version of the Secret that was decided on. At any other one the release is not marked, and nothing of it is
	// deleted. Empty: a later version is as good, if it says the same.
	ResourceVersion string
	// Digest is that which ReadRelease gave. Empty was not recorded, by an older version: it is not compared.
	Digest string
	// Rights are the rights that ReadRelease returned and that were reviewed for the author. Nothing is deleted or created that needs
	// another right, such as an object of a kind that was not served then. Empty: none were reviewed, and the API server checks each
	// request against the rights of the identity.
	Rights []observed.Right
	// Mark is what the caller knows by that it has begun this uninstall: it is written on the newest record with the status
	// uninstalling. It must not be empty.
	Mark string
	// Begun is the mark that ReadRelease returned, if the caller has found that it belongs to this uninstall. Without it, the uninstall
	// of a release that is uninstalling begins again.
	Begun string
	// DisableHooks uninstalls a release with delete hooks without running them.
	DisableHooks bool
	// KeepHistory keeps the records, as helm uninstall --keep-history does: the newest one gets the status uninstalled when all else is gone.
	KeepHistory bool
	// HookTimeout is how long one hook may take, counted from its creation, in this call and those after it.
	HookTimeout time.Duration
	// Timeout is how long this call may wait, for hooks to end and for deleted objects to be gone. Without one, they are
	// looked at once.
	Timeout time.Duration
	// Self is the Cleaner on whose behalf it is done: never deleted, should the chart contain it.
	Self observed.Ref
}

// Guard is asked right before each write. An error stops the uninstall there, to be resumed.
type Guard interface {
	// MayStart is asked before the release is marked as uninstalling, unless it bears a mark of this uninstall already.
	MayStart() error
	// MayDelete is asked before each DELETE of an object, one of a hook included, or of a release Secret.
	MayDelete(ref observed.Ref) error
	// MayRunHook is asked before an object of a hook is created.
	MayRunHook(ref observed.Ref) error
	// MayNote is asked before it is noted in the release's Secret that the pre-delete or the post-delete hooks are done, and
	// before its mark is renewed.
	MayNote(ref observed.Ref) error
}

// OutcomeState is where an uninstall got to.
type OutcomeState string

const (
	// Unfinished comes with an error, and nothing else is known: try the uninstall again.
	Unfinished OutcomeState = ""
	// Done means that the release is gone, whichever client deleted it.
	Done OutcomeState = "Done"
	// Replaced means that the release was gone and another one of its name was installed. That one was not touched.
	Replaced OutcomeState = "Replaced"
	// Upgraded means that the release is at another revision than the one that was decided on, or that its record was recreated or has
	// another content. Nothing was deleted since.
	Upgraded OutcomeState = "Upgraded"
	// Pending means that another client is installing, upgrading or rolling back the release.
	Pending OutcomeState = "Pending"
	// Terminating means that all objects were deleted and some are not gone: Remaining. The release stays marked as
	// uninstalling, to be resumed.
	Terminating OutcomeState = "Terminating"
	// HookRunning means that a hook has not ended yet: Hook. The release stays marked as uninstalling, and the next call continues with
	// the running hook.
	HookRunning OutcomeState = "HookRunning"
	// HookFailed goes with a *HookError. The release stays marked as uninstalling, and the next call runs the hook again.
	HookFailed OutcomeState = "HookFailed"
	// Stopped goes with the error of the Guard.
	Stopped OutcomeState = "Stopped"
)

// Outcome is what one call of Uninstall came to.
type Outcome struct {
	State OutcomeState
	// Hook is the hook that is running or has failed, such as "pre-delete hook backup.jobs.batch/v1".
	Hook string
	// Created are the objects of hooks that were created in this call.
	Created []observed.Ref
	// Deleted are the objects and release Secrets whose DELETE was answered with success in this call.
	Deleted []observed.Ref
	// Kept are the objects of the manifest that are left on purpose.
	Kept []Kept
	// Remaining are the objects that are not gone yet.
	Remaining []Remaining
}

// Kept is an object of a manifest that was left.
type Kept struct {
	Ref     observed.Ref
	Because string
}

// Remaining is a deleted object that is still there.
type Remaining struct {
	Ref observed.Ref
	// Finalizers are what it waits for, if anything but time.
	Finalizers []string
}

// String names the object and what holds it.
func (r Remaining) String() string {
	if len(r.Finalizers) == 0 {
		return r.Ref.String()
	}
	return fmt.Sprintf("%s (%s)", r.Ref, strings.Join(r.Finalizers, ", "))
}

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

// runHelm runs Helm's uninstall. Helm deletes the Secrets, or declares the release `uninstalled`, when all objects are gone, because
// DeleteWithPropagationPolicy waits for that, and the newest one last. Until then the release is `uninstalling`, and
// another attempt goes through the same steps.
func (s *session) runHelm() error {
	releases := s.newStorage()
	err := s.markThroughStorage(releases)
	if err == nil {
		uninstall := action.NewUninstall(&action.Configuration{
			Releases:   releases,
			KubeClient: &kubeClient{attempt: s.attempt, objects: s.objects, hooks: s.hooks},
			Log:        func(string, ...any) {},
		})
		uninstall.DisableHooks, uninstall.KeepHistory = !s.hooks.needed, s.attempt.want.KeepHistory
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
