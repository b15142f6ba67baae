// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package live reads objects from the API server, in one consistent version. It never writes, and never answers from a watch.
package live

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

var _ snapshot.Reader = (*Reader)(nil)

// Reader reads from the API server.
type Reader struct {
	who      string
	dynamic  dynamic.Interface
	metadata metadata.Interface
	resolver *served.Resolver
}

// NewReader returns a Reader with the rights of config. who names its account in messages.
func NewReader(who string, config *rest.Config, c clock.PassiveClock, r *served.Resolver) (*Reader, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make an HTTP client: %w", err)
	}
	http = meterClient(http)
	d, err := wire.NewClient(config, http, c)
	if err != nil {
		return nil, err
	}
	m, err := metadata.NewForConfigAndClient(config, http)
	if err != nil {
		return nil, fmt.Errorf("cannot make a metadata client: %w", err)
	}
	return &Reader{who: who, dynamic: d, metadata: m, resolver: r}, nil
}

// Read reads a target. An object with a name is missing only if the API server says so of that name.
func (l *Reader) Read(ctx context.Context, q snapshot.Query) observed.Target {
	res, state, detail := l.resolver.ResolveLive(ctx, q.Group, q.Version, q.Kind)
	if state != observed.Complete {
		return observed.Target{State: state, Detail: detail}
	}
	if wrong := q.CheckScope(res.GVR.GroupResource(), res.Namespaced); wrong != "" {
		return observed.Target{State: observed.Failed, Detail: wrong, Resource: res.GVR, Namespaced: res.Namespaced}
	}
	if wrong := served.CheckNames(&q); wrong != "" {
		return observed.Target{State: observed.Failed, Detail: wrong, Resource: res.GVR, Namespaced: res.Namespaced}
	}
	if !q.Namespaces.SelectsAll() {
		return l.readInSelectedNamespaces(ctx, res, q)
	}
	t, _ := l.readInNamespace(ctx, res, q, "")
	return t
}

// readInNamespace reads the objects of the query's namespace, or of all namespaces: the latest, or those of the version at. It returns
// the version of a list.
func (l *Reader) readInNamespace(ctx context.Context, res served.Resource, q snapshot.Query, at string) (t observed.Target, version string) {
	t = observed.Target{Resource: res.GVR, Namespaced: res.Namespaced, Custom: res.IsCustom()}
	verb := "list"
	var err error
	if q.Name != "" && q.Labels.Empty() && q.Fields.Empty() {
		verb = "get"
		t.Objects, err = l.getObject(ctx, res, q)
	} else {
		t.Objects, version, err = l.listObjects(ctx, res, q, at)
	}
	full := snapshot.TakeBytes(ctx, 0)
	switch {
	case full != nil:
		t.State, t.Detail, t.Objects = observed.Failed, full.Error(), nil
	case err == nil:
		t.State = observed.Complete
	case apierrors.IsForbidden(err):
		t.State, t.Detail = observed.Forbidden, served.ForbiddenDetail(l.who, verb, res, q.Namespace, q.Name)
		if namesOtherResource(err, res) { // the operator may not act as the account
			t.Detail += ": " + err.Error()
		}
	case apierrors.IsNotFound(err):
		return l.explainNotFound(ctx, t, q), ""
	default:
		t.State, t.Detail = observed.Failed, fmt.Sprintf("cannot %s %s: %v", verb, served.DescribeScope(res, q.Namespace, q.Name), err)
	}
	return t, version
}

// readMeasured reads something whole, and takes the memory that it is measured to hold. It reads again, as JSON, what protobuf cannot say.
func readMeasured[T runtime.Unstructured](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	ctx, memory := countMemory(ctx)
	out, err := read(ctx)
	if errors.Is(err, wire.ErrNotBinary) {
		out, err = read(ctx)
	}
	if err != nil {
		return out, err
	}
	return out, memory.settle(out)
}

// keepParts drops from a list what is not read of its objects. It leaves those as they are that were not read whole.
func keepParts(list *unstructured.UnstructuredList, r *snapshot.Reads) {
	for i := range list.Items {
		if item := &list.Items[i]; wire.UnreadReason(item) == nil {
			item.Object = r.KeepParts(item.Object)
		}
	}
}

// releasesAtATime is how many Secrets of Helm releases a page has: each can be as large as an object may be, and little of it is kept.
const releasesAtATime = 25

// makeReleaseItems puts items of Helm releases in the place of the Secrets of a list.
func makeReleaseItems(gvr schema.GroupVersionResource, list *unstructured.UnstructuredList) error {
	for i := range list.Items {
		item, err := cachedobjects.MakeReleaseItem(gvr, &list.Items[i])
		if err != nil {
			return err
		}
		list.Items[i].Object = item
	}
	return nil
}

// getObject reads one object. If there is none, it returns nil and no error.
func (l *Reader) getObject(ctx context.Context, res served.Resource, q snapshot.Query) ([]observed.Object, error) {
	var obj any
	var err error
	if q.MetadataOnly {
		obj, err = l.metadata.Resource(res.GVR).Namespace(served.NamespaceFor(res, q)).Get(ctx, q.Name, metav1.GetOptions{})
	} else {
		obj, err = readMeasured(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
			return l.dynamic.Resource(res.GVR).Namespace(served.NamespaceFor(res, q)).Get(ctx, q.Name, metav1.GetOptions{})
		})
	}
	if notfound.IsObjectMissing(err, res.GVR.GroupResource(), res.Kind, q.Name) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok && q.OfAnyKind {
		o, selected, err := cachedobjects.FilterOf(&q).ConvertSelected(res.GVR, res.Kind, m)
		if err != nil || !selected {
			return nil, err
		}
		return []observed.Object{o}, nil
	}
	if q.OfReleases && !q.MetadataOnly {
		item, err := cachedobjects.MakeReleaseItem(res.GVR, obj)
		if err != nil {
			return nil, err
		}
		return []observed.Object{snapshot.FromReleaseItem(res.GVR, item, q.Reads)}, nil
	}
	o, err := cachedobjects.ConvertObject(res.GVR, res.Kind, obj)
	if err != nil {
		return nil, err
	}
	return []observed.Object{o}, nil
}

// listObjects lists the matching objects of one version, the latest or at: all pages have the version of the first, and if that expires
// the list is read again in one piece. An object that cannot be read is an error if the query selects its namespace.
func (l *Reader) listObjects(ctx context.Context, res served.Resource, q snapshot.Query, at string) (objects []observed.Object, version string, err error) {
	selected := selectOutside(res, q.Namespaces.Except, q.Fields)
	if q.Name != "" {
		selected = fields.AndSelectors(fields.OneTermEqualSelector(metav1.ObjectNameField, q.Name), selected)
	}
	options := metav1.ListOptions{LabelSelector: q.Labels.String(), FieldSelector: selected.String()}
	if at != "" {
		options.ResourceVersion, options.ResourceVersionMatch = at, metav1.ResourceVersionMatchExact
	}
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return l.listPage(ctx, res, q, o)
	})
	if q.OfReleases {
		pages.PageSize = releasesAtATime
	}
	list, _, err := pages.List(ctx, options)
	if err != nil {
		return nil, "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		if m, err := meta.Accessor(item); err != nil || !q.Namespaces.MatchesName(m.GetNamespace()) {
			return err
		}
		o, selected, err := convertItem(res, &q, item)
		if selected {
			objects = append(objects, o)
		}
		return err
	})
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(objects, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) })
	return objects, accessor.GetResourceVersion(), nil
}

// listPage lists the objects of one page, without what is not read of them.
func (l *Reader) listPage(ctx context.Context, res served.Resource, q snapshot.Query, o metav1.ListOptions) (runtime.Object, error) {
	if q.MetadataOnly {
		return l.metadata.Resource(res.GVR).Namespace(served.NamespaceFor(res, q)).List(ctx, o)
	}
	return readMeasured(ctx, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		page, err := l.dynamic.Resource(res.GVR).Namespace(served.NamespaceFor(res, q)).List(ctx, o)
		switch {
		case err == nil && q.OfReleases:
			err = makeReleaseItems(res.GVR, page)
		case err == nil && q.Reads != nil:
			keepParts(page, q.Reads)
		}
		return page, err
	})
}

// convertItem converts an object of a page, and says whether the query selects it.
func convertItem(res served.Resource, q *snapshot.Query, item runtime.Object) (o observed.Object, selected bool, err error) {
	switch item := item.(type) {
	case *metav1.PartialObjectMetadata:
		if q.OfAnyKind {
			return cachedobjects.FilterOf(q).ConvertSelected(res.GVR, res.Kind, item)
		}
	case *unstructured.Unstructured:
		if q.OfReleases { // by makeReleaseItems
			return snapshot.FromReleaseItem(res.GVR, item.Object, q.Reads), true, nil
		}
	}
	o, err = cachedobjects.ConvertObject(res.GVR, res.Kind, item)
	return o, true, err
}

// explainNotFound finds out what a 404 means that names no object: the kind is gone, or it is not known.
func (l *Reader) explainNotFound(ctx context.Context, t observed.Target, q snapshot.Query) observed.Target {
	l.resolver.InvalidateGroup(q.Group)
	res, state, detail := l.resolver.ResolveLive(ctx, q.Group, q.Version, q.Kind)
	if state != observed.Complete {
		return observed.Target{State: state, Detail: detail}
	}
	t.State = observed.Failed
	t.Detail = fmt.Sprintf("the API server serves %s, but responded with 404 to this request", res.GVR.GroupResource())
	return t
}

// namesOtherResource reports whether an error is about another resource than the requested one.
func namesOtherResource(err error, res served.Resource) bool {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Kind != "" && d.Kind != res.GVR.Resource
}
