// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers is the machine: it watches Cleaners and what they name, and carries out what package plan says.
//
//	API server ── watch ──▶ internal/watches    one informer per (resource, scope, shape), owners by name
//	                          index: old and new version of the object ─▶ Cleaner keys
//	                               │
//	                               ▼  internal/fair: one key per Cleaner, coalesced; AddAfter is the timer; namespaces share the workers
//	Reconcile(key)
//	  1 read      the Cleaner; gone ─▶ forget everything about it
//	  2 carry on  an open run, a report that is owed, a deletion: life.Next says which request comes next, for both lives
//	  3 compile   celenv, once per generation
//	  4 listen    watches.SetInterests, before looking; not before the ttl
//	  5 look      snapshot.ReadTargets: each target Complete | Unsynced | Forbidden | NoSuchKind | Failed
//	  6 decide    plan.ComputePlan: pure
//	  7 confirm   live reads ─▶ plan.ComputePlan again ─▶ plan.AgreePlans, or for one that stays plan.IntersectPlans
//	  8 commit    the finalizer, then status.run, both by resourceVersion; from here on it is 2 that acts, and one that stays acts at once:
//	                internal/actuate       DELETE {uid, resourceVersion}, 32 in flight
//	                internal/actuate/helm  on a pool of its own
//	                internal/outbox        the CloudEvent, on a queue of its own
//	  9 report    status, if something other than a time differs
//	 10 sleep     until the plan can change by time alone, or retry.period: every exit re-arms
//
// Only this package logs and emits Events. What deletes lies behind controllers/internal, where webhooks and command
// lines cannot reach it.
package controllers
