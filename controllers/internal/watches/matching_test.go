// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// countedFields counts how often objects are compared with it, in all and while somebody holds the lock.
type countedFields struct {
	fields.Selector
	engine           *Engine
	compared, locked *int
}

func (s countedFields) count() {
	*s.compared++
	if !s.engine.mu.TryLock() {
		*s.locked++
		return
	}
	s.engine.mu.Unlock()
}

func (s countedFields) Requirements() fields.Requirements {
	s.count()
	return s.Selector.Requirements()
}

// anyVersion is the last version of an object that PutObject has told of.
var anyVersion atomic.Int64

// putObject gives an Engine an object, in a new version.
func putObject(e *Engine, s *store, o *cachedobjects.Object) {
	o.ResourceVersion = fmt.Sprint(anyVersion.Add(1))
	e.mu.Lock()
	defer e.unlockAndWake()
	feedsOf(e).storeObject(s.informer, o)
}

// denying are so many wants that require no label, with so many terms each, in a namespace. They are for no object of theirs.
func denying(e *Engine, namespace string, wants, terms int, compared, locked *int) []Interest {
	var all []Interest
	for n := range wants {
		parts := []string{fmt.Sprintf("own notin (v,t%d)", n)}
		for k := len(parts); k < terms; k++ {
			parts = append(parts, fmt.Sprintf("!a%d", k))
		}
		q := queries.New("Pod", queries.In(namespace), queries.Labelled(strings.Join(parts, ",")))
		q.Fields = countedFields{fields.ParseSelectorOrDie("metadata.name=none"), e, compared, locked}
		q.Compile()
		all = append(all, Interest{Query: q})
	}
	return all
}

// Whatever wants ask for, no object is compared and none is read while the lock is held that all watches share.
func TestNothingIsComparedUnderTheLock(t *testing.T) {
	e, s := newWatching(t)
	compared, locked, read := 0, 0, 0
	for n := range 10 {
		q := queries.New("Pod", queries.Labelled("!gone"))
		q.Fields = countedFields{fields.ParseSelectorOrDie("status.phase=Failed"), e, &compared, &locked}
		e.SetInterests(owner(fmt.Sprint(n)), interests(q))
	}
	matchAll(e)
	compared, locked = 0, 0
	for range 3 {
		o := podOf("a", "p", nil)
		o.Value, o.LoadValue = nil, func() (map[string]any, error) {
			read++
			if !e.mu.TryLock() {
				locked++
				return nil, nil
			}
			e.mu.Unlock()
			return map[string]any{"status": map[string]any{"phase": "Running"}}, nil
		}
		putObject(e, s, o)
		if woken := matchAll(e); len(woken) > 0 {
			t.Errorf("woken are %v", woken)
		}
	}
	if compared == 0 || read == 0 {
		t.Fatal("nothing was compared")
	}
	if locked > 0 {
		t.Errorf("under the lock objects were compared or read %d times", locked)
	}
}

// An event of a namespace whose Cleaners want very much costs little in one turn and in all: those that are not compared are woken.
func TestATurnIsShort(t *testing.T) {
	const owners, wants, terms = 40, 64, 64
	const looks = 2 // what it needs of an object, and whether it has it
	e, s := newWatching(t)
	compared, locked := 0, 0
	all := denying(e, "a", wants, terms, &compared, &locked)
	for n := range owners {
		e.SetInterests(owner(fmt.Sprint("c", n)), all)
	}
	matchAll(e)
	compared, locked = 0, 0
	putObject(e, s, podOf("a", "p", map[string]string{"x": "y"}))
	inAll := 0
	for more := true; more; inAll += compared {
		compared = 0
		more = e.matcher.work()
		if most := looks * (turnComparisons/terms + 1); compared > most {
			t.Errorf("a turn compares %d wants of %d terms, more than %d", compared, terms, most)
		}
	}
	if most := looks * maxComparisons / terms; inAll == 0 || inAll > most {
		t.Errorf("one event is compared with %d wants of %d terms, more than %d", inAll, terms, most)
	}
	if got, want := len(matchAll(e)), owners-inAll/looks/wants-1; got < want {
		t.Errorf("%d owners are woken, and the event was compared with the wants of %d", got, owners-want)
	}
	if locked > 0 {
		t.Errorf("under the lock objects were compared %d times", locked)
	}
}

// What happens in a namespace is told after one turn of another in which very much happens.
func TestNamespacesTakeTurns(t *testing.T) {
	e, s := newWatching(t)
	compared, locked := 0, 0
	all := denying(e, "b", 64, 64, &compared, &locked)
	for n := range 20 {
		e.SetInterests(Owner{Namespace: "b", Name: fmt.Sprint("c", n)}, all)
	}
	e.SetInterests(owner("other"), interests(queries.New("Pod", queries.Labelled("app=web"))))
	matchAll(e)
	for n := range 3 * maxChanges {
		putObject(e, s, podOf("b", fmt.Sprint("p", n), map[string]string{"own": "v"}))
		if waiting := len(e.matcher.backlog.queues["b"].waiting); waiting > maxChanges {
			t.Fatalf("%d changes wait", waiting)
		}
	}
	e.matcher.work() // it is the turn of b
	putObject(e, s, podOf("a", "p", map[string]string{"app": "web"}))
	e.wakeups.TakeOwners()
	for n := 1; ; n++ {
		e.matcher.work()
		woken, _ := e.wakeups.TakeOwners()
		if slices.Contains(woken, owner("other")) {
			break
		}
		if n == 2 {
			t.Fatal("the other namespace has had no turn")
		}
	}
}

// When more happens in a namespace than is remembered, whoever wants anything there of that kind looks again, and nobody else.
func TestAFloodWakesWhoWantsThePlace(t *testing.T) {
	for name, flood := range map[string]func(e *Engine, s *store){
		"Changes": func(e *Engine, s *store) {
			for n := range maxChanges + 1 {
				putObject(e, s, podOf("a", fmt.Sprint("p", n), nil))
			}
		},
		"Labels": func(e *Engine, s *store) { putObject(e, s, podOf("a", "p", manyLabels(maxMatchedLabels+1))) },
		"LabelsBefore": func(e *Engine, s *store) {
			putObject(e, s, podOf("a", "p", manyLabels(maxMatchedLabels+1)))
			matchAll(e)
			putObject(e, s, podOf("a", "p", nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, s := newWatching(t)
			knowNamespaces(t, e, map[string]map[string]string{"a": queries.Tier("dev"), "b": queries.Tier("prod")})
			for name, q := range map[string]snapshot.Query{
				"app": queries.New("Pod", queries.Labelled("app=web")), "name": queries.New("Pod", queries.Named("other")), "elsewhere": queries.New("Pod", queries.In("b")),
				"all": queries.New("Pod", queries.In("")), "not-here": queries.New("Pod", queries.Except("a")), "here": queries.New("Pod", queries.Among("a", "b")),
				"dev": queries.New("Pod", queries.ChosenBy("tier=dev")), "prod": queries.New("Pod", queries.ChosenBy("tier=prod")),
			} {
				e.SetInterests(Owner{Namespace: q.Namespace, Name: name}, interests(q))
			}
			matchAll(e)
			flood(e, s)
			want := []string{"all", "app", "dev", "first", "here", "name"}
			if diff := cmp.Diff(want, matchAll(e)); diff != "" {
				t.Errorf("woken (-want +got):\n%s", diff)
			}
			putObject(e, s, podOf("a", "after", map[string]string{"app": "web"}))
			if diff := cmp.Diff([]string{"all", "app", "dev", "here"}, matchAll(e)); diff != "" {
				t.Errorf("woken after it (-want +got):\n%s", diff)
			}
		})
	}
}

func manyLabels(n int) map[string]string {
	l := map[string]string{}
	for i := range n {
		l[fmt.Sprint("many", i)] = ""
	}
	return l
}

// knowNamespaces has an Engine know these Namespaces, by their labels.
func knowNamespaces(t *testing.T, e *Engine, all map[string]map[string]string) {
	t.Helper()
	names := snapshot.Namespaces{Labels: queries.New("Pod").Labels}
	e.SetInterests(platform, interests(names.NewListQuery()))
	e.mu.Lock()
	e.catalog.applyFinding(e.catalog.kinds[kindKey{version: "v1", kind: "namespace"}], finding{
		Resource: served.Resource{GVR: apiserver.Namespaces, Kind: "Namespace", Watchable: true}, state: observed.Complete,
		fields: snapshot.BuiltinFieldLabels(apiserver.Namespaces.GroupResource()), allFields: true,
	})
	var known *scope
	for w := range e.catalog.kinds[kindKey{version: "v1", kind: "namespace"}].wants {
		known = w.scopes[0]
	}
	placementOf(e).recordAccess(known, nil, nil)
	e.unlockAndWake()
	var objects []*cachedobjects.Object
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := podOf("", name, all[name])
		o.Resource, o.ResourceVersion = apiserver.Namespaces, "1"
		objects = append(objects, o)
	}
	feedsOf(e).replaceObjects(known.meta, objects, "")
}

// However many labels an object has, few groups are looked up for it.
func TestAnObjectIsInFewGroups(t *testing.T) {
	for _, n := range []int{0, 1, labelgroups.MaxLabels, labelgroups.MaxLabels + 1, 50_000} {
		found := 0
		for range labelgroups.ListGroups(podOf("a", "p", manyLabels(n))) {
			found++
		}
		if found > 2*labelgroups.MaxLabels {
			t.Errorf("with %d labels it is in %d groups", n, found)
		}
	}
}

// An object whose fields are too many is not read because it changes: whoever asks for its fields is woken.
func TestFieldsOfLargeObjectsAreNotCompared(t *testing.T) {
	e, s := newWatching(t)
	e.SetInterests(owner("failed"), interests(queries.New("Pod", queries.Fielded("status.phase=Failed"))))
	e.SetInterests(owner("other-label"), interests(queries.New("Pod", queries.Fielded("status.phase=Failed"), queries.Labelled("app=web"))))
	matchAll(e)
	running := map[string]any{"status": map[string]any{"phase": "Running"}}
	for name, tc := range map[string]struct {
		large bool
		want  []string
	}{"small": {false, nil}, "large": {true, []string{"failed"}}} {
		o, asked := laterPod(name, running, nil)
		o.Labels, o.Large = nil, tc.large
		putObject(e, s, o)
		if diff := cmp.Diff(tc.want, matchAll(e)); diff != "" {
			t.Errorf("%s: woken (-want +got):\n%s", name, diff)
		}
		if (*asked > 0) == tc.large {
			t.Errorf("%s: it was read %d times", name, *asked)
		}
	}
}

// panickingFields cannot compare anything.
type panickingFields struct{ fields.Selector }

func (panickingFields) Empty() bool { panic("made up") }

// Who cannot be compared looks again, and nobody else notices.
func TestAPanicInAMatchWakes(t *testing.T) {
	e, s := newWatching(t)
	q := queries.New("Pod")
	q.Fields = panickingFields{fields.Everything()}
	e.SetInterests(owner("panics"), interests(q))
	e.SetInterests(owner("other"), interests(queries.New("Pod", queries.Labelled("app=web"))))
	matchAll(e)
	putObject(e, s, podOf("a", "p", map[string]string{"app": "web"}))
	if diff := cmp.Diff([]string{"other", "panics"}, matchAll(e)); diff != "" {
		t.Errorf("woken (-want +got):\n%s", diff)
	}
}

// TestNobodyIsMissed changes objects, and what is wanted of them, at random and between any two turns. Whom a change concerned when it
// happened, and who wants the same still, is woken.
func TestNobodyIsMissed(t *testing.T) {
	const seed, steps, owners = 11, 4000, 60
	random := rand.New(rand.NewPCG(seed, seed))
	e, s := newWatching(t)
	selectors := []string{"", "app=web", "app in (web,db)", "app!=web", "!app", "tier", "app notin (db),tier", "app=web,tier=a"}
	randomQuery := func() snapshot.Query {
		q := queries.New("Pod", queries.Labelled(selectors[random.IntN(len(selectors))]), queries.In([]string{"a", "b"}[random.IntN(2)]))
		switch random.IntN(6) {
		case 0:
			q = queries.New("Pod", queries.Named(fmt.Sprint("p", random.IntN(4))))
		case 1:
			q.Namespace, q.Namespaces.Except = "", []string{"a"}
		case 2:
			q.Namespace, q.Namespaces.Names = "", []string{"a", "b"}
		case 3:
			q.Fields = fields.ParseSelectorOrDie("status.phase=Failed")
		}
		return q
	}
	wanted, expected := map[Owner][]snapshot.Query{}, map[Owner][]snapshot.Query{}
	objects := map[scopeKey]*cachedobjects.Object{}
	f := snapshot.BuiltinFieldLabels(apiserver.Pods.GroupResource())
	matches := func(q snapshot.Query, o *cachedobjects.Object) bool { return o != nil && o.MatchesQuery(&q, true, f) }
	note := func(before, now *cachedobjects.Object) {
		for o, qs := range wanted {
			for _, q := range qs {
				if matches(q, before) || matches(q, now) {
					expected[o] = append(expected[o], q)
				}
			}
		}
	}
	settle := func(woken []Owner) {
		for _, o := range woken {
			delete(expected, o)
		}
	}
	wakes := 0
	for range steps {
		switch random.IntN(5) {
		case 0, 1:
			o := owner(fmt.Sprint("c", random.IntN(owners)))
			delete(wanted, o)
			for range random.IntN(30) {
				wanted[o] = append(wanted[o], randomQuery())
			}
			e.SetInterests(o, interests(wanted[o]...))
			delete(expected, o) // what it wants now, it reads now
		case 2, 3:
			k := scopeKey{namespace: []string{"a", "b"}[random.IntN(2)], name: fmt.Sprint("p", random.IntN(4))}
			before := objects[k]
			if before != nil && random.IntN(3) == 0 {
				note(before, nil)
				delete(objects, k)
				e.mu.Lock()
				feedsOf(e).removeObject(s.informer, k.namespace, k.name)
				e.unlockAndWake()
				break
			}
			now := podOf(k.namespace, k.name, map[string]string{})
			if app := []string{"web", "db", "api", ""}[random.IntN(4)]; app != "" {
				now.Labels["app"] = app
			}
			if random.IntN(2) == 0 {
				now.Labels["tier"] = []string{"a", "b"}[random.IntN(2)]
			}
			now.Value = map[string]any{"status": map[string]any{"phase": []string{"Running", "Failed"}[random.IntN(2)]}}
			note(before, now)
			objects[k] = now
			putObject(e, s, now)
		default:
			for range random.IntN(4) {
				e.matcher.work()
			}
		}
		woken, _ := e.wakeups.TakeOwners()
		settle(woken)
		wakes += len(woken)
		if random.IntN(20) > 0 {
			continue
		}
		for e.matcher.work() {
		}
		woken, _ = e.wakeups.TakeOwners()
		settle(woken)
		wakes += len(woken)
		if len(expected) > 0 {
			t.Fatalf("not woken are %v", slices.Collect(maps.Keys(expected)))
		}
	}
	if wakes == 0 {
		t.Error("nobody was woken")
	}
}
