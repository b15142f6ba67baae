// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// redefine has a server show an object otherwise at the same version, and its definition at another generation.
func redefine(t *testing.T, s *apiserver.Server, gvr schema.GroupVersionResource, version int, generation int64, o map[string]any) {
	t.Helper()
	s.RemoveSilently(gvr, "a", "o")
	s.SetVersion(version - 1)
	if again := s.Put(gvr, "a", "o", nil, o); again != version {
		t.Fatal(again)
	}
	defineAt(s, gvr, generation)
}

func keeping(value string) map[string]any {
	return map[string]any{"status": map[string]any{"keep": value}}
}

func shownIn(t observed.Target) string {
	return observed.NestedString(t.Objects[0].Value, "status", "keep")
}

func defineAt(s *apiserver.Server, gvr schema.GroupVersionResource, generation int64) {
	s.Put(apiserver.CRDs, "", gvr.GroupResource().String(), nil, map[string]any{"metadata": map[string]any{"generation": generation}, "note": fmt.Sprint(generation)})
}

// newDefined has an Engine that knows one custom object and its definition. It returns the query and the version of the object, too.
func newDefined(t *testing.T, change ...func(*snapshot.Query)) (*rig, snapshot.Query, int) {
	t.Helper()
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	defineAt(s, apiserver.Revisions, 1)
	version := s.Put(apiserver.Revisions, "a", "o", nil, keeping("no"))
	r, q := newRig(t, s), queries.New("Revision", change...)
	r.SetInterests(owner("c"), interests(q))
	r.reads(q, observed.Complete, "o")
	until(t, "definitions are known", func() bool { return !r.Read(t.Context(), q).Outdated })
	return r, q, version
}

// A definition gets a default, so that the API server shows an object otherwise, at the same version. All is listed again when that holds everywhere, and
// until then what is known is outdated.
func TestObjectsAreListedAgainWhenTheirDefinitionHasChanged(t *testing.T) {
	for name, change := range map[string][]func(*snapshot.Query){"Whole": {queries.In("")}, "Projected": {queries.In(""), reading("keep")}} {
		t.Run(name, func(t *testing.T) {
			r, q, version := newDefined(t, change...)
			s := r.server
			keep := func() string { return shownIn(r.Read(t.Context(), q)) }
			before := r.Read(t.Context(), q).Definition

			redefine(t, s, apiserver.Revisions, version, 2, keeping("yes"))
			until(t, "it is outdated", func() bool { return r.Read(t.Context(), q).Outdated })
			r.reads(q, observed.Complete, "o")
			if _, _, _, ok := r.FindPlace(&q); ok {
				t.Error("it may be proved")
			}
			until(t, "it shows what the API server shows", func() bool { return keep() == "yes" })
			until(t, "it is not outdated", func() bool { return !r.Read(t.Context(), q).Outdated })
			r.reads(q, observed.Complete, "o")
			if now := r.Read(t.Context(), q).Definition; before == now || !strings.HasSuffix(before, "generation 1") || !strings.HasSuffix(now, "generation 2") {
				t.Errorf("it was read by the definition %q, and then by %q", before, now)
			}
		})
	}
}

// The owner hears of objects that are shown otherwise at the same versions.
func TestWhoeverReadsObjectsHearsOfTheirNewDefinition(t *testing.T) {
	r, q, version := newDefined(t, queries.In(""))
	s := r.server
	before := r.Read(t.Context(), q).At
	r.wakes(owner("c"), "what is shown otherwise", func() {
		redefine(t, s, apiserver.Revisions, version, 2, keeping("yes"))
		until(t, "it is shown", func() bool { return shownIn(r.Read(t.Context(), q)) == "yes" })
	})
	since := q
	since.Since = before
	if r.Read(t.Context(), since).IsChange {
		t.Error("only changes are shown since the list before, which do not show it")
	}
}

// A definition that is as it was leaves what was read as it is.
func TestAStatusOfADefinitionChangesNothing(t *testing.T) {
	r, _, _ := newDefined(t, queries.In(""))
	s := r.server
	i := informerOf(t, r.Engine, apiserver.Revisions)
	version := s.Put(apiserver.CRDs, "", apiserver.Revisions.GroupResource().String(), nil, map[string]any{"metadata": map[string]any{"generation": int64(1)}, "status": "new"})
	definitions := served.NewDefinitionQuery("")
	until(t, "it is known", func() bool {
		t := r.Read(t.Context(), definitions)
		return len(t.Objects) == 1 && t.Objects[0].ResourceVersion == fmt.Sprint(version)
	})
	r.Engine.mu.RLock()
	defer r.Engine.mu.RUnlock()
	if i.isOutdated() || !i.wider.Due.IsZero() {
		t.Errorf("all is listed again for %q", i.scope.resource.definition)
	}
}

// While definitions cannot be watched, what custom objects are is not known for certain. Definitions that have changed meanwhile are noticed.
func TestADefinitionThatChangesUnwatchedIsNoticed(t *testing.T) {
	r, q, version := newDefined(t, queries.In(""))
	s := r.server
	denial := apiserver.Denial{Resource: "customresourcedefinitions", Namespace: "*", Name: "*"}
	s.Deny(denial)
	s.Disconnect(apiserver.CRDs, true)
	until(t, "definitions are not known", func() bool { return r.Read(t.Context(), q).Outdated })
	redefine(t, s, apiserver.Revisions, version, 2, keeping("yes"))
	s.Deny()
	until(t, "it shows what the API server shows", func() bool {
		t := r.Read(t.Context(), q)
		return t.State == observed.Complete && !t.Outdated && shownIn(t) == "yes"
	})
}

// What begins to be watched while a definition settles may be as it was before, too: it is listed again as well.
func TestWhatIsWatchedWhileADefinitionSettlesIsListedAgain(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	defineAt(s, apiserver.Revisions, 1)
	version := s.Put(apiserver.Revisions, "a", "o", nil, keeping("no"))
	r := newRig(t, s)
	definitions := served.NewDefinitionQuery("")
	q := queries.New("Revision", queries.In(""))
	until(t, "definitions are known", func() bool { return len(r.Read(t.Context(), definitions).Objects) > 0 })
	defineAt(s, apiserver.Revisions, 2)
	until(t, "it settles", func() bool {
		r.Engine.mu.Lock()
		defer r.Engine.mu.Unlock()
		return !r.Engine.catalog.settling.FindEnd(apiserver.Revisions.GroupResource(), time.Now()).IsZero()
	})
	r.SetInterests(owner("c"), interests(q)) // an API server that has not heard of the definition yet shows it as it was
	r.reads(q, observed.Complete, "o")
	if got := r.Read(t.Context(), q); !got.Outdated || shownIn(got) != "no" {
		t.Errorf("got %q, outdated: %t", shownIn(got), got.Outdated)
	}
	last := s.Put(apiserver.Namespaces, "", "other", nil)
	s.RemoveSilently(apiserver.Revisions, "a", "o")
	s.SetVersion(version - 1)
	s.Put(apiserver.Revisions, "a", "o", nil, keeping("yes"))
	s.SetVersion(last)
	until(t, "it shows what the API server shows", func() bool {
		got := r.Read(t.Context(), q)
		return got.State == observed.Complete && !got.Outdated && shownIn(got) == "yes"
	})
}

// The list of a kind is under way, as an earlier definition has it, when definitions become known for the first time.
func TestAListIsOlderThanTheFirstKnownDefinition(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	defineAt(s, apiserver.Revisions, 1)
	version := s.Put(apiserver.Revisions, "a", "o", nil, keeping("no"))
	var asked atomic.Bool
	listed, defined, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
		streams := r.URL.Query().Get("sendInitialEvents") == "true"
		switch {
		case gvr == apiserver.CRDs && (verb == "list" || streams):
			<-defined
		case gvr == apiserver.Revisions && streams:
			apiserver.Fail(w, http.StatusUnprocessableEntity, "Invalid", nil)
			return true
		case gvr == apiserver.Revisions && verb == "list" && asked.CompareAndSwap(false, true):
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, r)
			close(listed)
			<-answered
			maps.Copy(w.Header(), answer.Header())
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return true
		}
		return false
	})
	r, q := newRig(t, s), queries.New("Revision", queries.In(""))
	r.SetInterests(owner("c"), interests(q))
	<-listed
	redefine(t, s, apiserver.Revisions, version, 2, keeping("yes"))
	close(defined)
	definition := served.NewDefinitionQuery(apiserver.Revisions.GroupResource().String())
	until(t, "the definition is known", func() bool { return len(r.Read(t.Context(), definition).Objects) == 1 })
	close(answered)
	until(t, "the list is there", func() bool { return r.Read(t.Context(), q).State == observed.Complete })
	if got := r.Read(t.Context(), q); shownIn(got) == "no" && !got.Outdated {
		t.Errorf("what an earlier definition shows is said to be read by %q", got.Definition)
	}
	until(t, "it is listed again", func() bool {
		got := r.Read(t.Context(), q)
		return got.State == observed.Complete && !got.Outdated && shownIn(got) == "yes"
	})
}

// A definition is deleted, and another API server serves the kind.
func TestADefinitionThatIsGoneIsNotKnown(t *testing.T) {
	r, q, _ := newDefined(t)
	r.server.Remove(apiserver.CRDs, "", apiserver.Revisions.GroupResource().String())
	until(t, "it is not known", func() bool { return r.Read(t.Context(), q).Definition == "" })
	r.reads(q, observed.Complete, "o")
	if got := r.Read(t.Context(), q); got.Outdated || !got.Custom {
		t.Errorf("outdated: %t, custom: %t", got.Outdated, got.Custom)
	}
}
