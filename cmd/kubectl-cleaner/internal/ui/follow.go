// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
)

const (
	// listPage is how many Cleaners one request lists, and listTimeout how long it may take; and how long it may take until a watch begins.
	listPage    = 500
	listTimeout = time.Minute
	// enough is how long a watch lasts that has not failed.
	enough = 30 * time.Second
)

// follower follows the Cleaners of one kind.
type follower struct {
	*Server
	kind, resource string
	// namespace is the only one that is followed; empty: all.
	namespace string
	// limit says what is not shown because the user may not see it.
	limit string
	// patience is how long a request may take.
	patience time.Duration
}

// follow follows the Cleaners of both kinds until ctx ends.
func (s *Server) follow(ctx context.Context) {
	var all sync.WaitGroup
	for kind, resource := range map[string]string{manifests.KindCleaner: "cleaners", manifests.KindClusterCleaner: "clustercleaners"} {
		all.Go(func() { (&follower{Server: s, kind: kind, resource: resource, patience: listTimeout}).followKind(ctx) })
	}
	all.Wait()
}

// followKind lists and watches. Where that fails, it lists again, later and later: what a failed watch would have said is unknown, and the user's
// rights or the cluster may be others.
func (f *follower) followKind(ctx context.Context) {
	version, backoff := "", newBackoff()
	for ctx.Err() == nil {
		began := f.Clock.Now()
		var err error
		version, err = f.followOnce(ctx, version)
		if f.Clock.Since(began) > enough {
			backoff = newBackoff()
		}
		if err != nil && ctx.Err() == nil {
			version = ""
			f.reportFailure(err)
		}
		select {
		case <-ctx.Done():
		case <-f.Clock.After(backoff.Step()):
		}
	}
}

func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 30 * time.Second}
}

// reportFailure says on the pages why the Cleaners of the kind are not known, or not as they are now. Those that may no longer be listed go.
func (f *follower) reportFailure(err error) {
	var watching watchError
	switch {
	case errors.As(err, &watching):
		f.fleet.setSource(f.kind, source{Listed: true, Limit: f.limit, Problem: fmt.Sprintf("Cannot watch %ss, and lists them again and again instead: %s", f.kind, describeError(watching.error))})
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		f.fleet.replaceKind(f.kind, nil, source{Limit: fmt.Sprintf("%ss cannot be shown: %s", f.kind, describeError(err))})
	default:
		known := f.fleet.sourceOf(f.kind)
		known.Problem = fmt.Sprintf("Cannot read %ss: %s", f.kind, describeError(err))
		f.fleet.setSource(f.kind, known)
	}
}

// watchError is why a watch does not begin.
type watchError struct{ error }

// followOnce lists unless a version is given, then watches until that fails. It returns from which version on to watch, or "" to list.
func (f *follower) followOnce(ctx context.Context, version string) (string, error) {
	if version == "" {
		var err error
		if version, err = f.listAll(ctx); err != nil {
			return "", err
		}
	}
	w, end, err := f.beginWatch(ctx, version)
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return "", nil
		}
		return "", watchError{err}
	}
	defer end()
	f.fleet.setSource(f.kind, source{Listed: true, Limit: f.limit})
	for {
		select {
		case <-ctx.Done():
			return version, ctx.Err()
		case event, open := <-w.ResultChan():
			if !open {
				return version, nil // as watches do
			}
			next, err := f.takeEvent(event)
			if err != nil || next == "" {
				return "", err
			}
			version = next
		}
	}
}

// beginWatch begins a watch, unless the cluster does not answer in time.
func (f *follower) beginWatch(ctx context.Context, version string) (w watch.Interface, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(f.patience, cancel)
	w, err = f.client().Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if !late.Stop() {
		if err == nil {
			w.Stop()
		}
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	return w, func() { w.Stop(); cancel() }, nil
}

// takeEvent takes an event of a watch, and returns its version; "" if it must be listed again.
func (f *follower) takeEvent(event watch.Event) (string, error) {
	if event.Type == watch.Error {
		if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return "", err
		}
		return "", nil
	}
	u, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		return "", fmt.Errorf("cannot read a %T", event.Object)
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		f.fleet.putRow(summarizeObject(u))
	case watch.Deleted:
		f.fleet.removeRow(Name{u.GetNamespace(), u.GetName()})
	}
	return u.GetResourceVersion(), nil
}

func (f *follower) client() dynamic.ResourceInterface {
	return f.Client.Resource(v1alpha1.GroupVersion.WithResource(f.resource)).Namespace(f.namespace)
}

// listAll lists the Cleaners: where the user may not list those of all namespaces, those of one.
func (f *follower) listAll(ctx context.Context) (version string, err error) {
	f.namespace, f.limit = "", ""
	rows, version, err := f.listPages(ctx)
	if apierrors.IsForbidden(err) && f.kind == manifests.KindCleaner && f.Namespace != "" {
		f.namespace = f.Namespace
		f.limit = fmt.Sprintf("Only the Cleaners of namespace %s are shown (choose another one with -n): %s", f.namespace, describeError(err))
		rows, version, err = f.listPages(ctx)
	}
	if err != nil {
		return "", err
	}
	known := f.fleet.sourceOf(f.kind)
	f.fleet.replaceKind(f.kind, rows, source{Listed: true, Limit: f.limit, Problem: known.Problem}) // a problem lasts until a watch begins
	return version, nil
}

// listPages lists page by page, and keeps of each Cleaner what the overview shows.
func (f *follower) listPages(ctx context.Context) (rows []summary, version string, err error) {
	options := metav1.ListOptions{Limit: listPage}
	for {
		list, err := f.listPage(ctx, options)
		if err != nil {
			return nil, "", err
		}
		for i := range list.Items {
			rows = append(rows, summarizeObject(&list.Items[i]))
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return rows, list.GetResourceVersion(), nil
		}
	}
}

// listPage lists one page, unless the cluster does not answer in time.
func (f *follower) listPage(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	return f.client().List(ctx, options)
}
