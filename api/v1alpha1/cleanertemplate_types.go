// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CleanerTemplate is what to clean, written once and used by many Cleaners and ClusterCleaners, which give it parameters.
// When, how much and as whom stays theirs to say.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=clntpl,categories=cleaning
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`,description="What it cleans"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CleanerTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to clean, and what may be said about it.
	// +required
	Spec CleanerTemplateSpec `json:"spec"`
}

// CleanerTemplateList is a list of CleanerTemplates.
//
// +kubebuilder:object:root=true
type CleanerTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CleanerTemplate `json:"items"`
}

// CleanerTemplateSpec says what to clean, and what may be said about it.
type CleanerTemplateSpec struct {
	// What the template cleans, for those who choose one.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`

	// What those who use the template may set. Expressions read params.<name>.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.name == p.name))",message="two parameters have the same name: give each a name of its own"
	Parameters []TemplateParameter `json:"parameters,omitempty"`

	// What stands in the place of the fields of these names in a Cleaner or ClusterCleaner.
	// +required
	Template TemplateBody `json:"template"`
}

// ParameterType is the type of a parameter.
//
// +kubebuilder:validation:Enum=string;int;bool;duration;stringList
type ParameterType string

const (
	// ParameterString is a string.
	ParameterString ParameterType = "string"
	// ParameterInt is an integer.
	ParameterInt ParameterType = "int"
	// ParameterBool is true or false.
	ParameterBool ParameterType = "bool"
	// ParameterDuration is a duration such as "40s", which expressions see as a CEL duration.
	ParameterDuration ParameterType = "duration"
	// ParameterStringList is a list of strings.
	ParameterStringList ParameterType = "stringList"
)

// TemplateParameter is a value that those who use a template may set.
type TemplateParameter struct {
	// The name: expressions read params.<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as onReadyNode"
	Name string `json:"name"`

	// string, int, bool, duration or stringList.
	// +required
	Type ParameterType `json:"type"`

	// The value that it has if none is given. Without a default it must be given.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Default *runtime.RawExtension `json:"default,omitempty"`

	// The values that are allowed, for type string. All without it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Enum []string `json:"enum,omitempty"`

	// What it is for.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`
}

// TemplateBody is the part of a spec that a template writes.
//
// +kubebuilder:validation:XValidation:rule="has(self.targets) && size(self.targets) > 0 || has(self.rules) && size(self.rules) > 0",message="a template needs something to clean: add targets or rules"
type TemplateBody struct {
	// The objects that expressions see, and those that are deleted, as in a ClusterCleaner. With namespaces, or
	// delete: true on a cluster-scoped kind, a template is for ClusterCleaners only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u.name == t.name))",message="two targets have the same name: give each a name of its own"
	Targets []ClusterTarget `json:"targets,omitempty"`

	// Values that are computed when an expression first reads them, as variables.<name>.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.name == v.name))",message="two variables have the same name: give each a name of its own"
	Variables []Variable `json:"variables,omitempty"`

	// CEL expressions that must all be true before anything is done.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16384
	Conditions []string `json:"conditions,omitempty"`

	// What to do with which of many objects.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(s, s.name == r.name))",message="two rules have the same name: give each a name of its own"
	Rules []Rule `json:"rules,omitempty"`
}
