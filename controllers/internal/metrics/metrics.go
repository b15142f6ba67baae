// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what the operator does, for Prometheus. It implements the small interfaces that the other
// packages declare for what they count. No label carries the name of an object or an expression, so that the number of
// series stays bounded whatever users write.
package metrics

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the operator's collectors.
type Metrics struct {
	evaluations *prometheus.CounterVec
	deletions   *prometheus.CounterVec
	runs        *prometheus.CounterVec
	deliveries  *prometheus.CounterVec
	woken       prometheus.Counter
	informers   prometheus.Gauge
	objects     prometheus.Gauge
}

// New makes the collectors and registers them.
func New(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_evaluations_total", Help: "Evaluations of Cleaners, by verdict.",
		}, []string{"verdict"}),
		deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_deletions_total", Help: "DELETE requests for objects of targets, by resource and by what the API server answered.",
		}, []string{"group", "resource", "result"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_runs_total", Help: "Finished cleanings, by result.",
		}, []string{"result"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_sink_deliveries_total", Help: "Attempts to deliver an event to a sink, by result.",
		}, []string{"result"}),
		woken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleaner_wakes_total", Help: "Cleaners that were woken by a watch.",
		}),
		informers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cleaner_watches", Help: "Watches of target kinds.",
		}),
		objects: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cleaner_watched_objects", Help: "Objects that these watches hold in memory.",
		}),
	}
	for _, c := range []prometheus.Collector{m.evaluations, m.deletions, m.runs, m.deliveries, m.woken, m.informers, m.objects} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("cannot register a metric: %w", err)
		}
	}
	return m, nil
}

// ClockSkew registers a gauge of how far the clocks are apart.
func ClockSkew(r prometheus.Registerer, skew func() time.Duration) error {
	g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cleaner_clock_skew_seconds", Help: "How far the API server's clock is ahead of the operator's, by the Date of its answers; negative when it is behind.",
	}, func() float64 { return skew().Seconds() })
	if err := r.Register(g); err != nil {
		return fmt.Errorf("cannot register a metric: %w", err)
	}
	return nil
}

// Evaluated counts an evaluation.
func (m *Metrics) Evaluated(verdict string) { m.evaluations.WithLabelValues(verdict).Inc() }

// Deleted counts a DELETE.
func (m *Metrics) Deleted(group, resource, result string) {
	m.deletions.WithLabelValues(group, resource, result).Inc()
}

// Finished counts a run.
func (m *Metrics) Finished(result string) { m.runs.WithLabelValues(result).Inc() }

// Delivery counts an attempt to deliver an event.
func (m *Metrics) Delivery(result string) { m.deliveries.WithLabelValues(result).Inc() }

// Watching says how many watches there are, and how many objects they hold.
func (m *Metrics) Watching(informers, objects int) {
	m.informers.Set(float64(informers))
	m.objects.Set(float64(objects))
}

// Woke counts Cleaners that a watch has woken.
func (m *Metrics) Woke(n int) { m.woken.Add(float64(n)) }
