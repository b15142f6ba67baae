// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// still is an Engine that does not run, with a want of all Pods of namespace a on the scope of the cluster.
func still(t *testing.T) (*Engine, *clocktesting.FakeClock, *want, *scope) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	e, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Clock: clock, RetryEvery: retry})
	if err != nil {
		t.Fatal(err)
	}
	r := &resource{Resource: served.Resource{GVR: apiserver.Pods, Kind: "Pod", Namespaced: true, Watchable: true}, kinds: map[*kind]struct{}{}, scopes: map[scopeKey]*scope{}, fields: snapshot.BuiltinFieldLabels(apiserver.Pods.GroupResource()), allFields: true}
	w := newWant(owner("c"), &Interest{Query: queries.New("Pod")}, false)
	w.kind = &kind{key: kindKeyOf(&w.query), wants: map[*want]struct{}{w: {}}, state: observed.Complete, resource: r}
	e.catalog.kinds[w.kind.key] = w.kind
	placementOf(e).few, placementOf(e).fewNames = 0, 0 // it is watched in all namespaces for any want
	placementOf(e).placeWant(w)
	return e, clock, w, r.scopes[scopeKey{}]
}

// TestAWantThatIsPlacedAnewWakes shows that an owner looks again when what it wants comes to a scope that is read already: what
// happened there before was not told to it.
func TestAWantThatIsPlacedAnewWakes(t *testing.T) {
	e, _, w, s := still(t)
	s.access = allowed
	feedsOf(e).ensureInformer(s, true)
	s.full.synced, w.reportedState, w.lost = true, observed.Complete, e.clock.Now()
	placementOf(e).repositionWants(s)
	if woken, _ := e.wakeups.TakeOwners(); !slices.Equal(woken, []Owner{w.owner}) || w.reportedState != observed.Complete {
		t.Errorf("it wakes %v, and has told %v", woken, w.reportedState)
	}
	e.answers.reportState(w)
	if woken, _ := e.wakeups.TakeOwners(); len(woken) > 0 {
		t.Errorf("without any news it wakes %v", woken)
	}
}

// TestMetadataAnswersNoWholeObjects shows whom an informer of metadata answers, and what is known for those who want whole objects until these
// are read.
func TestMetadataAnswersNoWholeObjects(t *testing.T) {
	e, _, _, s := still(t)
	s.access = allowed
	byField := queries.New("Pod", queries.MetadataOnly)
	byField.Fields = fields.OneTermEqualSelector("spec.nodeName", "n")
	feedsOf(e).ensureInformer(s, false)
	s.meta.synced = true
	check := func(when string, metadata, whole observed.TargetState) {
		t.Helper()
		for name, tc := range map[string]struct {
			q    snapshot.Query
			want observed.TargetState
		}{
			"metadata": {queries.New("Pod", queries.MetadataOnly), metadata}, "objects": {queries.New("Pod"), whole}, "metadata by a field": {byField, whole},
		} {
			if got := s.resource.checkCoverageIn(&tc.q, "").state; got != tc.want {
				t.Errorf("%s, who wants %s is told %v, want %v", when, name, got, tc.want)
			}
		}
	}
	check("with metadata", observed.Complete, observed.Unsynced)
	feedsOf(e).ensureInformer(s, true)
	check("while the objects are read", observed.Complete, observed.Unsynced)
	s.full.synced = true
	check("with the objects", observed.Complete, observed.Complete)
}

// TestAccessIsAskedAgain shows when what the operator may do with a scope is asked again, and what counts meanwhile.
func TestAccessIsAskedAgain(t *testing.T) {
	away := errors.New("away")
	for name, tc := range map[string]struct {
		before  access
		missing []string
		err     error
		want    access
		detail  string
		again   bool
	}{
		"Allowed":         {unchecked, nil, nil, allowed, "", false},
		"AllowedAgain":    {denied, nil, nil, opening, "", false},
		"Denied":          {unchecked, []string{"list", "watch"}, nil, denied, "list and watch", true},
		"DeniedStill":     {denied, []string{"watch"}, nil, denied, "watch", true},
		"Uncheckable":     {unchecked, nil, away, uncheckable, "away", true},
		"AllowedAndAway":  {allowed, nil, away, uncheckable, "away", true},
		"DeniedAndAway":   {denied, nil, away, denied, "", true},
		"CheckableAgain":  {uncheckable, nil, nil, allowed, "", false},
		"DeniedAfterAway": {uncheckable, []string{"list"}, nil, denied, "list", true},
	} {
		t.Run(name, func(t *testing.T) {
			e, clock, _, s := still(t)
			s.access, s.alarm.Due = tc.before, clock.Now()
			placementOf(e).recordAccess(s, tc.missing, tc.err)
			if s.access != tc.want || s.detail != tc.detail || s.alarm.Due.After(clock.Now()) != tc.again || s.alarm.Due.IsZero() == tc.again {
				t.Errorf("it is %d (%s), and asked again at %s", s.access, s.detail, s.alarm.Due)
			}
		})
	}
}

// What narrower scopes serve is asked for less and less often at a wider one, and soon again once they do not.
func TestServedAccessIsAskedSeldom(t *testing.T) {
	e, clock, w, s := still(t)
	place := placementOf(e)
	deny := func(s *scope) time.Duration {
		place.recordAccess(s, []string{"list", "watch"}, nil)
		return s.alarm.Due.Sub(clock.Now())
	}
	deny(s)
	narrow := w.kind.resource.scopes[scopeKey{namespace: "a"}]
	if got := deny(narrow); got != retry {
		t.Errorf("what nothing serves is asked for again after %s", got)
	}
	if got := s.alarm.Due.Sub(clock.Now()); got != retry {
		t.Errorf("with nothing that serves it, the wide one is asked for again after %s", got)
	}
	if got := deny(s); got != retry {
		t.Errorf("and then after %s", got)
	}
	place.recordAccess(narrow, nil, nil)
	for _, want := range []time.Duration{2, 4, 8, 16, 20, 20} {
		if got := deny(s); got != want*retry {
			t.Errorf("with a narrower one that serves it, it is asked for again after %s, want %s", got, want*retry)
		}
	}
	place.markDenied(narrow)
	if got := s.alarm.Due.Sub(clock.Now()); got != retry {
		t.Errorf("when the narrower one is lost, it is asked for after %s", got)
	}
	place.recordAccess(narrow, nil, nil)
	if got := deny(s); got != 2*retry {
		t.Errorf("the count goes on: it is asked for again after %s", got)
	}
	other := newWant(owner("d"), &Interest{Query: queries.New("Pod", queries.In(""))}, false)
	other.kind = w.kind
	w.kind.wants[other] = struct{}{}
	place.placeWant(other)
	if got := s.alarm.Due.Sub(clock.Now()); got != retry {
		t.Errorf("when a Cleaner comes that needs it, it is asked for after %s", got)
	}
}

// After a change of RBAC rules, what is forbidden and needed is asked for at once.
func TestWhatIsForbiddenIsAskedForAfterAChangeOfRights(t *testing.T) {
	e, clock, w, s := still(t)
	e.catalog.resources[s.resource.Resource] = s.resource
	p := placementOf(e)
	p.recordAccess(s, []string{"list"}, nil)
	narrow := w.kind.resource.scopes[scopeKey{namespace: "a"}]
	p.recordAccess(narrow, []string{"list"}, nil)
	e.noteRights()
	if narrow.alarm.Due.After(clock.Now()) || s.alarm.Due.After(clock.Now()) {
		t.Errorf("it is asked for at %s and %s", narrow.alarm.Due, s.alarm.Due)
	}
	p.recordAccess(narrow, nil, nil)
	narrow.full.synced, narrow.full.keeps = true, narrow.full.listing
	p.recordAccess(s, []string{"list"}, nil)
	due := s.alarm.Due
	e.noteRights()
	if !s.alarm.Due.Equal(due) {
		t.Error("what no want needs is asked for at once")
	}
}

// TestEachVersionWakes changes an object while its versions become longer: they have no order as texts.
func TestEachVersionWakes(t *testing.T) {
	s := apiserver.New(t)
	s.SetVersion(8)
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil)
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(queries.New("Pod"))) })
	for i := range 3 { // at the versions 10, 11 and 12, after 9
		r.wakes(owner("c"), fmt.Sprint("change ", i), func() { s.Put(apiserver.Pods, "a", "p", map[string]string{"change": fmt.Sprint(i)}) })
	}
}
