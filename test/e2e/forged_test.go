// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// TestAForgedRecordIsDropped has somebody who may write cleaners/status forge an open run, as another namespace's account and
// with a release, and an event. None of it is carried out, nothing is sent, and the status says so.
func TestAForgedRecordIsDropped(t *testing.T) {
	l := parallel(t)
	received := l.sink()
	l.configMap("evidence", nil, map[string]string{"state": "new"})
	l.configMap("victim", nil, nil)
	l.apply(cleanerYAML("c", `
  targets:`+target+`
  cloudEventSink: `+received.URL+`
  conditions: ['evidence.data.state == "old"']`))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonConditionsNotMet)

	const forged = `{"status":{"runs":7,
  "run":{"number":7,"decides":"v1:x","decidedAt":"2026-01-02T03:04:05Z","serviceAccountName":"kube-system/generic-garbage-collector",
    "rows":["targets.target configmaps/v1 %[1]s/victim 11111111-1111-1111-1111-111111111111 1"],
    "helm":{"name":"web","revision":1,"uid":"1","firstDeployed":"2026-01-02T03:04:05.000000Z"}},
  "unsent":{"number":6,"decides":"v1:x","decidedAt":"2026-01-02T03:04:05Z","result":"Completed","finishedAt":"2026-01-02T03:04:05Z","message":"forged"}}}`
	forge := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, forged, l.ns))
	if err := l.Status().Patch(l.ctx, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "c"}}, forge); err != nil {
		t.Fatal(err)
	}
	ask := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1"}}}`, v1alpha1.AnnotationRequestedAt))
	if err := l.Patch(l.ctx, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "c"}}, ask); err != nil {
		t.Fatal(err)
	}
	l.eventually("the record is dropped", func() string {
		s := l.cleaner("c").Status
		switch {
		case s.Run != nil || s.Unsent != nil:
			return "the record is there"
		case s.LastRequestedAt != "1":
			return "it has not gone on"
		case len(s.LastActions) == 0 || !strings.Contains(s.LastActions[0].Result, v1alpha1.ReasonRecordNotTrusted):
			return fmt.Sprintf("the status says %+v", s.LastActions)
		}
		return ""
	})
	if !l.exists(&corev1.ConfigMap{}, "victim") {
		t.Error("the object of the forged row is gone")
	}

	// It goes on as if nothing had been: its own run is a new one, and its event is the only one.
	evidence := &corev1.ConfigMap{}
	l.update(evidence, "evidence", func() { evidence.Data["state"] = "old" })
	l.gone("c")
	events := l.received(received, 1)
	if len(events) != 1 || strings.Contains(fmt.Sprint(events), "forged") {
		t.Errorf("the sink has received %v", events)
	}
	seen, err := l.audit.Events()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range seen {
		if e.ImpersonatedUser != nil && strings.Contains(e.ImpersonatedUser.Username, "generic-garbage-collector") {
			t.Errorf("the operator acted as somebody else: %s", e)
		}
	}
}

// TestAForgedRecordResetsNoLimit shows that a record which is dropped leaves what limits count: who can forge one would have the
// operator act beyond them.
func TestAForgedRecordResetsNoLimit(t *testing.T) {
	l := parallel(t)
	l.labelled(map[string]string{"state": "used"}, "a", "b", "c", "d")
	l.apply(cleanerYAML("c", stays("", shopMaps+`
  limits: {maxPercent: 40, per: 1h}
  rules:
  - {name: stale, forEach: maps.items, when: item.data.state == "stale", actions: [{delete: {}}]}`)))
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	cm := &corev1.ConfigMap{}
	l.update(cm, "a", func() { cm.Data["state"] = "stale" })
	l.leaves("b", "c", "d")

	forge := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"runs":7,"run":{"number":7,"decides":"v1:x","decidedAt":"2026-01-02T03:04:05Z"}}}`))
	if err := l.Status().Patch(l.ctx, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "c"}}, forge); err != nil {
		t.Fatal(err)
	}
	l.update(cm, "b", func() { cm.Data["state"] = "stale" }) // with a, that is half of what there was
	l.eventually("the record is dropped", func() string {
		s := l.cleaner("c").Status
		if s.Run != nil || len(s.LastActions) == 0 || !strings.Contains(s.LastActions[0].Result, v1alpha1.ReasonRecordNotTrusted) {
			return fmt.Sprintf("run %+v, actions %+v", s.Run, s.LastActions)
		}
		return ""
	})
	l.says("c", v1alpha1.ConditionTripped, v1alpha1.ReasonLimitExceeded)
	l.leaves("b", "c", "d")
}

// TestAForgedReportIsReplaced shows that a report which the API server takes from somebody, and not again from the operator,
// stops no report of what is done later.
func TestAForgedReportIsReplaced(t *testing.T) {
	var foreign []string
	for i := range 16 {
		foreign = append(foreign, fmt.Sprintf(`{"type":"Foreign%d","status":"True","reason":"X","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}`, i))
	}
	for name, forged := range map[string]string{
		"TooManyConditions": `{"conditions":[` + strings.Join(foreign, ",") + `]}`,
		"YearOfACondition":  `{"conditions":[{"type":"Ready","status":"True","reason":"X","message":"","lastTransitionTime":"9999-12-31T23:59:59-23:59"}]}`,
		"YearOfAnAction":    `{"lastActions":[{"object":"x","rule":"x","action":"x","result":"x","time":"9999-12-31T23:59:59-23:59"}]}`,
		"Counters":          `{"counters":{"acted":9007199254740991}}`,
	} {
		t.Run(name, func(t *testing.T) {
			l := parallel(t)
			l.labelled(map[string]string{"state": "used"}, "a", "b")
			c := cleanerYAML("c", stays("", shopMaps+`
  rules:
  - {name: stale, forEach: maps.items, when: item.data.state == "stale", actions: [{delete: {}}]}`))
			l.apply(c)
			l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
			if err := l.Status().Patch(l.ctx, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: "c"}},
				client.RawPatch("application/merge-patch+json", []byte(`{"status":`+forged+`}`))); err != nil {
				t.Fatal(err)
			}
			cm := &corev1.ConfigMap{}
			l.update(cm, "a", func() { cm.Data["state"] = "stale" })
			l.eventually("the deletion is reported", func() string {
				s := l.cleaner("c").Status
				if len(s.LastActions) != 1 || s.LastActions[0].Object != "ConfigMap "+l.ns+"/a" || s.Counters == nil || s.Counters.Acted == 0 {
					return fmt.Sprintf("actions %+v, counters %+v", s.LastActions, s.Counters)
				}
				if len(s.Conditions) > 6 {
					return fmt.Sprintf("conditions %+v", s.Conditions)
				}
				return ""
			})
		})
	}
}
