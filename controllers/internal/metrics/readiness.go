// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// Readiness is whether a Cleaner is ready, and the reason. The namespace of a ClusterCleaner is empty.
type Readiness struct {
	Namespace, Name, Reason string
	Ready                   bool
	// Unaccepted says that its sink did not accept its event, and that the operator sends it again.
	Unaccepted bool
}

// readiness shows at each scrape which Cleaners are ready, and whose events are not accepted. It keeps nothing in between, so that nothing is left of a Cleaner that is gone.
type readiness struct{ list func() ([]Readiness, error) }

// RegisterReadiness registers a gauge of whether each Cleaner is ready, and one of the events that sinks do not accept. Cleaners that are
// not ready have series first. Those beyond the bounds are counted.
func RegisterReadiness(r prometheus.Registerer, list func() ([]Readiness, error)) error {
	if err := r.Register(readiness{list}); err != nil {
		return fmt.Errorf("cannot register a metric: %w", err)
	}
	return nil
}

func newReadyGauges() (ready, unlisted, unaccepted *prometheus.GaugeVec) {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleaner_ready", Help: "Whether a Cleaner is ready: 1, also during a run, or 0. The reason is empty before the first evaluation.",
		}, []string{"namespace", "cleaner", "reason"}), prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleaner_ready_unlisted", Help: "Cleaners without a series of cleaner_ready, by namespace and by whether they are ready.",
		}, []string{"namespace", "ready"}), prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleaner_unaccepted_events", Help: "Events that their sinks have not accepted, and that are sent again, by the namespace of the Cleaner.",
		}, []string{"namespace"})
}

// Describe implements prometheus.Collector.
func (c readiness) Describe(all chan<- *prometheus.Desc) {
	ready, unlisted, unaccepted := newReadyGauges()
	ready.Describe(all)
	unlisted.Describe(all)
	unaccepted.Describe(all)
}

// Collect implements prometheus.Collector.
func (c readiness) Collect(all chan<- prometheus.Metric) {
	ready, unlisted, unaccepted := newReadyGauges()
	cleaners, err := c.list()
	if err != nil {
		all <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		return
	}
	shown, left := chooseShown(cleaners)
	for _, r := range shown {
		value := 0.0
		if r.Ready {
			value = 1
		}
		ready.WithLabelValues(r.Namespace, r.Name, r.Reason).Set(value)
	}
	for of, n := range left {
		unlisted.WithLabelValues(of.namespace, strconv.FormatBool(of.ready)).Set(float64(n))
	}
	for namespace, n := range countUnaccepted(cleaners) {
		unaccepted.WithLabelValues(namespace).Set(float64(n))
	}
	ready.Collect(all)
	unlisted.Collect(all)
	unaccepted.Collect(all)
}

// countUnaccepted returns how many events of each namespace wait for a sink that did not accept them.
func countUnaccepted(cleaners []Readiness) map[string]int {
	counts := map[string]int{}
	for _, c := range cleaners {
		if !c.Unaccepted {
			continue
		}
		if _, named := counts[c.Namespace]; !named && len(counts) >= maxNames {
			c.Namespace = others
		}
		counts[c.Namespace]++
	}
	return counts
}

// counted are Cleaners that are counted together.
type counted struct {
	namespace string
	ready     bool
}

// chooseShown returns the Cleaners that have series, and how many others there are.
func chooseShown(cleaners []Readiness) (shown []Readiness, left map[counted]int) {
	slices.SortFunc(cleaners, func(a, b Readiness) int {
		switch {
		case a.Ready != b.Ready && b.Ready:
			return -1
		case a.Ready != b.Ready:
			return 1
		default:
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		}
	})
	left = map[counted]int{}
	inNamespace, named := map[string]int{}, map[string]bool{}
	for _, c := range cleaners {
		if inNamespace[c.Namespace] < maxNamesOfNamespace && len(shown) < maxNames {
			inNamespace[c.Namespace]++
			shown = append(shown, c)
			continue
		}
		of := counted{c.Namespace, c.Ready}
		if !named[of.namespace] && len(named) >= maxNames {
			of.namespace = others
		} else {
			named[of.namespace] = true
		}
		left[of]++
	}
	return shown, left
}
