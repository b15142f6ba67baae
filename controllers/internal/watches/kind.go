// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// definitionsGroup is the group of CustomResourceDefinitions.
const definitionsGroup = "apiextensions.k8s.io"

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
	state    plan.TargetState
	detail   string
	resource *resource

	// alarm rings when it has to be looked up, for the first time or again.
	alarm  alarm
	cancel context.CancelFunc
}

// resource is what is watched of a resource.
type resource struct {
	Resource
	kinds  map[*kind]struct{}
	scopes map[scopeKey]*scope
	index  index
	// fields are what selectors may name. Those that the definition of a custom kind adds are missing until allFields, and
	// fieldsError says why they could not be read.
	fields      snapshot.FieldLabels
	allFields   bool
	fieldsError string
}

// attachWant hangs a new want on its kind.
func (e *Engine) attachWant(w *want) {
	key := kindKeyOf(&w.query)
	k := e.kinds[key]
	if k == nil {
		k = &kind{
			key: key, wants: map[*want]struct{}{}, state: plan.Unsynced, detail: fmt.Sprintf("kind %q is being looked up", w.query.Kind),
			alarm: newAlarm(e.clock.Now()),
		}
		e.kinds[key] = k
		e.startFollowing(k)
	}
	w.kind = k
	k.wants[w] = struct{}{}
	if k.resource != nil {
		e.startWatching(w)
	}
	w.reportedState = e.checkCoverage(&w.query).state
}

// detachWant takes a want away, and stops what nobody else wants.
func (e *Engine) detachWant(w *want) {
	k := w.kind
	e.stopWatching(w)
	delete(k.wants, w)
	if len(k.wants) > 0 {
		return
	}
	k.cancel()
	delete(e.kinds, k.key)
	e.unresolveKind(k)
}

// startWatching watches for a want whose resource is known.
func (e *Engine) startWatching(w *want) {
	r := w.kind.resource
	if !r.allFields && snapshot.NeedsValue(w.query.Fields) {
		if w.kind.alarm.due.IsZero() {
			w.kind.alarm.setDue(e.clock.Now())
		}
		return
	}
	if r.checkQuery(&w.query) != "" {
		return
	}
	if !w.quiet {
		r.index.addWant(w)
	}
	e.placeWant(w)
}

// checkQuery says why a query of a resource will never be answered, or nothing.
func (r *resource) checkQuery(q *snapshot.Query) string {
	if wrong := q.CheckScope(r.GVR.GroupResource(), r.Namespaced); wrong != "" {
		return wrong
	}
	if wrong := r.fields.CheckSelector(r.GVR.GroupResource(), q.Fields); wrong != "" {
		return wrong
	}
	if !r.Watchable {
		return fmt.Sprintf("%s cannot be listed and watched", r.GVR.GroupResource())
	}
	return ""
}

// stopWatching stops what startWatching has begun.
func (e *Engine) stopWatching(w *want) {
	if w.kind.resource == nil {
		return
	}
	w.kind.resource.index.removeWant(w)
	e.detachFromScopes(w, nil)
}

func (e *Engine) startFollowing(k *kind) {
	k.cancel = e.runInBackground(func(ctx context.Context) { e.followKind(ctx, k) })
}

// followKind looks a kind up whenever its alarm rings.
func (e *Engine) followKind(ctx context.Context, k *kind) {
	for e.waitForAlarm(ctx, &k.alarm) {
		e.mu.RLock()
		due, again, needsFields := k.alarm.due, k.resource == nil && k.state != plan.Unsynced, k.needsFields()
		e.mu.RUnlock()
		if again {
			e.resolver.InvalidateGroup(k.key.group)
		}
		var f finding
		if p := contain.CatchPanic(func() { f = e.lookUpKind(ctx, k.key, needsFields) }); p != nil {
			f = finding{state: plan.Failed, detail: fmt.Sprintf("cannot find out whether kind %q is served: %v", k.key.kind, p)}
		}
		e.finishLookup(ctx, k, due, f)
	}
}

// lookUpKind asks what a kind is, and which fields select its objects.
func (e *Engine) lookUpKind(ctx context.Context, k kindKey, needsFields bool) finding {
	var f finding
	f.Resource, f.state, f.detail = e.resolver.Resolve(ctx, k.group, k.version, k.kind)
	if f.state == plan.Complete {
		f.fields = snapshot.BuiltinFieldLabels(f.GVR.GroupResource())
		f.allFields = f.fields.HasOwn() || !strings.Contains(f.GVR.Group, ".")
		if !f.allFields && needsFields {
			f.readDefinedFields(ctx, e.dynamic)
		}
	}
	return f
}

// finishLookup takes note of what was found about a kind, for an alarm that was due.
func (e *Engine) finishLookup(ctx context.Context, k *kind, due time.Time, f finding) {
	e.mu.Lock()
	defer e.unlockAndWake()
	if ctx.Err() != nil {
		return
	}
	if k.alarm.due.Equal(due) { // else it was set meanwhile, and what was found may be older
		k.alarm.due = time.Time{}
	}
	e.applyFinding(k, f)
}

// finding is what a kind turned out to be.
type finding struct {
	Resource
	state       plan.TargetState
	detail      string
	fields      snapshot.FieldLabels
	allFields   bool
	fieldsError string
}

// needsFields says that somebody selects by a field that only a definition can explain.
func (k *kind) needsFields() bool {
	for w := range k.wants {
		if snapshot.NeedsValue(w.query.Fields) {
			return true
		}
	}
	return false
}

// applyFinding takes note of what a kind turned out to be.
func (e *Engine) applyFinding(k *kind, f finding) {
	if f.state != plan.Complete || f.fieldsError != "" {
		e.scheduleRetry(k)
	}
	if f.state == plan.Failed && k.resource != nil { // not to get an answer does not mean that it is gone
		return
	}
	if f.state != plan.Complete {
		e.unresolveKind(k)
		k.state, k.detail = f.state, f.detail
		e.reportStates(k.wants)
		return
	}
	if k.resource != nil && k.resource.Resource != f.Resource {
		e.unresolveKind(k)
	}
	r := e.resources[f.Resource]
	if r == nil {
		r = &resource{Resource: f.Resource, kinds: map[*kind]struct{}{}, scopes: map[scopeKey]*scope{}, index: index{}, fields: f.fields}
		e.resources[f.Resource] = r
	}
	if f.allFields {
		r.fields, r.allFields = f.fields, true
	}
	r.fieldsError = f.fieldsError
	k.state, k.detail, k.resource = plan.Complete, "", r
	r.kinds[k] = struct{}{}
	for w := range k.wants {
		if w.scopes == nil {
			e.startWatching(w)
		}
	}
	e.reportStates(k.wants)
}

// scheduleRetry sets the alarm of a kind for another attempt, unless it is set for an earlier one.
func (e *Engine) scheduleRetry(k *kind) {
	if k.alarm.due.IsZero() {
		k.alarm.setDue(e.clock.Now().Add(k.alarm.nextBackoff(e.retryEvery)))
	}
}

// unresolveKind stops all that is watched for a kind.
func (e *Engine) unresolveKind(k *kind) {
	r := k.resource
	if r == nil {
		return
	}
	for w := range k.wants {
		e.stopWatching(w)
	}
	k.resource = nil
	delete(r.kinds, k)
	if len(r.kinds) == 0 {
		delete(e.resources, r.Resource)
	}
}

// handleMissingResource takes note that the API server does not find a resource any more. Whether that means that the kind is gone is for
// discovery to say: at once the first time, later and later while the two disagree.
func (e *Engine) handleMissingResource(r *resource) {
	e.resolver.InvalidateGroup(r.GVR.Group)
	for k := range r.kinds {
		e.unresolveKind(k)
		k.state, k.detail = plan.Unsynced, fmt.Sprintf("kind %q is being looked up again", r.Kind)
		again := k.alarm.failures > 0
		wait := k.alarm.nextBackoff(e.retryEvery)
		if again {
			k.state, k.detail = plan.Failed, fmt.Sprintf("the API server lists %s, and does not find them", r.GVR.GroupResource())
		} else {
			wait = 0
		}
		k.alarm.setDue(e.clock.Now().Add(wait))
		e.reportStates(k.wants)
	}
}

// refreshKinds looks the kinds of a group up again at once.
func (e *Engine) refreshKinds(definition string) {
	_, group, _ := strings.Cut(definition, ".")
	e.resolver.InvalidateGroup(group)
	for key, k := range e.kinds {
		if key.group == group {
			k.alarm.failures = 0
			if k.resource != nil {
				k.resource.allFields = false
			}
			k.alarm.setDue(e.clock.Now())
		}
	}
}

// readDefinedFields reads which fields the definition of a custom kind makes selectable. A kind without a definition, which
// another API server serves, has those of its metadata.
func (f *finding) readDefinedFields(ctx context.Context, c dynamic.Interface) {
	definitions := schema.GroupVersionResource{Group: definitionsGroup, Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := c.Resource(definitions).Get(ctx, f.GVR.GroupResource().String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		f.allFields = true
		return
	}
	if err != nil {
		f.fieldsError = fmt.Sprintf("cannot find out by which fields %s may be selected: %v", f.GVR.GroupResource(), err)
		return
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	var paths []string
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["name"] != f.GVR.Version {
			continue
		}
		selectable, _, _ := unstructured.NestedSlice(version, "selectableFields")
		for _, s := range selectable {
			if path, ok, _ := unstructured.NestedString(s.(map[string]any), "jsonPath"); ok {
				paths = append(paths, path)
			}
		}
	}
	f.fields, f.allFields = snapshot.CustomFieldLabels(f.Namespaced, paths), true
}
