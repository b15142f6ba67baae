// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// An object whose name is too long for a record, as that of an Event may be, is left alone, and keeps no other from being deleted.
func TestALongNameIsLeftAlone(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.CloudEventSink = "http://127.0.0.1:1"
	long := strings.Repeat("a", 5000)
	r := newRig(t, c, aPod(long, "Succeeded"), aPod("b", "Succeeded"))
	r.pass()
	if left := r.pods.names(); len(left) != 1 || left[0] != long {
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
		if len(w.Object) > 4096 || !strings.Contains(w.Because, "its name is longer than 1024 bytes") {
			t.Errorf("withheld is an object with a name of %d bytes, because %s", len(w.Object), w.Because)
		}
	}
	if records == 0 {
		t.Error("nothing is recorded")
	}
}

// An object that has spaces in its name, as an Event may, is deleted and counted as others are, also by a process that reads what another one
// has recorded.
func TestANameWithSpacesIsReadBack(t *testing.T) {
	const name = " a  b 1 "
	c := once()
	c.Spec.CloudEventSink = "http://127.0.0.1:1"
	spaced := aPod(name, "Succeeded")
	spaced.SetUID("spaced")
	r := newRig(t, c, spaced, aPod("b", "Succeeded"))
	r.pods.answer = refuses
	r.pass()
	if run := r.cleaner().Status.Run; run == nil || len(run.Rows) != 2 {
		t.Fatalf("no run is open: %+v", run)
	}
	r.memories = memories{} // a restart
	r.pods.answer = nil
	r.try(6, time.Minute)
	if left := r.pods.names(); len(left) > 0 {
		t.Errorf("left is %q", left)
	}
	run := r.cleaner().Status.Unsent
	if run == nil {
		run = r.cleaner().Status.Run
	}
	if run == nil || run.Result != v1alpha1.ResultCompleted || len(run.Counts) != 1 || run.Counts[0] != (v1alpha1.Count{Resource: "pods/v1", Outcome: v1alpha1.OutcomeDeleted, Count: 2}) {
		t.Errorf("recorded is %+v", run)
	}
}

// An object whose name is not valid UTF-8, as that of an Event may be, is left alone and said to be: a record would name another one, which
// does not exist, so that the object would be counted as gone.
func TestANameThatIsNotUTF8IsLeftAlone(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})} {
		for as, odd := range map[string]string{"InProtobuf": "a\xffb", "InJSON": "a\ufffdb"} {
			t.Run(name+as, func(t *testing.T) {
				c := c.DeepCopy()
				c.Spec.CloudEventSink = "http://127.0.0.1:1"
				pod := aPod(odd, "Succeeded")
				pod.SetUID("odd")
				r := newRig(t, c, pod, aPod("b", "Succeeded"))
				r.try(6, time.Minute)
				if left := r.pods.names(); len(left) != 1 || left[0] != odd {
					t.Errorf("left is %q", left)
				}
				run := cmp.Or(r.cleaner().Status.Unsent, r.cleaner().Status.Run)
				if run == nil || len(run.Withheld) != 1 || !strings.Contains(run.Withheld[0].Because, "its name is not valid UTF-8") {
					t.Fatalf("recorded is %+v", run)
				}
				if len(run.Counts) != 1 || run.Counts[0] != (v1alpha1.Count{Resource: "pods/v1", Outcome: v1alpha1.OutcomeDeleted, Count: 1}) {
					t.Errorf("counted are %+v", run.Counts)
				}
			})
		}
	}
}

// Names of which JSON has six bytes for each that they have, of objects that are acted on and of others that are left alone, keep no object
// from being deleted: what is recorded is cut until it can be stored. API servers refuse a status of two megabytes.
func TestNamesThatGrowInJSON(t *testing.T) {
	const stored = 1 << 20
	for name, tc := range map[string]struct {
		part    string
		left    bool // alone
		size    int  // of a name
		cleaner *v1alpha1.Cleaner
	}{
		"Rows":         {"<", false, 1000, done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})},
		"Controls":     {"\x01", true, 1000, done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})},
		"Withheld":     {"<", true, 2000, done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})},
		"WithheldOnce": {"<", true, 2000, once()},
	} {
		t.Run(name, func(t *testing.T) {
			c, long := tc.cleaner, strings.Repeat(tc.part, tc.size)
			c.Spec.CloudEventSink = "http://127.0.0.1:1"
			r := newRig(t, c, aPod("zz", "Succeeded"))
			for i := range 300 {
				pod := aPod(fmt.Sprint(long, i), "Succeeded")
				pod.SetUID(types.UID(fmt.Sprint(i)))
				r.pods.put(pod)
			}
			largest := 0
			r.client = interceptor.NewClient(r.store, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, to client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					text, err := json.Marshal(o)
					if largest = max(largest, len(text)); err != nil || len(text) > stored {
						return apierrors.NewRequestEntityTooLargeError(fmt.Sprint(len(text), " bytes, ", err))
					}
					return to.SubResource(sub).Patch(ctx, o, patch, opts...)
				},
			})
			r.try(20, time.Minute)
			left := r.pods.names()
			if want := map[bool]int{true: 300}[tc.left]; len(left) != want || slices.Contains(left, "zz") {
				t.Errorf("left are %d objects, want %d; the largest status has %d bytes", len(left), want, largest)
			}
		})
	}
}
