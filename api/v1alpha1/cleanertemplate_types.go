// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// CleanerTemplate defines once what to clean up, for use in many Cleaners and ClusterCleaners. Each of them sets the
// parameters, and decides when to clean up, how much, and with which ServiceAccount.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,shortName=clntpl
// +kubebuilder:printcolumn:name="Description",type=string,JSONPath=`.spec.description`,description="What the template cleans up"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type CleanerTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What to clean up, and which parameters can be set.
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

// CleanerTemplateSpec defines what to clean up, and which parameters can be set.
type CleanerTemplateSpec struct {
	// What the template cleans up, for users who choose a template.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`

	// The parameters that users of the template can set. Expressions read them as params.<name>.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.name == p.name))",message="two parameters have the same name: rename one of them"
	Parameters []TemplateParameter `json:"parameters,omitempty"`

	// The targets, variables, conditions and rules for each Cleaner and ClusterCleaner that uses the template.
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
	// ParameterDuration is a duration such as "40s". Expressions read it as a CEL duration.
	ParameterDuration ParameterType = "duration"
	// ParameterStringList is a list of strings.
	ParameterStringList ParameterType = "stringList"
)

// TemplateParameter is a value that users of a template can set.
type TemplateParameter struct {
	// The name of the parameter. Expressions read it as params.<name>. It consists of letters, digits and underscores
	// and does not start with a digit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as onReadyNode"
	Name string `json:"name"`

	// The type of the parameter: string, int, bool, duration or stringList.
	// +required
	Type ParameterType `json:"type"`

	// The value of the parameter if a user of the template does not set it. A parameter without a default must be set.
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	Default *runtime.RawExtension `json:"default,omitempty"`

	// The allowed values of a parameter of type string. By default all values are allowed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Enum []string `json:"enum,omitempty"`

	// What the parameter is for.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Description string `json:"description,omitempty"`
}

// TemplateBody is the part of a spec that a template defines.
//
// +kubebuilder:validation:XValidation:rule="has(self.targets) && size(self.targets) > 0 || has(self.rules) && size(self.rules) > 0",message="a template needs something to clean: add targets or rules"
type TemplateBody struct {
	// What to do if an expression reads a field that the kind of a target does not have, as in a Cleaner. Cleaners that
	// use the template can set their own. Defaults to Strict.
	// +optional
	Validation FieldValidation `json:"validation,omitempty"`

	// The objects that expressions read, and the objects to delete, as in a ClusterCleaner. A template that selects
	// namespaces, or that sets delete: true for a cluster-scoped kind, can only be used by ClusterCleaners.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, self.exists_one(u, u.name == t.name))",message="two targets have the same name: rename one of them"
	Targets []ClusterTarget `json:"targets,omitempty"`

	// Named values that expressions read as variables.<name>. Each is computed when an expression first reads it, and
	// can read the variables before it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.name == v.name))",message="two variables have the same name: rename one of them"
	Variables []Variable `json:"variables,omitempty"`

	// CEL expressions that must all be true before anything is done. If one fails, nothing is done.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16384
	Conditions []string `json:"conditions,omitempty"`

	// Rules that select items of a list and act on each of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(s, s.name == r.name))",message="two rules have the same name: rename one of them"
	Rules []Rule `json:"rules,omitempty"`
}
