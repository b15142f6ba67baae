// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watches watches what Cleaners want to see, answers queries from it, and wakes the Cleaners that a change concerns.
//
// Engine has informers for what Cleaners want, and an index from objects to the Cleaners that want them, under one lock, so that neither
// outlives the other. It compares the old and the new version of an object with each query, and so notices an object that begins or
// ceases to match. A target that cannot be read has a state that says so, and is tried again; it delays no other. Package live answers
// the same queries from the API server.
//
// The parts of an Engine share the lock:
//
//	catalog    the kinds, and the wants on them
//	placement  what the operator may watch, and which scopes serve a want
//	feeds      informers and their changes
//	answers    answers to queries, and how complete they are
//	matcher    which Cleaners a change concerns: without the lock, in turns of namespaces
//	wakeups    the Cleaners to evaluate again
//
// It never writes, never decides, never logs, and never hands out an object that changes later.
package watches
