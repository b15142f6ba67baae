// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsSayWhatWasCounted(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	m.Evaluated("Wait")
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
# HELP cleaner_clock_skew_seconds How far the API server's clock is ahead of the operator's, by the Date of its answers; negative when it is behind.
# TYPE cleaner_clock_skew_seconds gauge
cleaner_clock_skew_seconds -1.5
# HELP cleaner_deletions_total DELETE requests for objects of targets, by resource and by what the API server answered.
# TYPE cleaner_deletions_total counter
cleaner_deletions_total{group="",resource="pods",result="deleted"} 2
# HELP cleaner_evaluations_total Evaluations of Cleaners, by verdict.
# TYPE cleaner_evaluations_total counter
cleaner_evaluations_total{verdict="Wait"} 1
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
