// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package helm uninstalls one Helm release, and nothing that is not part of it.
//
// The uninstall itself is Helm's own; underneath it, the requests are this package's. Every DELETE, of an object of the
// manifest and of a release Secret alike, carries UID and resourceVersion of a read made right before it, after that
// read has shown that the object belongs to the release and a list of the release's Secrets that the release is still
// the one that was decided on. The Secrets go last, the newest at the very end, so that an uninstall that was cut short
// anywhere is found `uninstalling` and carried on.
//
// It never runs hooks, never touches a finalizer, and never deletes outside the namespace of the release. It decides
// nothing about when: that is its caller's. It is the only package of the operator that imports Helm.
package helm
