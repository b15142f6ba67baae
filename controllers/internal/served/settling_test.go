// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// A definition settles after a change of its generation, and each further change begins that anew.
func TestSettling(t *testing.T) {
	widgets, start := schema.GroupResource{Group: "example.com", Resource: "widgets"}, time.Unix(1000, 0)
	at := func(generation int64) *observed.Object {
		return &observed.Object{Ref: observed.Ref{Name: "widgets.example.com", UID: "uid"}, Generation: generation}
	}
	other := at(1)
	other.UID = "other"
	for name, tc := range map[string]struct {
		before, now *observed.Object
		settles     bool
	}{
		"New":      {nil, at(1), false},
		"Gone":     {at(1), nil, false},
		"Status":   {at(1), at(1), false},
		"Changed":  {at(1), at(2), true},
		"MadeAnew": {at(1), other, true},
	} {
		s := NewSettling(time.Second)
		s.NoteChange(tc.before, tc.now, start)
		end := s.FindEnd(widgets, start)
		if settles := !end.IsZero(); settles != tc.settles || settles && (end.Before(start.Add(time.Second)) || end.After(start.Add(2*time.Second))) {
			t.Errorf("%s: it settles until %v", name, end)
		}
		if !tc.settles {
			continue
		}
		if again := s.Settle(widgets, start.Add(time.Second/2)); !again.Equal(end) {
			t.Errorf("%s: it settles until %v, and until %v a moment later", name, end, again)
		}
		s.NoteChange(at(2), at(3), start.Add(time.Hour))
		if end := s.FindEnd(widgets, start.Add(time.Hour)); end.Before(start.Add(time.Hour)) {
			t.Errorf("%s: after one more change it settles until %v", name, end)
		}
		if end := s.FindEnd(widgets, start.Add(2*time.Hour)); !end.IsZero() || len(s.until) > 0 {
			t.Errorf("%s: it still settles until %v", name, end)
		}
	}
}
