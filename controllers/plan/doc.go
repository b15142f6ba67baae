// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a Cleaner does next.
//
// Compute answers "what would be done now, and when is the answer worth asking again", from a spec, what its targets
// look like and a moment. Life answers "which request comes next" for a cleaning that has begun, from what is recorded
// in the Cleaner's status and what this process remembers of it.
//
// Both are pure: they read nothing but their arguments, keep no clock and send nothing, so that the controller, the
// command line and the tests reach the same answer from the same input. Anything unknown in the input leads to waiting,
// never to a deletion.
package plan
