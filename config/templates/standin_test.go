// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// A template has work of any type of parameter before anybody has given one a value.
func TestStandIn(t *testing.T) {
	template := read[v1alpha1.CleanerTemplate](t, `
metadata: {name: a}
spec:
  parameters:
  - {name: a, type: string}
  - {name: b, type: string, enum: [x, z]}
  - {name: c, type: int}
  - {name: d, type: bool}
  - {name: e, type: duration}
  - {name: f, type: stringList}
  - {name: g, type: int, default: 3}
  template:
    targets: [{name: pods, reference: {version: v1, kind: Pod, namespaces: [b]}}]
`)
	work, errs := StandIn(template)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, want := string(work.Parameters.Raw), `{"a":"","b":"x","c":0,"d":false,"e":"0s","f":[],"g":3}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !work.Cluster || len(work.Targets) != 1 {
		t.Errorf("got %+v", work)
	}
}
