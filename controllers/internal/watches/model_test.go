// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// model has Cleaners that declare what they want, read it, and look again only when they are woken, while all kinds of things happen to what they
// want and to who answers. When all is quiet, each must have seen what is true.
type model struct {
	*testing.T
	*rand.Rand
	*Engine
	server *apiserver.Server
	// installed says that Revisions are served.
	installed bool
	// kinds are those that Cleaners want in this round, and steps what may happen: few of each, so that they meet.
	kinds []string
	steps []func()

	mu    sync.Mutex
	ring  chan struct{}
	dirty map[Owner]bool
	busy  map[Owner]bool
	wants map[Owner][]snapshot.Query
	seen  map[Owner][]string
	// contents are the Values that were shown under a number, but for their versions.
	contents sync.Map
}

// wakeful is the queue of a model.
type wakeful struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	*model
}

func (q wakeful) Add(r reconcile.Request) { q.wake(r.NamespacedName) }

func secrets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		T: t, Rand: rand.New(rand.NewPCG(seed, 1)), server: apiserver.New(t), installed: true,
		ring: make(chan struct{}, 1), dirty: map[Owner]bool{}, busy: map[Owner]bool{}, wants: map[Owner][]snapshot.Query{}, seen: map[Owner][]string{},
	}
	m.server.Serve(secrets(), "Secret", true)
	m.server.Install(apiserver.Revisions, "Revision", true)
	defineColors(m.server, "first")
	for _, namespace := range []string{"a", "b"} {
		m.server.Put(apiserver.Namespaces, "", namespace, queries.Tier("web"))
	}
	var err error
	if m.Engine, err = New(Options{Config: m.server.Config(), Clock: clock.RealClock{}, RetryEvery: retry}); err != nil {
		t.Fatal(err)
	}
	placementOf(m.Engine).few, placementOf(m.Engine).fewNames = m.IntN(3), m.IntN(3)
	kinds := []string{"Pod", "pods", "Node", "Secret", "secrets", "Revision", "revisions"}
	m.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	m.kinds = kinds[:1+m.IntN(3)]
	steps := []func(){m.disconnect, m.deny, m.fail, m.fail, m.relabel, m.define, func() { pressureOf(m.Engine).closeLargest(0) }}
	m.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	m.steps = append(steps[:1+m.IntN(3)], m.change, m.change, m.change, m.edit, m.edit)
	ctx, stop := context.WithCancel(t.Context())
	if err := m.Source().Start(ctx, wakeful{model: m}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		running.Go(func() { m.work(ctx) })
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return m
}

func (m *model) wake(o Owner) {
	m.mu.Lock()
	m.dirty[o] = true
	m.mu.Unlock()
	select {
	case m.ring <- struct{}{}:
	default:
	}
}

// take returns a Cleaner that was woken, and that nobody works on.
func (m *model) take() (o Owner, wants []snapshot.Query, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o := range m.dirty {
		if !m.busy[o] {
			delete(m.dirty, o)
			m.busy[o] = true
			return o, m.wants[o], true
		}
	}
	return o, nil, false
}

// work has the Cleaners look that were woken.
func (m *model) work(ctx context.Context) {
	for ctx.Err() == nil {
		o, wants, found := m.take()
		if !found {
			select {
			case <-ctx.Done():
			case <-m.ring:
			case <-tick():
			}
			continue
		}
		m.SetInterests(o, interests(wants...))
		seen := m.look(wants)
		m.mu.Lock()
		m.seen[o] = seen
		delete(m.busy, o)
		m.mu.Unlock()
	}
}

// look shows what there is.
func (m *model) look(wants []snapshot.Query) (shown []string) {
	for _, q := range wants {
		t := m.Read(m.Context(), q)
		s := t.State.String()
		if t.State == observed.Complete {
			m.checkContents(t.Objects)
			for _, o := range t.Objects {
				s += fmt.Sprintf(" %s/%s", o.Namespace, o.Name)
				if q.MetadataOnly {
					s += "@" + o.ResourceVersion
				} else {
					s += fmt.Sprint(q.Reads.Projection().Apply(o.Value))
				}
			}
		}
		shown = append(shown, s)
	}
	return shown
}

// checkContents fails if two contents have the same number.
func (m *model) checkContents(objects []observed.Object) {
	for i := range objects {
		if objects[i].Content == 0 {
			continue
		}
		value := maps.Clone(objects[i].Value)
		metadata := maps.Clone(value["metadata"].(map[string]any))
		delete(metadata, "resourceVersion")
		value["metadata"] = metadata
		text := fmt.Sprint(value)
		if was, known := m.contents.LoadOrStore(objects[i].Content, text); known && was != text {
			m.Errorf("content %d was %s, and is %s", objects[i].Content, was, text)
		}
	}
}

func (m *model) pick(all ...string) string { return all[m.IntN(len(all))] }

// reads are what a query reads, by chance, with what its selector compares.
func (m *model) reads(fielded bool) *snapshot.Reads {
	if m.IntN(12) == 0 {
		return nil
	}
	p := projection.Identity()
	for range 1 + m.IntN(2) {
		p = projection.Merge(p, projection.KeepPath("status", m.pick("phase", "reason", "message", "hostIP")))
	}
	if fielded {
		p = projection.Merge(p, projection.KeepPath("status", "phase"), projection.KeepPath("spec", "color"))
	}
	return snapshot.NewReads(p)
}

// query is what a Cleaner may want, in one of two spellings.
func (m *model) query() snapshot.Query {
	kind := m.pick(m.kinds...)
	var change []func(*snapshot.Query)
	if kind != "Node" {
		change = [][]func(*snapshot.Query){
			nil, {queries.In("")}, {queries.Among("a", "b")}, {queries.Except("b")}, {queries.ChosenBy("tier=web")}, {queries.Named("o1")},
		}[m.IntN(6)]
	}
	if m.IntN(4) == 0 {
		change = append(change, queries.Labelled("app=web"))
	}
	selector := map[string]string{"Pod": "status.phase=Failed", "pods": "status.phase=Failed", "Revision": "spec.color=red", "revisions": "spec.color=red"}[kind]
	fielded := selector != "" && m.IntN(3) == 0
	if fielded {
		change = append(change, queries.Fielded(selector))
	}
	if m.IntN(5) == 0 {
		change = append(change, queries.MetadataOnly)
	}
	q := queries.New(kind, change...)
	if kind == "revisions" {
		q.Group = apiserver.Revisions.Group
	}
	if !q.MetadataOnly || fielded {
		q.Reads = m.reads(fielded)
	}
	return q
}

// resource is one of those that Cleaners want.
func (m *model) resource() schema.GroupVersionResource {
	switch m.pick(m.kinds...) {
	case "Node":
		return apiserver.Nodes
	case "Secret", "secrets":
		return secrets()
	case "Revision", "revisions":
		return apiserver.Revisions
	default:
		return apiserver.Pods
	}
}

// change changes an object.
func (m *model) change() {
	gvr := m.resource()
	namespace, name := m.pick("a", "b"), fmt.Sprint("o", m.IntN(3))
	switch {
	case gvr == apiserver.Revisions && !m.installed:
		return
	case gvr == apiserver.Nodes:
		namespace = ""
	}
	if m.IntN(4) == 0 {
		m.server.Remove(gvr, namespace, name)
		return
	}
	m.server.Put(gvr, namespace, name, map[string]string{"app": m.pick("web", "api")}, map[string]any{
		"status": map[string]any{"phase": m.pick("Failed", "Running"), "reason": m.pick("a", "b"), "message": m.pick("x", "y"), "hostIP": m.pick("1", "2")},
		"spec":   map[string]any{"color": m.pick("red", "blue")},
	})
}

// edit has a Cleaner want something else.
func (m *model) edit() {
	o := m.owners()[m.IntN(4)]
	var wants []snapshot.Query
	for range m.IntN(3) {
		wants = append(wants, m.query())
	}
	m.mu.Lock()
	m.wants[o] = wants
	m.mu.Unlock()
	m.wake(o)
}

func (m *model) owners() []Owner {
	return []Owner{owner("c0"), owner("c1"), {Namespace: "b", Name: "c2"}, {Name: "c3"}}
}

// deny takes rights away, or gives all back.
func (m *model) deny() {
	gvr := m.resource()
	all, one := apiserver.Denial{Resource: gvr.Resource}, apiserver.Denial{Resource: gvr.Resource, Namespace: "a"}
	m.server.Deny([][]apiserver.Denial{nil, nil, nil, {all}, {all, one}, {one}}[m.IntN(6)]...)
	if gvr != apiserver.Revisions || m.installed {
		m.server.Disconnect(gvr, true)
	}
}

// fail has requests of one kind fail from now on, or be slow, or none.
func (m *model) fail() {
	code := []int{500, 429, 503, 410, 404, 1, 1, 0, 0, 0}[m.IntN(10)]
	fails, slow := m.pick("list", "watch", "discover", "get", "review"), time.Duration(m.IntN(40))*time.Millisecond
	switch code {
	case 0:
		m.server.SetFault(nil)
	case 1:
		m.server.SetFault(func(_ http.ResponseWriter, verb string, _ schema.GroupVersionResource, r *http.Request) bool {
			if isStreamed(verb, r) || verb == fails {
				<-time.After(slow)
			}
			return false
		})
	default:
		m.server.SetFault(func(w http.ResponseWriter, verb string, _ schema.GroupVersionResource, _ *http.Request) bool {
			switch {
			case verb != fails:
				return false
			case code == http.StatusNotFound:
				http.Error(w, "404 page not found", code)
			default:
				apiserver.Fail(w, code, "ServiceUnavailable", nil)
			}
			return true
		})
	}
}

// define changes the definition of Revisions, or removes or installs it.
func (m *model) define() {
	switch {
	case m.IntN(3) > 0 && m.installed:
		defineColors(m.server, fmt.Sprint(m.IntN(100)))
	case m.installed:
		m.server.Uninstall(apiserver.Revisions)
		m.installed = false
	default:
		m.install()
	}
}

func (m *model) install() {
	if !m.installed {
		m.server.Install(apiserver.Revisions, "Revision", true)
	}
	defineColors(m.server, "again")
	m.installed = true
}

// disconnect ends the watches of a kind.
func (m *model) disconnect() {
	if gvr := m.resource(); gvr != apiserver.Revisions || m.installed {
		m.server.Disconnect(gvr, m.IntN(2) == 0)
	}
}

// relabel changes the labels of a Namespace.
func (m *model) relabel() {
	m.server.Put(apiserver.Namespaces, "", m.pick("a", "b"), queries.Tier(m.pick("web", "db")))
}

// compare says what a Cleaner has seen that is not true, or what it cannot know.
func (m *model) compare() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, wants := range m.wants {
		is := m.look(wants)
		if diff := cmp.Diff(is, m.seen[o]); diff != "" {
			return fmt.Sprintf("%v wants %+v (-is +seen):\n%s", o, wants, diff)
		}
		if slices.ContainsFunc(is, func(s string) bool { return len(s) < len("Complete") || s[:len("Complete")] != "Complete" }) {
			return fmt.Sprintf("%v wants %+v, and gets %v", o, wants, is)
		}
	}
	return ""
}

// TestNobodyMissesAnything shows that each Cleaner hears of all that concerns it, whatever happens at the same time: changes, other reads, lost
// watches, rights, definitions, errors, slow lists, and memory that is used up.
func TestNobodyMissesAnything(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	if more, err := strconv.Atoi(os.Getenv("WATCHES_ROUNDS")); err == nil { // make fuzz plays more
		rounds = more
	}
	began := uint64(time.Now().UnixNano())
	for n := range rounds {
		seed := began + uint64(n)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed)
			for range 80 {
				m.steps[m.IntN(len(m.steps))]()
				if m.IntN(3) == 0 {
					<-time.After(time.Duration(m.IntN(25)) * time.Millisecond)
				}
			}
			m.server.SetFault(nil)
			m.server.Deny()
			m.install()
			m.change()
			last := ""
			defer func() {
				if t.Failed() {
					t.Log(last)
				}
			}()
			until(t, "all is known", func() bool {
				last = m.compare()
				return last == ""
			})
		})
	}
}
