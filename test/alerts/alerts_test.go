// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/vtex/cleaner/test/sink"
)

// cleaner is a Cleaner of shop with a rule about the ConfigMaps that have its name as label app.
func cleaner(name, rule string) string {
	return fmt.Sprintf(`
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: %[1]s, namespace: shop}
spec:
  lifecycle: Recurring
  targets:
  - name: maps
    reference: {version: v1, kind: ConfigMap, matchLabels: {app: %[1]s}}
  rules:
  - {name: rule, forEach: maps.items, %[2]s}
---`, name, rule)
}

// configMap is a ConfigMap of a Cleaner in shop.
func configMap(name, app, more string) string {
	return fmt.Sprintf("\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: shop, labels: {app: %s}%s\n---", name, app, more)
}

// is says that the samples of a metric with these labels add up to a number.
func is(metric string, want float64, with ...string) func(samples) bool {
	return func(s samples) bool {
		got, found := s.sum(metric, with...)
		return found && got == want
	}
}

// TestAlerts makes the cause of each alert happen, sees the alert fire after its time and not before, follows its runbook, and sees it end.
// Before the last one, each query of the dashboard has an answer.
func TestAlerts(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
	r := newRig(t)
	ran := 0
	scenarios := []struct {
		name string
		play func(*rig)
	}{
		{"ShardsUnowned", shardsUnowned}, {"Quiet", quiet}, {"NotReady", notReady}, {"ActionsRefused", refused}, {"SinkFails", sinkFails}, {"RunsNotCompleted", notCompleted}, {"ExpressionsFail", expressionsFail},
		{"Findings", findings}, {"ClockSkew", clockSkew}, {"ProofsFail", proofsFail}, {"OperatorDown", down}, {"Dashboard", dashboard}, {"WatchTooLarge", tooLarge},
	}
	for _, s := range scenarios { // each continues where the one before ended
		if !t.Run(s.name, func(t *testing.T) {
			ran++
			r.T, r.t = t, t
			s.play(r)
		}) {
			return
		}
	}
	if r.T, r.t = t, t; ran < len(scenarios) { // only some were asked for
		return
	}
	for name := range r.rules {
		if !r.tried[name] {
			t.Errorf("no cause of %s was made to happen", name)
		}
	}
	for name, rule := range r.rules {
		if unseen := r.unseen(rule.Query().String()); len(unseen) > 0 {
			t.Errorf("%s asks for what the operator never showed: %s", name, unseen)
		}
	}
}

// shardsUnowned leaves the Lease of earlier versions with a holder that is gone.
func shardsUnowned(r *rig) {
	r.apply(fmt.Sprintf(`
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: cleaner.vtex.dev, namespace: cleaner-system}
spec: {holderIdentity: gone, leaseDurationSeconds: 36000, acquireTime: %[1]q, renewTime: %[1]q, leaseTransitions: 1}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
	r.start()
	r.scrape("no replica owns anything", is("cleaner_shards", 0))
	r.pass(9 * time.Minute)
	r.ends("CleanerShardsUnowned")
	r.pass(2 * time.Minute)
	r.fires("CleanerShardsUnowned")
	r.follow("CleanerShardsUnowned")
	r.owns()
	r.ends("CleanerShardsUnowned")
}

// quiet shows that no alert fires while the operator does what it should.
func quiet(r *rig) {
	r.apply(cleaner("fine", `when: item.data.state == "old", actions: [{delete: {}}]`) + configMap("old", "fine", "}\ndata: {state: old}"))
	r.scrape("it cleans up", is("cleaner_actions_total", 1, "cleaner", "fine", "result", "done"))
	r.scrape("it is ready", is("cleaner_ready", 1, "cleaner", "fine", "reason", "NothingToDo"))
	r.pass(3 * time.Hour)
	for name := range r.rules {
		r.ends(name)
	}
}

func notReady(r *rig) {
	r.must("kubectl apply -f config/samples/cleaner_v1alpha1_podgc-orphaned.yaml")
	r.scrape("the template is missing", is("cleaner_ready", 0, "cleaner", "podgc-orphaned", "reason", "TemplateMissing"))
	began := r.now
	r.pass(15 * time.Minute)
	r.restart()
	r.pass(began.Add(29 * time.Minute).Sub(r.now))
	r.ends("CleanerNotReady")
	r.pass(2 * time.Minute)
	r.fires("CleanerNotReady", `{cleaner="podgc-orphaned"} ClusterCleaner podgc-orphaned has not been ready for half an hour: TemplateMissing.`)
	r.follow("CleanerNotReady")
	r.scrape("it is ready", is("cleaner_ready", 1, "cleaner", "podgc-orphaned"))
	r.ends("CleanerNotReady")
}

func refused(r *rig) {
	r.apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: shop}
spec: {minAvailable: 100%, selector: {matchLabels: {app: old-pods}}}
---` + strings.Replace(cleaner("old-pods", `when: item.status.phase == "Running", actions: [{evict: {}}]`), "kind: ConfigMap", "kind: Pod", 1))
	r.grow(60*time.Minute, "cleaner_actions_total", []string{"cleaner", "old-pods", "result", "refused"}, func(n int) {
		r.apply(fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: old-%d, namespace: shop, labels: {app: old-pods}}
spec: {containers: [{name: a, image: a}]}`, n))
		r.must(fmt.Sprintf(`kubectl -n shop patch pod old-%d --subresource=status --type=merge -p '{"status": {"phase": "Running"}}'`, n))
	})
	r.fires("CleanerActionsRefused", `{cleaner="old-pods", namespace="shop"} The API server has been refusing actions of Cleaner old-pods in shop for half an hour.`)
	r.follow("CleanerActionsRefused")
	r.scrape("it is ready", is("cleaner_ready", 1, "cleaner", "old-pods", "reason", "NothingToDo"))
	r.pass(16 * time.Minute)
	r.ends("CleanerActionsRefused")
}

// sinkFails has two sinks that accept nothing: one is asked again soon, and one after an hour. The first is repaired.
func sinkFails(r *rig) {
	order := func(n int, answer sink.Answer) *sink.Sink {
		s := sink.Start(r.T)
		s.Otherwise(answer)
		r.apply(configMap(fmt.Sprint("order-", n), fmt.Sprint("order-", n), "}") + fmt.Sprintf(`
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: order-%[1]d, namespace: shop}
spec:
  ttl: 0s
  cloudEventSink: %[2]s
  targets:
  - {name: maps, delete: true, reference: {version: v1, kind: ConfigMap, matchLabels: {app: order-%[1]d}}}`, n, s.URL))
		return s
	}
	repaired := order(1, sink.Answer{Status: http.StatusServiceUnavailable})
	order(2, sink.Answer{Status: http.StatusBadRequest})
	r.scrape("no event is accepted", is("cleaner_unaccepted_events", 2, "namespace", "shop"))
	r.pass(29 * time.Minute)
	r.ends("CleanerSinkFails")
	r.pass(2 * time.Minute)
	r.fires("CleanerSinkFails", `{namespace="shop"} For half an hour sinks have not accepted events of Cleaners in shop.`)
	repaired.Otherwise(sink.Answer{})
	r.follow("CleanerSinkFails")
	r.mustGo("cleaner", "order-1", "order-2")
	r.scrape("all is delivered", func(s samples) bool {
		_, some := s.sum("cleaner_unaccepted_events")
		n, _ := s.sum("cleaner_sink_deliveries_total", "result", "delivered")
		return !some && n > 0
	})
	r.pass(6 * time.Minute)
	r.ends("CleanerSinkFails")
}

// notCompleted deletes a Cleaner during its run, which waits for an object that a finalizer holds.
func notCompleted(r *rig) {
	r.apply(configMap("held", "held", ", finalizers: [example.com/held]}") + `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: held, namespace: shop}
spec:
  ttl: 0s
  targets:
  - {name: maps, delete: true, reference: {version: v1, kind: ConfigMap, matchLabels: {app: held}}}`)
	r.must(`kubectl -n shop wait cleaner/held --for=jsonpath='{.status.conditions[?(@.type=="Ready")].reason}'=Terminating --timeout=60s && kubectl -n shop delete cleaner held --timeout=60s`)
	r.scrape("the run has ended", is("cleaner_runs_total", 1, "result", "Abandoned"))
	r.fires("CleanerRunsNotCompleted", `{result="Abandoned"} In the last hour a run ended as Abandoned:`)
	r.follow("CleanerRunsNotCompleted")
	r.mustGo("configmap", "held")
	r.pass(61 * time.Minute)
	r.ends("CleanerRunsNotCompleted")
}

func expressionsFail(r *rig) {
	r.apply(configMap("staged", "by-stage", "}\ndata: {stage: new}") + configMap("unstaged", "by-stage", "}\ndata: {}") + cleaner("by-stage", `when: item.data.stage == "done", actions: [{delete: {}}]`))
	r.scrape("an item fails", is("cleaner_failing_items", 1, "cleaner", "by-stage"))
	r.pass(59 * time.Minute)
	r.ends("CleanerExpressionsFail")
	r.pass(2 * time.Minute)
	r.fires("CleanerExpressionsFail", `{cleaner="by-stage", namespace="shop"} An expression of Cleaner by-stage in shop fails, and nothing is done with 1 object.`)
	r.follow("CleanerExpressionsFail")
	r.scrape("no item fails", is("cleaner_failing_items", 0))
	r.ends("CleanerExpressionsFail")
}

func findings(r *rig) {
	r.apply(configMap("left-behind", "unowned", "}\ndata: {}") + cleaner("unowned", `when: '!has(item.metadata.ownerReferences)', for: 1s, actions: [{report: {}}]`))
	r.scrape("it is reported", is("cleaner_findings", 1, "cleaner", "unowned"))
	r.pass(14 * time.Minute)
	r.ends("CleanerFindings")
	r.pass(2 * time.Minute)
	r.fires("CleanerFindings", `{cleaner="unowned", namespace="shop", rule="rule"} Rule rule of Cleaner unowned in shop reports 1 object.`)
	r.follow("CleanerFindings")
	r.scrape("nothing is reported", is("cleaner_findings", 0))
	r.ends("CleanerFindings")
}

func clockSkew(r *rig) {
	skewed := func(more, less float64) func(samples) bool {
		return func(s samples) bool { by, _ := s.sum("cleaner_clock_skew_seconds"); return by > more && by < less }
	}
	r.ahead.Store(45)
	r.must("kubectl -n shop annotate cleaner unowned by-stage old-pods example.com/look=1") // so that requests are made
	r.scrape("the clocks differ", skewed(40, 50))
	r.pass(4 * time.Minute)
	r.ends("CleanerClockSkew")
	r.pass(2 * time.Minute)
	r.fires("CleanerClockSkew")
	r.ahead.Store(0)
	r.follow("CleanerClockSkew")
	r.scrape("the clocks agree", skewed(-5, 5))
	r.ends("CleanerClockSkew")
}

// proofsFail has the API server answer no list of metadata. What is due is done all the same. After a proof that failed nothing is proved
// of the kind for some seconds, so each time it is another kind.
func proofsFail(r *rig) {
	kinds := []string{"Service", "ConfigMap", "Pod"}
	reads := map[string]string{"Service": `item.spec.type == "ClusterIP"`, "ConfigMap": "has(item.data)", "Pod": "has(item.spec.containers)"} // more than metadata: live lists are answered
	object := func(kind, name string) string {
		spec := map[string]string{"Service": "spec: {ports: [{port: 80}]}", "ConfigMap": "data: {some: text}", "Pod": "spec: {containers: [{name: a, image: a}]}"}[kind]
		return fmt.Sprintf("\napiVersion: v1\nkind: %s\nmetadata: {name: %s, namespace: shop, labels: {app: pairs-%s}}\n%s\n---", kind, name, strings.ToLower(kind), spec)
	}
	for _, kind := range kinds {
		name := "pairs-" + strings.ToLower(kind)
		r.apply(object(kind, "first") + strings.Replace(cleaner(name, fmt.Sprintf("when: 'size(maps.items) > 1 && item.metadata.name == \"second\" && %s', actions: [{delete: {}}]", reads[kind])), "kind: ConfigMap", "kind: "+kind, 1))
		r.scrape("it is ready", is("cleaner_ready", 1, "cleaner", name, "reason", "NothingToDo"))
	}
	r.failLists.Store(true)
	r.grow(35*time.Minute, "cleaner_freshness_proofs_total", []string{"result", "failed"}, func(n int) { r.apply(object(kinds[n], "second")) })
	r.fires("CleanerProofsFail")
	for _, kind := range kinds {
		r.scrape("it cleans up", is("cleaner_actions_total", 1, "cleaner", "pairs-"+strings.ToLower(kind), "result", "done"))
	}
	r.failLists.Store(false)
	r.follow("CleanerProofsFail")
	r.restart()
	r.pass(16 * time.Minute)
	r.ends("CleanerProofsFail")
}

func down(r *rig) {
	r.stop()
	r.show(nil)
	r.pass(9 * time.Minute)
	r.ends("CleanerOperatorDown")
	r.pass(2 * time.Minute)
	r.fires("CleanerOperatorDown")
	r.follow("CleanerOperatorDown")
	r.start("--memory-limit=64Mi") // for tooLarge
	r.owns()
	r.ends("CleanerOperatorDown")
}

// dashboard asks each query of the dashboard while there are more Cleaners than have series of their own, and one of them waits.
func dashboard(r *rig) {
	r.must("kubectl create namespace many")
	var many strings.Builder
	for n := range 52 {
		fmt.Fprintf(&many, `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: many-%d, namespace: many}
spec: {lifecycle: Recurring, templateRef: {name: missing}}
---`, n)
	}
	r.apply(many.String() + strings.Replace(cleaner("ready", `when: "false", actions: [{delete: {}}]`), "namespace: shop", "namespace: many", 1) +
		configMap("waiting", "patient", "}") + cleaner("patient", `when: "true", for: 1h, actions: [{delete: {}}]`))
	r.scrape("one waits", is("cleaner_pending_items", 1, "cleaner", "patient"))
	r.scrape("some have no series", func(s samples) bool {
		ready, _ := s.sum("cleaner_ready_unlisted", "namespace", "many", "ready", "true")
		others, _ := s.sum("cleaner_ready_unlisted", "namespace", "many", "ready", "false")
		return ready == 1 && others == 2
	})
	for _, q := range readDashboard(r.T) {
		if unseen := r.unseen(q.expr); len(unseen) > 0 {
			r.Errorf("panel %q asks for what the operator never showed: %s", q.panel, unseen)
		}
		if v, err := r.ask(q.expr); err != nil || len(v) == 0 {
			r.Errorf("panel %q: %s gives %v: %v", q.panel, q.expr, v, err)
		}
	}
	r.must("kubectl delete namespace many --wait=false")
}

// tooLarge fills a namespace with more than the operator has memory for.
func tooLarge(r *rig) {
	config := rest.CopyConfig(shared.Config())
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		r.Fatal(err)
	}
	var errs [60]error
	workqueue.ParallelizeUntil(r.Context(), 8, len(errs), func(n int) {
		m := &corev1.ConfigMap{ // no two have a text that they could share
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("large-", n), Labels: map[string]string{"app": "large"}}, Data: map[string]string{"text": strings.Repeat(fmt.Sprintf("%08d", n), 100<<10)},
		}
		_, errs[n] = client.CoreV1().ConfigMaps("shop").Create(r.Context(), m, metav1.CreateOptions{})
	})
	if err := errors.Join(errs[:]...); err != nil {
		r.Fatal(err)
	}
	r.apply(cleaner("large", `when: item.data.text == "", actions: [{delete: {}}]`))
	r.scrape("a watch is ended", func(s samples) bool { ended, _ := s.sum("cleaner_watches_too_large_total"); return ended > 0 })
	r.fires("CleanerWatchTooLarge")
	r.follow("CleanerWatchTooLarge")
	r.pass(61 * time.Minute)
	r.ends("CleanerWatchTooLarge")
}
