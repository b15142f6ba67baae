// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// An object whose name is too long for a record, as that of an Event may be, is left alone, and keeps no other from being deleted.
func TestALongNameIsLeftAlone(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.CloudEventSink = "http://127.0.0.1:1"
	long := strings.Repeat("a", 5000)
	r := newRig(t, c, aPod(long, "Succeeded"), aPod("b", "Succeeded"))
	r.pass()
	if left := r.names(); len(left) != 1 || left[0] != long {
		t.Errorf("%d objects are left", len(left))
	}
	s := r.cleaner().Status
	withheld, records := s.LastEvaluation.Withheld, 0
	if len(withheld) != 1 {
		t.Errorf("%d objects are withheld", len(withheld))
	}
	for _, run := range []*v1alpha1.Run{s.Run, s.Unsent} {
		if run == nil {
			continue
		}
		records++
		withheld = append(withheld, run.Withheld...)
		for _, row := range run.Rows {
			if len(row) > 4096 {
				t.Errorf("a row has %d bytes", len(row))
			}
		}
	}
	for _, w := range withheld {
		if len(w.Object) > 4096 || !strings.Contains(w.Because, "its name has more than 1024 bytes") {
			t.Errorf("withheld is an object with a name of %d bytes, because %s", len(w.Object), w.Because)
		}
	}
	if records == 0 {
		t.Error("nothing is recorded")
	}
}
