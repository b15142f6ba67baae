// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/objectschema"
)

// knownSchemas has a schema for Pods, whose status has these fields, and counts how often it was asked for.
type knownSchemas struct {
	mu     sync.Mutex
	fields []string
	asked  int
}

func (s *knownSchemas) publish(fields ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fields = fields
}

func (s *knownSchemas) countAsked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// FindSchema gives the schema of Pods.
func (s *knownSchemas) FindSchema(context.Context, schema.GroupVersionKind) (*objectschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	status := &objectschema.Schema{Types: objectschema.Map, Fields: map[string]*objectschema.Schema{}}
	for _, f := range s.fields {
		status.Fields[f] = &objectschema.Schema{Types: objectschema.String}
	}
	return &objectschema.Schema{Types: objectschema.Map, Fields: map[string]*objectschema.Schema{"status": status}}, nil
}

// FindDocument tells one schema from another.
func (s *knownSchemas) FindDocument(context.Context, schema.GroupVersion) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprint(s.fields), nil
}

// Renew has nothing to do.
func (s *knownSchemas) Renew(context.Context) (changed bool, err error) { return false, nil }

// startChecks has fields checked until the test ends.
func startChecks(r *rig) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.fields.Start(ctx)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// awaitMistakes has the Reconciler look again until its status says, or does not say, that fields do not exist, and returns what it says.
func (r *rig) awaitMistakes(want bool) string {
	r.t.Helper()
	said := ""
	err := wait.PollUntilContextTimeout(r.t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
		r.clock.Step(time.Second)
		r.pass()
		said = ""
		if c := apimeta.FindStatusCondition(r.cleaner().Status.Conditions, v1alpha1.ConditionSchemaMismatch); c != nil {
			said = c.Message
		}
		return (said != "") == want, nil
	})
	must(r.t, err)
	return said
}

// A status warns of what the schema of a kind does not have; the Cleaner acts as before. A pass asks for no schema, and none is asked for again before
// the spec or the schema changes.
func TestMistakesAreReported(t *testing.T) {
	r := newRig(t, done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}), aPod("a", "Succeeded"))
	r.schemas.publish("phase")
	startChecks(r)
	for _, fields := range [][]string{{"phase"}, {"phases"}, {"phase", "phases"}} {
		r.schemas.publish(fields...)
		r.fields.NoteDefinition("pods")
		mistaken := !slices.Contains(fields, "phase")
		said := r.awaitMistakes(mistaken)
		if mistaken {
			same(t, "what is said", `spec.rules[0].when: 1:13: Pod has no field status.phase; did you mean "phases"?`, said)
			if asked := r.schemas.countAsked(); asked > 10 {
				t.Errorf("the schema was asked for %d times", asked)
			}
		}
		if !apimeta.IsStatusConditionTrue(r.cleaner().Status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("it is not ready: %s", r.line())
		}
		r.pods.put(aPod("b", "Succeeded"))
		r.clock.Step(time.Minute)
		r.pass()
		same(t, "left", []string{}, append([]string{}, r.pods.names()...))
	}
	asked := r.schemas.countAsked()
	for range 50 {
		r.clock.Step(time.Minute)
		r.pass()
	}
	if now := r.schemas.countAsked(); now != asked {
		t.Errorf("passes have asked for schemas %d times", now-asked)
	}

	r.schemas.publish("phases")
	r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = `item.status.phse == "Succeeded"` })
	same(t, "after an edit", `spec.rules[0].when: 1:13: Pod has no field status.phse; its fields are phases`, r.awaitMistakes(true))
	r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Validation = v1alpha1.ValidationIgnore })
	r.awaitMistakes(false)
}

// What a checker is given is what the passes evaluate; of a spec that cannot work, or that is gone, it is given nothing to check.
func TestReadSubject(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	r := newRig(t, c)
	r.pass()
	s, err := r.fields.ReadSubject(t.Context(), r.key())
	must(t, err)
	if s.UID != "uid" || s.Version != "1" || s.Programs == nil || s.Reported != "" || len(s.Work.Rules) != 1 {
		t.Errorf("got %+v", s)
	}
	r.edit(func(c *v1alpha1.Cleaner) {
		c.Status.Conditions = nil
		c.Spec.Rules[0].When = "item.status.phase =="
	})
	s, err = r.fields.ReadSubject(t.Context(), r.key())
	must(t, err)
	if s.Version != "2" || s.Programs != nil {
		t.Errorf("of one that does not compile: %+v", s)
	}
	r.edit(func(c *v1alpha1.Cleaner) { c.Spec.Rules, c.Spec.TemplateRef = nil, &v1alpha1.TemplateRef{Name: "none"} })
	s, err = r.fields.ReadSubject(t.Context(), r.key())
	must(t, err)
	if s.Version != "3" || s.Programs != nil {
		t.Errorf("of one without its template: %+v", s)
	}
	must(t, r.store.Delete(t.Context(), r.cleaner()))
	s, err = r.fields.ReadSubject(t.Context(), r.key())
	must(t, err)
	if s != nil {
		t.Errorf("of one that is gone: %+v", s)
	}
}
