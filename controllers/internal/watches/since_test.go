// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/queries"
)

// listContents returns the numbers of the contents of objects.
func listContents(t observed.Target) map[string]uint64 {
	contents := map[string]uint64{}
	for _, o := range t.Objects {
		contents[o.Namespace+"/"+o.Name] = o.Content
	}
	return contents
}

// follow changes what a query gave by what has changed since, and returns it with the next moment. What is not known is read again.
func follow(t *testing.T, e *Engine, q snapshot.Query, contents map[string]uint64) (now map[string]uint64, at any, isChange bool) {
	t.Helper()
	got := e.Read(t.Context(), q)
	if got.State != observed.Complete {
		t.Fatalf("the state is %v: %s", got.State, got.Detail)
	}
	if !got.IsChange {
		return listContents(got), got.At, false
	}
	for _, c := range got.Changes {
		name := c.Namespace + "/" + c.Name
		if before, there := contents[name]; there != c.Was || before != c.Before {
			t.Fatalf("%s was %t with content %d, and not %t with %d", name, there, before, c.Was, c.Before)
		}
		if delete(contents, name); c.Now != nil {
			contents[name] = c.Now.Content
		}
	}
	return contents, got.At, true
}

// Whatever happens to objects, what a query gave before and what has changed since is what it gives now; also of a query that has a group, and
// after all objects were listed again.
func TestWhatHasChangedIsAllThatHasChanged(t *testing.T) {
	const seed, steps = 11, 400
	random := rand.New(rand.NewPCG(seed, seed))
	e, s := newWatching(t)
	qs := []snapshot.Query{
		queries.New("Pod"), queries.New("Pod", queries.In("")), queries.New("Pod", queries.In(""), queries.Labelled("app=web")), queries.New("Pod", queries.Named("p1")),
		queries.New("Pod", queries.Among("a", "b")),
	}
	for i := range qs {
		qs[i].Compile()
	}
	e.SetInterests(owner("c"), interests(qs...))
	contents, moments, changes := make([]map[string]uint64, len(qs)), make([]any, len(qs)), 0
	var there []*unstructured.Unstructured
	for step := range steps {
		namespace, name := []string{"a", "b"}[random.IntN(2)], fmt.Sprint("p", random.IntN(6))
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{"nodeName": fmt.Sprint("n", random.IntN(2))},
			"metadata": map[string]any{
				"namespace": namespace, "name": name, "uid": namespace + name, "labels": map[string]any{"app": []string{"web", "db"}[random.IntN(2)]}, "resourceVersion": fmt.Sprint(step + 10),
			},
		}}
		var err error
		switch random.IntN(20) {
		case 0:
			list := make([]any, 0, len(there))
			for _, o := range there {
				list = append(list, o)
			}
			err = s.Replace(list, fmt.Sprint(step+10))
		case 1, 2, 3, 4, 5:
			err = s.Delete(o)
		default:
			err = s.Update(o)
			there = append(there[:min(len(there), 3)], o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(3) > 0 {
			continue
		}
		for i, q := range qs {
			q.Since = moments[i]
			var isChange bool
			if contents[i], moments[i], isChange = follow(t, e, q, contents[i]); isChange {
				changes++
			}
			q.Since = nil
			if diff := cmp.Diff(listContents(e.Read(t.Context(), q)), contents[i]); diff != "" {
				t.Fatalf("query %d after step %d: -what there is +what the changes lead to:\n%s", i, step, diff)
			}
		}
	}
	if changes < steps/4 {
		t.Errorf("only %d times it was known what has changed", changes)
	}
}

// Where labels choose namespaces, and where only metadata or fields are asked for, nothing says what has changed.
func TestWhatHasNoMoments(t *testing.T) {
	e, _ := newWatching(t)
	knowNamespaces(t, e, nil)
	for name, q := range map[string]snapshot.Query{
		"Labels":   queries.New("Pod", queries.ChosenBy("tier=shop")),
		"Metadata": queries.New("Pod", queries.MetadataOnly),
	} {
		q.Compile()
		e.SetInterests(owner("c"), interests(q))
		if got := e.Read(t.Context(), q); got.At != nil {
			t.Errorf("%s: there is a moment", name)
		}
	}
}
