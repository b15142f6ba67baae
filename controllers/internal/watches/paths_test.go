// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/live"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// TestNamesThatAreNoPathSegments shows that no name leads a request to another path, nor an empty one to all that there is: nothing is
// asked of the API server.
func TestNamesThatAreNoPathSegments(t *testing.T) {
	watched, s := apiserver.New(t), apiserver.New(t)
	for _, s := range []*apiserver.Server{watched, s} {
		s.Put(apiserver.Pods, "a", "web", nil)
		s.Put(apiserver.Nodes, "", "n", nil)
	}
	r, l := newRig(t, watched), newLive(t, s)
	r.SetInterests(owner("c"), interests(queries.New("Pod"), queries.New("Node")))
	r.reads(queries.New("Pod"), observed.Complete, "web")
	r.reads(queries.New("Node"), observed.Complete, "n")
	l.Read(t.Context(), queries.New("Pod"))
	l.Read(t.Context(), queries.New("Node"))
	var paths []string
	s.SetFault(func(_ http.ResponseWriter, _ string, _ schema.GroupVersionResource, r *http.Request) bool {
		paths = append(paths, r.URL.Path) // one request is over before the next is made
		return false
	})
	for _, name := range []string{"../x", "..", ".", "a/b", "/", "a%2fb", "%2e%2e", "../../../a/pods/web", "web/log"} {
		for kind, q := range map[string]snapshot.Query{
			"object": queries.New("Pod", queries.Named(name)), "namespace": queries.New("Pod", queries.In(name), queries.Named("web")), "cluster-scoped": queries.New("Node", queries.Named(name)),
			"list": queries.New("Pod", queries.In(name)), "among": queries.New("Pod", queries.Among("a", name)), "selected": queries.New("Pod", queries.Named(name), queries.Labelled("app=web")),
		} {
			metadata := q
			metadata.MetadataOnly = true
			for _, q := range []snapshot.Query{q, metadata} {
				for who, reader := range map[string]snapshot.Reader{"live": l, "watches": r} {
					got := reader.Read(t.Context(), q)
					if got.State != observed.Failed || !strings.Contains(got.Detail, fmt.Sprintf("is named %q: a name may not", name)) {
						t.Errorf("%s, %s %q: got %s %q", who, kind, name, got.State, got.Detail)
					}
				}
			}
		}
	}
	if got := l.Read(t.Context(), queries.New("Pod", queries.Among("a", ""))); got.State != observed.Failed || got.Detail != `no namespace is named ""` {
		t.Errorf("of a namespace without a name: got %s %q with %v", got.State, got.Detail, queries.PlacesOf(got))
	}
	if len(paths) > 0 {
		t.Errorf("the API server was asked for %q", paths)
	}
}

func newLive(t *testing.T, s *apiserver.Server) *live.Reader {
	d := discovery.NewDiscoveryClientForConfigOrDie(s.Config())
	l, err := live.NewReader("the operator", s.Config(), clock.RealClock{}, served.NewResolver(clock.RealClock{}, d, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return l
}
