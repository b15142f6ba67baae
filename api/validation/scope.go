// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

// IsClusterScoped reports whether a built-in kind is cluster-scoped. It returns false for all other kinds.
func IsClusterScoped(group, kind string) bool { return findKnownKind(group, kind).clusterScoped }
