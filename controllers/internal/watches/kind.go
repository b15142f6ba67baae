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
	// fieldsTrouble says why they could not be read.
	fields        snapshot.FieldLabels
	allFields     bool
	fieldsTrouble string
}

// attach hangs a new want on its kind.
func (e *Engine) attach(w *want) {
	key := kindKeyOf(&w.query)
	k := e.kinds[key]
	if k == nil {
		k = &kind{
			key: key, wants: map[*want]struct{}{}, state: plan.Unsynced, detail: fmt.Sprintf("kind %q is being looked up", w.query.Kind),
			alarm: newAlarm(e.clock.Now()),
		}
		e.kinds[key] = k
		e.goFollow(k)
	}
	w.kind = k
	k.wants[w] = struct{}{}
	if k.resource != nil {
		e.begin(w)
	}
	w.told = e.look(&w.query).state
}

// detach takes a want away, and stops what nobody else wants.
func (e *Engine) detach(w *want) {
	k := w.kind
	e.end(w)
	delete(k.wants, w)
	if len(k.wants) > 0 {
		return
	}
	k.cancel()
	delete(e.kinds, k.key)
	e.unresolve(k)
}

// begin watches for a want whose resource is known.
func (e *Engine) begin(w *want) {
	r := w.kind.resource
	if !r.allFields && snapshot.NeedsValue(w.query.Fields) {
		if w.kind.alarm.due.IsZero() {
			w.kind.alarm.set(e.clock.Now())
		}
		return
	}
	if r.wrong(&w.query) != "" {
		return
	}
	if !w.quiet {
		r.index.add(w)
	}
	e.place(w)
}

// wrong says why a query of a resource will never be answered, or nothing.
func (r *resource) wrong(q *snapshot.Query) string {
	if wrong := q.Misplaced(r.GVR.GroupResource(), r.Namespaced); wrong != "" {
		return wrong
	}
	if wrong := r.fields.Check(r.GVR.GroupResource(), q.Fields); wrong != "" {
		return wrong
	}
	if !r.Watchable {
		return fmt.Sprintf("%s cannot be listed and watched", r.GVR.GroupResource())
	}
	return ""
}

// end stops what begin has begun.
func (e *Engine) end(w *want) {
	if w.kind.resource == nil {
		return
	}
	w.kind.resource.index.remove(w)
	e.displace(w, nil)
}

func (e *Engine) goFollow(k *kind) {
	k.cancel = e.launch(func(ctx context.Context) { e.follow(ctx, k) })
}

// follow looks a kind up whenever its alarm rings.
func (e *Engine) follow(ctx context.Context, k *kind) {
	for e.await(ctx, &k.alarm) {
		e.mu.RLock()
		due, again, needsFields := k.alarm.due, k.resource == nil && k.state != plan.Unsynced, k.needsFields()
		e.mu.RUnlock()
		if again {
			e.resolver.Invalidate(k.key.group)
		}
		var f finding
		if p := contain.Catch(func() { f = e.lookUp(ctx, k.key, needsFields) }); p != nil {
			f = finding{state: plan.Failed, detail: fmt.Sprintf("cannot find out whether kind %q is served: %v", k.key.kind, p)}
		}
		e.lookedUp(ctx, k, due, f)
	}
}

// lookUp asks what a kind is, and which fields select its objects.
func (e *Engine) lookUp(ctx context.Context, k kindKey, needsFields bool) finding {
	var f finding
	f.Resource, f.state, f.detail = e.resolver.Resolve(ctx, k.group, k.version, k.kind)
	if f.state == plan.Complete {
		f.fields = snapshot.BuiltinFields(f.GVR.GroupResource())
		f.allFields = f.fields.Own() || !strings.Contains(f.GVR.Group, ".")
		if !f.allFields && needsFields {
			f.definedFields(ctx, e.dynamic)
		}
	}
	return f
}

// lookedUp takes note of what was found about a kind, for an alarm that was due.
func (e *Engine) lookedUp(ctx context.Context, k *kind, due time.Time, f finding) {
	e.mu.Lock()
	defer e.unlock()
	if ctx.Err() != nil {
		return
	}
	if k.alarm.due.Equal(due) { // else it was set meanwhile, and what was found may be older
		k.alarm.due = time.Time{}
	}
	e.found(k, f)
}

// finding is what a kind turned out to be.
type finding struct {
	Resource
	state         plan.TargetState
	detail        string
	fields        snapshot.FieldLabels
	allFields     bool
	fieldsTrouble string
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

// found takes note of what a kind turned out to be.
func (e *Engine) found(k *kind, f finding) {
	if f.state != plan.Complete || f.fieldsTrouble != "" {
		e.retry(k)
	}
	if f.state == plan.Failed && k.resource != nil { // not to get an answer does not mean that it is gone
		return
	}
	if f.state != plan.Complete {
		e.unresolve(k)
		k.state, k.detail = f.state, f.detail
		e.tellAll(k.wants)
		return
	}
	if k.resource != nil && k.resource.Resource != f.Resource {
		e.unresolve(k)
	}
	r := e.resources[f.Resource]
	if r == nil {
		r = &resource{Resource: f.Resource, kinds: map[*kind]struct{}{}, scopes: map[scopeKey]*scope{}, index: index{}, fields: f.fields}
		e.resources[f.Resource] = r
	}
	if f.allFields {
		r.fields, r.allFields = f.fields, true
	}
	r.fieldsTrouble = f.fieldsTrouble
	k.state, k.detail, k.resource = plan.Complete, "", r
	r.kinds[k] = struct{}{}
	for w := range k.wants {
		if w.scopes == nil {
			e.begin(w)
		}
	}
	e.tellAll(k.wants)
}

// retry sets the alarm of a kind for another attempt, unless it is set for an earlier one.
func (e *Engine) retry(k *kind) {
	if k.alarm.due.IsZero() {
		k.alarm.set(e.clock.Now().Add(k.alarm.backOff(e.retryEvery)))
	}
}

// unresolve stops all that is watched for a kind.
func (e *Engine) unresolve(k *kind) {
	r := k.resource
	if r == nil {
		return
	}
	for w := range k.wants {
		e.end(w)
	}
	k.resource = nil
	delete(r.kinds, k)
	if len(r.kinds) == 0 {
		delete(e.resources, r.Resource)
	}
}

// lost takes note that the API server does not find a resource any more. Whether that means that the kind is gone is for
// discovery to say: at once the first time, later and later while the two disagree.
func (e *Engine) lost(r *resource) {
	e.resolver.Invalidate(r.GVR.Group)
	for k := range r.kinds {
		e.unresolve(k)
		k.state, k.detail = plan.Unsynced, fmt.Sprintf("kind %q is being looked up again", r.Kind)
		again := k.alarm.failures > 0
		wait := k.alarm.backOff(e.retryEvery)
		if again {
			k.state, k.detail = plan.Failed, fmt.Sprintf("the API server lists %s, and does not find them", r.GVR.GroupResource())
		} else {
			wait = 0
		}
		k.alarm.set(e.clock.Now().Add(wait))
		e.tellAll(k.wants)
	}
}

// definitionChanged looks the kinds of a group up again at once.
func (e *Engine) definitionChanged(definition string) {
	_, group, _ := strings.Cut(definition, ".")
	e.resolver.Invalidate(group)
	for key, k := range e.kinds {
		if key.group == group {
			k.alarm.failures = 0
			if k.resource != nil {
				k.resource.allFields = false
			}
			k.alarm.set(e.clock.Now())
		}
	}
}

// definedFields reads which fields the definition of a custom kind makes selectable. A kind without a definition, which
// another API server serves, has those of its metadata.
func (f *finding) definedFields(ctx context.Context, c dynamic.Interface) {
	definitions := schema.GroupVersionResource{Group: definitionsGroup, Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := c.Resource(definitions).Get(ctx, f.GVR.GroupResource().String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		f.allFields = true
		return
	}
	if err != nil {
		f.fieldsTrouble = fmt.Sprintf("cannot find out by which fields %s may be selected: %v", f.GVR.GroupResource(), err)
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
	f.fields, f.allFields = snapshot.CustomFields(f.Namespaced, paths), true
}
