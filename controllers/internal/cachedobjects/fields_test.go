// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

var (
	pods      = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes     = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	revisions = schema.GroupVersionResource{Group: "serving.example.com", Version: "v1", Resource: "revisions"}
)

// newQuery returns a query for all Pods of namespace a, changed.
func newQuery(changes ...func(*snapshot.Query)) snapshot.Query {
	q := snapshot.Query{Version: "v1", Kind: "Pod", Namespace: "a", Labels: labels.Everything(), Fields: fields.Everything()}
	for _, change := range changes {
		change(&q)
	}
	return q
}

func selectFields(selector string) func(*snapshot.Query) {
	return func(q *snapshot.Query) { q.Fields = fields.ParseSelectorOrDie(selector) }
}

func newPod(namespace, name string, l map[string]string) *Object {
	return &Object{Object: observed.Object{Ref: observed.Ref{Resource: pods, Namespace: namespace, Name: name}, Labels: l, Value: map[string]any{}}}
}

func TestMatchesFields(t *testing.T) {
	pod := map[string]any{
		"spec":   map[string]any{"nodeName": "n", "hostNetwork": true, "restartPolicy": "Always"},
		"status": map[string]any{"phase": "Running", "podIP": "10.0.0.1", "podIPs": []any{map[string]any{"ip": "10.0.0.1"}, map[string]any{"ip": "fd::1"}}},
	}
	cases := map[string]struct {
		reason   string
		resource schema.GroupVersionResource
		value    map[string]any
		selector string
		want     bool
	}{
		"Name":             {"metadata is always there", pods, nil, "metadata.name=x", true},
		"OtherName":        {"metadata is compared", pods, nil, "metadata.name!=x", false},
		"Namespace":        {"metadata is compared", pods, nil, "metadata.namespace=a", true},
		"Node":             {"a path", pods, pod, "spec.nodeName=n", true},
		"OldNameOfNode":    {"kept for old clients", pods, pod, "spec.host=n", true},
		"HostNetwork":      {"a bool", pods, pod, "spec.hostNetwork=true", true},
		"NoHostNetwork":    {"false when absent", pods, map[string]any{}, "spec.hostNetwork=false", true},
		"PodIP":            {"the first one", pods, pod, "status.podIP=10.0.0.1", true},
		"PodIPs":           {"the API server never fills it", pods, pod, "status.podIPs=10.0.0.1", false},
		"Both":             {"all terms must hold", pods, pod, "status.phase=Running,spec.nodeName=other", false},
		"Absent":           {"empty is a value", pods, map[string]any{}, "spec.nodeName=", true},
		"Unknown":          {"the API server refuses it", pods, pod, "spec.color!=red", false},
		"MetadataOnly":     {"what was not read does not match", pods, nil, "spec.nodeName!=n", false},
		"Unschedulable":    {"a bool of another kind", nodes, map[string]any{}, "spec.unschedulable=false", true},
		"NamespaceOfNode":  {"nodes have no such label", nodes, map[string]any{}, "metadata.namespace=", false},
		"Job":              {"a number under another name", schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, map[string]any{"status": map[string]any{"succeeded": int64(1)}}, "status.successful=1", true},
		"NewJob":           {"zero when absent", schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, map[string]any{}, "status.successful=0", true},
		"Event":            {"the source may be the reporter", schema.GroupVersionResource{Version: "v1", Resource: "events"}, map[string]any{"reportingComponent": "k"}, "source=k", true},
		"Secret":           {"a field at the top", schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, map[string]any{"type": "Opaque"}, "type=Opaque", true},
		"ReplicaSet":       {"it has metadata only, although its registry knows more", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, map[string]any{"status": map[string]any{"replicas": int64(0)}}, "status.replicas=0", false},
		"CustomKind":       {"the path is the label", revisions, map[string]any{"spec": map[string]any{"color": "red"}}, "spec.color=red", true},
		"CustomKindNumber": {"as text", revisions, map[string]any{"spec": map[string]any{"size": int64(3)}}, "spec.size=3", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &observed.Object{Ref: observed.Ref{Resource: tc.resource, Namespace: "a", Name: "x"}, Value: tc.value}
			if got := QueryMatches(newQuery(selectFields(tc.selector)), o, nil); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// What a query says of namespaces holds for namespaced objects only.
func TestMatchesNamespaces(t *testing.T) {
	dev, prod := &observed.Object{Labels: map[string]string{"tier": "dev"}}, &observed.Object{Labels: map[string]string{"tier": "prod"}}
	pod, node := &newPod("a", "x", nil).Object, &observed.Object{Ref: observed.Ref{Resource: nodes, Name: "x"}}
	everywhere := func(n snapshot.Namespaces) snapshot.Query {
		return newQuery(func(q *snapshot.Query) { q.Namespace, q.Namespaces = "", n })
	}
	of := func(selector string) snapshot.Namespaces {
		l, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		return snapshot.Namespaces{Labels: l}
	}
	named := newQuery(func(q *snapshot.Query) { q.Name = "x" })
	misplaced := named
	misplaced.Namespace = ""
	clusterScoped := newQuery(func(q *snapshot.Query) { q.Kind = "Node" })
	for name, tc := range map[string]struct {
		query     snapshot.Query
		object    *observed.Object
		namespace *observed.Object
		want      bool
	}{
		"Named":          {everywhere(snapshot.Namespaces{Names: []string{"a", "b"}}), pod, nil, true},
		"NotNamed":       {everywhere(snapshot.Namespaces{Names: []string{"b"}}), pod, nil, false},
		"None":           {everywhere(snapshot.Namespaces{Names: []string{}}), pod, nil, false},
		"Excluded":       {everywhere(snapshot.Namespaces{Except: []string{"a"}}), pod, nil, false},
		"NotExcluded":    {everywhere(snapshot.Namespaces{Except: []string{"b"}}), pod, nil, true},
		"Chosen":         {everywhere(of("tier=dev")), pod, dev, true},
		"NotChosen":      {everywhere(of("tier=dev")), pod, prod, false},
		"Unknown":        {everywhere(of("!tier")), pod, nil, false},
		"Placed":         {named, pod, nil, true},
		"Misplaced":      {misplaced, pod, nil, false},
		"ClusterScoped":  {clusterScoped, node, nil, true},
		"ClusterInPlace": {everywhere(snapshot.Namespaces{Names: []string{"a"}}), node, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := QueryMatches(tc.query, tc.object, tc.namespace); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
