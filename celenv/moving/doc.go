// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package moving says until when answers hold if nothing but the time changes.
//
// Analyze finds the calls of an expression that can be given a value which changes as time passes. FollowCalls has a program
// follow such values through these calls; a Lookout notes when an answer may become another one, or that nobody can say.
//
// It never gives an answer: a program of its own is evaluated beside the one that does. It reads no clock.
package moving
