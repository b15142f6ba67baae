// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expr is the text of an expression: its tree, the place of each part, what is wrong or doubtful there, and what to
// write instead.
//
// It never evaluates an expression, and it knows nothing of a Cleaner.
package expr
