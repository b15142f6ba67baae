// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot looks at the targets of a spec, and hands what it finds to package plan.
//
// It turns each target into a Query and asks a Reader: the watches' stores, the live API, or files. What a Reader could
// not read stays in the snapshot as a state of its own; nothing is guessed, and nothing is left out.
//
// It never writes, and it never decides.
package snapshot

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/usage"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// readsAtATime bounds the live reads of one Cleaner.
const readsAtATime = 8

// Query asks for the objects that a reference stands for.
type Query struct {
	// Group, Version and Kind are as the user wrote them: Kind may be the kind, or the resource's singular or plural
	// name, in any case.
	Group, Version, Kind string
	// Namespace limits a namespaced kind. It is ignored for a cluster-scoped one. Empty: Namespaces says which namespaces.
	Namespace string
	// Namespaces chooses namespaces. Its zero value chooses all.
	Namespaces Namespaces
	// Name asks for one object. Empty: for all that match.
	Name string
	// OfAnyKind says that the target selects objects of all kinds: metadata alone is read, and the Value of an object has that. Kind is then
	// v1alpha1.AnyKind, in the query of the target, or one of the kinds. Kinds says which the target asks for.
	OfAnyKind bool
	Kinds     anykind.Request
	// OfReleases says that the objects are Secrets that record revisions of Helm releases, and that Values are the items of releases.
	OfReleases bool
	// Annotations are keys of annotations, sorted and joined by commas: if OfAnyKind, the objects must have one of them. Empty: they need none.
	Annotations string
	// Labels and Fields must match. Never nil.
	Labels labels.Selector
	Fields fields.Selector
	// MetadataOnly means that only the objects' metadata is read.
	MetadataOnly bool
	// Reads is what is read of the objects, besides their metadata. Nil: all. A Reader may give more.
	Reads *Reads
	// Since is what an earlier read has given as At, if only what has changed since is asked for. A Reader that does not know that gives all. Nil: all
	// is asked for.
	Since any
}

// Compile prepares the selectors, so that what they cost later does not depend on how many values they have.
func (q *Query) Compile() {
	q.Labels = CompileSelector(q.Labels)
	if q.Namespaces.Labels != nil {
		q.Namespaces.Labels = CompileSelector(q.Namespaces.Labels)
	}
}

// CheckScope says what is wrong with where a query looks, once it is known whether its kind lives in namespaces; "" if
// nothing is. To leave out what does not fit the kind would ask for more than was meant.
func (q *Query) CheckScope(resource schema.GroupResource, namespaced bool) string {
	switch {
	case namespaced && q.Name != "" && q.Namespace == "":
		return fmt.Sprintf("%s are namespaced: set reference.namespace for %q", resource, q.Name)
	case !namespaced && !q.Namespaces.SelectsAll():
		return fmt.Sprintf("%s are cluster-scoped: remove namespaces, namespaceSelector and excludeNamespaces from the reference", resource)
	}
	return ""
}

// Reader answers queries. It never returns an error: what went wrong is the state of the target. Others may have the same list of objects:
// callers never change it.
type Reader interface {
	Read(ctx context.Context, q Query) observed.Target
}

// ReadTargets reads every target of a spec. The namespace is its owner's: empty for a ClusterCleaner.
func ReadTargets(ctx context.Context, r Reader, namespace string, spec *v1alpha1.Work) observed.Snapshot {
	return NewQueries(namespace, spec).Read(ctx, r)
}

// Queries are what the targets of a spec ask for, in their order.
type Queries []TargetQuery

// TargetQuery is what a target asks for, unless Err says why it asks for nothing.
type TargetQuery struct {
	Query
	Err error
	// same is the first target that asks for the same.
	same int
}

// NewQueries returns what the targets of a spec ask for, whose owner is in a namespace, or in none.
func NewQueries(namespace string, spec *v1alpha1.Work) Queries {
	qs, first := make(Queries, len(spec.Targets)), map[[sha256.Size]byte]int{}
	for i := range spec.Targets {
		qs[i] = newTargetQuery(namespace, &spec.Targets[i])
		if qs[i].same = i; qs[i].Err != nil {
			continue
		}
		key := qs[i].Digest()
		if n, known := first[key]; known {
			qs[i].same = n
		} else {
			first[key] = i
		}
	}
	return qs
}

// NewReadingQueries is NewQueries for callers that read no more than the expressions of the spec do.
func NewReadingQueries(namespace string, spec *v1alpha1.Work, readings map[string]usage.Reading) Queries {
	qs := NewQueries(namespace, spec)
	qs.KeepReadings(spec, readings)
	return qs
}

// ReadTarget reads one target.
func (qs Queries) ReadTarget(ctx context.Context, r Reader, target int) observed.Target {
	return qs[target].read(ctx, r)
}

func newTargetQuery(namespace string, t *v1alpha1.ClusterTarget) TargetQuery {
	q, err := NewQuery(namespace, t)
	return TargetQuery{Query: q, Err: err}
}

// Read reads every target. Those that ask for the same share one list.
func (qs Queries) Read(ctx context.Context, r Reader) observed.Snapshot {
	s := make(observed.Snapshot, len(qs))
	for i := range qs {
		if n := qs[i].same; n < i {
			s[i] = s[n]
		} else {
			s[i] = qs[i].read(ctx, r)
		}
	}
	return s
}

// ReadSince reads what has changed in every target since these moments, if that is known of all of them; else it reads every target, as also if no
// moments are given.
func (qs Queries) ReadSince(ctx context.Context, r Reader, moments []any) observed.Snapshot {
	if len(moments) != len(qs) {
		return qs.Read(ctx, r)
	}
	since := slices.Clone(qs)
	for i := range since {
		since[i].Since = moments[i]
	}
	s := since.Read(ctx, r)
	if s.IsChange() {
		return s
	}
	for i := range s {
		if n := qs[i].same; n < i {
			s[i] = s[n]
		} else if s[i].IsChange {
			s[i] = qs[i].read(ctx, r)
		}
	}
	return s
}

func (q *TargetQuery) read(ctx context.Context, r Reader) observed.Target {
	if q.Err != nil {
		return observed.Target{State: observed.Failed, Detail: q.Err.Error()}
	}
	return r.Read(ctx, q.Query)
}

// NewQuery returns what a target asks for. The namespace is its owner's: a Cleaner asks for objects of its own namespace and for
// cluster-scoped ones; a ClusterCleaner, which has none, asks wherever the reference says. It returns an error for invalid selectors, and
// for a reference that its owner may not make.
func NewQuery(namespace string, t *v1alpha1.ClusterTarget) (Query, error) {
	q := Query{
		Group: t.Reference.APIGroup, Version: t.Reference.Version, Kind: t.Reference.Kind,
		Namespace: namespace, Name: t.Reference.Name,
		Labels: labels.Everything(), Fields: fields.Everything(),
		MetadataOnly: !t.IsIncluded() || t.IsOfAnyKind(),
		OfAnyKind:    t.IsOfAnyKind(), OfReleases: t.IsOfReleases(), Annotations: joinKeys(t.Reference.ListAnnotations()),
	}
	if q.OfAnyKind {
		q.Kinds = anykind.NewRequest(t)
	}
	var err error
	if err = q.setNamespaces(&t.Reference); err != nil {
		return Query{}, fmt.Errorf("cannot read the namespaces of target %q: %w", t.Name, err)
	}
	if t.Reference.MatchLabels != nil || t.Reference.MatchExpressions != nil {
		q.Labels, err = metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: t.Reference.MatchLabels, MatchExpressions: t.Reference.MatchExpressions})
		if err != nil {
			return Query{}, fmt.Errorf("cannot read the label selector of target %q: %w", t.Name, err)
		}
	}
	if t.Reference.FieldSelector != "" {
		q.Fields, err = fields.ParseSelector(t.Reference.FieldSelector)
		if err != nil {
			return Query{}, fmt.Errorf("cannot read the field selector of target %q: %w", t.Name, err)
		}
	}
	q.Compile()
	return q, nil
}

// setNamespaces says where a query looks.
func (q *Query) setNamespaces(r *v1alpha1.ClusterReference) error {
	among, err := newNamespaces(r)
	switch {
	case err != nil:
		return err
	case q.Namespace != "" && (r.Namespace != "" || !among.SelectsAll()):
		return errors.New("a Cleaner sees its own namespace only: remove namespace, namespaces, namespaceSelector and excludeNamespaces, or write a ClusterCleaner")
	case q.Namespace != "":
		return nil
	case r.Namespace != "" && r.Name == "":
		return errors.New("namespace requires name: add name, or use namespaces: [...]")
	}
	q.Namespace, q.Namespaces = r.Namespace, among
	return nil
}

// ReadForConfirmation reads the targets of a spec that a confirmation needs: those that expressions see and those that are deleted.
// No more is read of an object than readings say. The others stay Unknown. Some are read at a time: a confirmation is as old as its first read. Those that ask for the same share one list.
func ReadForConfirmation(ctx context.Context, r Reader, namespace string, spec *v1alpha1.Work, readings map[string]usage.Reading) observed.Snapshot {
	s, qs := make(observed.Snapshot, len(spec.Targets)), NewReadingQueries(namespace, spec, readings)
	r = ShareReads(r)
	contain.RunParallel(readsAtATime, len(spec.Targets), func(i int) {
		if t := &spec.Targets[i]; t.IsIncluded() || t.Delete {
			s[i] = qs.ReadTarget(ctx, r, i)
		}
	})
	return s
}

// DescribeScope names a part of a resource, for people: one object, a namespace, or all of it.
func DescribeScope(resource schema.GroupResource, namespaced bool, namespace, name string) string {
	s := resource.String()
	if name != "" {
		s += fmt.Sprintf(" %q", name)
	}
	switch {
	case !namespaced:
		return s + " (cluster-scoped)"
	case namespace == "":
		return s + " in all namespaces"
	default:
		return s + fmt.Sprintf(" in namespace %q", namespace)
	}
}
