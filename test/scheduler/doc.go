// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler holds cleaner-scheduler to what docs/scheduler.md says of it: the program itself, built from the module scheduler/,
// with the configuration and the rights of config/components/scheduler, in a real control plane. Nodes and Pods are only objects.
package scheduler
