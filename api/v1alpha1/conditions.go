// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// The names that others may rely on.
const (
	// Finalizer holds a Cleaner while a run is recorded and not yet reported.
	Finalizer = "cleaner.vtex.dev/run"
	// AnnotationRequestedAt asks for an evaluation now: each new value, such as a timestamp, is one request. For a Cleaner with a
	// schedule, a request counts for startingDeadline after the webhook signed it.
	AnnotationRequestedAt = "cleaner.vtex.dev/requestedAt"
	// AnnotationRequest says who has written AnnotationRequestedAt, when, and for which spec and template. The webhook writes and signs
	// it; whatever else is written there is ignored.
	AnnotationRequest = "cleaner.vtex.dev/request"
	// AnnotationAuthor says who wrote the spec. The webhook writes and signs it; whatever else is written there is ignored.
	AnnotationAuthor = "cleaner.vtex.dev/author"
	// AnnotationUninstall is on the record of a Helm release that is being uninstalled, and says for which run or rule. The operator
	// writes and signs it; whatever else is written there is ignored.
	AnnotationUninstall = "cleaner.vtex.dev/uninstall"
	// ProtectKey, as a label or an annotation with the value "true", keeps an object from being touched.
	ProtectKey = "cleaner.vtex.dev/protect"
)

// CleanerAnnotations are the annotations of Cleaners and ClusterCleaners that mean something to the webhook and the operator. Of others
// they keep nothing.
func CleanerAnnotations() []string {
	return []string{AnnotationRequestedAt, AnnotationRequest, AnnotationAuthor}
}

// The condition types of a Cleaner. Each follows the Kubernetes conventions: Ready, Valid, TargetsResolved, Evaluated
// and Delivered are good when True; Stalled, Reconciling, Tripped, SchemaMismatch and RequestDropped appear only while they are True.
const (
	// ConditionReady is True while the Cleaner works as it is written, waiting included.
	ConditionReady = "Ready"
	// ConditionReconciling is there while a run is under way.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is there while nothing will move until a person changes something.
	ConditionStalled = "Stalled"
	// ConditionValid says whether the spec can work: its expressions compile, its values make sense.
	ConditionValid = "Valid"
	// ConditionTargetsResolved says whether the kinds of all targets are served and readable.
	ConditionTargetsResolved = "TargetsResolved"
	// ConditionEvaluated says whether the conditions could be evaluated, whatever they gave.
	ConditionEvaluated = "Evaluated"
	// ConditionTripped is there while a limit forbids what would be done.
	ConditionTripped = "Tripped"
	// ConditionSchemaMismatch is there while expressions read what the schemas of their kinds do not have. It is a warning: the Cleaner acts.
	ConditionSchemaMismatch = "SchemaMismatch"
	// ConditionRequestDropped is set while the operator does not act on the last request for an evaluation outside the schedule. A new
	// request removes it.
	ConditionRequestDropped = "RequestDropped"
	// ConditionDelivered says whether the sink has received the event of the last finished run.
	ConditionDelivered = "Delivered"
)

// The reasons of conditions and verdicts.
const (
	// ReasonWaitingForTTL: the ttl has not passed.
	ReasonWaitingForTTL = "WaitingForTTL"
	// ReasonConditionsNotMet: a condition is false.
	ReasonConditionsNotMet = "ConditionsNotMet"
	// ReasonConditionsMet: all conditions are true.
	ReasonConditionsMet = "ConditionsMet"
	// ReasonSuspended: spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonTargetMissing: a named target does not exist, and onMissing is Wait.
	ReasonTargetMissing = "TargetMissing"
	// ReasonKindNotServed: the API server does not serve a target's kind (yet).
	ReasonKindNotServed = "KindNotServed"
	// ReasonAccessDenied: the operator may not do what the message says.
	ReasonAccessDenied = "AccessDenied"
	// ReasonAuthorLacksRights: the author of the spec may not do what the message says.
	ReasonAuthorLacksRights = "AuthorLacksRights"
	// ReasonAuthorMissing: the author of the spec is unknown, so that nothing is done.
	ReasonAuthorMissing = "AuthorMissing"
	// ReasonSigningKeyMissing: the operator has no key to tell its own records from forged ones, so that nothing is done.
	ReasonSigningKeyMissing = "SigningKeyMissing"
	// ReasonRecordNotTrusted: the record of a run was not signed by this operator, and was dropped.
	ReasonRecordNotTrusted = "RecordNotTrusted"
	// ReasonNotSynced: a target's kind is still being read.
	ReasonNotSynced = "NotSynced"
	// ReasonTooLarge: the objects of a target take more memory than the operator may have.
	ReasonTooLarge = "TooLarge"
	// ReasonNamespaceTerminating: the Cleaner's namespace is being deleted, and no run is begun in it.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonFailed: the operator itself met an error, and tries again.
	ReasonFailed = "Failed"
	// ReasonReadFailed: a target could not be read.
	ReasonReadFailed = "ReadFailed"
	// ReasonEvaluationFailed: a condition, or cloudEventData, gave an error.
	ReasonEvaluationFailed = "EvaluationFailed"
	// ReasonInvalidSpec: the spec cannot work.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonValid: the spec can work.
	ReasonValid = "Valid"
	// ReasonNotInSchema: expressions read a field, or compare one with a value, that objects of its kind do not have.
	ReasonNotInSchema = "NotInSchema"
	// ReasonResolved: every target's kind is served and readable.
	ReasonResolved = "Resolved"
	// ReasonDryRun: all conditions are true, and mode DryRun reports only.
	ReasonDryRun = "DryRun"
	// ReasonProtected: everything that would be deleted is protected.
	ReasonProtected = "Protected"
	// ReasonTooManyObjects: one run may delete at most 5,000 objects.
	ReasonTooManyObjects = "TooManyObjects"
	// ReasonUnconfirmed: live reads did not say what the watches said; it is looked at again.
	ReasonUnconfirmed = "Unconfirmed"
	// ReasonCleaning: a run is under way.
	ReasonCleaning = "Cleaning"
	// ReasonTerminating: a deleted object still exists.
	ReasonTerminating = "Terminating"
	// ReasonDeletionRefused: a deletion was refused; it is tried again.
	ReasonDeletionRefused = "DeletionRefused"
	// ReasonEvictionRefused: an eviction was refused; it is tried again.
	ReasonEvictionRefused = "EvictionRefused"
	// ReasonPatchRefused: a patch, or the removal of a finalizer, was refused; it is tried again.
	ReasonPatchRefused = "PatchRefused"
	// ReasonUninstalling: the Helm release is being uninstalled.
	ReasonUninstalling = "Uninstalling"
	// ReasonUninstallFailed: the Helm release could not be uninstalled; it is tried again.
	ReasonUninstallFailed = "UninstallFailed"
	// ReasonReleasePending: the Helm release is being installed, upgraded or rolled back.
	ReasonReleasePending = "ReleasePending"
	// ReasonReleaseHasHooks: the Helm release has delete hooks that cannot be run, and disableHooks is not set.
	ReasonReleaseHasHooks = "ReleaseHasHooks"
	// ReasonReleaseOutsideNamespace: the Helm release contains objects outside the Cleaner's namespace, and there is no
	// ServiceAccount that answers for them.
	ReasonReleaseOutsideNamespace = "ReleaseOutsideNamespace"
	// ReasonReleaseOwnsServiceAccount: the Helm release contains the rights of the ServiceAccount that would uninstall it.
	ReasonReleaseOwnsServiceAccount = "ReleaseOwnsServiceAccount"
	// ReasonClockSkewSuspected: the operator's clock and the API server's differ too much to decide anything by time.
	ReasonClockSkewSuspected = "ClockSkewSuspected"
	// ReasonTargetUnstable: an object changes faster than it can be decided on.
	ReasonTargetUnstable = "TargetUnstable"
	// ReasonRecreationLoop: what the rule deletes is recreated each time.
	ReasonRecreationLoop = "RecreationLoop"
	// ReasonReleaseUnreadable: the record of the Helm release could not be read.
	ReasonReleaseUnreadable = "ReleaseUnreadable"
	// ReasonLimitExceeded: more would be done than spec.limits allow.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonHolding: what rules want waits until it has held for long enough.
	ReasonHolding = "Holding"
	// ReasonNothingToDo: nothing matches now.
	ReasonNothingToDo = "NothingToDo"
	// ReasonWaitingForSchedule: the schedule is not due.
	ReasonWaitingForSchedule = "WaitingForSchedule"
	// ReasonRequestExpired: startingDeadline has passed since the request was made.
	ReasonRequestExpired = "RequestExpired"
	// ReasonRequestOutlived: the spec or its template has changed since the request was made.
	ReasonRequestOutlived = "RequestOutlived"
	// ReasonRequestNotSigned: the webhook has not signed the request for this spec.
	ReasonRequestNotSigned = "RequestNotSigned"
	// ReasonRequestNotAllowed: the user who made the request may not do all that the Cleaner does.
	ReasonRequestNotAllowed = "RequestNotAllowed"
	// ReasonTemplateMissing: the CleanerTemplate does not exist.
	ReasonTemplateMissing = "TemplateMissing"
	// ReasonDelivering: the event of a finished run is being sent.
	ReasonDelivering = "Delivering"
	// ReasonDelivered: the sink has received the event.
	ReasonDelivered = "Delivered"
	// ReasonDeliveryFailed: the sink did not take the event; it is tried again.
	ReasonDeliveryFailed = "DeliveryFailed"
	// ReasonPartial: the last run left something; the Cleaner waits and tries again.
	ReasonPartial = "Partial"
)

// The reasons of Events that no condition has. Other Events have the Result of a run, or one of the reasons above.
const (
	// EventReasonDeleted: objects were deleted.
	EventReasonDeleted = "Deleted"
	// EventReasonEvicted: Pods were evicted.
	EventReasonEvicted = "Evicted"
	// EventReasonPatched: objects were patched.
	EventReasonPatched = "Patched"
	// EventReasonFinalizerRemoved: a finalizer was removed from objects.
	EventReasonFinalizerRemoved = "FinalizerRemoved"
	// EventReasonUninstallBegun: a rule has begun to uninstall Helm releases.
	EventReasonUninstallBegun = "UninstallBegun"
	// EventReasonUninstalled: a Helm release was uninstalled for a rule.
	EventReasonUninstalled = "Uninstalled"
	// EventReasonReported: a rule reports objects.
	EventReasonReported = "Reported"
	// EventReasonStillTerminating: a run ended while finalizers held an object that it deleted.
	EventReasonStillTerminating = "StillTerminating"
	// EventReasonNotDelivered: a Cleaner was deleted before its sink accepted the event of a run.
	EventReasonNotDelivered = "NotDelivered"
)
