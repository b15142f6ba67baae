// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha"
	"github.com/vtex/cleaner/api/v1alpha1"
)

func TestAccepted(t *testing.T) {
	cases := map[string]struct{ reason, spec string }{
		"TTLOnly": {
			reason: "Objects by name, and a ttl.",
			spec:   `{ttl: 1d, targets: [{name: web, reference: {version: v1, kind: ConfigMap, name: web}, delete: true}]}`,
		},
		"AtOnce": {
			reason: "To delete at once must be said.",
			spec:   `{ttl: 0s, targets: [{name: web, reference: {version: v1, kind: ConfigMap, name: web}, delete: true}]}`,
		},
		"ConditionsOnly": {
			reason: "Conditions stand for a ttl.",
			spec:   `{conditions: ["true"], targets: [{name: web, reference: {version: v1, kind: ConfigMap, name: web}, delete: true}]}`,
		},
		"HelmOnly": {
			reason: "A release needs no targets.",
			spec:   `{ttl: 1h30m, helm: {release: my.release-1, delete: true, timeout: 90s, disableHooks: true}}`,
		},
		"AllOfAKind": {
			reason: "matchLabels: {} is a selector.",
			spec:   `{ttl: 1h, targets: [{name: all, reference: {version: v1, kind: Pod, matchLabels: {}}, delete: true}]}`,
		},
		"Fields": {
			reason: "A field selector is one, too.",
			spec:   `{ttl: 1h, targets: [{name: failed, reference: {version: v1, kind: pods, fieldSelector: status.phase=Failed}, delete: true}]}`,
		},
		"Expressions": {
			reason: "All four operators.",
			spec: `{ttl: 1h, targets: [{name: some, reference: {apiGroup: apps, version: v1, kind: DEPLOYMENT, matchExpressions: [
				{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [c]}, {key: a, operator: Exists}, {key: d, operator: DoesNotExist, values: []}]}, delete: true}]}`,
		},
		"Context": {
			reason: "What is not deleted needs no selector.",
			spec:   `{targets: [{name: nodes, reference: {version: v1, kind: Node}, onMissing: AsNull}], cloudEventSink: "https://sink/a?b"}`,
		},
		"OddName": {
			reason: "RBAC objects have such names.",
			spec:   `{targets: [{name: r, reference: {apiGroup: rbac.authorization.k8s.io, version: v1, kind: Role, name: "system:a"}}]}`,
		},
		"Parameters": {
			reason: "Parameters are anything below an object.",
			spec:   `{parameters: {a: x, b: [x, {c: null}], d: 1.5}, targets: [{name: nodes, reference: {version: v1, kind: Node}}]}`,
		},
		"Switches": {
			reason: "What may be said explicitly.",
			spec:   `{lifecycle: Once, mode: Enforce, suspend: false, ttl: 2w, retry: {period: 10s, monotonic: false}, targets: [{name: nodes, reference: {apiGroup: "", version: v1, kind: Node}, delete: false, includeWhenEvaluating: true, onMissing: Wait}]}`,
		},
	}
	for name, tc := range cases {
		for _, version := range versions() {
			t.Run(name+"/"+version.Version, func(t *testing.T) { accepted(t, cleanerKind(version), tc.reason, tc.spec) })
		}
	}
}

func TestRefused(t *testing.T) {
	target := func(fields string) string { return "{ttl: 1h, targets: [{name: pods, " + fields + "}]}" }
	pods := func(fields string) string { return target("reference: {version: v1, kind: Pod}, " + fields) }
	reference := func(fields string) string { return target("reference: {" + fields + "}") }
	named := func(names ...string) string {
		targets := make([]string, 0, len(names))
		for _, name := range names {
			targets = append(targets, fmt.Sprintf("{name: %q, reference: {version: v1, kind: Pod}}", name))
		}
		return "{ttl: 1h, targets: [" + strings.Join(targets, ", ") + "]}"
	}
	cases := map[string]struct {
		spec string
		want []string // each in the message
	}{
		"Empty":            {`{}`, []string{"spec: Invalid value:", "a Cleaner needs something to clean: add targets, rules, helm or templateRef"}},
		"NoTargets":        {`{ttl: 1h, targets: []}`, []string{"a Cleaner needs something to clean: add targets, rules, helm or templateRef"}},
		"DeletesAtOnce":    {`{targets: [{name: a, reference: {version: v1, kind: Pod, name: a}, delete: true}]}`, []string{"a Cleaner that deletes needs a ttl, a schedule or conditions: without them, it would delete immediately (write ttl: 0s if you want that)"}},
		"UninstallsAtOnce": {`{conditions: [], helm: {release: a, delete: true}}`, []string{"a Cleaner that deletes needs a ttl, a schedule or conditions"}},

		"TTLWithoutUnit":  {`{ttl: "15", helm: {release: a}}`, []string{"spec.ttl: Invalid value: \"15\": spec.ttl in body should match"}},
		"TTLNumber":       {`{ttl: 15, helm: {release: a}}`, []string{"spec.ttl: Invalid value: \"integer\""}},
		"TTLEmpty":        {`{ttl: "", helm: {release: a}}`, []string{"spec.ttl: Invalid value: \"\""}},
		"PeriodNegative":  {`{retry: {period: -5h}, helm: {release: a}}`, []string{"spec.retry.period: Invalid value: \"-5h\""}},
		"TimeoutForm":     {`{helm: {release: a, timeout: 5 m}}`, []string{"spec.helm.timeout: Invalid value: \"5 m\""}},
		"Lifecycle":       {`{lifecycle: Twice, helm: {release: a}}`, []string{"spec.lifecycle: Unsupported value: \"Twice\": supported values: \"Once\", \"Recurring\""}},
		"Validation":      {`{validation: strict, helm: {release: a}}`, []string{"spec.validation: Unsupported value: \"strict\": supported values: \"Strict\", \"Warn\", \"Ignore\""}},
		"Mode":            {`{mode: dryrun, helm: {release: a}}`, []string{"spec.mode: Unsupported value: \"dryrun\": supported values: \"Enforce\", \"DryRun\""}},
		"ParametersList":  {`{parameters: [a], helm: {release: a}}`, []string{"spec.parameters: Invalid value: \"array\""}},
		"SinkScheme":      {`{cloudEventSink: my-sink, helm: {release: a}}`, []string{"spec.cloudEventSink: Invalid value:", "must be a URL that starts with http:// or https://"}},
		"SinkEmpty":       {`{cloudEventSink: "", helm: {release: a}}`, []string{"must be a URL that starts with http:// or https://"}},
		"AuthAlone":       {`{cloudEventSinkAuth: {type: HMAC, secretRef: {name: a, key: b}}, helm: {release: a}}`, []string{"cloudEventSinkAuth requires cloudEventSink: add it, or remove cloudEventSinkAuth"}},
		"AuthType":        {`{cloudEventSink: "http://a", cloudEventSinkAuth: {type: Basic, secretRef: {name: a, key: b}}, helm: {release: a}}`, []string{`spec.cloudEventSinkAuth.type: Unsupported value: "Basic": supported values: "Bearer", "HMAC"`}},
		"AuthNothing":     {`{cloudEventSink: "http://a", cloudEventSinkAuth: {}, helm: {release: a}}`, []string{"spec.cloudEventSinkAuth.type: Required value", "spec.cloudEventSinkAuth.secretRef: Required value"}},
		"AuthNoKey":       {`{cloudEventSink: "http://a", cloudEventSinkAuth: {type: HMAC, secretRef: {name: a}}, helm: {release: a}}`, []string{"spec.cloudEventSinkAuth.secretRef.key: Required value"}},
		"AuthName":        {`{cloudEventSink: "http://a", cloudEventSinkAuth: {type: HMAC, secretRef: {name: a/b, key: b}}, helm: {release: a}}`, []string{"spec.cloudEventSinkAuth.secretRef.name: Invalid value: \"a/b\": is not the name of a Secret: write its metadata.name, such as sink-token"}},
		"AuthKey":         {`{cloudEventSink: "http://a", cloudEventSinkAuth: {type: HMAC, secretRef: {name: a, key: a/b}}, helm: {release: a}}`, []string{"spec.cloudEventSinkAuth.secretRef.key: Invalid value: \"a/b\": is not a key of a Secret: write a key in its data, such as token"}},
		"AuthLong":        {`{cloudEventSink: "http://a", cloudEventSinkAuth: {type: HMAC, secretRef: {name: a, key: ` + strings.Repeat("a", 254) + `}}, helm: {release: a}}`, []string{"spec.cloudEventSinkAuth.secretRef.key: Too long: may not be more than 253"}},
		"AuthElsewhere":   {`{cloudEventSink: "http://a", cloudEventSinkAuth: {type: HMAC, secretRef: {namespace: a, name: a, key: b}}, helm: {release: a}}`, []string{`unknown field "spec.cloudEventSinkAuth.secretRef.namespace"`}},
		"SinkLong":        {`{cloudEventSink: "http://` + strings.Repeat("a", 2048) + `", helm: {release: a}}`, []string{"spec.cloudEventSink: Too long: may not be more than 2048"}},
		"ConditionBool":   {`{conditions: [true], helm: {release: a}}`, []string{"spec.conditions[0]: Invalid value: \"boolean\""}},
		"ConditionEmpty":  {`{conditions: [""], helm: {release: a}}`, []string{"spec.conditions[0]: Invalid value: \"\": spec.conditions[0] in body should be at least 1 chars long"}},
		"ConditionLong":   {`{conditions: ["` + strings.Repeat("a", 16385) + `"], helm: {release: a}}`, []string{"spec.conditions[0]: Too long: may not be more than 16384"}},
		"ConditionsMany":  {`{conditions: [` + strings.Repeat("a,", 65) + `], helm: {release: a}}`, []string{"spec.conditions: Too many: 65: must have at most 64 items"}},
		"ReleaseMissing":  {`{helm: {delete: false}}`, []string{"spec.helm.release: Required value"}},
		"ReleaseForm":     {`{helm: {release: a/b}}`, []string{"spec.helm.release: Invalid value: \"a/b\""}},
		"ReleaseLong":     {`{helm: {release: ` + strings.Repeat("a", 54) + `}}`, []string{"spec.helm.release: Too long: may not be more than 53"}},
		"UnknownField":    {`{tll: 1h, helm: {release: a}}`, []string{"unknown field \"spec.tll\""}},
		"UnknownSelector": {target("reference: {version: v1, kind: Pod, matchLabel: {a: b}}, delete: true"), []string{"unknown field \"spec.targets[0].reference.matchLabel\""}},

		"NameMissing":  {`{targets: [{reference: {version: v1, kind: Pod}}]}`, []string{"spec.targets[0].name: Required value"}},
		"NameEmpty":    {named(""), []string{"spec.targets[0].name: Invalid value: \"\": spec.targets[0].name in body should be at least 1 chars long"}},
		"NameForm":     {named("my-pods"), []string{"spec.targets[0].name: Invalid value: \"my-pods\": is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as web_pods"}},
		"NameDigit":    {named("1a"), []string{"is not a name that expressions can use"}},
		"NameTrailing": {named("a\n"), []string{"is not a name that expressions can use"}},
		"NameLong":     {named(strings.Repeat("a", 64)), []string{"spec.targets[0].name: Too long: may not be more than 63"}},
		"NameTwice":    {named("a", "b", "a"), []string{"spec.targets: Invalid value:", "two targets have the same name: rename one of them"}},
		"Reserved":     {named("namespace"), []string{"spec.targets[0].name: Invalid value: \"namespace\": is a reserved word of CEL: choose another name"}},
		"Taken":        {named("params"), []string{"is a built-in name of expressions (as time, params, variables, item, items, object and key are): choose another name"}},
		"TooMany":      {named(strings.Split(strings.Repeat("a ", 64)+"a", " ")...), []string{"spec.targets: Too many: 65: must have at most 64 items"}},

		"ReferenceMissing": {`{targets: [{name: a}]}`, []string{"spec.targets[0]: Invalid value:", "a target needs exactly one of reference and helmReleases"}},
		"VersionMissing":   {reference("kind: Pod"), []string{"spec.targets[0].reference: Invalid value:", "version is missing: write the API version of the kind, such as v1"}},
		"VersionWithGroup": {reference("version: apps/v1, kind: Deployment"), []string{"spec.targets[0].reference.version: Invalid value: \"apps/v1\": is not an API version: write the version alone, such as v1, and the group in apiGroup"}},
		"GroupWithVersion": {reference("apiGroup: apps/v1, version: v1, kind: Deployment"), []string{"spec.targets[0].reference.apiGroup: Invalid value: \"apps/v1\": is not an API group: write the group alone, such as apps or serving.knative.dev, and the version in version"}},
		"KindMissing":      {reference("version: v1"), []string{"spec.targets[0].reference.kind: Required value"}},
		"KindStar":         {reference(`kind: "*", matchLabels: {a: b}`), []string{"only a ClusterCleaner selects objects of kind: '*'"}},
		"Subresource":      {reference("version: v1, kind: pods/status"), []string{"is not a kind: write one kind alone"}},
		"NameWithSlash":    {reference("version: v1, kind: Pod, name: ns/a"), []string{"spec.targets[0].reference.name: Invalid value: \"ns/a\": is not the name of one object: write its metadata.name, without namespace or resource"}},
		"NameDots":         {reference(`version: v1, kind: Pod, name: ".."`), []string{"is not the name of one object"}},
		"ObjectNameEmpty":  {reference(`version: v1, kind: Pod, name: ""`), []string{"spec.targets[0].reference.name: Invalid value: \"\""}},
		"NameAndLabels":    {reference("version: v1, kind: Pod, name: a, matchLabels: {}"), []string{"spec.targets[0].reference: Invalid value:", "a name and label selectors exclude each other: remove name, or matchLabels and matchExpressions"}},
		"NameAndExpr":      {reference("version: v1, kind: Pod, name: a, matchExpressions: [{key: a, operator: Exists}]"), []string{"a name and label selectors exclude each other"}},
		"LabelNumber":      {reference("version: v1, kind: Pod, matchLabels: {a: 1}"), []string{"spec.targets[0].reference.matchLabels.a: Invalid value: \"integer\""}},
		"ExprEmpty":        {reference("version: v1, kind: Pod, matchExpressions: []"), []string{"spec.targets[0].reference.matchExpressions: Invalid value: 0: spec.targets[0].reference.matchExpressions in body should have at least 1 items"}},
		"Operator":         {reference("version: v1, kind: Pod, matchExpressions: [{key: a, operator: in, values: [b]}]"), []string{"spec.targets[0].reference.matchExpressions: Invalid value:", "operator must be In, NotIn, Exists or DoesNotExist"}},
		"OperatorNoValues": {reference("version: v1, kind: Pod, matchExpressions: [{key: a, operator: In}]"), []string{"operators In and NotIn need values; Exists and DoesNotExist must not have any"}},
		"OperatorValues":   {reference("version: v1, kind: Pod, matchExpressions: [{key: a, operator: Exists, values: [b]}]"), []string{"operators In and NotIn need values; Exists and DoesNotExist must not have any"}},
		"FieldsEmpty":      {reference(`version: v1, kind: Pod, fieldSelector: ""`), []string{"spec.targets[0].reference.fieldSelector: Invalid value: \"\""}},
		"Namespace":        {reference("version: v1, kind: Pod, namespace: other"), []string{"unknown field \"spec.targets[0].reference.namespace\""}},
		"DeleteAll":        {pods("delete: true"), []string{"spec.targets[0]: Invalid value:", "delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference; write matchLabels: {} to delete all objects of the kind"}},
		"DeleteNull":       {target("reference: {version: v1, kind: Pod, matchLabels: null}, delete: true"), []string{"delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference"}},
		"DeleteString":     {pods(`delete: "true"`), []string{"spec.targets[0].delete: Invalid value: \"string\""}},
		"OnMissing":        {pods("onMissing: Nil"), []string{"spec.targets[0].onMissing: Unsupported value: \"Nil\": supported values: \"Wait\", \"AsNull\""}},
	}
	for name, tc := range cases {
		for _, version := range versions() {
			t.Run(name+"/"+version.Version, func(t *testing.T) { refused(t, cleanerKind(version), tc.spec, tc.want) })
		}
	}
}

// refused has the API server refuse an object with this spec, in these words.
func refused(t *testing.T, k kind, spec string, want []string) {
	t.Helper()
	_, err := clientOf(t, k).Create(t.Context(), objectOf(t, k, "refused", spec),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range want {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in %q", want, cut(err.Error()))
		}
	}
}

func cut(s string) string { return s[:min(len(s), 1000)] }

// A selector that is mistyped and pruned, as old clients allow, leaves a target without one: it must not delete all.
func TestPrunedSelectorIsRefused(t *testing.T) {
	_, err := cleaners(t, v1alpha1.GroupVersion).Create(t.Context(),
		object(t, v1alpha1.GroupVersion, "pruned", "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Pod, matchlabels: {a: b}}, delete: true}]}"),
		metav1.CreateOptions{FieldValidation: metav1.FieldValidationIgnore})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "delete: true needs a name") {
		t.Errorf("got %v", err)
	}
}

func TestStatusIsASubresource(t *testing.T) {
	u := object(t, v1alpha.GroupVersion, "with-status", "{ttl: 1h, helm: {release: a}}")
	u.Object["status"] = map[string]any{"runs": int64(1)}
	client := cleaners(t, v1alpha.GroupVersion)
	got, err := client.Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if _, found := got.Object["status"]; found {
		t.Errorf("whoever may write Cleaners could write their status: %v", got.Object["status"])
	}
}

// The manifest of the proposal applies as it is, and is the same Cleaner in the version that the operator reads.
func TestProposal(t *testing.T) {
	text, err := os.ReadFile("../../config/samples/cleaner_v1alpha_preview.yaml")
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	if u.GroupVersionKind() != v1alpha.GroupVersion.WithKind("Cleaner") {
		t.Errorf("the manifest is a %s", u.GroupVersionKind())
	}
	u.SetNamespace(namespace)
	if _, err := cleaners(t, v1alpha.GroupVersion).Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
	client := cleaners(t, v1alpha1.GroupVersion)
	stored, err := client.Get(t.Context(), "sfj-commit--account", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Delete(t.Context(), stored.GetName(), metav1.DeleteOptions{}); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	got := decodeCleaner(t, stored)
	want := v1alpha1.CleanerSpec{
		CommonSpec: v1alpha1.CommonSpec{
			TTL:            "360h",
			Retry:          &v1alpha1.Retry{Period: "5h", Monotonic: true},
			CloudEventSink: "http://my-sink",
			Conditions: []string{`!revisions.items.exists(r,
  r.metadata.annotations["serving.knative.dev/routes"].split(",")
    .exists(route, !route.startsWith("sfj-") && !route.startsWith("preview-"))
  || r.status.conditions.filter(c, c.type == "Active")
    .exists(c, c.status == "True" || time - timestamp(c.lastTransitionTime) < duration("360h")))
`},
		},
		Helm: &v1alpha1.Helm{Release: "sfj-commit--account", Delete: true},
		Targets: []v1alpha1.Target{
			{
				Name:                  "nginx",
				Reference:             v1alpha1.Reference{APIGroup: "serving.knative.dev", Version: "v1", Kind: "service", Name: "sfj-commit--account"},
				IncludeWhenEvaluating: ptr.To(false),
			},
			{
				Name:                  "nodejs",
				Reference:             v1alpha1.Reference{APIGroup: "serving.knative.dev", Version: "v1", Kind: "service", Name: "sfj-commit--account-node"},
				IncludeWhenEvaluating: ptr.To(false),
			},
			{
				Name:                  "revisions",
				Reference:             v1alpha1.Reference{APIGroup: "serving.knative.dev", Version: "v1", Kind: "revision", MatchLabels: map[string]string{"vtex.io/proxy": "nginx-proxy-id"}},
				IncludeWhenEvaluating: ptr.To(true),
			},
		},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// What Go clients write back is what they read: {} and false survive.
func TestRoundTrip(t *testing.T) {
	u := object(t, v1alpha1.GroupVersion, "round-trip",
		"{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Pod, matchLabels: {}}, delete: true, includeWhenEvaluating: false}]}")
	text, err := yaml.Marshal(decodeCleaner(t, u).Spec)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(u.Object["spec"], object(t, v1alpha1.GroupVersion, "", string(text)).Object["spec"]); diff != "" {
		t.Errorf("-read, +written:\n%s", diff)
	}
}
