// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The bounds on numbers and times below are what Go can decode: one Cleaner that cannot be decoded would stop the watch
// of all. OpenAPI's int64 and date-time alone let more through, such as 1e30 or a list.

// CleanerStatus contains what the operator found and did.
type CleanerStatus struct {
	// The generation of the spec that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The current state of the Cleaner. Ready is the summary. Valid, TargetsResolved, Evaluated and Delivered give the
	// details. Stalled, Reconciling, Tripped, RequestDropped and SchemaMismatch are present only while they are True.
	// SchemaMismatch is a warning: expressions read fields that the schema of a kind does not have.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="self.lastTransitionTime >= timestamp('0001-01-01T00:00:00Z')",message="lastTransitionTime must be a time as in 2006-01-02T15:04:05Z"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The first 100 objects that the targets currently select, each as "<Kind> <namespace>/<name>", or "<Kind> <name>"
	// if the kind is cluster-scoped.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=2048
	ResolvedTargets []string `json:"resolvedTargets,omitempty"`

	// The number of objects that the targets currently select.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	ResolvedTargetCount int64 `json:"resolvedTargetCount,omitempty"`

	// When the Cleaner is evaluated next if nothing changes before then. With lifecycle Recurring, retry.period and the
	// schedule do not count.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	NextScheduledEvaluation *metav1.Time `json:"nextScheduledEvaluation,omitempty"`

	// The result of the last evaluation.
	// +optional
	LastEvaluation *Evaluation `json:"lastEvaluation,omitempty"`

	// The last scheduled time for which the Cleaner was evaluated.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// The first 20 items that match `when` of a rule and still wait for its `for` timer.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Pending []Pending `json:"pending,omitempty"`

	// What each rule with a report action currently finds, in the order of the rules. A rule that finds nothing has no
	// entry. The texts of all entries together are at most 32 KiB. Only with lifecycle Recurring.
	// +optional
	// +listType=map
	// +listMapKey=rule
	// +kubebuilder:validation:MaxItems=64
	Findings []Finding `json:"findings,omitempty"`

	// The kinds that a target of kind "*" skips: those that the operator, the author or the ServiceAccount is not allowed to
	// list and delete, and those that cannot be read. Nothing is done to their objects.
	// +optional
	SkippedKinds *SkippedKinds `json:"skippedKinds,omitempty"`

	// How many items of each rule each step has left out, in the order of the rules. Written together with the rest of
	// the status: if only these numbers change, the status keeps the earlier ones. Without rules, or while the rules are
	// not evaluated, there are none.
	// +optional
	// +listType=map
	// +listMapKey=rule
	// +kubebuilder:validation:MaxItems=64
	RuleCounts []RuleCounts `json:"ruleCounts,omitempty"`

	// The last 20 actions, newest first. In mode DryRun, the actions that would have been performed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	LastActions []Action `json:"lastActions,omitempty"`

	// The last value of the annotation cleaner.vtex.dev/requestedAt that the operator has handled. The operator evaluated
	// the Cleaner, or dropped the request: then the condition RequestDropped says why.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	LastRequestedAt string `json:"lastRequestedAt,omitempty"`

	// How many actions were performed, and how many failed, since the Cleaner was created.
	// +optional
	Counters *Counters `json:"counters,omitempty"`

	// The number of cleanups that have started. With lifecycle Recurring, they are counted only if there is a
	// cloudEventSink.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Runs int64 `json:"runs,omitempty"`

	// The cleanup that is in progress, or that is finished but not yet reported.
	// +optional
	Run *Run `json:"run,omitempty"`

	// A finished cleanup whose event the sink has not received yet. Another cleanup can start in the meantime.
	// +optional
	Unsent *Run `json:"unsent,omitempty"`

	// When the operator last wrote one of runs, run, unsent, lastScheduleTime and lastRequestedAt. The operator ignores a
	// record that is older than one it has seen.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`\.[0-9]{6}(Z|[-+][0-9:]{5})$`
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05.000000Z"
	RecordedAt *metav1.MicroTime `json:"recordedAt,omitempty"`

	// The signature of the operator over runs, run, unsent, lastScheduleTime, lastRequestedAt and recordedAt. The
	// operator ignores a record that it has not signed.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Signature string `json:"signature,omitempty"`
}

// SkippedKinds are the kinds that targets of kind "*" skip.
type SkippedKinds struct {
	// How many kinds are skipped.
	// +required
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Count int64 `json:"count"`

	// The first 20 of them, each as <resource> or <resource>.<group>, with the reason.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Kinds []SkippedKind `json:"kinds,omitempty"`
}

// SkippedKind is a kind that a target of kind "*" skips.
type SkippedKind struct {
	// The name of the target.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Target string `json:"target"`

	// The resource, as <resource> or <resource>.<group>.
	// +required
	// +kubebuilder:validation:MaxLength=320
	Kind string `json:"kind"`

	// Why it is skipped.
	// +required
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason"`
}

// Verdict is the decision of an evaluation.
//
// +kubebuilder:validation:Enum=Wait;Act;Blocked;Invalid
type Verdict string

const (
	// VerdictWait means that a requirement is not met yet.
	VerdictWait Verdict = "Wait"
	// VerdictAct means that all requirements are met and there is something to do.
	VerdictAct Verdict = "Act"
	// VerdictBlocked means that all requirements are met but something prevents the actions.
	VerdictBlocked Verdict = "Blocked"
	// VerdictInvalid means that the Cleaner cannot work as written.
	VerdictInvalid Verdict = "Invalid"
)

// Evaluation is the result of evaluating the targets, conditions and rules.
type Evaluation struct {
	// When an evaluation first had this result.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	Time metav1.Time `json:"time"`
	// The decision: Wait, Act, Blocked or Invalid.
	Verdict Verdict `json:"verdict"`
	// The reason for the decision, as one CamelCase word.
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// The reason for the decision, as a sentence.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
	// The result of each condition, in the order of the spec.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Conditions []ConditionOutcome `json:"conditions,omitempty"`
	// The first 20 errors of items of rules. The operator does not act on an item with an error. Other items are not
	// affected.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Errors []ItemError `json:"errors,omitempty"`
	// The first 20 objects that were selected but that the operator must not touch.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Withheld []Withheld `json:"withheld,omitempty"`
}

// RuleCounts is what becomes of the items of a rule. Items that match `when` are in one of the other numbers, have an
// error, or there is nothing to do for them.
type RuleCounts struct {
	// The name of the rule.
	// +kubebuilder:validation:MaxLength=2048
	Rule string `json:"rule"`
	// How many items `forEach` gives.
	// +optional
	Items int64 `json:"items,omitempty"`
	// For how many of them `when` is true.
	// +optional
	Matched int64 `json:"matched,omitempty"`
	// How many of these `keep` and `leave` leave out.
	// +optional
	Kept int64 `json:"kept,omitempty"`
	// How many `unless` leaves out.
	// +optional
	Spared int64 `json:"spared,omitempty"`
	// How many wait for the end of `for`.
	// +optional
	Waiting int64 `json:"waiting,omitempty"`
	// How many are protected.
	// +optional
	Protected int64 `json:"protected,omitempty"`
	// How many are left to an earlier rule, which acts on the same object.
	// +optional
	Shadowed int64 `json:"shadowed,omitempty"`
	// How many wait because an earlier action on their object has failed.
	// +optional
	Deferred int64 `json:"deferred,omitempty"`
	// How many have an error, in any field of the rule.
	// +optional
	Errors int64 `json:"errors,omitempty"`
	// How many the rule acts on, or would act on, such as in mode DryRun or with a limit exceeded.
	// +optional
	Acted int64 `json:"acted,omitempty"`
}

// Pending is an item that matches `when` and still waits for its `for` timer.
type Pending struct {
	// The name of the rule.
	// +kubebuilder:validation:MaxLength=2048
	Rule string `json:"rule"`
	// The value of forKey or key, or else the object.
	// +kubebuilder:validation:MaxLength=2048
	Key string `json:"key"`
	// When the `for` timer of the item ends.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	Until metav1.Time `json:"until"`
}

// ItemError is an error of one or more items of a rule. Errors with the same message are combined.
type ItemError struct {
	// The name of the rule.
	// +kubebuilder:validation:MaxLength=2048
	Rule string `json:"rule"`
	// The key or the object of the first item with this error. Empty if the error affects all items.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Key string `json:"key,omitempty"`
	// The field of the rule with the expression that failed.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Field string `json:"field,omitempty"`
	// The error message.
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message"`
	// The number of items with this error.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Count int64 `json:"count,omitempty"`
}

// Counters count actions. They are written together with the rest of the status.
type Counters struct {
	// The number of actions that succeeded. An object counts once for each action on it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Acted int64 `json:"acted,omitempty"`
	// The number of requests that were refused or failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Failed int64 `json:"failed,omitempty"`
}

// ConditionOutcome is the result of one condition: a value or an error.
type ConditionOutcome struct {
	// The expression, truncated to 256 characters.
	// +kubebuilder:validation:MaxLength=2048
	Expression string `json:"expression"`
	// The value. Not set if the expression failed.
	// +optional
	Value *bool `json:"value,omitempty"`
	// The error, if the expression failed.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Error string `json:"error,omitempty"`
}

// Finding is what a rule with a report action currently finds.
type Finding struct {
	// The name of the rule.
	// +kubebuilder:validation:MaxLength=63
	Rule string `json:"rule"`
	// The number of items that the rule reports.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Count int64 `json:"count"`
	// The first 5 of these items, each by its key or its object.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	// +kubebuilder:validation:items:MaxLength=1024
	Items []string `json:"items,omitempty"`
	// The reason that the rule gives for the first item.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Action is one action on one object.
type Action struct {
	// The object, as "<Kind> <namespace>/<name>", or "<Kind> <name>" if the kind is cluster-scoped. If the item is not
	// an object, its key.
	// +kubebuilder:validation:MaxLength=2048
	Object string `json:"object"`
	// The UID of the object.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	UID string `json:"uid,omitempty"`
	// What caused the action: the name of a rule, targets.<name>, helm, or status.run if the operator replaced a record
	// that it does not trust.
	// +kubebuilder:validation:MaxLength=2048
	Rule string `json:"rule"`
	// The action: report, delete, evict, patch, removeFinalizer, helmUninstall or replace. In a dry run, " (dry run)"
	// follows.
	// +kubebuilder:validation:MaxLength=2048
	Action string `json:"action"`
	// When the action was performed, or rehearsed in a dry run.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	Time metav1.Time `json:"time"`
	// The result of the action, with the reason that the rule gives.
	// +kubebuilder:validation:MaxLength=2048
	Result string `json:"result"`
}

// Result is how a cleanup ended.
//
// +kubebuilder:validation:Enum=Completed;Partial;Abandoned
type Result string

const (
	// ResultCompleted means that all objects are deleted or gone, and the release is uninstalled.
	ResultCompleted Result = "Completed"
	// ResultPartial means that something is left: an object was kept or replaced, or the cleanup was stopped.
	ResultPartial Result = "Partial"
	// ResultAbandoned means that the Cleaner was deleted before the cleanup was finished.
	ResultAbandoned Result = "Abandoned"
)

// Outcome is what happened to an object of a cleanup.
//
// +kubebuilder:validation:Enum=deleted;evicted;patched;uninstalling;gone;kept;replaced;terminating;unknown
type Outcome string

const (
	// OutcomeDeleted means that the operator deleted the object.
	OutcomeDeleted Outcome = "deleted"
	// OutcomeEvicted means that the operator evicted the Pod.
	OutcomeEvicted Outcome = "evicted"
	// OutcomePatched means that the operator changed the object.
	OutcomePatched Outcome = "patched"
	// OutcomeUninstalling means that the operator began to uninstall the Helm release that the object records. An Event says when it is
	// gone.
	OutcomeUninstalling Outcome = "uninstalling"
	// OutcomeGone means that the object was already gone, or already terminating.
	OutcomeGone Outcome = "gone"
	// OutcomeKept means that the object was not deleted.
	OutcomeKept Outcome = "kept"
	// OutcomeReplaced means that another object has the same name now. The operator did not touch it.
	OutcomeReplaced Outcome = "replaced"
	// OutcomeTerminating means that the object is deleted, but finalizers still keep it.
	OutcomeTerminating Outcome = "terminating"
	// OutcomeUnknown means that a response was lost and the operator could not determine the outcome.
	OutcomeUnknown Outcome = "unknown"
)

// Run is one cleanup; messages and Events call it a run. The operator records it before the first deletion,
// continues it after a crash, and reports it as one CloudEvent. It acts only on the objects in the rows and on the
// Helm release of the cleanup.
type Run struct {
	// Recurring if the Cleaner has lifecycle Recurring, otherwise not set. With Recurring, rows has only the objects that
	// counts does not count yet.
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
	// The number of the cleanup, starting at 1.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Number int64 `json:"number"`
	// A fingerprint of the part of the spec that this cleanup is based on. If that part changes, the cleanup stops.
	// +kubebuilder:validation:MaxLength=128
	Decides string `json:"decides"`
	// When the operator decided to start the cleanup.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	DecidedAt metav1.Time `json:"decidedAt"`
	// The ServiceAccount that the operator impersonates for this cleanup. For a ClusterCleaner, it is
	// <namespace>/<name>. Not set if the operator uses its own identity.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// The objects to act on, each as "<rule> <resource>.<group>/<version> <namespace>/<name> <uid> <resourceVersion>".
	// Empty once there is a result.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	// +kubebuilder:validation:items:MaxLength=4096
	Rows []string `json:"rows,omitempty"`
	// The Helm release to uninstall.
	// +optional
	Helm *HelmRelease `json:"helm,omitempty"`
	// The first 200 objects that were selected but that the operator must not delete.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Withheld []Withheld `json:"withheld,omitempty"`
	// The value of cloudEventData when the cleanup started, as JSON.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Data string `json:"data,omitempty"`
	// How the cleanup ended. Not set while it is in progress; never changes once set.
	// +optional
	Result Result `json:"result,omitempty"`
	// When the cleanup ended. Set together with the result.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Why the cleanup ended with this result.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`
	// How many objects of each resource had each outcome.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Counts []Count `json:"counts,omitempty"`
	// The outcome of the first 200 objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Outcomes []RowOutcome `json:"outcomes,omitempty"`
}

// HelmRelease identifies a release at the time of the decision, so that a different release with the same name is not
// uninstalled.
type HelmRelease struct {
	// The name of the release.
	// +kubebuilder:validation:MaxLength=2048
	Name string `json:"name"`
	// The revision at the time of the decision.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Revision int64 `json:"revision"`
	// The UID of the Secret that contains this revision.
	// +kubebuilder:validation:MaxLength=2048
	UID string `json:"uid"`
	// When the release was first installed.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`\.[0-9]{6}(Z|[-+][0-9:]{5})$`
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05.000000Z"
	FirstDeployed metav1.MicroTime `json:"firstDeployed"`
	// A fingerprint of the objects and hooks in the record of this revision. If they change, the release is not
	// uninstalled.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`
	// Whether the hooks are skipped.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`
	// What happened to the release. Set together with the result.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`
}

// Withheld is an object that was selected but that the operator must not touch.
type Withheld struct {
	// The object, as "<Kind> <namespace>/<name>", or "<Kind> <name>" if the kind is cluster-scoped.
	// +kubebuilder:validation:MaxLength=4096
	Object string `json:"object"`
	// Why the operator must not touch it.
	// +kubebuilder:validation:MaxLength=4096
	Because string `json:"because"`
}

// Count is the number of objects of one resource with one outcome.
type Count struct {
	// The resource, as <resource>.<group>/<version>.
	// +kubebuilder:validation:MaxLength=2048
	Resource string `json:"resource"`
	// The outcome of these objects.
	Outcome Outcome `json:"outcome"`
	// The number of objects.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Count int64 `json:"count"`
}

// RowOutcome is the outcome of one object of a finished cleanup.
type RowOutcome struct {
	// The object, as recorded in rows.
	// +kubebuilder:validation:MaxLength=4096
	Row string `json:"row"`
	// The outcome of this object.
	Outcome Outcome `json:"outcome"`
}
