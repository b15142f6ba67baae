// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The bounds on numbers and times below are what Go can decode: one Cleaner that cannot be decoded would stop the watch
// of all. OpenAPI's int64 and date-time alone let more through, such as 1e30 or a list.

// CleanerStatus is what the operator found and did.
type CleanerStatus struct {
	// The generation of the spec that this status is about.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ready sums up; Valid, TargetsResolved, Evaluated and Delivered say it in detail. Stalled and Reconciling are there
	// only while something is wrong or under way.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="self.lastTransitionTime >= timestamp('0001-01-01T00:00:00Z')",message="lastTransitionTime must be a time as in 2006-01-02T15:04:05Z"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The objects that the targets stand for now, as <name>.<resource>.<group>/<version>, for a ClusterCleaner with
	// <namespace>/ before it: the first 100.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=100
	ResolvedTargets []string `json:"resolvedTargets,omitempty"`

	// How many objects the targets stand for now.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	ResolvedTargetCount int64 `json:"resolvedTargetCount,omitempty"`

	// When the Cleaner looks again if nothing changes before.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	NextScheduledEvaluation *metav1.Time `json:"nextScheduledEvaluation,omitempty"`

	// What the last evaluation said. Its time is that of the last evaluation whose outcome differed.
	// +optional
	LastEvaluation *Evaluation `json:"lastEvaluation,omitempty"`

	// When the schedule was due last.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`

	// What waits for the time that a rule's `for` asks for: the first 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Pending []Pending `json:"pending,omitempty"`

	// What was done last, newest first: at most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	LastActions []Action `json:"lastActions,omitempty"`

	// The value of the annotation cleaner.vtex.dev/requestedAt that was acted on last.
	// +optional
	LastRequestedAt string `json:"lastRequestedAt,omitempty"`

	// How much was done since the Cleaner was created.
	// +optional
	Counters *Counters `json:"counters,omitempty"`

	// How many cleanings were begun.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Runs int64 `json:"runs,omitempty"`

	// The cleaning that is under way, or that is finished and not yet reported.
	// +optional
	Run *Run `json:"run,omitempty"`

	// A finished cleaning that the sink has not received yet, kept while another one may begin.
	// +optional
	Unsent *Run `json:"unsent,omitempty"`

	// The operator's signature over runs, run, unsent, lastScheduleTime and lastRequestedAt. A record that the operator has
	// not signed counts as absent.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Signature string `json:"signature,omitempty"`
}

// Verdict is what an evaluation came to.
//
// +kubebuilder:validation:Enum=Wait;Act;Blocked;Invalid
type Verdict string

const (
	// VerdictWait means that something is not so yet.
	VerdictWait Verdict = "Wait"
	// VerdictAct means that everything holds, and there is something to do.
	VerdictAct Verdict = "Act"
	// VerdictBlocked means that everything holds, and something forbids to act.
	VerdictBlocked Verdict = "Blocked"
	// VerdictInvalid means that the Cleaner cannot work as it is written.
	VerdictInvalid Verdict = "Invalid"
)

// Evaluation is the outcome of looking at the targets and conditions.
type Evaluation struct {
	// When an evaluation first came to this outcome.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	Time metav1.Time `json:"time"`
	// Wait, Act, Blocked or Invalid.
	Verdict Verdict `json:"verdict"`
	// Why, in one word.
	Reason string `json:"reason"`
	// Why, in one sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// What each condition gave, in the order of the spec.
	// +optional
	// +listType=atomic
	Conditions []ConditionOutcome `json:"conditions,omitempty"`
	// What went wrong with items of rules: the first 20. Nothing is done with such an item; the others are acted on.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Errors []ItemError `json:"errors,omitempty"`
	// What would be done and is forbidden: the first 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Withheld []Withheld `json:"withheld,omitempty"`
}

// Pending is something for which a rule's `when` holds, and not yet for as long as its `for` says.
type Pending struct {
	// The rule.
	Rule string `json:"rule"`
	// What it is about: the value of forKey, or of key, or the object.
	Key string `json:"key"`
	// When it will have held for long enough.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	Until metav1.Time `json:"until"`
}

// ItemError is what went wrong with items of a rule. Equal errors are one.
type ItemError struct {
	// The rule.
	Rule string `json:"rule"`
	// The first item that it happened to: its key, or the object. Empty if it is about all items.
	// +optional
	Key string `json:"key,omitempty"`
	// The field of the rule whose expression it was.
	// +optional
	Field string `json:"field,omitempty"`
	// What went wrong.
	Message string `json:"message"`
	// To how many items it happened.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Count int64 `json:"count,omitempty"`
}

// Counters say how much was done. They are written with the rest of the status, never on their own.
type Counters struct {
	// How many objects were acted on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Acted int64 `json:"acted,omitempty"`
	// How many requests were refused, or failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Failed int64 `json:"failed,omitempty"`
}

// ConditionOutcome is what one condition gave: a value or an error.
type ConditionOutcome struct {
	// The expression, cut at 256 characters.
	Expression string `json:"expression"`
	// What it gave. Absent when it gave an error.
	// +optional
	Value *bool `json:"value,omitempty"`
	// Why it has no value.
	// +optional
	Error string `json:"error,omitempty"`
}

// Action is one thing that was done to one object.
type Action struct {
	// The object, as <name>.<resource>.<group>/<version>; for a ClusterCleaner with <namespace>/ before it.
	Object string `json:"object"`
	// The object's UID.
	// +optional
	UID string `json:"uid,omitempty"`
	// What wanted it: the name of a rule, targets.<name>, or helm.
	Rule string `json:"rule"`
	// What was done: report, delete, evict, patch, removeFinalizer or helmUninstall.
	Action string `json:"action"`
	// When.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	Time metav1.Time `json:"time"`
	// What came of it.
	Result string `json:"result"`
}

// Result is how a run ended.
//
// +kubebuilder:validation:Enum=Completed;Partial;Abandoned
type Result string

const (
	// ResultCompleted means that every row is deleted or gone, and the release uninstalled.
	ResultCompleted Result = "Completed"
	// ResultPartial means that something was left: a row kept or replaced, or the run was stopped.
	ResultPartial Result = "Partial"
	// ResultAbandoned means that the Cleaner was deleted while the run was open.
	ResultAbandoned Result = "Abandoned"
)

// Outcome is what became of an object that a run was to act on.
//
// +kubebuilder:validation:Enum=deleted;evicted;patched;gone;kept;replaced;terminating;unknown
type Outcome string

const (
	// OutcomeDeleted means that the operator deleted it.
	OutcomeDeleted Outcome = "deleted"
	// OutcomeEvicted means that the operator evicted it.
	OutcomeEvicted Outcome = "evicted"
	// OutcomePatched means that the operator changed it.
	OutcomePatched Outcome = "patched"
	// OutcomeGone means that it was gone when the operator came to it.
	OutcomeGone Outcome = "gone"
	// OutcomeKept means that it was left alone.
	OutcomeKept Outcome = "kept"
	// OutcomeReplaced means that another object has its name now, which was left alone.
	OutcomeReplaced Outcome = "replaced"
	// OutcomeTerminating means that it is deleted and held by finalizers.
	OutcomeTerminating Outcome = "terminating"
	// OutcomeUnknown means that an answer was lost, and what became of it could not be found out.
	OutcomeUnknown Outcome = "unknown"
)

// Run is one cleaning: recorded before the first deletion, carried on after a crash, and reported as one. The operator
// acts on nothing that is not in its rows or in its release.
type Run struct {
	// Recurring for a run of a Cleaner that stays: its rows are those whose outcome is not counted yet. Absent otherwise.
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`
	// Which run of this Cleaner it is, from 1.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Number int64 `json:"number"`
	// A fingerprint of the part of the spec that decided. A different spec stops the run.
	Decides string `json:"decides"`
	// When the conditions were found to hold.
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	DecidedAt metav1.Time `json:"decidedAt"`
	// The ServiceAccount as which this cleaning is done. Absent: the operator itself.
	// For a ClusterCleaner it is <namespace>/<name>.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// The objects to act on, each as "<rule> <resource>.<group>/<version> <namespace>/<name> <uid> <resourceVersion>".
	// Empty once there is a result.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5000
	Rows []string `json:"rows,omitempty"`
	// The Helm release to uninstall.
	// +optional
	Helm *HelmRelease `json:"helm,omitempty"`
	// What the Cleaner would have deleted and may not.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Withheld []Withheld `json:"withheld,omitempty"`
	// The value of cloudEventData at the decision, as JSON.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Data string `json:"data,omitempty"`
	// How the run ended. Absent while it is under way; once written it never changes.
	// +optional
	Result Result `json:"result,omitempty"`
	// When the result was written.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05Z"
	FinishedAt *metav1.Time `json:"finishedAt,omitempty"`
	// Why the run ended so.
	// +optional
	Message string `json:"message,omitempty"`
	// How many objects of each kind ended how.
	// +optional
	// +listType=atomic
	Counts []Count `json:"counts,omitempty"`
	// What became of the first 200 rows.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=200
	Outcomes []RowOutcome `json:"outcomes,omitempty"`
}

// HelmRelease identifies a release at the moment of the decision, so that another one of its name is not uninstalled.
type HelmRelease struct {
	// The name of the release.
	Name string `json:"name"`
	// The revision that was decided on.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Revision int64 `json:"revision"`
	// The UID of the Secret that holds this revision.
	UID string `json:"uid"`
	// When the release was first installed.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`\.[0-9]{6}(Z|[-+][0-9:]{5})$`
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z')",message="must be a time as in 2006-01-02T15:04:05.000000Z"
	FirstDeployed metav1.MicroTime `json:"firstDeployed"`
	// A fingerprint of what the record of this revision says: its objects and its hooks.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`
	// Whether it is uninstalled without its hooks.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`
	// What became of the release, once there is a result.
	// +optional
	Outcome Outcome `json:"outcome,omitempty"`
}

// Withheld is an object that was decided on and that the operator refuses to touch.
type Withheld struct {
	// The object, as <name>.<resource>.<group>/<version>; for a ClusterCleaner with <namespace>/ before it.
	Object string `json:"object"`
	// Why.
	Because string `json:"because"`
}

// Count says how many objects of one kind ended how.
type Count struct {
	// The resource, as <resource>.<group>/<version>.
	Resource string `json:"resource"`
	// What became of them.
	Outcome Outcome `json:"outcome"`
	// How many.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	Count int64 `json:"count"`
}

// RowOutcome is a row of a finished run.
type RowOutcome struct {
	// The row, as it was recorded.
	Row string `json:"row"`
	// What became of its object.
	Outcome Outcome `json:"outcome"`
}
