// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a Cleaner does next.
//
// Compute answers "what would be done now, and when is the answer worth asking again", from a spec, what its targets
// look like and a moment. Next answers "which request comes next" for a cleaning that has begun, from what is recorded
// in the Cleaner's status and what this process remembers of it.
//
// What rules want is decided in two looks. The first is at what the watches show, and costs no request. The plan then
// asks for the reads that its first items rest on (Plan.Confirm); the caller makes them, puts the answers over the snapshot
// (Snapshot.WithLive), adds them to Input.Confirmed and computes again, until no more is asked. What the first and the last
// plan want (Intersect) may be done.
//
// All of it is pure: it reads nothing but its arguments, keeps no clock and sends nothing, so that the controller, the
// command line and the tests reach the same answer from the same input. Anything unknown in the input leads to waiting,
// never to a deletion.
package plan
