// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// crowded is metadata as large as somebody can make it, and a little that the operator reads.
func crowded() metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: "shop", Name: "c", UID: "uid", ResourceVersion: "7", Generation: 3, GenerateName: "c-",
		Labels: map[string]string{}, Annotations: map[string]string{v1alpha1.AnnotationRequestedAt: "now"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: strings.Repeat("m", 1000)}},
	}
	for i := range 20_000 {
		m.Labels[fmt.Sprint("l", i)] = ""
		m.Annotations[fmt.Sprint("cleaner.vtex.dev/a", i)] = ""
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{Name: fmt.Sprint("o", i)})
		m.Finalizers = append(m.Finalizers, fmt.Sprint("example.com/f", i))
	}
	m.Finalizers = append(m.Finalizers, v1alpha1.Finalizer)
	return m
}

// Whatever somebody writes into the metadata of an object of ours, the cache takes little of it, and all that the operator reads.
func TestTrimCached(t *testing.T) {
	long := crowded()
	long.Annotations[v1alpha1.AnnotationAuthor] = strings.Repeat("x", 200<<10)
	for name, o := range map[string]client.Object{
		"Cleaner": &v1alpha1.Cleaner{ObjectMeta: crowded()}, "ClusterCleaner": &v1alpha1.ClusterCleaner{ObjectMeta: crowded()},
		"CleanerTemplate": &v1alpha1.CleanerTemplate{ObjectMeta: crowded()}, "LongAnnotation": &v1alpha1.Cleaner{ObjectMeta: long},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := TrimCached(o); err != nil {
				t.Fatal(err)
			}
			bytes := len(o.GetGenerateName()) + 100*(len(o.GetLabels())+len(o.GetOwnerReferences())+len(o.GetManagedFields()))
			for name, value := range o.GetAnnotations() {
				bytes += len(name) + len(value)
			}
			for _, f := range o.GetFinalizers() {
				bytes += len(f)
			}
			if limit := maxCachedAnnotation + 1000; bytes > limit {
				t.Errorf("%d bytes of it are kept, more than %d", bytes, limit)
			}
			if o.GetAnnotations()[v1alpha1.AnnotationRequestedAt] != "now" || !slices.Contains(o.GetFinalizers(), v1alpha1.Finalizer) ||
				o.GetName() != "c" || o.GetGenerateName() != "c-" || o.GetNamespace() != "shop" || o.GetUID() != "uid" || o.GetResourceVersion() != "7" || o.GetGeneration() != 3 {
				t.Errorf("what is read is not kept: %+v", o)
			}
		})
	}
	secret := &corev1.Secret{ObjectMeta: crowded()}
	if _, err := TrimCached(secret); err != nil || secret.ManagedFields != nil || len(secret.Labels) == 0 {
		t.Errorf("of another object only managedFields are dropped: %v", err)
	}
	if gone, err := TrimCached("gone"); err != nil || gone != "gone" {
		t.Errorf("what is no object is let through: %v, %v", gone, err)
	}
}

// Nothing that the operator writes takes away what others have written into the metadata, although its cache has no more of that.
func TestForeignMetadataStays(t *testing.T) {
	foreign := func(o client.Object) string {
		finalizers := slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == v1alpha1.Finalizer })
		annotations := maps.Clone(o.GetAnnotations())
		delete(annotations, v1alpha1.AnnotationAuthor)
		return fmt.Sprint(o.GetLabels(), annotations, finalizers, o.GetOwnerReferences())
	}
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})} {
		t.Run(name, func(t *testing.T) {
			c.Labels, c.Annotations = map[string]string{"team": "a"}, map[string]string{"example.com/note": "b", v1alpha1.AnnotationRequestedAt: "now"}
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "o"}}
			for i := range 2 * maxCachedFinalizers {
				c.Finalizers = append(c.Finalizers, fmt.Sprint("example.com/f", i))
			}
			c.Spec.CloudEventSink = "http://127.0.0.1:1"
			before := foreign(c)
			r := newRig(t, c, aPod("a", "Succeeded"))
			held, writes := 0, 0
			check := func(err error) error {
				now := &v1alpha1.Cleaner{}
				must(t, r.store.Get(t.Context(), r.key(), now))
				if writes++; foreign(now) != before {
					t.Errorf("after write %d it has %s, want %s", writes, foreign(now), before)
				}
				if slices.Contains(now.Finalizers, v1alpha1.Finalizer) {
					held++
				}
				return err
			}
			r.client = interceptor.NewClient(r.store, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if err := c.Get(ctx, key, o, opts...); err != nil {
						return err
					}
					_, err := TrimCached(o)
					return err
				},
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					return check(c.Patch(ctx, o, p, opts...))
				},
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
					return check(c.SubResource(sub).Patch(ctx, o, p, opts...))
				},
			})
			for range 5 {
				r.pass()
				after(2 * DefaultFinishGrace)(r)
			}
			deleting(r)
			for range 5 {
				r.pass()
				after(2 * DefaultFinishGrace)(r)
			}
			if now := r.cleaner(); slices.Contains(now.Finalizers, v1alpha1.Finalizer) || held == 0 {
				t.Errorf("the finalizer was not set and removed: %d of %d writes, %v", held, writes, now.Finalizers)
			}
			if names := r.names(); len(names) > 0 {
				t.Errorf("it has not acted: %v", names)
			}
		})
	}
}

// Whatever somebody writes into a report, the cache keeps of it what the operator writes itself, and memory the latest deeds.
func TestTrimReport(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	s := v1alpha1.CleanerStatus{LastEvaluation: &v1alpha1.Evaluation{Message: long, Conditions: make([]v1alpha1.ConditionOutcome, 80_000)}}
	for range 100 {
		s.LastActions = append(s.LastActions, v1alpha1.Action{Object: long, UID: long, Rule: long, Action: long, Result: long})
		s.Conditions = append(s.Conditions, metav1.Condition{Type: long, Reason: long, Message: long})
		s.Pending = append(s.Pending, v1alpha1.Pending{Rule: long, Key: long})
		s.LastEvaluation.Errors = append(s.LastEvaluation.Errors, v1alpha1.ItemError{Rule: long, Key: long, Field: long, Message: long})
		s.LastEvaluation.Withheld = append(s.LastEvaluation.Withheld, v1alpha1.Withheld{Object: long, Because: long})
	}
	for range 200 {
		s.ResolvedTargets = append(s.ResolvedTargets, long)
	}
	c := &v1alpha1.Cleaner{Status: *s.DeepCopy()}
	if _, err := TrimCached(c); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	must(t, err)
	const most = 512 << 10
	if len(text) > most {
		t.Errorf("%d bytes of it are kept", len(text))
	}
	if n := cap(c.Status.LastEvaluation.Conditions); n > 2*maxOutcomes {
		t.Errorf("%d conditions are kept", n)
	}
	m := newMemory("uid")
	m.acted(s.LastActions, v1alpha1.Action{Object: "pod"})
	if weighActions(m.actions) > most {
		t.Errorf("%d bytes of deeds are remembered", weighActions(m.actions))
	}
	if m.weigh() < weighActions(m.actions)-usualActions {
		t.Error("deeds are not counted")
	}
	if m.forgetItems(); m.weigh() > usualActions {
		t.Errorf("%d bytes are left", m.weigh())
	}
}
