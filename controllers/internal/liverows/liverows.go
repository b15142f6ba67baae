// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package liverows reads live what became of the objects that rows of a run name, and holds them against the spec. It changes nothing.
package liverows

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Reader reads the objects of rows for one Cleaner.
type Reader struct {
	Live snapshot.Reader
	// Resolver says what the kinds of targets are served as.
	Resolver interface {
		Resolve(ctx context.Context, group, version, kind string) (served.Resource, observed.TargetState, string)
	}
	Owner      plan.Owner
	Work       *v1alpha1.Work
	Protection plan.Protection
}

// LookRows reads the objects of some rows of a run live.
func (r *Reader) LookRows(ctx context.Context, rows []string, which []int) map[int]life.Sight {
	seen := make([]life.Sight, len(which))
	look := &look{Reader: r, queries: make([]func() (snapshot.Query, error), len(r.Work.Targets))}
	for t := range look.queries {
		look.queries[t] = sync.OnceValues(func() (snapshot.Query, error) { return snapshot.NewQuery(r.Owner.Namespace, &r.Work.Targets[t]) })
	}
	actuate.RunParallel(len(which), func(n int) {
		row, err := runrow.ParseRow(rows[which[n]])
		if err != nil {
			seen[n] = life.Sight{Failed: err.Error()}
			return
		}
		seen[n] = look.readRow(ctx, row)
	})
	sights := make(map[int]life.Sight, len(which))
	for n, i := range which {
		sights[i] = seen[n]
	}
	return sights
}

// look is one look at rows.
type look struct {
	*Reader
	// queries make what targets ask for, each once for all rows: a selector may have as many values as a spec has room for.
	queries []func() (snapshot.Query, error)
}

// readRow reads the object of a row live, and holds it against the spec.
func (r *look) readRow(ctx context.Context, row runrow.Row) life.Sight {
	q := snapshot.Query{
		Group: row.Resource.Group, Version: row.Resource.Version, Kind: row.Resource.Resource,
		Namespace: row.Namespace, Name: row.Name, Labels: labels.Everything(), Fields: fields.Everything(), MetadataOnly: true,
	}
	t := row.FindTarget(r.Work)
	if t >= 0 && r.Work.Targets[t].Reference.FieldSelector != "" {
		q.MetadataOnly = false
	}
	seen := r.Live.Read(ctx, q)
	switch {
	case seen.State != observed.Complete:
		return life.Sight{Failed: seen.Detail}
	case len(seen.Objects) == 0:
		return life.Sight{Missing: true}
	}
	o := &seen.Objects[0]
	belongs, trouble := r.findBelonging(ctx, t, o)
	if trouble != "" {
		return life.Sight{Failed: trouble}
	}
	return life.Sight{
		Kind: o.Kind, UID: o.UID, ResourceVersion: o.ResourceVersion, Terminating: o.Terminating, Finalizers: o.Finalizers, Stranded: o.IsStranded(),
		Refused: life.RefuseRow(r.Owner, r.Work, row, o, belongs, r.Protection),
	}
}

// findBelonging says whether a target of the spec stands for an object, or why that cannot be said now.
func (r *look) findBelonging(ctx context.Context, target int, o *observed.Object) (b life.Belonging, trouble string) {
	if target < 0 {
		return life.Belonging{}, ""
	}
	q, err := r.queries[target]()
	if err != nil {
		return life.Belonging{}, ""
	}
	served, state, _ := r.Resolver.Resolve(ctx, q.Group, q.Version, q.Kind)
	if state != observed.Complete {
		return life.Belonging{}, ""
	}
	var namespace *observed.Object
	if q.Namespaces.Labels != nil && o.Namespace != "" {
		seen := r.Live.Read(ctx, snapshot.NewNamespaceQuery(o.Namespace))
		if seen.State != observed.Complete {
			return life.Belonging{}, seen.Detail
		}
		if len(seen.Objects) > 0 {
			namespace = &seen.Objects[0]
		}
	}
	return life.Belonging{Resource: served.GVR, Matches: cachedobjects.QueryMatches(q, o, namespace)}, ""
}
