// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/sink"
)

// aging is a Cleaner whose condition becomes true 20 seconds after its target was created, without an event.
func aging(name, monotonic string) string {
	return cleanerYAML(name, `
  retry: {period: 5h, monotonic: `+monotonic+`}
  targets:`+target+`
  conditions: ['time - timestamp(evidence.metadata.creationTimestamp) > duration("20s")']`)
}

func TestMonotonicCleansAtItsMoment(t *testing.T) {
	l := parallel(t)
	born := l.configMap("evidence", nil, nil).CreationTimestamp
	l.apply(aging("c", "true"))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if next, want := c.Status.NextScheduledEvaluation, born.Add(21*time.Second); next == nil || !next.Time.Equal(want) {
		t.Errorf("it looks again at %v, want %s", next, want)
	}
	l.gone("c")
	if late := time.Since(born.Time); late < 20*time.Second || late > time.Minute {
		t.Errorf("it cleaned %s after the target was created", late)
	}
	if l.exists(&corev1.ConfigMap{}, "evidence") {
		t.Error("the target is there")
	}
}

func TestWithoutMonotonicOnlyThePeriodCounts(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(aging("c", "false"))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)
	if next := c.Status.NextScheduledEvaluation; next == nil || next.Sub(c.CreationTimestamp.Time) < 4*time.Hour {
		t.Errorf("it looks again at %v", next)
	}
	l.update(c, "c", func() { c.Spec.Retry.Monotonic = true })
	l.gone("c")
}

func TestEventCarriesTheDataOfTheDecision(t *testing.T) {
	l := parallel(t)
	s := sink.Start(t)
	cm := l.configMap("evidence", map[string]string{"app": "shop"}, map[string]string{"image": "registry.example.test/shop:1"})
	l.apply(cleanerYAML("c", `
  ttl: 0s
  cloudEventSink: "`+s.URL+`"
  cloudEventData: |
    {"image": evidence.data.image, "owner": evidence.metadata.labels["owner"], "keys": evidence.data.size()}
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonEvaluationFailed)
	got := message(c, v1alpha1.ConditionReady)
	for _, want := range []string{"spec.cloudEventData at 1:65", "owner", `[?"owner"].orValue("")`} {
		if !strings.Contains(got, want) {
			t.Errorf("the message does not name %s: %q", want, got)
		}
	}
	if c.Status.Run != nil || len(s.Events()) > 0 || !l.exists(cm, "evidence") {
		t.Fatalf("a run was begun: %+v", c.Status.Run)
	}
	// What the expression reads is put right, and that is an event.
	l.update(cm, "evidence", func() { cm.Labels["owner"] = "team-a" })
	l.gone("c")
	events, err := s.WaitFor(l.ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	var sent struct{ Data json.RawMessage }
	if err := json.Unmarshal(events[0].Data, &sent); err != nil {
		t.Fatal(err)
	}
	if want := `{"image":"registry.example.test/shop:1","keys":1,"owner":"team-a"}`; string(sent.Data) != want {
		t.Errorf("the event carries %s, want %s", sent.Data, want)
	}
}

func TestDryRunEvaluatesTheDataToo(t *testing.T) {
	l := parallel(t)
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", `
  mode: DryRun
  ttl: 0s
  cloudEventData: evidence.data.image
  targets:`+target))
	c := l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonEvaluationFailed)
	if got := message(c, v1alpha1.ConditionReady); !strings.Contains(got, "spec.cloudEventData") {
		t.Errorf("the message does not name the field: %q", got)
	}
	l.update(c, "c", func() { c.Spec.CloudEventData = `evidence.?data.?image.orValue("none")` })
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonDryRun)
}
