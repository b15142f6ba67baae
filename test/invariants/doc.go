// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invariants judges what the operator did by what it promises, after the fact and from the outside: from the API
// server's audit log, the logs of the operator's processes, what sinks received, and the Cleaners as they are at the end.
// It shares no code with the operator but the types of the API, so that it shares no mistake with it.
//
// Whose deeds: each request of the operator's user, in its own name or impersonating another. A deed is a DELETE, an
// eviction or a PATCH of what is no Cleaner. Cleaners are judged in the Record's namespaces, ClusterCleaners all; deeds in
// those namespaces, in each that nobody else judges, and on what is in no namespace.
//
// What is checked, and how:
//
//	I1  Preconditions. Each DELETE carries a UID and a resourceVersion, each eviction and each PATCH a resourceVersion (a
//	    JSON patch by a test before its first operation), granted or not; none is of a collection.
//	I2  Nothing undecided. The run was recorded by the operator (what somebody else writes there is no record), by a write
//	    that named the Cleaner's resourceVersion. Each deed names a
//	    UID that stood in the rows of an open run before the request arrived, or, a DELETE, an object of the manifest, a hook
//	    or a record of the release that such a run names. What a deed has hit, as its answer says, is what it named. A line
//	    "Intent" with the same UID, resourceVersion and verb was logged before, one for each request. For a Recurring Cleaner
//	    that line is the record: it names a Cleaner that may act there, the rule, the run or the evaluation, and the
//	    fingerprint of the spec. Of a release that a rule uninstalls it names the release, a line of the same rule has told
//	    of the beginning before, and the object is one of the release. A Cleaner itself is deleted by the resourceVersion of a state in which its run has the
//	    result Completed, and never while it is Recurring.
//	I3  No evidence, no commit. In the 11 s before a commit each target that expressions see was read live: by a GET of its
//	    name, or by a LIST with exactly its selectors that no cache may answer, or without any, such as those by which the
//	    operator proves that a watch knows all. The last such read was a success, or a
//	    404 where a missing target counts as null. A target that does may go unread: discovery says that its kind is not
//	    served. What the answer was made into is not seen. So it is in the 11 s before each deed of a Recurring Cleaner,
//	    but by reads that were sent after the decision that the Intent names, for the targets that its conditions name,
//	    directly or through variables, for all that expressions see if it deletes a target, for what its rule decides by,
//	    and for what the rule confirms without a name. What it confirms by name follows from the item, and is not
//	    judged. The Namespaces that a target selects by their labels are read too, and the definition of a custom kind,
//	    or all of the target instead. Of a template the body counts that was written last, unless that was at about the time.
//	I4  The ttl. No commit and no deed before creationTimestamp + ttl, by the API server's clock.
//	I5  Orders. No deed whose Intent was logged later than Latency after the Cleaner was suspended, put into DryRun,
//	    deleted, or edited in what decides, unless that was taken back. A Recurring Cleaner was edited when its spec differs
//	    from the one that was in force when the fingerprint of the Intent was logged first; an edit of a template is not
//	    seen. Of a release that has begun to be uninstalled, suspend and DryRun count alone.
//	I6  Protection. No deed in protected namespaces (but by a ClusterCleaner that includes them), in the operator's own, on
//	    cluster-scoped objects but by a ClusterCleaner, or on a release's record but by a release, or by a DELETE of a
//	    superseded one for a spec that asks for Secrets by that type alone; no DELETE of protected
//	    kinds (RBAC objects of a release excepted), nor of a Cleaner but by its own run; none granted on an object that
//	    carried cleaner.vtex.dev/protect.
//	I7  Limits. A run is not committed with more rows than maxActions. In any limits.per, since the last line "Starting
//	    workers" of the log, a Recurring Cleaner has touched no more objects than the widest maxActions that was in force. A
//	    Cleaner's requests come no faster than actionsPerSecond, but for those that may wait for a place in flight.
//	    Of the objects of a target that the record shows to have been there in any limits.per, it has touched no more
//	    percent than the widest maxPercent; targets with a fieldSelector are not judged.
//	I8  The event. For each finished run of a Cleaner with a sink that is known to the Record: a request was answered with
//	    2xx before the Cleaner went; or the Cleaner is there, keeps the payload, and Delivered is False; or somebody deleted it, and the log has
//	    the event. All attempts have the same id, source, type and data.
//	I9  An end. No Cleaner goes with an open run, unless somebody took its finalizer off; rows of an open run and a result
//	    never change; run numbers grow one by one. A Recurring Cleaner adds rows to an open run, and drops one without a
//	    result only when it has no sink.
//	I12 A reason. Each Cleaner that is there at the end says in Ready why, for its present generation; one that was deleted
//	    and is not held by the operator need not.
//
//	I13 One more DELETE. Of what a run has asked to delete, and what no finalizer holds, it deletes each object at most once
//	    more; the line that tells of it says again.
//
// When a Cleaner with a schedule may act is not judged: whether a request for an evaluation was over depends on when the webhook has
// signed it, and on what kept the operator from it. TestARequestIsNotHeldWithARun in test/webhook judges that on a control plane.
//
// I10, a Cleaner at rest, is a check of its own, Restless, because only its caller knows when all are at rest: one with a
// schedule is not, for it writes down each tick. I11 (nobody waits for somebody else's trouble) cannot be read from a
// record: tests with a fault let a Cleaner beside it finish in time.
//
// What cannot be seen: requests that the API server was serving when it was killed are in no audit log; of one that was
// refused before its body was read, nobody knows what it demanded; reads are logged
// without their content, so that "at the version that conditions saw" is as good as "at a version that was decided on or
// read"; a request that was sent in time and arrived late, because its sender was paused, is judged by its Intent.
package invariants
