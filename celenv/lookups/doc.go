// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lookups finds out which keys of variables' maps an expression has looked up, and which values have changed since: when nothing
// has changed that an answer has looked up, it is the same answer. It changes no result of an expression.
//
// Keys are known by sums. Two keys of one sum make a change concern more answers than it does, never fewer.
package lookups
