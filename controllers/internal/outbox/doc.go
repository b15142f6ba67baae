// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outbox tells a Cleaner's sink about its finished runs, as CloudEvents over HTTP.
//
// An event is made from what status records of a run and from nothing else, so that every attempt, after any restart,
// sends the same body under the same id. A Sender tries each delivery again until the sink has answered with 2xx; a
// sink that is dead, slow or hostile costs a bounded share of the attempts under way and holds nothing else up.
//
// The package records nothing that outlives the process: whoever sees a delivery done writes that down, and sends the
// run again after a restart. It follows no redirect, uses no proxy, and shows nobody what a sink answered beyond the
// status code. What shows a sink who has sent an event is a value that it is given for one attempt; it keeps none, and shows
// it to nobody but the sink.
package outbox
