// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Cleaner cleans up in its own namespace: after a time to live, and when its conditions hold, it deletes the targets
// that say so, uninstalls a Helm release, sends a CloudEvent, and then removes itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cln,categories=cleaning
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Cleaner works as written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What the Cleaner waits for, or what is wrong"
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.resolvedTargetCount`,description="How many objects its targets name now"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduledEvaluation`,description="When it looks again if nothing changes before"
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`,priority=1,description="How long after its creation it waits"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,priority=1,description="Enforce, or DryRun: only report"
// +kubebuilder:printcolumn:name="Last Action",type=string,JSONPath=`.status.lastActions[0].object`,priority=1,description="The object that was acted on last"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cleaner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to clean, and when.
	// +required
	Spec CleanerSpec `json:"spec"`

	// What the operator found and did. Written by the operator alone.
	// +optional
	Status CleanerStatus `json:"status,omitzero"`
}

// CleanerList is a list of Cleaners.
//
// +kubebuilder:object:root=true
type CleanerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Cleaner `json:"items"`
}

// Lifecycle says what becomes of a Cleaner that has cleaned.
//
// +kubebuilder:validation:Enum=Once
type Lifecycle string

// LifecycleOnce is the life of a Cleaner that cleans once and then deletes itself.
const LifecycleOnce Lifecycle = "Once"

// Mode says whether a Cleaner acts or only reports.
//
// +kubebuilder:validation:Enum=Enforce;DryRun
type Mode string

const (
	// ModeEnforce carries out what was decided. It is the default.
	ModeEnforce Mode = "Enforce"
	// ModeDryRun decides and reports, and changes nothing.
	ModeDryRun Mode = "DryRun"
)

// CleanerSpec says what to clean, and when.
//
// +kubebuilder:validation:XValidation:rule="(has(self.targets) && size(self.targets) > 0) || has(self.helm)",message="a Cleaner needs something to clean: add targets or helm"
// +kubebuilder:validation:XValidation:rule="has(self.ttl) || (has(self.conditions) && size(self.conditions) > 0) || !((has(self.targets) && self.targets.exists(t, has(t.delete) && t.delete)) || (has(self.helm) && has(self.helm.delete) && self.helm.delete))",message="a Cleaner that deletes needs a ttl or conditions: without either it would delete at once (write ttl: 0s if that is meant)"
type CleanerSpec struct {
	// Once: clean, then delete the Cleaner itself. It is the default, and the only lifecycle there is.
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`

	// Enforce (the default) acts. DryRun decides all that Enforce would, reports it in status and Events, and sends
	// each deletion as a server-side dry run; nothing is deleted, no CloudEvent is sent, and the Cleaner stays.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// While true nothing is evaluated and nothing is deleted. A cleaning that has begun stops before its next deletion
	// and goes on when suspend is false again; the event of one that is finished is still delivered.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// How long to wait, counted from the Cleaner's creationTimestamp, before anything is watched or evaluated, such as
	// "360h" or "15d". Without it evaluation begins at once.
	// +optional
	TTL Duration `json:"ttl,omitempty"`

	// When the conditions are evaluated again, besides each time that a target changes.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// Values that expressions read as `params`: with {team: web, keep: 3} they see params.team and params.keep. A JSON
	// integer is a CEL int; a null is an absent parameter.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// The Helm release that belongs to what is cleaned, such as {release: preview-42, delete: true}.
	// +optional
	Helm *Helm `json:"helm,omitempty"`

	// The objects that expressions see, and those that are deleted, under names of your choice. They are deleted in this
	// order, those that no expression sees first. The whole list has one owner under server-side apply.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u.name == t.name))",message="two targets have the same name: give each a name of its own"
	Targets []Target `json:"targets,omitempty"`

	// CEL expressions that must all be true before anything is deleted, such as
	// !pods.items.exists(p, p.status.phase == "Running"). They see each included target by its name, `params`, and
	// `time`, the moment of the evaluation. No condition means true; an error never deletes anything.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16384
	Conditions []string `json:"conditions,omitempty"`

	// The http or https URL that is sent one CloudEvent when the cleaning is finished. Until the sink has answered with
	// 2xx the Cleaner stays and tries again; the event's id is the same at each attempt. A user name, a password or a
	// fragment in the URL is refused.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('http://') || self.startsWith('https://')",message="must be a URL that starts with http:// or https://"
	CloudEventSink string `json:"cloudEventSink,omitempty"`

	// A CEL expression whose value the CloudEvent carries as `data`, such as
	// {"image": revision.spec.containers[0].image}. It sees what conditions see, is evaluated when the cleaning begins,
	// and may give any JSON value of at most 8 KiB; an error keeps the cleaning from beginning.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	CloudEventData string `json:"cloudEventData,omitempty"`

	// The ServiceAccount of the Cleaner's namespace as which the operator reads live, deletes and uninstalls. What that
	// account may not do is not done. Without it the operator acts as itself, unless an administrator has set a default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="is not the name of a ServiceAccount: write the metadata.name of one in the Cleaner's namespace, such as environment-cleaner"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Retry says when conditions are evaluated again without an event.
type Retry struct {
	// How long after an evaluation the conditions are evaluated again although nothing changed, such as "5h". At least
	// 10s; 1h without it.
	// +optional
	Period Duration `json:"period,omitempty"`

	// Your word that conditions which are true stay true as time passes. The operator then looks ahead for the second
	// at which time alone makes them true, and evaluates them then, if that is before the period ends. It never changes
	// what is deleted: a wrong word makes it late at most.
	// +optional
	Monotonic bool `json:"monotonic,omitempty"`
}

// Helm names a release in the Cleaner's namespace.
type Helm struct {
	// The name of the release, as helm list shows it in the Cleaner's namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Release string `json:"release"`

	// Whether to uninstall it, after the targets are gone. False without it: the release is then only a note to readers.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// How long each hook of the release may take, and how long one try waits for its deleted objects to be gone, such as
	// "90s". Until all is done Helm's record of the release stays, and the uninstall is tried again. More than 0s; 5m
	// without it.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// Whether to uninstall without running the release's pre-delete and post-delete hooks. Hooks are run as the Cleaner's
	// ServiceAccount, at least once; without one, a release that has such hooks is uninstalled only if this is true.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`
}

// OnMissing says what a missing target means to an evaluation.
//
// +kubebuilder:validation:Enum=Wait;AsNull
type OnMissing string

const (
	// OnMissingWait evaluates nothing while the target is missing. It is the default.
	OnMissingWait OnMissing = "Wait"
	// OnMissingAsNull lets expressions see null in the target's place.
	OnMissingAsNull OnMissing = "AsNull"
)

// Target is an object, or a set of objects of one kind, under a name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.delete) || !self.delete || has(self.reference.name) || has(self.reference.matchLabels) || has(self.reference.matchExpressions) || has(self.reference.fieldSelector)",message="delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind"
type Target struct {
	// The name under which expressions see it, unique among the targets: letters, digits and underscores, not beginning
	// with a digit, such as "pods" or "old_revisions".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as web_pods"
	// +kubebuilder:validation:XValidation:rule="!(self in ['as','break','const','continue','else','false','for','function','if','import','in','let','loop','namespace','null','package','return','true','var','void','while'])",message="is a reserved word of CEL: choose another name"
	// +kubebuilder:validation:XValidation:rule="!(self in ['time','params','variables','item','items','object','key'])",message="means something else in expressions (time, params, variables, item, items, object and key are taken): choose another name"
	Name string `json:"name"`

	// Which objects it stands for.
	// +required
	Reference Reference `json:"reference"`

	// Whether its objects are deleted when the conditions are true. False without it. With true, the reference needs a
	// name or a selector.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// Whether expressions see it. True without it. A target that is not included is not waited for, and its changes
	// cause no evaluation.
	// +optional
	IncludeWhenEvaluating *bool `json:"includeWhenEvaluating,omitempty"`

	// What a missing target means: Wait (the default) evaluates nothing while the object of this name does not exist or
	// the kind is not served; AsNull shows null to expressions instead. A kind that the operator may not read is never
	// null.
	// +optional
	OnMissing OnMissing `json:"onMissing,omitempty"`
}

// Included says whether expressions see the target.
func (t *Target) Included() bool {
	return t.IncludeWhenEvaluating == nil || *t.IncludeWhenEvaluating
}

// Reference says which objects a target stands for. With a name it is that object; else it is all objects of the kind
// in the Cleaner's namespace that match the selectors, which expressions see as {items: [...]} ordered by name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.name) || (!has(self.matchLabels) && !has(self.matchExpressions))",message="a name and label selectors exclude each other: remove name, or matchLabels and matchExpressions"
type Reference struct {
	// The API group, such as "apps" or "serving.knative.dev". Empty, or left out, it is the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')",message="is not an API group: write the group alone, such as apps or serving.knative.dev, and the version in version"
	APIGroup string `json:"apiGroup,omitempty"`

	// The API version, such as "v1" or "v1beta1".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not an API version: write the version alone, such as v1, and the group in apiGroup"
	Version string `json:"version"`

	// The kind, or the resource's singular or plural name, in any case: "Pod", "pod" or "pods".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$')",message="is not a kind: write one kind alone, such as Pod, and its group and version in apiGroup and version"
	Kind string `json:"kind"`

	// The name of the one object that is meant. Without it the target is a set of objects.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != '.' && self != '..' && !self.contains('/') && !self.contains('%')",message="is not the name of one object: write its metadata.name, without namespace or resource"
	Name string `json:"name,omitempty"`

	// Labels that the objects must have, such as {app: web}. {} matches all objects of the kind.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	MatchLabels map[string]string `json:"matchLabels,omitzero"`

	// Requirements on labels that the objects must meet, such as {key: tier, operator: NotIn, values: [db]}.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="self.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="operators In and NotIn need values; Exists and DoesNotExist take none"
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`

	// Fields that the objects must have, such as "status.phase=Failed": those that the kind's API server knows in a
	// field selector.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	FieldSelector string `json:"fieldSelector,omitempty"`
}

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

	// The objects that the targets stand for now, as <name>.<resource>.<group>/<version>: the first 100.
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

	// What was done last, newest first: at most 20.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	LastActions []Action `json:"lastActions,omitempty"`

	// The value of the annotation cleaner.vtex.dev/requestedAt that was acted on last.
	// +optional
	LastRequestedAt string `json:"lastRequestedAt,omitempty"`

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
	// The object, as <name>.<resource>.<group>/<version>.
	Object string `json:"object"`
	// The object's UID.
	// +optional
	UID string `json:"uid,omitempty"`
	// What wanted it: targets.<name>, or helm.
	Rule string `json:"rule"`
	// What was done: delete or helmUninstall.
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

// Outcome is what became of an object that a run was to delete.
//
// +kubebuilder:validation:Enum=deleted;gone;kept;replaced;terminating;unknown
type Outcome string

const (
	// OutcomeDeleted means that the operator deleted it.
	OutcomeDeleted Outcome = "deleted"
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
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// The objects to delete, each as "<rule> <resource>.<group>/<version> <namespace>/<name> <uid> <resourceVersion>".
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
	// The object, as <name>.<resource>.<group>/<version>.
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
