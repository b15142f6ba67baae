// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a Kubernetes control plane on this machine, for tests and for the demo: etcd, kube-apiserver and
// kube-controller-manager as plain child processes on loopback ports, with RBAC, the ServiceAccount admission plugin, verified
// certificates and an audit log.
//
// The programs are built from Go modules (test/controlplane) on first use and kept in the user's cache directory. There is no kubelet and
// no scheduler: Pods are only objects, and never run. The Pod and node controllers that would do what Cleaners do (Pod garbage
// collection, taint eviction) are off.
//
// It never downloads a binary, never touches a cluster that it did not start, and knows nothing of *testing.T.
package cluster
