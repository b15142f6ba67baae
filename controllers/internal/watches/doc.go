// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package watches says what the cluster looks like now, and which Cleaners must look again.
//
// Engine keeps informers for what Cleaners want, and an index from objects to the Cleaners that want them, under one
// lock, so that neither can outlive the other. It routes by what a spec asks for, on the old and on the new version of an
// object, so that an object that starts or stops to match is noticed. What cannot be read is a state of that one target,
// and is tried again; nobody waits for it. Live answers the same queries from the API server itself.
//
// It never writes, never decides, never logs, and never hands out an object that changes later.
package watches
