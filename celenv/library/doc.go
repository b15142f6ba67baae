// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package library holds the functions that expressions of a Cleaner have besides those of CEL and of Kubernetes.
//
// One file is one group of functions, and its Go doc is their reference. Each function is pure, reads nothing but its
// arguments, and gives an error instead of a guess. None counts what it costs: that is the environment's to do, which
// knows every function by name.
package library
