// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package evalcancel

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func TestOnlyNewsOfTheAuthorWake(t *testing.T) {
	base := func() *v1alpha1.Cleaner {
		return &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{UID: "a", Generation: 1, Finalizers: []string{"x"}}}
	}
	cases := map[string]struct {
		change func(*v1alpha1.Cleaner)
		want   bool
	}{
		"Status":      {func(c *v1alpha1.Cleaner) { c.Status.Runs = 3; c.ResourceVersion = "2" }, false},
		"Labels":      {func(c *v1alpha1.Cleaner) { c.Labels = map[string]string{"a": "b"} }, false},
		"Spec":        {func(c *v1alpha1.Cleaner) { c.Generation = 2 }, true},
		"RequestedAt": {func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} }, true},
		"Finalizer":   {func(c *v1alpha1.Cleaner) { c.Finalizers = nil }, true},
		"Deletion":    {func(c *v1alpha1.Cleaner) { c.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		"Recreation":  {func(c *v1alpha1.Cleaner) { c.UID = "b" }, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := base()
			tc.change(after)
			if got := WakesCleaner().Update(event.UpdateEvent{ObjectOld: base(), ObjectNew: after}); got != tc.want {
				t.Errorf("wakes: %t", got)
			}
		})
	}
}
