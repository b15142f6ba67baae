// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// pods is a target with which nothing is wrong.
func pods() v1alpha1.ClusterTarget {
	return v1alpha1.ClusterTarget{Name: "pods", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", MatchLabels: map[string]string{"app": "web"}}}, Delete: true}
}

// target is pods with a change.
func target(change func(*v1alpha1.ClusterTarget)) []v1alpha1.ClusterTarget {
	t := pods()
	change(&t)
	return []v1alpha1.ClusterTarget{t}
}

// named is a target that deletes one object of a kind.
func named(group, kind, name string) []v1alpha1.ClusterTarget {
	return target(func(t *v1alpha1.ClusterTarget) {
		t.Reference = v1alpha1.ClusterReference{Reference: v1alpha1.Reference{APIGroup: group, Version: "v1", Kind: kind, Name: name}}
	})
}

// withRule is a spec with a rule that deletes Pods, with a change.
func withRule(change func(*v1alpha1.Rule)) *v1alpha1.Work {
	r := v1alpha1.Rule{Name: "pods", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}
	change(&r)
	target := pods()
	target.Delete = false
	return &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Lifecycle: "Recurring", Rules: []v1alpha1.Rule{r}}, Targets: []v1alpha1.ClusterTarget{target}}
}

// keepComputed has a rule about the oldest Pods keep what an expression gives.
func keepComputed(expression string) func(*v1alpha1.Rule) {
	return func(r *v1alpha1.Rule) {
		r.Keep, r.OrderBy = ptr.To(intstr.FromString(expression)), []v1alpha1.OrderBy{{Expression: "item.metadata.creationTimestamp"}}
	}
}

// withAnyKind is a ClusterCleaner of objects of any kind, except those of some namespaces.
func withAnyKind(except ...string) *v1alpha1.Work {
	spec := withRule(func(*v1alpha1.Rule) {})
	spec.Cluster, spec.Limits = true, &v1alpha1.Limits{MaxActions: 100}
	spec.Targets[0].Reference = v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Kind: v1alpha1.AnyKind}, HasAnnotation: "janitor/ttl", ExcludeNamespaces: except}
	return spec
}

// An action touches the one target that can be told, else all on which it could be carried out.
func TestTouched(t *testing.T) {
	spec := withRule(func(*v1alpha1.Rule) {})
	for _, reference := range []v1alpha1.Reference{{Version: "v1", Kind: "Node"}, {Version: "v1", Kind: "ConfigMap", Name: "a"}, {Version: "v1", Kind: "Secret"}} {
		target := v1alpha1.ClusterTarget{Name: "the" + reference.Kind, Reference: v1alpha1.ClusterReference{Reference: reference}}
		spec.Targets = append(spec.Targets, target)
	}
	spec.Targets[3].IncludeWhenEvaluating = ptr.To(false)
	spec.Targets = append(spec.Targets, v1alpha1.ResolveTargets([]v1alpha1.ClusterTarget{{Name: "releases", HelmReleases: &v1alpha1.ClusterHelmReleases{}}})...)
	do := map[string]v1alpha1.RuleAction{
		"delete": {Delete: &v1alpha1.DeleteAction{}}, "evict": {Evict: &v1alpha1.EvictAction{}}, "patch": {Patch: &v1alpha1.PatchAction{Type: "Merge", Expression: "{}"}},
	}
	for _, tc := range []struct {
		forEach, object, verb string
		cluster               bool
		want                  []int
	}{
		{"pods.items", "", "delete", true, []int{0}},
		{" pods .items ", "", "patch", true, []int{0}},
		{"theNode.items", "", "patch", true, []int{1}},
		{"[theConfigMap]", "", "patch", true, []int{2}},
		{"pods.items", "theConfigMap", "patch", true, []int{2}},
		{"theConfigMap.items", "", "patch", true, []int{0, 1, 2}}, // a field of that object
		{"pods.items.filter(p, true)", "", "patch", true, []int{0, 1, 2}},
		{"pods.items.filter(p, true)", "", "patch", false, []int{0, 2}},    // Nodes are out of reach
		{"pods.items.filter(p, true)", "", "delete", true, []int{0, 2, 4}}, // Nodes are protected
		{"releases.items", "", "delete", true, []int{4}},
		{"pods.items.filter(p, true)", "", "evict", true, []int{0}}, // only Pods
		{"pods.items", "theNode.items[0]", "patch", true, []int{0, 1, 2}},
		{"nobody.items", "", "patch", true, []int{0, 1, 2}},
	} {
		spec.Cluster, spec.Rules[0].ForEach = tc.cluster, tc.forEach
		action := do[tc.verb]
		action.Object = tc.object
		spec.Rules[0].Actions[0] = action
		if diff := cmp.Diff(tc.want, FindActionTargets(spec, 0, 0, Options{})); diff != "" {
			t.Errorf("%s of %q over %q, cluster %t: -want, +got:\n%s", tc.verb, tc.object, tc.forEach, tc.cluster, diff)
		}
	}
}

// TestWhatATemplateMayPatch shows that a rule of a template may look at what the API server judges by who changes it, and
// change other objects; and that the same rule in a Cleaner may change it as a ServiceAccount.
func TestWhatATemplateMayPatch(t *testing.T) {
	for _, tc := range []struct {
		forEach, object string
		declared        []string
		refused         bool
	}{
		{"bindings.items", "", nil, false},
		{"bindings.items.filter(b, true)", "", nil, false},
		{"bindings.items", "", []string{}, true},
		{"bindings.items.filter(b, true)", "", []string{"app"}, true},
		{"pods.items", "bindings.items[0]", []string{}, true},
		{"pods.items", "", []string{}, false},
		{"bindings.items", "map", []string{}, false},
	} {
		spec := withRule(func(r *v1alpha1.Rule) {
			r.ForEach = tc.forEach
			r.Actions = []v1alpha1.RuleAction{{Object: tc.object, Patch: &v1alpha1.PatchAction{Type: "Merge", Expression: "{}"}}}
		})
		for name, reference := range map[string]v1alpha1.Reference{
			"bindings": {APIGroup: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
			"map":      {Version: "v1", Kind: "ConfigMap", Name: "a"},
		} {
			spec.Targets = append(spec.Targets, v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: reference}})
		}
		spec.ServiceAccount, spec.Declared = &v1alpha1.ServiceAccountReference{Name: "bot"}, tc.declared
		errs := Validate(spec, Options{}).Errors()
		if len(errs) > 0 != tc.refused || tc.refused && !strings.Contains(errs[0].String(), "write the rule into the Cleaner itself") {
			t.Errorf("%+v: %v", tc, errs)
		}
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		reason  string
		change  func(*v1alpha1.Work) // of a spec with which nothing is wrong
		options Options
		want    []string
	}{
		"Good": {
			reason: "Nothing is said about a spec with which nothing is wrong.",
			change: func(*v1alpha1.Work) {},
		},
		"GoodWithAll": {
			reason: "Nothing is said about a spec that uses every field.",
			change: func(s *v1alpha1.Work) {
				s.Lifecycle, s.Mode, s.Suspend = "Once", "Enforce", true
				s.TTL = "1d12h"
				s.Retry = &v1alpha1.Retry{Period: "10s", Monotonic: true}
				s.Parameters = &runtime.RawExtension{Raw: []byte(` {"a": 1, "b": null}`)}
				s.Helm = &v1alpha1.Helm{Release: "my-release.v2", Delete: true, Timeout: "1ns", DisableHooks: true}
				s.Targets = append(s.Targets, v1alpha1.ClusterTarget{
					Name: "_Nodes2", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "nodes", FieldSelector: "metadata.name!=a,spec.unschedulable=true"}}, OnMissing: "AsNull",
				})
				s.CloudEventSink = "https://sink.example:65535/a?b=c"
			},
		},

		"Empty": {
			reason: "A Cleaner without targets and helm does nothing.",
			change: func(s *v1alpha1.Work) { *s = v1alpha1.Work{} },
			want:   []string{"Error spec: a Cleaner needs something to clean: add targets, rules, helm or templateRef"},
		},
		"DeletesAtOnce": {
			reason: "Without ttl and conditions everything would be gone before the author can look.",
			change: func(s *v1alpha1.Work) { s.Conditions = nil },
			want:   []string{"Error spec: a Cleaner that deletes needs a ttl, a schedule or conditions: without them, it would delete immediately (write ttl: 0s if you want that)"},
		},
		"UninstallsAtOnce": {
			reason: "The same for a Helm release.",
			change: func(s *v1alpha1.Work) {
				*s = v1alpha1.Work{Helm: &v1alpha1.Helm{Release: "r", Delete: true}}
			},
			want: []string{"Error spec: a Cleaner that deletes needs a ttl, a schedule or conditions: without them, it would delete immediately (write ttl: 0s if you want that)"},
		},
		"DeletesSoon": {
			reason: "A ttl that is over at once may be meant, so it is only a warning.",
			change: func(s *v1alpha1.Work) { s.Conditions, s.TTL = nil, "0s" },
			want:   []string{"Warning spec.ttl: without conditions, everything is deleted 0s after the Cleaner is created: add conditions, or a longer ttl"},
		},
		"DeletesLater": {
			reason: "A ttl is enough.",
			change: func(s *v1alpha1.Work) { s.Conditions, s.TTL = nil, "1m" },
		},
		"DeletesNothing": {
			reason: "A Cleaner that only removes itself is probably not finished.",
			change: func(s *v1alpha1.Work) { s.Targets[0].Delete = false },
			want:   []string{"Warning spec: nothing is deleted except the Cleaner itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink"},
		},
		"Tells": {
			reason: "To tell a sink is something to do.",
			change: func(s *v1alpha1.Work) { s.Targets[0].Delete, s.CloudEventSink = false, "http://sink" },
		},
		"TooLarge": {
			reason: "Spec and status share the room of one object.",
			change: func(s *v1alpha1.Work) {
				s.Parameters = &runtime.RawExtension{Raw: []byte(`{"a":"` + strings.Repeat("x", 256<<10) + `"}`)}
			},
			want: []string{"Error spec: is 262301 bytes long as JSON; at most 262144 are allowed: shorten the expressions or the parameters"},
		},
		"Enums": {
			reason: "The schema may have been bypassed.",
			change: func(s *v1alpha1.Work) {
				s.Lifecycle, s.Mode, s.Targets[0].OnMissing = "Twice", "dry-run", "Null"
			},
			want: []string{
				`Error spec.lifecycle: "Twice" is not a lifecycle: write Once or Recurring`,
				`Error spec.mode: "dry-run" is not a mode: write Enforce or DryRun`,
				`Error spec.targets[0].onMissing: "Null" is not valid: write Wait or AsNull`,
			},
		},

		"Durations": {
			reason: "Durations have units.",
			change: func(s *v1alpha1.Work) {
				s.TTL, s.Retry, s.Helm = "15", &v1alpha1.Retry{Period: "1 h"}, &v1alpha1.Helm{Release: "r", Timeout: "-1s"}
			},
			want: []string{
				`Error spec.ttl: "15" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`,
				`Error spec.retry.period: "1 h" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`,
				`Error spec.helm.timeout: "-1s" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`,
			},
		},
		"LongDuration": {
			reason: "What the schema's pattern allows need not fit.",
			change: func(s *v1alpha1.Work) { s.TTL = "9999999w" },
			want:   []string{`Error spec.ttl: "9999999w" is too long: the longest duration is 292 years (106751d)`},
		},
		"ShortDurations": {
			reason: "A period has a lower bound, and a timeout is more than nothing.",
			change: func(s *v1alpha1.Work) {
				s.Retry, s.Helm = &v1alpha1.Retry{Period: "9.999s"}, &v1alpha1.Helm{Release: "r", Timeout: "0h"}
			},
			want: []string{
				"Error spec.retry.period: 9.999s is too short: write 10s or more",
				"Error spec.helm.timeout: 0h is too short: write more than 0s, or leave it out for 5m",
			},
		},

		"ParametersList": {
			reason: "Parameters have names.",
			change: func(s *v1alpha1.Work) { s.Parameters = &runtime.RawExtension{Raw: []byte(`["a"]`)} },
			want:   []string{"Error spec.parameters: must be an object, such as {team: web, keep: 3}"},
		},
		"ParametersNull": {
			reason: "null is not an object.",
			change: func(s *v1alpha1.Work) { s.Parameters = &runtime.RawExtension{} },
			want:   []string{"Error spec.parameters: must be an object, such as {team: web, keep: 3}"},
		},
		"ParametersBroken": {
			reason: "Neither is what is no JSON.",
			change: func(s *v1alpha1.Work) { s.Parameters = &runtime.RawExtension{Raw: []byte(`{"a"`)} },
			want:   []string{"Error spec.parameters: must be an object, such as {team: web, keep: 3}"},
		},
		"ParametersNumbers": {
			reason: "Numbers that are stored in one form are those that a float holds.",
			change: func(s *v1alpha1.Work) {
				s.Parameters = &runtime.RawExtension{Raw: []byte(`{"a": 9007199254740991, "b": -9007199254740991.0, "c": 0, "d": 0.1, "e": [5e-324, {"f": "9007199254740993"}], "g": null}`)}
			},
		},
		"ParametersNumbersOfTwoForms": {
			reason: "Others are taken for what they are not.",
			change: func(s *v1alpha1.Work) {
				s.Parameters = &runtime.RawExtension{Raw: []byte(`{"a": 9007199254740993, "b": 9007199254740993.0, "c": [0, {"d": -9007199254740992}], "e": 1e300, "f": -0, "g": -0.0, "h": {"i": [[-0e1]]}, "j": 1` + strings.Repeat("0", 24) + `, "k": 1e999}`)}
			},
			want: []string{
				`Error spec.parameters.a: is a number beyond 9007199254740991, and API servers do not keep all of its digits: write it as a string, such as "9007199254740993"`,
				`Error spec.parameters.b: is a number beyond 9007199254740991, and API servers do not keep all of its digits: write it as a string, such as "9007199254740993.0"`,
				`Error spec.parameters.c[1].d: is a number beyond 9007199254740991, and API servers do not keep all of its digits: write it as a string, such as "-9007199254740992"`,
				`Error spec.parameters.e: is a number beyond 9007199254740991, and API servers do not keep all of its digits: write it as a string, such as "1e300"`,
				`Error spec.parameters.f: is a negative zero, which API servers store as another number: write 0`,
				`Error spec.parameters.g: is a negative zero, which API servers store as another number: write 0`,
				`Error spec.parameters.h.i[0][0]: is a negative zero, which API servers store as another number: write 0`,
				`Error spec.parameters.j: is a number beyond 9007199254740991, and API servers do not keep all of its digits: write it as a string, such as "9007199254740993"`,
				`Error spec.parameters.k: is a number beyond 9007199254740991, and API servers do not keep all of its digits: write it as a string, such as "1e999"`,
			},
		},
		"ParametersNumbersOfTemplate": {
			reason: "Those for a template are no others.",
			change: func(s *v1alpha1.Work) {
				*s = v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Lifecycle: "Recurring", TemplateRef: &v1alpha1.TemplateRef{Name: "a", Parameters: &runtime.RawExtension{Raw: []byte(`{"a": 9007199254740992}`)}}}}
			},
			want: []string{`Error spec.templateRef.parameters.a: is a number beyond 9007199254740991, and API servers do not keep all of its digits: write it as a string, such as "9007199254740992"`},
		},

		"ReleaseEmpty": {
			reason: "A release has a name.",
			change: func(s *v1alpha1.Work) { s.Helm = &v1alpha1.Helm{} },
			want:   []string{"Error spec.helm.release: must not be empty: write the name of the release"},
		},
		"ReleaseLong": {
			reason: "Helm allows 53 characters.",
			change: func(s *v1alpha1.Work) { s.Helm = &v1alpha1.Helm{Release: strings.Repeat("a", 54)} },
			want:   []string{"Error spec.helm.release: is longer than the 53 characters that a release's name may have"},
		},
		"ReleaseForm": {
			reason: "The name of a release is the name of an object.",
			change: func(s *v1alpha1.Work) { s.Helm = &v1alpha1.Helm{Release: "ns/Web"} },
			want:   []string{`Error spec.helm.release: "ns/Web" is not the name of a release: write it as helm list shows it, with lower case letters, digits, - and . only`},
		},

		"TargetNames": {
			reason: "Expressions must be able to use the names of targets.",
			change: func(s *v1alpha1.Work) {
				s.Targets = nil
				for _, name := range []string{"", "my-pods", "2pods", "in", "time", "pods", "pods", strings.Repeat("a", 64), "é"} {
					target := pods()
					target.Name = name
					s.Targets = append(s.Targets, target)
				}
			},
			want: []string{
				"Error spec.targets[0].name: must not be empty: write the name by which expressions read the target, such as pods",
				`Error spec.targets[1].name: "my-pods" is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as my_pods`,
				`Error spec.targets[2].name: "2pods" is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as _2pods`,
				`Error spec.targets[3].name: "in" is a reserved word of CEL: choose another name`,
				`Error spec.targets[4].name: "time" is a built-in name of expressions: choose another name`,
				`Error spec.targets[6].name: "pods" is also the name of spec.targets[5]: rename one of them`,
				"Error spec.targets[7].name: is longer than the 63 characters that are allowed",
				`Error spec.targets[8].name: "é" is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as _`,
			},
		},
		"TooMany": {
			reason: "The schema's bounds hold without it.",
			change: func(s *v1alpha1.Work) {
				for i := range 64 {
					target := pods()
					target.Name = fmt.Sprintf("pods%d", i)
					s.Targets = append(s.Targets, target)
					s.Conditions = append(s.Conditions, "true")
				}
			},
			want: []string{
				"Error spec.targets: has 65 entries; at most 64 are allowed: select several objects with one target, or write another Cleaner",
				"Error spec.conditions: has 65 entries; at most 64 are allowed: combine some with &&",
			},
		},
		"TooManyLabelValues": {
			reason: "Each object is compared with them.",
			change: func(s *v1alpha1.Work) {
				values := func(n int) []string {
					out := make([]string, n)
					for i := range out {
						out[i] = fmt.Sprint("v", i)
					}
					return out
				}
				s.Targets = target(func(t *v1alpha1.ClusterTarget) {
					t.Reference.MatchExpressions = []metav1.LabelSelectorRequirement{
						{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: values(600)}, {Key: "b", Operator: metav1.LabelSelectorOpNotIn, Values: values(401)},
					}
				})
			},
			want: []string{
				"Error spec.targets[0].reference.matchExpressions[1].values: raises the number of values of the selector to 1001; at most 1000 are allowed: give the objects a label that they share",
			},
		},
		"ReferenceForm": {
			reason: "Group, version and kind are three fields.",
			change: func(s *v1alpha1.Work) {
				s.Targets = target(func(t *v1alpha1.ClusterTarget) {
					t.Reference = v1alpha1.ClusterReference{Reference: v1alpha1.Reference{APIGroup: "apps/v1", Version: "apps/v1", Kind: "pods/status", Name: "a/b"}}
				})
			},
			want: []string{
				`Error spec.targets[0].reference.apiGroup: "apps/v1" is not an API group: write the group alone, such as apps or serving.knative.dev, and the version in version`,
				`Error spec.targets[0].reference.version: "apps/v1" is not an API version: write the version alone, such as v1, and the group in apiGroup`,
				`Error spec.targets[0].reference.kind: "pods/status" is not a kind: write one kind alone, such as Pod, and its group and version in apiGroup and version`,
				`Error spec.targets[0].reference.name: "a/b" is not the name of one object: write its metadata.name, without namespace or resource`,
			},
		},
		"ReferenceEmpty": {
			reason: "Version and kind are needed.",
			change: func(s *v1alpha1.Work) {
				s.Targets = target(func(t *v1alpha1.ClusterTarget) {
					t.Reference = v1alpha1.ClusterReference{Reference: v1alpha1.Reference{MatchLabels: map[string]string{}}}
				})
			},
			want: []string{
				`Error spec.targets[0].reference.version: "" is not an API version: write the version alone, such as v1, and the group in apiGroup`,
				`Error spec.targets[0].reference.kind: "" is not a kind: write one kind alone, such as Pod, and its group and version in apiGroup and version`,
			},
		},
		"NameAndSelector": {
			reason: "Either one object or many.",
			change: func(s *v1alpha1.Work) { s.Targets[0].Reference.Name = "a" },
			want:   []string{"Error spec.targets[0].reference: a name and label selectors exclude each other: remove name, or matchLabels and matchExpressions"},
		},
		"NameAndFields": {
			reason: "A name and fields can go together.",
			change: func(s *v1alpha1.Work) {
				s.Targets = named("", "Pod", "a")
				s.Targets[0].Reference.FieldSelector = "status.phase=Failed"
			},
		},
		"DeleteAll": {
			reason: "A selector that got lost must not make a deletion wider.",
			change: func(s *v1alpha1.Work) { s.Targets[0].Reference.MatchLabels = nil },
			want:   []string{"Error spec.targets[0].delete: delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind"},
		},
		"DeleteAllEmptyExpressions": {
			reason: "No requirement is no selector.",
			change: func(s *v1alpha1.Work) {
				s.Targets[0].Reference.MatchLabels, s.Targets[0].Reference.MatchExpressions = nil, []metav1.LabelSelectorRequirement{}
			},
			want: []string{"Error spec.targets[0].delete: delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind"},
		},
		"DeleteAllMeant": {
			reason: "matchLabels: {} says that all are meant.",
			change: func(s *v1alpha1.Work) { s.Targets[0].Reference.MatchLabels = map[string]string{} },
		},
		"Labels": {
			reason: "Labels have a form, and findings an order.",
			change: func(s *v1alpha1.Work) {
				s.Targets[0].Reference.MatchLabels = map[string]string{"app": "a b", "a b": "c", "x": "y z"}
			},
			want: []string{
				`Error spec.targets[0].reference.matchLabels: Invalid value: "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
				`Error spec.targets[0].reference.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
				`Error spec.targets[0].reference.matchLabels: Invalid value: "y z": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			},
		},
		"Expressions": {
			reason: "Requirements have an operator, and values where it needs them.",
			change: func(s *v1alpha1.Work) {
				s.Targets[0].Reference.MatchExpressions = []metav1.LabelSelectorRequirement{
					{Key: "a", Operator: "in", Values: []string{"b"}},
					{Key: "a", Operator: "In"},
					{Key: "a", Operator: "Exists", Values: []string{"b"}},
					{Key: "a", Operator: "NotIn", Values: []string{"b"}},
				}
			},
			want: []string{
				`Error spec.targets[0].reference.matchExpressions[0].operator: "in" is not an operator: write In, NotIn, Exists or DoesNotExist`,
				"Error spec.targets[0].reference.matchExpressions[1].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
				"Error spec.targets[0].reference.matchExpressions[2].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
			},
		},
		"Fields": {
			reason: "A field selector that selects nothing would select all.",
			change: func(s *v1alpha1.Work) {
				s.Targets = nil
				for i, text := range []string{"status.phase", ",", "=a", " ", `a=\x`} {
					target := pods()
					target.Name = fmt.Sprintf("pods%d", i)
					target.Reference.FieldSelector = text
					s.Targets = append(s.Targets, target)
				}
			},
			want: []string{
				`Error spec.targets[0].reference.fieldSelector: "status.phase" is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a`,
				`Error spec.targets[1].reference.fieldSelector: "," is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a`,
				`Error spec.targets[2].reference.fieldSelector: "=a" is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a`,
				`Error spec.targets[3].reference.fieldSelector: " " is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a`,
				`Error spec.targets[4].reference.fieldSelector: "a=\\x" is not a field selector: write one such as status.phase=Failed or status.phase!=Running,spec.nodeName=a`,
			},
		},
		"OnMissingOfExcluded": {
			reason: "onMissing is about what expressions see.",
			change: func(s *v1alpha1.Work) {
				s.Targets[0].IncludeWhenEvaluating, s.Targets[0].OnMissing = ptr.To(false), "AsNull"
			},
			want: []string{"Warning spec.targets[0].onMissing: has no effect with includeWhenEvaluating: false, because expressions cannot read the target: remove one of the two"},
		},

		"ClusterScoped": {
			reason: "A Cleaner acts in its namespace, and no flag changes that.",
			change: func(s *v1alpha1.Work) {
				s.Targets = append(named("", "NAMESPACES", "a"), named("storage.k8s.io", "storageclass", "a")...)
				s.Targets[1].Name = "classes"
			},
			options: Options{AllowProtectedKinds: []string{"namespaces"}},
			want: []string{
				"Error spec.targets[0].delete: must be false: namespaces are cluster-scoped, and a Cleaner deletes only in its own namespace",
				"Error spec.targets[1].delete: must be false: storageclasses.storage.k8s.io are cluster-scoped, and a Cleaner deletes only in its own namespace",
			},
		},
		"ClusterScopedAsContext": {
			reason: "Expressions may see what cannot be deleted.",
			change: func(s *v1alpha1.Work) {
				s.Targets = append(s.Targets, named("", "Node", "a")...)
				s.Targets[1].Name, s.Targets[1].Delete = "node", false
			},
		},
		"Protected": {
			reason: "A cluster hangs on some kinds.",
			change: func(s *v1alpha1.Work) {
				s.Targets = append(named("rbac.authorization.k8s.io", "Role", "a"), named("cleaner.vtex.dev", "cleaners", "a")...)
				s.Targets[1].Name = "cleaners"
			},
			want: []string{
				"Error spec.targets[0].delete: must be false: roles.rbac.authorization.k8s.io are protected unless the operator runs with --allow-protected-kinds=roles.rbac.authorization.k8s.io",
				"Error spec.targets[1].delete: must be false: cleaners.cleaner.vtex.dev are never touched by a Cleaner",
			},
		},
		"ProtectedAllowed": {
			reason:  "The administrator may give a kind free.",
			change:  func(s *v1alpha1.Work) { s.Targets = named("rbac.authorization.k8s.io", "Role", "a") },
			options: Options{AllowProtectedKinds: []string{"roles.rbac.authorization.k8s.io"}},
		},
		"SameNameOtherGroup": {
			reason: "A kind of another group is another kind.",
			change: func(s *v1alpha1.Work) { s.Targets = named("example.com", "Role", "a") },
		},
		"ReleaseSecret": {
			reason: "Without its record, a release cannot be uninstalled any more.",
			change: func(s *v1alpha1.Work) { s.Targets = named("", "secret", "sh.helm.release.v1.web.v1") },
			want:   []string{"Error spec.targets[0].delete: must be false: this Secret is the record of a Helm release; to uninstall the release, write helm: {release: NAME, delete: true}"},
		},
		"Secret": {
			reason: "Other Secrets are objects like any.",
			change: func(s *v1alpha1.Work) { s.Targets = named("", "secret", "web") },
		},

		"Rules": {
			reason: "Nothing is said about rules with which nothing is wrong.",
			change: func(s *v1alpha1.Work) { *s = *withRule(func(*v1alpha1.Rule) {}) },
		},
		"RulesDoubtful": {
			reason: "What has no effect, or one that is hardly meant.",
			change: func(s *v1alpha1.Work) {
				*s = *withRule(func(r *v1alpha1.Rule) {
					r.ForKey, r.GroupBy = "item.spec.nodeName", "item.metadata.namespace"
				})
				other := *withRule(func(r *v1alpha1.Rule) {
					r.Name, r.For, r.Keep = "other", "25h", ptr.To(intstr.FromInt32(3))
					r.Actions = []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{GracePeriodSeconds: ptr.To(int64(0))}}}
				})
				s.Rules = append(s.Rules, other.Rules...)
			},
			want: []string{
				"Warning spec.rules[0].forKey: has no effect without for: add it, or remove forKey",
				"Warning spec.rules[0].groupBy: has no effect without keep: add keep, the number of items to keep in each group, or remove groupBy",
				`Warning spec.rules[1].for: 25h is long for a time that starts again when the operator restarts: compare with a time in the object instead, as in when: age(item) > parseDuration("25h"), or with one that another Cleaner has patched into an annotation`,
				"Warning spec.rules[1].keep: keeps the items of pods that are last by namespace and name: add orderBy, such as [{expression: item.metadata.creationTimestamp}] to keep the newest",
				"Warning spec.rules[1].actions[0].delete.gracePeriodSeconds: 0 forces the deletion: the API server forgets a Pod at once, while its containers may still run; remove it unless the Node is gone",
			},
		},
		"Grouped": {
			reason: "Groups have an effect with leave and with limits.perGroup too.",
			change: func(s *v1alpha1.Work) {
				*s = *withRule(func(r *v1alpha1.Rule) {
					r.GroupBy, r.Leave, r.OrderBy = "item.metadata.namespace", ptr.To(intstr.FromInt32(3)), []v1alpha1.OrderBy{{Expression: "item.metadata.name"}}
				})
			},
		},
		"GroupedForLimits": {
			reason: "Without leave, the limit uses the groups.",
			change: func(s *v1alpha1.Work) {
				*s = *withRule(func(r *v1alpha1.Rule) { r.GroupBy = "item.metadata.namespace" })
				s.Limits = &v1alpha1.Limits{PerGroup: 3}
			},
		},
		"LeftByName": {
			reason: "Which items are left is hardly meant.",
			change: func(s *v1alpha1.Work) {
				*s = *withRule(func(r *v1alpha1.Rule) { r.Leave = ptr.To(intstr.FromInt32(3)) })
			},
			want: []string{"Warning spec.rules[0].leave: leaves the items of pods that are last by namespace and name: add orderBy, such as [{expression: item.metadata.creationTimestamp}] to leave the newest"},
		},
		"KeepOfWhatIsLeft": {
			reason: "It becomes less with each action. A limit that is too low for what is due at once would stop the rule for ever.",
			change: func(s *v1alpha1.Work) { *s = *withRule(keepComputed("items.size() / 2")) },
			want: []string{"Warning spec.rules[0].keep: is computed again after each action, of the items that are left, until nothing more matches: write a number, " +
				"or add limits with a maxActions that is never less than the items due at once: while more are due, the operator does nothing"},
		},
		"KeepOfWhatIsLeftLimited": {
			reason: "The limit ends it.",
			change: func(s *v1alpha1.Work) {
				*s = *withRule(keepComputed("items.size() - 1"))
				s.Limits = &v1alpha1.Limits{MaxActions: 1, Per: "12h"}
			},
		},
		"LimitsOverALongTime": {
			reason: "It takes memory, and no operator runs for so long.",
			change: func(s *v1alpha1.Work) {
				*s = *withRule(func(*v1alpha1.Rule) {})
				s.Limits = &v1alpha1.Limits{MaxActions: 1, Per: "31d"}
			},
			want: []string{"Warning spec.limits.per: 31d is long: actions count only since the operator started, and if it has no memory left for them, nothing is done until the oldest no longer count. Write 30d or less"},
		},
		"LimitsOverATime": {
			reason: "As long as anybody needs.",
			change: func(s *v1alpha1.Work) {
				*s = *withRule(func(*v1alpha1.Rule) {})
				s.Limits = &v1alpha1.Limits{MaxActions: 1, Per: "30d"}
			},
		},
		"RecurringAtOnce": {
			reason: "It deletes for ever, and at once.",
			change: func(s *v1alpha1.Work) { s.Lifecycle, s.Conditions = "Recurring", nil },
			want:   []string{"Warning spec: without conditions, each object that a target with delete: true selects is deleted as soon as it appears: add conditions, or a schedule"},
		},
		"RecurringScheduled": {
			reason: "It has its times.",
			change: func(s *v1alpha1.Work) {
				s.Lifecycle, s.Conditions, s.Schedule, s.TimeZone, s.StartingDeadline = "Recurring", nil, "0 4 29 2 *", "Europe/Berlin", "10s"
			},
		},
		"RecurringForNothing": {
			reason: "Nobody would ever notice it.",
			change: func(s *v1alpha1.Work) {
				s.Lifecycle, s.Targets[0].Delete, s.CloudEventSink = "Recurring", false, "http://sink"
			},
			want: []string{"Warning spec: nothing is ever cleaned up: without rules, the operator acts only on targets with delete: true; set it on a target, or add rules"},
		},
		"DryRunTells": {
			reason: "An event says what was done.",
			change: func(s *v1alpha1.Work) { s.Mode, s.CloudEventSink = "DryRun", "http://sink" },
			want:   []string{"Warning spec.cloudEventSink: receives nothing with mode: DryRun: status and Events show what would be done"},
		},
		"RecurringData": {
			reason: "Its events say what was done, batch after batch.",
			change: func(s *v1alpha1.Work) {
				s.Lifecycle, s.CloudEventSink, s.CloudEventData = "Recurring", "http://sink", "1"
			},
			want: []string{"Warning spec.cloudEventData: is ignored with lifecycle: Recurring: remove it"},
		},
		"ClusterUnlimited": {
			reason: "A mistake would show everywhere at once.",
			change: func(s *v1alpha1.Work) { s.Cluster, s.IncludeProtected = true, true },
			want: []string{
				"Warning spec: nothing limits what is done in the whole cluster: try it with mode: DryRun first, or add limits such as {maxActions: 100}, with which nothing is done while more objects are due",
				"Warning spec.includeProtected: namespaces that the cluster depends on, such as kube-system, are cleaned up too: make sure that the targets are meant to select objects there",
			},
		},
		"ClusterLimited": {
			reason: "With a limit there is nothing to say, nor in a dry run.",
			change: func(s *v1alpha1.Work) {
				s.Cluster, s.Limits = true, &v1alpha1.Limits{MaxPercent: 10, Per: "1d", ActionsPerSecond: 20}
				s.Targets = append(s.Targets, s.Targets[0])
				s.Targets[1].Name, s.Targets[1].Reference.Namespaces, s.Targets[1].Reference.NamespaceSelector = "shops", []string{"shop"}, &metav1.LabelSelector{}
			},
		},
		"AnyKindInNamespaces": {
			reason: "To leave a namespace out leaves out all that is in none.",
			change: func(s *v1alpha1.Work) { *s = *withAnyKind("kube-system") },
			want: []string{`Warning spec.targets[0].reference.excludeNamespaces: with kind: "*", a target that selects namespaces has no cluster-scoped objects: ` +
				"to select these too, add a target without excludeNamespaces, or remove it and leave namespaces out in when"},
		},
		"AnyKindInChosenNamespaces": {
			reason: "Namespaces that are named say it themselves.",
			change: func(s *v1alpha1.Work) {
				*s = *withAnyKind("kube-system")
				s.Targets[0].Reference.NamespaceSelector = &metav1.LabelSelector{}
			},
		},
		"AnyKindInTwoTargets": {
			reason: "Another target selects what is in no namespace.",
			change: func(s *v1alpha1.Work) {
				*s = *withAnyKind("kube-system")
				s.Targets = append(s.Targets, withAnyKind().Targets...)
				s.Targets[1].Name = "all"
			},
		},
		"ClusterProtectedNamespace": {
			reason: "It would do nothing.",
			change: func(s *v1alpha1.Work) {
				s.Cluster, s.Mode, s.Targets = true, "DryRun", named("", "ConfigMap", "a")
				s.Targets[0].Reference.Namespace = "kube-system"
			},
			want: []string{"Warning spec.targets[0].delete: nothing is deleted in namespace kube-system, which is protected: add includeProtected: true if you want that"},
		},
		"ClusterScopes": {
			reason: "What the API server says of a kind counts.",
			change: func(s *v1alpha1.Work) {
				s.Cluster, s.Mode, s.Targets = true, "DryRun", append(named("example.com", "Planet", "earth"), named("example.com", "Moon", "luna")...)
				s.Targets[0].Reference.Namespace, s.Targets[1].Name = "sky", "moons"
			},
			options: Options{Served: []ServedKind{{Resource: "planets"}, {Resource: "moons", Namespaced: true}}},
			want: []string{
				"Error spec.targets[0].reference: selects namespaces, but planets.example.com are cluster-scoped: remove namespace, namespaces, namespaceSelector and excludeNamespaces",
				"Error spec.targets[1].reference.namespace: is missing: moons.example.com are namespaced, so write the namespace of the object",
			},
		},
		"NamespacesInACleaner": {
			reason: "Only a forged one can have them.",
			change: func(s *v1alpha1.Work) { s.Targets[0].Reference.Namespaces = []string{"shop"} },
			want:   []string{"Error spec.targets[0].reference: selects namespaces, but a Cleaner can read only its own: write a ClusterCleaner, or remove namespace, namespaces, namespaceSelector and excludeNamespaces"},
		},
		"FromATemplate": {
			reason: "What a template has written is said of the template.",
			change: func(s *v1alpha1.Work) {
				s.Lifecycle, s.TTL = "Once", "15"
				s.Targets = append(s.Targets, named("", "Namespace", "a")...)
				s.Targets[1].Name = "ns"
			},
			options: Options{Template: "shops", Compiled: field.ErrorList{field.Invalid(field.NewPath("spec", "rules").Index(0).Child("when"), "", "must be true or false")}},
			want: []string{
				`Error spec.ttl: "15" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m"`,
				`Error spec.templateRef.name: the template "shops" does not work here: its spec.template.targets[1].delete: must be false: namespaces are cluster-scoped, and a Cleaner deletes only in its own namespace`,
				`Error spec.templateRef.name: the template "shops" does not work here: its spec.template.rules[0].when: must be true or false`,
			},
		},
		"WarningsFromATemplate": {
			reason:  "A mere caution does not say that the template does not work.",
			change:  func(s *v1alpha1.Work) { s.Lifecycle = "Once" },
			options: Options{Template: "shops", Served: []ServedKind{{}}},
			want: []string{
				`Warning spec.templateRef.name: the template "shops" may not do here what is meant: its spec.template.targets[0].reference.kind: the API server does not serve kind "Pod" of v1, and the Cleaner waits until it does: check apiGroup, version and kind with kubectl api-resources`,
			},
		},
		"NotServedAsNull": {
			reason: "A target that is null while its kind is not served does not wait for it.",
			change: func(s *v1alpha1.Work) {
				s.Lifecycle, s.Targets[0].Delete, s.Targets[0].OnMissing = "Once", false, v1alpha1.OnMissingAsNull
			},
			options: Options{Served: []ServedKind{{}}},
			want: []string{
				"Warning spec: nothing is deleted except the Cleaner itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink",
				`Warning spec.targets[0].reference.kind: the API server does not serve kind "Pod" of v1, and pods is null until it does: check apiGroup, version and kind with kubectl api-resources`,
			},
		},
		"TemplateNotThere": {
			reason: "A template that nobody has found yet may do something.",
			change: func(s *v1alpha1.Work) {
				*s = v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Lifecycle: "Once", TemplateRef: &v1alpha1.TemplateRef{Name: "shops"}}}
			},
		},

		"Conditions": {
			reason: "What the compiler says is repeated, but for what was said already; long values are left out.",
			change: func(s *v1alpha1.Work) {
				s.Conditions = []string{"pods.items.size()", " ", strings.Repeat("a", 16385)}
			},
			options: Options{Compiled: field.ErrorList{
				field.Invalid(field.NewPath("spec", "conditions").Index(0), "pods.items.size()", "must be bool, is int"),
				field.Invalid(field.NewPath("spec", "conditions").Index(1), " ", "syntax error"),
				field.Required(field.NewPath("spec", "other"), ""),
			}},
			want: []string{
				"Error spec.conditions[1]: is empty: write an expression, or remove it",
				"Error spec.conditions[2]: is 16385 characters long; at most 16384 are allowed",
				"Error spec.conditions[0]: must be bool, is int",
				"Error spec.other: Required value",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}, Targets: []v1alpha1.ClusterTarget{pods()}}
			tc.change(c)
			before := c.DeepCopy()

			var got []string
			for _, f := range Validate(c, tc.options) {
				got = append(got, string(f.Severity)+" "+f.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, c); diff != "" {
				t.Errorf("the Cleaner was changed\n-before, +after:\n%s", diff)
			}
		})
	}
}

func TestSink(t *testing.T) {
	const (
		noURL  = "is not a URL: write one such as http://registry-cleaner.default.svc/events"
		scheme = "must be a URL that starts with http:// or https://"
		noHost = "names no host: write a URL such as http://registry-cleaner.default.svc/events"
		user   = "must not contain a user name or password: everyone who can read the Cleaner could read them"
		frag   = "must not contain a fragment (# and what follows): it is never sent"
	)
	cases := map[string]string{
		"":                                    "",
		"http://my-sink":                      "",
		"https://sink.example:8443/a?b=c":     "",
		"http://[::1]:80/":                    "",
		"http://sink:":                        "",
		"my-sink":                             scheme,
		"ftp://sink":                          scheme,
		"//sink":                              scheme,
		"http:sink":                           noHost,
		"http://":                             noHost,
		"http://:80":                          noHost,
		"http:///path":                        noHost,
		"http://sink:0":                       "has port 0: write one from 1 to 65535",
		"http://sink:65536":                   "has port 65536: write one from 1 to 65535",
		"http://sink:http":                    noURL,
		"http://si nk":                        noURL,
		"http://sink\n":                       noURL,
		"http://user:secret@sink":             user,
		"http://user@sink":                    user,
		"http://:secret@si nk":                noURL,
		"http://sink/#a":                      frag,
		"http://sink/#":                       frag,
		"http://" + strings.Repeat("a", 2048): "is longer than the 2048 characters that are allowed",
	}
	for sink, message := range cases {
		t.Run(sink[:min(len(sink), 40)], func(t *testing.T) {
			c := &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}, CloudEventSink: sink}, Targets: []v1alpha1.ClusterTarget{pods()}}
			var want Findings
			if message != "" {
				want = Findings{{Path: "spec.cloudEventSink", Message: message, Severity: Error}}
			}
			got := Validate(c, Options{})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
			for _, f := range got {
				if strings.Contains(f.Message, "secret") {
					t.Errorf("%q gives a password away", f.Message)
				}
			}
		})
	}
}

// TestSinkAuth is what the schema cannot say, or does not say of what is no manifest.
func TestSinkAuth(t *testing.T) {
	ref := func(namespace, name, key string) v1alpha1.ClusterSecretKeyReference {
		return v1alpha1.ClusterSecretKeyReference{Namespace: namespace, SecretKeyReference: v1alpha1.SecretKeyReference{Name: name, Key: key}}
	}
	const (
		https = "https://sink.example"
		plain = "Warning spec.cloudEventSink: the token of cloudEventSinkAuth is sent as plain text: write a URL that starts with https://, or type: HMAC"
		own   = "cleaner-system"
	)
	for name, tc := range map[string]struct {
		sink      string
		kind      v1alpha1.SinkAuthType
		ref       v1alpha1.ClusterSecretKeyReference
		cluster   bool
		namespace string
		want      []string
	}{
		"Bearer":       {sink: https, kind: "Bearer", ref: ref("", "sink-token", "my.Key_-1"), namespace: "shop"},
		"HMAC":         {sink: "http://sink.example", kind: "HMAC", ref: ref("", "sink-token", "key"), namespace: "shop"},
		"Cluster":      {sink: https, kind: "HMAC", ref: ref("ops", "sink-token", "key"), cluster: true},
		"PlainText":    {sink: "http://sink.example", kind: "Bearer", ref: ref("", "sink-token", "key"), want: []string{plain}},
		"PlainTextTLS": {sink: "HTTP://sink.example", kind: "Bearer", ref: ref("", "sink-token", "key"), want: []string{plain}},
		"WithoutSink": {kind: "Bearer", ref: ref("", "sink-token", "key"),
			want: []string{"Error spec.cloudEventSinkAuth: requires cloudEventSink: add it, or remove this field"}},
		"Type": {sink: https, kind: "Basic", ref: ref("", "sink-token", "key"),
			want: []string{`Error spec.cloudEventSinkAuth.type: "Basic" is not a type: write Bearer or HMAC`}},
		"Name": {sink: https, kind: "HMAC", ref: ref("", "ops/sink", "key"),
			want: []string{`Error spec.cloudEventSinkAuth.secretRef.name: "ops/sink" is not the name of a Secret: write its metadata.name, such as sink-token`}},
		"Key": {sink: https, kind: "HMAC", ref: ref("", "sink-token", "../key"),
			want: []string{`Error spec.cloudEventSinkAuth.secretRef.key: "../key" is not a key of a Secret: write a key in its data, such as token`}},
		"NoNamespace": {sink: https, kind: "HMAC", ref: ref("", "sink-token", "key"), cluster: true,
			want: []string{"Error spec.cloudEventSinkAuth.secretRef.namespace: must not be empty: write the namespace of the Secret"}},
		"OperatorNamespace": {sink: https, kind: "HMAC", ref: ref(own, "sink-token", "key"), cluster: true,
			want: []string{`Error spec.cloudEventSinkAuth.secretRef.namespace: "cleaner-system" is the namespace of the operator, and none of its Secrets can be used: put the Secret into another namespace`}},
		"CleanerThere": {sink: https, kind: "HMAC", ref: ref("", "sink-token", "key"), namespace: own,
			want: []string{`Error spec.cloudEventSinkAuth.secretRef: no Secret of "cleaner-system" can be used, because it is the namespace of the operator: put the Cleaner and the Secret into another namespace`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &v1alpha1.Work{
				CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}, CloudEventSink: tc.sink, Limits: &v1alpha1.Limits{MaxActions: 1}},
				Targets:    []v1alpha1.ClusterTarget{pods()}, Cluster: tc.cluster, CloudEventSinkAuth: &v1alpha1.ClusterSinkAuth{Type: tc.kind, SecretRef: tc.ref},
			}
			var got []string
			for _, f := range Validate(w, Options{Namespace: tc.namespace, OperatorNamespace: own}) {
				got = append(got, fmt.Sprintf("%s %s", f.Severity, f))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func TestFindings(t *testing.T) {
	all := Findings{{Path: "a", Message: "b", Severity: Error}, {Path: "c", Message: "d", Severity: Warning}}
	if diff := cmp.Diff(all[:1], all.Errors()); diff != "" {
		t.Errorf("Errors: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(all[1:], all.Warnings()); diff != "" {
		t.Errorf("Warnings: -want, +got:\n%s", diff)
	}
	if got := all[0].String(); got != "a: b" {
		t.Errorf("String: %q", got)
	}
}
