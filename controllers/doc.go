// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers reconciles Cleaners: it watches them and the objects that they name, and carries out what package plan decides.
//
//	API server ── watch ──▶ internal/watches    one informer per (resource, scope, shape), owners by name
//	                          index: old and new version of the object ─▶ Cleaner keys
//	                               │
//	                               ▼  internal/fair: one key per Cleaner, coalesced; AddAfter is the timer; namespaces share the workers
//	Reconcile(key)
//	  1 read      the Cleaner; gone ─▶ forget everything about it
//	  2 carry on  an open run, an event that is not delivered, a deletion: life.Next says which request comes next, for both lives
//	  3 compile   celenv, once per generation
//	  4 listen    watches.SetInterests, before observing; not before the ttl
//	  5 observe   snapshot.Queries.Read: each target Complete | Unsynced | Forbidden | NoSuchKind | Failed
//	  6 decide    plan.ComputePlan: pure
//	  7 confirm   live reads ─▶ plan.ComputePlan again ─▶ plan.AgreePlans, or for a Recurring Cleaner plan.IntersectPlans
//	  8 commit    the finalizer, then status.run, both by resourceVersion; from here on 2 acts, and a Recurring Cleaner acts at once:
//	                internal/actuate       DELETE {uid, resourceVersion}, 32 in flight
//	                internal/actuate/helm  on a pool of its own
//	                internal/outbox        the CloudEvent, on a queue of its own
//	  9 report    status, if something other than a time differs
//	 10 sleep     until the plan can change by time alone, or retry.period: every exit re-arms
//
// Everything that deletes is behind controllers/internal, where the webhooks and the command line cannot import it.
package controllers
