// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package budget bounds what an evaluation does, builds and takes of time, and says what each function costs.
//
// A program that is decorated by MeterProgram pays before it acts, from the Budget that its Meter has at that moment. What
// cannot be paid is not done: the evaluation stops with an expr.Error that says which limit was reached and what to write
// instead. Values in Go are shown to expressions without a copy.
//
// It never decides what an answer means, and it reads no clock but to end an evaluation.
package budget
