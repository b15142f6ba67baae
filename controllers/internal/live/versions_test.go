// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
)

var podResource = served.Resource{GVR: apiserver.Pods, Kind: "Pod", Namespaced: true, Watchable: true}

// Versions are those of now: no cache may answer. All pages are of one version.
func TestVersions(t *testing.T) {
	s := apiserver.New(t)
	last := 0
	for n := range 2*pageSize + 3 {
		last = s.Put(apiserver.Pods, []string{"a", "b"}[n%2], fmt.Sprint("p", n), nil)
	}
	var asked []string
	s.SetFault(func(_ http.ResponseWriter, verb string, _ schema.GroupVersionResource, r *http.Request) bool {
		if q := r.URL.Query(); verb == "list" {
			asked = append(asked, fmt.Sprint(r.URL.Path, " ", q.Get("limit"), " ", q["resourceVersion"], q["resourceVersionMatch"]))
		}
		return false
	})
	l := newReader(t, s)
	if version, err := l.ReadVersion(t.Context(), podResource, "b"); err != nil || version != strconv.Itoa(last) {
		t.Errorf("got %q, %v", version, err)
	}
	refs, version, err := l.ListVersions(t.Context(), podResource, "", "", "")
	if err != nil || version != strconv.Itoa(last) || len(refs) != 2*pageSize+3 {
		t.Errorf("got %d objects at %q, %v", len(refs), version, err)
	}
	page := "/api/v1/pods " + strconv.Itoa(pageSize) + " [] []"
	if diff := cmp.Diff([]string{"/api/v1/namespaces/b/pods 1 [] []", page, page, page}, asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for i := range refs {
		if r := &refs[i]; r.UID == "" || r.ResourceVersion == "" || r.Name == "" || r.Namespace == "" || r.Resource != apiserver.Pods {
			t.Fatalf("it gives %+v", r)
		}
	}
	s.SetFault(func(_ http.ResponseWriter, verb string, _ schema.GroupVersionResource, _ *http.Request) bool {
		if verb == "list" {
			s.Put(apiserver.Pods, "c", "more", nil)
		}
		return false
	})
	if _, _, err := l.ListVersions(t.Context(), podResource, "", "", ""); err == nil || !strings.Contains(err.Error(), "different versions") {
		t.Errorf("pages of several versions give %v", err)
	}
}

// Changes are followed up to a version: the last one before it counts, of what selectors select.
func TestFollowChanges(t *testing.T) {
	s := apiserver.New(t)
	from := s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "a"})
	second := s.Put(apiserver.Pods, "b", "p", map[string]string{"app": "b"})
	third := s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "a"})
	other := s.Put(apiserver.Namespaces, "", "x", nil)
	l := newReader(t, s)
	for name, tc := range map[string]struct {
		namespace, labels string
		to, want          int
	}{
		"All":           {"", "", other, third},
		"UpToTheSecond": {"", "", second, second},
		"OfANamespace":  {"b", "", other, second},
		"Labelled":      {"", "app=b", other, second},
		"Nothing":       {"", "app=c", other, from},
	} {
		if last, err := l.FollowChanges(t.Context(), podResource, tc.namespace, tc.labels, "", strconv.Itoa(from), strconv.Itoa(tc.to)); err != nil || last != strconv.Itoa(tc.want) {
			t.Errorf("%s: got %q, %v, want %d", name, last, err, tc.want)
		}
	}
	for range maxFollowed {
		s.Put(apiserver.Pods, "a", "p", nil)
	}
	now := s.Put(apiserver.Namespaces, "", "x", nil)
	for name, tc := range map[string]struct{ to, says string }{
		"TooMany":   {strconv.Itoa(now), "pods change too often"},
		"NoVersion": {"x", "cannot compare versions of pods"},
	} {
		if last, err := l.FollowChanges(t.Context(), podResource, "", "", "", strconv.Itoa(from), tc.to); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %q, %v", name, last, err)
		}
	}
	s.SetFault(func(w http.ResponseWriter, verb string, _ schema.GroupVersionResource, _ *http.Request) bool {
		if verb != "watch" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old","code":410}}`)
		return true
	})
	if last, err := l.FollowChanges(t.Context(), podResource, "", "", "", strconv.Itoa(from), strconv.Itoa(now)); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("a version that is too old: got %q, %v", last, err)
	}
}

// little has room for so many bytes.
type little struct{ left atomic.Int64 }

func (l *little) TakeBytes(bytes int64) error {
	if l.left.Add(-bytes) < 0 && bytes > 0 {
		return errors.New("no room")
	}
	return nil
}

// Where the objects of a page are too large, pages are smaller. Where those are too large as well, it is an error.
func TestVersionsOfLargeObjects(t *testing.T) {
	s := apiserver.New(t)
	for n := range 60 {
		s.Put(apiserver.Pods, "a", fmt.Sprint("p", n), map[string]string{"l": strings.Repeat("x", 10<<10)})
	}
	one, err := json.Marshal(strings.Repeat("x", 10<<10))
	if err != nil {
		t.Fatal(err)
	}
	l := newReader(t, s)
	for name, tc := range map[string]struct {
		objects int
		want    bool
	}{"All": {80, true}, "SmallPages": {40, true}, "TooLarge": {20, false}} {
		room := &little{}
		room.left.Store(int64(tc.objects * len(one) * perByte))
		refs, _, err := l.ListVersions(snapshot.WithMemory(t.Context(), room), podResource, "", "", "")
		if (err == nil) != tc.want || tc.want && len(refs) != 60 {
			t.Errorf("%s: got %d objects, %v", name, len(refs), err)
		}
	}
}
