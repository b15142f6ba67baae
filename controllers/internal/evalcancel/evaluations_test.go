// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package evalcancel

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// An evaluation ends when the watch of Cleaners shows another spec, a deletion, or nothing any more; and not for what does
// not change what is decided.
func TestEvaluationsEndWithTheirCleaner(t *testing.T) {
	made := func(change ...func(c *v1alpha1.Cleaner)) *v1alpha1.Cleaner {
		c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", UID: "1", Generation: 3}}
		for _, f := range change {
			f(c)
		}
		return c
	}
	later := metav1.NewTime(time.Unix(1, 0))
	deleted := func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &later }
	update := func(change ...func(c *v1alpha1.Cleaner)) func(e *Evaluations) bool {
		return func(e *Evaluations) bool {
			return e.WatchCleaners().Update(event.UpdateEvent{ObjectOld: made(), ObjectNew: made(change...)})
		}
	}
	cases := map[string]struct {
		began *v1alpha1.Cleaner
		see   func(e *Evaluations) bool
		ends  bool
	}{
		"Edit":     {made(), update(func(c *v1alpha1.Cleaner) { c.Generation = 4 }), true},
		"Suspend":  {made(), update(func(c *v1alpha1.Cleaner) { c.Generation, c.Spec.Suspend = 4, true }), true},
		"Deletion": {made(), update(deleted), true},
		"Another one": {made(), func(e *Evaluations) bool {
			return e.WatchCleaners().Create(event.CreateEvent{Object: made(func(c *v1alpha1.Cleaner) { c.UID = "2" })})
		}, true},
		"Gone":           {made(), func(e *Evaluations) bool { return e.WatchCleaners().Delete(event.DeleteEvent{Object: made()}) }, true},
		"Status":         {made(), update(func(c *v1alpha1.Cleaner) { c.Status.ObservedGeneration = 3 }), false},
		"Old news":       {made(), update(func(c *v1alpha1.Cleaner) { c.Generation = 2 }), false},
		"Deleted before": {made(deleted), update(deleted), false},
		"Of another":     {made(), update(func(c *v1alpha1.Cleaner) { c.Name, c.Generation = "b", 4 }), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := &Evaluations{}
			ctx, end := e.BeginEvaluation(t.Context(), types.NamespacedName{Namespace: "shop", Name: "a"}, tc.began)
			if !tc.see(e) {
				t.Error("the predicate keeps an event back")
			}
			if ended := ctx.Err() != nil; ended != tc.ends || ended && !errors.Is(context.Cause(ctx), errChanged) {
				t.Errorf("ended: %t, %v", ended, context.Cause(ctx))
			}
			end()
			if len(e.running) > 0 {
				t.Error("it is remembered for ever")
			}
		})
	}
}
