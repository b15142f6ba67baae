// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// metadataOf is what is read of the objects of a target of all kinds.
var metadataOf = projection.Merge( //nolint:gochecknoglobals // it never changes
	projection.KeepPath("apiVersion"), projection.KeepPath("kind"), projection.KeepPath("metadata"),
)

// KindsFinder says which kinds the query of a target of all kinds stands for, and which it skips.
type KindsFinder interface {
	FindKinds(ctx context.Context, q *Query) (kinds []anykind.Kind, skipped []anykind.Skipped, err error)
}

// ExpandKinds returns a Reader that answers the query of a target of all kinds by one query for each kind.
func ExpandKinds(r Reader, kinds KindsFinder) Reader { return kindsReader{r, kinds} }

type kindsReader struct {
	Reader
	kinds KindsFinder
}

// Read answers a query.
func (r kindsReader) Read(ctx context.Context, q Query) observed.Target {
	if q.Kind != v1alpha1.AnyKind {
		return r.Reader.Read(ctx, q)
	}
	kinds, skipped, err := r.kinds.FindKinds(ctx, &q)
	if err != nil {
		return observed.Target{State: observed.Failed, Detail: err.Error()}
	}
	return q.ReadKinds(ctx, r.Reader, kinds, skipped)
}

// OfKind is the query of a target of all kinds for one of them.
func (q *Query) OfKind(k *anykind.Kind) Query {
	one := *q
	one.Group, one.Version, one.Kind, one.Kinds, one.Since = k.Group, k.Version, k.Kind, anykind.Request{}, nil
	return one
}

// ReadKinds reads a target of all kinds. It is Complete when each kind is, or cannot be read: what is decided on one of its objects does not
// depend on others. Kinds that are no longer served have none.
func (q *Query) ReadKinds(ctx context.Context, r Reader, kinds []anykind.Kind, skipped []anykind.Skipped) observed.Target {
	seen := make([]observed.Target, len(kinds))
	contain.RunParallel(readsAtATime, len(kinds), func(i int) { seen[i] = r.Read(ctx, q.OfKind(&kinds[i])) })
	t := observed.Target{State: observed.Complete, Namespaced: q.Kinds.NamespacedOnly, Kinds: []observed.KindState{}}
	var waiting *observed.Target
	complete := false
	for i := range seen {
		s := &seen[i]
		refuseOtherResource(s, &kinds[i])
		switch s.State {
		case observed.NoSuchKind:
			continue
		case observed.Unsynced, observed.Unknown:
			waiting = s
		case observed.Complete:
			complete = true
			t.Objects = append(t.Objects, s.Objects...)
		default: // Forbidden, Failed and TooLarge are states of this kind alone
		}
		t.Kinds = append(t.Kinds, observed.KindState{Resource: kinds[i].GroupVersionResource, State: s.State, Detail: s.Detail})
	}
	for _, s := range skipped {
		t.Kinds = append(t.Kinds, observed.KindState{Resource: s.WithVersion(""), State: observed.Forbidden, Detail: s.Reason})
	}
	switch {
	case waiting != nil:
		t.State, t.Detail, t.Objects = observed.Unsynced, waiting.Detail, nil
	case !complete && len(t.Kinds) > 0:
		first := t.Kinds[0]
		t.State, t.Detail = first.State, fmt.Sprintf("no kind of all %d can be read; %s: %s", len(t.Kinds), first.Resource.GroupResource(), first.Detail)
	}
	t.Objects = joinKinds(t.Objects)
	return t
}

// refuseOtherResource makes a kind Failed whose objects are those of another resource than the one that rights were reviewed for: two of a group may
// have the same kind.
func refuseOtherResource(t *observed.Target, k *anykind.Kind) {
	if len(t.Objects) == 0 || t.Objects[0].Resource.GroupResource() == k.GroupResource() {
		return
	}
	read := t.Objects[0].Resource.GroupResource()
	*t = observed.Target{State: observed.Failed, Detail: fmt.Sprintf("kind %s is read as %s, and the rights to %s were reviewed: give one of them another kind", k.Kind, read, k.GroupResource())}
}

// joinKinds orders the objects of several kinds. One that two resources serve is there once.
func joinKinds(objects []observed.Object) []observed.Object {
	slices.SortStableFunc(objects, func(a, b observed.Object) int { return observed.CompareRefs(&a.Ref, &b.Ref) })
	known := make(map[types.UID]bool, len(objects))
	return slices.DeleteFunc(objects, func(o observed.Object) bool {
		again := known[o.Identify()]
		known[o.Identify()] = true
		return again
	})
}

// ListKinds lists the kinds that may be cleaned by targets of all kinds. What files say of a kind names no verbs: it can be listed and deleted.
func (s *Objects) ListKinds() []anykind.Kind {
	lists := make([]*metav1.APIResourceList, 0, len(s.served))
	for gv, resources := range s.served {
		list := &metav1.APIResourceList{GroupVersion: gv.String(), APIResources: slices.Clone(resources)}
		for i := range list.APIResources {
			if r := &list.APIResources[i]; len(r.Verbs) == 0 {
				r.Verbs = metav1.Verbs{"list", "watch", "delete"}
			}
		}
		lists = append(lists, list)
	}
	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { // a group prefers its newest stable version
		return -version.CompareKubeAwareVersionStrings(path.Base(a.GroupVersion), path.Base(b.GroupVersion))
	})
	return anykind.ListKinds(lists)
}

// joinKeys joins keys of annotations as a query has them. No key has a comma.
func joinKeys(keys []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(keys))), ",")
}

// HasAnnotation reports whether annotations have one of the keys of a query.
func HasAnnotation[V any](annotations map[string]V, keys string) bool {
	if keys == "" {
		return true
	}
	for key := range strings.SplitSeq(keys, ",") {
		if _, has := annotations[key]; has {
			return true
		}
	}
	return false
}

// hasAnnotation reports whether an object that was read whole has one of the annotations of a query.
func hasAnnotation(o *observed.Object, keys string) bool {
	metadata, _ := o.Value["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	return HasAnnotation(annotations, keys)
}
