// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podsAnd are the targets of the specs below, and what a spec with rules has to say.
const podsAnd = "targets: [{name: pods, reference: {version: v1, kind: Pod}}], lifecycle: Recurring, "

// withRule is a spec with a rule that has these fields too.
func withRule(fields string) string {
	return "{" + podsAnd + `rules: [{name: a, forEach: pods.items, when: "true", actions: [report: {}], ` + fields + "}]}"
}

// withAction is a spec with a rule that does this.
func withAction(fields string) string {
	return "{" + podsAnd + `rules: [{name: a, forEach: pods.items, when: "true", actions: [{` + fields + "}]}]}"
}

// What rules may say, in Cleaners and ClusterCleaners, and what templates may.
func TestRulesAccepted(t *testing.T) {
	specs := map[string]string{
		"Rule":      withRule(`keep: 3, orderBy: [{expression: item.metadata.name}]`),
		"KeepZero":  withRule(`keep: 0`),
		"KeepMost":  withRule(`keep: 1000000`),
		"KeepCEL":   withRule(`keep: params.keep`),
		"LeaveMost": withRule(`leave: 1000000`),
		"LeaveCEL":  withRule(`keep: 0, leave: params.keep`),
		"PerGroup":  `{ttl: 1h, limits: {perGroup: 1, per: 1h}, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`,
		"Report":    withAction(`report: {}`),
		"DeleteNow": withAction(`delete: {gracePeriodSeconds: 0}`),
		"Apply":     withAction(`patch: {type: Apply, expression: "{}", force: true}`),
		"Releases":  `{lifecycle: Recurring, targets: [{name: all, helmReleases: {}}, {name: some, helmReleases: {matchLabels: {name: web}, matchExpressions: [{key: status, operator: NotIn, values: [deployed]}]}, delete: false, includeWhenEvaluating: true}]}`,
		"Uninstall": withAction(`helmUninstall: {timeout: 90s, disableHooks: true, keepHistory: true}`),
		"NotForced": withAction(`patch: {type: JSON, expression: "[]", force: false}`),
		"RulesOnce": `{targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {}}, delete: true}], lifecycle: Once, rules: [{name: a, forEach: pods.items, when: "true", actions: [report: {}]}]}`,
		"Template":  `{templateRef: {name: a, parameters: {quarantine: 40s}}, lifecycle: Recurring, schedule: "*/10 * * * *", timeZone: Europe/Berlin, startingDeadline: 10m}`,
	}
	for name, spec := range specs {
		for _, k := range []kind{cleanerKind(versions()[0]), cleanerKind(versions()[1]), clusterCleanerKind()} {
			t.Run(name+"/"+k.String(), func(t *testing.T) { accepted(t, k, "it is as the documentation has it", spec) })
		}
	}
	for name, spec := range map[string]string{
		"Named":      `{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Pod, name: a, namespace: b}, delete: true}]}`,
		"Namespaces": `{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Pod, matchLabels: {}, namespaces: [a], namespaceSelector: {matchLabels: {a: b}}, excludeNamespaces: [c]}, delete: true}]}`,
		"Account":    `{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Node}}], serviceAccount: {namespace: a, name: b}, includeProtected: true}`,
		"Releases":   `{lifecycle: Recurring, targets: [{name: a, helmReleases: {namespaces: [a], namespaceSelector: {matchLabels: {a: b}}, excludeNamespaces: [b]}}]}`,
		"AnyKind": `{lifecycle: Recurring, targets: [{name: a, reference: {kind: "*", hasAnnotation: janitor/ttl, excludeKinds: [secrets, "*.example.com"]}}, {name: b, reference: {kind: "*", hasAnyAnnotation: [a, b/c]}},
			{name: c, reference: {kind: "*", matchLabels: {a: b}}}, {name: d, reference: {kind: "*", matchExpressions: [{key: a, operator: Exists}]}}]}`,
	} {
		t.Run(name, func(t *testing.T) { accepted(t, clusterCleanerKind(), "its references say more", spec) })
	}
	accepted(t, templateKind(), "parameters have a type", `{template: {targets: [{name: a, reference: {version: v1, kind: Node}}]}, parameters: [{name: keep, type: int, default: 3}, {name: names, type: stringList, default: []}]}`)
}

// accepted has the API server accept an object with this spec, and change nothing in it.
func accepted(t *testing.T, k kind, reason, spec string) {
	t.Helper()
	sent := objectOf(t, k, "accepted", spec)
	got, err := clientOf(t, k).Create(t.Context(), sent, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		t.Fatalf("%s: %v", reason, err)
	}
	if diff := cmp.Diff(objectOf(t, k, "accepted", spec).Object["spec"], got.Object["spec"]); diff != "" {
		t.Errorf("the spec was changed: -sent, +kept:\n%s", diff)
	}
}

// What the schema refuses of rules, in both kinds of Cleaners.
func TestRulesRefused(t *testing.T) {
	const noLifecycle = "rules and templateRef require a lifecycle: write lifecycle: Recurring to keep the C"
	cases := map[string]struct {
		spec string
		want []string
	}{
		"NoLifecycle":         {`{targets: [{name: pods, reference: {version: v1, kind: Pod}}], rules: [{name: a, forEach: pods.items, when: "true", actions: [report: {}]}]}`, []string{"spec: Invalid value", noLifecycle, "after a cleanup, or lifecycle: Once to delete it"}},
		"TemplateNoLifecycle": {`{templateRef: {name: a}}`, []string{noLifecycle}},
		"TemplateAndTargets":  {`{templateRef: {name: a}, lifecycle: Once, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`, []string{"templateRef replaces targets, variables, conditions, rules and parameters: remove them, or templateRef"}},
		"TemplateAndParams":   {`{templateRef: {name: a}, lifecycle: Once, parameters: {a: 1}}`, []string{"templateRef replaces"}},
		"TemplateNameless":    {`{templateRef: {parameters: {a: 1}}, lifecycle: Once}`, []string{"spec.templateRef.name: Required value"}},
		"TemplateParams":      {`{templateRef: {name: a, parameters: [a]}, lifecycle: Once}`, []string{"spec.templateRef.parameters: Invalid value: \"array\""}},
		"ZoneOnly":            {`{ttl: 1h, timeZone: UTC, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`, []string{"timeZone and startingDeadline require a schedule: add one, or remove them"}},
		"DeadlineOnly":        {`{ttl: 1h, startingDeadline: 1h, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`, []string{"timeZone and startingDeadline require a schedule"}},
		"PerOnly":             {`{ttl: 1h, limits: {per: 1h}, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`, []string{"spec.limits: Invalid value", "per is the period over which maxActions, maxPercent and perGroup count: add one of them"}},
		"Percent":             {`{ttl: 1h, limits: {maxPercent: 101}, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`, []string{"spec.limits.maxPercent: Invalid value: 101: spec.limits.maxPercent in body should be less than or equal to 100"}},
		"PerGroup":            {`{ttl: 1h, limits: {perGroup: 0}, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`, []string{"spec.limits.perGroup in body should be greater than or equal to 1"}},
		"NoActions":           {`{ttl: 1h, limits: {maxActions: 0}, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}`, []string{"spec.limits.maxActions in body should be greater than or equal to 1"}},

		"WhenBool":       {"{" + podsAnd + "rules: [{name: a, forEach: pods.items, when: true, actions: [report: {}]}]}", []string{"spec.rules[0].when: Invalid value: \"boolean\""}},
		"WhenMissing":    {"{" + podsAnd + "rules: [{name: a, forEach: pods.items, actions: [report: {}]}]}", []string{"spec.rules[0].when: Required value"}},
		"NoAction":       {"{" + podsAnd + `rules: [{name: a, forEach: pods.items, when: "true", actions: []}]}`, []string{"spec.rules[0].actions in body should have at least 1 items"}},
		"RuleName":       {"{" + podsAnd + `rules: [{name: My_rule, forEach: pods.items, when: "true", actions: [report: {}]}]}`, []string{"spec.rules[0].name: Invalid value: \"My_rule\": is not the name of a rule: write lower case letters, digits and - only, such as finished-pods"}},
		"RuleNamedHelm":  {"{" + podsAnd + `rules: [{name: helm, forEach: pods.items, when: "true", actions: [report: {}]}]}`, []string{"is the name of the Helm release in lists of actions: choose another name"}},
		"RuleTwice":      {"{" + podsAnd + `rules: [{name: a, forEach: pods.items, when: "true", actions: [report: {}]}, {name: a, forEach: pods.items, when: "true", actions: [report: {}]}]}`, []string{"two rules have the same name: rename one of them"}},
		"RulesMany":      {"{" + podsAnd + "rules: [" + strings.Repeat(`{name: a, forEach: pods.items, when: "true", actions: [report: {}]},`, 65) + "]}", []string{"spec.rules: Too many: 65: must have at most 64 items"}},
		"ForNumber":      {withRule("for: 40"), []string{"spec.rules[0].for: Invalid value: \"integer\""}},
		"KeepLarge":      {withRule("keep: 3000000000"), []string{"spec.rules[0].keep: Invalid value:", "must be a number from 0 to 1000000, or an expression that returns one"}},
		"KeepNegative":   {withRule("keep: -1"), []string{"must be a number from 0 to 1000000"}},
		"LeaveLarge":     {withRule("leave: 1000001"), []string{"spec.rules[0].leave: Invalid value:", "must be a number from 0 to 1000000, or an expression that returns one"}},
		"LeaveNegative":  {withRule("leave: -1"), []string{"must be a number from 0 to 1000000"}},
		"KeepBool":       {withRule("keep: true"), []string{"spec.rules[0].keep: Invalid value"}},
		"ConfirmNothing": {withRule("confirm: [{name: a}]"), []string{"spec.rules[0].confirm[0].target: Required value"}},
		"VariableName":   {withRule(`variables: [{name: my-var, expression: "1"}]`), []string{"spec.rules[0].variables[0].name: Invalid value: \"my-var\": is not a name that expressions can use"}},
		"VariableWord":   {"{" + podsAnd + `variables: [{name: in, expression: "1"}]}`, []string{"spec.variables[0].name: Invalid value: \"in\": is a reserved word of CEL: choose another name"}},
		"VariableTwice":  {"{" + podsAnd + `variables: [{name: a, expression: "1"}, {name: a, expression: "2"}]}`, []string{"spec.variables: Invalid value:", "two variables have the same name: rename one of them"}},

		"NoVerb":         {withAction(`when: "true"`), []string{"spec.rules[0].actions[0]: Invalid value:", "an action must have exactly one of report, delete, evict, patch, removeFinalizer and helmUninstall"}},
		"TwoVerbs":       {withAction("report: {}, delete: {}"), []string{"an action must have exactly one of report, delete, evict, patch, removeFinalizer and helmUninstall"}},
		"Grace":          {withAction("delete: {gracePeriodSeconds: -1}"), []string{"spec.rules[0].actions[0].delete.gracePeriodSeconds in body should be greater than or equal to 0"}},
		"Propagation":    {withAction("delete: {propagationPolicy: orphan}"), []string{"supported values: \"Background\", \"Foreground\", \"Orphan\""}},
		"PatchUntyped":   {withAction(`patch: {expression: "{}"}`), []string{"spec.rules[0].actions[0].patch.type: Required value"}},
		"PatchType":      {withAction(`patch: {type: merge, expression: "{}"}`), []string{"supported values: \"Strategic\", \"Merge\", \"JSON\", \"Apply\""}},
		"PatchForce":     {withAction(`patch: {type: Merge, expression: "{}", force: true}`), []string{"spec.rules[0].actions[0].patch: Invalid value:", "force requires type: Apply: change type, or remove force"}},
		"Subresource":    {withAction(`patch: {type: Merge, expression: "{}", subresource: "a/b"}`), []string{"is not a subresource: write one such as status or scale"}},
		"ReleasesBeside": {`{lifecycle: Recurring, targets: [{name: a, helmReleases: {}, reference: {version: v1, kind: Pod}}]}`, []string{"a target needs exactly one of reference and helmReleases: write reference: {version: v1, kind: Pod} for objects of a kind, or helmReleases: {} for Helm releases"}},
		"ReleasesDelete": {`{ttl: 1h, lifecycle: Once, targets: [{name: a, helmReleases: {}, delete: true}]}`, []string{"to delete the record of a release does not uninstall it: remove delete and includeWhenEvaluating; a rule deletes records of superseded revisions"}},
		"ReleasesUnread": {`{lifecycle: Recurring, targets: [{name: a, helmReleases: {}, includeWhenEvaluating: false}]}`, []string{"to delete the record of a release does not uninstall it"}},
		"ReleasesOwner":  {`{lifecycle: Recurring, targets: [{name: a, helmReleases: {matchLabels: {owner: helm}}}]}`, []string{"owner is helm for all releases: remove it"}},
		"ReleasesName":   {`{lifecycle: Recurring, targets: [{name: a, helmReleases: {name: web}}]}`, []string{`unknown field "spec.targets[0].helmReleases.name"`}},
		"ReleasesFields": {`{lifecycle: Recurring, targets: [{name: a, helmReleases: {fieldSelector: "type=a"}}]}`, []string{`unknown field "spec.targets[0].helmReleases.fieldSelector"`}},
		"ReleasesValues": {`{lifecycle: Recurring, targets: [{name: a, helmReleases: {matchExpressions: [{key: a, operator: In}]}}]}`, []string{"operators In and NotIn need values"}},
		"UninstallKept":  {withAction("helmUninstall: {keepHistory: 3}"), []string{"spec.rules[0].actions[0].helmUninstall.keepHistory: Invalid value"}},
		"Finalizer":      {withAction("removeFinalizer: {}"), []string{"spec.rules[0].actions[0].removeFinalizer.name: Required value"}},
	}
	for name, tc := range cases {
		for _, k := range []kind{cleanerKind(versions()[0]), clusterCleanerKind()} {
			t.Run(name+"/"+k.Kind, func(t *testing.T) { refused(t, k, tc.spec, tc.want) })
		}
	}
}

// What only the schema of one kind refuses.
func TestKindsRefused(t *testing.T) {
	reference := func(fields string) string {
		return "{ttl: 1h, targets: [{name: pods, reference: {version: v1, kind: Pod, " + fields + "}}]}"
	}
	all := func(fields string) string {
		return "{ttl: 1h, lifecycle: Recurring, targets: [{name: all, " + fields + "}]}"
	}
	parameter := func(fields string) string {
		return "{parameters: [{" + fields + "}], template: {targets: [{name: pods, reference: {version: v1, kind: Pod}}]}}"
	}
	cases := map[string]struct {
		kind kind
		spec string
		want []string
	}{
		"Empty":          {clusterCleanerKind(), "{ttl: 1h}", []string{"a ClusterCleaner needs something to clean: add targets, rules or templateRef"}},
		"DeletesAtOnce":  {clusterCleanerKind(), "{targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {}}, delete: true}]}", []string{"a ClusterCleaner that deletes needs a ttl, a schedule or conditions"}},
		"DeleteAll":      {clusterCleanerKind(), "{ttl: 1h, targets: [{name: pods, reference: {version: v1, kind: Pod, namespaces: [a]}, delete: true}]}", []string{"delete: true needs a name, matchLabels, matchExpressions or fieldSelector in its reference"}},
		"Helm":           {clusterCleanerKind(), "{ttl: 1h, helm: {release: a}}", []string{`unknown field "spec.helm"`}},
		"NamespaceAlone": {clusterCleanerKind(), reference("namespace: a"), []string{"namespace requires name: add name, or use namespaces: [...]"}},
		"NameNamespaces": {clusterCleanerKind(), reference("name: a, namespaces: [a]"), []string{"a reference with a name selects one object: write namespace instead of namespaces, namespaceSelector and excludeNamespaces"}},
		"NamespacesNone": {clusterCleanerKind(), reference("namespaces: []"), []string{"spec.targets[0].reference.namespaces in body should have at least 1 items"}},
		"NameSelector":   {clusterCleanerKind(), reference("name: a, matchLabels: {}"), []string{"a name and label selectors exclude each other"}},
		"AccountForm":    {clusterCleanerKind(), "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Node}}], serviceAccount: {namespace: a/b, name: c}}", []string{"spec.serviceAccount.namespace: Invalid value: \"a/b\": is not the name of a namespace: write the namespace of the ServiceAccount"}},
		"AccountNoWhere": {clusterCleanerKind(), "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Node}}], serviceAccount: {name: c}}", []string{"spec.serviceAccount.namespace: Required value"}},
		"AuthNoWhere":    {clusterCleanerKind(), "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Node}}], cloudEventSink: 'http://a', cloudEventSinkAuth: {type: HMAC, secretRef: {name: c, key: d}}}", []string{"spec.cloudEventSinkAuth.secretRef.namespace: Required value"}},
		"AuthForm":       {clusterCleanerKind(), "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Node}}], cloudEventSink: 'http://a', cloudEventSinkAuth: {type: HMAC, secretRef: {namespace: a/b, name: c, key: d}}}", []string{"spec.cloudEventSinkAuth.secretRef.namespace: Invalid value: \"a/b\": is not the name of a namespace: write the namespace of the Secret"}},
		"AuthAlone":      {clusterCleanerKind(), "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Node}}], cloudEventSinkAuth: {type: HMAC, secretRef: {namespace: b, name: c, key: d}}}", []string{"cloudEventSinkAuth requires cloudEventSink: add it, or remove cloudEventSinkAuth"}},
		"Protected":      {cleanerKind(versions()[0]), "{ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Node}}], includeProtected: true}", []string{`unknown field "spec.includeProtected"`}},

		"ReleasesNamespace": {clusterCleanerKind(), all("helmReleases: {namespace: a}"), []string{`unknown field "spec.targets[0].helmReleases.namespace"`}},
		"ReleasesElsewhere": {cleanerKind(versions()[0]), all("helmReleases: {namespaces: [a]}"), []string{`unknown field "spec.targets[0].helmReleases.namespaces"`}},
		"ReleasesNowhere":   {clusterCleanerKind(), all("helmReleases: {namespaces: []}"), []string{"spec.targets[0].helmReleases.namespaces in body should have at least 1 items"}},

		"AnyKindAll":       {clusterCleanerKind(), all(`reference: {kind: "*", matchLabels: {}}`), []string{"needs hasAnnotation, or a label that the objects have"}},
		"AnyKindNegative":  {clusterCleanerKind(), all(`reference: {kind: "*", matchExpressions: [{key: a, operator: DoesNotExist}]}`), []string{"needs hasAnnotation, or a label that the objects have"}},
		"AnyKindOfGroup":   {clusterCleanerKind(), all(`reference: {kind: "*", apiGroup: apps, hasAnnotation: a}`), []string{"stands for all kinds: remove apiGroup, version, name and fieldSelector"}},
		"AnyKindOfVersion": {clusterCleanerKind(), all(`reference: {kind: "*", version: v1, hasAnnotation: a}`), []string{"stands for all kinds: remove apiGroup, version, name and fieldSelector"}},
		"AnyKindKey":       {clusterCleanerKind(), all(`reference: {kind: "*", hasAnnotation: "a=b"}`), []string{"is not the key of an annotation"}},
		"AnyKindKeys":      {clusterCleanerKind(), all(`reference: {kind: "*", hasAnyAnnotation: ["a=b"]}`), []string{"has an entry that is not the key of an annotation"}},
		"AnyKindBoth":      {clusterCleanerKind(), all(`reference: {kind: "*", hasAnnotation: a, hasAnyAnnotation: [b]}`), []string{"hasAnnotation and hasAnyAnnotation exclude each other"}},
		"AnyKindDelete":    {clusterCleanerKind(), all(`reference: {kind: "*", hasAnnotation: a}, delete: true`), []string{"only rules act on the objects of kind"}},
		"AnnotationOfOne":  {clusterCleanerKind(), all(`reference: {version: v1, kind: Pod, hasAnnotation: a}`), []string{"require kind: '*'"}},
		"AnyKindCleaner":   {cleanerKind(versions()[0]), all(`reference: {kind: "*", hasAnnotation: a}`), []string{`unknown field "spec.targets[0].reference.hasAnnotation"`}},

		"RecurringRelease": {cleanerKind(versions()[0]), "{ttl: 1h, lifecycle: Recurring, helm: {release: a}}", []string{"helm requires lifecycle: Once: change lifecycle, or remove helm"}},
		"TemplateEmpty":    {templateKind(), "{template: {}}", []string{"spec.template: Invalid value", "a template needs something to clean: add targets or rules"}},
		"TemplateTTL":      {templateKind(), "{template: {ttl: 1h, targets: [{name: pods, reference: {version: v1, kind: Pod}}]}}", []string{`unknown field "spec.template.ttl"`}},
		"ParameterType":    {templateKind(), parameter("name: a, type: number"), []string{"spec.parameters[0].type: Unsupported value: \"number\": supported values: \"string\", \"int\", \"bool\", \"duration\", \"stringList\""}},
		"ParameterName":    {templateKind(), parameter("name: on-ready, type: bool"), []string{"is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as onReadyNode"}},
		"ParameterEnum":    {templateKind(), parameter("name: a, type: string, enum: []"), []string{"spec.parameters[0].enum in body should have at least 1 items"}},
		"ParameterTwice":   {templateKind(), "{parameters: [{name: a, type: bool}, {name: a, type: int}], template: {targets: [{name: pods, reference: {version: v1, kind: Pod}}]}}", []string{"two parameters have the same name: rename one of them"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { refused(t, tc.kind, tc.spec, tc.want) })
	}
}
