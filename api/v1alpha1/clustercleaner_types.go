// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterCleaner cleans up in the whole cluster, or in the namespaces that its targets name. It is for those who run the
// cluster; in one namespace, a Cleaner does the same.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=ccln,categories=cleaning
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the ClusterCleaner works as written"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="What the ClusterCleaner waits for, or what is wrong"
// +kubebuilder:printcolumn:name="Targets",type=integer,JSONPath=`.status.resolvedTargetCount`,description="How many objects its targets name now"
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.nextScheduledEvaluation`,description="When it looks again if nothing changes before"
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`,priority=1,description="How long after its creation it waits"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`,priority=1,description="Enforce, or DryRun: only report"
// +kubebuilder:printcolumn:name="Last Action",type=string,JSONPath=`.status.lastActions[0].object`,priority=1,description="The object that was acted on last"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterCleaner struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to clean, and when.
	// +required
	Spec ClusterCleanerSpec `json:"spec"`

	// What the operator found and did. Written by the operator alone.
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

// ClusterCleanerSpec says what to clean, and when.
//
// +kubebuilder:validation:XValidation:rule="has(self.targets) && size(self.targets) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.templateRef)",message="a ClusterCleaner needs something to clean: add targets, rules or templateRef"
// +kubebuilder:validation:XValidation:rule="has(self.ttl) || has(self.schedule) || has(self.templateRef) || has(self.lifecycle) && self.lifecycle == 'Recurring' || has(self.rules) && size(self.rules) > 0 || has(self.conditions) && size(self.conditions) > 0 || !(has(self.targets) && self.targets.exists(t, has(t.delete) && t.delete))",message="a ClusterCleaner that deletes needs a ttl or conditions: without either it would delete at once (write ttl: 0s if that is meant)"
// +kubebuilder:validation:XValidation:rule="has(self.lifecycle) || !(has(self.rules) && size(self.rules) > 0 || has(self.templateRef))",message="with rules or templateRef, say what becomes of the ClusterCleaner when it has cleaned: lifecycle: Recurring keeps it, lifecycle: Once deletes it"
// +kubebuilder:validation:XValidation:rule="!has(self.templateRef) || !(has(self.targets) && size(self.targets) > 0 || has(self.variables) && size(self.variables) > 0 || has(self.conditions) && size(self.conditions) > 0 || has(self.rules) && size(self.rules) > 0 || has(self.parameters))",message="templateRef stands in the place of targets, variables, conditions, rules and parameters: remove them, or templateRef"
// +kubebuilder:validation:XValidation:rule="has(self.schedule) || !has(self.timeZone) && !has(self.startingDeadline)",message="timeZone and startingDeadline mean nothing without a schedule: add one, or remove them"
// +kubebuilder:validation:XValidation:rule="has(self.cloudEventSink) || !has(self.cloudEventSinkAuth)",message="cloudEventSinkAuth means nothing without cloudEventSink: add one, or remove it"
type ClusterCleanerSpec struct {
	CommonSpec `json:",inline"`

	// The objects that expressions see, and those that are deleted, under names of your choice. They are deleted in this
	// order, those that no expression sees first. The whole list has one owner under server-side apply.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u.name == t.name))",message="two targets have the same name: give each a name of its own"
	Targets []ClusterTarget `json:"targets,omitempty"`

	// The ServiceAccount as which the operator reads live and acts. What that account may not do is not done. Without it
	// the operator acts as itself.
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`

	// Whether to act in the namespaces that are protected too, such as kube-system. False without it. Protected kinds and
	// objects stay protected.
	// +optional
	IncludeProtected bool `json:"includeProtected,omitempty"`

	// How events show the sink who has sent them: with a value of a Secret, such as
	// {type: HMAC, secretRef: {namespace: ops, name: sink-key, key: key}}. The Secret is read before each attempt, as the ServiceAccount if
	// one is named; the author needs the right to get it. Until it can be read and used, the event waits.
	// +optional
	CloudEventSinkAuth *ClusterSinkAuth `json:"cloudEventSinkAuth,omitempty"`
}

// ServiceAccountReference names a ServiceAccount.
type ServiceAccountReference struct {
	// Its namespace.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not the name of a namespace: write the one in which the ServiceAccount lives"
	Namespace string `json:"namespace"`

	// Its name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="is not the name of a ServiceAccount: write its metadata.name, such as cluster-cleaner"
	Name string `json:"name"`
}

// ClusterSinkAuth says how events show a sink who has sent them.
type ClusterSinkAuth struct {
	// Bearer sends the value as "Authorization: Bearer <value>". HMAC sends it never, and signs the event's id, the time and
	// the body with it, as Standard Webhooks do: in the headers webhook-id, webhook-timestamp and webhook-signature.
	// +required
	Type SinkAuthType `json:"type"`

	// Where the value is: a key of a Secret of any namespace but the operator's own.
	// +required
	SecretRef ClusterSecretKeyReference `json:"secretRef"`
}

// ClusterSecretKeyReference names a key of a Secret.
type ClusterSecretKeyReference struct {
	// The namespace of the Secret: not that of the operator.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not the name of a namespace: write the one in which the Secret lives"
	Namespace string `json:"namespace"`

	SecretKeyReference `json:",inline"`
}

// ClusterTarget is an object, or a set of objects of one kind anywhere in the cluster, under a name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.delete) || !self.delete || has(self.reference.name) || has(self.reference.matchLabels) || has(self.reference.matchExpressions) || has(self.reference.fieldSelector)",message="delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind"
type ClusterTarget struct {
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
	Reference ClusterReference `json:"reference"`

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

// ClusterReference says which objects of the cluster a target stands for. With a name it is that object, of a namespace
// or of a cluster-scoped kind; else it is all objects of the kind that match the selectors, in all namespaces or in those
// that are chosen, which expressions see as {items: [...]} ordered by namespace and name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.namespace) || has(self.name)",message="namespace is where the object of that name lives: add name, or write namespaces: [...]"
// +kubebuilder:validation:XValidation:rule="!has(self.name) || !has(self.namespaces) && !has(self.namespaceSelector) && !has(self.excludeNamespaces)",message="an object of a given name lives in one namespace: write namespace instead of namespaces, namespaceSelector and excludeNamespaces"
type ClusterReference struct {
	Reference `json:",inline"`

	// The namespace of the object that is named, if its kind lives in namespaces.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// The namespaces in which the objects may be. All without it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	// Labels of the namespaces in which the objects may be, such as {matchLabels: {tier: preview}}.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Namespaces in which the objects may not be, whatever else is said of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	ExcludeNamespaces []string `json:"excludeNamespaces,omitempty"`
}

// Included says whether expressions see the target.
func (t *ClusterTarget) Included() bool {
	return t.IncludeWhenEvaluating == nil || *t.IncludeWhenEvaluating
}
