// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package usage finds out what the expressions of a spec read of its targets.
//
// It follows values through an expression that was checked, without evaluating it: from the objects of a target through fields, indexes,
// loops, variables and functions. What only goes through is not read. What reaches a function that is not known here, a comparison, or the
// result, is read as a whole. So it may find that more is read than is, never less.
package usage
