// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import "testing"

// What is known of kinds is listed once: a spec asks for it once for each target of each action of each rule.
func TestKindsAreListedOnce(t *testing.T) {
	for _, name := range []string{"Namespace", "volumeattributesclasses", "Widget"} {
		if n := testing.AllocsPerRun(100, func() { findKnownKind("storage.k8s.io", name) }); n > 0 {
			t.Errorf("to look %s up allocates %v times", name, n)
		}
	}
	if k := findKnownKind("", "NODES"); k.kind != "Node" || !k.clusterScoped || !k.isProtected() {
		t.Errorf("Nodes are %+v", k)
	}
}
