// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package serving serves HTTPS, and probes over HTTP, to callers that are not known yet. Whatever a caller does, it holds a bounded part of the
// process: connections, requests at a time, bytes of a header, and seconds. One address holds at most half of the requests
// and a quarter of the connections, so that a flood from one Pod leaves room for the API server.
// When there is no room, who holds most of what is not being answered loses it to who holds less.
package serving
