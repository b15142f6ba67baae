// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package celenv is the language of a Cleaner: what an expression may say, and what it may cost.
//
// A Compiler turns the expressions of a spec into Programs, or says what is wrong with them, with a line, a column and
// what to write instead. An Evaluation of Programs looks at one Input: conditions, the data of the event, and the rules
// with their items. It answers with values or an Error that names the place, the object and the remedy. Every evaluation
// is bounded in steps, in what it builds and in time. Beside the answers it has a Foresight: until when they hold if nothing
// but the time changes. That comes from programs of its own, so that no answer depends on it.
//
// With the packages below it, it is the only one that knows cel-go. It never reads a cluster, a file, or a clock but to bound itself, it never
// changes what it is given, and an error is never an answer. What to do with the answers is not its to decide.
package celenv
