// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	if err := decodeYAML([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	return v
}

const everything = `
metadata: {name: everything}
spec:
  parameters:
  - {name: profile, type: string, default: safe, enum: [safe, parity]}
  - {name: owner, type: string}
  - {name: keep, type: int, default: 3}
  - {name: onReadyNode, type: bool, default: true}
  - {name: wait, type: duration, default: 40s}
  - {name: delay, type: duration, default: 0s}
  - {name: names, type: stringList, default: []}
  template:
    targets:
    - {name: pods, reference: {version: v1, kind: Pod}}
    variables:
    - {name: one, expression: "1"}
    conditions: ["true"]
    rules:
    - {name: all, forEach: pods.items, when: "true", actions: [{report: {}}]}
`

func TestExpand(t *testing.T) {
	cases := map[string]struct {
		reason     string
		parameters string
		want       string // parameters as expressions read them
		wantErrs   []string
	}{
		"Defaults": {
			reason:     "What is not given has its default.",
			parameters: `{owner: web}`,
			want:       `{"delay":"0s","keep":3,"names":[],"onReadyNode":true,"owner":"web","profile":"safe","wait":"40s"}`,
		},
		"Given": {
			reason:     "What is given wins; a large integer stays what it is.",
			parameters: `{owner: "", keep: 9007199254740991, onReadyNode: false, wait: 1d, names: [a, b], profile: parity}`,
			want:       `{"delay":"0s","keep":9007199254740991,"names":["a","b"],"onReadyNode":false,"owner":"","profile":"parity","wait":"1d"}`,
		},
		"Null": {
			reason:     "A null is an absent one.",
			parameters: `{owner: web, keep: null}`,
			want:       `{"delay":"0s","keep":3,"names":[],"onReadyNode":true,"owner":"web","profile":"safe","wait":"40s"}`,
		},
		"Missing": {
			reason:     "Without a default a value must be given.",
			parameters: `{owner: null}`,
			wantErrs:   []string{`spec.templateRef.parameters.owner: is missing: the template "everything" has no default for it; write owner: "text"`},
		},
		"Types": {
			reason:     "Each error names the parameter and what to write.",
			parameters: `{owner: 1, keep: "3", onReadyNode: "true", wait: 40, delay: soon, names: [a, 1], profile: fast}`,
			wantErrs: []string{
				`spec.templateRef.parameters.profile: must be one of safe, parity`,
				`spec.templateRef.parameters.owner: must be of type string: write owner: "text"`,
				`spec.templateRef.parameters.keep: must be of type int: write keep: 3`,
				`spec.templateRef.parameters.onReadyNode: must be of type bool: write onReadyNode: true`,
				`spec.templateRef.parameters.wait: must be of type duration: write wait: "40s"`,
				`spec.templateRef.parameters.delay: "soon" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`,
				`spec.templateRef.parameters.names: must be of type stringList: write names: ["a", "b"]`,
			},
		},
		"Fraction": {
			reason:     "A number with a fraction is no integer, nor is one that no int can hold.",
			parameters: `{owner: web, keep: 1.5}`,
			wantErrs:   []string{`spec.templateRef.parameters.keep: must be of type int: write keep: 3`},
		},
		"Large": {
			reason:     "The same.",
			parameters: `{owner: web, keep: 9223372036854775808}`,
			wantErrs:   []string{`spec.templateRef.parameters.keep: must be of type int: write keep: 3`},
		},
		"TwoForms": {
			reason:     "An integer that a float does not hold is stored in two forms.",
			parameters: `{owner: web, keep: -9007199254740992}`,
			wantErrs:   []string{`spec.templateRef.parameters.keep: must be from -9007199254740991 to 9007199254740991, and not -0: write keep: 3`},
		},
		"Unknown": {
			reason:     "A name that is none is told which there are.",
			parameters: `{owner: web, quarantine: 40s, on-ready-node: true}`,
			wantErrs: []string{
				`spec.templateRef.parameters.on-ready-node: is not a parameter of the template "everything": did you mean "onReadyNode"?`,
				`spec.templateRef.parameters.quarantine: is not a parameter of the template "everything": it has profile, owner, keep, onReadyNode, wait, delay, names`,
			},
		},
		"NoObject": {
			reason:     "Parameters are an object.",
			parameters: `[a]`,
			wantErrs:   []string{`spec.templateRef.parameters: must be an object, such as {quarantine: 40s}`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			template := read[v1alpha1.CleanerTemplate](t, everything)
			owner := read[v1alpha1.Cleaner](t, "spec: {lifecycle: Recurring, ttl: 1h, templateRef: {name: everything, parameters: "+tc.parameters+"}}")
			before := []any{template.DeepCopy(), owner.DeepCopy()}

			work, errs := Expand(owner, template)
			var got []string
			for _, err := range errs {
				got = append(got, err.Field+": "+err.Detail)
			}
			if diff := cmp.Diff(tc.wantErrs, got); diff != "" {
				t.Errorf("%s\nerrors (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, []any{template, owner}); diff != "" {
				t.Errorf("the template or the Cleaner was changed (-before +after):\n%s", diff)
			}
			if len(errs) > 0 {
				return
			}
			if string(work.Parameters.Raw) != tc.want {
				t.Errorf("%s\ngot  %s\nwant %s", tc.reason, work.Parameters.Raw, tc.want)
			}
			if work.TemplateRef != nil || work.TTL != "1h" || !work.IsRecurring() {
				t.Errorf("not the Cleaner's own: %+v", work.CommonSpec)
			}
			body := template.Spec.Template
			if diff := cmp.Diff(body, v1alpha1.TemplateBody{Targets: work.Targets, Variables: work.Variables, Conditions: work.Conditions, Rules: work.Rules}); diff != "" {
				t.Errorf("not the template's (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"delay", "wait"}, work.Durations); diff != "" {
				t.Errorf("durations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpandRefuses(t *testing.T) {
	const rules = "rules: [{name: all, forEach: pods.items, when: 'true', actions: [{report: {}}]}]"
	cases := map[string]struct {
		owner    v1alpha1.Owner
		template *v1alpha1.CleanerTemplate
		want     []string
	}{
		"NoTemplate": {
			owner: read[v1alpha1.Cleaner](t, "spec: {templateRef: {name: a}}"),
			want:  []string{`spec.templateRef.name: there is no CleanerTemplate "a": apply it, or write the name of one that exists`},
		},
		"OtherTemplate": {
			owner:    read[v1alpha1.Cleaner](t, "spec: {templateRef: {name: a}}"),
			template: read[v1alpha1.CleanerTemplate](t, "metadata: {name: b}"),
			want:     []string{`spec.templateRef.name: there is no CleanerTemplate "a": apply it, or write the name of one that exists`},
		},
		"Beside": {
			owner: read[v1alpha1.ClusterCleaner](t, "spec: {targets: [{name: b, reference: {version: v1, kind: Pod}}], variables: [{name: c, expression: '1'}], conditions: ['true'], "+
				rules+", parameters: {}, templateRef: {name: a}}"),
			template: read[v1alpha1.CleanerTemplate](t, "metadata: {name: a}"),
			want: []string{
				"spec.targets: templateRef replaces it: remove one of the two",
				"spec.variables: templateRef replaces it: remove one of the two",
				"spec.conditions: templateRef replaces it: remove one of the two",
				"spec.rules: templateRef replaces it: remove one of the two",
				"spec.parameters: templateRef replaces it: remove one of the two",
			},
		},
		"Cluster": {
			owner: read[v1alpha1.Cleaner](t, "spec: {templateRef: {name: a}}"),
			template: read[v1alpha1.CleanerTemplate](t, `{metadata: {name: a}, spec: {template: {targets: [
				{name: here, reference: {version: v1, kind: Pod}},
				{name: one, reference: {version: v1, kind: Pod, name: a, namespace: b}},
				{name: some, reference: {version: v1, kind: Pod, namespaces: [b]}},
				{name: chosen, reference: {version: v1, kind: Pod, namespaceSelector: {}}},
				{name: others, reference: {version: v1, kind: Pod, excludeNamespaces: [b]}},
				{name: own, helmReleases: {}},
				{name: releases, helmReleases: {namespaces: [b]}}]}}}`),
			want: []string{
				`spec.templateRef.name: is a template for ClusterCleaners: its target "one" has namespace, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner`,
				`spec.templateRef.name: is a template for ClusterCleaners: its target "some" has namespaces, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner`,
				`spec.templateRef.name: is a template for ClusterCleaners: its target "chosen" has namespaceSelector, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner`,
				`spec.templateRef.name: is a template for ClusterCleaners: its target "others" has excludeNamespaces, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner`,
				`spec.templateRef.name: is a template for ClusterCleaners: its target "releases" has namespaces, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner`,
			},
		},
		"NoParameters": {
			owner:    read[v1alpha1.Cleaner](t, "spec: {templateRef: {name: a, parameters: {b: 1}}}"),
			template: read[v1alpha1.CleanerTemplate](t, "metadata: {name: a}"),
			want:     []string{`spec.templateRef.parameters.b: is not a parameter: the template "a" has none; remove it`},
		},
		"BadTemplate": {
			owner:    read[v1alpha1.Cleaner](t, "spec: {templateRef: {name: a}}"),
			template: read[v1alpha1.CleanerTemplate](t, "{metadata: {name: a}, spec: {parameters: [{name: b, type: int, default: x}]}}"),
			want:     []string{`spec.templateRef.name: is a template with a mistake: its spec.parameters[0].default must be of type int: write b: 3`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			work, errs := Expand(tc.owner, tc.template)
			if work != nil {
				t.Error("there is work, although there are errors")
			}
			var got []string
			for _, err := range errs {
				got = append(got, err.Field+": "+err.Detail)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// A ClusterCleaner may use any template, and a Cleaner without one is what it is.
func TestExpandOthers(t *testing.T) {
	template := read[v1alpha1.CleanerTemplate](t, "{metadata: {name: a}, spec: {template: {targets: [{name: some, reference: {version: v1, kind: Pod, namespaces: [b]}}]}}}")
	work, errs := Expand(read[v1alpha1.ClusterCleaner](t, "spec: {includeProtected: true, templateRef: {name: a}}"), template)
	if len(errs) > 0 || len(work.Targets) != 1 || !work.Cluster || !work.IncludeProtected || string(work.Parameters.Raw) != "{}" {
		t.Errorf("got %+v, %v", work, errs)
	}
	c := read[v1alpha1.Cleaner](t, "spec: {ttl: 1h, targets: [{name: own, reference: {version: v1, kind: Pod}}], parameters: {wait: 40s}}")
	work, errs = Expand(c, nil)
	if diff := cmp.Diff(c.Work(), work); diff != "" || len(errs) > 0 {
		t.Errorf("%v\n-want, +got:\n%s", errs, diff)
	}
}

// TestExpandReleases has a template with a target of Helm releases, which selects their Secrets in a Cleaner and in a ClusterCleaner.
func TestExpandReleases(t *testing.T) {
	template := read[v1alpha1.CleanerTemplate](t, `{metadata: {name: a}, spec: {template: {targets: [{name: releases, helmReleases: {matchLabels: {name: web}}}]}}}`)
	for _, owner := range []v1alpha1.Owner{
		read[v1alpha1.Cleaner](t, "spec: {templateRef: {name: a}}"), read[v1alpha1.ClusterCleaner](t, "spec: {templateRef: {name: a}}"),
	} {
		work, errs := Expand(owner, template)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		target := &work.Targets[0]
		if r := target.Reference; !target.IsOfReleases() || target.HasOwnReference() || r.Kind != "Secret" || r.FieldSelector != "type=helm.sh/release.v1" || r.MatchLabels["name"] != "web" || r.MatchLabels["owner"] != "helm" {
			t.Errorf("%T: its target is %+v", owner, target)
		}
	}
	if template.Spec.Template.Targets[0].Reference.Kind != "" {
		t.Error("the template was changed")
	}
}

func TestValidate(t *testing.T) {
	template := read[v1alpha1.CleanerTemplate](t, `
spec:
  parameters:
  - {name: a, type: int}
  - {name: a, type: string, enum: [x, z], default: w}
  - {name: b, type: int, enum: [x]}
  - {name: c, type: number}
`)
	var got []string
	for _, err := range Validate(template) {
		got = append(got, err.Field+": "+err.Detail)
	}
	want := []string{
		"spec.parameters[1].name: is also the name of another parameter: rename one of them",
		"spec.parameters[1].default: must be one of x, z",
		"spec.parameters[2].enum: is for parameters of type string, and this one is of type int: remove it",
		"spec.parameters[3].type: is not a type: write string, int, bool, duration or stringList",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestShipped(t *testing.T) {
	all, err := LoadAll()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, template := range all {
		names = append(names, template.Name)
		if errs := Validate(template); len(errs) > 0 {
			t.Errorf("%s: %v", template.Name, errs)
		}
		one, err := Load(template.Name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(template, one); diff != "" {
			t.Errorf("%s is another one by its name:\n%s", template.Name, diff)
		}
		if template.Spec.Description == "" || slices.ContainsFunc(template.Spec.Parameters, func(p v1alpha1.TemplateParameter) bool { return p.Description == "" }) {
			t.Errorf("%s does not say what it or its parameters are for", template.Name)
		}
	}
	if !slices.IsSorted(names) || len(names) == 0 {
		t.Errorf("got %v", names)
	}
	if _, err := Load("pod-gc"); err == nil || !strings.Contains(err.Error(), `no template "pod-gc" is shipped: there are pod-ip-pressure, podgc-`) {
		t.Errorf("got %v", err)
	}
}
