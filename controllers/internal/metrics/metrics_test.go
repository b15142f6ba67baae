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
	m.Evaluated("Wait", 3*time.Millisecond)
	m.Acted("", "", "delete", "done")
	m.Acted("orphans", "unowned", "evict", "refused")
	m.Delayed(2 * time.Second)
	shop, stock := types.NamespacedName{Namespace: "shop", Name: "orphans"}, types.NamespacedName{Namespace: "stock", Name: "orphans"}
	m.Items(shop, 4, 1)
	m.Items(stock, 3, 0)
	m.Items(shop, 2, 1)
	m.Forget(stock)
	m.Deleted("", "pods", "deleted")
	m.Deleted("", "pods", "deleted")
	m.Finished("Completed")
	m.Delivery("delivered")
	m.Watching(2, 30)
	m.Woke(3)
	if err := ClockSkew(r, func() time.Duration { return -1500 * time.Millisecond }); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP cleaner_actions_total Actions on objects, by verb and by what the API server answered; of Cleaners that stay also by their name and rule.
# TYPE cleaner_actions_total counter
cleaner_actions_total{cleaner="",result="done",rule="",verb="delete"} 1
cleaner_actions_total{cleaner="orphans",result="refused",rule="unowned",verb="evict"} 1
# HELP cleaner_clock_skew_seconds How far the API server's clock is ahead of the operator's, by the Date of its answers; negative when it is behind.
# TYPE cleaner_clock_skew_seconds gauge
cleaner_clock_skew_seconds -1.5
# HELP cleaner_deletion_delay_seconds How long after it was decided an object was deleted or evicted.
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
# HELP cleaner_evaluation_duration_seconds How long it took to decide on what the watches know.
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
# HELP cleaner_failing_items Items of rules that are left alone because an expression gives an error.
# TYPE cleaner_failing_items gauge
cleaner_failing_items{cleaner="orphans"} 1
# HELP cleaner_pending_items Items for which a rule's condition holds, and not yet for as long as it has to.
# TYPE cleaner_pending_items gauge
cleaner_pending_items{cleaner="orphans"} 2
# HELP cleaner_runs_total Finished cleanings, by result.
# TYPE cleaner_runs_total counter
cleaner_runs_total{result="Completed"} 1
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
	if err := ClockSkew(r, func() time.Duration { return 0 }); err == nil {
		t.Error("registering twice is no error")
	}
}

// However many Cleaners there are, and whatever they call their rules, the number of series is bounded.
func TestNamesAreBounded(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * maxNames {
		name := fmt.Sprint("c-", i)
		m.Acted(name, "r", "delete", "done")
		m.Items(types.NamespacedName{Namespace: "shop", Name: name}, 1, 1)
	}
	for _, name := range []string{"cleaner_actions_total", "cleaner_pending_items", "cleaner_failing_items"} {
		if n, err := testutil.GatherAndCount(r, name); err != nil || n > maxNames+1 {
			t.Errorf("%s has %d series: %v", name, n, err)
		}
	}
	all := 0.0
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if f.GetName() == "cleaner_actions_total" {
				all += metric.GetCounter().GetValue()
			}
		}
	}
	if all != 3*maxNames {
		t.Errorf("%v actions were counted of %d", all, 3*maxNames)
	}
	for i := range 3 * maxNames {
		m.Forget(types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("c-", i)})
	}
	if n := testutil.ToFloat64(m.pending.WithLabelValues(others)); n != 0 {
		t.Errorf("%v items of Cleaners that are gone wait", n)
	}
}
