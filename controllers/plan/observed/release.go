// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ReleaseState is what a Helm release is like.
type ReleaseState int

const (
	// ReleaseUnknown was not read.
	ReleaseUnknown ReleaseState = iota
	// ReleaseGone does not exist.
	ReleaseGone
	// ReleaseDeployed is there, and nobody is at it.
	ReleaseDeployed
	// ReleaseUninstalling is being uninstalled, or was left so, by whomever.
	ReleaseUninstalling
	// ReleasePending is being installed, upgraded or rolled back.
	ReleasePending
)

// Release is a Helm release as it was read.
type Release struct {
	State    ReleaseState
	Name     string
	Revision int64
	// UID is that of the Secret that holds the revision.
	UID           types.UID
	FirstDeployed time.Time
	// Modified is when the record of a release that is being uninstalled was written last, as its label says; zero if it does not.
	Modified time.Time
	// Mark says on the Secret who has begun to uninstall it, if anything does, and Begun that it is the mark of the open run:
	// this operator has.
	Mark  string
	Begun bool
	// Digest is a fingerprint of what its uninstall would delete and run.
	Digest string
	// HasHooks says that uninstalling it runs hooks, and HooksBlocked why these cannot be run; empty if they can.
	HasHooks     bool
	HooksBlocked string
	// Rights are those that it takes to delete what its uninstall would delete, and HookRights those to run its hooks: in
	// order, one for each verb, resource and namespace. RequiredRights is what an author needs of them.
	Rights, HookRights []Right
	// Blocked is a reason of api/v1alpha1 for which it must not be uninstalled, and Detail says it in words.
	Blocked, Detail string
}

// HasBegun says that the release is being uninstalled, and that the open run has begun that.
func (r *Release) HasBegun() bool { return r.State == ReleaseUninstalling && r.Begun }
