// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package casetest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// projecting is a cluster of which only what is read is kept.
type projecting struct {
	snapshot.Reader
	kept map[string]*projection.Projection // by query
}

// newProjecting keeps of the objects of a reader what the expressions of a Cleaner read, and what identifies an object.
func newProjecting(r snapshot.Reader, c *manifests.Cleaner) (projecting, error) {
	out := projecting{r, map[string]*projection.Projection{}}
	for name, reading := range c.Programs.FindReadings() {
		t := &c.Work.Targets[slices.IndexFunc(c.Work.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Name == name })]
		q, err := snapshot.NewQuery(c.Owner.GetNamespace(), t)
		if err != nil {
			return out, err
		}
		id := describe(&q)
		out.kept[id] = projection.Merge(out.kept[id], projection.Identity(), reading.Projection)
	}
	return out, nil
}

// describe is the same for queries that ask for the same objects.
func describe(q *snapshot.Query) string {
	return fmt.Sprintf("%s %s %s %v %s %s %s", q.Group, q.Version, q.Kind, q.Namespaces, q.Namespace, q.Labels, q.Fields)
}

func (p projecting) Read(ctx context.Context, q snapshot.Query) observed.Target {
	t, kept := p.Reader.Read(ctx, q), p.kept[describe(&q)]
	if kept == nil { // one object, read live
		return t
	}
	t.Objects = slices.Clone(t.Objects)
	for i := range t.Objects {
		if o := &t.Objects[i]; o.Value != nil {
			o.Value = kept.ApplyToMap(o.Value)
		}
	}
	return t
}

// All cases of templates and recipes have the same plan on objects and on what is kept of them, with everything that a plan has.
func TestCasesHaveTheSamePlanOnProjectedObjects(t *testing.T) {
	l, err := manifests.NewLoader()
	if err != nil {
		t.Fatal(err)
	}
	var folders []*manifests.Folder
	for _, dir := range []string{"templates", "samples/cookbook"} {
		f, err := manifests.OpenFolder(filepath.Join("../../../../config", dir))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		folders = append(folders, f)
	}
	cases, err := FindCases(folders)
	if err != nil || len(cases) < 100 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	steps := 0
	for _, of := range cases {
		t.Run(of.name, func(t *testing.T) {
			d, world, err := Runner{Loader: l}.LoadCase(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			projected, err := newProjecting(world, d.Cleaner)
			if err != nil {
				t.Fatal(err)
			}
			want, got := withoutValues(d.ComputePlan(t.Context(), world)), withoutValues(d.ComputePlan(t.Context(), projected))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-whole +projected):\n%s", diff)
			}
			steps += len(want.Steps)
			for id, p := range projected.kept {
				if p.Whole {
					t.Errorf("all is kept of %s", id)
				}
			}
		})
	}
	if steps < 100 {
		t.Errorf("the cases have %d steps", steps)
	}
}

// withoutValues is a plan without the content of its objects.
func withoutValues(p plan.Plan) plan.Plan {
	for i := range p.Steps {
		p.Steps[i].Object.Value = nil
	}
	for i := range p.Withheld {
		p.Withheld[i].Step.Object.Value = nil
	}
	return p
}
