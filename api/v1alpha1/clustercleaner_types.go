// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterCleaner cleans up objects in the whole cluster, or in the namespaces that its targets select. It is meant for
// cluster administrators; use a Cleaner to clean up one namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ccln,categories=cleaning
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="False if an error, a missing right or a limit stops the ClusterCleaner"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What the ClusterCleaner is waiting for, or what is wrong"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,description="Enforce or DryRun"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduledEvaluation`,description="When the next evaluation is due if nothing changes before then"
// +kubebuilder:printcolumn:name="Done",type=integer,JSONPath=`.status.counters.acted`,description="The number of actions that were carried out"
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.resolvedTargetCount`,priority=1,description="The number of objects that the targets currently select"
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`,priority=1,description="How long after creation the evaluation starts"
// +kubebuilder:printcolumn:name="Last Action",type=string,JSONPath=`.status.lastActions[0].object`,priority=1,description="The last object that was acted on"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterCleaner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to clean up, and when.
	// +required
	Spec ClusterCleanerSpec `json:"spec"`

	// What the operator found and did. Only the operator writes it.
	// +optional
	Status CleanerStatus `json:"status,omitzero"`
}

// ClusterCleanerList is a list of ClusterCleaners.
//
// +kubebuilder:object:root=true
type ClusterCleanerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterCleaner `json:"items"`
}

// ClusterCleanerSpec defines what to clean up, and when.
//
// +kubebuilder:validation:XValidation:rule="has(self.targets) && size(self.targets) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.templateRef)",message="a ClusterCleaner needs something to clean: add targets, rules or templateRef"
// +kubebuilder:validation:XValidation:rule="has(self.ttl) || has(self.schedule) || has(self.templateRef) || has(self.lifecycle) && self.lifecycle == 'Recurring' || has(self.rules) && size(self.rules) > 0 || has(self.conditions) && size(self.conditions) > 0 || !(has(self.targets) && self.targets.exists(t, has(t.delete) && t.delete))",message="a ClusterCleaner that deletes needs a ttl, a schedule or conditions: without them, it would delete immediately (write ttl: 0s if you want that)"
// +kubebuilder:validation:XValidation:rule="has(self.lifecycle) || !(has(self.rules) && size(self.rules) > 0 || has(self.templateRef))",message="rules and templateRef require a lifecycle: write lifecycle: Recurring to keep the ClusterCleaner after a cleanup, or lifecycle: Once to delete it"
// +kubebuilder:validation:XValidation:rule="!has(self.templateRef) || !(has(self.targets) && size(self.targets) > 0 || has(self.variables) && size(self.variables) > 0 || has(self.conditions) && size(self.conditions) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.parameters))",message="templateRef replaces targets, variables, conditions, rules and parameters: remove them, or templateRef"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) || !has(self.timeZone) && !has(self.startingDeadline)",message="timeZone and startingDeadline require a schedule: add one, or remove them"
// +kubebuilder:validation:XValidation:rule="has(self.cloudEventSink) || !has(self.cloudEventSinkAuth)",message="cloudEventSinkAuth requires cloudEventSink: add it, or remove cloudEventSinkAuth"
type ClusterCleanerSpec struct {
	CommonSpec `json:",inline"`

	// The objects that expressions read, and the objects to delete. The operator requests deletions in the order of this
	// list, but does not wait for one object before the next; targets with includeWhenEvaluating: false come first.
	// Server-side apply treats the list as one field.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u.name == t.name))",message="two targets have the same name: rename one of them"
	Targets []ClusterTarget `json:"targets,omitempty"`

	// The ServiceAccount that the operator impersonates to read and act. The operator does nothing that the
	// ServiceAccount is not allowed to do. Without it, the operator uses its own identity. The administrator can make
	// this field required.
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`

	// Whether to act in protected namespaces too, such as kube-system. Protected kinds and protected objects stay
	// protected. Defaults to false.
	// +optional
	IncludeProtected bool `json:"includeProtected,omitempty"`

	// How to authenticate requests to the sink, with a value from a Secret, such as {type: HMAC, secretRef: {namespace:
	// ops, name: sink-key, key: key}}. The author of the ClusterCleaner must have the right to get the Secret. The
	// operator reads it before each attempt, as the ServiceAccount if one is set. The event is not sent until the value
	// can be read. Requires cloudEventSink.
	// +optional
	CloudEventSinkAuth *ClusterSinkAuth `json:"cloudEventSinkAuth,omitempty"`
}

// ServiceAccountReference selects a ServiceAccount.
type ServiceAccountReference struct {
	// The namespace of the ServiceAccount.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not the name of a namespace: write the namespace of the ServiceAccount"
	Namespace string `json:"namespace"`

	// The name of the ServiceAccount.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="is not the name of a ServiceAccount: write its metadata.name, such as cluster-cleaner"
	Name string `json:"name"`
}

// ClusterSinkAuth defines how requests to a sink are authenticated.
type ClusterSinkAuth struct {
	// The type of authentication: Bearer or HMAC. Bearer sends the value in the header "Authorization: Bearer <value>";
	// use an https URL. HMAC signs the ID, the time and the body of the event with the value, which is never sent,
	// and adds the headers webhook-id, webhook-timestamp and webhook-signature, as Standard Webhooks defines them.
	// +required
	Type SinkAuthType `json:"type"`

	// The Secret, and the key in it, that contain the value. The Secret can be in any namespace except the namespace of
	// the operator.
	// +required
	SecretRef ClusterSecretKeyReference `json:"secretRef"`
}

// ClusterSecretKeyReference selects a key of a Secret.
type ClusterSecretKeyReference struct {
	// The namespace of the Secret. It must not be the namespace of the operator.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not the name of a namespace: write the namespace of the Secret"
	Namespace string `json:"namespace"`

	SecretKeyReference `json:",inline"`
}

// ClusterTarget is a named object, or a named set of objects of one kind, anywhere in the cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.reference) != has(self.helmReleases)",message="a target needs exactly one of reference and helmReleases: write reference: {version: v1, kind: Pod} for objects of a kind, or helmReleases: {} for Helm releases"
// +kubebuilder:validation:XValidation:rule="!has(self.helmReleases) || (!has(self.delete) || !self.delete) && (!has(self.includeWhenEvaluating) || self.includeWhenEvaluating)",message="to delete the record of a release does not uninstall it: remove delete and includeWhenEvaluating; a rule deletes records of superseded revisions, or uninstalls releases with actions: [helmUninstall: {}]"
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || !has(self.delete) || !self.delete || has(self.reference.name) || has(self.reference.matchLabels) || has(self.reference.matchExpressions) || has(self.reference.fieldSelector)",message="delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind"
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || self.reference.kind != '*' || (!has(self.delete) || !self.delete) && (!has(self.includeWhenEvaluating) || self.includeWhenEvaluating)",message="only rules act on the objects of kind: '*': remove delete and includeWhenEvaluating, and write a rule with forEach: NAME.items and actions: [{delete: {}}]"
type ClusterTarget struct {
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
	Reference ClusterReference `json:"reference,omitzero"`

	// Selects revisions of Helm releases instead of objects of a kind. Expressions read them as {items: [...]}: each item
	// has name (of the release), namespace, revision, status (such as deployed or superseded), chart.name, chart.version,
	// appVersion, firstDeployed, lastDeployed, labels, and the metadata of the Secret that records the revision. An item
	// whose record cannot be read has unreadable with the reason instead. Manifests and values cannot be read. {} selects
	// all revisions of all releases. Requires the right to list and watch Secrets. Cannot be used with reference or
	// delete: true.
	// +optional
	HelmReleases *ClusterHelmReleases `json:"helmReleases,omitempty"`

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

// ClusterHelmReleases selects revisions of Helm releases, in all namespaces or in the selected ones, by the labels of the
// Secrets that record them: name, status and version, as Helm writes them, and the labels of the release.
type ClusterHelmReleases struct {
	HelmReleases `json:",inline"`

	// The namespaces to select revisions from: those of the Secrets. Defaults to all namespaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// A label selector for the namespaces to select revisions from, such as {matchLabels: {tier: preview}}.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Namespaces to exclude, even if namespaces or namespaceSelector selects them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
}

// ClusterReference selects the objects of a target. With a name, it selects one object. Without a name, it selects all
// objects of the kind that match the selectors, in all namespaces or in the selected ones. Expressions read them as
// {items: [...]}, ordered by namespace and name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.namespace) || has(self.name)",message="namespace requires name: add name, or use namespaces: [...]"
// +kubebuilder:validation:XValidation:rule="!has(self.name) || !has(self.namespaces) && !has(self.namespaceSelector) && !has(self.excludeNamespaces)",message="a reference with a name selects one object: write namespace instead of namespaces, namespaceSelector and excludeNamespaces"
// +kubebuilder:validation:XValidation:rule="self.kind == '*' || !has(self.hasAnnotation) && !has(self.hasAnyAnnotation) && !has(self.excludeKinds)",message="hasAnnotation, hasAnyAnnotation and excludeKinds require kind: '*': remove them, or write kind: '*' without apiGroup and version"
// +kubebuilder:validation:XValidation:rule="!has(self.hasAnnotation) || !has(self.hasAnyAnnotation)",message="hasAnnotation and hasAnyAnnotation exclude each other: add the key to hasAnyAnnotation, and remove hasAnnotation"
// +kubebuilder:validation:XValidation:rule="self.kind != '*' || has(self.hasAnnotation) || has(self.hasAnyAnnotation) || has(self.matchLabels) && size(self.matchLabels) > 0 || has(self.matchExpressions) && self.matchExpressions.exists(e, e.operator in ['In', 'Exists'])",message="kind: '*' needs hasAnnotation, or a label that the objects have: add hasAnnotation or matchLabels"
// +kubebuilder:validation:XValidation:rule="self.kind != '*' || !has(self.apiGroup) && !has(self.version) && !has(self.name) && !has(self.fieldSelector)",message="kind: '*' stands for all kinds: remove apiGroup, version, name and fieldSelector"
type ClusterReference struct {
	Reference `json:",inline"`

	// The namespace of the named object, if its kind is namespaced. Requires a name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// The namespaces to select objects from. Cannot be used with a name. Defaults to all namespaces.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// A label selector for the namespaces to select objects from, such as {matchLabels: {tier: preview}}. Cannot be
	// used with a name.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Namespaces to exclude, even if namespaces or namespaceSelector selects them. With kind: '*' only objects of namespaced
	// kinds are then selected. Cannot be used with a name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`

	// The key of an annotation that the objects must have, such as "janitor/ttl", whatever its value. Only with kind "*".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$')",message="is not the key of an annotation: write the key alone, such as janitor/ttl"
	HasAnnotation string `json:"hasAnnotation,omitempty"`

	// The keys of annotations, such as [janitor/ttl, janitor/expires]: the objects must have at least one of them. Only with
	// kind "*".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[a-zA-Z0-9]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?$'))",message="has an entry that is not the key of an annotation: write keys alone, such as janitor/ttl"
	HasAnyAnnotation []string `json:"hasAnyAnnotation,omitempty"`

	// Kinds to leave out: each the kind or resource, with its group after a dot, such as "secrets" or
	// "deployments.apps"; "*.example.com" leaves out a group. Without a group, the name is left out in every group.
	// Case-insensitive. Only with kind "*".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	ExcludeKinds []string `json:"excludeKinds,omitempty"`
}

// AnyKind is the kind of a reference that stands for all kinds.
const AnyKind = "*"

// IsOfAnyKind says that the target selects objects of all kinds.
func (t *ClusterTarget) IsOfAnyKind() bool { return t.Reference.Kind == AnyKind }

// ListAnyKind returns the targets that select objects of all kinds, by their names: where they stand.
func (w *Work) ListAnyKind() map[string]int {
	var found map[string]int
	for i := range w.Targets {
		if w.Targets[i].IsOfAnyKind() {
			if found == nil {
				found = map[string]int{}
			}
			found[w.Targets[i].Name] = i
		}
	}
	return found
}

// ListAnnotations returns the keys of annotations: an object must have one of them. Nil if it need not.
func (r *ClusterReference) ListAnnotations() []string {
	if r.HasAnnotation != "" {
		return []string{r.HasAnnotation}
	}
	return r.HasAnyAnnotation
}

// IsIncluded says whether expressions see the target.
func (t *ClusterTarget) IsIncluded() bool {
	return t.IncludeWhenEvaluating == nil || *t.IncludeWhenEvaluating
}
