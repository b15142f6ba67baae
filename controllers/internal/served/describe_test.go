// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/test/queries"
)

func TestCheckNames(t *testing.T) {
	for name, tc := range map[string]struct {
		name, namespace string
		among           []string
		want            string
	}{
		"Sound":          {name: "web", namespace: "shop"},
		"All":            {},
		"AnotherPath":    {name: "a/b", want: `no object is named "a/b": a name may not contain '/'`},
		"Above":          {namespace: "..", want: `no namespace is named "..": a name may not be '..'`},
		"AmongOthers":    {among: []string{"shop", "a%2fb"}, want: `no namespace is named "a%2fb": a name may not contain '%'`},
		"AnEmptyOneToo":  {among: []string{"shop", ""}, want: `no namespace is named ""`},
		"AmongSoundOnes": {among: []string{"shop", "web"}},
	} {
		q := queries.New("Pod", queries.In(tc.namespace), queries.Named(tc.name))
		q.Namespaces.Names = tc.among
		if got := CheckNames(&q); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	pods := Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true}
	nodes := Resource{GVR: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}}
	q := queries.New("Pod", queries.In("shop"))
	if got := NamespaceFor(pods, q) + NamespaceFor(nodes, q); got != "shop" {
		t.Errorf("a namespaced and a cluster-scoped kind are read in %q", got)
	}
	if got, want := ForbiddenDetail("the operator", "list", pods, "shop", ""), `the operator is not allowed to list pods in namespace "shop"`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := DescribeScope(nodes, "", "n"), `nodes "n" (cluster-scoped)`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
