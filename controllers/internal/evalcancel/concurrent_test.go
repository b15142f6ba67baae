// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package evalcancel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// What is no Cleaner, and a Cleaner that nobody evaluates, ends no evaluation and is let through.
func TestEventsOfOthersAreLetThrough(t *testing.T) {
	e := &Evaluations{}
	watch := e.WatchCleaners()
	template := &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a"}}
	idle := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "idle"}}
	ctx, end := e.BeginEvaluation(t.Context(), types.NamespacedName{Namespace: "shop", Name: "a"}, &v1alpha1.Cleaner{})
	defer end()
	if !watch.Create(event.CreateEvent{Object: template}) || !watch.Update(event.UpdateEvent{ObjectNew: template}) || !watch.Delete(event.DeleteEvent{Object: template}) ||
		!watch.Create(event.CreateEvent{Object: idle}) || !watch.Delete(event.DeleteEvent{Object: idle}) || !watch.Generic(event.GenericEvent{Object: idle}) {
		t.Error("the predicate keeps an event back")
	}
	if ctx.Err() != nil {
		t.Errorf("an evaluation of another one ends: %v", context.Cause(ctx))
	}
}

// An evaluation that has ended is not blamed for what happens later, and does not take the next one of its Cleaner along.
func TestTheNextEvaluationOutlivesTheLast(t *testing.T) {
	key := types.NamespacedName{Name: "a"}
	c := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1", Generation: 1}}
	e := &Evaluations{}
	first, endFirst := e.BeginEvaluation(t.Context(), key, c)
	second, endSecond := e.BeginEvaluation(t.Context(), key, c)
	endFirst()
	if !errors.Is(context.Cause(first), context.Canceled) || second.Err() != nil {
		t.Errorf("the first ends with %v, the second with %v", context.Cause(first), context.Cause(second))
	}
	edited := c.DeepCopy()
	edited.Generation++
	e.CancelOutdated(edited)
	if !errors.Is(context.Cause(second), errChanged) {
		t.Errorf("the end of the first has the second go on: %v", context.Cause(second))
	}
	endSecond()
	endSecond() // to repeat it changes nothing
	if e.CancelOutdated(edited); len(e.running) > 0 {
		t.Errorf("%d evaluations are under way", len(e.running))
	}
}

// Many evaluate while others watch: each evaluation ends by its own Cleaner alone, and none is remembered.
func TestEvaluationsAreSafeForConcurrentUse(t *testing.T) {
	e := &Evaluations{}
	watch := e.WatchCleaners()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint(n)), Generation: 1}}
			for range 20 {
				ctx, end := e.BeginEvaluation(t.Context(), types.NamespacedName{Namespace: "shop", Name: c.Name}, c)
				watch.Update(event.UpdateEvent{ObjectNew: c})
				if ctx.Err() != nil {
					t.Errorf("%s ends by what happens to others: %v", c.Name, context.Cause(ctx))
				}
				watch.Delete(event.DeleteEvent{Object: c})
				if !errors.Is(context.Cause(ctx), errChanged) {
					t.Errorf("%s goes on: %v", c.Name, context.Cause(ctx))
				}
				end()
			}
		})
	}
	all.Wait()
	if len(e.running) > 0 {
		t.Errorf("%d evaluations are remembered", len(e.running))
	}
}
