// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// Lifecycle says what becomes of a Cleaner that has cleaned.
//
// +kubebuilder:validation:Enum=Once;Recurring
type Lifecycle string

const (
	// LifecycleOnce is the life of a Cleaner that cleans once and then deletes itself.
	LifecycleOnce Lifecycle = "Once"
	// LifecycleRecurring is the life of a Cleaner that stays, and cleans whenever there is something to clean.
	LifecycleRecurring Lifecycle = "Recurring"
)

// Mode says whether a Cleaner acts or only reports.
//
// +kubebuilder:validation:Enum=Enforce;DryRun
type Mode string

const (
	// ModeEnforce carries out what was decided. It is the default.
	ModeEnforce Mode = "Enforce"
	// ModeDryRun decides and reports, and changes nothing.
	ModeDryRun Mode = "DryRun"
)

// CommonSpec is what Cleaners and ClusterCleaners have in common.
type CommonSpec struct {
	// Once: clean, then delete the Cleaner itself. Recurring: stay, and clean whenever there is something to clean. It
	// must be given with rules or templateRef; without either it is Once if it is left out.
	// +optional
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`

	// Enforce (the default) acts. DryRun decides all that Enforce would, reports it in status and Events, and sends
	// each deed as a server-side dry run; nothing is changed, no CloudEvent is sent, and the Cleaner stays.
	// +optional
	Mode Mode `json:"mode,omitempty"`

	// While true nothing is evaluated and nothing is deleted. A cleaning that has begun stops before its next deletion
	// and goes on when suspend is false again; the event of one that is finished is still delivered.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// When to evaluate, in the five fields of cron: "*/10 * * * *" is every ten minutes, and "@daily" is at midnight. With
	// it the Cleaner is evaluated at these times only, and watches nothing in between; without it, whenever something
	// changes. Times that were missed are made up by one evaluation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule,omitempty"`

	// The time zone of the schedule, by its IANA name, such as "Europe/Berlin". UTC without it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// For how long after a time of the schedule the evaluation is still made up, if it was missed. 1h without it.
	// +optional
	StartingDeadline Duration `json:"startingDeadline,omitempty"`

	// How long to wait, counted from the Cleaner's creationTimestamp, before anything is watched or evaluated, such as
	// "360h" or "15d". Without it evaluation begins at once.
	// +optional
	TTL Duration `json:"ttl,omitempty"`

	// When the conditions are evaluated again, besides each time that a target changes.
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// Values that expressions read as `params`: with {team: web, keep: 3} they see params.team and params.keep. A JSON
	// integer is a CEL int; a null is an absent parameter.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`

	// Values that are computed when an expression first reads them, as variables.<name>, and then kept for the whole
	// evaluation, such as an index of all Nodes by name. A variable sees the ones before it. The whole list has one owner
	// under server-side apply.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.name == v.name))",message="two variables have the same name: give each a name of its own"
	Variables []Variable `json:"variables,omitempty"`

	// CEL expressions that must all be true before anything is deleted, such as
	// !pods.items.exists(p, p.status.phase == "Running"). They see each included target by its name, `params`, and
	// `time`, the moment of the evaluation. No condition means true; an error never deletes anything.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=16384
	Conditions []string `json:"conditions,omitempty"`

	// What to do with which of many objects. A rule takes a list, keeps of it those for which `when` is true, and acts on
	// each. Rules are carried out in this order; an object on which several want to act is acted on by the first. The
	// whole list has one owner under server-side apply.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(r, self.exists_one(s, s.name == r.name))",message="two rules have the same name: give each a name of its own"
	Rules []Rule `json:"rules,omitempty"`

	// How much may be done. Over a limit nothing is done at all, and the condition Tripped says which one it was; each
	// evaluation judges anew. There are none by default.
	// +optional
	Limits *Limits `json:"limits,omitempty"`

	// A CleanerTemplate, in the place of targets, variables, conditions, rules and parameters.
	// +optional
	TemplateRef *TemplateRef `json:"templateRef,omitempty"`

	// The http or https URL that is sent one CloudEvent when the cleaning is finished. Until the sink has answered with
	// 2xx the Cleaner stays and tries again; the event's id is the same at each attempt. A user name, a password or a
	// fragment in the URL is refused.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('http://') || self.startsWith('https://')",message="must be a URL that starts with http:// or https://"
	CloudEventSink string `json:"cloudEventSink,omitempty"`

	// A CEL expression whose value the CloudEvent carries as `data`, such as
	// {"image": revision.spec.containers[0].image}. It sees what conditions see, is evaluated when the cleaning begins,
	// and may give any JSON value of at most 8 KiB; an error keeps the cleaning from beginning.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	CloudEventData string `json:"cloudEventData,omitempty"`
}

// Retry says when conditions are evaluated again without an event.
type Retry struct {
	// How long after an evaluation the conditions are evaluated again although nothing changed, such as "5h". At least
	// 10s; 1h without it. What time alone changes is noticed at its moment, whatever the period is, if it can be foreseen.
	// +optional
	Period Duration `json:"period,omitempty"`

	// Your word that conditions which are true stay true as time passes. It is of use for those of which it cannot be
	// foreseen when time alone makes them true: the operator then looks ahead for the second at which they are, and
	// evaluates them then, if that is before the period ends. It never changes what is deleted: a wrong word makes it
	// late at most.
	// +optional
	Monotonic bool `json:"monotonic,omitempty"`
}

// Variable is a value under a name.
type Variable struct {
	// The name: expressions read variables.<name>.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-zA-Z_][a-zA-Z0-9_]*$')",message="is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as nodes_by_name"
	// +kubebuilder:validation:XValidation:rule="!(self in ['as','break','const','continue','else','false','for','function','if','import','in','let','loop','namespace','null','package','return','true','var','void','while'])",message="is a reserved word of CEL: choose another name"
	Name string `json:"name"`

	// The CEL expression, of any type.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	Expression string `json:"expression"`
}

// Limits bound what a Cleaner does. They count objects: those of the plan, and those that were acted on in the last
// `per`.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxActions) || has(self.maxPercent) || !has(self.per)",message="per is the time that maxActions and maxPercent count over: add one of them"
type Limits struct {
	// How many objects may be acted on in the time that per gives.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxActions int64 `json:"maxActions,omitempty"`

	// How many of the objects of a target may be acted on in the time that per gives, in percent of all that it has. One
	// target over it stops all.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPercent int64 `json:"maxPercent,omitempty"`

	// The time that maxActions and maxPercent count over, such as "24h". 1h without it. What a process did before it
	// was restarted is not counted.
	// +optional
	Per Duration `json:"per,omitempty"`

	// How many requests that change something may be sent in a second.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	ActionsPerSecond int64 `json:"actionsPerSecond,omitempty"`
}

// TemplateRef names a CleanerTemplate, and gives it values.
type TemplateRef struct {
	// The name of the CleanerTemplate.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Values for its parameters, such as {quarantine: 40s}. Those that are left out have the template's defaults.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}

// SinkAuthType says how events show a sink who has sent them.
//
// +kubebuilder:validation:Enum=Bearer;HMAC
type SinkAuthType string

const (
	// SinkAuthBearer sends the value of a Secret as a bearer token.
	SinkAuthBearer SinkAuthType = "Bearer"
	// SinkAuthHMAC signs each request with the value of a Secret, which is never sent.
	SinkAuthHMAC SinkAuthType = "HMAC"
)

// SinkAuth says how events show a sink who has sent them.
type SinkAuth struct {
	// Bearer sends the value as "Authorization: Bearer <value>". HMAC sends it never, and signs the event's id, the time and
	// the body with it, as Standard Webhooks do: in the headers webhook-id, webhook-timestamp and webhook-signature.
	// +required
	Type SinkAuthType `json:"type"`

	// Where the value is: a key of a Secret in the Cleaner's namespace.
	// +required
	SecretRef SecretKeyReference `json:"secretRef"`
}

// SecretKeyReference names a key of a Secret in the Cleaner's namespace.
type SecretKeyReference struct {
	// The name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="is not the name of a Secret: write its metadata.name, such as sink-token"
	Name string `json:"name"`

	// The key in its data, such as "token". A newline at the end of the value does not count. The value has at most 8 KiB of
	// printable ASCII without spaces.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[-._a-zA-Z0-9]+$')",message="is not a key of a Secret: write one of its data, such as token"
	Key string `json:"key"`
}
