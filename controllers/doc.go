// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers reconciles Cleaners: it watches them and the objects that they name, and carries out what package plan decides.
//
//	API server ── watch ──▶ internal/watches    one informer per (resource, scope, shape), owners by name
//	                          index: old and new version of the object ─▶ Cleaner keys
//	                               │
//	                               ▼  internal/fair: one key per Cleaner, coalesced; AddAfter is the timer; namespaces share the workers
//	Reconcile(key)
//	  A read      the Cleaner; gone ─▶ forget everything about it
//	  B carry on  an open run, an event that is not delivered, a deletion: life.Next says which request comes next, for both lives
//	  C compile   celenv, once per generation
//	  D listen    watches.SetInterests, before observing; not before the ttl
//	  E observe   snapshot.Queries.Read: each target Complete | Unsynced | Forbidden | NoSuchKind | TooLarge | Failed
//	  F decide    plan.ComputePlan: pure
//	  G confirm   live reads ─▶ plan.ComputePlan again ─▶ plan.AgreePlans, or for a Recurring Cleaner plan.IntersectPlans
//	  H commit    the finalizer, then status.run, both by resourceVersion; from here on B acts, and a Recurring Cleaner acts at once:
//	                internal/actuate       DELETE {uid, resourceVersion}, 32 in flight
//	                internal/actuate/helm  on a pool of its own
//	                internal/outbox        the CloudEvent, on a queue of its own
//	  I report    status, if something other than a time differs
//	  J sleep     until the plan can change by time alone, or retry.period: every exit re-arms
//
// Everything that deletes is behind controllers/internal, where the webhooks and the command line cannot import it.
package controllers
