// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics counts what the operator does, for Prometheus. It implements the small interfaces that the other packages declare for
// what they count. No label carries an expression. The only names in labels are those of Recurring Cleaners and their rules, a bounded
// number for each namespace and in all. So the number of series stays bounded whatever users write, and one namespace never uses up the
// room of another.
package metrics

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxNames is how many names of Cleaners and their rules have series of their own, and maxNamesOfNamespace how many of one namespace.
	// Later names share one series.
	maxNames            = 1000
	maxNamesOfNamespace = 50
	others              = "(others)"
)

// Metrics are the operator's collectors.
type Metrics struct {
	evaluations    *prometheus.CounterVec
	evaluationTime prometheus.Histogram
	deletions      *prometheus.CounterVec
	actions        *prometheus.CounterVec
	delay          prometheus.Histogram
	dueDelay       prometheus.Histogram
	pending        *prometheus.GaugeVec
	failing        *prometheus.GaugeVec
	findings       *prometheus.GaugeVec
	runs           *prometheus.CounterVec
	deliveries     *prometheus.CounterVec
	dropped        *prometheus.CounterVec
	woken          prometheus.Counter
	tooLarge       prometheus.Counter
	proofs         *prometheus.CounterVec
	ruleItems      *prometheus.CounterVec
	informers      prometheus.Gauge
	objects        prometheus.Gauge
	panics         prometheus.Counter
	queued         prometheus.Gauge
	queueTime      prometheus.Histogram

	mu               sync.Mutex
	names            map[names]bool
	namesInNamespace map[string]int // how many of names are in a namespace
	items            map[types.NamespacedName]items
	found            map[types.NamespacedName]map[string]found // by rule
}

// names are those that labels tell apart. The namespace of a ClusterCleaner is empty.
type names struct{ namespace, cleaner, rule string }

// items are those of one Cleaner that are not acted on, and the names under which they are counted.
type items struct {
	pending, failing int
	as               names
}

// found is how many items a rule reports, and the names under which they are counted.
type found struct {
	count int
	as    names
}

// New makes the collectors and registers them.
func New(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		names: map[names]bool{}, namesInNamespace: map[string]int{}, items: map[types.NamespacedName]items{}, found: map[types.NamespacedName]map[string]found{},
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_evaluations_total", Help: "Evaluations of Cleaners, by verdict.",
		}, []string{"verdict"}),
		evaluationTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cleaner_evaluation_duration_seconds", Help: "Duration of an evaluation.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}),
		deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_deletions_total", Help: "DELETE requests for objects of targets, by resource and by what the API server answered.",
		}, []string{"group", "resource", "result"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_actions_total", Help: "Actions on objects, by verb and response; for Recurring Cleaners also by namespace, name and rule.",
		}, []string{"namespace", "cleaner", "rule", "verb", "result"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cleaner_deletion_delay_seconds", Help: "Time from the decision to the deletion or eviction of an object.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}),
		dueDelay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cleaner_action_delay_seconds", Help: "Time from the moment at which an action on an object became due to the action.",
			Buckets: []float64{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400},
		}),
		pending: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleaner_pending_items", Help: "Items that are waiting for the for of a rule.",
		}, []string{"namespace", "cleaner"}),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleaner_failing_items", Help: "Items that are skipped because an expression failed.",
		}, []string{"namespace", "cleaner"}),
		findings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cleaner_findings", Help: "Items that rules with the action report find, by namespace, name and rule.",
		}, []string{"namespace", "cleaner", "rule"}),
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_runs_total", Help: "Finished runs, by result.",
		}, []string{"result"}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_sink_deliveries_total", Help: "Attempts to deliver an event to a sink, by result.",
		}, []string{"result"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_events_dropped_total", Help: "Kubernetes Events that were not written, by reason.",
		}, []string{"reason"}),
		woken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleaner_wakes_total", Help: "Cleaners that were woken by a watch.",
		}),
		tooLarge: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleaner_watches_too_large_total", Help: "Watches that were ended because their objects took too much memory.",
		}),
		proofs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_freshness_proofs_total", Help: "Proofs that a watch is as new as the API server, by result.",
		}, []string{"result"}),
		ruleItems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cleaner_rule_items_total", Help: "Items of rules in evaluations, by whether when was evaluated for them.",
		}, []string{"result"}),
		informers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cleaner_watches", Help: "Watches of target kinds.",
		}),
		objects: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cleaner_watched_objects", Help: "Objects that these watches hold in memory.",
		}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cleaner_panics_total", Help: "Panics of the operator. Each cost one try of one Cleaner.",
		}),
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cleaner_queued_cleaners", Help: "Cleaners that wait for a worker.",
		}),
		queueTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "cleaner_queue_duration_seconds", Help: "Time that a Cleaner waited for a worker.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 10),
		}),
	}
	// What has not happened yet is 0, or Prometheus would not see it increase the first time.
	for _, result := range []string{"Completed", "Partial", "Abandoned"} {
		m.runs.WithLabelValues(result)
	}
	for _, result := range []string{"reached", "followed", "compared", "failed"} {
		m.proofs.WithLabelValues(result)
	}
	for _, reason := range []string{"full", "refused", "unanswered", "shutdown"} {
		m.dropped.WithLabelValues(reason)
	}
	for _, c := range []prometheus.Collector{
		m.evaluations, m.evaluationTime, m.deletions, m.actions, m.delay, m.dueDelay, m.pending, m.failing, m.findings, m.runs, m.deliveries, m.dropped, m.woken, m.tooLarge, m.proofs, m.ruleItems, m.informers, m.objects, m.panics,
		m.queued, m.queueTime,
	} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("cannot register a metric: %w", err)
		}
	}
	return m, nil
}

// NewHandler gives the metrics of a registry, in the form that the caller asks for.
func NewHandler(g prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
}

// RegisterShards registers a gauge of how many shards of the Cleaners this process owns.
func RegisterShards(r prometheus.Registerer, count func() int) error {
	if err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cleaner_shards", Help: "Shards of the Cleaners that this replica owns. All replicas together own 16.",
	}, func() float64 { return float64(count()) })); err != nil {
		return fmt.Errorf("cannot register a metric: %w", err)
	}
	return nil
}

// RegisterClockSkew registers a gauge of how far the clocks are apart.
func RegisterClockSkew(r prometheus.Registerer, skew func() time.Duration) error {
	g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cleaner_clock_skew_seconds", Help: "How far the API server's clock is ahead of the operator's, by the Date of its answers; negative when it is behind.",
	}, func() float64 { return skew().Seconds() })
	if err := r.Register(g); err != nil {
		return fmt.Errorf("cannot register a metric: %w", err)
	}
	return nil
}

// ObserveEvaluation counts an evaluation, and how long it took: for how many items of rules `when` was evaluated, and for how many its result was
// still valid.
func (m *Metrics) ObserveEvaluation(verdict string, took time.Duration, evaluated, reused int) {
	m.ruleItems.WithLabelValues("evaluated").Add(float64(evaluated))
	m.ruleItems.WithLabelValues("reused").Add(float64(reused))
	m.evaluations.WithLabelValues(verdict).Inc()
	m.evaluationTime.Observe(took.Seconds())
}

// CountDeletion counts a DELETE.
func (m *Metrics) CountDeletion(group, resource, result string) {
	m.deletions.WithLabelValues(group, resource, result).Inc()
}

// CountAction counts an action. For a Once Cleaner, key and rule are empty: such a Cleaner deletes itself after its run, and each would
// add a series.
func (m *Metrics) CountAction(key types.NamespacedName, rule, verb, result string) {
	m.mu.Lock()
	defer m.mu.Unlock() // also while it is counted: ForgetCleaner takes away what is counted under a name
	n := m.boundNames(names{key.Namespace, key.Name, rule})
	m.actions.WithLabelValues(n.namespace, n.cleaner, n.rule, verb, result).Inc()
}

// Delay is how long an action took since it was due, and since it was decided on.
type Delay struct {
	Due, Decided time.Duration
	// Ends says that the action deletes or evicts its object.
	Ends bool
}

// ObserveDelay says how long an action took that was done.
func (m *Metrics) ObserveDelay(d Delay) {
	m.dueDelay.Observe(d.Due.Seconds())
	if d.Ends {
		m.delay.Observe(d.Decided.Seconds())
	}
}

// SetItems says how many items of a Cleaner wait, and of how many an expression gives an error. It holds until it is said
// again, or ForgetCleaner is called.
func (m *Metrics) SetItems(key types.NamespacedName, pending, failing int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setItemsLocked(key, pending, failing)
}

func (m *Metrics) setItemsLocked(key types.NamespacedName, pending, failing int) {
	was, counted := m.items[key]
	if was.pending == pending && was.failing == failing {
		return
	}
	now := items{pending, failing, was.as}
	if !counted {
		now.as = m.boundNames(names{namespace: key.Namespace, cleaner: key.Name})
	}
	m.pending.WithLabelValues(now.as.namespace, now.as.cleaner).Add(float64(pending - was.pending))
	m.failing.WithLabelValues(now.as.namespace, now.as.cleaner).Add(float64(failing - was.failing))
	m.items[key] = now
	if pending == 0 && failing == 0 {
		delete(m.items, key)
	}
}

// SetFindings says how many items each rule of a Cleaner reports; none of those that are not named. It holds until it is said
// again, or ForgetCleaner is called.
func (m *Metrics) SetFindings(key types.NamespacedName, counts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setFindingsLocked(key, counts)
}

func (m *Metrics) setFindingsLocked(key types.NamespacedName, counts map[string]int) {
	before, now := m.found[key], map[string]found{}
	for _, rule := range slices.Sorted(maps.Keys(counts)) { // equal counts take equal names
		f, counted := before[rule]
		if !counted {
			f.as = m.boundNames(names{key.Namespace, key.Name, rule})
		}
		m.findings.WithLabelValues(f.as.namespace, f.as.cleaner, f.as.rule).Add(float64(counts[rule] - f.count))
		f.count = counts[rule]
		now[rule] = f
	}
	for rule, f := range before {
		if _, still := now[rule]; !still {
			m.findings.WithLabelValues(f.as.namespace, f.as.cleaner, f.as.rule).Sub(float64(f.count))
		}
	}
	if m.found[key] = now; len(now) == 0 {
		delete(m.found, key)
	}
}

// ForgetCleaner drops what was said of a Cleaner that is gone, and makes room for other names.
func (m *Metrics) ForgetCleaner(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setItemsLocked(key, 0, 0)
	m.setFindingsLocked(key, nil)
	for n := range m.names {
		if n.namespace != key.Namespace || n.cleaner != key.Name {
			continue
		}
		delete(m.names, n)
		if m.namesInNamespace[n.namespace]--; m.namesInNamespace[n.namespace] == 0 {
			delete(m.namesInNamespace, n.namespace)
		}
		labels := prometheus.Labels{"namespace": n.namespace, "cleaner": n.cleaner}
		m.actions.DeletePartialMatch(labels)
		m.pending.Delete(labels)
		m.failing.Delete(labels)
		m.findings.DeletePartialMatch(labels)
	}
}

// boundNames returns names that labels may carry.
func (m *Metrics) boundNames(n names) names {
	switch {
	case n.cleaner == "":
		return names{}
	case m.names[n]:
		return n
	case m.namesInNamespace[n.namespace] >= maxNamesOfNamespace:
		return names{n.namespace, others, others}
	case len(m.names) >= maxNames:
		return names{others, others, others}
	}
	m.names[n] = true
	m.namesInNamespace[n.namespace]++
	return n
}

// CountRun counts a run.
func (m *Metrics) CountRun(result string) { m.runs.WithLabelValues(result).Inc() }

// CountDelivery counts an attempt to deliver an event.
func (m *Metrics) CountDelivery(result string) { m.deliveries.WithLabelValues(result).Inc() }

// CountDroppedEvents counts Kubernetes Events that were not written.
func (m *Metrics) CountDroppedEvents(reason string, n int) {
	m.dropped.WithLabelValues(reason).Add(float64(n))
}

// SetWatchCounts says how many watches there are, and how many objects they hold.
func (m *Metrics) SetWatchCounts(informers, objects int) {
	m.informers.Set(float64(informers))
	m.objects.Set(float64(objects))
}

// CountWakeups counts Cleaners that a watch has woken.
func (m *Metrics) CountWakeups(n int) { m.woken.Add(float64(n)) }

// CountTooLarge counts a watch that was ended because its objects took too much memory.
func (m *Metrics) CountTooLarge() { m.tooLarge.Inc() }

// CountProof counts a proof that a watch is as new as the API server, or an attempt at one.
func (m *Metrics) CountProof(result string) { m.proofs.WithLabelValues(result).Inc() }

// SetQueueDepth sets how many Cleaners wait for a worker.
func (m *Metrics) SetQueueDepth(n int) { m.queued.Set(float64(n)) }

// ObserveQueueWait takes how long a Cleaner has waited for a worker.
func (m *Metrics) ObserveQueueWait(waited time.Duration) { m.queueTime.Observe(waited.Seconds()) }

// CountPanic counts a panic that was contained.
func (m *Metrics) CountPanic() { m.panics.Inc() }
