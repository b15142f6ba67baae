// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// Lifecycle defines what happens to a Cleaner after it has cleaned up.
//
// +kubebuilder:validation:Enum=Once;Recurring
type Lifecycle string

const (
	// LifecycleOnce cleans up once and then deletes the Cleaner.
	LifecycleOnce Lifecycle = "Once"
	// LifecycleRecurring keeps the Cleaner, which cleans up whenever there is something to clean up.
	LifecycleRecurring Lifecycle = "Recurring"
)

// Mode defines whether a Cleaner acts or only reports.
//
// +kubebuilder:validation:Enum=Enforce;DryRun
type Mode string

const (
	// ModeEnforce performs the actions. It is the default.
	ModeEnforce Mode = "Enforce"
	// ModeDryRun reports the actions and changes nothing.
	ModeDryRun Mode = "DryRun"
)

// FieldValidation defines what happens if an expression reads a field that does not exist.
//
// +kubebuilder:validation:Enum=Strict;Warn;Ignore
type FieldValidation string

const (
	// ValidationStrict refuses the Cleaner. It is the default.
	ValidationStrict FieldValidation = "Strict"
	// ValidationWarn warns.
	ValidationWarn FieldValidation = "Warn"
	// ValidationIgnore does not look at fields.
	ValidationIgnore FieldValidation = "Ignore"
)

// CommonSpec contains the fields that Cleaners and ClusterCleaners share.
type CommonSpec struct {
	// Whether to keep the Cleaner after a cleanup. Once cleans up one time and then deletes the Cleaner. Recurring
	// keeps the Cleaner, which cleans up whenever there is something to clean up. Required with rules or templateRef;
	// otherwise defaults to Once.
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`

	// Whether to act or only report. Enforce performs the actions. DryRun makes the same decisions, sends each request
	// as a server-side dry run, and reports the results in status and Events: it changes nothing, sends no CloudEvent
	// and keeps the Cleaner. Defaults to Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// What to do if an expression reads a field that the kind of a target does not have, such as status.phse of a Pod, or
	// compares a field with a value that it never has. Strict refuses the Cleaner when it is created or its spec
	// changes. Warn accepts it with a warning. Ignore does not look at fields. Kinds whose schema is unknown, and the
	// parts of a kind that its schema leaves open, are not checked. A Cleaner that is stored keeps working. Defaults to
	// the template's validation, and without one to Strict.
	// +optional
	Validation FieldValidation `json:"validation,omitempty"`

	// Whether to pause the Cleaner. While true, the operator does not evaluate or act. A cleanup in progress stops
	// before its next action and continues when suspend is set to false. The CloudEvent of a finished cleanup is still
	// delivered. Defaults to false.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// When to evaluate the Cleaner, in cron format: "*/10 * * * *" is every ten minutes, "@daily" is midnight. With a
	// schedule, the Cleaner acts only at these times, and watches nothing in between unless a rule has "for". Without
	// one, it is evaluated whenever a target changes. If several times were missed, the Cleaner is evaluated once. To
	// evaluate it at another time, set the annotation cleaner.vtex.dev/requestedAt.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule,omitempty"`

	// The time zone of the schedule, as an IANA name such as "Europe/Berlin". Requires a schedule. Defaults to UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// The deadline for an evaluation after its scheduled time. If it is missed, the Cleaner waits for the
	// next scheduled time. A request in the annotation cleaner.vtex.dev/requestedAt expires after the same time.
	// Requires a schedule. At least 10s. Defaults to 1h.
	// +optional
	StartingDeadline Duration `json:"startingDeadline,omitempty"`

	// How long to wait after metadata.creationTimestamp before watching or evaluating anything, such as "360h" or
	// "15d". Without it, evaluation starts immediately.
	// +optional
	TTL Duration `json:"ttl,omitempty"`

	// When to evaluate the Cleaner again even if no target has changed. Defaults to {period: 1h}.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// Values that expressions read as `params`. With {team: web, keep: 3}, expressions read params.team and
	// params.keep. A JSON integer is a CEL int. A null value counts as not set. Numbers beyond 9007199254740991
	// are rejected: write them as strings.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Named values that expressions read as variables.<name>, such as an index of all Nodes by name. Each is computed
	// at most once per evaluation, when an expression first reads it. A variable can read the variables before it.
	// Server-side apply treats the list as one field.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.name == v.name))",message="two variables have the same name: rename one of them"
	Variables []Variable `json:"variables,omitempty"`

	// CEL expressions that must all be true before the Cleaner acts, such as !pods.items.exists(p, p.status.phase ==
	// "Running"). They can read each target by its name (unless includeWhenEvaluating is false), `params`, `variables`,
	// and `time`, the time of the evaluation. If an expression fails, the Cleaner does not act. Without conditions, it
	// acts when its ttl, schedule and rules allow it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16384
	Conditions []string `json:"conditions,omitempty"`

	// Rules that select items of a list and act on each of them. A rule selects the items for which `when` is true.
	// Rules run in this order; if several rules select the same object, only the first one acts on it. Server-side
	// apply treats the list as one field.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(s, s.name == r.name))",message="two rules have the same name: rename one of them"
	Rules []Rule `json:"rules,omitempty"`

	// Safety limits. If an evaluation would exceed a limit, the Cleaner does not act, and the condition Tripped names
	// the limit. Every evaluation is checked. By default there are no limits.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// The CleanerTemplate to use instead of targets, variables, conditions, rules and parameters. These fields must not
	// be set together with it.
	// +optional
	TemplateRef *TemplateRef `json:"templateRef,omitempty"`

	// The http or https URL that receives one CloudEvent for each finished cleanup. The operator retries with the same
	// event ID until the sink responds with a 2xx status code; with lifecycle Once, the Cleaner is not deleted until
	// then. With lifecycle Recurring, an event is sent when nothing is left to do, or after 500 objects.
	// The URL must not contain a user name, a password or a fragment.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('http://') || self.startsWith('https://')",message="must be a URL that starts with http:// or https://"
	CloudEventSink string `json:"cloudEventSink,omitempty"`

	// A CEL expression whose result the CloudEvent carries as `data`, such as {"image":
	// revision.spec.containers[0].image}. It can read what conditions can read. The operator evaluates it when the
	// cleanup starts, and does not start the cleanup if it fails. The result can have up to 8 KiB of JSON. Ignored with
	// lifecycle Recurring.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	CloudEventData string `json:"cloudEventData,omitempty"`
}

// Retry defines when a Cleaner is evaluated again even if no target has changed.
type Retry struct {
	// How long after an evaluation to evaluate again even if nothing has changed, such as "5h". If the operator can
	// predict when time changes a result, it evaluates at that time instead. At least 10s. Defaults to 1h.
	// +optional
	Period Duration `json:"period,omitempty"`

	// Set to true if conditions that are true stay true as time passes. Where the operator cannot predict when they become
	// true, it then searches for that time within `period`. A wrong value can only delay a cleanup. Defaults to false.
	// +optional
	Monotonic bool `json:"monotonic,omitempty"`
}

// Variable is a named value.
type Variable struct {
	// The name of the variable. Expressions read it as variables.<name>. It consists of letters, digits and underscores
	// and does not start with a digit.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as nodes_by_name"
	// +kubebuilder:validation:XValidation:rule="!(self in ['as','break','const','continue','else','false','for','function','if','import','in','let','loop','namespace','null','package','return','true','var','void','while'])",message="is a reserved word of CEL: choose another name"
	Name string `json:"name"`

	// The CEL expression that computes the value. It can return any type.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression"`
}

// Limits restrict how many objects a Cleaner acts on. They count the objects of the current evaluation and the objects
// that the Cleaner acted on during the last `per`. The objects of a Helm release do not count.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxActions) || has(self.maxPercent) || has(self.perGroup) || !has(self.per)",message="per is the period over which maxActions, maxPercent and perGroup count: add one of them"
type Limits struct {
	// The maximum number of objects to act on during `per`. Several actions on one object count once. If one action on an
	// object is for several items, such as one patch, the object counts as that many. Unlimited by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxActions int64 `json:"maxActions,omitempty"`

	// The maximum percentage of the objects of each target to act on during `per`. If one target would exceed it, the
	// Cleaner does not act. Unlimited by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPercent int64 `json:"maxPercent,omitempty"`

	// The maximum number of objects of one group to act on during `per`, for each group that groupBy makes. All items of a
	// rule without groupBy are one group. If one group would exceed it, the Cleaner does not act. Unlimited by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	PerGroup int64 `json:"perGroup,omitempty"`

	// The period over which maxActions, maxPercent and perGroup count, such as "24h". Requires one of them. Actions before a
	// restart of the operator do not count. The limit also counts as reached if there are more actions than the operator
	// can remember. Must be more than 0s. Defaults to 1h.
	// +optional
	Per Duration `json:"per,omitempty"`

	// The maximum number of modifying requests per second. Unlimited by default.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	ActionsPerSecond int64 `json:"actionsPerSecond,omitempty"`
}

// TemplateRef selects a CleanerTemplate and sets its parameters.
type TemplateRef struct {
	// The name of the CleanerTemplate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Values for the parameters of the template, such as {quarantine: 40s}. A parameter that is not set has the default
	// that the template defines; a parameter without a default must be set.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

// SinkAuthType defines how requests to a sink are authenticated.
//
// +kubebuilder:validation:Enum=Bearer;HMAC
type SinkAuthType string

const (
	// SinkAuthBearer sends the value of a Secret as a bearer token.
	SinkAuthBearer SinkAuthType = "Bearer"
	// SinkAuthHMAC signs each request with the value of a Secret, which is never sent.
	SinkAuthHMAC SinkAuthType = "HMAC"
)

// SinkAuth defines how requests to a sink are authenticated.
type SinkAuth struct {
	// The type of authentication: Bearer or HMAC. Bearer sends the value in the header "Authorization: Bearer <value>";
	// use an https URL. HMAC signs the ID, the time and the body of the event with the value, which is never sent,
	// and adds the headers webhook-id, webhook-timestamp and webhook-signature, as Standard Webhooks defines them.
	// +required
	Type SinkAuthType `json:"type"`

	// The Secret in the namespace of the Cleaner, and the key in it, that contain the value.
	// +required
	SecretRef SecretKeyReference `json:"secretRef"`
}

// SecretKeyReference selects a key of a Secret.
type SecretKeyReference struct {
	// The name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="is not the name of a Secret: write its metadata.name, such as sink-token"
	Name string `json:"name"`

	// The key in the data of the Secret, such as "token". Its value must be 1 byte to 8 KiB of printable ASCII without
	// spaces. A trailing newline is ignored. With type HMAC, the rest of a value that starts with "whsec_" is decoded
	// as base64.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="is not a key of a Secret: write a key in its data, such as token"
	Key string `json:"key"`
}
