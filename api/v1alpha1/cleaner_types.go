// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Cleaner cleans up objects in its own namespace. With lifecycle Once, it waits until its time to live has passed and
// its conditions are true. Then it deletes the selected targets, uninstalls a Helm release, sends a CloudEvent and
// deletes itself. With lifecycle Recurring, it stays and cleans up whenever there is something to clean up.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=cln,categories=cleaning
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="False if an error, a missing right or a limit stops the Cleaner"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What the Cleaner is waiting for, or what is wrong"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,description="Enforce or DryRun"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduledEvaluation`,description="When the next evaluation is due if nothing changes before then"
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.counters.acted`,description="The number of actions that were carried out"
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.resolvedTargetCount`,priority=1,description="The number of objects that the targets currently select"
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`,priority=1,description="How long after creation the evaluation starts"
// +kubebuilder:printcolumn:name="Last Action",type=string,JSONPath=`.status.lastActions[0].object`,priority=1,description="The last object that was acted on"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Cleaner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to clean up, and when.
	// +required
	Spec CleanerSpec `json:"spec"`

	// What the operator found and did. Only the operator writes it.
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

// CleanerSpec defines what to clean up, and when.
//
// +kubebuilder:validation:XValidation:rule="has(self.targets) && size(self.targets) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.helm) || has(self.templateRef)",message="a Cleaner needs something to clean: add targets, rules, helm or templateRef"
// +kubebuilder:validation:XValidation:rule="has(self.ttl) || has(self.schedule) || has(self.templateRef) || has(self.lifecycle) && self.lifecycle == 'Recurring' || has(self.rules) && size(self.rules) > 0 || has(self.conditions) && size(self.conditions) > 0 || !(has(self.targets) && self.targets.exists(t, has(t.delete) && t.delete) || has(self.helm) && has(self.helm.delete) && self.helm.delete)",message="a Cleaner that deletes needs a ttl, a schedule or conditions: without them, it would delete immediately (write ttl: 0s if you want that)"
// +kubebuilder:validation:XValidation:rule="has(self.lifecycle) || !(has(self.rules) && size(self.rules) > 0 || has(self.templateRef))",message="rules and templateRef require a lifecycle: write lifecycle: Recurring to keep the Cleaner after a cleanup, or lifecycle: Once to delete it"
// +kubebuilder:validation:XValidation:rule="!has(self.templateRef) || !(has(self.targets) && size(self.targets) > 0 || has(self.variables) && size(self.variables) > 0 || has(self.conditions) && size(self.conditions) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.parameters))",message="templateRef replaces targets, variables, conditions, rules and parameters: remove them, or templateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.helm) || !has(self.lifecycle) || self.lifecycle == 'Once'",message="helm requires lifecycle: Once: change lifecycle, or remove helm"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) || !has(self.timeZone) && !has(self.startingDeadline)",message="timeZone and startingDeadline require a schedule: add one, or remove them"
// +kubebuilder:validation:XValidation:rule="has(self.cloudEventSink) || !has(self.cloudEventSinkAuth)",message="cloudEventSinkAuth requires cloudEventSink: add it, or remove cloudEventSinkAuth"
type CleanerSpec struct {
	CommonSpec `json:",inline"`

	// The Helm release to uninstall after the targets are deleted, such as {release: preview-42, delete: true}.
	// Requires lifecycle Once.
	// +optional
	Helm *Helm `json:"helm,omitempty"`

	// The objects that expressions read, and the objects to delete. The operator requests deletions in the order of this
	// list, but does not wait for one object before the next; targets with includeWhenEvaluating: false come first.
	// Server-side apply treats the list as one field.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u.name == t.name))",message="two targets have the same name: rename one of them"
	Targets []Target `json:"targets,omitempty"`

	// The ServiceAccount in the namespace of the Cleaner that the operator impersonates to read, delete and uninstall.
	// The operator does nothing that the ServiceAccount is not allowed to do. Without it, the operator uses the default
	// ServiceAccount that the administrator has set, or its own identity. The administrator can make this field
	// required.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="is not the name of a ServiceAccount: write the metadata.name of one in the Cleaner's namespace, such as environment-cleaner"
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// How to authenticate requests to the sink, with a value from a Secret, such as {type: HMAC, secretRef: {name:
	// sink-key, key: key}}. The author of the Cleaner must have the right to get the Secret. The operator reads it
	// before each attempt, as the ServiceAccount if one is set. The event is not sent until the value can be read.
	// Requires cloudEventSink.
	// +optional
	CloudEventSinkAuth *SinkAuth `json:"cloudEventSinkAuth,omitempty"`
}

// Helm selects a release in the namespace of the Cleaner.
type Helm struct {
	// The name of the release, as shown by helm list.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=53
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Release string `json:"release"`

	// Whether to uninstall the release after the targets are gone. If false, the field only documents the release.
	// Defaults to false.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// How long each hook can take, such as "90s". After this time, the operator stops the uninstall and retries it. It
	// keeps the Secret of the release until the uninstall is complete. Must be more than 0s. Defaults to 5m.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// Whether to skip the pre-delete and post-delete hooks. Otherwise they run at least once, with the rights of the
	// ServiceAccount of the Cleaner: a release with hooks requires serviceAccountName, and its hooks must not create
	// roles, bindings, ServiceAccounts, tokens or certificate requests. Defaults to false.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`
}

// OnMissing defines what an evaluation does about a missing target.
//
// +kubebuilder:validation:Enum=Wait;AsNull
type OnMissing string

const (
	// OnMissingWait does not evaluate anything while the target is missing. It is the default.
	OnMissingWait OnMissing = "Wait"
	// OnMissingAsNull lets expressions read null instead of the target.
	OnMissingAsNull OnMissing = "AsNull"
)

// Target is a named object, or a named set of objects of one kind.
//
// +kubebuilder:validation:XValidation:rule="has(self.reference) != has(self.helmReleases)",message="a target needs exactly one of reference and helmReleases: write reference: {version: v1, kind: Pod} for objects of a kind, or helmReleases: {} for Helm releases"
// +kubebuilder:validation:XValidation:rule="!has(self.helmReleases) || (!has(self.delete) || !self.delete) && (!has(self.includeWhenEvaluating) || self.includeWhenEvaluating)",message="to delete the record of a release does not uninstall it: remove delete and includeWhenEvaluating; a rule deletes records of superseded revisions, or uninstalls releases with actions: [helmUninstall: {}]"
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || !has(self.delete) || !self.delete || has(self.reference.name) || has(self.reference.matchLabels) || has(self.reference.matchExpressions) || has(self.reference.fieldSelector)",message="delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind"
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || self.reference.kind != '*'",message="only a ClusterCleaner selects objects of kind: '*': use one, with namespaces in its reference, or write a target for each kind"
type Target struct {
	// The name of the target in expressions, such as "pods" or "old_revisions". It must be unique among the targets. It
	// consists of letters, digits and underscores and does not start with a digit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as web_pods"
	// +kubebuilder:validation:XValidation:rule="!(self in ['as','break','const','continue','else','false','for','function','if','import','in','let','loop','namespace','null','package','return','true','var','void','while'])",message="is a reserved word of CEL: choose another name"
	// +kubebuilder:validation:XValidation:rule="!(self in ['time','params','variables','item','items','object','key'])",message="is a built-in name of expressions (as time, params, variables, item, items, object and key are): choose another name"
	Name string `json:"name"`

	// The object, or the objects, that the target selects. Either this or helmReleases is required.
	// +optional
	Reference Reference `json:"reference,omitzero"`

	// Selects revisions of Helm releases instead of objects of a kind. Expressions read them as {items: [...]}: each item
	// has name (of the release), namespace, revision, status (such as deployed or superseded), chart.name, chart.version,
	// appVersion, firstDeployed, lastDeployed, labels, and the metadata of the Secret that records the revision. An item
	// whose record cannot be read has unreadable with the reason instead. Manifests and values cannot be read. {} selects
	// all revisions of all releases. Requires the right to list and watch Secrets. Cannot be used with reference or
	// delete: true.
	// +optional
	HelmReleases *HelmReleases `json:"helmReleases,omitempty"`

	// Whether to delete the selected objects when all conditions are true. Requires a name or a selector in the
	// reference. Defaults to false.
	// +optional
	Delete bool `json:"delete,omitempty"`

	// Whether expressions can read the target. If false, the operator does not wait for a missing object, does not
	// evaluate when the target changes, and deletes the objects of the target first. Defaults to true.
	// +optional
	IncludeWhenEvaluating *bool `json:"includeWhenEvaluating,omitempty"`

	// What to do while the named object does not exist or its kind is not served: Wait or AsNull. With Wait, the
	// Cleaner is not evaluated. With AsNull, expressions read null. If the operator is not allowed to read the target,
	// the Cleaner always waits. Has no effect if includeWhenEvaluating is false. Defaults to Wait.
	// +optional
	OnMissing OnMissing `json:"onMissing,omitempty"`
}

// IsIncluded says whether expressions see the target.
func (t *Target) IsIncluded() bool {
	return t.IncludeWhenEvaluating == nil || *t.IncludeWhenEvaluating
}

// HelmReleases selects revisions of Helm releases, by the labels of the Secrets that record them: name, status and
// version, as Helm writes them, and the labels of the release.
type HelmReleases struct {
	// Labels that the revisions must have, such as {status: superseded} or {name: web}.
	// +optional
	// +kubebuilder:validation:MaxProperties=63
	// +kubebuilder:validation:XValidation:rule="!('owner' in self)",message="owner is helm for all releases: remove it"
	MatchLabels map[string]string `json:"matchLabels,omitzero"`

	// Label selector requirements that the revisions must meet, such as {key: name, operator: NotIn, values: [web]}. At
	// most 1000 values in total.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="self.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="operators In and NotIn need values; Exists and DoesNotExist must not have any"
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// Reference selects the objects of a target. With a name, it selects one object. Without a name, it selects all objects
// of the kind in the namespace of the Cleaner that match the selectors, or in the cluster if the kind is
// cluster-scoped. Expressions read them as {items: [...]}, ordered by name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.name) || (!has(self.matchLabels) && !has(self.matchExpressions))",message="a name and label selectors exclude each other: remove name, or matchLabels and matchExpressions"
// +kubebuilder:validation:XValidation:rule="self.kind == '*' || has(self.version)",message="version is missing: write the API version of the kind, such as v1"
type Reference struct {
	// The API group, such as "apps" or "serving.knative.dev". Leave it empty for the core group.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$')",message="is not an API group: write the group alone, such as apps or serving.knative.dev, and the version in version"
	APIGroup string `json:"apiGroup,omitempty"`

	// The API version, such as "v1" or "v1beta1". Required, except with kind "*" of a ClusterCleaner, which has none.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not an API version: write the version alone, such as v1, and the group in apiGroup"
	Version string `json:"version,omitempty"`

	// The kind, or the singular or plural name of the resource, such as "Pod", "pod" or "pods". Case-insensitive. In a
	// ClusterCleaner with lifecycle: Recurring, "*" (quoted) stands for all kinds that can be listed, watched and deleted, also
	// those whose CRDs come later, except protected kinds, the operator's own, Events, Leases, Endpoints and EndpointSlices. It
	// needs hasAnnotation, hasAnyAnnotation or a label. Expressions read only apiVersion, kind and metadata of its items, and
	// only rules act on them. Kinds that the operator, the author or the ServiceAccount is not allowed to list and delete are
	// skipped: status.skippedKinds names them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '*' || self.matches('^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$')",message="is not a kind: write one kind alone, such as Pod, and its group and version in apiGroup and version"
	Kind string `json:"kind"`

	// The name of the object. Without a name, the target is a set of objects. Cannot be used with matchLabels or
	// matchExpressions.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self != '.' && self != '..' && !self.contains('/') && !self.contains('%')",message="is not the name of one object: write its metadata.name, without namespace or resource"
	Name string `json:"name,omitempty"`

	// Labels that the objects must have, such as {app: web}. {} selects all objects of the kind.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	MatchLabels map[string]string `json:"matchLabels,omitzero"`

	// Label selector requirements that the objects must meet, such as {key: tier, operator: NotIn, values: [db]}. At
	// most 1000 values in total.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="self.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="operators In and NotIn need values; Exists and DoesNotExist must not have any"
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`

	// A field selector that the objects must match, such as "status.phase=Failed". It can use only the fields that the
	// API server supports in field selectors of the kind.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	FieldSelector string `json:"fieldSelector,omitempty"`
}
