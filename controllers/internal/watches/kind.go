// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/controllers/internal/alarms"
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// kindKey is a kind as a user wrote it, but for its case.
type kindKey struct{ group, version, kind string }

func kindKeyOf(q *snapshot.Query) kindKey {
	return kindKey{group: q.Group, version: q.Version, kind: strings.ToLower(q.Kind)}
}

// kind follows what a kind turns out to be.
type kind struct {
	key   kindKey
	wants map[*want]struct{}

	// state is Complete when resource is set, and detail says what is wrong otherwise.
	state    observed.TargetState
	detail   string
	resource *resource

	// alarm rings when it has to be looked up, for the first time or again.
	alarm  alarms.Alarm
	cancel context.CancelFunc
}

// resource is what is watched of a resource.
type resource struct {
	served.Resource
	kinds  map[*kind]struct{}
	scopes map[scopeKey]*scope
	index  *index
	// fields are what selectors may name. Those that the definition of a custom kind adds are missing until allFields, and
	// fieldsError says why they could not be read.
	fields      snapshot.FieldLabels
	allFields   bool
	fieldsError string
	// definition is the state of its CustomResourceDefinition; "" while that is not known.
	definition string
}

// catalog knows what kinds turn out to be, and has what is wanted of them watched.
type catalog struct {
	*background
	dynamic   dynamic.Interface
	resolver  *served.Resolver
	kinds     map[kindKey]*kind
	resources map[served.Resource]*resource
	answers   *answers
	placement *placement
	// definitionChanged hears of each definition that has changed.
	definitionChanged func(name string)
	settling          *served.Settling
}

// attachWant hangs a new want on its kind.
func (c *catalog) attachWant(w *want) {
	key := kindKeyOf(&w.query)
	k := c.kinds[key]
	if k == nil {
		k = &kind{
			key: key, wants: map[*want]struct{}{}, state: observed.Unsynced, detail: fmt.Sprintf("kind %q is being looked up", w.query.Kind),
			alarm: alarms.New(c.clock.Now()),
		}
		c.kinds[key] = k
		c.startFollowing(k)
	}
	w.kind = k
	k.wants[w] = struct{}{}
	if k.resource != nil {
		c.startWatching(w)
	}
	w.reportedState = c.answers.checkCoverage(&w.query).state
}

// detachWant removes a want, and stops what no other want needs.
func (c *catalog) detachWant(w *want) {
	k := w.kind
	c.stopWatching(w)
	delete(k.wants, w)
	if len(k.wants) > 0 {
		return
	}
	k.cancel()
	delete(c.kinds, k.key)
	c.unresolveKind(k)
}

// startWatching watches for a want whose resource is known.
func (c *catalog) startWatching(w *want) {
	r := w.kind.resource
	if !r.allFields && snapshot.NeedsValue(w.query.Fields) {
		if w.kind.alarm.Due.IsZero() {
			w.kind.alarm.SetDue(c.clock.Now())
		}
		return
	}
	if served.CheckQuery(r.Resource, r.fields, &w.query) != "" {
		return
	}
	if !w.quiet {
		r.index.addWant(w)
	}
	c.placement.placeWant(w)
}

// stopWatching stops what startWatching has begun.
func (c *catalog) stopWatching(w *want) {
	if w.kind.resource == nil {
		return
	}
	w.kind.resource.index.removeWant(w)
	c.placement.detachFromScopes(w, nil)
}

func (c *catalog) startFollowing(k *kind) {
	k.cancel = c.runInBackground(func(ctx context.Context) { c.followKind(ctx, k) })
}

// followKind looks a kind up whenever its alarm rings.
func (c *catalog) followKind(ctx context.Context, k *kind) {
	for k.alarm.WaitDue(ctx, c.clock, c.mu.RLocker()) {
		c.mu.RLock()
		due, again, needsFields := k.alarm.Due, k.resource == nil && k.state != observed.Unsynced, k.needsFields()
		c.mu.RUnlock()
		if again {
			c.resolver.InvalidateGroup(k.key.group)
		}
		var f finding
		if p := contain.CatchPanic(func() { f = c.lookUpKind(ctx, k.key, needsFields) }); p != nil {
			f = finding{state: observed.Failed, detail: fmt.Sprintf("cannot determine whether kind %q is served: %v", k.key.kind, p)}
		}
		c.finishLookup(ctx, k, due, f)
	}
}

// lookUpKind asks what a kind is, and which fields select its objects.
func (c *catalog) lookUpKind(ctx context.Context, k kindKey, needsFields bool) finding {
	var f finding
	f.Resource, f.state, f.detail = c.resolver.Resolve(ctx, k.group, k.version, k.kind)
	if f.state == observed.Complete {
		f.fields = snapshot.BuiltinFieldLabels(f.GVR.GroupResource())
		f.allFields = f.fields.HasOwn() || !strings.Contains(f.GVR.Group, ".")
		if !f.allFields && needsFields {
			f.fields, f.fieldsError = served.ReadDefinedFields(ctx, c.dynamic, f.Resource)
			f.allFields = f.fieldsError == ""
		}
	}
	return f
}

// finishLookup records what the lookup of a kind found, for an alarm that was due.
func (c *catalog) finishLookup(ctx context.Context, k *kind, due time.Time, f finding) {
	c.mu.Lock()
	defer c.unlockAndWake()
	if ctx.Err() != nil {
		return
	}
	if k.alarm.Due.Equal(due) { // else it was set meanwhile, and what was found may be older
		k.alarm.Due = time.Time{}
	}
	c.applyFinding(k, f)
}

// finding is what a kind turned out to be.
type finding struct {
	served.Resource
	state       observed.TargetState
	detail      string
	fields      snapshot.FieldLabels
	allFields   bool
	fieldsError string
}

// needsFields reports whether a query selects by a field that only a definition can explain.
func (k *kind) needsFields() bool {
	for w := range k.wants {
		if snapshot.NeedsValue(w.query.Fields) {
			return true
		}
	}
	return false
}

// applyFinding records what the lookup found about a kind.
func (c *catalog) applyFinding(k *kind, f finding) {
	if f.state != observed.Complete || f.fieldsError != "" {
		c.scheduleRetry(k)
	}
	if f.state == observed.Failed && k.resource != nil { // not to get an answer does not mean that it is gone
		return
	}
	if f.state != observed.Complete {
		c.unresolveKind(k)
		k.state, k.detail = f.state, f.detail
		c.answers.reportStates(k.wants)
		return
	}
	if k.resource != nil && k.resource.Resource != f.Resource {
		c.unresolveKind(k)
	}
	r := c.resources[f.Resource]
	if r == nil {
		r = &resource{Resource: f.Resource, kinds: map[*kind]struct{}{}, scopes: map[scopeKey]*scope{}, index: newIndex(), fields: f.fields}
		if d, _ := c.answers.findDefinition(f.Resource); d != nil {
			r.definition = served.DefinitionState(&d.Object)
		}
		c.resources[f.Resource] = r
	}
	if f.allFields {
		r.fields, r.allFields = f.fields, true
	}
	r.fieldsError = f.fieldsError
	k.state, k.detail, k.resource = observed.Complete, "", r
	r.kinds[k] = struct{}{}
	for w := range k.wants {
		if w.scopes == nil {
			c.startWatching(w)
		}
	}
	c.answers.reportStates(k.wants)
}

// scheduleRetry sets the alarm of a kind for another attempt, unless it is set for an earlier one.
func (c *catalog) scheduleRetry(k *kind) {
	if k.alarm.Due.IsZero() {
		k.alarm.SetDue(c.clock.Now().Add(k.alarm.NextBackoff(c.retryEvery)))
	}
}

// unresolveKind stops all that is watched for a kind.
func (c *catalog) unresolveKind(k *kind) {
	r := k.resource
	if r == nil {
		return
	}
	for w := range k.wants {
		c.answers.noteLoss(w)
	}
	for w := range k.wants {
		c.stopWatching(w)
	}
	k.resource = nil
	delete(r.kinds, k)
	if len(r.kinds) == 0 {
		delete(c.resources, r.Resource)
	}
}

// handleMissingResource records that the API server no longer finds a resource. Only discovery decides whether the kind is gone: it is
// asked at once the first time, and then less and less often while the two disagree.
func (c *catalog) handleMissingResource(r *resource) {
	c.resolver.InvalidateGroup(r.GVR.Group)
	for k := range r.kinds {
		c.unresolveKind(k)
		k.state, k.detail = observed.Unsynced, fmt.Sprintf("kind %q is being looked up again", r.Kind)
		again := k.alarm.Failures > 0
		wait := k.alarm.NextBackoff(c.retryEvery)
		if again {
			k.state, k.detail = observed.Failed, fmt.Sprintf("the API server serves %s, but responded with 404 to this request", r.GVR.GroupResource())
		} else {
			wait = 0
		}
		k.alarm.SetDue(c.clock.Now().Add(wait))
		c.answers.reportStates(k.wants)
	}
}

// refreshKinds looks the kinds of a group up again at once. If their definition has changed, and is not gone, its objects are listed again.
func (c *catalog) refreshKinds(definition string, before, now *cachedobjects.Object) {
	defined := schema.ParseGroupResource(definition)
	if before != nil && now != nil {
		c.settling.NoteChange(&before.Object, &now.Object, c.clock.Now())
	}
	c.resolver.InvalidateGroup(defined.Group)
	c.definitionChanged(definition)
	for key, r := range c.resources {
		if key.GVR.GroupResource() == defined {
			breadth{c.placement}.reviewScopes(r)
			c.noteDefinition(r, now)
		}
	}
	for key, k := range c.kinds {
		if key.group == defined.Group {
			k.alarm.Failures = 0
			if k.resource != nil {
				k.resource.allFields = false
			}
			k.alarm.SetDue(c.clock.Now())
			c.answers.reportStates(k.wants)
		}
	}
}

// settlingShare is the part of retryEvery after which all API servers serve objects by a definition that has changed.
const settlingShare = 3

// noteDefinitions records what a list says of the definitions of resources, if it is one of definitions.
func (c *catalog) noteDefinitions(i *informer) {
	if i.scope.resource.GVR.Group != served.DefinitionsGroup {
		return
	}
	for _, r := range c.resources {
		breadth{c.placement}.reviewScopes(r)
		c.noteDefinition(r, i.objects[""].Get("", r.GVR.GroupResource().String()))
	}
}

// noteDefinition records the definition of a resource; nil: a list or a watch does not have it, which may be one of some definitions. What was read by
// another one is outdated. Where none was known, that is what was read at an earlier version than the definition has.
func (c *catalog) noteDefinition(r *resource, now *cachedobjects.Object) {
	before := r.definition
	if now == nil {
		now, _ = c.answers.findDefinition(r.Resource)
	}
	if r.definition = ""; now == nil {
		return
	}
	r.definition = served.DefinitionState(&now.Object)
	for _, s := range r.scopes {
		for _, i := range s.listInformers() {
			switch {
			case before == "":
				c.noteDefined(i, now.ResourceVersion)
			case before != r.definition:
				c.settle(i)
			}
		}
	}
}

// noteDefined records the version of a definition that was not known before: what was listed at an earlier one is outdated. Of a list that is under way,
// storeListing asks again.
func (c *catalog) noteDefined(i *informer, version string) {
	switch {
	case i.base == "":
		i.defined = version
	case !cachedobjects.IsAsNew(i.base, version):
		c.settle(i)
	}
}

// settle has all listed again when the definition of the objects has settled.
func (c *catalog) settle(i *informer) {
	i.settles = c.settling.Settle(i.scope.resource.GVR.GroupResource(), c.clock.Now())
	i.planRenewal()
}

// planRenewal has all listed again when the definition has settled.
func (i *informer) planRenewal() {
	if i.isOutdated() && i.keeps != nil && i.keeps == i.listing && (i.wider.Due.IsZero() || i.settles.Before(i.wider.Due)) {
		i.wider.SetDue(i.settles)
	}
}

// isOutdated says that what an informer has was read by an earlier definition.
func (i *informer) isOutdated() bool { return !i.settles.IsZero() }

// endOutdated says whether the latest list has taken the place of what was read by an earlier definition.
func (i *informer) endOutdated() (renewed bool) {
	if !i.isOutdated() || i.asked.Before(i.settles) {
		return false
	}
	i.settles = time.Time{}
	return true
}
