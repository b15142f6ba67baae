// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// Rule acts on those of many items for which an expression is true.
//
// Its expressions see the targets, `params`, `variables`, `time`, and `item`: the entry of forEach that they are about.
// An entry that is an object is `object` too. An error in the expressions of one item leaves the others alone.
type Rule struct {
	// The name of the rule, in status, Events and CloudEvents.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not the name of a rule: write lower case letters, digits and - only, such as finished-pods"
	// +kubebuilder:validation:XValidation:rule="self != 'helm'",message="means the Helm release where actions are listed: choose another name"
	Name string `json:"name"`

	// A CEL expression that gives the list of items, such as pods.items.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ForEach string `json:"forEach"`

	// Values that are computed for each item when an expression first reads them, as variables.<name>. Their names must
	// differ from those of spec.variables.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Variables []Variable `json:"variables,omitempty"`

	// A CEL expression that says whether to act on an item, such as item.status.phase == "Failed". "true" stands for
	// every item.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	When string `json:"when"`

	// How long `when` must have been true without a break before the item is acted on: a duration such as "40s", or a CEL
	// expression that gives one, such as params.quarantine. The time is counted by this process: a restart begins anew.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	For string `json:"for,omitempty"`

	// A CEL expression that gives the string to which that time belongs, so that items can share it, such as
	// item.spec.nodeName. Without it each item has its own.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ForKey string `json:"forKey,omitempty"`

	// A CEL expression whose value tells groups apart: orderBy and keep are about each group. Without it all items are
	// one group.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	GroupBy string `json:"groupBy,omitempty"`

	// The order in which items are acted on. Those that are equal by it are ordered by namespace, name and UID.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	OrderBy []OrderBy `json:"orderBy,omitempty"`

	// How many items of each group stay: the last ones, by orderBy. A number, or a CEL expression that gives one and sees
	// `items`, those of the group for which `when` is true.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0 && self <= 1000000",message="must be a number from 0 to 1000000, or an expression that gives one"
	Keep *intstr.IntOrString `json:"keep,omitempty"`

	// A CEL expression that spares items which groupBy, orderBy and keep have left over: with "keep the newest three, and
	// of the rest delete the unused", it says what is used.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Unless string `json:"unless,omitempty"`

	// What is read live before an item is acted on. The answers take the place of what was seen before, and the rule is
	// decided again. It is how absence is proven, such as that of a Pod's Node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Confirm []Confirm `json:"confirm,omitempty"`

	// A CEL expression that names an item: for `for`, and when it is tried again after a conflict. Without it that is the
	// object's UID. Needed where items are no objects; it should contain what confirm proves.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Key string `json:"key,omitempty"`

	// A CEL expression that says in words why an item is acted on, for status, Events and CloudEvents.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Reason string `json:"reason,omitempty"`

	// What to do with an item, in this order. The first failure ends it for the item; the next evaluation tries again.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Actions []RuleAction `json:"actions"`
}

// OrderBy is one key of an order.
type OrderBy struct {
	// A CEL expression that gives a string, a number, a bool, a timestamp or a duration.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression"`

	// Whether larger values come first. False without it.
	// +optional
	Descending bool `json:"descending,omitempty"`
}

// ConfirmAll stands in the place of a target's name for all targets on which a rule depends, but that of its items.
const ConfirmAll = "*"

// Confirm names what is read live before an item is acted on.
type Confirm struct {
	// The name of the target that it belongs to; or "*", quoted: all targets on which the rule depends, each as a whole,
	// but that of its items.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Target string `json:"target"`

	// A CEL expression that gives the name of the object to read, or a list of names; "" and [] read nothing. Without it
	// the whole target is listed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Name string `json:"name,omitempty"`

	// A CEL expression that gives the object's namespace. Without it that is the item's. It means nothing for
	// cluster-scoped kinds.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Namespace string `json:"namespace,omitempty"`
}

// RuleAction is one thing to do with an item. It has exactly one verb.
//
// +kubebuilder:validation:XValidation:rule="[has(self.report), has(self.delete), has(self.evict), has(self.patch), has(self.removeFinalizer)].exists_one(v, v)",message="an action has exactly one of report, delete, evict, patch and removeFinalizer"
type RuleAction struct {
	// A CEL expression that says whether the action applies to an item. Without it, it does.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	When string `json:"when,omitempty"`

	// A CEL expression that gives the object to act on. Without it that is the item. It must be an object of a target:
	// the operator looks it up by kind, namespace, name and UID.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Object string `json:"object,omitempty"`

	// Does nothing but to report the item.
	// +optional
	Report *ReportAction `json:"report,omitempty"`

	// Deletes the object, at the version that was decided on. Of several in a rule, the first that applies counts.
	// +optional
	Delete *DeleteAction `json:"delete,omitempty"`

	// Evicts the Pod, which respects PodDisruptionBudgets.
	// +optional
	Evict *EvictAction `json:"evict,omitempty"`

	// Patches the object, at the version that was decided on.
	// +optional
	Patch *PatchAction `json:"patch,omitempty"`

	// Takes one finalizer off the object.
	// +optional
	RemoveFinalizer *RemoveFinalizerAction `json:"removeFinalizer,omitempty"`
}

// ReportAction has nothing to say.
type ReportAction struct{}

// PropagationPolicy says what becomes of an object's dependents.
//
// +kubebuilder:validation:Enum=Background;Foreground;Orphan
type PropagationPolicy string

const (
	// PropagateBackground deletes the object, and its dependents afterwards. It is the default for every kind.
	PropagateBackground PropagationPolicy = "Background"
	// PropagateForeground deletes the dependents first.
	PropagateForeground PropagationPolicy = "Foreground"
	// PropagateOrphan leaves the dependents alone.
	PropagateOrphan PropagationPolicy = "Orphan"
)

// DeleteAction says how to delete.
type DeleteAction struct {
	// How many seconds the object has to end; 0 ends it by force. Without it the object's own. One that is terminating
	// already is left alone unless this makes it shorter.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// What becomes of the dependents: Background (the default, also for kinds whose own default is to orphan them),
	// Foreground or Orphan.
	// +optional
	PropagationPolicy PropagationPolicy `json:"propagationPolicy,omitempty"`
}

// EvictAction says how to evict.
type EvictAction struct {
	// How many seconds the Pod has to end. Without it the Pod's own.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// PatchType is the form of a patch.
//
// +kubebuilder:validation:Enum=Strategic;Merge;JSON;Apply
type PatchType string

const (
	// PatchStrategic merges lists by their keys, such as conditions by type. Built-in kinds only.
	PatchStrategic PatchType = "Strategic"
	// PatchMerge replaces lists; null removes a field. For every kind.
	PatchMerge PatchType = "Merge"
	// PatchJSON is a list of operations.
	PatchJSON PatchType = "JSON"
	// PatchApply is a server-side apply.
	PatchApply PatchType = "Apply"
)

// PatchAction says how to patch.
//
// +kubebuilder:validation:XValidation:rule="!has(self.force) || !self.force || self.type == 'Apply'",message="force is for type: Apply only"
type PatchAction struct {
	// The form of the patch: Strategic for built-in kinds, Merge, JSON, or Apply.
	// +required
	Type PatchType `json:"type"`

	// The subresource to patch, such as "status". Without it the object itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]+$')",message="is not a subresource: write one such as status or scale"
	Subresource string `json:"subresource,omitempty"`

	// A CEL expression that gives the patch: a map, or for JSON a list of {op, path, value}. It sees `object`, what is
	// patched, and `items`: all items whose patches of this object are made in one. Of one alone it sees `item` too. The
	// resourceVersion is added.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression"`

	// Whether an Apply takes fields over from other managers. False without it.
	// +optional
	Force bool `json:"force,omitempty"`
}

// RemoveFinalizerAction says which finalizer.
type RemoveFinalizerAction struct {
	// The finalizer, such as "example.com/protect".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Name string `json:"name"`
}
