// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/celenv/usage"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// podTarget selects Pods.
func podTarget(name string, change ...func(*v1alpha1.ClusterTarget)) v1alpha1.ClusterTarget {
	t := v1alpha1.ClusterTarget{}
	t.Name, t.Reference.Version, t.Reference.Kind = name, "v1", "Pod"
	for _, c := range change {
		c(&t)
	}
	return t
}

func withoutExpressions(t *v1alpha1.ClusterTarget) { no := false; t.IncludeWhenEvaluating = &no }

func byPhase(t *v1alpha1.ClusterTarget) { t.Reference.FieldSelector = "status.phase=Failed" }

// identity is what is kept of each object.
const identity = "apiVersion kind metadata.creationTimestamp metadata.deletionGracePeriodSeconds metadata.deletionTimestamp metadata.name metadata.namespace metadata.resourceVersion metadata.uid"

func TestKeepReadings(t *testing.T) {
	node := usage.Reading{Projection: projection.KeepPath("spec", "nodeName")}
	reason := usage.Reading{Projection: projection.KeepPath("status", "reason")}
	for name, tc := range map[string]struct {
		targets  []v1alpha1.ClusterTarget
		readings map[string]usage.Reading
		want     []string
	}{
		"Nothing":      {[]v1alpha1.ClusterTarget{podTarget("a")}, map[string]usage.Reading{"a": {}}, []string{identity}},
		"Path":         {[]v1alpha1.ClusterTarget{podTarget("a")}, map[string]usage.Reading{"a": node}, []string{identity + " spec.nodeName"}},
		"All":          {[]v1alpha1.ClusterTarget{podTarget("a")}, map[string]usage.Reading{"a": {Projection: projection.All()}}, []string{"*"}},
		"Unknown":      {[]v1alpha1.ClusterTarget{podTarget("a")}, nil, []string{"*"}},
		"Metadata":     {[]v1alpha1.ClusterTarget{podTarget("a", withoutExpressions)}, nil, []string{identity}},
		"Field":        {[]v1alpha1.ClusterTarget{podTarget("a", withoutExpressions, byPhase)}, nil, []string{identity + " status.phase"}},
		"FieldAndPath": {[]v1alpha1.ClusterTarget{podTarget("a", byPhase)}, map[string]usage.Reading{"a": node}, []string{identity + " spec.nodeName status.phase"}},
		"SameQuery": {
			[]v1alpha1.ClusterTarget{podTarget("a"), podTarget("b"), podTarget("c", byPhase)}, map[string]usage.Reading{"a": node, "b": reason, "c": {}},
			[]string{identity + " spec.nodeName status.reason", identity + " spec.nodeName status.reason", identity + " status.phase"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.Work{Targets: tc.targets}
			qs := NewQueries("shop", spec)
			qs.KeepReadings(spec, tc.readings)
			var got []string
			for i := range qs {
				got = append(got, strings.Join(qs[i].Reads.Projection().ListPaths(), " "))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An object can be in several targets, so what is remembered of it has what any of them reads.
func TestMergeReads(t *testing.T) {
	spec := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{podTarget("a"), podTarget("b", byPhase), podTarget("c", withoutExpressions)}}
	qs := NewQueries("shop", spec)
	qs.KeepReadings(spec, map[string]usage.Reading{"a": {Projection: projection.KeepPath("spec", "nodeName")}, "b": {}})
	if got, want := strings.Join(qs.MergeReads().ListPaths(), " "), identity+" spec.nodeName status.phase"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if p := NewQueries("shop", spec).MergeReads(); !p.Whole {
		t.Errorf("before it is known what is read, %v is kept", p.ListPaths())
	}
}

func TestReadsOfAll(t *testing.T) {
	if NewReads(projection.All()) != nil || !(*Reads)(nil).Projection().Whole || (*Reads)(nil).Digest() == NewReads(nil).Digest() {
		t.Error("all is not all")
	}
	first, second := NewReads(projection.KeepPath("a")), NewReads(projection.KeepPath("a"))
	if first.Digest() != second.Digest() {
		t.Error("the same reads are told apart")
	}
}

// What many Cleaners read alike is held once, and as long as one of them reads it.
func TestReadsAreShared(t *testing.T) {
	s := sharedReads{known: map[[sha256.Size]byte]weak.Pointer[Reads]{}}
	share := func(path string) *Reads {
		p := projection.KeepPath("spec", path)
		return s.shareReads(&Reads{p, p.Digest()})
	}
	first, other := share("a"), share("b")
	for range 3 {
		runtime.GC()
		if share("a") != first || share("b") != other || first == other {
			t.Fatal("what is read alike is not held once")
		}
	}
	runtime.KeepAlive(first)
	runtime.KeepAlive(other)
	countKnown := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.known)
	}
	for deadline := time.Now().Add(time.Minute); countKnown() > 0; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("%d are known though nobody reads them", countKnown())
		}
		runtime.Gosched()
	}
	again := share("a")
	s.forgetReads(again.Digest()) // late, for one that was there before
	if share("a") != again {
		t.Error("what is read again is forgotten")
	}
	runtime.KeepAlive(again)
}

// A field selector gives the same of an object as of what is kept for it, whatever the field.
func TestFieldsAreComparedWithWhatIsKept(t *testing.T) {
	contents := []map[string]any{
		{},
		{
			"spec":   map[string]any{"nodeName": "x", "hostNetwork": true, "unschedulable": true, "clusterIP": "x", "type": "x", "restartPolicy": "x", "schedulerName": "x", "serviceAccountName": "x", "signerName": "x", "podName": "x", "driver": "x"},
			"status": map[string]any{"phase": "x", "podIPs": []any{map[string]any{"ip": "x"}, map[string]any{"ip": "y"}}, "podIP": "z", "nominatedNodeName": "x", "succeeded": int64(3), "replicas": int64(3)},
			"source": map[string]any{"component": "x"}, "reportingComponent": "y", "reportingController": "x", "reason": "x", "type": "x",
			"involvedObject": map[string]any{"kind": "x", "namespace": "x", "name": "x", "uid": "x", "apiVersion": "x", "resourceVersion": "x", "fieldPath": "x"},
			"regarding":      map[string]any{"kind": "x", "namespace": "x", "name": "x", "uid": "x", "apiVersion": "x", "resourceVersion": "x", "fieldPath": "x"},
		},
		{"reportingComponent": "x", "source": map[string]any{"host": "h"}, "status": map[string]any{"podIPs": []any{}}, "spec": map[string]any{"nodeName": []any{"x"}}},
	}
	compared := 0
	for _, resource := range []schema.GroupResource{
		{Resource: "pods"}, {Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}, {Resource: "namespaces"}, {Resource: "nodes"}, {Resource: "secrets"},
		{Resource: "services"}, {Resource: "replicationcontrollers"}, {Group: "batch", Resource: "jobs"}, {Group: "certificates.k8s.io", Resource: "podcertificaterequests"},
		{Group: "resource.k8s.io", Resource: "resourceslices"}, {Group: "example.com", Resource: "widgets"},
	} {
		labels := BuiltinFieldLabels(resource)
		if resource.Group == "example.com" {
			labels = CustomFieldLabels(true, []string{".spec.nodeName", ".status.podIP", ".source.component", ".spec"})
		}
		for label := range labels.readers {
			selector := fields.OneTermEqualSelector(label, "x")
			kept := projectSelected(selector)
			for n, content := range contents {
				whole, part := &observed.Object{Value: content}, &observed.Object{Value: kept.ApplyToMap(content)}
				if want, got := labels.readValue(label, whole), labels.readValue(label, part); got != want {
					t.Errorf("%s: %s of object %d is %q, and %q of what is kept", resource, label, n, want, got)
				}
				compared++
			}
		}
	}
	if compared < 100 {
		t.Errorf("%d values were compared", compared)
	}
	for _, none := range []fields.Selector{nil, fields.Everything(), fields.OneTermEqualSelector("metadata.name", "a")} {
		if p := projectSelected(none); p != nil {
			t.Errorf("for %v, %v is kept", fmt.Sprint(none), p.ListPaths())
		}
	}
}
