// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// CleanerSpec says what to clean, and when.
//
// +kubebuilder:validation:XValidation:rule="has(self.targets) && size(self.targets) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.helm) || has(self.templateRef)",message="a Cleaner needs something to clean: add targets, rules, helm or templateRef"
// +kubebuilder:validation:XValidation:rule="has(self.ttl) || has(self.schedule) || has(self.templateRef) || has(self.lifecycle) && self.lifecycle == 'Recurring' || has(self.rules) && size(self.rules) > 0 || has(self.conditions) && size(self.conditions) > 0 || !(has(self.targets) && self.targets.exists(t, has(t.delete) && t.delete) || has(self.helm) && has(self.helm.delete) && self.helm.delete)",message="a Cleaner that deletes needs a ttl or conditions: without either it would delete at once (write ttl: 0s if that is meant)"
// +kubebuilder:validation:XValidation:rule="has(self.lifecycle) || !(has(self.rules) && size(self.rules) > 0 || has(self.templateRef))",message="with rules or templateRef, say what becomes of the Cleaner when it has cleaned: lifecycle: Recurring keeps it, lifecycle: Once deletes it"
// +kubebuilder:validation:XValidation:rule="!has(self.templateRef) || !(has(self.targets) && size(self.targets) > 0 || has(self.variables) && size(self.variables) > 0 || has(self.conditions) && size(self.conditions) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.parameters))",message="templateRef stands in the place of targets, variables, conditions, rules and parameters: remove them, or templateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.helm) || !has(self.lifecycle) || self.lifecycle == 'Once'",message="a Helm release is uninstalled once: write lifecycle: Once, or remove helm"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) || !has(self.timeZone) && !has(self.startingDeadline)",message="timeZone and startingDeadline mean nothing without a schedule: add one, or remove them"
// +kubebuilder:validation:XValidation:rule="has(self.cloudEventSink) || !has(self.cloudEventSinkAuth)",message="cloudEventSinkAuth means nothing without cloudEventSink: add one, or remove it"
type CleanerSpec struct {
	CommonSpec `json:",inline"`

	// The Helm release that belongs to what is cleaned, such as {release: preview-42, delete: true}. Only for Cleaners
	// that clean once.
	// +optional
	Helm *Helm `json:"helm,omitempty"`

	// The objects that expressions see, and those that are deleted, under names of your choice. They are deleted in this
	// order, those that no expression sees first. The whole list has one owner under server-side apply.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u.name == t.name))",message="two targets have the same name: give each a name of its own"
	Targets []Target `json:"targets,omitempty"`

	// The ServiceAccount of the Cleaner's namespace as which the operator reads live, deletes and uninstalls. What that
	// account may not do is not done. Without it the operator acts as itself, unless an administrator has set a default.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="is not the name of a ServiceAccount: write the metadata.name of one in the Cleaner's namespace, such as environment-cleaner"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// How events show the sink who has sent them: with a value of a Secret, such as
	// {type: HMAC, secretRef: {name: sink-key, key: key}}. The Secret is read before each attempt, as the ServiceAccount if
	// one is named; the author needs the right to get it. Until it can be read and used, the event waits.
	// +optional
	CloudEventSinkAuth *SinkAuth `json:"cloudEventSinkAuth,omitempty"`
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
