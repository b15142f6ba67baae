// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

func TestParse(t *testing.T) {
	configMap := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	cases := map[string]struct {
		reason   string
		manifest string
		want     []document
		wrong    bool
	}{
		"Empty": {reason: "a release may have no objects"},
		"Order": {
			reason: "Helm's order of deletion, and the order of the chart within a kind",
			manifest: `---
# Source: a.yaml
apiVersion: v1
kind: ConfigMap
metadata: {name: b}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: other}
---
apiVersion: v1
kind: Service
metadata: {name: s}
---
apiVersion: example.com/v1
kind: Custom
metadata: {name: c}
`,
			want: []document{
				{kind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, name: "s"},
				{kind: configMap, name: "b"},
				{kind: configMap, namespace: "other", name: "a"},
				{kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Custom"}, name: "c"},
			},
		},
		"Comments": {reason: "a template may render to a comment", manifest: "---\n# Source: a.yaml\n# nothing\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", want: []document{{kind: configMap, name: "a"}}},
		"Lists": {
			reason: "Helm installs the items of a list",
			manifest: `apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
`,
			want: []document{{kind: configMap, name: "a"}, {kind: configMap, name: "b"}},
		},
		"Policy": {
			reason:   "what has a policy is not deleted",
			manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {helm.sh/resource-policy: " keep "}}}`,
			want:     []document{{kind: configMap, name: "a", keepReason: "the chart says helm.sh/resource-policy: keep"}},
		},
		"OddPolicy": {
			reason:   "Helm leaves what has a policy that it does not know",
			manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {helm.sh/resource-policy: ""}}}`,
			want:     []document{{kind: configMap, name: "a", keepReason: "the chart says helm.sh/resource-policy: "}},
		},
		"Hooks":      {reason: "a hook is no object of the release", manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, annotations: {helm.sh/hook: pre-delete}}}`},
		"NotYAML":    {reason: "anybody may write a manifest", manifest: "a: [", wrong: true},
		"Scalar":     {reason: "a text is no object", manifest: "nothing", wrong: true},
		"NoKind":     {reason: "an object has a kind", manifest: `{apiVersion: v1, metadata: {name: a}}`, wrong: true},
		"NoAPI":      {reason: "an object has an apiVersion", manifest: `{kind: ConfigMap, metadata: {name: a}}`, wrong: true},
		"NoName":     {reason: "an object has a name", manifest: `{apiVersion: v1, kind: ConfigMap}`, wrong: true},
		"OddList":    {reason: "a list holds objects", manifest: `{apiVersion: v1, kind: List, items: [1]}`, wrong: true},
		"PathName":   {reason: "a name must not become another path", manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: ../secrets/x}}`, wrong: true},
		"PathSpace":  {reason: "a namespace must not become another path", manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: ..}}`, wrong: true},
		"PathGroup":  {reason: "a group must not become another path", manifest: `{apiVersion: ../v1, kind: ConfigMap, metadata: {name: a}}`, wrong: true},
		"PathAPI":    {reason: "a version must not become another path", manifest: `{apiVersion: apps/.., kind: ConfigMap, metadata: {name: a}}`, wrong: true},
		"PathKind":   {reason: "an apiVersion of three parts is none", manifest: `{apiVersion: a/b/c, kind: ConfigMap, metadata: {name: a}}`, wrong: true},
		"NumberName": {reason: "a name is a string", manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: 1}}`, wrong: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			heads, err := extractHeads(t.Context(), tc.manifest)
			var got []document
			if err == nil {
				got, err = parseHeads(t.Context(), heads)
			}
			if wrong := err != nil; wrong != tc.wrong {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(document{}), cmpopts.IgnoreFields(document{}, "content")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestInStages(t *testing.T) {
	of := func(group, resource string) object {
		return object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Name: "x"}}
	}
	account, role := of("", "serviceaccounts"), of("rbac.authorization.k8s.io", "roles")
	binding, own := of("rbac.authorization.k8s.io", "rolebindings"), of("example.com", "roles")
	config := of("", "configmaps")
	cases := map[string]struct {
		reason      string
		objects     []object
		first, last []object
	}{
		"None":  {reason: "a release may have no objects"},
		"Plain": {reason: "nothing to hold back", objects: []object{config, own}, first: []object{config, own}},
		"Access": {
			reason:  "accounts and roles go when all others are gone",
			objects: []object{binding, config, role, own, account},
			first:   []object{config, own},
			last:    []object{binding, role, account},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			first, last := splitStages(tc.objects)
			if diff := cmp.Diff([][]object{tc.first, tc.last}, [][]object{first, last}, cmp.AllowUnexported(object{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
