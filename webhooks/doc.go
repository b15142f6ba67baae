// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks answers the API server's question whether a Cleaner, a ClusterCleaner or a CleanerTemplate may be
// written: whether it can work, in the words of api/validation and celenv, and whether its author may do what it is to do.
// A Cleaner is judged with its template expanded, and a template together with those that use it.
//
// Every replica answers, whether it leads or not, and nothing that is already stored is judged anew: a write that
// leaves the spec as it is passes. It changes nothing but the certificates that it is called with. What does the work
// never trusts it: the controller checks every spec anew.
//
// What is sent is read as a stream first, and trimmed: nothing is decoded that is too large, whoever has sent it.
package webhooks
