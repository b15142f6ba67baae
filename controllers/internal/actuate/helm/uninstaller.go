// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

// Options are what an Uninstaller needs.
type Options struct {
	// Config leads to the API server, as the identity that uninstalls.
	Config *rest.Config
	// Clock measures how long an uninstall waits for objects to go.
	Clock clock.Clock
}

// Uninstaller looks at Helm releases and uninstalls them. It keeps nothing between calls and may be used by many
// goroutines.
type Uninstaller struct {
	secrets   corev1client.SecretsGetter
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterfaceWithContext
	clock     clock.Clock
}

// New makes an Uninstaller.
func New(o Options) (*Uninstaller, error) {
	secrets, err := corev1client.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for release Secrets: %w", err)
	}
	objects, err := metadata.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for the objects of releases: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for discovery: %w", err)
	}
	return &Uninstaller{secrets: secrets, metadata: objects, discovery: kinds, clock: o.Clock}, nil
}

// Release is a release as it was read.
type Release struct {
	plan.Release

	// Objects are what its uninstall would delete, by resource, namespace and name. What the chart asks to keep and
	// what is of a kind that is not served is not among them.
	Objects []plan.Ref
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

// Look reads a release as it is now. A record that cannot be read is a *BlockedError with the reason ReleaseUnreadable;
// anything else that is in the way of an uninstall is in the Release. Hooks are only told of: whether they are in the
// way depends on what the caller was asked to do with them.
func (u *Uninstaller) Look(ctx context.Context, namespace, name string) (Release, error) {
	records, err := u.records(ctx, namespace, name)
	if err != nil {
		return Release{}, fmt.Errorf("cannot look at release %q: %w", name, err)
	}
	newest, found := records.newest()
	if !found || newest.release.Info.Status == release.StatusUninstalled {
		return Release{Release: plan.Release{Name: name, State: plan.ReleaseGone}}, nil
	}
	r := Release{Release: plan.Release{
		Name:          name,
		State:         plan.ReleaseDeployed,
		Revision:      int64(newest.release.Version),
		UID:           newest.secret.UID,
		FirstDeployed: newest.firstDeployed(),
		HasHooks:      newest.hasDeleteHooks(),
	}}
	switch status := newest.release.Info.Status; {
	case status == release.StatusUninstalling:
		r.State = plan.ReleaseUninstalling
	case status.IsPending():
		r.State = plan.ReleasePending
		r.Blocked = v1alpha1.ReasonReleasePending
		r.Detail = fmt.Sprintf("release %q is %s", name, status)
		return r, nil
	}
	reach, err := u.reach(ctx, newest)
	if err != nil {
		return Release{}, fmt.Errorf("cannot look at release %q: %w", name, err)
	}
	for _, o := range reach.objects {
		r.Objects = append(r.Objects, o.Ref)
	}
	if blocked := reach.blocked(namespace, name); blocked != nil {
		r.Blocked, r.Detail = blocked.Reason, blocked.Detail
	}
	return r, nil
}

// Committed is the release that was decided on.
type Committed struct {
	Namespace, Name string
	// Revision, UID and FirstDeployed are those that Look gave.
	Revision      int64
	UID           types.UID
	FirstDeployed time.Time
	// DisableHooks uninstalls a release with delete hooks without running them.
	DisableHooks bool
	// Timeout is how long to wait for deleted objects to be gone. Without one, they are looked at once.
	Timeout time.Duration
	// Self is the Cleaner on whose behalf it is done: never deleted, should the chart contain it.
	Self plan.Ref
}

// Guard is asked right before each write. An error stops the uninstall there, to be resumed.
type Guard interface {
	// MayStart is asked before the release is marked as uninstalling, unless it is so already.
	MayStart() error
	// MayDelete is asked before each DELETE of an object or of a release Secret.
	MayDelete(ref plan.Ref) error
}

// OutcomeState is where an uninstall got to.
type OutcomeState string

const (
	// Unfinished goes with an error, and nothing else is known: the uninstall is to be tried again.
	Unfinished OutcomeState = ""
	// Done means that the release is gone, whoever did it.
	Done OutcomeState = "Done"
	// Replaced means that the release was gone and another one of its name was installed. That one was not touched.
	Replaced OutcomeState = "Replaced"
	// Upgraded means that the release is at another revision than the one that was decided on, or that its record was
	// written anew. Nothing was deleted since.
	Upgraded OutcomeState = "Upgraded"
	// Pending means that somebody is installing, upgrading or rolling back the release.
	Pending OutcomeState = "Pending"
	// Terminating means that all objects were deleted and some are not gone: Remaining. The release stays marked as
	// uninstalling, to be resumed.
	Terminating OutcomeState = "Terminating"
	// Stopped goes with the error of the Guard.
	Stopped OutcomeState = "Stopped"
)

// Outcome is what one call of Uninstall came to.
type Outcome struct {
	State OutcomeState
	// Deleted are the objects and release Secrets whose DELETE was answered with success in this call.
	Deleted []plan.Ref
	// Kept are the objects of the manifest that are left on purpose.
	Kept []Kept
	// Remaining are the objects that are not gone yet.
	Remaining []Remaining
}

// Kept is an object of a manifest that was left.
type Kept struct {
	Ref     plan.Ref
	Because string
}

// Remaining is a deleted object that is still there.
type Remaining struct {
	Ref plan.Ref
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

// Uninstall carries the uninstall of exactly that release to its end, or says why not. It blocks for as long as
// requests take, and up to want.Timeout for objects to go. The Outcome is what was done also when there is an error.
func (u *Uninstaller) Uninstall(ctx context.Context, want Committed, guard Guard) (Outcome, error) {
	s := &session{u: u, ctx: ctx, want: want, guard: guard}
	if err := s.uninstall(); err != nil {
		return s.outcome, fmt.Errorf("cannot uninstall release %q: %w", want.Name, err)
	}
	return s.outcome, nil
}
