// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"
)

// brokenCollector has no metric that can be read.
type brokenCollector struct{}

func (brokenCollector) Describe(chan<- *prometheus.Desc) {}
func (brokenCollector) Collect(all chan<- prometheus.Metric) {
	all <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "Is broken.", nil, nil), errors.New("odd"))
}

// Who asks for the metrics gets them as text; an error where they cannot all be gathered, and not a part of them.
func TestHandler(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	m.CountPanic()
	broken := prometheus.NewRegistry()
	broken.MustRegister(brokenCollector{})
	for _, tc := range []struct {
		from   prometheus.Gatherer
		status int
		said   string
	}{{r, http.StatusOK, "\ncleaner_panics_total 1\n"}, {prometheus.Gatherers{r, broken}, http.StatusInternalServerError, "odd"}} {
		w := httptest.NewRecorder()
		NewHandler(tc.from).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.said) {
			t.Errorf("it answers %d: %s", w.Code, w.Body)
		}
	}
}

// Many count at a time what they forget at the end: nothing of it stays, and nobody else's is touched.
func TestMetricsAreSafeForConcurrentUse(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	stays := types.NamespacedName{Namespace: "shop", Name: "stays"}
	m.SetItems(stays, 3, 1)
	m.SetItems(stays, 3, 1) // to say it again changes nothing
	m.SetFindings(stays, map[string]int{"r": 2})
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			key := types.NamespacedName{Namespace: "shop", Name: name}
			for n := range 200 {
				m.SetItems(key, n%3, n%2)
				m.SetFindings(key, map[string]int{"r": n, "q": 1})
				m.CountAction(key, "r", "delete", "done")
				m.ForgetCleaner(key)
			}
		})
	}
	all.Wait()
	for metric, want := range map[string]float64{"cleaner_pending_items": 3, "cleaner_failing_items": 1, "cleaner_findings": 2, "cleaner_actions_total": 0} {
		if by, sum := seriesOf(t, r, metric); sum != want || by["shop"] > 1 {
			t.Errorf("%s has series %v, which count %v", metric, by, sum)
		}
	}
	if len(m.names) != 2 || m.namesInNamespace["shop"] != 2 || len(m.items) != 1 || len(m.found) != 1 {
		t.Errorf("names are remembered of Cleaners that are gone: %v", m.names)
	}
	m.SetItems(stays, 0, 0)
	if n := testutil.ToFloat64(m.pending.WithLabelValues("shop", "stays")); n != 0 || len(m.items) != 0 {
		t.Errorf("%v items wait of a Cleaner of which none do", n)
	}
}
