// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package celenv is the language of a Cleaner: what an expression may say, and what it may cost.
//
// A Compiler turns the expressions of a spec into Programs, or says what is wrong with them, with a line, a column and what to write
// instead. An Evaluation of Programs looks at one Input: conditions, the data of the event, and the rules with their items. It returns
// values, or an Error that names the place, the object and the remedy. Every evaluation is bounded in steps, in what it builds and in
// time. Beside the results it returns a Foresight: until when they are valid if nothing but the time changes. That comes from programs of
// its own, so that no result depends on it.
//
// Only this package and those below it use cel-go. It never reads a cluster or a file, reads a clock only to bound itself, and never
// changes its input. An error is never a result. Callers decide what to do with the results.
package celenv
