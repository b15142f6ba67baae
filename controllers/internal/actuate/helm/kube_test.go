// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// heldServer has every object that it is asked for, which a finalizer holds, and counts requests.
type heldServer struct {
	requests atomic.Int64
	asked    func(n int64)
}

// ServeHTTP answers a get.
func (s *heldServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if n := s.requests.Add(1); s.asked != nil {
		s.asked(n)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "x", UID: "uid", ResourceVersion: "1", DeletionTimestamp: &metav1.Time{Time: epoch}, Finalizers: []string{"hold"},
			Labels:      map[string]string{managedByLabel: managedByHelm},
			Annotations: map[string]string{releaseNameAnnotation: "shop", releaseNamespaceAnnotation: "team"},
		},
	})
}

var epoch = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// newDeleter returns a deleter of an attempt that may wait for so long, and many objects that are going.
func (s *heldServer) newDeleter(ctx context.Context, t *testing.T, timeout time.Duration) (*objectDeleter, []object) {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	u := must(New(Options{Config: &rest.Config{Host: server.URL, QPS: -1}, Clock: clocktesting.NewFakeClock(epoch)}))(t)
	var objects []object
	for i := range 1000 {
		objects = append(objects, object{
			Ref:        observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespace: "team", Name: fmt.Sprint("x", i), UID: types.UID("uid")},
			namespaced: true,
		})
	}
	return u.newSession(ctx, nil, UninstallRequest{Namespace: "team", Name: "shop", Timeout: timeout}, allow{}).objects, objects
}

// TestALookAtWhatHangsIsShort has a thousand objects that finalizers hold. A try whose time is over does not read all of them once more.
func TestALookAtWhatHangsIsShort(t *testing.T) {
	s := &heldServer{}
	d, objects := s.newDeleter(t.Context(), t, 0)
	if err := d.deleteObjects(objects); !errors.Is(err, errEnded) || d.attempt.outcome.State != Terminating {
		t.Errorf("got %v, and outcome %q", err, d.attempt.outcome.State)
	}
	if got := len(d.attempt.outcome.Remaining); got != len(objects) || len(d.attempt.outcome.Remaining[0].Finalizers) == 0 {
		t.Errorf("%d objects are left, of which the first is %s", got, d.attempt.outcome.Remaining[0])
	}
	if got := s.requests.Load(); got != int64(len(objects)+enoughRemaining) {
		t.Errorf("it sends %d requests for %d objects", got, len(objects))
	}
}

// TestADeletionEndsWithItsContext: no object is read, and no error collected, once the try has ended.
func TestADeletionEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &heldServer{asked: func(n int64) {
		if n == 10 {
			cancel()
		}
	}}
	d, objects := s.newDeleter(ctx, t, time.Hour)
	if err := d.deleteObjects(objects); !errors.Is(err, context.Canceled) || len(err.Error()) > 100 {
		t.Errorf("got %v", err)
	}
	if got := s.requests.Load(); got != 10 {
		t.Errorf("it sends %d requests, and was to end with the tenth", got)
	}
}
