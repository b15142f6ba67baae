// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/queries"
)

// readsPaths has a query read the values at some paths.
func readsPaths(paths ...[]string) func(*snapshot.Query) {
	p := projection.Identity()
	for _, path := range paths {
		p = projection.Merge(p, projection.KeepPath(path...))
	}
	return func(q *snapshot.Query) { q.Reads = snapshot.NewReads(p) }
}

// What is kept of the objects of a real API server is what is kept of what it says live, for whatever is read; and a Cleaner that begins to
// read more never sees an object without it.
func TestClusterIsKeptAsItIsRead(t *testing.T) {
	r := newReal(t)
	everything(t, r)
	reads := [][]string{
		{"metadata", "annotations"}, {"spec", "containers"}, {"spec", "terminationGracePeriodSeconds"}, {"status", "phase"}, {"data", "key"}, {"type"}, {"eventTime"}, {"involvedObject", "name"}, {"spec", "absent"},
	}
	for _, resource := range []struct{ kind, name string }{{"Pod", "pods"}, {"Secret", "secrets"}, {"Event", "events"}} {
		r.may("", resource.name)
		for n := range reads {
			q := r.query(resource.kind, queries.Named("a"), readsPaths(reads[:n+1]...))
			r.SetInterests(owner(resource.kind), interests(q))
			until(t, "it is read", func() bool {
				seen := r.Read(t.Context(), q)
				if seen.State != observed.Complete {
					return false
				}
				live := r.live.Read(t.Context(), q)
				if live.State != observed.Complete || len(live.Objects) != 1 || len(seen.Objects) != 1 {
					t.Fatalf("%s: live is %s %q with %d objects, and %d are watched", resource.kind, live.State, live.Detail, len(live.Objects), len(seen.Objects))
				}
				if live.Objects[0].ResourceVersion != seen.Objects[0].ResourceVersion {
					return false
				}
				want, got := q.Reads.Projection().ApplyToMap(live.Objects[0].Value), q.Reads.Projection().ApplyToMap(seen.Objects[0].Value)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%s, read is %v (-live +watched):\n%s", resource.kind, q.Reads.Projection().ListPaths(), diff)
				}
				return true
			})
		}
		narrow := r.query(resource.kind, queries.Named("a"), readsPaths())
		r.SetInterests(owner(resource.kind), interests(narrow))
		r.reads(narrow, observed.Complete, "a")
	}
	r.changesAfterWidening(t)
}

// changesAfterWidening has a Pod change while more of it begins to be read, and what was there before go on.
func (r *realWorld) changesAfterWidening(t *testing.T) {
	t.Helper()
	narrow, wide := r.query("Pod", readsPaths([]string{"status", "phase"})), r.query("Pod", readsPaths([]string{"metadata", "annotations"}))
	r.SetInterests(owner("narrow"), interests(narrow))
	r.reads(narrow, observed.Complete, "a")
	r.SetInterests(owner("wide"), interests(wide))
	if _, err := r.admin.CoreV1().Pods(r.namespace).Patch(t.Context(), "a", "application/merge-patch+json", []byte(`{"metadata": {"annotations": {"changed": "yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the change is seen with all that is read", func() bool {
		if got := r.Read(t.Context(), narrow); got.State != observed.Complete {
			t.Fatalf("who reads less sees %s %q", got.State, got.Detail)
		}
		got := r.Read(t.Context(), wide)
		if got.State != observed.Complete {
			return false
		}
		metadata, _ := got.Objects[0].Value["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if annotations["at"] == nil {
			t.Fatalf("it is seen with the annotations %v", annotations)
		}
		return annotations["changed"] == "yes"
	})
}
