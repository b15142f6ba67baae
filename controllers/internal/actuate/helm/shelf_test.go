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
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// secretServer is an API server with one Secret, and knows how often it was read.
type secretServer struct {
	t    *testing.T
	mu   sync.Mutex
	data []byte
	// version is the resourceVersion, and reads how often the Secret was read with what is in it.
	version, reads int
}

func (s *secretServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	secret := recordOf(s.t, s.data)
	secret.Kind, secret.APIVersion = "Secret", "v1"
	secret.UID, secret.ResourceVersion = "uid", fmt.Sprint(s.version)
	var answer any = secret
	if strings.HasSuffix(r.URL.Path, "/secrets") {
		answer = &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
			Items:    []metav1.PartialObjectMetadata{{TypeMeta: secret.TypeMeta, ObjectMeta: secret.ObjectMeta}},
		}
	} else {
		s.reads++
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

// change writes another record into the Secret.
func (s *secretServer) change(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.data = data
}

// TestARecordIsReadOnce shows that a record is read in a slot, and not again until its Secret has changed: neither one that is sound, nor
// one that is too large or broken. It is live all the same: which Secrets there are is asked each time.
func TestARecordIsReadOnce(t *testing.T) {
	server := &secretServer{t: t}
	address := httptest.NewServer(server)
	t.Cleanup(address.Close)
	shelf := NewShelf()
	slots := 0
	slot := ReadSlot(func(context.Context) (func(), error) {
		slots++
		return func() {}, nil
	})
	for n, tc := range []struct{ data, blocked string }{
		{data: around("")},
		{data: around(`"a":2`)},
		{data: "[[", blocked: v1alpha1.ReasonReleaseUnreadable},
		{data: around(`"manifest":` + quoted(t, many(repeatedKind("[],", 300, 918), 100<<10))), blocked: v1alpha1.ReasonTooManyObjects},
	} {
		server.change(zipped(t, []byte(tc.data)))
		for range 3 { // each as another identity
			u := must(New(Options{Config: &rest.Config{Host: address.URL}, Clock: clock.RealClock{}, Shelf: shelf}))(t)
			for range 2 {
				got := u.ReadWanted(t.Context(), slot, "team", &v1alpha1.Helm{Release: "shop", Delete: true})
				if got == nil || got.Blocked != tc.blocked {
					t.Errorf("record %d: got %+v, want it to be %q", n, got, tc.blocked)
				}
			}
		}
		if server.reads != n+1 || slots != n+1 {
			t.Errorf("%d records were read %d times, in %d slots", n+1, server.reads, slots)
		}
	}
	// One whose time is over is not known.
	server.change(zipped(t, []byte(around(""))))
	u := must(New(Options{Config: &rest.Config{Host: address.URL}, Clock: clock.RealClock{}, Shelf: shelf}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	ends := ReadSlot(func(context.Context) (func(), error) {
		cancel()
		return func() {}, nil
	})
	if _, err := u.ReadRelease(ctx, ends, "team", "shop"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := u.ReadRelease(t.Context(), slot, "team", "shop"); err != nil {
		t.Errorf("after one whose time was over: %v", err)
	}
}

// TestAShelfIsBounded has one namespace fill the shelf: it loses what it has asked for least recently, and no other loses anything.
func TestAShelfIsBounded(t *testing.T) {
	s := NewShelf()
	meta := func(namespace string, n int) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Namespace: namespace, UID: types.UID(fmt.Sprint(namespace, n)), ResourceVersion: "1"}
	}
	keep := func(namespace string, n, bytes int) {
		s.keepRecord(meta(namespace, n), record{content: &recordContent{release: made(), heads: strings.Repeat("a", bytes)}}, nil)
	}
	has := func(namespace string, n int) bool {
		_, _, found := s.findRecord(meta(namespace, n))
		return found
	}
	keep("calm", 0, 1<<20)
	const large = 1 << 20
	for n := range 40 {
		keep("loud", n, large)
		if !has("loud", 0) && n < 10 {
			t.Fatalf("the record that is asked for most is gone after %d", n)
		}
	}
	bytes := 0
	for _, k := range s.kept {
		bytes += k.bytes
	}
	if bytes > shelfBytes || bytes < shelfBytes/2 {
		t.Errorf("it has %d bytes, of %d", bytes, shelfBytes)
	}
	if !has("calm", 0) || !has("loud", 39) || has("loud", 11) {
		t.Error("it has not lost what the loud namespace has asked for least recently")
	}
	for n := range 2 * shelfRecords {
		s.keepRecord(meta("wrong", n), record{}, &BlockedError{Detail: "it is broken"})
	}
	if len(s.kept) > shelfRecords || !has("calm", 0) {
		t.Errorf("it has %d records", len(s.kept))
	}
	// Of one Secret there is the last version.
	again := meta("calm", 0)
	again.ResourceVersion = "2"
	s.keepRecord(again, record{}, &BlockedError{Detail: "it is broken"})
	if has("calm", 0) {
		t.Error("it has a version that is not the last")
	}
	if _, err, found := s.findRecord(again); !found || err == nil || err.Error() != "it is broken" {
		t.Errorf("got %v, %t", err, found)
	}
	s.keepRecord(meta("calm", 7), record{}, context.Canceled)
	if has("calm", 7) {
		t.Error("it has an error that says nothing about the record")
	}
}
