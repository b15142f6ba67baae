// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/releaseitem"
)

var _ Reader = (*Objects)(nil)

// Objects is a Reader of objects that are at hand, such as those of files. It answers as an API server would that has
// these objects and no others.
type Objects struct {
	served      map[schema.GroupVersion][]metav1.APIResource
	fieldLabels map[schema.GroupVersionResource]FieldLabels
	objects     map[schema.GroupResource][]observed.Object
	failures    map[schema.GroupResource]readFailure
	// unread says why of some objects only the metadata is known, by their UIDs.
	unread map[types.UID]error
	// releases are the items of Helm releases. Clones share them.
	releases *releaseItems
	sorted   bool
}

// readFailure is why a kind cannot be read.
type readFailure struct {
	state  observed.TargetState
	detail string
}

// NewObjects returns a Reader without any objects and kinds.
func NewObjects() *Objects {
	return &Objects{
		served:      map[schema.GroupVersion][]metav1.APIResource{},
		fieldLabels: map[schema.GroupVersionResource]FieldLabels{},
		objects:     map[schema.GroupResource][]observed.Object{},
		failures:    map[schema.GroupResource]readFailure{},
		unread:      map[types.UID]error{},
		releases:    &releaseItems{},
	}
}

// AddKind makes a kind known. What is known of it already stays. The paths are those by which a definition makes its objects
// selectable, besides what all kinds and the API server's own ones have.
func (s *Objects) AddKind(gv schema.GroupVersion, r metav1.APIResource, paths ...string) {
	if v1alpha1.FindKind(r.Kind, s.served[gv]) != nil {
		return
	}
	s.served[gv] = append(s.served[gv], r)
	gvr := gv.WithResource(r.Name)
	l := BuiltinFieldLabels(gvr.GroupResource())
	if !l.HasOwn() {
		l = CustomFieldLabels(r.Namespaced, paths)
	}
	s.fieldLabels[gvr] = l
}

// FindResource returns the resource that a kind stands for, and whether it lives in namespaces. It is empty if the kind is not
// served.
func (s *Objects) FindResource(gv schema.GroupVersion, kind string) (gvr schema.GroupVersionResource, namespaced bool) {
	r := v1alpha1.FindKind(kind, s.served[gv])
	if r == nil {
		return schema.GroupVersionResource{}, false
	}
	return gv.WithResource(r.Name), r.Namespaced
}

// SetFailure says that the objects of a resource could not be read, and why.
func (s *Objects) SetFailure(r schema.GroupResource, state observed.TargetState, detail string) {
	s.failures[r] = readFailure{state: state, detail: detail}
}

// AddObject adds an object, whose kind has to be served. An object without a namespace, of a kind that lives in them, is in
// "default"; one without a UID or a resourceVersion gets what no API server would give. The object is kept and changed.
func (s *Objects) AddObject(u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	gvr, namespaced := s.FindResource(gvk.GroupVersion(), gvk.Kind)
	if gvr.Resource == "" {
		return fmt.Errorf("%s: kind %q of %s is not known", observed.FormatName(gvk.Kind, u.GetNamespace(), u.GetName()), gvk.Kind, gvk.GroupVersion())
	}
	if u.GetName() == "" {
		return fmt.Errorf("an object of kind %s has no metadata.name", gvk.Kind)
	}
	switch {
	case namespaced && u.GetNamespace() == "":
		u.SetNamespace(metav1.NamespaceDefault)
	case !namespaced && u.GetNamespace() != "":
		return fmt.Errorf("%s %q is in namespace %q, and its kind is cluster-scoped: remove metadata.namespace", gvk.Kind, u.GetName(), u.GetNamespace())
	}
	if u.GetUID() == "" {
		u.SetUID(types.UID(strings.Join([]string{gvr.GroupResource().String(), u.GetNamespace(), u.GetName()}, "/")))
	}
	if u.GetResourceVersion() == "" {
		u.SetResourceVersion("1")
	}
	s.objects[gvr.GroupResource()] = append(s.objects[gvr.GroupResource()], FromUnstructured(gvr, u))
	s.sorted = false
	return nil
}

// AddUnread is AddObject for an object with known metadata only. reason says why: a query that selects the object and needs more fails
// with it.
func (s *Objects) AddUnread(u *unstructured.Unstructured, reason error) error {
	metadata := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": u.Object["metadata"]}}
	if err := s.AddObject(metadata); err != nil {
		return err
	}
	s.unread[metadata.GetUID()] = reason
	return nil
}

// SortObjects orders the objects. It errs on one that is there twice.
func (s *Objects) SortObjects() error {
	s.sorted = true
	for _, r := range slices.SortedFunc(maps.Keys(s.objects), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) }) {
		list := s.objects[r]
		slices.SortStableFunc(list, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
		for i := 1; i < len(list); i++ {
			if observed.CompareNames(&list[i-1].Ref, &list[i].Ref) == 0 {
				return fmt.Errorf("%s is there twice", list[i].Ref)
			}
		}
	}
	return nil
}

// Read answers a query. It must not be called before SortObjects.
func (s *Objects) Read(ctx context.Context, q Query) observed.Target {
	if !s.sorted {
		return observed.Target{State: observed.Unsynced, Detail: "waiting for the first list of the objects"}
	}
	if q.Kind == v1alpha1.AnyKind {
		return q.ReadKinds(ctx, s, anykind.SelectKinds(s.ListKinds(), q.Kinds), nil)
	}
	gv := schema.GroupVersion{Group: q.Group, Version: q.Version}
	gvr, namespaced := s.FindResource(gv, q.Kind)
	if gvr.Resource == "" {
		return observed.Target{State: observed.NoSuchKind, Detail: fmt.Sprintf("kind %q of %s is not served", q.Kind, gv)}
	}
	t := observed.Target{State: observed.Complete, Resource: gvr, Namespaced: namespaced}
	if trouble, ok := s.failures[gvr.GroupResource()]; ok {
		t.State, t.Detail = trouble.state, trouble.detail
		return t
	}
	if wrong := q.CheckScope(gvr.GroupResource(), namespaced); wrong != "" {
		t.State, t.Detail = observed.Failed, wrong
		return t
	}
	chosen, problem := s.newNamespaceFilter(&q)
	if problem != nil {
		t.State, t.Detail = problem.state, problem.detail
		return t
	}
	fieldLabels := s.fieldLabels[gvr]
	if wrong := fieldLabels.CheckSelector(gvr.GroupResource(), q.Fields); wrong != "" {
		t.State, t.Detail = observed.Failed, wrong
		return t
	}
	for _, o := range s.objects[gvr.GroupResource()] {
		if namespaced && !chosen(o.Namespace) {
			continue
		}
		selected, unread := s.matchObject(&q, fieldLabels, &o)
		switch {
		case unread != nil && !q.OfReleases:
			t.State, t.Objects = observed.Failed, nil
			t.Detail = fmt.Sprintf("cannot read %s: %v", o.Ref, unread)
			return t
		case selected:
			t.Objects = append(t.Objects, s.releases.showObject(&q, o, unread))
		}
	}
	return t
}

// showObject returns what a query reads of an object that it selects.
func (r *releaseItems) showObject(q *Query, o observed.Object, unread error) observed.Object {
	switch {
	case q.OfReleases:
		return FromReleaseItem(o.Resource, r.makeItem(o.Value, unread), nil)
	case q.OfAnyKind:
		o.Annotations = q.Annotations
		o.Value = metadataOf.ApplyToMap(o.Value)
	case q.MetadataOnly:
		o.Value = nil
	}
	return o
}

// releaseItems are items of Helm releases that were made of Secrets, by the maps of these.
type releaseItems struct{ made sync.Map }

// madeItem is an item, and the Secret that it was made of: as long as that is held, no other map has its address.
type madeItem struct{ secret, item map[string]any }

// makeItem returns the item of a Secret, which is made once.
func (r *releaseItems) makeItem(secret map[string]any, unread error) map[string]any {
	at := reflect.ValueOf(secret).Pointer()
	if known, ok := r.made.Load(at); ok {
		return known.(madeItem).item
	}
	made, _ := r.made.LoadOrStore(at, madeItem{secret, releaseitem.MakeItem(secret, unread)})
	return made.(madeItem).item
}

// matchObject says whether a query selects an object of its namespaces. It errs on one that the query may select, and needs more of than is
// known.
func (s *Objects) matchObject(q *Query, l FieldLabels, o *observed.Object) (selected bool, err error) {
	if (q.Name != "" && q.Name != o.Name) || !q.Labels.Matches(labels.Set(o.Labels)) || !hasAnnotation(o, q.Annotations) {
		return false, nil
	}
	unread := s.unread[o.UID]
	if unread != nil && NeedsValue(q.Fields) {
		return true, unread
	}
	if !l.MatchesObject(q.Fields, o) {
		return false, nil
	}
	if q.MetadataOnly {
		return true, nil
	}
	return true, unread
}

// newNamespaceFilter returns a function that reports whether a query covers a namespace; or why that is unknown.
func (s *Objects) newNamespaceFilter(q *Query) (func(namespace string) bool, *readFailure) {
	if q.Namespaces.Labels == nil {
		return func(name string) bool {
			return (q.Namespace == "" || q.Namespace == name) && q.Namespaces.MatchesName(name)
		}, nil
	}
	r := schema.GroupResource{Resource: "namespaces"}
	if t, ok := s.failures[r]; ok {
		return nil, &t
	}
	known := map[string]*observed.Object{}
	for i := range s.objects[r] {
		known[s.objects[r][i].Name] = &s.objects[r][i]
	}
	return func(name string) bool { return q.Namespaces.MatchesNamespace(name, known[name]) }, nil
}
