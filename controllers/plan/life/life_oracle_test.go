// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/test/lifemodel"
)

func ctx() context.Context { return context.Background() }

// scenarios are the model's worlds with more going on than could be explored whole.
func scenarios() map[string]lifemodel.Scenario {
	out := map[string]lifemodel.Scenario{}
	for _, s := range lifemodel.Scenarios() {
		s.Acts, s.Crashes, s.Losses = 6, 2, 3
		out[s.Name] = s
	}
	return out
}

// walkOnce takes one walk, and counts what the machine asked for. The error has the seed and the trace.
func walkOnce(w *world, next machine, seed uint64) (map[life.RequestKind]int, error) {
	walk := newWalk(w, next, seed)
	err := walk.run()
	if err == nil || errors.Is(err, errBounds) {
		return walk.asked, nil
	}
	return walk.asked, fmt.Errorf("seed %d: %w\n%s", seed, err, strings.Join(walk.trace, "\n"))
}

// The real machine asks for nothing that the model does not allow, knows and records what the model does, and comes to
// an end. With CLEANER_LIFE_MODEL=whole it has to do so ten times as often.
func TestNextRefinesTheModel(t *testing.T) {
	walks := uint64(300)
	if os.Getenv("CLEANER_LIFE_MODEL") == "whole" {
		walks = 3000
	}
	var mu sync.Mutex
	asked := map[life.RequestKind]int{}
	t.Run("walks", func(t *testing.T) {
		for name, scenario := range scenarios() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, &lifemodel.Model{Scenario: scenario})
				for seed := range walks {
					kinds, err := walkOnce(w, life.Next, seed)
					if err != nil {
						t.Fatal(err)
					}
					mu.Lock()
					for kind, n := range kinds {
						asked[kind] += n
					}
					mu.Unlock()
				}
			})
		}
	})
	others := []life.RequestKind{ // of Cleaners that stay; where the walks always have one; and of a DELETE in two writes, which the model has in one
		life.ClearRecord, life.AskSlot, life.OpenAgain,
	}
	for kind := life.Idle; kind <= life.GiveUp; kind++ {
		if asked[kind] == 0 && !slices.Contains(others, kind) {
			t.Errorf("no walk came to %v", kind)
		}
	}
}

// A broken machine does not get through the walks: they are worth something.
func TestWalksCatchBrokenMachines(t *testing.T) {
	const walks = 3000
	cases := map[string]struct {
		reason   string
		scenario string
		next     machine
	}{
		"SkipsTheRecheck": {
			reason:   "A deed must not rest on a confirmation that is older than 10 s.",
			scenario: "targets",
			next: func(v life.View, m *life.Memory) life.Request {
				req := life.Next(v, m)
				if req.Kind == life.Recheck {
					m.ConfirmedAt = v.Now
					return life.Next(v, m)
				}
				return req
			},
		},
		"IgnoresSuspend": {
			reason:   "A suspended Cleaner must delete nothing.",
			scenario: "orders",
			next: func(v life.View, m *life.Memory) life.Request {
				v.Cleaner.Common().Suspend = false
				return life.Next(v, m)
			},
		},
		"IgnoresEdits": {
			reason:   "An edit of what decides must stop the run.",
			scenario: "orders",
			next: func(v life.View, m *life.Memory) life.Request {
				if run := v.Cleaner.State().Run; run != nil {
					v.Decides = run.Decides
				}
				return life.Next(v, m)
			},
		},
		"IgnoresTheDeletion": {
			reason:   "A deletion of the Cleaner must end the run.",
			scenario: "orders",
			next: func(v life.View, m *life.Memory) life.Request {
				if run := v.Cleaner.State().Run; run != nil && run.Result == "" {
					v.Cleaner.SetDeletionTimestamp(nil)
				}
				return life.Next(v, m)
			},
		},
		"ActsOnFalse": {
			reason:   "A re-check that says no must stop the run.",
			scenario: "targets",
			next: func(v life.View, m *life.Memory) life.Request {
				m.Stop = ""
				return life.Next(v, m)
			},
		},
		"DeletesItselfTooEarly": {
			reason:   "The Cleaner must stay until its event is delivered.",
			scenario: "sink",
			next: func(v life.View, m *life.Memory) life.Request {
				v.Delivered = true
				return life.Next(v, m)
			},
		},
		"DoesNotLookBeforeAResult": {
			reason:   "What became of a row whose answer was lost must be looked at.",
			scenario: "targets",
			next: func(v life.View, m *life.Memory) life.Request {
				m.RowsRead = true
				return life.Next(v, m)
			},
		},
		"CallsReplacedDone": {
			reason:   "A replaced object is no success.",
			scenario: "targets",
			next: func(v life.View, m *life.Memory) life.Request {
				for i := range m.Rows {
					if m.Rows[i].State == life.RowReplaced {
						m.Rows[i].State = life.RowGone
					}
				}
				return life.Next(v, m)
			},
		},
		"LeavesAnUninstall": {
			reason:   "A release that is uninstalling must be finished before any result.",
			scenario: "release",
			next: func(v life.View, m *life.Memory) life.Request {
				if req := life.Next(v, m); req.Kind != life.FinishUninstall {
					return req
				}
				return life.Request{Kind: life.WriteResult, Result: v1alpha1.ResultPartial}
			},
		},
		"FinishesWhatOthersBegan": {
			reason:   "An uninstall that somebody else has begun must not be finished without a confirmation.",
			scenario: "release",
			next: func(v life.View, m *life.Memory) life.Request {
				if m.Release != nil {
					m.Release.Begun = true
				}
				return life.Next(v, m)
			},
		},
		"DoesNotReviewTheAuthor": {
			reason:   "An uninstall must not go on for an author who may not do it any more.",
			scenario: "release-barred",
			next: func(v life.View, m *life.Memory) life.Request {
				req := life.Next(v, m)
				if req.Kind == life.ReviewAuthor {
					m.RecordReview(nil, v.Now)
					return life.Next(v, m)
				}
				return req
			},
		},
		"UninstallsAnUpgrade": {
			reason:   "A release that was upgraded must be left.",
			scenario: "release",
			next: func(v life.View, m *life.Memory) life.Request {
				if run := v.Cleaner.State().Run; m.Release != nil && run != nil && run.Helm != nil {
					m.Release.Revision, m.Release.UID = run.Helm.Revision, types.UID(run.Helm.UID)
				}
				return life.Next(v, m)
			},
		},
		"GivesUpTooEarly": {
			reason:   "An undelivered event must hold a deleted Cleaner for the grace.",
			scenario: "orders",
			next: func(v life.View, m *life.Memory) life.Request {
				v.FinishGrace = 0
				return life.Next(v, m)
			},
		},
		"TakesTheFinalizerFromAnOpenRun": {
			reason:   "Without the finalizer a deletion takes the run with it.",
			scenario: "targets",
			next: func(v life.View, m *life.Memory) life.Request {
				req := life.Next(v, m)
				if req.Kind == life.Act {
					return life.Request{Kind: life.RemoveFinalizer}
				}
				return req
			},
		},
		"NeverLetsGo": {
			reason:   "A Cleaner that has cleaned must go.",
			scenario: "targets",
			next: func(v life.View, m *life.Memory) life.Request {
				req := life.Next(v, m)
				if req.Kind == life.DeleteSelf {
					return life.Request{Kind: life.Idle, Until: v.Now.Add(time.Minute)}
				}
				return req
			},
		},
		"OverwritesUnsent": {
			reason:   "A run leaves status.run only when unsent is empty.",
			scenario: "sink",
			next: func(v life.View, m *life.Memory) life.Request {
				if run := v.Cleaner.State().Run; run != nil && run.Result == v1alpha1.ResultPartial {
					return life.Request{Kind: life.MoveToUnsent}
				}
				return life.Next(v, m)
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, &lifemodel.Model{Scenario: scenarios()[tc.scenario]})
			for seed := range uint64(walks) {
				_, err := walkOnce(w, tc.next, seed)
				if err == nil {
					continue
				}
				if _, sound := walkOnce(w, life.Next, seed); sound != nil {
					t.Fatalf("the machine that is not broken fails too: %v", sound)
				}
				t.Logf("caught by %s", strings.SplitN(err.Error(), "\n", 2)[0])
				return
			}
			t.Errorf("\n%s\n%d walks caught nothing", tc.reason, walks)
		})
	}
}
