// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package helm uninstalls one Helm release, hooks included, and nothing that is not part of it.
//
// The uninstall itself is Helm's own; underneath it, the requests are this package's. Every DELETE, of an object of the manifest and of a
// release Secret alike, carries UID and resourceVersion of a read made right before it, after that read has shown that the object belongs
// to the release and a list of the release's Secrets that the release is still the one that was decided on. The Secrets go last, the
// newest at the very end, so that an uninstall that was cut short anywhere is found `uninstalling` and carried on: if the newest bears
// the mark that its caller wrote with that status. Otherwise another client has set that status, and the uninstall begins like any other.
//
// A user who may write Secrets decides what a release is. What was decided on is known by a digest of its manifest and its delete hooks:
// a record that says something else since is not acted on. Hooks are run, and objects outside the namespace deleted, only as a
// ServiceAccount, whose own rights bound it; as the operator, a release that has either is refused. Hooks are run by Helm, in its order
// and with its delete policies. A hook that fails or takes too long leaves the release `uninstalling` with its record, and is run again
// by the next attempt; one that takes longer than an attempt may is found again, not made again. Once the last hook of an event has ended well the
// record says so, before its objects are cleaned up, and those hooks are not run a second time: a later attempt only finishes the cleanup.
//
// A record is decoded here alone, from a stream and within bounds, in a slot for which the caller waits, and once: what it says is kept
// until its Secret changes. Helm is given a storage of this package's, which shows it what was read, and never a Secret.
//
// It never touches a finalizer, never deletes what is protected, nor the rights that it acts with. Its caller decides when. It is the
// only package of the operator that imports Helm.
package helm
