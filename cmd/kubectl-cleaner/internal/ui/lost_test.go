// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

// newLost returns a server whose fleet is empty, with a clock that tests move.
func newLost(t *testing.T, objects ...*unstructured.Unstructured) (*site, *clocktesting.FakeClock, *dynamicfake.FakeDynamicClient) {
	t.Helper()
	s := newSite(t, &commands{}, objects...)
	s.fleet = newFleet()
	fake := clocktesting.NewFakeClock(begin)
	s.Clock = fake
	return s, fake, s.Client.(*dynamicfake.FakeDynamicClient)
}

// A watch that is refused, or cannot begin because the cluster was restored from a backup, leads to new lists: pages show what they say.
func TestRefusedWatchesLeadToLists(t *testing.T) {
	tooLarge := apierrors.NewTimeoutError("Too large resource version: 9000, current: 12", 1)
	tooLarge.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	for name, refusal := range map[string]error{
		"Forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "cleaners"}, "", errors.New(`User "bob" cannot watch`)),
		"TooLarge":  tooLarge,
	} {
		t.Run(name, func(t *testing.T) {
			s, fake, client := newLost(t, object(t, preview))
			var changed atomic.Bool
			client.PrependReactor("list", "cleaners", func(clienttesting.Action) (bool, runtime.Object, error) {
				if !changed.Load() {
					return false, nil, nil
				}
				list := &unstructured.UnstructuredList{Object: map[string]any{"kind": "CleanerList", "apiVersion": "cleaner.vtex.dev/v1alpha1"}}
				list.Items = append(list.Items, *object(t, strings.ReplaceAll(preview, "2 items wait", "3 items wait")))
				return true, list, nil
			})
			client.PrependWatchReactor("cleaners", func(clienttesting.Action) (bool, watch.Interface, error) { return true, nil, refusal })
			followers(t, s)
			eventually(t, "the refusal is said", func() bool { return strings.HasPrefix(s.fleet.sourceOf("Cleaner").Problem, "Cannot watch Cleaners") })
			wants(t, s.page(http.StatusOK, "/"), "Cannot watch Cleaners", "2 items wait")
			changed.Store(true)
			eventually(t, "the change is listed", func() bool {
				fake.Step(time.Second)
				return strings.Contains(s.page(http.StatusOK, "/"), "3 items wait")
			})
			wants(t, s.page(http.StatusOK, "/"), "Cannot watch Cleaners")
		})
	}
}

// Cleaners that the user may no longer list go from the pages, and come back with the rights.
func TestWithdrawnRights(t *testing.T) {
	const nothing, one, all = 0, 1, 2
	s, fake, client := newLost(t, object(t, preview), object(t, strings.ReplaceAll(preview, "team", "secrets")))
	var rights atomic.Int64
	rights.Store(all)
	refuse := func(a clienttesting.Action) error {
		if r := rights.Load(); r == all || r == one && a.GetNamespace() == "team" {
			return nil
		}
		return apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("withdrawn"))
	}
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		err := refuse(a)
		return err != nil, nil, err
	})
	watches := make(chan *watch.RaceFreeFakeWatcher, 100)
	client.PrependWatchReactor("cleaners", func(a clienttesting.Action) (bool, watch.Interface, error) {
		if err := refuse(a); err != nil {
			return true, nil, err
		}
		w := watch.NewRaceFreeFake()
		watches <- w
		return true, w, nil
	})
	followers(t, s)
	shown := func(want ...string) func() bool {
		return func() bool {
			fake.Step(time.Second)
			rows, _, _ := s.fleet.listRows()
			if len(rows) != len(want) {
				return false
			}
			for i := range rows {
				if rows[i].Namespace != want[i] {
					return false
				}
			}
			return true
		}
	}
	eventually(t, "all are shown", shown("secrets", "team"))
	rights.Store(one)
	(<-watches).Stop()
	eventually(t, "those of the namespace are left", shown("team"))
	wants(t, s.page(http.StatusOK, "/"), "Only the Cleaners of namespace team are shown")
	w := <-watches
	rights.Store(nothing)
	w.Stop()
	eventually(t, "none is left", shown())
	wants(t, s.page(http.StatusOK, "/"), "Cleaners cannot be shown")
	rights.Store(all)
	eventually(t, "all are shown again", shown("secrets", "team"))
	eventually(t, "nothing is said to be missing", func() bool { return s.fleet.sourceOf("Cleaner") == source{Listed: true} })
}

// hangingCluster answers no list and no watch, as long as the caller waits.
type hangingCluster struct {
	dynamic.Interface
	lists bool
}

func (c hangingCluster) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return hangingResource{c.Interface.Resource(r), c.lists}
}

type hangingResource struct {
	dynamic.NamespaceableResourceInterface
	lists bool
}

func (r hangingResource) Namespace(string) dynamic.ResourceInterface { return r }

func (r hangingResource) List(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	if r.lists {
		return r.NamespaceableResourceInterface.List(ctx, o)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (r hangingResource) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A cluster that does not answer does not keep the page waiting for ever: it says so.
func TestHungCluster(t *testing.T) {
	for name, tc := range map[string]struct {
		lists bool
		says  string
	}{
		"List":  {false, "Cannot read Cleaners: The cluster did not answer in time."},
		"Watch": {true, "Cannot watch Cleaners, and lists them again and again instead: The cluster did not answer in time."},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, client := newLost(t, object(t, preview))
			s.Client = hangingCluster{client, tc.lists}
			f := &follower{Server: s.Server, kind: "Cleaner", resource: "cleaners", patience: time.Millisecond}
			_, err := f.followOnce(t.Context(), "")
			if err == nil {
				t.Fatal("it waits for nothing")
			}
			f.reportFailure(err)
			wants(t, s.page(http.StatusOK, "/"), tc.says)
		})
	}
}
