// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/passreads"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// taking is a Reader whose lists of Pods take memory.
func taking(from snapshot.Reader, bytes int64) snapshot.Reader {
	return reads(func(ctx context.Context, q snapshot.Query) observed.Target {
		if q.Kind == "Pod" && q.Name == "" {
			if err := snapshot.TakeBytes(ctx, bytes); err != nil {
				return observed.Target{State: observed.Failed, Detail: err.Error()}
			}
		}
		return from.Read(ctx, q)
	})
}

// What a pass reads counts as taken by it, of the watches and of the API server: beyond a little it waits for its turn, does nothing until
// then, and keeps nothing of it for the next pass.
func TestReadsWaitForTheirTurn(t *testing.T) {
	for name, take := range map[string]func(r *rig){
		"Watched": func(r *rig) { r.own.Watched = taking(r.own.Watched, memoryquota.Small+1) },
		"Live":    func(r *rig) { r.own.Live = taking(r.own.Live, memoryquota.Small+1) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, once(), aPod("a", "Succeeded"))
			take(r)
			var called []types.NamespacedName
			r.turns = memoryquota.NewTurns(r.clock, func(key types.NamespacedName) { called = append(called, key) })
			other := r.turns.BeginPass(types.NamespacedName{Namespace: "other", Name: "c"})
			if !other.HoldBytes(2 * memoryquota.Small) {
				t.Fatal("nobody may take much")
			}
			if result := r.pass(); result.RequeueAfter != memoryRetry || r.cleaner().Status.LastEvaluation != nil || r.cleaner().Status.Run != nil {
				t.Errorf("it comes back in %s, and says %+v", result.RequeueAfter, r.cleaner().Status)
			}
			same(t, "requests", nil, r.pods.took())
			other.EndPass()
			if len(called) != 1 || called[0] != r.key() {
				t.Fatalf("%v was called", called)
			}
			after(memoryRetry)(r)
			r.pass()
			same(t, "requests", []string{"delete a"}, r.pods.took())
			if r.memories.memoryOf(r.key()).judged != nil {
				t.Error("what was read is kept after the turn")
			}
		})
	}
}

// No pass has more memory for what it reads than the most, also if it has its turn: it says what to write, and does nothing.
func TestReadsBeyondTheMost(t *testing.T) {
	r := newRig(t, once(), aPod("a", "Succeeded"))
	r.own.Live = taking(r.own.Live, memoryquota.Most+1)
	r.pass()
	e := r.cleaner().Status.LastEvaluation
	if e == nil || e.Reason != v1alpha1.ReasonReadFailed || !strings.Contains(e.Message, "more than 256 MiB") || !strings.Contains(e.Message, "select fewer objects") {
		t.Errorf("its status says %+v", e)
	}
	same(t, "requests", nil, r.pods.took())
}

// A live read ends with the pass, whatever the API server does, and the status says that there was no time.
func TestLiveReadsEndWithThePass(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": confirming(done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}))} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c, aPod("a", "Succeeded"))
			live, began, ended := r.own.Live, make(chan struct{}, 100), make(chan ctrl.Result)
			r.own.Live = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
				if q.Kind != "Pod" {
					return live.Read(ctx, q)
				}
				began <- struct{}{}
				<-ctx.Done() // an API server that does not answer
				return observed.Target{State: observed.Failed, Detail: ctx.Err().Error()}
			})
			go func() {
				result, err := r.Reconcile(t.Context(), r.request())
				if err != nil {
					t.Error(err)
				}
				ended <- result
			}()
			<-began
			r.clock.Step(passLimit)
			<-ended
			if e := r.cleaner().Status.LastEvaluation; e == nil || e.Reason != v1alpha1.ReasonUnconfirmed || !strings.Contains(e.Message, passreads.SlowReads) {
				t.Errorf("its status says %+v", e)
			}
			same(t, "requests", nil, r.pods.took())
		})
	}
}
