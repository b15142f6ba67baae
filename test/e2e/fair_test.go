// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestASlowWebhookDelaysNoOtherNamespace shows that Cleaners whose deletions hang, of which there are more than the operator has workers,
// leave a worker for another namespace: its Cleaner ends before any of them does.
func TestASlowWebhookDelaysNoOtherNamespace(t *testing.T) {
	const cleaners = 40
	l := parallel(t)
	g := newGate(l)
	configs := clientset(l).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	patient := []byte(`[{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 30}]`)
	if _, err := configs.Patch(l.ctx, l.ns, types.JSONPatchType, patient, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	var hang atomic.Int32
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	g.set(func(*admissionv1.AdmissionRequest) (bool, string) {
		hang.Add(1)
		<-over
		return true, ""
	})
	for i := range cleaners {
		name := fmt.Sprint("c", i)
		l.configMap(name, nil, nil)
		l.apply(cleanerYAML(name, fmt.Sprintf(`
  ttl: 0s
  targets:
  - {name: config, reference: {version: v1, kind: ConfigMap, name: %s}, delete: true}`, name)))
	}
	before := int32(0)
	l.eventually("no more deletions hang than before", func() string {
		now := hang.Load()
		if now < 4 || now != before {
			before = now
			return fmt.Sprint(now)
		}
		return ""
	})
	l.bystander()
	if now := hang.Load(); now != before { // one has ended, so that another could begin
		t.Errorf("%d deletions hang, and %d did before the other namespace's", now, before)
	}
}
