// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/internal/nameturns"
	"github.com/vtex/cleaner/test/queries"
)

// newScopeOf is one that a Cleaner of a namespace wants, and that the operator may not watch.
func newScopeOf(p *placement, r *resource, k scopeKey, namespace string) *scope {
	s := p.newScope(r, k, nil)
	s.addWant(&want{owner: Owner{Namespace: namespace, Name: "c"}, query: queries.New("Pod", queries.In(k.namespace), queries.Named(k.name))})
	s.access = denied
	return s
}

// TestNamesTakeTurnsToBeAskedFor has Cleaners of two namespaces name objects that the operator may not watch, and counts for ten minutes
// how often it is asked whether it may.
func TestNamesTakeTurnsToBeAskedFor(t *testing.T) {
	const minutes = 10
	for name, tc := range map[string]struct{ names, often, seldom int }{ // how often each is asked for
		"Few":  {20, 2 * minutes, 2 * minutes},
		"Many": {2000, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			e, clock, _, s := still(t)
			placementOf(e).names = nameturns.New[*scope](30 * time.Second)
			e.retryEvery = 30 * time.Second
			s.access = denied
			scopes, asked := []*scope{}, map[*scope]int{}
			for n := range tc.names {
				scopes = append(scopes, newScopeOf(placementOf(e), s.resource, scopeKey{namespace: "a", name: fmt.Sprint("p", n)}, "a"))
			}
			scopes = append(scopes, newScopeOf(placementOf(e), s.resource, scopeKey{namespace: "b", name: "p"}, "b"))
			wide := newScopeOf(placementOf(e), s.resource, scopeKey{namespace: "a"}, "a")
			of := 0
			for range minutes * 60 {
				for _, s := range append(scopes, wide) {
					if !s.alarm.Due.After(clock.Now()) && placementOf(e).mayCheckAccess(s) {
						asked[s]++
						placementOf(e).recordAccess(s, []string{"list", "watch"}, nil)
						if s.payers[Owner{Namespace: "a", Name: "c"}] > 0 && s != wide {
							of++
						}
					}
				}
				clock.Step(time.Second)
			}
			if most := nameturns.AtOnce + minutes*60; of > most {
				t.Errorf("%d names are asked for %d times, more than %d", tc.names, of, most)
			}
			for n, s := range scopes[:tc.names] {
				if asked[s] > tc.often || asked[s] < tc.seldom {
					t.Fatalf("name %d of %d is asked for %d times, want %d to %d", n, tc.names, asked[s], tc.seldom, tc.often)
				}
			}
			if other := asked[scopes[tc.names]]; other != 2*minutes || asked[wide] != 2*minutes {
				t.Errorf("a name of another namespace is asked for %d times, and the namespace %d, want %d", other, asked[wide], 2*minutes)
			}
		})
	}
}

// Objects that are watched alone because few are named need no turn, as their namespaces need none.
func TestOneOfFewNeedsNoTurn(t *testing.T) {
	e, _, _, s := still(t)
	p := placementOf(e)
	p.few, p.fewNames, s.access = 8, 1, unneeded
	for n := range 2 * nameturns.AtOnce {
		w := newWant(Owner{Name: fmt.Sprint("c", n)}, &Interest{Query: queries.New("Secret", queries.In(fmt.Sprint("n", n)), queries.Named("s"))}, false)
		r := *s.resource
		r.GVR = secrets()
		w.kind = &kind{resource: &r, wants: map[*want]struct{}{w: {}}}
		p.placeWant(w)
		if len(w.scopes) != 2 || !p.mayCheckAccess(w.scopes[1]) {
			t.Fatalf("name %d, of %d scopes, waits", n, len(w.scopes))
		}
	}
}

// TestWhoLeavesTakesNoTurn shows that names that were named for a moment delay nobody who names one later.
func TestWhoLeavesTakesNoTurn(t *testing.T) {
	e, clock, _, s := still(t)
	p := placementOf(e)
	p.names = nameturns.New[*scope](30 * time.Second)
	e.retryEvery = 30 * time.Second
	for edit := range 180 { // once a second, each time 64 names
		for n := range 64 {
			w := &want{owner: owner("c"), scopes: []*scope{p.newScope(s.resource, scopeKey{namespace: "a", name: fmt.Sprintf("p-%d-%d", edit, n)}, nil)}}
			x := w.scopes[0]
			x.addWant(w)
			p.mayCheckAccess(x)
			p.detachFromScopes(w, nil)
		}
		clock.Step(time.Second)
	}
	victim := newScopeOf(p, s.resource, scopeKey{namespace: "a", name: "victim"}, "a")
	for second := 0; !p.mayCheckAccess(victim); second++ {
		if second > nameturns.AtOnce {
			t.Fatal("it waits for names that are gone")
		}
		clock.Step(time.Second)
	}
}

// TestANameIsAskedForByWhoeverHasATurn has Cleaners of a namespace name hundreds of objects before somebody else names one of them, who
// does not wait for the others.
func TestANameIsAskedForByWhoeverHasATurn(t *testing.T) {
	const names = 300
	for name, tc := range map[string]struct {
		namespaced bool
		first      string // whose Cleaners name all of them
		late       Owner  // names the last one
		atMost     int    // seconds that it waits
	}{
		"ClusterCleaner":              {true, "a", Owner{Name: "c"}, 0},
		"CleanerOfAnotherNamespace":   {false, "a", Owner{Namespace: "b", Name: "c"}, 0},
		"CleanerAfterAClusterCleaner": {true, "", Owner{Namespace: "a", Name: "c"}, 0},
		"CleanerOfTheSameNamespace":   {true, "a", Owner{Namespace: "a", Name: "d"}, 2},
		"TheSameCleanerWaits":         {true, "a", Owner{Namespace: "a", Name: "c"}, names},
	} {
		t.Run(name, func(t *testing.T) {
			e, clock, all, s := still(t)
			p := placementOf(e)
			p.names = nameturns.New[*scope](30 * time.Second)
			r := s.resource
			r.Namespaced = tc.namespaced
			s.access = denied
			above := scopeKey{}
			if tc.namespaced {
				above = scopeKey{namespace: "a"}
				p.repositionWants(s)
				r.scopes[above].access = denied
			}
			want := func(owner Owner, n int) *want {
				w := newWant(owner, &Interest{Query: queries.New("Pod", queries.Named(fmt.Sprint("p", n)))}, false)
				w.kind = all.kind
				p.placeWant(w)
				return w
			}
			ask := func(n int) bool {
				x := r.scopes[scopeKey{namespace: above.namespace, name: fmt.Sprint("p", n)}]
				return !x.alarm.Due.After(clock.Now()) && p.mayCheckAccess(x)
			}
			for n := range names {
				want(Owner{Namespace: tc.first, Name: "c"}, n)
				ask(n)
			}
			want(tc.late, names-1)
			waits := 0
			for ; !ask(names - 1); waits++ {
				if waits > names {
					t.Fatal("it is never asked for")
				}
				clock.Step(time.Second)
				for n := range names - 1 {
					ask(n)
				}
			}
			if waits > tc.atMost || tc.atMost == names && waits < names/2 {
				t.Errorf("it waits for %d s, want %d", waits, tc.atMost)
			}
		})
	}
}

// TestWhoDropsANameLeavesItsLine shows that a name stands in line for those Cleaners only that name it now.
func TestWhoDropsANameLeavesItsLine(t *testing.T) {
	e, clock, _, s := still(t)
	p := placementOf(e)
	p.names = nameturns.New[*scope](30 * time.Second)
	for _, namespace := range []string{"a", "b"} {
		for n := range nameturns.AtOnce {
			if !p.mayCheckAccess(newScopeOf(p, s.resource, scopeKey{namespace: namespace, name: fmt.Sprint(n)}, namespace)) {
				t.Fatalf("name %d of %s waits", n, namespace)
			}
		}
	}
	x := newScopeOf(p, s.resource, scopeKey{namespace: "a", name: "p"}, "b")
	first := &want{owner: owner("c"), scopes: []*scope{x}}
	if !x.addWant(first) || x.addWant(first) || !x.addWant(&want{owner: owner("d"), scopes: []*scope{x}}) {
		t.Error("only the first want of a Cleaner is its first one")
	}
	if p.mayCheckAccess(x) || !x.inLine {
		t.Fatal("it is asked for before its turn")
	}
	p.detachFromScopes(first, nil)
	clock.Step(time.Second)
	if !p.mayCheckAccess(x) {
		t.Error("it is its turn in the other line")
	}
	if x.addWant(first); x.inLine {
		t.Error("what was asked for just now stands in line again")
	}
}
