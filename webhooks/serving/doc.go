// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving serves HTTPS, and probes over HTTP, to callers that it does not know. It bounds what a caller can hold: connections,
// parallel requests, bytes of a header, and seconds. One address holds at most half of the requests and a quarter of the
// connections, so that a flood from one Pod leaves room for the API server.
//
// When there is no room, the caller that holds most of what is not being answered loses some of it to callers that hold less.
package serving
