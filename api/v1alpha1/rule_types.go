// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/util/intstr"

// Rule acts on the items of a list for which an expression is true.
//
// Its expressions can read the targets, `params`, `variables`, `time`, and `item`: the current item of the list. If the
// item is an object, `object` is the same. If an expression fails for an item, that item is skipped, and the other
// items are not affected.
type Rule struct {
	// The name of the rule, as shown in status, Events and CloudEvents. It must be unique among the rules. It consists
	// of lowercase letters, digits and hyphens.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not the name of a rule: write lower case letters, digits and - only, such as finished-pods"
	// +kubebuilder:validation:XValidation:rule="self != 'helm'",message="is the name of the Helm release in lists of actions: choose another name"
	Name string `json:"name"`

	// A CEL expression that returns the list of items, such as pods.items. The items do not have to be objects.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ForEach string `json:"forEach"`

	// Named values for each item, which expressions read as variables.<name>. Each is computed when an expression first
	// reads it. The names must differ from those in spec.variables.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Variables []Variable `json:"variables,omitempty"`

	// A CEL expression that selects the items to act on, such as item.status.phase == "Failed". Use "true" to select
	// all items.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	When string `json:"when"`

	// How long `when` must be true without interruption before the operator acts on the item: a duration such as "40s",
	// or a CEL expression that returns one, such as params.quarantine. The time starts again when the operator
	// restarts. Without it, the operator acts immediately.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	For string `json:"for,omitempty"`

	// A CEL expression that returns a string. Items with the same string share one `for` timer, such as all items on
	// the same item.spec.nodeName. By default, each item has its own timer. Has no effect without `for`.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	ForKey string `json:"forKey,omitempty"`

	// A CEL expression that assigns each item to a group: items with equal values are in one group. orderBy, keep and
	// leave apply within each group, and limits.perGroup counts each. By default, all items are in one group.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	GroupBy string `json:"groupBy,omitempty"`

	// The order in which to act on the items of a group. Items that compare equal are ordered by namespace, name and
	// UID.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	OrderBy []OrderBy `json:"orderBy,omitempty"`

	// How many items to keep in each group: the last ones in the order of orderBy. A number from 0 to 1000000, or a CEL
	// expression that returns one. The expression can read `items`: the items of the group for which `when` is true.
	// Defaults to 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0 && self <= 1000000",message="must be a number from 0 to 1000000, or an expression that returns one"
	Keep *intstr.IntOrString `json:"keep,omitempty"`

	// How many items of each group must be left in all. Keep counts only the items for which `when` is true; leave also
	// counts those for which it is false. It does not count objects that are terminating, or that anything else in this
	// Cleaner deletes or evicts, so rules with leave are decided after all others. The operator acts on the first items in
	// the order of orderBy, as many as can go. A number from 0 to 1000000, or a CEL expression that returns one. The
	// expression can read `items`: the items of the group that count. Defaults to 0.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:XValidation:rule="type(self) != int || self >= 0 && self <= 1000000",message="must be a number from 0 to 1000000, or an expression that returns one"
	Leave *intstr.IntOrString `json:"leave,omitempty"`

	// A CEL expression that keeps an item if it returns true. It is evaluated after groupBy, orderBy and keep, as in
	// "keep the newest three, and delete the rest unless they are in use".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Unless string `json:"unless,omitempty"`

	// What to read from the API server, instead of the watch cache, before acting on an item. The rule is evaluated again
	// with the results. You need it only to read less. A target that no entry names is confirmed as a whole if the decision
	// on an item depends on it: by a proof that the watch is as new as the API server, or by a list.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Confirm []Confirm `json:"confirm,omitempty"`

	// A CEL expression that returns a unique name for the item. It identifies the item for `for` and for retries. Keys
	// must be unique: the operator does not act on items with the same key, and the status has an error that names two of
	// them. Required if the items are not objects; it should then contain the names that `confirm` reads. Defaults to the
	// UID of the object.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Key string `json:"key,omitempty"`

	// A CEL expression that returns a message that explains the action in status, Events and CloudEvents.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Reason string `json:"reason,omitempty"`

	// The actions to perform on each selected item, in this order. If an action fails, the remaining actions for the
	// item are skipped until the next evaluation.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Actions []RuleAction `json:"actions"`
}

// OrderBy is one sort key.
type OrderBy struct {
	// A CEL expression that returns a string, a number, a bool, a timestamp or a duration. All items of a group must
	// have the same type.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression"`

	// Whether larger values come first. Defaults to false.
	// +optional
	Descending bool `json:"descending,omitempty"`
}

// ConfirmAll stands in the place of a target's name for all targets on which a rule depends, except the target of its items.
const ConfirmAll = "*"

// Confirm selects what to read from the API server before acting on an item.
type Confirm struct {
	// The name of the target to read. "*" (quoted) reads all targets that the rule depends on, except the target
	// of its items.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Target string `json:"target"`

	// A CEL expression that returns the name of the object to read, or a list of names. "" and [] read nothing. Without
	// it, the operator reads the whole target.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Name string `json:"name,omitempty"`

	// A CEL expression that returns the namespace of the object. Requires name. Ignored for cluster-scoped kinds.
	// Defaults to the namespace of the item.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Namespace string `json:"namespace,omitempty"`
}

// RuleAction is one action on an item. Exactly one of report, delete, evict, patch, removeFinalizer and helmUninstall must
// be set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.report), has(self.delete), has(self.evict), has(self.patch), has(self.removeFinalizer), has(self.helmUninstall)].exists_one(v, v)",message="an action must have exactly one of report, delete, evict, patch, removeFinalizer and helmUninstall"
type RuleAction struct {
	// A CEL expression that returns whether to perform this action on the item. Defaults to true.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	When string `json:"when,omitempty"`

	// A CEL expression that returns the object to act on. It must be an object of a target: the operator finds it by
	// kind, namespace, name and UID. Defaults to the item.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Object string `json:"object,omitempty"`

	// Reports the item in status and Events, and changes nothing.
	// +optional
	Report *ReportAction `json:"report,omitempty"`

	// Deletes the object if it has not changed since the evaluation. If several delete actions of a rule apply to an object,
	// only the first is performed.
	// +optional
	Delete *DeleteAction `json:"delete,omitempty"`

	// Evicts the Pod, subject to its PodDisruptionBudgets.
	// +optional
	Evict *EvictAction `json:"evict,omitempty"`

	// Patches the object if it has not changed since the evaluation.
	// +optional
	Patch *PatchAction `json:"patch,omitempty"`

	// Removes one finalizer from the object if it has not changed since the evaluation.
	// +optional
	RemoveFinalizer *RemoveFinalizerAction `json:"removeFinalizer,omitempty"`

	// Uninstalls the Helm release of the item, a revision in a target with helmReleases, if it has not changed since the
	// evaluation. In a rule with this action, only the newest revision of each release is an item, so that keep, leave
	// and limits count releases. An uninstall that has begun is completed even if the rule changes. Requires lifecycle:
	// Recurring. A rule can have one such action. Not for templates.
	// +optional
	HelmUninstall *HelmUninstallAction `json:"helmUninstall,omitempty"`
}

// ReportAction has no options.
type ReportAction struct{}

// PropagationPolicy defines what happens to the dependents of a deleted object.
//
// +kubebuilder:validation:Enum=Background;Foreground;Orphan
type PropagationPolicy string

const (
	// PropagateBackground deletes the object first and its dependents afterwards. It is the default for every kind.
	PropagateBackground PropagationPolicy = "Background"
	// PropagateForeground deletes the dependents first.
	PropagateForeground PropagationPolicy = "Foreground"
	// PropagateOrphan keeps the dependents.
	PropagateOrphan PropagationPolicy = "Orphan"
)

// DeleteAction contains the options of a deletion.
type DeleteAction struct {
	// The grace period in seconds. 0 deletes the object immediately, without waiting for the containers of a Pod to
	// stop. An object that is already terminating is deleted again only if this shortens its grace period. Defaults to
	// the grace period of the object.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// What happens to the dependents of the object: Background, Foreground or Orphan. Defaults to Background, even for
	// kinds whose dependents are orphaned by default.
	// +optional
	PropagationPolicy PropagationPolicy `json:"propagationPolicy,omitempty"`
}

// EvictAction contains the options of an eviction.
type EvictAction struct {
	// The grace period in seconds. 0 evicts the Pod without waiting for its containers to stop. A Pod that is already
	// terminating is evicted again only if this shortens its grace period. Defaults to the grace period of the Pod.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// PatchType is the format of a patch.
//
// +kubebuilder:validation:Enum=Strategic;Merge;JSON;Apply
type PatchType string

const (
	// PatchStrategic merges lists by their keys, such as conditions by type. Only for built-in kinds.
	PatchStrategic PatchType = "Strategic"
	// PatchMerge replaces lists, and removes fields that are null. For every kind.
	PatchMerge PatchType = "Merge"
	// PatchJSON is a list of operations.
	PatchJSON PatchType = "JSON"
	// PatchApply is a server-side apply.
	PatchApply PatchType = "Apply"
)

// PatchAction defines a patch.
//
// +kubebuilder:validation:XValidation:rule="!has(self.force) || !self.force || self.type == 'Apply'",message="force requires type: Apply: change type, or remove force"
type PatchAction struct {
	// The format of the patch: Strategic (built-in kinds only), Merge, JSON or Apply.
	// +required
	Type PatchType `json:"type"`

	// The subresource to patch: status, scale, resize, ephemeralcontainers or approval. By default, the object itself is
	// patched.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z]+$')",message="is not a subresource: write one such as status or scale"
	Subresource string `json:"subresource,omitempty"`

	// A CEL expression that returns the patch: a map, or for JSON a list of {op, path, value}. It can read `object`, the
	// object to patch, and `items`, all items that patch this object. The operator sends one patch for all of them. If
	// there is only one item, it can also read `item`. The operator adds the resourceVersion. The patch must not change
	// metadata.ownerReferences.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression"`

	// Whether to take over fields that other field managers own, as kubectl apply --force-conflicts does. Only with type Apply. Defaults to false.
	// +optional
	Force bool `json:"force,omitempty"`
}

// HelmUninstallAction contains the options of an uninstall.
type HelmUninstallAction struct {
	// How long each hook can take, such as "90s". After this time, the operator stops the uninstall and retries it. It
	// keeps the Secret of the release until the uninstall is complete. Must be more than 0s. Defaults to 5m.
	// +optional
	Timeout Duration `json:"timeout,omitempty"`

	// Whether to skip the pre-delete and post-delete hooks. Otherwise they run at least once, with the rights of the
	// ServiceAccount of the Cleaner, which must be in the namespace of the release. The hooks must not create roles,
	// bindings, ServiceAccounts, tokens or certificate requests. Defaults to false.
	// +optional
	DisableHooks bool `json:"disableHooks,omitempty"`

	// Whether to keep the records of the release, as helm uninstall --keep-history does. The newest one then has the status
	// uninstalled, and no rule uninstalls the release again. Defaults to false.
	// +optional
	KeepHistory bool `json:"keepHistory,omitempty"`
}

// RemoveFinalizerAction selects a finalizer.
type RemoveFinalizerAction struct {
	// The finalizer to remove, such as "example.com/protect".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Name string `json:"name"`
}
