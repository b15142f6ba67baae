// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The template counts as the scheduler's plugin does: where that begins to reject, it begins to taint. Only a Node of which nothing
// is known it leaves alone, while the plugin sends no Pod there.
func TestPodIPPressureOfTheSharedCases(t *testing.T) {
	text, err := os.ReadFile("../../celenv/addresses/testdata/nodes.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Why      string
		Ranges   []string
		Reserved *int64
		Pods     int

		Unreadable bool
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	users := users{}
	for _, c := range cases {
		parameters := map[string]any{}
		if c.Reserved != nil {
			parameters["reserved"] = *c.Reserved
		}
		tainted := func(pods int) bool {
			n := &network{t: t, objects: map[string]*unstructured.Unstructured{}}
			n.typed(&corev1.Node{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node"},
				Spec: corev1.NodeSpec{PodCIDR: c.Ranges[0], PodCIDRs: c.Ranges},
			})
			for i := range pods {
				n.typed(&corev1.Pod{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Namespace: "default"},
					Spec: corev1.PodSpec{NodeName: "node"}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
				})
			}
			return len(n.pass(users.of(t, "pod-ip-pressure", parameters), start)) > 0
		}
		if c.Unreadable {
			if tainted(0) || tainted(300) {
				t.Errorf("%s: the Node with %v has the taint", c.Why, c.Ranges)
			}
			continue
		}
		if !tainted(c.Pods) {
			t.Errorf("%s: with %d Pods for %v the Node has no taint", c.Why, c.Pods, c.Ranges)
		}
		if c.Pods > 0 && tainted(c.Pods-1) {
			t.Errorf("%s: with %d Pods for %v the Node has the taint", c.Why, c.Pods-1, c.Ranges)
		}
	}
}
