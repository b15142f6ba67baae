// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

// IsClusterScoped says that a kind of Kubernetes itself lives in no namespace. Of other kinds it knows nothing.
func IsClusterScoped(group, kind string) bool { return findKnownKind(group, kind).clusterScoped }
