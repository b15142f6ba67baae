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

// CommonSpec contains the fields that Cleaners and ClusterCleaners share.
type CommonSpec struct {
	// Once cleans up one time and then deletes the Cleaner. Recurring keeps the Cleaner, which cleans up whenever there
	// is something to clean up. Required with rules or templateRef; otherwise defaults to Once.
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`

	// Enforce performs the actions. DryRun makes the same decisions, reports them in status and Events, and sends each
	// request as a server-side dry run: nothing is changed, no CloudEvent is sent, and the Cleaner stays. Defaults to
	// Enforce.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// If true, the operator does not evaluate or delete anything. A cleanup in progress stops before its next deletion
	// and continues when suspend is set to false. The CloudEvent of a finished cleanup is still delivered.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// When to evaluate the Cleaner, in cron format: "*/10 * * * *" is every ten minutes, "@daily" is midnight. With a
	// schedule, the Cleaner acts only at these times, and watches nothing in between unless a rule has "for". Without
	// one, it is evaluated whenever a target changes. If several times were missed, the Cleaner is evaluated once.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule,omitempty"`

	// The time zone of the schedule, as an IANA name such as "Europe/Berlin". Defaults to UTC.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// How late a scheduled evaluation may start. After that it is skipped until the next scheduled time. Defaults to
	// 1h.
	// +optional
	StartingDeadline Duration `json:"startingDeadline,omitempty"`

	// How long to wait after metadata.creationTimestamp before watching or evaluating anything, such as "360h" or
	// "15d". Without it, evaluation starts immediately.
	// +optional
	TTL Duration `json:"ttl,omitempty"`

	// When to evaluate the conditions again, in addition to whenever a target changes.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// Values that expressions read as `params`: with {team: web, keep: 3}, expressions read params.team and
	// params.keep. A JSON integer is a CEL int. A null value is the same as no value.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Named values, such as an index of all Nodes by name, that expressions read as variables.<name>. Each is computed
	// at most once per evaluation, when an expression first reads it, and can read the variables before it. Server-side
	// apply treats the list as one field.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.name == v.name))",message="two variables have the same name: give each a name of its own"
	Variables []Variable `json:"variables,omitempty"`

	// CEL expressions that must all be true before anything is deleted, for example !pods.items.exists(p,
	// p.status.phase == "Running"). They can read each included target by its name, `params`, `variables`, and `time`,
	// the time of the evaluation. Without conditions the result is true. If an expression fails, nothing is deleted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16384
	Conditions []string `json:"conditions,omitempty"`

	// Actions on selected items of a list. A rule selects the items for which `when` is true and acts on each of them.
	// Rules run in this order; if several rules select the same object, only the first one acts on it. Server-side
	// apply treats the list as one field.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(s, s.name == r.name))",message="two rules have the same name: give each a name of its own"
	Rules []Rule `json:"rules,omitempty"`

	// Safety limits. If an evaluation would exceed a limit, nothing is done and the condition Tripped names the limit.
	// Each evaluation is checked separately. Unset by default.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// The CleanerTemplate to use instead of targets, variables, conditions, rules and parameters.
	// +optional
	TemplateRef *TemplateRef `json:"templateRef,omitempty"`

	// The http or https URL that receives one CloudEvent when a cleanup is finished. Until the sink responds with a 2xx
	// status code, the operator retries with the same event ID and the Cleaner is not deleted. The URL must not contain
	// a user name, a password or a fragment.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('http://') || self.startsWith('https://')",message="must be a URL that starts with http:// or https://"
	CloudEventSink string `json:"cloudEventSink,omitempty"`

	// A CEL expression for the `data` of the CloudEvent, for example {"image": revision.spec.containers[0].image}. It
	// can read what conditions can read, is evaluated when the cleanup starts, and must return a JSON value of at most
	// 8 KiB. If it fails, the cleanup does not start.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	CloudEventData string `json:"cloudEventData,omitempty"`
}

// Retry defines when conditions are evaluated although no target has changed.
type Retry struct {
	// How long after an evaluation to evaluate again although nothing has changed, such as "5h". At least 10s. Changes
	// that the operator can predict from time alone are evaluated at the exact time, whatever the period is. Defaults
	// to 1h.
	// +optional
	Period Duration `json:"period,omitempty"`

	// Asserts that once a condition is true, time alone does not make it false. Set it if the operator cannot predict
	// when the conditions become true: it then searches for that time within the period and evaluates them at it. A
	// wrong assertion can delay deletions but never causes one.
	// +optional
	Monotonic bool `json:"monotonic,omitempty"`
}

// Variable is a named value.
type Variable struct {
	// The name. Expressions read the value as variables.<name>.
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

// Limits restrict how many objects a Cleaner acts on. They count the objects of the current evaluation and those acted
// on during the last `per`. They do not count the objects of a Helm release that is uninstalled.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxActions) || has(self.maxPercent) || !has(self.per)",message="per is the time that maxActions and maxPercent count over: add one of them"
type Limits struct {
	// The maximum number of objects to act on during `per`. An object counts once, however many actions it needs.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxActions int64 `json:"maxActions,omitempty"`

	// The maximum percentage of the objects of any target to act on during `per`. If one target exceeds it, nothing is
	// done.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPercent int64 `json:"maxPercent,omitempty"`

	// The period that maxActions and maxPercent count over, such as "24h". Actions before a restart of the operator are
	// not counted. Defaults to 1h.
	// +optional
	Per Duration `json:"per,omitempty"`

	// The maximum number of modifying requests per second.
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
	// of the template.
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
	// Bearer sends the value in the header "Authorization: Bearer <value>". HMAC never sends the value: it signs the
	// event's ID, time and body with it and adds the headers webhook-id, webhook-timestamp and webhook-signature, as
	// Standard Webhooks define them.
	// +required
	Type SinkAuthType `json:"type"`

	// The key of a Secret in the namespace of the Cleaner that contains the value.
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

	// The key in the data of the Secret, such as "token". A trailing newline in the value is ignored. The value must be
	// at most 8 KiB of printable ASCII without spaces.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="is not a key of a Secret: write one of its data, such as token"
	Key string `json:"key"`
}
