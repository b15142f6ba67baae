// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package life decides what comes next in the life of a Cleaner and its run, and holds what one process remembers of it.
//
// Next answers "which request comes next" for a Cleaner of either life, from what is recorded in its status and what this process
// remembers of it. JudgeRun says on live reads what an open run is still to do, and CommitRun, BeginBatch and FinishRun say what is
// recorded of it.
//
// It is as pure as package plan: it keeps no clock and sends nothing. Anything unknown in the input leads to waiting or to another
// read, never to a deletion.
package life
