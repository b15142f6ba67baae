// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package celenv is the language of a Cleaner: what an expression may say, and what it may cost.
//
// A Compiler turns the conditions of a spec into Programs, or says what is wrong with them, with a line, a column and
// what to write instead. Programs answer with true, false or an Error that names the place, the object and the remedy.
// Every evaluation is bounded in steps, in what it builds and in time.
//
// It is the only package that knows cel-go. It never reads a cluster, a clock or a file, it never changes what it is
// given, and an error is never an answer.
package celenv
