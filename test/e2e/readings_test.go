// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// TestACostlyRecordDelaysNoOtherNamespace has more Cleaners than one namespace may have workers read a record that is as costly as one may
// be, and that changes all the time. Releases of other namespaces are uninstalled meanwhile, and Cleaners without a release do not notice.
func TestACostlyRecordDelaysNoOtherNamespace(t *testing.T) {
	l := parallel(t)
	others := []*lab{newLab(t, l.env), newLab(t, l.env), newLab(t, l.env)}
	for _, o := range others {
		release(o, "shop", nil)
	}
	secret := l.fixtures.costlyRecord("costly")
	over, changed := make(chan struct{}), make(chan struct{})
	defer func() { close(over); <-changed }()
	go func() {
		defer close(changed)
		again := time.NewTicker(250 * time.Millisecond)
		defer again.Stop()
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case <-again.C:
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, n)
			if err := l.Patch(l.ctx, secret.DeepCopy(), client.RawPatch("application/merge-patch+json", patch)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for n := range 10 {
		l.apply(cleanerYAML(fmt.Sprint("costly-", n), `
  ttl: 0s
  retry: {period: 10s}
  helm: {release: costly, delete: true}`))
	}
	for n := range 10 {
		l.says(fmt.Sprint("costly-", n), v1alpha1.ConditionReady, v1alpha1.ReasonTooManyObjects)
	}
	for _, o := range others {
		uninstalls(o, "shop")
	}
	l.bystander()
	for _, o := range others {
		o.gone("shop")
	}
}
