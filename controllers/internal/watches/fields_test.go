// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

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
			o := &plan.Object{Ref: plan.Ref{Resource: tc.resource, Namespace: "a", Name: "x"}, Value: tc.value}
			if got := QueryMatches(query("", fielded(tc.selector)), o, nil); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestMatchesNamespaces(t *testing.T) {
	dev, prod := &plan.Object{Labels: tier("dev")}, &plan.Object{Labels: tier("prod")}
	pod, node := &podOf("a", "x", nil).Object, &plan.Object{Ref: plan.Ref{Resource: nodes, Name: "x"}}
	for name, tc := range map[string]struct {
		query     snapshot.Query
		object    *plan.Object
		namespace *plan.Object
		want      bool
	}{
		"Named":          {query("Pod", among("a", "b")), pod, nil, true},
		"NotNamed":       {query("Pod", among("b")), pod, nil, false},
		"None":           {query("Pod", among()), pod, nil, false},
		"Excluded":       {query("Pod", except("a")), pod, nil, false},
		"NotExcluded":    {query("Pod", except("b")), pod, nil, true},
		"Chosen":         {query("Pod", chosenBy("tier=dev")), pod, dev, true},
		"NotChosen":      {query("Pod", chosenBy("tier=dev")), pod, prod, false},
		"Unknown":        {query("Pod", chosenBy("!tier")), pod, nil, false},
		"Placed":         {query("Pod", named("x")), pod, nil, true},
		"Misplaced":      {query("Pod", in(""), named("x")), pod, nil, false},
		"ClusterScoped":  {query("Node"), node, nil, true},
		"ClusterInPlace": {query("Node", among("a")), node, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := QueryMatches(tc.query, tc.object, tc.namespace); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
