// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	// pageSize is how many objects are listed at a time, and smallPage how many if these are too many for the memory that there is.
	pageSize  = 1000
	smallPage = 25
	// refBytes is about what a Ref takes in a list.
	refBytes = 256
)

// ReadVersion returns the resource version of a list of a resource, in a namespace or in all, as it is now: no cache may answer.
func (l *Reader) ReadVersion(ctx context.Context, res served.Resource, namespace string) (string, error) {
	list, err := l.metadata.Resource(res.GVR).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return "", err
	}
	return list.ResourceVersion, nil
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
