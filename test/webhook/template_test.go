// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepNewest is a template with a parameter that has a default, and one that must be given.
const keepNewest = `
parameters:
- {name: keep, type: int, default: 3}
- {name: app, type: string}
template:
  targets: [{name: pods, reference: {version: v1, kind: Pod}}]
  rules:
  - name: old
    forEach: pods.items
    when: item.metadata.?labels.app.orValue("") == params.app
    orderBy: [{expression: item.metadata.creationTimestamp}]
    keep: params.keep
    actions: [{delete: {}}]
`

// uses is the spec of what uses a template, and does nothing yet.
func uses(template, parameters string) string {
	return fmt.Sprintf("{lifecycle: Recurring, suspend: true, templateRef: {name: %s, parameters: %s}}", template, parameters)
}

// stored applies a template that stays until the test is over.
func (e *env) stored(t *testing.T, name, spec string) {
	t.Helper()
	if err := e.Create(t.Context(), object(t, "CleanerTemplate", name, spec)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Delete(context.WithoutCancel(t.Context()), object(t, "CleanerTemplate", name, "{}")); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// A Cleaner is judged with its template expanded, and what is wrong is said of what its author wrote.
func TestTemplateIsExpanded(t *testing.T) {
	ns := shared.namespace(t)
	shared.stored(t, "keep-newest", keepNewest)
	shared.stored(t, "in-shops", `{template: {targets: [{name: pods, reference: {version: v1, kind: Pod, namespaces: [shop]}}]}}`)
	shared.stored(t, "classes", `{template: {targets: [{name: class, reference: {apiGroup: storage.k8s.io, version: v1, kind: StorageClass, name: fast}, delete: true}]}}`)
	shared.stored(t, "key", `{template: {targets: [{name: secret, reference: {version: v1, kind: Secret, name: key}}]}}`)
	cases := map[string]struct {
		reason string
		kind   string
		spec   string
		want   []string // none means that it is admitted
	}{
		"Named": {"It is the one in the Cleaner's namespace.", "Cleaner", uses("key", "{}"), nil},
		"NamedInCluster": {"There may be one in each namespace.", "ClusterCleaner", uses("key", "{}"),
			[]string{`spec.templateRef.name: the template "key" does not work here: its spec.template.targets[0].reference.namespace: is missing: secrets are namespaced, so write the namespace of the object`}},
		"Good":        {"A parameter is given, and one has its default.", "Cleaner", uses("keep-newest", "{app: web}"), nil},
		"GoodCluster": {"The same.", "ClusterCleaner", uses("keep-newest", "{app: web}"), nil},
		"Missing": {"There is no default.", "Cleaner", uses("keep-newest", "{keep: 5}"),
			[]string{`spec.templateRef.parameters.app: is missing: the template "keep-newest" has no default for it; write app: "text"`}},
		"Type": {"The parameter is named.", "ClusterCleaner", uses("keep-newest", "{app: web, keep: '5'}"),
			[]string{"spec.templateRef.parameters.keep: must be of type int: write keep: 3"}},
		"Unknown": {"A slip of the pen is named.", "Cleaner", uses("keep-newest", "{app: web, kep: 5}"),
			[]string{`spec.templateRef.parameters.kep: is not a parameter of the template "keep-newest": it has keep, app`}},
		"OutOfReach": {"A Cleaner acts in its own namespace.", "Cleaner", uses("in-shops", "{}"),
			[]string{`spec.templateRef.name: is a template for ClusterCleaners: its target "pods" has namespaces, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner`}},
		"ClusterScoped": {"What cannot be is the template's.", "Cleaner", uses("classes", "{}"),
			[]string{`spec.templateRef.name: the template "classes" does not work here: its spec.template.targets[0].delete: must be false: storageclasses.storage.k8s.io are cluster-scoped, and a Cleaner deletes only in its own namespace`}},
		"ClusterScopedInCluster": {"A ClusterCleaner may.", "ClusterCleaner", uses("classes", "{}"), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := object(t, tc.kind, strings.ToLower(name), tc.spec)
			if tc.kind == "Cleaner" {
				c.SetNamespace(ns)
			}
			err := shared.Create(t.Context(), c, client.DryRunAll)
			switch {
			case err == nil && len(tc.want) == 0:
			case err == nil:
				t.Errorf("%s: it was admitted", tc.reason)
			case len(tc.want) == 0:
				t.Errorf("%s: %v", tc.reason, err)
			default:
				if diff := cmp.Diff(deniedBy(tc.kind)+strings.Join(tc.want, "\n"), err.Error()); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// Whoever uses a template needs the rights to what it does, in the namespace of the Cleaner.
func TestRightsToATemplate(t *testing.T) {
	ns := shared.namespace(t)
	shared.stored(t, "newest", keepNewest)
	subject := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "erin"}
	shared.grant(t, ns, "erin", subject, rule("create", "cleaner.vtex.dev", "cleaners"), rule("get list watch", "", "pods"))
	erin, _ := shared.as(t, "erin")
	eventually(t, "erin is not allowed to delete", func(ctx context.Context) string {
		err := erin.Create(ctx, cleaner(t, ns, "c", uses("newest", "{app: web}")), client.DryRunAll)
		if err == nil || err.Error() != lacks+`user "erin" is not allowed to delete pods in namespace "`+ns+`"` {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// Of a template that is not there yet nobody knows what it will do: whoever may do everything may wait for it.
func TestTemplateThatIsNotThere(t *testing.T) {
	ns := shared.namespace(t)
	admin, warned := shared.as(t, "admin", "system:masters")
	if err := admin.Create(t.Context(), cleaner(t, ns, "c", uses("nowhere", "{}")), client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	want := []string{`spec.templateRef.name: there is no CleanerTemplate "nowhere" yet, and the Cleaner waits for it: apply the template first`}
	if diff := cmp.Diff(want, warned.warnings); diff != "" {
		t.Errorf("warnings: -want, +got:\n%s", diff)
	}
	subject := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "frank"}
	shared.grant(t, ns, "frank", subject, rule("create", "cleaner.vtex.dev", "cleaners"), rule("*", "*", "*"))
	frank, _ := shared.as(t, "frank")
	eventually(t, "frank may do everything here, and not elsewhere", func(ctx context.Context) string {
		err := frank.Create(ctx, cleaner(t, ns, "c", uses("nowhere", "{}")), client.DryRunAll)
		if err == nil || err.Error() != lacks+`user "frank" is not allowed to do everything; a template that does not exist yet may ask for anything: apply it first, or let a user who may do everything create the Cleaner` {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// An update of a template that some could not work with any more is refused, and says which.
func TestUpdateThatBreaks(t *testing.T) {
	ns := shared.namespace(t)
	shared.stored(t, "breakable", keepNewest)
	for name, spec := range map[string]string{
		"five":  uses("breakable", "{app: web, keep: 5}"),
		"three": uses("breakable", "{app: web}"),
		"other": "{ttl: 1d, targets: [{name: pods, reference: {version: v1, kind: Pod}}], cloudEventSink: 'http://sink'}",
	} {
		if err := shared.Create(t.Context(), cleaner(t, ns, name, spec)); err != nil {
			t.Fatal(err)
		}
	}
	everywhere := object(t, "ClusterCleaner", "everywhere", uses("breakable", "{app: web, keep: 7}"))
	if err := shared.Create(t.Context(), everywhere); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shared.Delete(context.WithoutCancel(t.Context()), everywhere); err != nil {
			t.Error(err)
		}
	})
	update := func(spec string) error {
		now := object(t, "CleanerTemplate", "breakable", "{}")
		if err := shared.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
			t.Fatal(err)
		}
		now.Object["spec"] = object(t, "CleanerTemplate", "breakable", spec).Object["spec"]
		return shared.Update(t.Context(), now)
	}

	const instead = "; change its spec first, or write a template that it works with; if you mean to break it, delete the template and create it again"
	err := update(strings.Replace(keepNewest, "{name: keep, type: int, default: 3}", "{name: keep, type: string, default: '3'}", 1))
	want := deniedBy("CleanerTemplate") +
		`spec: breaks Cleaner "five" in namespace "` + ns + `", which would stop working: spec.templateRef.parameters.keep: must be of type string: write keep: "text"` + instead + "\n" +
		`spec: breaks ClusterCleaner "everywhere", which would stop working: spec.templateRef.parameters.keep: must be of type string: write keep: "text"` + instead
	if !apierrors.IsInvalid(err) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	err = update(strings.Replace(keepNewest, "pods, reference: {version: v1, kind: Pod}", "pods, reference: {version: v1, kind: Pod, namespaces: [shop]}", 1))
	if !apierrors.IsInvalid(err) || strings.Count(err.Error(), "spec: breaks Cleaner ") != 2 || strings.Contains(err.Error(), "ClusterCleaner \"everywhere\"") {
		t.Errorf("a template for ClusterCleaners only breaks the Cleaners: got %v", err)
	}
	if err := update(strings.Replace(keepNewest, "default: 3}", "default: 4}\n- {name: more, type: bool, default: true}", 1)); err != nil {
		t.Errorf("this breaks nobody: %v", err)
	}

	// Who did not work before is not broken.
	if err := shared.Delete(t.Context(), object(t, "CleanerTemplate", "breakable", "{}")); err != nil {
		t.Fatal(err)
	}
	admin, warned := shared.as(t, "admin", "system:masters")
	if err := admin.Create(t.Context(), object(t, "CleanerTemplate", "breakable", strings.Replace(keepNewest, "app, type: string", "app, type: bool", 1))); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(strings.Join(warned.warnings, "\n"), "spec: breaks "); n != 3 {
		t.Errorf("a template anew names those that do not work with it: %q", warned.warnings)
	}
	if err := update(strings.Replace(keepNewest, "app, type: string", "app, type: duration", 1)); err != nil {
		t.Errorf("they did not work before: %v", err)
	}
}
