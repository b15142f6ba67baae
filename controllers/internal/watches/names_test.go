// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/nameturns"
	"github.com/vtex/cleaner/test/queries"
)

// deniesAll lets nobody do anything.
type deniesAll struct {
	authorizationv1client.SelfSubjectAccessReviewInterface
}

func (deniesAll) Create(_ context.Context, r *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SelfSubjectAccessReview, error) {
	return r, nil
}

// ServerResourcesForGroupVersionWithContext serves Pods.
func (deniesAll) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: []metav1.APIResource{
		{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get", "list", "watch"}},
	}}, nil
}

// memoryInUse is what is held, and the stacks of goroutines.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// The names that the operator may not watch take a bounded part of its memory, and no goroutine each.
func TestNamesThatMayNotBeWatchedTakeLittle(t *testing.T) {
	const owners, each, bytes = 200, 64, 3 << 10
	e, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Clock: clock.RealClock{}, Access: deniesAll{}, Discovery: deniesAll{}, RetryEvery: retry})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- e.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()
	isWaiting := func(name string) func() bool {
		return func() bool {
			e.mu.RLock()
			defer e.mu.RUnlock()
			for _, r := range e.catalog.resources {
				if s := r.scopes[scopeKey{namespace: "a", name: name}]; s != nil {
					return true
				}
			}
			return false
		}
	}
	e.SetInterests(owner("first"), interests(queries.New("Pod", queries.Named("first"))))
	until(t, "the first name waits for its turn", isWaiting("first"))
	memory, goroutines := memoryInUse(), runtime.NumGoroutine()
	for n := range owners {
		var all []Interest
		for k := range each {
			all = append(all, Interest{Query: queries.New("Pod", queries.Named(fmt.Sprint("p", n, "-", k)), queries.MetadataOnly)})
		}
		e.SetInterests(owner(fmt.Sprint("c", n)), all)
	}
	until(t, "the last name waits for its turn", isWaiting(fmt.Sprint("p", owners-1, "-", each-1)))
	until(t, "all of them stand in line", func() bool {
		e.mu.RLock()
		defer e.mu.RUnlock()
		waiting := 0
		for _, r := range e.catalog.resources {
			for _, s := range r.scopes {
				if s.inLine {
					waiting++
				}
			}
		}
		return waiting > owners*each-2*nameturns.AtOnce-namesAtATime
	})
	if more := runtime.NumGoroutine() - goroutines; more > namesAtATime {
		t.Errorf("%d names take %d goroutines", owners*each, more)
	}
	per := (memoryInUse() - memory) / (owners * each)
	t.Logf("a name takes %d bytes", per)
	if per > bytes {
		t.Errorf("a name takes %d bytes, more than %d", per, bytes)
	}
}
