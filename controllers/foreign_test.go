// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/cachetrim"
)

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
			for i := range 2 * cachetrim.MaxCachedFinalizers {
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
					_, err := cachetrim.TrimObject(o)
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
			if names := r.pods.names(); len(names) > 0 {
				t.Errorf("it has not acted: %v", names)
			}
		})
	}
}
