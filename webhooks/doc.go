// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhooks is the admission webhook for Cleaners, ClusterCleaners and CleanerTemplates. It checks that an object can work, with
// the messages of api/validation and celenv, and that its author may do everything that it does. It validates a Cleaner with its template
// expanded, and a template with the Cleaners that use it.
//
// Every replica answers, whether it leads or not. A write that leaves the spec as it is passes: what is already stored is not validated
// again. The package writes nothing but its own certificates. The controller never trusts it, and checks every spec itself.
//
// It reads a request as a stream first, and trims it: it never decodes what is too large, not even from the API server.
package webhooks
