// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The gauge shows what is so now: nothing stays of a Cleaner that is gone, or of an earlier reason.
func TestReadiness(t *testing.T) {
	r := prometheus.NewRegistry()
	now, broken := []Readiness{{"shop", "a", "DryRun", true, true}, {"shop", "b", "AccessDenied", false, false}, {"", "all", "", false, true}}, error(nil)
	list := func() ([]Readiness, error) { return append([]Readiness{}, now...), broken }
	if err := RegisterReadiness(r, list); err != nil {
		t.Fatal(err)
	}
	if err := RegisterReadiness(r, list); err == nil {
		t.Error("registering twice is no error")
	}
	head := `
# HELP cleaner_ready Whether a Cleaner is ready: 1, also during a run, or 0. The reason is empty before the first evaluation.
# TYPE cleaner_ready gauge
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(head+`cleaner_ready{cleaner="a",namespace="shop",reason="DryRun"} 1
cleaner_ready{cleaner="all",namespace="",reason=""} 0
cleaner_ready{cleaner="b",namespace="shop",reason="AccessDenied"} 0
# HELP cleaner_unaccepted_events Events that their sinks have not accepted, and that are sent again, by the namespace of the Cleaner.
# TYPE cleaner_unaccepted_events gauge
cleaner_unaccepted_events{namespace=""} 1
cleaner_unaccepted_events{namespace="shop"} 1
`)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("the metrics break Prometheus' conventions: %v %v", problems, err)
	}
	now = []Readiness{{"shop", "b", "NothingToDo", true, false}}
	if err := testutil.GatherAndCompare(r, strings.NewReader(head+`cleaner_ready{cleaner="b",namespace="shop",reason="NothingToDo"} 1
`)); err != nil {
		t.Error(err)
	}
	broken = errors.New("odd")
	if _, err := r.Gather(); err == nil {
		t.Error("a list that cannot be read is no error")
	}
}

// However many Cleaners there are, a namespace has its own share of the series, those that are not ready come first, and each Cleaner has a
// series or is counted.
func TestReadinessIsBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		namespaces, each, broken int // Cleaners of each namespace, and how many of these are not ready
		most                     int // series of a namespace
	}{
		"One namespace":                  {1, 4000, 20, maxNamesOfNamespace},
		"One namespace, all broken":      {1, 4000, 4000, maxNamesOfNamespace},
		"Some namespaces":                {100, 70, 3, maxNamesOfNamespace},
		"More namespaces than names":     {3 * maxNames, 1, 0, maxNamesOfNamespace},
		"More namespaces, all is broken": {3 * maxNames, 2, 2, maxNamesOfNamespace},
	} {
		t.Run(name, func(t *testing.T) {
			var all []Readiness
			for n := range tc.namespaces {
				for c := range tc.each {
					all = append(all, Readiness{fmt.Sprintf("ns-%04d", n), fmt.Sprintf("c-%04d", c), "Why", c < tc.each-tc.broken, c > 0})
				}
			}
			r := prometheus.NewRegistry()
			if err := RegisterReadiness(r, func() ([]Readiness, error) { return all, nil }); err != nil {
				t.Fatal(err)
			}
			families, err := r.Gather()
			if err != nil {
				t.Fatal(err)
			}
			series, broken, of, unlisted, unlistedBroken, unaccepted := 0, 0, map[string]int{}, 0, 0, 0
			for _, f := range families {
				for _, m := range f.GetMetric() {
					labels := map[string]string{}
					for _, l := range m.GetLabel() {
						labels[l.GetName()] = l.GetValue()
					}
					switch {
					case f.GetName() == "cleaner_ready":
						series++
						of[labels["namespace"]]++
						broken += 1 - int(m.GetGauge().GetValue())
					case f.GetName() == "cleaner_unaccepted_events":
						unaccepted += int(m.GetGauge().GetValue())
					case labels["ready"] == "false":
						unlistedBroken += int(m.GetGauge().GetValue())
						fallthrough
					default:
						unlisted += int(m.GetGauge().GetValue())
					}
				}
				if n := len(f.GetMetric()); n > 2*(maxNames+1) {
					t.Errorf("%s has %d series", f.GetName(), n)
				}
			}
			if want := tc.namespaces * (tc.each - 1); unaccepted != want {
				t.Errorf("%d events are not accepted, want %d", unaccepted, want)
			}
			for namespace, n := range of {
				if n > tc.most {
					t.Errorf("%s has %d series", namespace, n)
				}
			}
			if series > maxNames || series+unlisted != len(all) || broken+unlistedBroken != tc.namespaces*tc.broken {
				t.Errorf("of %d, %d not ready, there are %d series, %d not ready, and %d others, %d not ready", len(all), tc.namespaces*tc.broken, series, broken, unlisted, unlistedBroken)
			}
			if unlistedBroken > 0 && broken != series {
				t.Errorf("%d that are not ready have no series, while %d that are have one", unlistedBroken, series-broken)
			}
		})
	}
}
