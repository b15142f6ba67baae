// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fieldchecks checks the fields that the expressions of stored Cleaners read, and says what the schemas of their kinds do not have: once
// for each spec, and again when the definition of a kind that it reads has changed. One goroutine does all checks, so that no pass waits for one.
//
// It keeps no Cleaner from anything, and reads no object.
package fieldchecks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/sanitize"
	"github.com/vtex/cleaner/controllers/kindschemas"
)

const (
	// maxNamed is how many mistakes of a Cleaner are named.
	maxNamed = 5
	// checkTime is how long one check may wait for schemas.
	checkTime = 30 * time.Second
	// firstLook is how long after the change of a definition the list of schemas is read, and lastLook how long after it at least for the last
	// time, with a wait in between that doubles: the API server publishes a schema a moment after its definition.
	firstLook, lastLook = time.Second, 30 * time.Second
	// firstRetry and lastRetry bound the wait after schemas could not be read, doubled each time.
	firstRetry, lastRetry = time.Second, 10 * time.Minute
)

// Documents is a source of schemas that tells the documents which it takes them from apart.
type Documents interface {
	kindschemas.Source
	// FindDocument returns what names the document of a group and version, and changes with it; empty if there is none.
	FindDocument(ctx context.Context, gv schema.GroupVersion) (string, error)
}

// Subject is what a Cleaner does.
type Subject struct {
	UID types.UID
	// Version tells this from what it does after an edit of its spec or template.
	Version string
	Work    *v1alpha1.Work
	// Programs are those of Work; nil if it cannot work: there is nothing to check.
	Programs *celenv.Programs
	// Reported is what its status says of its fields.
	Reported string
}

// Options are what a Checker is made of.
type Options struct {
	Schemas Documents
	// ReadSubject reads what a Cleaner does; nil if the Cleaner is gone.
	ReadSubject func(ctx context.Context, cleaner types.NamespacedName) (*Subject, error)
	// FindResource finds the resource of a kind; an empty one if it is not served.
	FindResource func(ctx context.Context, gvk schema.GroupVersionKind) schema.GroupResource
	// MistakesChanged says that the status of a Cleaner does not say what was found.
	MistakesChanged func(cleaner types.NamespacedName)
	Clock           clock.WithTicker
}

// Checker checks the fields of Cleaners. It is safe for concurrent use.
type Checker struct {
	Options
	schemas *pacedSchemas
	queue   workqueue.TypedRateLimitingInterface[task]

	mu     sync.Mutex
	checks map[types.NamespacedName]*check
	// changed are the definitions that have changed lately, as <resource>.<group>, and when.
	changed map[string]time.Time
}

// pacedSchemas list schemas at most once every firstLook for checks: one change can make many of them at once. What they miss, the looks after the
// change find. Only the goroutine that checks uses it.
type pacedSchemas struct {
	Documents
	clock  clock.PassiveClock
	listed time.Time
}

// Renew lists the schemas, unless they were listed a moment ago.
func (p *pacedSchemas) Renew(ctx context.Context) (changed bool, err error) {
	if !p.listed.IsZero() && p.clock.Since(p.listed) < firstLook {
		return false, nil
	}
	return p.renewNow(ctx)
}

// renewNow lists the schemas.
func (p *pacedSchemas) renewNow(ctx context.Context) (changed bool, err error) {
	now := p.clock.Now()
	if changed, err = p.Documents.Renew(ctx); err == nil {
		p.listed = now
	}
	return changed, err
}

// task is to check a Cleaner, or to look at what has changed if there is none.
type task struct{ cleaner types.NamespacedName }

// check is what is known of the fields of a version of a Cleaner.
type check struct {
	uid     types.UID
	version string
	// known says that it was checked, and whole that all schemas could be read.
	known, whole bool
	// mistakes says what is wrong; empty if nothing is known to be.
	mistakes string
	kinds    []kind
}

// kind is a kind that expressions see, and the document that its schema was taken from.
type kind struct {
	gvk      schema.GroupVersionKind
	document unique.Handle[string]
}

// NewChecker makes a Checker, which checks nothing before it is started.
func NewChecker(o Options) *Checker {
	return &Checker{
		Options: o, schemas: &pacedSchemas{Documents: o.Schemas, clock: o.Clock}, checks: map[types.NamespacedName]*check{}, changed: map[string]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.NewTypedItemExponentialFailureRateLimiter[task](firstRetry, lastRetry), workqueue.TypedRateLimitingQueueConfig[task]{Clock: o.Clock}),
	}
}

// NeedLeaderElection has it started after the caches. There is no election.
func (c *Checker) NeedLeaderElection() bool { return true }

// Start checks until ctx is done.
func (c *Checker) Start(ctx context.Context) error {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	for {
		t, over := c.queue.Get()
		if over {
			return nil
		}
		if contain.CatchPanic(func() { c.doTask(ctx, t) }) != nil {
			c.queue.AddRateLimited(t)
		}
		c.queue.Done(t)
	}
}

func (c *Checker) doTask(ctx context.Context, t task) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	if t == (task{}) {
		c.lookAtChanges(ctx)
		return
	}
	if err := c.checkCleaner(ctx, t.cleaner); err != nil {
		c.queue.AddRateLimited(t)
		return
	}
	c.queue.Forget(t)
}

// FindMistakes returns what is known to be wrong with the fields that the expressions of a Cleaner read; empty if nothing is. If that version of it was
// not checked yet, that is not known, and the Cleaner is checked soon.
func (c *Checker) FindMistakes(cleaner types.NamespacedName, uid types.UID, version string) (mistakes string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.checks[cleaner]
	if of == nil || of.uid != uid || of.version != version {
		of = &check{uid: uid, version: version}
		c.checks[cleaner] = of
		c.queue.Add(task{cleaner})
	}
	return of.mistakes, of.known
}

// ForgetCleaner forgets a Cleaner.
func (c *Checker) ForgetCleaner(cleaner types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.checks, cleaner)
}

// errOutdated says that what was read of a Cleaner is not the version that is asked for.
var errOutdated = errors.New("the Cleaner was changed")

// checkCleaner checks a Cleaner. It is an error if not all could be checked.
func (c *Checker) checkCleaner(ctx context.Context, cleaner types.NamespacedName) error {
	s, err := c.ReadSubject(ctx, cleaner)
	if err != nil || s == nil { // of one that is gone, ForgetCleaner says so
		return err
	}
	now := &check{uid: s.UID, version: s.Version, known: true, whole: true}
	if s.Programs != nil && s.Work.Validation != v1alpha1.ValidationIgnore {
		if now.kinds, err = c.findDocuments(ctx, s.Work); err != nil {
			return err
		}
		if c.isCurrent(cleaner, now) {
			return nil
		}
		var wrong field.ErrorList
		wrong, _, err = kindschemas.CheckKnownFields(ctx, c.schemas, s.Work, s.Programs)
		now.mistakes, now.whole = describeMistakes(wrong), err == nil
	}
	news, kept := c.keepCheck(cleaner, now, s.Reported)
	if news {
		c.MistakesChanged(cleaner)
	}
	return errors.Join(err, kept)
}

// findDocuments finds the documents of the kinds that expressions see.
func (c *Checker) findDocuments(ctx context.Context, work *v1alpha1.Work) ([]kind, error) {
	var kinds []kind
	for i := range work.Targets {
		gvk, seen := kindschemas.SeesKind(&work.Targets[i])
		if !seen {
			continue
		}
		document, err := c.schemas.FindDocument(ctx, gvk.GroupVersion())
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, kind{gvk, unique.Make(document)})
	}
	return kinds, nil
}

// isCurrent says whether a check would find the same as the last one.
func (c *Checker) isCurrent(cleaner types.NamespacedName, now *check) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.checks[cleaner]
	return last != nil && last.uid == now.uid && last.version == now.version && last.whole && slices.Equal(last.kinds, now.kinds)
}

// keepCheck keeps what was found, unless the Cleaner was forgotten, and says whether the status has to say something else.
func (c *Checker) keepCheck(cleaner types.NamespacedName, now *check, reported string) (news bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.checks[cleaner]
	switch {
	case last == nil:
		return false, nil
	case last.uid != now.uid, last.version != now.version:
		return false, errOutdated
	}
	c.checks[cleaner] = now
	return now.mistakes != reported || last.known && now.mistakes != last.mistakes, nil
}

// describeMistakes says in one text what is wrong.
func describeMistakes(wrong field.ErrorList) string {
	var texts []string
	for _, finding := range validation.FromFieldErrors(wrong[:min(len(wrong), maxNamed)]) {
		text, _, _ := strings.Cut(finding.String(), "\n") // a caret below an expression needs lines of their own
		texts = append(texts, text)
	}
	text := strings.Join(texts, "; ")
	rest := ""
	if more := len(wrong) - maxNamed; more > 0 {
		rest = fmt.Sprintf(" (and %d more)", more)
	}
	return sanitize.ShortenToBytes(sanitize.CleanText(text), sanitize.MaxText-len(rest)) + rest
}

// NoteDefinition notes that a CustomResourceDefinition, as <resource>.<group>, was created, changed or deleted. It returns at once.
func (c *Checker) NoteDefinition(definition string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[definition] = c.Clock.Now()
	c.queue.AddAfter(task{}, firstLook)
}

// lookAtChanges has the Cleaners checked that read kinds whose definitions and schemas have changed, and looks again later. It reads the list of
// schemas also for Cleaners that are checked soon.
func (c *Checker) lookAtChanges(ctx context.Context) {
	changed, readers, used := c.listReaders()
	if used {
		if _, err := c.schemas.renewNow(ctx); err != nil {
			c.queue.AddAfter(task{}, lastLook)
			return
		}
	}
	for cleaner, kinds := range readers {
		if c.hasChanged(ctx, kinds, changed) {
			c.queue.Add(task{cleaner})
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	wait, now := lastLook, c.Clock.Now()
	for definition, at := range c.changed {
		age := now.Sub(at)
		if age >= lastLook {
			delete(c.changed, definition)
		} else {
			wait = min(wait, max(firstLook, age))
		}
	}
	if len(c.changed) > 0 {
		c.queue.AddAfter(task{}, wait)
	}
}

// listReaders lists the definitions that have changed lately, by their groups, and the kinds of each Cleaner that reads some of these groups. It is not
// used if there are no Cleaners.
func (c *Checker) listReaders() (changed map[string][]string, readers map[types.NamespacedName][]kind, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, readers = map[string][]string{}, map[types.NamespacedName][]kind{}
	for definition := range c.changed {
		_, group, _ := strings.Cut(definition, ".")
		changed[group] = append(changed[group], definition)
	}
	for cleaner, of := range c.checks {
		if slices.ContainsFunc(of.kinds, func(k kind) bool { return changed[k.gvk.Group] != nil }) {
			readers[cleaner] = of.kinds
		}
	}
	return changed, readers, len(c.checks) > 0
}

// hasChanged says whether one of these kinds is defined by a definition that has changed, and has another document since.
func (c *Checker) hasChanged(ctx context.Context, kinds []kind, changed map[string][]string) bool {
	return slices.ContainsFunc(kinds, func(k kind) bool {
		of := changed[k.gvk.Group]
		if of == nil {
			return false
		}
		if document, err := c.schemas.FindDocument(ctx, k.gvk.GroupVersion()); err != nil || unique.Make(document) == k.document {
			return false
		}
		resource := c.FindResource(ctx, k.gvk)
		return resource.Empty() || slices.Contains(of, resource.String())
	})
}
