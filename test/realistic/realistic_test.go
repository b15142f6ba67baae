// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package realistic_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/vtex/cleaner/test/realistic"
)

// Pods and Nodes are as large as those of clusters, and so are their managedFields.
func TestObjectsAreAsLargeAsThoseOfClusters(t *testing.T) {
	pod, err := realistic.Pod("shop", 17, 5)
	if err != nil {
		t.Fatal(err)
	}
	node, err := realistic.Node(17)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]struct {
		object, managed   any
		from, to, fieldsV int
	}{
		"Pod":  {pod, pod.ManagedFields, 7800, 8600, 2200},
		"Node": {node, node.ManagedFields, 5000, 9000, 1000},
	} {
		size, managed := sizeOf(t, o.object), sizeOf(t, o.managed)
		t.Logf("%s: %d bytes of JSON, %d of them managedFields", name, size, managed)
		if size < o.from || size > o.to || managed < o.fieldsV || managed > size/2 {
			t.Errorf("a %s has %d bytes, %d of them managedFields", name, size, managed)
		}
	}
}

// Objects of two numbers differ, and those of the same number do not.
func TestObjectsOfNumbers(t *testing.T) {
	newPod := func(n int) any {
		pod, err := realistic.Pod("shop", n, 5)
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}
	if !reflect.DeepEqual(newPod(1), newPod(1)) || reflect.DeepEqual(newPod(1), newPod(2)) {
		t.Error("the number of a Pod does not say how it is")
	}
}

func sizeOf(t *testing.T, o any) int {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}
