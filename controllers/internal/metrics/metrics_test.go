// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

func TestMetricsSayWhatWasCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	m.ObserveEvaluation("Wait", 3*time.Millisecond, 3, 5)
	m.CountAction(types.NamespacedName{}, "", "delete", "done")
	m.ObserveDelay(Delay{Due: 3 * time.Hour, Decided: 2 * time.Second, Ends: true})
	m.ObserveDelay(Delay{Due: 20 * time.Millisecond, Decided: time.Second}) // of a patch
	shop, stock := types.NamespacedName{Namespace: "shop", Name: "orphans"}, types.NamespacedName{Namespace: "stock", Name: "orphans"}
	m.CountAction(shop, "unowned", "evict", "refused")
	m.CountAction(stock, "unowned", "evict", "refused")
	m.SetItems(shop, 4, 1)
	m.SetItems(stock, 3, 0)
	m.SetItems(shop, 2, 1)
	m.SetFindings(shop, map[string]int{"twice": 3, "once": 1})
	m.SetFindings(stock, map[string]int{"twice": 5})
	m.SetFindings(shop, map[string]int{"twice": 2})
	m.ForgetCleaner(stock)
	m.CountDeletion("", "pods", "deleted")
	m.CountDeletion("", "pods", "deleted")
	m.CountRun("Completed")
	m.CountDelivery("delivered")
	m.CountDroppedEvents("full", 7)
	m.SetWatchCounts(2, 30)
	m.CountWakeups(3)
	m.CountTooLarge()
	m.CountProof("reached")

	m.CountPanic()
	m.SetQueueDepth(4)
	m.ObserveQueueWait(2 * time.Second)
	if err := RegisterClockSkew(r, func() time.Duration { return -1500 * time.Millisecond }); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP cleaner_action_delay_seconds Time from the moment at which an action on an object became due to the action.
# TYPE cleaner_action_delay_seconds histogram
cleaner_action_delay_seconds_bucket{le="0.1"} 1
cleaner_action_delay_seconds_bucket{le="0.25"} 1
cleaner_action_delay_seconds_bucket{le="0.5"} 1
cleaner_action_delay_seconds_bucket{le="1"} 1
cleaner_action_delay_seconds_bucket{le="2.5"} 1
cleaner_action_delay_seconds_bucket{le="5"} 1
cleaner_action_delay_seconds_bucket{le="10"} 1
cleaner_action_delay_seconds_bucket{le="30"} 1
cleaner_action_delay_seconds_bucket{le="60"} 1
cleaner_action_delay_seconds_bucket{le="300"} 1
cleaner_action_delay_seconds_bucket{le="900"} 1
cleaner_action_delay_seconds_bucket{le="3600"} 1
cleaner_action_delay_seconds_bucket{le="14400"} 2
cleaner_action_delay_seconds_bucket{le="86400"} 2
cleaner_action_delay_seconds_bucket{le="+Inf"} 2
cleaner_action_delay_seconds_sum 10800.02
cleaner_action_delay_seconds_count 2
# HELP cleaner_actions_total Actions on objects, by verb and response; for Recurring Cleaners also by namespace, name and rule.
# TYPE cleaner_actions_total counter
cleaner_actions_total{cleaner="",namespace="",result="done",rule="",verb="delete"} 1
cleaner_actions_total{cleaner="orphans",namespace="shop",result="refused",rule="unowned",verb="evict"} 1
# HELP cleaner_clock_skew_seconds How far the API server's clock is ahead of the operator's, by the Date of its answers; negative when it is behind.
# TYPE cleaner_clock_skew_seconds gauge
cleaner_clock_skew_seconds -1.5
# HELP cleaner_deletion_delay_seconds Time from the decision to the deletion or eviction of an object.
# TYPE cleaner_deletion_delay_seconds histogram
cleaner_deletion_delay_seconds_bucket{le="0.01"} 0
cleaner_deletion_delay_seconds_bucket{le="0.04"} 0
cleaner_deletion_delay_seconds_bucket{le="0.16"} 0
cleaner_deletion_delay_seconds_bucket{le="0.64"} 0
cleaner_deletion_delay_seconds_bucket{le="2.56"} 1
cleaner_deletion_delay_seconds_bucket{le="10.24"} 1
cleaner_deletion_delay_seconds_bucket{le="40.96"} 1
cleaner_deletion_delay_seconds_bucket{le="163.84"} 1
cleaner_deletion_delay_seconds_bucket{le="655.36"} 1
cleaner_deletion_delay_seconds_bucket{le="2621.44"} 1
cleaner_deletion_delay_seconds_bucket{le="+Inf"} 1
cleaner_deletion_delay_seconds_sum 2
cleaner_deletion_delay_seconds_count 1
# HELP cleaner_deletions_total DELETE requests for objects of targets, by resource and by what the API server answered.
# TYPE cleaner_deletions_total counter
cleaner_deletions_total{group="",resource="pods",result="deleted"} 2
# HELP cleaner_evaluation_duration_seconds Duration of an evaluation.
# TYPE cleaner_evaluation_duration_seconds histogram
cleaner_evaluation_duration_seconds_bucket{le="0.0005"} 0
cleaner_evaluation_duration_seconds_bucket{le="0.002"} 0
cleaner_evaluation_duration_seconds_bucket{le="0.008"} 1
cleaner_evaluation_duration_seconds_bucket{le="0.032"} 1
cleaner_evaluation_duration_seconds_bucket{le="0.128"} 1
cleaner_evaluation_duration_seconds_bucket{le="0.512"} 1
cleaner_evaluation_duration_seconds_bucket{le="2.048"} 1
cleaner_evaluation_duration_seconds_bucket{le="8.192"} 1
cleaner_evaluation_duration_seconds_bucket{le="32.768"} 1
cleaner_evaluation_duration_seconds_bucket{le="+Inf"} 1
cleaner_evaluation_duration_seconds_sum 0.003
cleaner_evaluation_duration_seconds_count 1
# HELP cleaner_evaluations_total Evaluations of Cleaners, by verdict.
# TYPE cleaner_evaluations_total counter
cleaner_evaluations_total{verdict="Wait"} 1
# HELP cleaner_events_dropped_total Kubernetes Events that were not written, by reason.
# TYPE cleaner_events_dropped_total counter
cleaner_events_dropped_total{reason="full"} 7
cleaner_events_dropped_total{reason="refused"} 0
cleaner_events_dropped_total{reason="shutdown"} 0
cleaner_events_dropped_total{reason="unanswered"} 0
# HELP cleaner_failing_items Items that are skipped because an expression failed.
# TYPE cleaner_failing_items gauge
cleaner_failing_items{cleaner="orphans",namespace="shop"} 1
# HELP cleaner_freshness_proofs_total Proofs that a watch is as new as the API server, by result.
# TYPE cleaner_freshness_proofs_total counter
cleaner_freshness_proofs_total{result="compared"} 0
cleaner_freshness_proofs_total{result="failed"} 0
cleaner_freshness_proofs_total{result="followed"} 0
cleaner_freshness_proofs_total{result="reached"} 1
# HELP cleaner_panics_total Panics of the operator. Each cost one try of one Cleaner.
# TYPE cleaner_panics_total counter
cleaner_panics_total 1
# HELP cleaner_findings Items that rules with the action report find, by namespace, name and rule.
# TYPE cleaner_findings gauge
cleaner_findings{cleaner="orphans",namespace="shop",rule="once"} 0
cleaner_findings{cleaner="orphans",namespace="shop",rule="twice"} 2
# HELP cleaner_pending_items Items that are waiting for the for of a rule.
# TYPE cleaner_pending_items gauge
cleaner_pending_items{cleaner="orphans",namespace="shop"} 2
# HELP cleaner_queue_duration_seconds Time that a Cleaner waited for a worker.
# TYPE cleaner_queue_duration_seconds histogram
cleaner_queue_duration_seconds_bucket{le="0.001"} 0
cleaner_queue_duration_seconds_bucket{le="0.004"} 0
cleaner_queue_duration_seconds_bucket{le="0.016"} 0
cleaner_queue_duration_seconds_bucket{le="0.064"} 0
cleaner_queue_duration_seconds_bucket{le="0.256"} 0
cleaner_queue_duration_seconds_bucket{le="1.024"} 0
cleaner_queue_duration_seconds_bucket{le="4.096"} 1
cleaner_queue_duration_seconds_bucket{le="16.384"} 1
cleaner_queue_duration_seconds_bucket{le="65.536"} 1
cleaner_queue_duration_seconds_bucket{le="262.144"} 1
cleaner_queue_duration_seconds_bucket{le="+Inf"} 1
cleaner_queue_duration_seconds_sum 2
cleaner_queue_duration_seconds_count 1
# HELP cleaner_queued_cleaners Cleaners that wait for a worker.
# TYPE cleaner_queued_cleaners gauge
cleaner_queued_cleaners 4
# HELP cleaner_rule_items_total Items of rules in evaluations, by whether when was evaluated for them.
# TYPE cleaner_rule_items_total counter
cleaner_rule_items_total{result="evaluated"} 3
cleaner_rule_items_total{result="reused"} 5
# HELP cleaner_runs_total Finished runs, by result.
# TYPE cleaner_runs_total counter
cleaner_runs_total{result="Abandoned"} 0
cleaner_runs_total{result="Completed"} 1
cleaner_runs_total{result="Partial"} 0
# HELP cleaner_sink_deliveries_total Attempts to deliver an event to a sink, by result.
# TYPE cleaner_sink_deliveries_total counter
cleaner_sink_deliveries_total{result="delivered"} 1
# HELP cleaner_wakes_total Cleaners that were woken by a watch.
# TYPE cleaner_wakes_total counter
cleaner_wakes_total 3
# HELP cleaner_watched_objects Objects that these watches hold in memory.
# TYPE cleaner_watched_objects gauge
cleaner_watched_objects 30
# HELP cleaner_watches Watches of target kinds.
# TYPE cleaner_watches gauge
cleaner_watches 2
# HELP cleaner_watches_too_large_total Watches that were ended because their objects took too much memory.
# TYPE cleaner_watches_too_large_total counter
cleaner_watches_too_large_total 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("the metrics break Prometheus' conventions: %v %v", problems, err)
	}
	if _, err := New(r); err == nil {
		t.Error("registering twice is no error")
	}
	if err := RegisterClockSkew(r, func() time.Duration { return 0 }); err == nil {
		t.Error("registering twice is no error")
	}
}

// seriesOf counts the series of a metric by their namespace, and adds up what they count.
func seriesOf(t *testing.T, r *prometheus.Registry, metric string) (by map[string]int, sum float64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	by = map[string]int{}
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			for _, l := range m.GetLabel() {
				if l.GetName() == "namespace" {
					by[l.GetValue()]++
				}
			}
		}
	}
	return by, sum
}

// However many Cleaners a namespace has, and whatever they call their rules, it fills its own share of the series, and all
// of them have room when the Cleaners are gone.
func TestOneNamespaceDoesNotPushNamesOfOthersOut(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	const many = 3000
	flood := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "flood", Name: fmt.Sprint("c-", i)}
	}
	for i := range many {
		m.CountAction(flood(i), "r", "delete", "done")
		m.SetItems(flood(i), 1, 1)
		m.SetFindings(flood(i), map[string]int{"r": 1})
	}
	shop := types.NamespacedName{Namespace: "shop", Name: "orphans"}
	m.CountAction(shop, "r", "delete", "done")
	m.SetItems(shop, 2, 2)
	m.SetFindings(shop, map[string]int{"r": 2})
	for _, metric := range []string{"cleaner_actions_total", "cleaner_pending_items", "cleaner_failing_items", "cleaner_findings"} {
		by, _ := seriesOf(t, r, metric)
		if by["flood"] > maxNamesOfNamespace+1 || by["shop"] != 1 {
			t.Errorf("%s has series %v", metric, by)
		}
	}
	if _, sum := seriesOf(t, r, "cleaner_actions_total"); sum != many+1 {
		t.Errorf("%v actions were counted of %d", sum, many+1)
	}
	if n := testutil.ToFloat64(m.pending.WithLabelValues("shop", "orphans")); n != 2 {
		t.Errorf("%v items of another namespace wait, want 2", n)
	}
	if _, sum := seriesOf(t, r, "cleaner_findings"); sum != many+2 {
		t.Errorf("%v findings were counted of %d", sum, many+2)
	}
	for i := range many {
		m.ForgetCleaner(flood(i))
	}
	if n := testutil.ToFloat64(m.findings.WithLabelValues("flood", others, others)); n != 0 {
		t.Errorf("%v findings of Cleaners that are gone are counted", n)
	}
	if n := testutil.ToFloat64(m.pending.WithLabelValues("flood", others)); n != 0 {
		t.Errorf("%v items of Cleaners that are gone wait", n)
	}
	m.CountAction(flood(many), "r", "delete", "done")
	if by, _ := seriesOf(t, r, "cleaner_actions_total"); by["flood"] != 2 { // this one, and the others
		t.Errorf("names of Cleaners that are gone take room: %v", by)
	}
}

func TestNamesAreBoundedInAll(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxNames {
		m.CountAction(types.NamespacedName{Namespace: fmt.Sprint("ns-", i), Name: "c"}, "r", "delete", "done")
		m.SetItems(types.NamespacedName{Namespace: fmt.Sprint("ns-", i), Name: "c"}, 1, 1)
		m.SetFindings(types.NamespacedName{Namespace: fmt.Sprint("ns-", i), Name: "c"}, map[string]int{"r": 1})
	}
	for _, name := range []string{"cleaner_actions_total", "cleaner_pending_items", "cleaner_failing_items", "cleaner_findings"} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n > maxNames+1 {
			t.Errorf("%s has %d series: %v", name, n, err)
		}
	}
	if _, sum := seriesOf(t, r, "cleaner_pending_items"); sum != 3*maxNames {
		t.Errorf("%v items wait of %d", sum, 3*maxNames)
	}
}
