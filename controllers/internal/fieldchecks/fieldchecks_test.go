// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fieldchecks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
)

// published are the schemas that an API server publishes, by kind, with one document for each group: widgets and gadgets in example.com, others in
// other.com. What it has changed is seen after a Renew.
type published struct {
	mu          sync.Mutex
	now, listed map[string][]string // fields of spec
	failure     error
	renewed     int
	unreadable  string
}

func (p *published) publish(kind string, fields ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[string][]string{kind: fields}
	for k, f := range p.now {
		if k != kind {
			next[k] = f
		}
	}
	p.now = next
}

// FindSchema gives the schema of a kind as it was listed.
func (p *published) FindSchema(_ context.Context, gvk schema.GroupVersionKind) (*objectschema.Schema, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gvk.Kind == p.unreadable {
		return nil, errors.New("it is too large")
	}
	fields, ok := p.listed[gvk.Kind]
	if !ok {
		return nil, nil
	}
	spec := &objectschema.Schema{Types: objectschema.Map, Fields: map[string]*objectschema.Schema{}}
	for _, f := range fields {
		spec.Fields[f] = &objectschema.Schema{Types: objectschema.String}
	}
	return &objectschema.Schema{Types: objectschema.Map, Fields: map[string]*objectschema.Schema{"spec": spec}}, nil
}

// FindDocument gives what names the document of a group: all that is in it.
func (p *published) FindDocument(_ context.Context, gv schema.GroupVersion) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gv.Group == "other.com" {
		return fmt.Sprint(p.listed["Other"]), p.failure
	}
	return fmt.Sprint(p.listed["Widget"], p.listed["Gadget"]), p.failure
}

// Renew lists what there is.
func (p *published) Renew(context.Context) (changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renewed++
	if p.failure != nil {
		return false, p.failure
	}
	changed = fmt.Sprint(p.listed) != fmt.Sprint(p.now)
	p.listed = p.now
	return changed, nil
}

// bench is a Checker with Cleaners, of which each reads a field of the spec of a kind.
type bench struct {
	*Checker
	*published
	t        *testing.T
	clock    *clocktesting.FakeClock
	compiler *celenv.Compiler
	subjects map[string]*Subject
	// read are the Cleaners that were read, and told those of which it was said that their status is wrong.
	read, told []string
	failure    error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, compiler: compiler, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), published: &published{}, subjects: map[string]*Subject{}}
	b.Checker = NewChecker(Options{
		Schemas: b.published, Clock: b.clock,
		ReadSubject: func(_ context.Context, cleaner types.NamespacedName) (*Subject, error) {
			b.read = append(b.read, cleaner.Name)
			return b.subjects[cleaner.Name], b.failure
		},
		FindResource: func(_ context.Context, gvk schema.GroupVersionKind) schema.GroupResource {
			if gvk.Kind == "Unserved" {
				return schema.GroupResource{}
			}
			return schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind) + "s"}
		},
		MistakesChanged: func(cleaner types.NamespacedName) { b.told = append(b.told, cleaner.Name) },
	})
	t.Cleanup(b.queue.ShutDown)
	return b
}

// write stores a version of a Cleaner with these conditions about an object w of a kind.
func (b *bench) write(name, version, kind string, conditions ...string) *Subject {
	b.t.Helper()
	work := &v1alpha1.Work{}
	work.Conditions = conditions
	work.Targets = []v1alpha1.ClusterTarget{{Name: "w"}}
	reference := &work.Targets[0].Reference
	reference.APIGroup, reference.Version, reference.Kind, reference.Name = "example.com", "v1", kind, "w"
	if kind == "Other" {
		reference.APIGroup = "other.com"
	}
	programs, errs := b.compiler.Compile(b.t.Context(), work)
	if len(errs) > 0 {
		b.t.Fatal(errs)
	}
	b.subjects[name] = &Subject{UID: types.UID("uid-" + name), Version: version, Work: work, Programs: programs}
	return b.subjects[name]
}

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// ask asks for what is known of a Cleaner, as its passes do.
func (b *bench) ask(name string) (mistakes string, known bool) {
	s := b.subjects[name]
	return b.FindMistakes(named(name), s.UID, s.Version)
}

// work does all that is to be done now, and returns the Cleaners that were read, in order.
func (b *bench) work() []string {
	b.read = nil
	for b.queue.Len() > 0 {
		next, _ := b.queue.Get()
		b.doTask(b.t.Context(), next)
		b.queue.Done(next)
	}
	slices.Sort(b.read)
	return b.read
}

// pass lets time pass, and does what has become due.
func (b *bench) pass(d time.Duration, want int) []string {
	b.t.Helper()
	b.clock.Step(d)
	err := wait.PollUntilContextTimeout(b.t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) { return b.queue.Len() >= want, nil })
	if err != nil {
		b.t.Fatalf("after %v there are %d tasks, not %d", d, b.queue.Len(), want)
	}
	return b.work()
}

func (b *bench) same(what string, want, got any) {
	b.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// expect asks for what is known.
func (b *bench) expect(when, name, want string) {
	b.t.Helper()
	got, known := b.ask(name)
	if !known || (want == "") != (got == "") || !strings.Contains(got, want) {
		b.t.Errorf("%s: %s is known: %v, %q, want %q", when, name, known, got, want)
	}
}

// A Cleaner is checked once for each version, and its status is said to be wrong if it says something else.
func TestOnceForEachVersion(t *testing.T) {
	b := newBench(t)
	b.publish("Widget", "timeToLive", "size")
	_, _ = b.Renew(t.Context())
	b.write("good", "1", "Widget", "has(w.spec.size)")
	b.write("bad", "1", "Widget", `w.spec.timeToLife == ""`)
	for _, name := range []string{"good", "bad"} {
		if said, known := b.ask(name); known || said != "" {
			t.Errorf("%s: %q is known before the check", name, said)
		}
		_, _ = b.ask(name) // by the next pass
	}
	b.same("checked", []string{"bad", "good"}, b.work())
	b.same("told", []string{"bad"}, b.told)
	b.expect("checked", "good", "")
	b.expect("checked", "bad", `spec.conditions[0]: 1:8: Widget has no field spec.timeToLife; did you mean "timeToLive"?`)
	b.same("nothing else", []string(nil), b.work())

	b.told = nil
	edited := b.write("bad", "2", "Widget", `w.spec.timeToLive == ""`)
	edited.Reported = "Widget has no field spec.timeToLife"
	if _, known := b.ask("bad"); known {
		t.Error("the edited one is known")
	}
	b.same("after an edit", []string{"bad"}, b.work())
	b.same("told after an edit", []string{"bad"}, b.told)
	b.expect("after an edit", "bad", "")

	b.told = nil
	edited = b.write("bad", "3", "Widget", `w.spec.timeToLive == ""`)
	edited.UID = "another"
	_, _ = b.ask("bad")
	b.same("of another UID", []string{"bad"}, b.work())
	b.same("of another UID, told", []string(nil), b.told)
}

// Nothing is said of a Cleaner that ignores its fields, of one that cannot work, and of a kind without a schema.
func TestNothingIsSaid(t *testing.T) {
	for name, change := range map[string]func(b *bench, s *Subject){
		"Ignored": func(_ *bench, s *Subject) { s.Work.Validation = v1alpha1.ValidationIgnore },
		"Invalid": func(_ *bench, s *Subject) { s.Programs = nil },
		"Unknown": func(b *bench, _ *Subject) { b.listed, b.now = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.publish("Widget", "size")
			_, _ = b.Renew(t.Context())
			change(b, b.write("c", "1", "Widget", "has(w.spec.colour)"))
			_, _ = b.ask("c")
			b.same("checked", []string{"c"}, b.work())
			b.expect("checked", "c", "")
			b.same("told", []string(nil), b.told)
		})
	}
}

// What cannot be read is read again later, after longer and longer, and not for each pass; what is known is said meanwhile.
func TestUnreadableSchemas(t *testing.T) {
	b := newBench(t)
	b.publish("Widget", "size")
	_, _ = b.Renew(t.Context())
	b.published.failure = errors.New("the API server is away")
	b.write("c", "1", "Widget", "has(w.spec.colour)")
	_, _ = b.ask("c")
	b.same("away", []string{"c"}, b.work())
	for range 3 {
		if _, known := b.ask("c"); known {
			t.Error("it is known")
		}
	}
	b.same("for other passes", []string(nil), b.work())
	b.same("a second later", []string{"c"}, b.pass(firstRetry, 1))
	b.clock.Step(firstRetry)
	b.same("two seconds later", []string(nil), b.work())
	b.published.failure = nil
	b.same("three seconds later", []string{"c"}, b.pass(firstRetry, 1))
	b.expect("back", "c", "Widget has no field spec.colour")
	b.same("told", []string{"c"}, b.told)

	b.unreadable = "Gadget"
	s := b.write("d", "1", "Widget", "has(w.spec.colour)")
	both := s.Work.DeepCopy()
	both.Targets = append(both.Targets, both.Targets[0])
	both.Targets[1].Name, both.Targets[1].Reference.Kind = "g", "Gadget"
	s.Work = both
	_, _ = b.ask("d")
	b.same("one of two", []string{"d"}, b.work())
	b.expect("one of two", "d", "Widget has no field spec.colour")
	b.unreadable = ""
	b.same("again", []string{"d"}, b.pass(firstRetry, 1))
	b.same("at rest", []string(nil), b.pass(lastRetry, 0))
}

// A change of a definition has those checked that read its kind, once its schema is published. Nothing else is checked.
func TestChangedDefinition(t *testing.T) {
	b := newBench(t)
	b.publish("Widget", "ttl")
	b.publish("Gadget", "ttl")
	b.publish("Other", "ttl")
	_, _ = b.Renew(t.Context())
	for name, kind := range map[string]string{"w1": "Widget", "w2": "Widget", "g": "Gadget", "o": "Other", "u": "Unserved"} {
		b.write(name, "1", kind, "has(w.spec.ttl)")
		_, _ = b.ask(name)
	}
	b.same("at first", []string{"g", "o", "u", "w1", "w2"}, b.work())
	b.same("told at first", []string(nil), b.told)

	b.renewed = 0
	b.NoteDefinition("widgets.example.com")
	b.same("at once", []string(nil), b.work())
	b.same("before its schema is published", []string(nil), b.pass(firstLook, 1))
	b.publish("Widget", "timeToLive")
	b.same("when it is", []string{"u", "w1", "w2"}, b.pass(time.Second, 1)) // it is not known of which definition u is
	b.same("told", []string{"w1", "w2"}, sorted(b.told))
	b.expect("dropped", "w1", "Widget has no field spec.ttl")
	b.expect("dropped", "g", "")
	for _, d := range []time.Duration{2, 4, 8, 16} {
		b.same("later", []string(nil), b.pass(d*time.Second, 1))
	}
	b.same("listings", 6, b.renewed) // none more for the two checks
	b.same("at rest", []string(nil), b.pass(time.Hour, 0))
	b.same("listings at rest", 6, b.renewed)

	b.told = nil
	b.subjects["w1"].Reported, _ = b.ask("w1")
	b.subjects["w2"].Reported, _ = b.ask("w2")
	b.publish("Widget", "timeToLive", "ttl")
	b.NoteDefinition("widgets.example.com")
	b.same("back", []string{"u", "w1", "w2"}, b.pass(firstLook, 1))
	b.same("told when it is back", []string{"w1", "w2"}, sorted(b.told))
	b.expect("back", "w1", "")
	b.expect("back", "w2", "")

	b.told = nil
	b.publish("Other", "timeToLive")
	b.NoteDefinition("others.elsewhere.com")
	b.same("of another group", []string(nil), b.pass(firstLook, 1))
	b.same("told of another group", []string(nil), b.told)
}

func sorted(all []string) []string {
	slices.Sort(all)
	return all
}

// While the list of schemas cannot be read, it is tried again, and no change is lost.
func TestChangeWhileAway(t *testing.T) {
	b := newBench(t)
	b.publish("Widget", "ttl")
	_, _ = b.Renew(t.Context())
	b.write("c", "1", "Widget", "has(w.spec.ttl)")
	_, _ = b.ask("c")
	b.work()
	b.publish("Widget", "timeToLive")
	b.published.failure = errors.New("the API server is away")
	b.NoteDefinition("widgets.example.com")
	for _, d := range []time.Duration{firstLook, lastLook, lastLook} {
		b.same("away", []string(nil), b.pass(d, 1))
	}
	b.published.failure = nil
	b.same("back", []string{"c"}, b.pass(lastLook, 1))
	b.expect("back", "c", "Widget has no field spec.ttl")
}

// Without Cleaners nothing is asked, whatever definitions change.
func TestNoReaders(t *testing.T) {
	b := newBench(t)
	for i := range 100 {
		b.NoteDefinition(fmt.Sprintf("things%d.example.com", i))
	}
	b.same("read", []string(nil), b.pass(firstLook, 1))
	b.same("renewed", 0, b.renewed)
	b.pass(lastLook, 1)
	b.same("kept", 0, len(b.changed))
}

// What is found of a Cleaner that is gone, or was edited meanwhile, is not kept.
func TestOutdated(t *testing.T) {
	b := newBench(t)
	b.publish("Widget", "size")
	_, _ = b.Renew(t.Context())
	b.write("gone", "1", "Widget", "has(w.spec.colour)")
	b.write("edited", "1", "Widget", "has(w.spec.colour)")
	b.write("deleted", "1", "Widget", "has(w.spec.colour)")
	for _, name := range []string{"gone", "edited", "deleted"} {
		_, _ = b.ask(name)
	}
	b.ForgetCleaner(named("gone"))
	b.subjects["deleted"] = nil
	_, _ = b.FindMistakes(named("edited"), "uid-edited", "2")
	b.same("read", []string{"deleted", "edited", "gone"}, b.work())
	b.same("told", []string(nil), b.told)
	b.same("kept", 2, len(b.checks))
	b.write("edited", "2", "Widget", "has(w.spec.form)")
	b.same("when the cache has it", []string{"edited"}, b.pass(firstRetry, 1))
	b.expect("when the cache has it", "edited", "Widget has no field spec.form")
}

// What is said is bounded, whatever is wrong.
func TestMistakesAreBounded(t *testing.T) {
	b := newBench(t)
	b.publish("Widget", "size")
	_, _ = b.Renew(t.Context())
	var few, many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("has(w.spec.%s%d)", strings.Repeat("y", 300), i))
		few = append(few, fmt.Sprintf("has(w.spec.y%d)", i))
	}
	b.write("many", "1", "Widget", many...)
	b.write("few", "1", "Widget", few[:maxNamed+2]...)
	b.write("exact", "1", "Widget", few[:maxNamed]...)
	for _, name := range []string{"many", "few", "exact"} {
		_, _ = b.ask(name)
	}
	b.work()
	b.expect("many", "many", " (and 35 more)")
	b.expect("few", "few", "spec.conditions[4]: ")
	b.expect("few", "few", " (and 2 more)")
	for _, name := range []string{"many", "few", "exact"} {
		said, _ := b.ask(name)
		if len(said) > sanitize.MaxText || sanitize.CleanText(said) != said || strings.Contains(said, "\n") {
			t.Errorf("%s: it says %d bytes: %s", name, len(said), said)
		}
		if strings.Contains(said, "more)") == (name == "exact") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// A check that panics is made again later, and others meanwhile.
func TestStart(t *testing.T) {
	b := newBench(t)
	b.publish("Widget", "size")
	_, _ = b.Renew(t.Context())
	b.write("a", "1", "Widget", "has(w.spec.colour)").Work = nil // it panics
	b.write("b", "1", "Widget", "has(w.spec.colour)")
	told := make(chan string, 10)
	b.MistakesChanged = func(cleaner types.NamespacedName) { told <- cleaner.Name }
	_, _ = b.ask("a")
	_, _ = b.ask("b")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	select {
	case name := <-told:
		b.same("told", "b", name)
	case <-time.After(10 * time.Second):
		t.Error("the other is not checked")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !b.NeedLeaderElection() {
		t.Error("it is started before the caches")
	}
}
