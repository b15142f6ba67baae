// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package keptparts says which parts of objects the store of an informer keeps, how often it may be listed again to keep more, and which parts
// of objects are equal.
//
// A store keeps what any of its queries reads. Wants counts these reads, each once. When a list begins, MergeReads makes Parts of them, which
// all objects have that are stored from then on. A query whose reads the Parts do not cover must not be answered from the store: it waits
// until all is listed again, as often as a Pace lets through. Queries that wait at the same time wait for the same list.
//
// A Sharing makes equal parts of objects one. It never changes what an object says.
package keptparts
