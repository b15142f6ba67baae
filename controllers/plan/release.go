// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

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
	// ReleaseUninstalling is being uninstalled, or was left so.
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
	// Digest is a fingerprint of what its uninstall would delete and run.
	Digest string
	// HasHooks says that uninstalling it runs hooks, and HooksBlocked why these cannot be run; empty if they can.
	HasHooks     bool
	HooksBlocked string
	// Blocked is a reason of api/v1alpha1 for which it must not be uninstalled, and Detail says it in words.
	Blocked, Detail string
}
