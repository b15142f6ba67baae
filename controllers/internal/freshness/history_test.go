// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// moment is what there was between two changes: labels and versions of Pods and of Namespaces, by "namespace/name".
type moment struct {
	labels   map[string]labels.Set
	versions map[string]int
}

// find lists what a query selects at a moment, with versions.
func (m *moment) find(q *snapshot.Query) (found []string) {
	for at, version := range m.versions {
		namespace, name, _ := strings.Cut(at, "/")
		if (namespace == "") != (q.Kind == "Namespace") || q.Namespace != "" && q.Namespace != namespace || !q.Labels.Matches(m.labels[at]) {
			continue
		}
		if place := (&observed.Object{Labels: m.labels["/"+namespace]}); namespace != "" && !q.Namespaces.MatchesNamespace(namespace, place) {
			continue
		}
		found = append(found, fmt.Sprint(namespace, "/", name, " ", version))
	}
	slices.Sort(found)
	return found
}

// past has all moments. It changes the API server, one change at a time.
type past struct {
	server  *apiserver.Server
	mu      sync.Mutex
	moments []*moment
}

// change makes one change at random.
func (p *past) change(random *rand.Rand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.moments[len(p.moments)-1]
	next := &moment{maps.Clone(last.labels), maps.Clone(last.versions)}
	namespace, name := string(rune('a'+random.IntN(4))), fmt.Sprint("p", random.IntN(12))
	gvr := apiserver.Pods
	set := labels.Set{"app": fmt.Sprint(random.IntN(3))}
	if random.IntN(8) == 0 {
		gvr, namespace, name, set = apiserver.Namespaces, "", namespace, labels.Set{"tier": fmt.Sprint(random.IntN(2))}
	}
	at := namespace + "/" + name
	if next.versions[at] > 0 && gvr == apiserver.Pods && random.IntN(3) == 0 {
		delete(next.versions, at)
		p.server.Remove(gvr, namespace, name)
	} else {
		next.labels[at], next.versions[at] = set, p.server.Put(gvr, namespace, name, set)
	}
	p.moments = append(p.moments, next)
}

// countMoments counts the moments until now. The last is the first that a reader may see who asks now.
func (p *past) countMoments() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.moments)
}

// wasSo says that an answer is what a query selected at one of the moments since the first.
func (p *past) wasSo(q *snapshot.Query, got observed.Target, first int) (bool, string) {
	var found []string
	for i := range got.Objects {
		o := &got.Objects[i]
		found = append(found, fmt.Sprint(o.Namespace, "/", o.Name, " ", o.ResourceVersion))
	}
	slices.Sort(found)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.moments[first:] {
		if slices.Equal(m.find(q), found) {
			return true, ""
		}
	}
	return false, fmt.Sprintf("got %v\nwas %v\nis  %v", found, p.moments[first].find(q), p.moments[len(p.moments)-1].find(q))
}

// Whatever changes, and whatever goes wrong, each answer is what there was at one moment after it was asked for.
func TestEachAnswerWasTrueSinceItWasAskedFor(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("FRESHNESS_ROUNDS")) // make fuzz plays more
	if err != nil {
		rounds = 8
	}
	proved := 0
	for round := range rounds {
		proved += playRound(t, uint64(round))
	}
	if t.Logf("%d answers were proved", proved); proved < 50*rounds {
		t.Errorf("of all answers only %d were proved", proved)
	}
}

// playRound plays one random history, and returns how many answers were proved.
func playRound(t *testing.T, seed uint64) (proved int) {
	random := rand.New(rand.NewPCG(seed, 1))
	s := apiserver.New(t)
	p := &past{server: s, moments: []*moment{{labels: map[string]labels.Set{}, versions: map[string]int{}}}}
	for range 60 {
		p.change(random)
	}
	qs := []snapshot.Query{
		everywhere(), everywhere(queries.Labelled("app=1")), queries.New("Pod", queries.In("b")), queries.New("Pod", queries.ChosenBy("tier=1")), queries.New("Pod", queries.Among("a", "c")),
		everywhere(queries.MetadataOnly), queries.New("Pod", queries.ChosenBy("tier=0"), queries.Labelled("app!=0")), queries.New("Namespace", queries.In("")),
	}
	r := newRig(t, s, qs...)
	r.few, r.patience, r.listTime = []int{500, 0}[seed%2], 30*time.Millisecond, time.Minute
	if seed%4 == 1 { // changes are followed
		r.worth = 0
	}
	setFaults(s, rand.New(rand.NewPCG(seed, 2)))
	end := make(chan struct{})
	var readers sync.WaitGroup
	var mu sync.Mutex
	for range 6 {
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				q := qs[n%len(qs)]
				first := p.countMoments() - 1
				got := r.Read(t.Context(), q)
				if got.State != observed.Complete {
					continue
				}
				mu.Lock()
				proved++
				mu.Unlock()
				if was, why := p.wasSo(&q, got, first); !was {
					t.Errorf("seed %d: query %d was never so:\n%s", seed, n%len(qs), why)
				}
			}
		})
	}
	for range 400 {
		p.change(random)
		r.clock.SetTime(r.clock.Now().Add(pauseAfterFailure / 20))
		switch random.IntN(40) {
		case 0:
			r.gate.shut()
		case 1, 2:
			r.gate.open()
		case 4:
			s.Disconnect(apiserver.Pods, random.IntN(2) == 0)
		case 5:
			s.Disconnect(apiserver.Namespaces, random.IntN(2) == 0)
		}
		<-time.After(time.Duration(random.IntN(2000)) * time.Microsecond)
		if random.IntN(25) == 0 { // it is quiet for some time
			r.gate.open()
			<-time.After(40 * time.Millisecond)
		}
	}
	close(end)
	r.gate.open()
	readers.Wait()
	return proved
}

// setFaults has some requests fail or take long.
func setFaults(s *apiserver.Server, random *rand.Rand) {
	var mu sync.Mutex
	s.SetFault(func(w http.ResponseWriter, verb string, _ schema.GroupVersionResource, _ *http.Request) bool {
		mu.Lock()
		dice, wait := random.IntN(30), time.Duration(random.IntN(3000))*time.Microsecond
		mu.Unlock()
		switch {
		case verb == "list" && dice == 0:
			http.Error(w, "made up", http.StatusInternalServerError)
			return true
		case verb == "list" && dice < 10:
			<-time.After(wait)
		}
		return false
	})
}
