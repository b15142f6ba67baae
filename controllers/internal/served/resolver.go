// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package served finds out which resources an API server serves. It keeps answers for a while, bounded in number, and never reads an
// object.
package served

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Discovery lists the resources of a group version. client-go's discovery client implements it.
type Discovery interface {
	ServerResourcesForGroupVersionWithContext(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// Resource is the resource of a kind that a user wrote.
type Resource struct {
	GVR schema.GroupVersionResource
	// Kind is the kind as the API server writes it.
	Kind string
	// Namespaced is true if its objects have namespaces.
	Namespaced bool
	// Watchable is true if it can be listed and watched.
	Watchable bool
}

// maxAnswers bounds the group versions that are remembered: tenants may name groups that do not exist.
const maxAnswers = 512

// Resolver finds the resource of a kind, with one request for each group version, and keeps the answer. It is safe for concurrent use.
type Resolver struct {
	discovery Discovery
	clock     clock.PassiveClock
	// staleAfter is how long to believe an answer that lacks a kind.
	staleAfter time.Duration

	mu      sync.Mutex
	answers map[schema.GroupVersion]*answer
	// asked counts requests to the API server, used counts uses of answers.
	asked, used int
}

// answer lists what a group version serves. Read the fields after done only when done is closed.
type answer struct {
	number int // of the request
	used   int // when it was last used; guarded by the Resolver
	done   chan struct{}

	resources []metav1.APIResource
	err       error
	at        time.Time
}

// NewResolver returns a Resolver that asks again after staleAfter whether a missing kind is served.
func NewResolver(c clock.PassiveClock, d Discovery, staleAfter time.Duration) *Resolver {
	return &Resolver{discovery: d, clock: c, staleAfter: staleAfter, answers: map[schema.GroupVersion]*answer{}}
}

// Resolve finds the resource of a kind. kind may also be the resource's plural or singular name, in any case. The state is Complete if
// the kind is served; otherwise the detail says why not.
func (r *Resolver) Resolve(ctx context.Context, group, version, kind string) (Resource, observed.TargetState, string) {
	return r.resolveWith(ctx, group, version, kind, func(a *answer) bool { return r.clock.Since(a.at) < r.staleAfter })
}

// ResolveLive is Resolve for decisions: it returns NoSuchKind only if the API server said so after the call began. A kind that is
// served needs no such care, because the caller then reads it from the API server.
func (r *Resolver) ResolveLive(ctx context.Context, group, version, kind string) (Resource, observed.TargetState, string) {
	r.mu.Lock()
	before := r.asked
	r.mu.Unlock()
	return r.resolveWith(ctx, group, version, kind, func(a *answer) bool { return a.number > before })
}

// resolveWith finds the resource. fresh reports whether to believe an answer that lacks the kind.
func (r *Resolver) resolveWith(ctx context.Context, group, version, kind string, fresh func(*answer) bool) (Resource, observed.TargetState, string) {
	gv := schema.GroupVersion{Group: group, Version: version}
	for {
		a, mine := r.getOrAddAnswer(gv)
		if mine {
			r.fetchAnswer(ctx, gv, a)
		}
		select {
		case <-ctx.Done():
			return Resource{}, observed.Failed, fmt.Sprintf("cannot determine whether kind %q of %s is served: %v", kind, gv, context.Cause(ctx))
		case <-a.done:
		}
		if !mine && (errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded)) {
			continue // the other caller gave up; this one did not
		}
		if a.err != nil && !apierrors.IsNotFound(a.err) {
			return Resource{}, observed.Failed, fmt.Sprintf("cannot determine whether kind %q of %s is served: %v", kind, gv, a.err)
		}
		if res, ok := findResource(gv, kind, a.resources); ok {
			return res, observed.Complete, ""
		}
		if !mine && !fresh(a) {
			r.dropAnswer(gv, a)
			continue
		}
		return Resource{}, observed.NoSuchKind, fmt.Sprintf("the API server does not serve kind %q of %s", kind, gv)
	}
}

// FindKind returns the kind of a resource as the API server writes it; empty if that is not known.
func (r *Resolver) FindKind(ctx context.Context, resource schema.GroupVersionResource) string {
	found, state, _ := r.Resolve(ctx, resource.Group, resource.Version, resource.Resource)
	if state != observed.Complete || found.GVR != resource {
		return ""
	}
	return found.Kind
}

// InvalidateGroup forgets the answers about a group.
func (r *Resolver) InvalidateGroup(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for gv := range r.answers {
		if gv.Group == group {
			delete(r.answers, gv)
		}
	}
}

// getOrAddAnswer returns the answer, which may be pending. mine is true if the caller has to fetch it.
func (r *Resolver) getOrAddAnswer(gv schema.GroupVersion) (a *answer, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used++
	if a, ok := r.answers[gv]; ok {
		a.used = r.used
		return a, false
	}
	if len(r.answers) >= maxAnswers {
		r.dropLeastUsed()
	}
	r.asked++
	a = &answer{number: r.asked, used: r.used, done: make(chan struct{})}
	r.answers[gv] = a
	return a, true
}

// dropLeastUsed drops the answer that was used least recently. A pending answer stays: others wait for it.
func (r *Resolver) dropLeastUsed() {
	var least schema.GroupVersion
	used := 0
	for gv, a := range r.answers {
		select {
		case <-a.done:
			if used == 0 || a.used < used {
				least, used = gv, a.used
			}
		default:
		}
	}
	delete(r.answers, least)
}

func (r *Resolver) fetchAnswer(ctx context.Context, gv schema.GroupVersion, a *answer) {
	var list *metav1.APIResourceList
	var err error
	if p := contain.CatchPanic(func() { list, err = r.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String()) }); p != nil {
		err = p // others wait for the answer
	}
	switch {
	case err != nil:
		a.err = err
	case len(list.APIResources) == 0:
		// client-go returns an empty list for a core group that is forbidden: it proves nothing.
		a.err = errors.New("the API server returned an empty list of resources")
	default:
		a.resources = list.APIResources
	}
	a.at = r.clock.Now()
	if a.err != nil && !apierrors.IsNotFound(a.err) {
		r.dropAnswer(gv, a)
	}
	close(a.done)
}

func (r *Resolver) dropAnswer(gv schema.GroupVersion, a *answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answers[gv] == a {
		delete(r.answers, gv)
	}
}

// findResource finds a kind in the API server's answer.
func findResource(gv schema.GroupVersion, kind string, resources []metav1.APIResource) (Resource, bool) {
	r := v1alpha1.FindKind(kind, resources)
	if r == nil {
		return Resource{}, false
	}
	return Resource{
		GVR: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced,
		Watchable: slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch"),
	}, true
}
