// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	// pageSize is how many objects are listed at a time, and smallPage how many if these are too many for the memory that there is.
	pageSize  = 1000
	smallPage = 25
	// refBytes is about what a Ref takes in a list.
	refBytes = 256
	// followTime is how long changes are followed at most. An API server sends a bookmark one or two seconds before it ends a watch, and of shorter
	// watches none. maxFollowed is how many changes are followed.
	followTime  = 3 * time.Second
	spareTime   = 500 * time.Millisecond
	maxFollowed = 1000
)

// ReadVersion returns the resource version of a list of a resource, in a namespace or in all, as it is now: no cache may answer.
func (l *Reader) ReadVersion(ctx context.Context, res served.Resource, namespace string) (string, error) {
	list, err := l.metadata.Resource(res.GVR).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
}

// FollowChanges watches a resource from a version on until the API server has sent all changes up to another version, as a bookmark or a later change
// shows, and returns the version of the last of these changes; the first version if there was none. It is an error if that takes longer than followTime,
// or if there are more than maxFollowed changes.
func (l *Reader) FollowChanges(ctx context.Context, res served.Resource, namespace, labels, fields, from, to string) (last string, err error) {
	ctx, cancel := context.WithTimeout(ctx, followTime+spareTime) // also if the API server does not end the watch
	defer cancel()
	ctx, memory := countMemory(ctx)
	defer func() { _ = memory.TakeBytes(-memory.taken.Load()) }() // which is never refused
	w, err := l.metadata.Resource(res.GVR).Namespace(namespace).Watch(ctx, metav1.ListOptions{
		ResourceVersion: from, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(int64(followTime.Seconds())), LabelSelector: labels, FieldSelector: fields,
	})
	if err != nil {
		return "", err
	}
	defer w.Stop()
	last = from
	for n := 0; n <= maxFollowed; n++ {
		event, ok := <-w.ResultChan()
		if !ok {
			return "", fmt.Errorf("the watch of %s has ended before all changes were shown", res.GVR.GroupResource())
		}
		object, isObject := event.Object.(*metav1.PartialObjectMetadata)
		if !isObject {
			return "", fmt.Errorf("cannot follow the changes of %s: %w", res.GVR.GroupResource(), apierrors.FromObject(event.Object))
		}
		order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, to)
		switch {
		case err != nil:
			return "", fmt.Errorf("cannot compare versions of %s: %w", res.GVR.GroupResource(), err)
		case order > 0 || order == 0 && event.Type == watch.Bookmark: // changes come in their order
			return last, nil
		case event.Type != watch.Bookmark:
			last = object.ResourceVersion
		}
		if order == 0 {
			return last, nil
		}
	}
	return "", fmt.Errorf("%s change too often", res.GVR.GroupResource())
}

// ListVersions lists which objects of a resource there are now that selectors select, in a namespace or in all, and the version of the list.
func (l *Reader) ListVersions(ctx context.Context, res served.Resource, namespace, labels, fields string) (refs []observed.Ref, version string, err error) {
	options := metav1.ListOptions{Limit: pageSize, LabelSelector: labels, FieldSelector: fields}
	for {
		pageCtx, memory := countMemory(ctx)
		page, err := l.metadata.Resource(res.GVR).Namespace(namespace).List(pageCtx, options)
		if err == nil {
			err = memory.TakeBytes(int64(len(page.Items))*refBytes - memory.taken.Load())
		}
		if err != nil && options.Limit > smallPage && ctx.Err() == nil {
			options.Limit = smallPage
			_ = memory.TakeBytes(-memory.taken.Load()) // which is never refused
			continue
		}
		if err != nil {
			return nil, "", err
		}
		for i := range page.Items {
			o := &page.Items[i]
			refs = append(refs, observed.Ref{Resource: res.GVR, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion})
		}
		if version != "" && page.ResourceVersion != version {
			return nil, "", fmt.Errorf("the pages of a list of %s have different versions", res.GVR.GroupResource())
		}
		version = page.ResourceVersion
		if options.Continue = page.Continue; options.Continue == "" {
			return refs, version, nil
		}
	}
}
