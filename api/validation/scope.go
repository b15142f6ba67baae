// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

// ClusterScoped says that a kind of Kubernetes itself lives in no namespace. Of other kinds it knows nothing.
func ClusterScoped(group, kind string) bool { return kindOf(group, kind).clusterScoped }
