// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

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
	"github.com/vtex/cleaner/controllers/plan"
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
func walkOnce(w *world, next machine, seed uint64) (map[plan.RequestKind]int, error) {
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
	asked := map[plan.RequestKind]int{}
	t.Run("walks", func(t *testing.T) {
		for name, scenario := range scenarios() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, &lifemodel.Model{Scenario: scenario})
				for seed := range walks {
					kinds, err := walkOnce(w, plan.Next, seed)
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
	others := []plan.RequestKind{plan.ClearRecord} // of Cleaners that stay
	for kind := plan.Idle; kind <= plan.GiveUp; kind++ {
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
			next: func(v plan.View, m *plan.Memory) plan.Request {
				req := plan.Next(v, m)
				if req.Kind == plan.Recheck {
					m.ConfirmedAt = v.Now
					return plan.Next(v, m)
				}
				return req
			},
		},
		"IgnoresSuspend": {
			reason:   "A suspended Cleaner must delete nothing.",
			scenario: "orders",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				v.Cleaner.Common().Suspend = false
				return plan.Next(v, m)
			},
		},
		"IgnoresEdits": {
			reason:   "An edit of what decides must stop the run.",
			scenario: "orders",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				if run := v.Cleaner.State().Run; run != nil {
					v.Decides = run.Decides
				}
				return plan.Next(v, m)
			},
		},
		"IgnoresTheDeletion": {
			reason:   "A deletion of the Cleaner must end the run.",
			scenario: "orders",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				if run := v.Cleaner.State().Run; run != nil && run.Result == "" {
					v.Cleaner.SetDeletionTimestamp(nil)
				}
				return plan.Next(v, m)
			},
		},
		"ActsOnFalse": {
			reason:   "A re-check that says no must stop the run.",
			scenario: "targets",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				m.Stop = ""
				return plan.Next(v, m)
			},
		},
		"DeletesItselfTooEarly": {
			reason:   "The Cleaner must stay until its event is delivered.",
			scenario: "sink",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				v.Delivered = true
				return plan.Next(v, m)
			},
		},
		"DoesNotLookBeforeAResult": {
			reason:   "What became of a row whose answer was lost must be looked at.",
			scenario: "targets",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				m.Looked = true
				return plan.Next(v, m)
			},
		},
		"CallsReplacedDone": {
			reason:   "A replaced object is no success.",
			scenario: "targets",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				for i := range m.Rows {
					if m.Rows[i].State == plan.RowReplaced {
						m.Rows[i].State = plan.RowGone
					}
				}
				return plan.Next(v, m)
			},
		},
		"LeavesAnUninstall": {
			reason:   "A release that is uninstalling must be finished before any result.",
			scenario: "release",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				if req := plan.Next(v, m); req.Kind != plan.FinishUninstall {
					return req
				}
				return plan.Request{Kind: plan.WriteResult, Result: v1alpha1.ResultPartial}
			},
		},
		"FinishesWhatOthersBegan": {
			reason:   "An uninstall that somebody else has begun must not be finished without a confirmation.",
			scenario: "release",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				if m.Release != nil {
					m.Release.Begun = true
				}
				return plan.Next(v, m)
			},
		},
		"DoesNotReviewTheAuthor": {
			reason:   "An uninstall must not go on for an author who may not do it any more.",
			scenario: "release-barred",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				req := plan.Next(v, m)
				if req.Kind == plan.ReviewAuthor {
					m.AuthorReviewed(nil, v.Now)
					return plan.Next(v, m)
				}
				return req
			},
		},
		"UninstallsAnUpgrade": {
			reason:   "A release that was upgraded must be left.",
			scenario: "release",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				if run := v.Cleaner.State().Run; m.Release != nil && run != nil && run.Helm != nil {
					m.Release.Revision, m.Release.UID = run.Helm.Revision, types.UID(run.Helm.UID)
				}
				return plan.Next(v, m)
			},
		},
		"GivesUpTooEarly": {
			reason:   "An undelivered event must hold a deleted Cleaner for the grace.",
			scenario: "orders",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				v.FinishGrace = 0
				return plan.Next(v, m)
			},
		},
		"TakesTheFinalizerFromAnOpenRun": {
			reason:   "Without the finalizer a deletion takes the run with it.",
			scenario: "targets",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				req := plan.Next(v, m)
				if req.Kind == plan.Act {
					return plan.Request{Kind: plan.RemoveFinalizer}
				}
				return req
			},
		},
		"NeverLetsGo": {
			reason:   "A Cleaner that has cleaned must go.",
			scenario: "targets",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				req := plan.Next(v, m)
				if req.Kind == plan.DeleteSelf {
					return plan.Request{Kind: plan.Idle, Until: v.Now.Add(time.Minute)}
				}
				return req
			},
		},
		"OverwritesUnsent": {
			reason:   "A run leaves status.run only when unsent is empty.",
			scenario: "sink",
			next: func(v plan.View, m *plan.Memory) plan.Request {
				if run := v.Cleaner.State().Run; run != nil && run.Result == v1alpha1.ResultPartial {
					return plan.Request{Kind: plan.MoveToUnsent}
				}
				return plan.Next(v, m)
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
				if _, sound := walkOnce(w, plan.Next, seed); sound != nil {
					t.Fatalf("the machine that is not broken fails too: %v", sound)
				}
				t.Logf("caught by %s", strings.SplitN(err.Error(), "\n", 2)[0])
				return
			}
			t.Errorf("\n%s\n%d walks caught nothing", tc.reason, walks)
		})
	}
}
