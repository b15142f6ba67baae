// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// readerFunc is a Reader that is a function.
type readerFunc func(Query) observed.Target

func (f readerFunc) Read(_ context.Context, q Query) observed.Target { return f(q) }

// Each target is read, in the order of the spec. One that cannot be asked for is not read, and fails alone.
func TestReadTargets(t *testing.T) {
	broken := []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Sometimes"}}
	spec := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{*target(), *target(kind("Node")), *target(fielded("a=b=c=")), *target(func(r *v1alpha1.ClusterReference) { r.MatchExpressions = broken }), *target(kind("Job"))}}
	spec.Targets[1].IncludeWhenEvaluating = new(false)
	var asked []string
	got := ReadTargets(t.Context(), readerFunc(func(q Query) observed.Target {
		if asked = append(asked, q.Kind); q.MetadataOnly != (q.Kind == "Node") {
			t.Errorf("of %s only metadata is read: %t", q.Kind, q.MetadataOnly)
		}
		return observed.Target{State: observed.Complete, Detail: q.Namespace + "/" + q.Kind}
	}), "shop", spec)
	var details []string
	for _, s := range got {
		details = append(details, s.State.String()+" "+s.Detail)
	}
	want := []string{"Complete shop/Pod", "Complete shop/Node", "Failed cannot read the field selector of target \"pods\"", "Failed cannot read the label selector of target \"pods\"", "Complete shop/Job"}
	if !slices.EqualFunc(want, details, func(want, got string) bool { return strings.HasPrefix(got, want) }) {
		t.Errorf("got %q, want %q", details, want)
	}
	if diff := cmp.Diff([]string{"Pod", "Node", "Job"}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// A confirmation reads what expressions see and what is deleted, each for its own target, and no more at a time than it may.
func TestReadForConfirmation(t *testing.T) {
	spec := &v1alpha1.Work{}
	want := observed.Snapshot{}
	for n := range 3 * readsAtATime {
		one := target(named("", string(rune('a'+n))))
		one.Delete, one.IncludeWhenEvaluating = n%3 == 0, new(n%2 == 0)
		spec.Targets = append(spec.Targets, *one)
		if seen := (observed.Target{State: observed.Complete, Detail: one.Reference.Name}); n%2 == 0 || n%3 == 0 {
			want = append(want, seen)
		} else {
			want = append(want, observed.Target{})
		}
	}
	var mu sync.Mutex
	running, most, full := 0, 0, make(chan struct{})
	got := ReadForConfirmation(t.Context(), readerFunc(func(q Query) observed.Target {
		mu.Lock()
		if running++; running == readsAtATime && most < readsAtATime {
			close(full)
		}
		most = max(most, running)
		mu.Unlock()
		<-full // as many as may be are under way at some time
		mu.Lock()
		running--
		mu.Unlock()
		return observed.Target{State: observed.Complete, Detail: q.Name}
	}), "shop", spec, nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if most != readsAtATime {
		t.Errorf("%d were read at a time", most)
	}
	caught := contain.CatchPanic(func() {
		ReadForConfirmation(t.Context(), readerFunc(func(Query) observed.Target { panic("odd") }), "shop", spec, nil)
	})
	if caught == nil || caught.Value != "odd" {
		t.Errorf("a panic of a read is lost: %v", caught)
	}
}

// Targets that ask for the same are read once, and share one list; those that differ in anything have lists of their own.
func TestEqualTargetsAreReadOnce(t *testing.T) {
	web, cluster := labelled("app", "web"), ""
	spec := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{
		*target(), *target(), *target(web), *target(where(dev)), *target(in("a")), *target(in()), *target(notIn("a")),
		*target(fielded("a=b")), *target(named("a", "x")), *target(kind("Job")), *target(), *target(web), *target(where(dev)), *target(in("a")),
		*target(in()), *target(notIn("a")), *target(fielded("a=b")), *target(named("a", "x")), *target(kind("Job")),
	}}
	spec.Targets[10].IncludeWhenEvaluating, spec.Targets[10].Delete = new(false), true
	for way, read := range map[string]func(Reader) observed.Snapshot{
		"Watched": func(r Reader) observed.Snapshot { return ReadTargets(t.Context(), r, cluster, spec) },
		"Live":    func(r Reader) observed.Snapshot { return ReadForConfirmation(t.Context(), r, cluster, spec, nil) },
	} {
		t.Run(way, func(t *testing.T) {
			var reads atomic.Int32
			got := read(readerFunc(func(Query) observed.Target {
				n := reads.Add(1)
				return observed.Target{State: observed.Complete, Objects: append(make([]observed.Object, 0, 9), observed.Object{Ref: observed.Ref{Name: strconv.Itoa(int(n))}})}
			}))
			first := map[string]int{}
			var same []int // of each target the first with its list
			for i := range got {
				name := got[i].Objects[0].Name
				if _, known := first[name]; !known {
					first[name] = i
				}
				same = append(same, first[name])
				if &got[i].Objects[0] != &got[first[name]].Objects[0] {
					t.Errorf("target %d has a copy", i)
				}
			}
			if diff := cmp.Diff([]int{0, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 2, 3, 4, 5, 6, 7, 8, 9}, same); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if reads.Load() != 10 {
				t.Errorf("%d reads, want 10", reads.Load())
			}
		})
	}
}

// Nobody changes a list that others have too: whoever adds an object to it has one of its own.
func TestSharedListsAreNotAddedTo(t *testing.T) {
	r := ShareReads(readerFunc(func(Query) observed.Target {
		return observed.Target{State: observed.Complete, Objects: append(make([]observed.Object, 0, 9), observed.Object{})}
	}))
	q, err := NewQuery("shop", target())
	if err != nil {
		t.Fatal(err)
	}
	one, other := r.Read(t.Context(), q).Objects, r.Read(t.Context(), q).Objects
	_ = append(one, observed.Object{Ref: observed.Ref{Name: "mine"}})
	if other = append(other, observed.Object{}); &one[0] == &other[0] {
		t.Error("what is added to a list is added to that of others")
	}
}

func TestDescribeScope(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	for want, got := range map[string]string{
		`jobs.batch "a" in namespace "shop"`: DescribeScope(jobs, true, "shop", "a"),
		`jobs.batch in namespace "shop"`:     DescribeScope(jobs, true, "shop", ""),
		`jobs.batch in all namespaces`:       DescribeScope(jobs, true, "", ""),
		`jobs.batch "a" in all namespaces`:   DescribeScope(jobs, true, "", "a"),
		`nodes "a" (cluster-scoped)`:         DescribeScope(schema.GroupResource{Resource: "nodes"}, false, "shop", "a"),
		`nodes (cluster-scoped)`:             DescribeScope(schema.GroupResource{Resource: "nodes"}, false, "", ""),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// However namespaces are named and excluded, and how often: one is chosen that is named, if any are, and not excluded.
func TestNamespacesAreChosenByTheirNames(t *testing.T) {
	names := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		r := v1alpha1.ClusterReference{ExcludeNamespaces: names.Draw(t, "excluded")}
		if rapid.Bool().Draw(t, "chooses") {
			r.Namespaces = names.Draw(t, "named")
		}
		excluded, named := slices.Clone(r.ExcludeNamespaces), slices.Clone(r.Namespaces)
		n, err := newNamespaces(&r)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "a", "b", "c", "d", "e"} {
			want := (r.Namespaces == nil || slices.Contains(named, name)) && !slices.Contains(excluded, name)
			if n.MatchesName(name) != want || n.MatchesNamespace(name, nil) != want {
				t.Fatalf("%q is chosen by %v without %v: %t", name, named, excluded, !want)
			}
		}
		if all := r.Namespaces == nil && len(excluded) == 0; n.SelectsAll() != all {
			t.Fatalf("all are chosen: %t", !all)
		}
		if !slices.Equal(excluded, r.ExcludeNamespaces) || !slices.Equal(named, r.Namespaces) {
			t.Fatal("the reference is changed")
		}
	})
}

// What asks for namespaces asks for their metadata, by labels or by name.
func TestNamespaceQueries(t *testing.T) {
	n := Namespaces{Labels: labels.SelectorFromSet(labels.Set{"tier": "dev"})}
	for _, tc := range []struct {
		q    Query
		name string
		want string
	}{{n.NewListQuery(), "", "tier=dev"}, {NewNamespaceQuery("shop"), "shop", ""}} {
		if tc.q.Group != "" || tc.q.Version != "v1" || tc.q.Kind != "Namespace" || tc.q.Name != tc.name || !tc.q.MetadataOnly || tc.q.Labels.String() != tc.want || !tc.q.Fields.Empty() {
			t.Errorf("it asks for %+v", tc.q)
		}
		if wrong := tc.q.CheckScope(schema.GroupResource{Resource: "namespaces"}, false); wrong != "" {
			t.Error(wrong)
		}
	}
}

// What has changed is read only where that is known of all targets: else all are read as a whole, and none twice.
func TestReadSince(t *testing.T) {
	work := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{
		{Name: "a", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}},
		{Name: "b", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Node"}}},
		{Name: "c", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}},
	}}
	for name, tc := range map[string]struct {
		moments []any
		known   map[string]bool // the kinds of which it is known what has changed
		want    string
		change  bool
	}{
		"NoMoments": {nil, map[string]bool{"Pod": true, "Node": true}, "Pod Node", false},
		"Others":    {[]any{1}, map[string]bool{"Pod": true, "Node": true}, "Pod Node", false},
		"All":       {[]any{1, 2, 1}, map[string]bool{"Pod": true, "Node": true}, "Pod since 1, Node since 2", true},
		"OnlyNodes": {[]any{1, 2, 1}, map[string]bool{"Node": true}, "Pod since 1, Node since 2, Node", false},
		"OnlyPods":  {[]any{1, 2, 1}, map[string]bool{"Pod": true}, "Pod since 1, Node since 2, Pod", false},
		"None":      {[]any{1, 2, 1}, nil, "Pod since 1, Node since 2", false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			s := NewQueries("", work).ReadSince(t.Context(), readerFunc(func(q Query) observed.Target {
				if q.Since == nil {
					asked = append(asked, q.Kind)
					return observed.Target{State: observed.Complete, At: 3}
				}
				asked = append(asked, fmt.Sprintf("%s since %v", q.Kind, q.Since))
				return observed.Target{State: observed.Complete, At: 3, IsChange: tc.known[q.Kind]}
			}), tc.moments)
			if got := strings.Join(asked, " "); got != strings.ReplaceAll(tc.want, ",", "") {
				t.Errorf("it asks for %s, want %s", got, tc.want)
			}
			for i := range s {
				if s[i].IsChange != tc.change || s.IsChange() != tc.change {
					t.Errorf("target %d is a change: %t", i, s[i].IsChange)
				}
			}
		})
	}
}
