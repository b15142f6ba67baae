// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// TestWhatComesAndGoesInOneNamespaceHoldsUpNoOther shows that a ClusterCleaner of lifecycle Once cleans a namespace while in another one
// somebody creates and deletes objects, that it selects too, as fast as the API server lets them.
func TestWhatComesAndGoesInOneNamespaceHoldsUpNoOther(t *testing.T) {
	l := parallel(t)
	other := newLab(t, shared)
	for i := range 3 {
		other.configMap(fmt.Sprint("stays-", i), map[string]string{"doomed": "busy"}, nil)
	}

	ctx, stop := context.WithCancel(l.ctx)
	var all sync.WaitGroup
	t.Cleanup(func() { stop(); all.Wait() })
	for i := range 12 {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: fmt.Sprintf("churn-%d-%d", i, n), Labels: map[string]string{"doomed": "busy"}}}
				if err := l.Create(ctx, cm); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
				if err := l.Delete(ctx, cm); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	l.eventually("objects come and go", func() string {
		var some corev1.ConfigMapList
		if err := l.List(l.ctx, &some, client.InNamespace(l.ns), client.MatchingLabels{"doomed": "busy"}); err != nil || len(some.Items) == 0 {
			return fmt.Sprint("none is there: ", err)
		}
		return ""
	})

	c := l.fixtures.cluster(fmt.Sprintf(`
  ttl: 0s
  targets:
  - name: configs
    reference: {version: v1, kind: ConfigMap, matchLabels: {doomed: busy}, namespaces: [%s, %s]}
    delete: true
  conditions: ["configs.items.size() > 0"]`, l.ns, other.ns))
	l.eventually("it cleans the other namespace, and goes", func() string {
		for i := range 3 {
			if other.exists(&corev1.ConfigMap{}, fmt.Sprint("stays-", i)) {
				return fmt.Sprint("stays-", i, " is there")
			}
		}
		now := &v1alpha1.ClusterCleaner{}
		if err := l.Get(l.ctx, client.ObjectKey{Name: c.GetName()}, now); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err, now.Status.Conditions)
		}
		return ""
	})
}
