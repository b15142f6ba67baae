// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package outbox tells a Cleaner's sink about its finished runs, as CloudEvents over HTTP.
//
// An event is made from what status records of a run and from nothing else, so that every attempt, after any restart, sends the same body
// under the same id. A Sender tries each delivery again until the sink has answered with 2xx; a sink that is dead, slow or hostile costs
// a bounded share of the attempts under way and delays nothing else.
//
// The package records nothing that outlives the process: its caller records that an event was delivered, and sends the event again after
// a restart. It follows no redirect, uses no proxy, and reports nothing of a sink's answer beyond the status code. It receives the
// credentials for a sink for one attempt, keeps none, and sends them only to that sink.
package outbox
