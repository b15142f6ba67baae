// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// healthy are the Cleaners that must go on.
type healthy struct{ play *play }

// create makes them.
func (h healthy) create() {
	h.play.Helper()
	if err := h.play.makeNamespace(h.play.ctx, healthyNamespace, ""); err != nil {
		h.play.Fatal(err)
	}
	at := nowhere()
	at.Namespace = healthyNamespace
	for i := range healthyCleaners {
		made, err := at.read(fmt.Sprintf(`{{cleaner "healthy-%d"}}
spec:
  lifecycle: Recurring
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {old: "%d"}}}]
  rules: [{name: old, forEach: maps.items, when: "true", actions: [{delete: {}}]}]
`, i, i))
		if err != nil {
			h.play.Fatal(err)
		}
		if err := h.play.objects.sendAgain(h.play.ctx, made[0], false, false); err != nil {
			h.play.Fatal(err)
		}
	}
}

// makeOld makes an object that one of the healthy Cleaners deletes.
func (h healthy) makeOld(ctx context.Context, prefix string, i int) error {
	_, err := h.play.create(ctx, "v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: healthyNamespace, Name: fmt.Sprintf("%s-%d", prefix, i), Labels: map[string]string{"old": fmt.Sprint(i % healthyCleaners)},
	}})
	return err
}

// keepActing gives one healthy Cleaner after the other something to do, once a second, until stop is called: a namespace that wants little
// comes first, one that wants much gets its share.
func (h healthy) keepActing() (stop func()) {
	ctx, cancel := context.WithCancel(h.play.ctx)
	var all sync.WaitGroup
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := h.makeOld(ctx, besidePrefix, i); err != nil && ctx.Err() == nil {
				h.play.Errorf("cannot make an object for the healthy Cleaners: %v", err)
				return
			}
			for range 10 {
				pause(ctx)
			}
		}
	})
	stop = func() {
		cancel()
		all.Wait()
	}
	h.play.Cleanup(stop)
	return stop
}

// act gives each of the healthy Cleaners something to do, and waits until it is done.
func (h healthy) act(when string) {
	h.play.Helper()
	began := time.Now()
	for i := range healthyCleaners {
		if err := h.makeOld(h.play.ctx, "old", i); err != nil {
			h.play.Fatal(err)
		}
	}
	h.awaitActed("old", when)
	h.play.Logf("%d healthy Cleaners took %s %s", healthyCleaners, time.Since(began).Round(time.Millisecond), when)
}

// awaitActed waits until the healthy Cleaners have deleted what they were given under a prefix.
func (h healthy) awaitActed(prefix, when string) {
	h.play.Helper()
	h.play.await("the healthy Cleaners act "+when, func(ctx context.Context) string {
		left, err := h.play.of(corev1.SchemeGroupVersion.WithKind("ConfigMap"), healthyNamespace).List(ctx, metav1.ListOptions{LabelSelector: "old"})
		if err != nil {
			return err.Error()
		}
		left.Items = slices.DeleteFunc(left.Items, func(u unstructured.Unstructured) bool { return !strings.HasPrefix(u.GetName(), prefix+"-") })
		if len(left.Items) > 0 {
			return fmt.Sprintf("%d ConfigMaps are there, such as %s", len(left.Items), left.Items[0].GetName())
		}
		return ""
	})
}
