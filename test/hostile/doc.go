// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostile holds the operator to what it promises when those who may write Cleaners, statuses, Secrets or templates, who own a
// sink, or who reach the webhook, mean harm.
//
// The tables in testdata are one input a row: its sender, what the sender wants, what is sent, and what must come of it. All of them are
// sent to one operator, which runs as its Deployment declares it, webhook and memory limit included, beside Cleaners of others that must
// keep working.
//
// Among them is what went wrong in other operators that act for tenants: advisories in table_test.go names the rows.
//
// # Senders
//
//	editor          has cleaner-editor in a namespace, and may write its ConfigMaps and delete its Pods
//	statusWriter    the same, and may write cleaners/status
//	writer          the same as an editor, and may write Secrets
//	owner           the same as an editor, and may impersonate the ServiceAccounts of the namespace
//	owner of a sink the same as an editor, and a server of his is the sink
//	author          has cleaner-cluster-editor, and is an editor of one namespace
//	reader          the same, and may read the ConfigMaps of all namespaces
//	pod             has no rights, and reaches the webhook over the network
//
// # What must come of it
//
//	refused     the API server does not take it, and says this
//	says        a condition of the Cleaner in the end: type, status, reason, and a part of the message
//	harmless    Ready says something about the Cleaner as it is, and there is no harm; the text is why
//	gone        the Cleaner goes, and there is no harm; the text is why
//	undelivered the Cleaner has cleaned, and Delivered says False
//
// A status has to be refused by the policy for status, whatever the row says it is for. Where the policy is not installed, the operator
// drops the record and says so, or the API server refuses what does not fit.
//
// # Who is harmed
//
// Objects that the operator may touch are named free…, in the namespace of the input; in the namespaces of the healthy Cleaners, what
// their rules say. A write of anything else, refused or not, in the operator's name or impersonating an account, is harm; so is a change
// of the objects of another namespace, a restart of the operator, more memory than its limit, and a healthy Cleaner that does not act.
package hostile
