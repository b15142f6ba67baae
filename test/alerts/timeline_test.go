// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
)

// every is how often metrics are scraped and rules are evaluated, in the time of a timeline.
const every = time.Minute

// samples are those of one scrape, by their labels as text.
type samples map[string]sample

type sample struct {
	labels labels.Labels
	value  float64
}

// sum adds up the samples of a metric that have these labels.
func (s samples) sum(metric string, with ...string) (sum float64, found bool) {
	want := labels.FromStrings(with...)
	for _, one := range s {
		matches := one.labels.Get(model.MetricNameLabel) == metric
		want.Range(func(l labels.Label) { matches = matches && one.labels.Get(l.Name) == l.Value })
		if matches {
			sum, found = sum+one.value, true
		}
	}
	return sum, found
}

// timeline stores scrapes and evaluates rules, as Prometheus does, in a time of its own: hours of it pass at once.
type timeline struct {
	t      *testing.T
	db     *teststorage.TestStorage
	engine *promql.Engine
	rules  map[string]*rules.AlertingRule
	now    time.Time
	// selectors are those of all rules and of the dashboard. Only what one of them selects is stored: a scrape has many times as much.
	selectors [][]*labels.Matcher
	shown     samples // by the target, until it shows others, of what is stored
	// seen are all series that were ever shown.
	seen samples
	// honor is honorLabels of the ServiceMonitor.
	honor bool
	// pods is how many Pods of the operator there have been.
	pods int
}

func newTimeline(t *testing.T, of []rule, honor bool) *timeline {
	t.Helper()
	var selectors [][]*labels.Matcher
	for _, r := range of {
		selectors = append(selectors, selectorsOf(t, r.Expr)...)
	}
	for _, q := range readDashboard(t) {
		selectors = append(selectors, selectorsOf(t, q.expr)...)
	}
	p := parser.NewParser(parser.Options{})
	tl := &timeline{
		t: t, selectors: selectors, db: teststorage.New(t), rules: map[string]*rules.AlertingRule{}, seen: samples{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), honor: honor,
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: p}),
	}
	for _, r := range of {
		expr, err := p.ParseExpr(r.Expr)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		hold := time.Duration(0)
		if r.For != "" {
			d, err := model.ParseDuration(r.For)
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			hold = time.Duration(d)
		}
		tl.rules[r.Alert] = rules.NewAlertingRule(r.Alert, expr, hold, 0, labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	}
	return tl
}

// target are the labels that Prometheus gives what it scrapes by the ServiceMonitor.
func (tl *timeline) target() map[string]string {
	return map[string]string{
		"job": "cleaner-controller-manager-metrics", "namespace": "cleaner-system", "service": "cleaner-controller-manager-metrics",
		"endpoint": "https", "pod": fmt.Sprint("cleaner-controller-manager-", tl.pods), "instance": fmt.Sprintf("10.0.0.%d:8443", tl.pods), "container": "manager",
	}
}

// parse reads what a target shows.
func (tl *timeline) parse(text string) samples {
	tl.t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		tl.t.Fatal(err)
	}
	out := samples{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			tl.addMetric(out, name, m)
		}
	}
	return out
}

func (tl *timeline) addMetric(out samples, name string, m *dto.Metric) {
	target := tl.target()
	add := func(name string, v float64, more ...string) {
		b := labels.NewBuilder(labels.EmptyLabels())
		for k, v := range target {
			b.Set(k, v)
		}
		for _, l := range m.GetLabel() {
			if _, both := target[l.GetName()]; both && !tl.honor {
				b.Set("exported_"+l.GetName(), l.GetValue())
				continue
			}
			b.Set(l.GetName(), l.GetValue()) // an empty one is none, and not the target's
		}
		for i := 0; i < len(more); i += 2 {
			b.Set(more[i], more[i+1])
		}
		b.Set(model.MetricNameLabel, name)
		ls := b.Labels()
		out[ls.String()] = sample{ls, v}
	}
	switch {
	case m.GetCounter() != nil:
		add(name, m.GetCounter().GetValue())
	case m.GetGauge() != nil:
		add(name, m.GetGauge().GetValue())
	case m.GetUntyped() != nil:
		add(name, m.GetUntyped().GetValue())
	case m.GetHistogram() != nil:
		h := m.GetHistogram()
		for _, b := range h.GetBucket() {
			add(name+"_bucket", float64(b.GetCumulativeCount()), "le", fmt.Sprint(b.GetUpperBound()))
		}
		if n := len(h.GetBucket()); n == 0 || !math.IsInf(h.GetBucket()[n-1].GetUpperBound(), 1) {
			add(name+"_bucket", float64(h.GetSampleCount()), "le", "+Inf")
		}
		add(name+"_sum", h.GetSampleSum())
		add(name+"_count", float64(h.GetSampleCount()))
	case m.GetSummary() != nil:
		for _, q := range m.GetSummary().GetQuantile() {
			add(name, q.GetValue(), "quantile", fmt.Sprint(q.GetQuantile()))
		}
		add(name+"_sum", m.GetSummary().GetSampleSum())
		add(name+"_count", float64(m.GetSummary().GetSampleCount()))
	}
}

// show has the target show other samples from now on; nil: it cannot be scraped.
func (tl *timeline) show(s samples) {
	tl.t.Helper()
	stored, gone := samples{}, samples{}
	for id, one := range s {
		if slices.ContainsFunc(tl.selectors, func(matchers []*labels.Matcher) bool { return selects(matchers, one.labels) }) {
			stored[id] = one
		}
	}
	for id, one := range tl.shown {
		if _, still := stored[id]; !still {
			gone[id] = sample{one.labels, math.Float64frombits(value.StaleNaN)}
		}
	}
	tl.shown = stored
	maps.Copy(tl.seen, s)
	tl.step(gone)
}

// pass lets time pass, in which the target shows the same.
func (tl *timeline) pass(d time.Duration) {
	tl.t.Helper()
	for until := tl.now.Add(d); tl.now.Before(until); {
		tl.step(nil)
	}
}

// step scrapes and evaluates once.
func (tl *timeline) step(gone samples) {
	tl.t.Helper()
	ctx := context.Background()
	tl.now = tl.now.Add(every)
	app := tl.db.Appender(ctx)
	for _, all := range []samples{gone, tl.shown} {
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if _, err := app.Append(0, all[id].labels, tl.now.UnixMilli(), all[id].value); err != nil {
				tl.t.Fatalf("%s: %v", id, err)
			}
		}
	}
	if err := app.Commit(); err != nil {
		tl.t.Fatal(err)
	}
	for name, r := range tl.rules {
		if _, err := r.Eval(ctx, 0, tl.now, rules.EngineQueryFunc(tl.engine, tl.db), nil, 0); err != nil {
			tl.t.Fatalf("%s: %v", name, err)
		}
	}
}

// firing are the labels and the summaries of an alert that fires.
func (tl *timeline) firing(alert string) []string {
	tl.t.Helper()
	var out []string
	for _, a := range tl.rules[alert].ActiveAlerts() {
		if a.State != rules.StateFiring {
			continue
		}
		summary := a.Annotations.Get("summary")
		if !regexp.MustCompile(`^[A-Z][^<>]*[^ ]\.$`).MatchString(summary) || strings.Contains(summary, "  ") {
			tl.t.Errorf("%s says %q", alert, summary)
		}
		out = append(out, labels.NewBuilder(a.Labels).Del(labels.AlertName, "severity").Labels().String()+" "+summary)
	}
	slices.Sort(out)
	return out
}

// ask evaluates a query now.
func (tl *timeline) ask(query string) (promql.Vector, error) {
	return rules.EngineQueryFunc(tl.engine, tl.db)(context.Background(), query, tl.now)
}

// unseen are the selectors of a query that select no series which was ever shown.
func (tl *timeline) unseen(query string) (out []string) {
	tl.t.Helper()
	for _, matchers := range selectorsOf(tl.t, query) {
		found := false
		for _, one := range tl.seen {
			found = found || selects(matchers, one.labels)
		}
		if !found {
			out = append(out, fmt.Sprint(matchers))
		}
	}
	return out
}

// selectorsOf are the selectors of a query.
func selectorsOf(t *testing.T, query string) [][]*labels.Matcher {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return parser.ExtractSelectors(expr)
}

// selects says that a selector selects a series.
func selects(matchers []*labels.Matcher, ls labels.Labels) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(ls.Get(m.Name)) })
}
