// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// TestOneNamespaceDoesNotUseUpTheMemory fills a namespace with more than the operator has memory for. The Cleaner that reads it waits and says why,
// the operator goes on, and so do the Cleaners of others. When the Cleaner reads less, as it was told, it goes on too.
func TestOneNamespaceDoesNotUseUpTheMemory(t *testing.T) {
	const objects, bytes = 130, 900 << 10
	l := newLab(t, alone(t))
	other := newLab(t, l.env)
	names := make([]string, objects)
	for n := range names {
		names[n] = fmt.Sprint("large-", n)
	}
	l.labelled(map[string]string{"text": strings.Repeat("x", bytes)}, names...)
	p := l.operators.run(l.binary, append(lone(), "--memory-limit=96Mi")...)
	rules := func(when string) string {
		return fmt.Sprintf(`
  rules:
  - name: some
    forEach: maps.items
    when: %s
    actions: [{delete: {}}]`, when)
	}
	l.apply(cleanerYAML("c", stays("", shopMaps+rules(`item.data.text == ""`))))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonTooLarge)
	if said := message(c, v1alpha1.ConditionReady); !strings.HasPrefix(said, fmt.Sprintf(`Target "maps": configmaps in namespace %q take about `, l.ns)) {
		t.Errorf("it says %q", said)
	}
	other.configMap("evidence", nil, nil)
	other.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	other.gone("c")
	if other.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the Cleaner of another namespace has not cleaned up")
	}
	l.updateCleaner("c", func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].When = `item.metadata.name == "large-1"` })
	l.eventually("what is to go is gone", func() string {
		if l.exists(&corev1.ConfigMap{}, "large-1") {
			return "it is there"
		}
		return ""
	})
	select {
	case <-p.Exited():
		t.Errorf("the operator has ended; its log is %s:\n%s", p.LogPath, tail(p.LogPath))
	default:
	}
}
