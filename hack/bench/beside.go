// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// burden is what one namespace asks of the operator while the Cleaners of another one react.
type burden struct {
	what string
	// begin returns when the operator is busy, and the namespace of its Cleaners. What it starts runs until the context ends.
	begin func(ctx context.Context, r *rig, s sizes) (namespace string, err error)
}

func burdens(s sizes) []burden {
	return []burden{
		{"8 Cleaners that compare 1000 objects with each other, at each of 20 changes per second", evaluateAlways},
		{"40 Cleaners whose deletions hang in a webhook", hangDeletions},
		{fmt.Sprintf("a queue of %d Cleaners that are all due", s.queue), queueCleaners},
	}
}

// beside measures how soon the Cleaners of one namespace react while another namespace keeps the operator busy.
func beside(ctx context.Context, r *rig, s sizes) ([]figure, error) {
	var out []figure
	for i, b := range burdens(s) {
		took, err := reactBeside(ctx, r, i, b, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.what, err)
		}
		out = append(out,
			figure{What: fmt.Sprintf("Reaction beside %s: median of %d", b.what, s.beside), Value: percentile(took, 0.5).Round(time.Millisecond).String()},
			figure{What: fmt.Sprintf("Reaction beside %s: 99th percentile", b.what), Value: percentile(took, 0.99).Round(time.Millisecond).String(), Aim: "below 3s"})
	}
	return out, nil
}

func reactBeside(ctx context.Context, r *rig, i int, b burden, s sizes) ([]time.Duration, error) {
	v, err := newVictim(ctx, r, fmt.Sprintf("beside-%d", i), s.beside)
	if err != nil {
		return nil, err
	}
	busy, stop := context.WithCancel(ctx)
	defer stop()
	ns, err := b.begin(busy, r, s)
	if err != nil {
		return nil, err
	}
	took, err := v.react(ctx)
	if err != nil {
		return nil, err
	}
	stop()
	// An API server ends a request after a minute, when it has deleted some of them.
	err = until(ctx, fmt.Sprintf("that the Cleaners of namespace %q are deleted", ns), func(ctx context.Context) (bool, error) {
		return r.admin.DeleteAllOf(ctx, &v1alpha1.Cleaner{}, client.InNamespace(ns)) == nil, nil
	})
	if err != nil {
		return nil, err
	}
	return took, r.fixtures.gone(ctx, ns) // what is measured next must not be beside them
}

// evaluateAlways has Cleaners compare each object of a namespace with all others, and begin
// again whenever one of the objects changes.
func evaluateAlways(ctx context.Context, r *rig, _ sizes) (string, error) {
	const cleaners, objects = 8, 1000
	ns, err := r.Namespace(ctx, "evaluating")
	if err != nil {
		return "", err
	}
	if err := r.fixtures.configMaps(ctx, ns, "old", objects, member); err != nil {
		return "", err
	}
	for i := range cleaners {
		c := gated(ns, member(i), member(i), member(i))
		c.Spec.Conditions = []string{`all.items.exists(a, all.items.exists(b, a.metadata.name + b.metadata.name == ""))`}
		c.Spec.Targets = []v1alpha1.Target{{Name: "all", Reference: v1alpha1.Reference{Version: "v1", Kind: "ConfigMap", MatchLabels: map[string]string{}}}}
		if err := r.admin.Create(ctx, c); err != nil {
			return "", err
		}
	}
	err = until(ctx, "the Cleaners evaluated", func(ctx context.Context) (bool, error) {
		var list v1alpha1.CleanerList
		if err := r.admin.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return false, err
		}
		evaluated := 0
		for i := range list.Items {
			if list.Items[i].Status.LastEvaluation != nil {
				evaluated++
			}
		}
		return evaluated == cleaners, nil
	})
	if err != nil {
		return "", err
	}
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = r.admin.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("old-%d", i%objects)}},
					client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"data":{"change":"%d"}}`, i))) // the next one comes anyway
			}
		}
	}()
	return ns, nil
}

// hangDeletions has more Cleaners delete than the operator has workers, and a webhook that answers none of these requests.
func hangDeletions(ctx context.Context, r *rig, _ sizes) (string, error) {
	const cleaners = 40
	ns, err := r.stage(ctx, "hanging", cleaners, 1)
	if err != nil {
		return "", err
	}
	var hang atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		hang.Add(1)
		defer hang.Add(-1)
		select {
		case <-ctx.Done():
		case <-request.Context().Done():
		}
	}))
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hangs.example.test",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
			FailurePolicy:     ptr.To(admissionregistrationv1.Fail), SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds: ptr.To(int32(30)), AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := r.admin.Create(ctx, config); err != nil {
		return "", errors.Join(err, ctx.Err())
	}
	context.AfterFunc(ctx, func() {
		_ = r.admin.Delete(context.WithoutCancel(ctx), config) // it concerns only this namespace
		server.Close()
	})
	err = each(cleaners, makers, func(i int) error { return r.admin.Create(ctx, gated(ns, member(i), "gate", member(i))) })
	if err != nil {
		return "", err
	}
	if err := r.fixtures.waits(ctx, ns, cleaners); err != nil {
		return "", err
	}
	if err := r.fixtures.open(ctx, ns, "gate"); err != nil {
		return "", err
	}
	before := int32(0)
	return ns, until(ctx, "as many deletions hang as may", func(context.Context) (bool, error) {
		now := hang.Load()
		full := now > 0 && now == before
		before = now
		return full, nil
	})
}

// queueCleaners has all Cleaners of a namespace due at the same moment.
func queueCleaners(ctx context.Context, r *rig, s sizes) (string, error) {
	ns, err := r.stage(ctx, "queue", s.queue, 1)
	if err != nil {
		return "", err
	}
	err = each(s.queue, makers, func(i int) error { return r.admin.Create(ctx, gated(ns, member(i), "gate", member(i))) })
	if err != nil {
		return "", err
	}
	if err := r.fixtures.waits(ctx, ns, s.queue); err != nil {
		return "", err
	}
	return ns, r.fixtures.open(ctx, ns, "gate")
}
