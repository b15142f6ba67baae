// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chart holds charts/cleaner to what it promises: what it renders is what kustomize makes of config/, values that
// mean nothing are refused, and on a real control plane it is installed, upgraded and uninstalled by Helm's own code without
// the loss of a single Cleaner.
//
// It has tests only.
package chart
