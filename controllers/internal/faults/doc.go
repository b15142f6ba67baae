// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults names the points at which tests crash or pause the operator: before and after each request that life.Next asks for, and
// between the parts of such a request; and before and after each DELETE, PATCH and eviction that a rule asks for.
//
// Without the build tag faultpoints its functions are empty, and the compiler leaves nothing of them: nothing can make the product crash.
// With it, CLEANER_CRASH_AT=<point>:<n> ends the process at the n-th pass through a point, as kill -9 would, and
// CLEANER_STOP_AT=<point>:<n> pauses it there, until it receives SIGCONT.
//
// It decides nothing, and nothing depends on whether a point was passed.
package faults
