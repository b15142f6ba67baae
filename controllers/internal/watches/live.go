// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

var _ snapshot.Reader = (*Live)(nil)

// Live reads from the API server itself, as it is when asked.
type Live struct {
	who      string
	dynamic  dynamic.Interface
	metadata metadata.Interface
	resolver *Resolver
}

// NewLive returns a Reader that asks the API server as a configuration says, whose requests are those of who.
func NewLive(who string, config *rest.Config, r *Resolver) (*Live, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make an HTTP client: %w", err)
	}
	d, err := wire.NewTextClient(config, http)
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a metadata client: %w", err)
	}
	return &Live{who: who, dynamic: d, metadata: m, resolver: r}, nil
}

// Read answers with what the API server says now. An object of a given name is missing only when the API server says so
// of that name.
func (l *Live) Read(ctx context.Context, q snapshot.Query) plan.Target {
	res, state, detail := l.resolver.ResolveLive(ctx, q.Group, q.Version, q.Kind)
	if state != plan.Complete {
		return plan.Target{State: state, Detail: detail}
	}
	if wrong := q.CheckScope(res.GVR.GroupResource(), res.Namespaced); wrong != "" {
		return plan.Target{State: plan.Failed, Detail: wrong, Resource: res.GVR, Namespaced: res.Namespaced}
	}
	if !q.Namespaces.SelectsAll() {
		return l.readInSelectedNamespaces(ctx, res, q)
	}
	t, _ := l.readInNamespace(ctx, res, q, "")
	return t
}

// readInNamespace reads what there is in the query's namespace, or in all: as it is now, or as it was at a version. It returns the
// version of what it read, if it was a list.
func (l *Live) readInNamespace(ctx context.Context, res Resource, q snapshot.Query, at string) (t plan.Target, version string) {
	t = plan.Target{Resource: res.GVR, Namespaced: res.Namespaced}
	verb := "list"
	var err error
	if q.Name != "" && q.Labels.Empty() && q.Fields.Empty() {
		verb = "get"
		t.Objects, err = l.getObject(ctx, res, q)
	} else {
		t.Objects, version, err = l.listObjects(ctx, res, q, at)
	}
	switch {
	case err == nil:
		t.State = plan.Complete
	case apierrors.IsForbidden(err):
		t.State, t.Detail = plan.Forbidden, forbiddenDetail(l.who, verb, res, q.Namespace, q.Name)
		if namesOtherResource(err, res) { // the operator may not act as the account
			t.Detail += ": " + err.Error()
		}
	case apierrors.IsNotFound(err):
		return l.explainNotFound(ctx, t, q), ""
	default:
		t.State, t.Detail = plan.Failed, fmt.Sprintf("cannot %s %s: %v", verb, describeScope(res, q.Namespace, q.Name), err)
	}
	return t, version
}

// getObject reads one object. It returns none, and no error, when there is no such object.
func (l *Live) getObject(ctx context.Context, res Resource, q snapshot.Query) ([]plan.Object, error) {
	var obj any
	var err error
	if q.MetadataOnly {
		obj, err = l.metadata.Resource(res.GVR).Namespace(namespaceFor(res, q)).Get(ctx, q.Name, metav1.GetOptions{})
	} else {
		obj, err = l.dynamic.Resource(res.GVR).Namespace(namespaceFor(res, q)).Get(ctx, q.Name, metav1.GetOptions{})
	}
	if notfound.IsObjectMissing(err, res.GVR.GroupResource(), res.Kind, q.Name) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := convertObject(res.GVR, obj)
	if err != nil {
		return nil, err
	}
	return []plan.Object{o}, nil
}

// listObjects reads all objects that match, as they were at one moment, which is now or that of a version: all pages are of the
// version of the first, and when that expires the list is read again in one piece.
func (l *Live) listObjects(ctx context.Context, res Resource, q snapshot.Query, at string) (objects []plan.Object, version string, err error) {
	selected := q.Fields
	if q.Name != "" {
		selected = fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, q.Name), selected)
	}
	options := metav1.ListOptions{LabelSelector: q.Labels.String(), FieldSelector: selected.String()}
	if at != "" {
		options.ResourceVersion, options.ResourceVersionMatch = at, metav1.ResourceVersionMatchExact
	}
	list, _, err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		if q.MetadataOnly {
			return l.metadata.Resource(res.GVR).Namespace(namespaceFor(res, q)).List(ctx, o)
		}
		return l.dynamic.Resource(res.GVR).Namespace(namespaceFor(res, q)).List(ctx, o)
	}).List(ctx, options)
	if err != nil {
		return nil, "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o, err := convertObject(res.GVR, item)
		objects = append(objects, o)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(objects, func(a, b plan.Object) int { return plan.CompareNames(&a.Ref, &b.Ref) })
	return objects, accessor.GetResourceVersion(), nil
}

// explainNotFound says what a 404 means that names no object: the kind is gone, or nobody knows.
func (l *Live) explainNotFound(ctx context.Context, t plan.Target, q snapshot.Query) plan.Target {
	l.resolver.InvalidateGroup(q.Group)
	res, state, detail := l.resolver.ResolveLive(ctx, q.Group, q.Version, q.Kind)
	if state != plan.Complete {
		return plan.Target{State: state, Detail: detail}
	}
	t.State = plan.Failed
	t.Detail = fmt.Sprintf("the API server lists %s, and does not find it", res.GVR.GroupResource())
	return t
}

// namesOtherResource says that an answer speaks of another resource than the one that was asked for.
func namesOtherResource(err error, res Resource) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind != "" && d.Kind != res.GVR.Resource
}

// namespaceFor is the namespace to ask for; none for a cluster-scoped kind.
func namespaceFor(res Resource, q snapshot.Query) string {
	if !res.Namespaced {
		return ""
	}
	return q.Namespace
}

// forbiddenDetail says which permission is missing to whom.
func forbiddenDetail(who, verbs string, res Resource, namespace, name string) string {
	return fmt.Sprintf("%s may not %s %s", who, verbs, describeScope(res, namespace, name))
}

// describeScope names a part of a resource, for people.
func describeScope(res Resource, namespace, name string) string {
	return snapshot.DescribeScope(res.GVR.GroupResource(), res.Namespaced, namespace, name)
}
