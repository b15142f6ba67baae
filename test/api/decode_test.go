// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/config/templates"
)

// One Cleaner that Go cannot decode stops the watch of all. So whatever the schema accepts must be decodable: these tests
// take objects with every field, put strange values into them, and decode what the API server would store.

// fullSpecs use every field of each kind; several, because some fields exclude others. TestEveryFieldIsTried sees to that.
func fullSpecs() map[string][]string {
	template := "templateRef: {name: a, parameters: {a: 1}}\nlifecycle: Once\n"
	return map[string][]string{
		"Cleaner":         {fullCommon + fullTargets + fullOfCleaner, template},
		"ClusterCleaner":  {fullCommon + fullClusterTargets + fullBody + fullOfClusterCleaner, template},
		"CleanerTemplate": {fullOfTemplate + indented(fullClusterTargets+fullBody)},
	}
}

// indented is YAML two columns further to the right.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ")
}

const (
	fullCommon = `
lifecycle: Once
mode: DryRun
validation: Warn
suspend: true
schedule: "@daily"
timeZone: UTC
startingDeadline: 1h
ttl: 1d
retry: {period: 10s, monotonic: true}
parameters: {a: 1}
limits: {maxActions: 1, maxPercent: 1, perGroup: 1, per: 1h, actionsPerSecond: 1}
cloudEventSink: http://sink
cloudEventData: "1"
`
	fullTargets = `
targets:
- name: a
  reference: {apiGroup: apps, version: v1, kind: Deployment, name: a, fieldSelector: a=b}
  delete: true
  includeWhenEvaluating: true
  onMissing: Wait
- name: b
  reference:
    version: v1
    kind: Pod
    matchLabels: {a: b}
    matchExpressions: [{key: a, operator: In, values: [b]}]
- name: c
  helmReleases: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}
`
	fullClusterTargets = `
targets:
- name: a
  reference: {apiGroup: apps, version: v1, kind: Deployment, name: a, namespace: a, fieldSelector: a=b}
  delete: true
  includeWhenEvaluating: true
  onMissing: Wait
- name: b
  reference:
    version: v1
    kind: Pod
    matchLabels: {a: b}
    matchExpressions: [{key: a, operator: In, values: [b]}]
    namespaces: [a]
    namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}
    excludeNamespaces: [b]
- name: c
  reference: {kind: "*", hasAnnotation: a/b, excludeKinds: [secrets]}
- name: d
  reference: {kind: "*", hasAnyAnnotation: [a/b, c]}
- name: e
  helmReleases:
    matchLabels: {a: b}
    matchExpressions: [{key: a, operator: In, values: [b]}]
    namespaces: [a]
    namespaceSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b]}]}
    excludeNamespaces: [b]
`
	fullBody = `
variables: [{name: a, expression: "1"}]
conditions: ["true"]
rules:
- name: a
  forEach: b.items
  variables: [{name: b, expression: "1"}]
  when: "true"
  for: 40s
  forKey: '"a"'
  groupBy: '"a"'
  orderBy: [{expression: '"a"', descending: true}]
  keep: 1
  leave: 1
  unless: "false"
  confirm: [{target: b, name: '"a"', namespace: '"a"'}]
  key: '"a"'
  reason: '"a"'
  actions:
  - {report: {}, when: "true", object: item}
  - delete: {gracePeriodSeconds: 1, propagationPolicy: Background}
  - evict: {gracePeriodSeconds: 1}
  - patch: {type: Apply, subresource: status, expression: "{}", force: true}
  - removeFinalizer: {name: a}
  - helmUninstall: {timeout: 90s, disableHooks: true, keepHistory: true}
- name: b
  forEach: b.items
  when: "true"
  keep: "1"
  leave: "1"
  actions: [report: {}]
`
	fullOfCleaner = fullBody + `
helm: {release: a, delete: true, timeout: 5m, disableHooks: true}
serviceAccountName: a
cloudEventSinkAuth: {type: HMAC, secretRef: {name: a, key: a}}
`
	fullOfClusterCleaner = `
serviceAccount: {namespace: a, name: a}
includeProtected: true
cloudEventSinkAuth: {type: Bearer, secretRef: {namespace: a, name: a, key: a}}
`
	fullOfTemplate = `
description: a
parameters:
- {name: a, type: string, default: a, enum: [a], description: a}
- {name: b, type: int, default: 1}
template:
  validation: Ignore`
	fullStatus = `
observedGeneration: 1
conditions: [{type: Ready, status: "True", reason: Valid, message: a, observedGeneration: 1, lastTransitionTime: "2026-01-02T03:04:05Z"}]
resolvedTargets: [Pod shop/a]
resolvedTargetCount: 1
nextScheduledEvaluation: "2026-01-02T03:04:05Z"
lastEvaluation:
  time: "2026-01-02T03:04:05Z"
  verdict: Act
  reason: a
  message: a
  conditions: [{expression: a, value: true, error: a}]
  errors: [{rule: a, key: a, field: a, message: a, count: 1}]
  withheld: [{object: a, because: a}]
lastScheduleTime: "2026-01-02T03:04:05Z"
pending: [{rule: a, key: a, until: "2026-01-02T03:04:05Z"}]
skippedKinds: {count: 2, kinds: [{target: c, kind: secrets, reason: denied}]}
ruleCounts: [{rule: a, items: 9, matched: 8, kept: 1, spared: 1, waiting: 1, protected: 1, shadowed: 1, deferred: 1, errors: 1, acted: 1}]
findings: [{rule: a, count: 1, items: [a], message: a}]
counters: {acted: 1, failed: 1}
lastActions: [{object: a, uid: a, rule: a, action: delete, time: "2026-01-02T03:04:05Z", result: a}]
lastRequestedAt: a
runs: 1
run: &run
  number: 1
  decides: a
  lifecycle: Once
  decidedAt: "2026-01-02T03:04:05Z"
  serviceAccountName: a
  rows: [a]
  helm: {name: a, revision: 1, uid: a, firstDeployed: "2026-01-02T03:04:05.000000Z", digest: a, disableHooks: true, outcome: gone}
  data: "1"
  withheld: [{object: a, because: a}]
  result: Partial
  finishedAt: "2026-01-02T03:04:05Z"
  message: a
  counts: [{resource: a, outcome: kept, count: 1}]
  outcomes: [{row: a, outcome: deleted}]
unsent: *run
recordedAt: "2026-01-02T03:04:05.000000Z"
signature: a
`
)

// place is where a value stands: keys and indexes.
type place []any

func (p place) String() string {
	var b strings.Builder
	for _, step := range p {
		fmt.Fprintf(&b, "/%v", step)
	}
	return b.String()
}

// places are all values inside a value.
func places(v any, at place) []place {
	var out []place
	if len(at) > 0 {
		out = append(out, slices.Clone(at))
	}
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			out = append(out, places(v[k], append(at, k))...)
		}
	case []any:
		for i := range v {
			out = append(out, places(v[i], append(at, i))...)
		}
	}
	return out
}

// put replaces the value at a place. A place that is not there any more is left alone.
func put(v any, at place, value any) any {
	if len(at) == 0 {
		return value
	}
	switch step := at[0].(type) {
	case string:
		if m, ok := v.(map[string]any); ok {
			if _, found := m[step]; found {
				m[step] = put(m[step], at[1:], value)
			}
		}
	case int:
		if l, ok := v.([]any); ok && step < len(l) {
			l[step] = put(l[step], at[1:], value)
		}
	}
	return v
}

// get returns the value at a place, nil if it is not there any more.
func get(v any, at place) any {
	for _, step := range at {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			l, _ := v.([]any)
			if step >= len(l) {
				return nil
			}
			v = l[step]
		}
	}
	return v
}

// strange are JSON values which some Go type cannot take. Those that look like the value they replace come in number.
func strange(replaced any) []string {
	values := []string{
		"null", "true", "false", "0", "1.5", `""`, `"a"`, `"\u0000"`, `"15d"`, `"99999999999w"`, `"1m1h1µs"`, `"http://%zz"`, `"a=b,,c"`, `"Once"`,
		"3000000000", "1e3", "[]", "{}", "[null]", `["a"]`, "[[]]", "[{}]", `{"a":null}`, `{"a":"b"}`, `{"a":1}`, `{"":""}`, `{"a":{"b":[1e400,-0,18446744073709551616]}}`,
		`[{"key":"a","operator":"Exists"}]`,
	}
	switch replaced := replaced.(type) {
	case float64:
		values = append(values,
			"-1", "-0", "1.0", "1e2", "1e-7", "2147483648", "9007199254740991", "9007199254740992", "9223372036854775807",
			"9223372036854775808", "18446744073709551616", "1e19", "1e21", "1e400", "-9223372036854775809",
		)
	case string:
		if strings.HasPrefix(replaced, "2026-") {
			for _, s := range times() {
				values = append(values, strconv.Quote(s))
			}
		}
	}
	return values
}

// times are texts which somebody may take for a time.
func times() []string {
	return []string{
		"2026-01-02T03:04:05Z", "2026-01-02t03:04:05z", "2026-01-02T03:04:05z", "2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05,5Z",
		"2026-01-02T03:04:05.000001Z", "2026-01-02T03:04:05,000001Z", "2026-01-02T03:04:05.0000001Z", "2026-01-02T03:04:05.1234567890123Z",
		"2026-01-02T03:04:05;5Z", "2026-01-02T03:04:05+14:00", "2026-01-02T03:04:05.000001+99:99", "2026-01-02T03:04:05.000001+24:00",
		"2026-01-02T03:04:05.000001-23:59", "2026-01-02T03:04:05+99:99", "2026-01-02T03:04:05-23:59", "2026-01-02T03:04:05+0000",
		"2026-01-02T24:00:00Z", "2026-01-02T23:59:60Z", "2026-01-02T23:59:60.000001Z", "2026-02-30T03:04:05Z", "0000-01-01T00:00:00Z",
		"9999-12-31T23:59:59.999999Z", "10000-01-01T00:00:00Z", "2026-01-02T03:04:05ZT", "2026-01-02T03:04:05Ztt", "2026-01-02T03:04:05Ztx.000001Z",
		"2026-01-02T03:04:05Z\n", "2026-01-02T3:04:05Z", "2026-01-02 03:04:05Z", "2026-01-02T03:04Z", "2026-01-02", "now",
	}
}

// sandbox sends mutated objects of one kind to the API server, which says what it would store.
type sandbox struct {
	kind     kind
	crd      *apiextensionsv1.CustomResourceDefinition
	client   dynamic.ResourceInterface
	existing *unstructured.Unstructured
	accepted int
}

func newSandbox(t *testing.T, k kind) *sandbox {
	t.Helper()
	crd, err := readCRD(k)
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox{kind: k, crd: crd, client: clientOf(t, k)}
	if k == templateKind() {
		return s
	}
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	s.existing, err = s.client.Create(t.Context(), objectOf(t, k, name, fullSpecAlone), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.client.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fullSpecAlone is a spec for the objects that statuses are written to.
const fullSpecAlone = "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Pod}}]}"

// full are the full values of a kind, by the field in which they stand.
func (s *sandbox) full() []full {
	var out []full
	for i, text := range fullSpecs()[s.kind.Kind] {
		out = append(out, full{fmt.Sprintf("spec %d", i), "spec", text})
	}
	if s.existing != nil {
		out = append(out, full{"status", "status", fullStatus})
	}
	return out
}

// full is a value of spec or status, as YAML.
type full struct{ name, field, text string }

// read makes a value of YAML. The value may be changed.
func read(t fataler, text string) any {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v", err)
	}
	return v
}

// fataler is what *testing.T and *rapid.T share.
type fataler interface {
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// try sends an object with this spec or status, and decodes what would be stored.
func (s *sandbox) try(ctx context.Context, t fataler, field string, value any, what string) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	var got *unstructured.Unstructured
	var err error
	if field == "status" {
		u.Object = s.existing.DeepCopy().Object
		u.Object[field] = value
		got, err = s.client.UpdateStatus(ctx, u, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationIgnore})
	} else {
		u.SetGroupVersionKind(s.kind.GroupVersionKind)
		u.SetName("sandbox")
		u.Object[field] = value
		got, err = s.client.Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationIgnore})
	}
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return
	case err != nil:
		t.Fatalf("%s: %v", what, err)
	}
	s.accepted++
	o, err := decode(got)
	if err != nil {
		t.Errorf("%s was accepted, and cannot be decoded: %v", what, err)
		return
	}
	switch o := o.(type) { // none of it must panic
	case v1alpha1.Owner:
		validation.Validate(o.Work(), validation.Options{})
	case *v1alpha1.CleanerTemplate:
		validation.ValidateTemplate(o, templates.Validate(o), validation.Options{})
		_, _ = templates.StandIn(o) // what is wrong with it is known
	}
}

// raw is a JSON value that encoders leave alone.
func raw(text string) any { return json.RawMessage(text) }

func TestEveryFieldIsTried(t *testing.T) {
	for _, k := range kinds() {
		crd, err := readCRD(k)
		if err != nil {
			t.Fatal(err)
		}
		tried := map[string]bool{}
		for field, texts := range map[string][]string{"spec": fullSpecs()[k.Kind], "status": {fullStatus}} {
			for _, text := range texts {
				for _, at := range places(read(t, text), nil) {
					tried[field+names(at)] = true
				}
			}
		}
		for _, field := range []string{"spec", "status"} {
			for name := range schemaNames(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[field], field) {
				if !tried[name] {
					t.Errorf("%s of a %s is never tried", name, k.Kind)
				}
			}
		}
	}
}

func TestWhatIsAcceptedDecodes(t *testing.T) {
	done := map[string]bool{} // of places with the same schema, one is enough
	for _, k := range kinds() {
		t.Run(k.Kind, func(t *testing.T) {
			s := newSandbox(t, k)
			tried := 0
			for _, full := range s.full() {
				before := s.accepted
				s.try(t.Context(), t, full.field, read(t, full.text), "the full "+full.name)
				if s.accepted == before {
					t.Fatalf("the full %s is not accepted: nothing is tried", full.name)
				}
				for _, at := range places(read(t, full.text), nil) {
					replaced := get(read(t, full.text), at)
					schema := fmt.Sprintf("%s %T", s.schema(t, full.field, at), replaced)
					if done[schema] {
						continue
					}
					done[schema] = true
					for _, value := range strange(replaced) {
						tried++
						s.try(t.Context(), t, full.field, put(read(t, full.text), at, raw(value)), fmt.Sprintf("%s in %s%s", value, full.field, at))
					}
				}
			}
			t.Logf("%d of %d were accepted", s.accepted, tried)
			if s.accepted*20 < tried {
				t.Errorf("only %d of %d were accepted: this test says too little", s.accepted, tried)
			}
		})
	}
}

// schema is the schema of a place in a spec or a status, as text. Where it is the same, so is the Go type. A place of
// which it says nothing stands for itself.
func (s *sandbox) schema(t *testing.T, field string, at place) string {
	t.Helper()
	v := s.crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[field]
	for _, step := range at {
		switch _, index := step.(int); {
		case index:
			v = *v.Items.Schema
		case v.AdditionalProperties != nil:
			v = *v.AdditionalProperties.Schema
		default:
			v = v.Properties[fmt.Sprint(step)]
		}
		if v.Type == "" && v.XPreserveUnknownFields != nil {
			return at.String()
		}
	}
	text, err := json.Marshal(undescribed(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// undescribed is a schema without its descriptions.
func undescribed(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	s.Description = ""
	properties := map[string]apiextensionsv1.JSONSchemaProps{}
	for name, property := range s.Properties {
		properties[name] = undescribed(property)
	}
	s.Properties = properties
	if s.Items != nil {
		items := undescribed(*s.Items.Schema)
		s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
	}
	return s
}

func TestRandomSpecsDecode(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.Kind, func(t *testing.T) {
			s := newSandbox(t, k)
			rapid.Check(t, func(rt *rapid.T) {
				value := read(rt, rapid.SampledFrom(fullSpecs()[k.Kind]).Draw(rt, "spec"))
				for _, at := range rapid.SliceOfN(rapid.SampledFrom(places(value, nil)), 1, 4).Draw(rt, "places") {
					drawn := rapid.OneOf(
						rapid.SampledFrom(strange(get(value, at))),
						rapid.Map(rapid.String(), strconv.QuoteToASCII),
						rapid.Map(rapid.Int64(), func(n int64) string { return strconv.FormatInt(n, 10) }),
						rapid.Map(rapid.StringMatching(`([0-9]{1,30}(\.[0-9]{1,30})?(ns|us|ms|s|m|h|d|w)){1,3}`), strconv.Quote),
					).Draw(rt, "value")
					if !json.Valid([]byte(drawn)) { // \x escapes, which JSON does not have
						continue
					}
					value = put(value, at, raw(drawn))
				}
				s.try(t.Context(), rt, "spec", value, "this")
			})
			if s.accepted == 0 {
				t.Error("nothing was accepted: this test says nothing")
			}
		})
	}
}

// names is a place without indexes.
func names(at place) string {
	var b strings.Builder
	for _, step := range at {
		if name, ok := step.(string); ok {
			b.WriteString("/" + name)
		}
	}
	return b.String()
}

// schemaNames are the names of all fields below a schema.
func schemaNames(s apiextensionsv1.JSONSchemaProps, at string) map[string]bool {
	out := map[string]bool{}
	for name, property := range s.Properties {
		out[at+"/"+name] = true
		maps.Copy(out, schemaNames(property, at+"/"+name))
	}
	if s.Items != nil {
		maps.Copy(out, schemaNames(*s.Items.Schema, at))
	}
	return out
}
