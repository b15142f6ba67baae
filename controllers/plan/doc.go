// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a Cleaner is to do.
//
// ComputePlan computes what a Cleaner would do now, and when to compute it again, from its spec, a snapshot of its targets
// and a time. Package life decides what comes next for a run that has started.
//
// What rules want is decided in two looks. The first is at what the watches show, and costs no request. The plan then
// asks for the reads that its first items depend on (Plan.Confirm); the caller makes them, puts the answers over the snapshot
// (Snapshot.WithLive), adds them to Input.Confirmed and computes again, until no more is asked. What the first and the last
// plan want (IntersectPlans) may be done. Of a Cleaner that cleans once everything is read live for the second look, and what both plans want
// (AgreePlans) is its run.
//
// All of it is pure: it reads nothing but its arguments, keeps no clock and sends nothing, so that the controller, the
// command line and the tests reach the same answer from the same input. Anything unknown in the input leads to waiting,
// never to a deletion.
package plan
