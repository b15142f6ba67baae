// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package evalcancel knows which evaluations are under way, and ends those of Cleaners that have changed. It evaluates nothing.
package evalcancel

import (
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// errChanged is why an evaluation is interrupted when the Cleaner is no longer the one that it began with.
var errChanged = errors.New("the Cleaner was changed")

// Evaluations are those under way. The watch of Cleaners sees a change while Reconcile is still busy with what was there
// before: it then ends the evaluation, whose answer is of no use.
type Evaluations struct {
	mu      sync.Mutex
	running map[types.NamespacedName]*evaluation
}

type evaluation struct {
	uid        types.UID
	generation int64
	deleted    bool
	cancel     context.CancelCauseFunc
}

// BeginEvaluation gives a context for an evaluation of this Cleaner. Call end when it is over.
func (e *Evaluations) BeginEvaluation(ctx context.Context, key types.NamespacedName, c v1alpha1.Owner) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	mine := &evaluation{uid: c.GetUID(), generation: c.GetGeneration(), deleted: c.GetDeletionTimestamp() != nil, cancel: cancel}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		e.running = map[types.NamespacedName]*evaluation{}
	}
	e.running[key] = mine
	return ctx, func() {
		cancel(nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.running[key] == mine {
			delete(e.running, key)
		}
	}
}

// CancelOutdated ends the evaluation of a Cleaner that has another spec now, as by an edit or by suspend, or that is deleted.
func (e *Evaluations) CancelOutdated(c v1alpha1.Owner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	running := e.running[types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}]
	if running == nil {
		return
	}
	if c.GetUID() != running.uid || c.GetGeneration() > running.generation || c.GetDeletionTimestamp() != nil && !running.deleted {
		running.cancel(errChanged)
	}
}

// cancelGone ends the evaluation of a Cleaner that is gone.
func (e *Evaluations) cancelGone(c v1alpha1.Owner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if running := e.running[types.NamespacedName{Namespace: c.GetNamespace(), Name: c.GetName()}]; running != nil {
		running.cancel(errChanged)
	}
}

// WatchCleaners is a predicate that lets everything through, and ends evaluations on the way.
func (e *Evaluations) WatchCleaners() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(created event.CreateEvent) bool {
			if c, ok := created.Object.(v1alpha1.Owner); ok {
				e.CancelOutdated(c)
			}
			return true
		},
		UpdateFunc: func(updated event.UpdateEvent) bool {
			if c, ok := updated.ObjectNew.(v1alpha1.Owner); ok {
				e.CancelOutdated(c)
			}
			return true
		},
		DeleteFunc: func(deleted event.DeleteEvent) bool {
			if c, ok := deleted.Object.(v1alpha1.Owner); ok {
				e.cancelGone(c)
			}
			return true
		},
	}
}

// WakesCleaner lets through what can change what a Cleaner does: not a status that is there for people.
func WakesCleaner() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(v1alpha1.Owner)
		if !ok {
			return true
		}
		after, ok := e.ObjectNew.(v1alpha1.Owner)
		if !ok {
			return true
		}
		deletedBefore, deletedAfter := before.GetDeletionTimestamp(), after.GetDeletionTimestamp()
		return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
			before.GetAnnotations()[v1alpha1.AnnotationRequestedAt] != after.GetAnnotations()[v1alpha1.AnnotationRequestedAt] ||
			len(before.GetFinalizers()) != len(after.GetFinalizers()) || !deletedBefore.Equal(deletedAfter)
	}}
}
