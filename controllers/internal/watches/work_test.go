// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// newWatching returns an Engine without goroutines, that has read all Pods of the cluster.
func newWatching(tb testing.TB) (*Engine, *store) {
	tb.Helper()
	e, err := New(Options{Config: &rest.Config{}, Clock: clock.RealClock{}}) // which asks nothing
	if err != nil {
		tb.Fatal(err)
	}
	placementOf(e).few, placementOf(e).fewNames = 0, 0 // all namespaces are watched for any want
	e.SetInterests(owner("first"), interests(queries.New("Pod", queries.Named("first"))))
	e.mu.Lock()
	e.catalog.applyFinding(e.catalog.kinds[kindKey{version: "v1", kind: "pod"}], finding{
		Resource: served.Resource{GVR: apiserver.Pods, Kind: "Pod", Namespaced: true, Watchable: true}, state: observed.Complete,
		fields: snapshot.BuiltinFieldLabels(apiserver.Pods.GroupResource()), allFields: true,
	})
	for _, r := range e.catalog.resources {
		for _, s := range r.scopes {
			placementOf(e).recordAccess(s, nil, nil)
			e.unlockAndWake()
			feedsOf(e).replaceObjects(s.full, nil, "")
			return e, &store{feeds: feedsOf(e), informer: s.full}
		}
	}
	tb.Fatal("nothing is watched")
	return nil, nil
}

func placementOf(e *Engine) *placement { return e.catalog.placement }

func pressureOf(e *Engine) pressure { return pressure{placementOf(e)} }

func feedsOf(e *Engine) *feeds { return e.catalog.placement.feeds }

// putPod tells of a Pod, in a version that was not there before.
func putPod(tb testing.TB, s *store, version int, l map[string]any) {
	tb.Helper()
	if err := s.Update(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": "a", "name": "p", "labels": l, "resourceVersion": fmt.Sprint(version)},
	}}); err != nil {
		tb.Fatal(err)
	}
}

// matchAll has all changes matched, and returns the names of whom they concern.
func matchAll(e *Engine) []string {
	for e.matcher.work() {
	}
	woken, _ := e.wakeups.TakeOwners()
	var names []string
	for _, o := range woken {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

// someValues are so many values of a label, none of which is "other".
func someValues(n int) []string {
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprint("v", n-i)
	}
	return values
}

// countedSelector counts the values that are looked at, in all and while somebody holds the lock.
type countedSelector struct {
	labels.Selector
	engine         *Engine
	values         int
	looked, locked *int
}

func (s countedSelector) count() {
	*s.looked += s.values
	if !s.engine.mu.TryLock() {
		*s.locked += s.values
		return
	}
	s.engine.mu.Unlock()
}

func (s countedSelector) Matches(l labels.Labels) bool { s.count(); return s.Selector.Matches(l) }
func (s countedSelector) String() string               { s.count(); return s.Selector.String() }
func (s countedSelector) Requirements() (labels.Requirements, bool) {
	s.count()
	return s.Selector.Requirements()
}

// What a user makes as long as there is room for is looked at before the lock is taken: as long as it is held, nobody is told of
// anything.
func TestNoValueIsLookedAtUnderTheLock(t *testing.T) {
	const passes, events = 5, 50
	for _, values := range []int{40, 4000} {
		looked, locked := 0, 0
		e, s := newWatching(t)
		count := func(q *snapshot.Query) {
			q.Labels = countedSelector{Selector: q.Labels, engine: e, values: values, looked: &looked, locked: &locked}
		}
		among := strings.Join(someValues(values), ",")
		is, isNot := queries.New("Pod", queries.Labelled("a in ("+among+")"), count), queries.New("Pod", queries.Labelled("a notin ("+among+")"), count)
		namespaces := queries.New("Pod", queries.ChosenBy("tier in ("+among+")"))
		namespaces.Namespaces.Labels = countedSelector{Selector: namespaces.Namespaces.Labels, engine: e, values: values, looked: &looked, locked: &locked}
		for range passes {
			e.SetInterests(owner("c"), interests(is, isNot))
			e.SetInterests(platform, interests(namespaces))
			e.Read(t.Context(), is)
			e.Read(t.Context(), namespaces)
		}
		if looked == 0 {
			t.Fatal("nothing was counted")
		}
		before := looked
		for n := range events {
			putPod(t, s, n+1, map[string]any{"a": []string{"v1", "other"}[n%2]})
			matchAll(e)
		}
		if looked != before {
			t.Errorf("%d values: %d were looked at for %d events", values, looked-before, events)
		}
		if locked != 0 {
			t.Errorf("%d values: %d were looked at under the lock", values, locked)
		}
	}
}

// A selector of many values finds exactly what one finds that compares each of them.
func TestManyValuesWake(t *testing.T) {
	e, s := newWatching(t)
	among := strings.Join(someValues(100), ",")
	e.SetInterests(owner("is"), interests(queries.New("Pod", queries.Labelled("a in ("+among+"),b"))))
	e.SetInterests(owner("is-not"), interests(queries.New("Pod", queries.Labelled("a notin ("+among+")"))))
	matchAll(e) // what is told of the first list
	version := 0
	for _, tc := range []struct {
		labels map[string]any
		want   string
	}{
		{map[string]any{"a": "v1", "b": ""}, "is"},
		{map[string]any{"a": "v100", "b": "x"}, "is"},
		{map[string]any{"a": "v50"}, "is"}, // it ceases to match
		{map[string]any{"a": "v51"}, ""},
		{map[string]any{"a": "v101", "b": ""}, "is-not"},
		{map[string]any{"b": ""}, "is-not"},
	} {
		version++
		o := podOf("a", "p", map[string]string{})
		for k, v := range tc.labels {
			o.Labels[k] = v.(string)
		}
		o.ResourceVersion = fmt.Sprint(version)
		e.mu.Lock()
		feedsOf(e).storeObject(s.informer, o)
		e.mu.Unlock()
		if got := strings.Join(matchAll(e), " "); got != tc.want {
			t.Errorf("%v: woken are %q, want %q", tc.labels, got, tc.want)
		}
	}
}

// selecting is what a target with so many values asks for.
func selecting(b *testing.B, operator metav1.LabelSelectorOperator, values int) snapshot.Query {
	b.Helper()
	q, err := snapshot.NewQuery("a", &v1alpha1.ClusterTarget{Name: "pods", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{
		Version: "v1", Kind: "Pod", MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: operator, Values: someValues(values)}},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	return q
}

// BenchmarkEventOfSelector is one event for ten Cleaners that select by so many values of a label.
func BenchmarkEventOfSelector(b *testing.B) {
	for _, operator := range []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn} {
		for _, values := range []int{1, 10, 1000, 36_000} {
			b.Run(fmt.Sprintf("%s/values=%d", operator, values), func(b *testing.B) {
				e, s := newWatching(b)
				for n := range 10 {
					e.SetInterests(owner(fmt.Sprint(n)), interests(selecting(b, operator, values)))
				}
				version := 0
				for b.Loop() {
					version++
					putPod(b, s, version, map[string]any{"a": "other"})
					matchAll(e)
				}
			})
		}
	}
}

// BenchmarkPassOfSelector declares what a Cleaner wants that wants the same as before.
func BenchmarkPassOfSelector(b *testing.B) {
	for _, values := range []int{1, 10, 1000, 36_000} {
		b.Run(fmt.Sprintf("values=%d", values), func(b *testing.B) {
			e, _ := newWatching(b)
			wants := interests(selecting(b, metav1.LabelSelectorOpNotIn, values))
			for b.Loop() {
				e.SetInterests(owner("c"), wants)
			}
		})
	}
}
