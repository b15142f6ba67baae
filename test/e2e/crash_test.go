// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

func discard() logr.Logger { return logr.Discard() }

// alone is a control plane of one test, which may kill the operator.
func alone(t *testing.T) *env {
	t.Helper()
	t.Parallel()
	e, err := newEnv(t.Context(), shared.binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.witness(); err != nil {
			t.Error(err)
		}
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// start runs the operator.
func (e *env) start(t *testing.T, name string) *operator.Process {
	t.Helper()
	p, err := operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Args: quick(), Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestKilledAfterTheCommitAndAfterTheDeeds(t *testing.T) {
	e := alone(t)
	first := e.start(t, "-1")
	l := newLab(t, e)
	s := l.sink()
	s.Otherwise(sink.Answer{Status: 503})

	// Committed, and nothing deleted yet: the API server refuses it.
	group := refused(l, strings.Replace(widgetSpec, "\n  targets:", fmt.Sprintf("\n  cloudEventSink: %q\n  targets:", s.URL), 1), "w1", "w2")
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	grant(l, group, "get", "list", "watch", "delete")
	second := e.start(t, "-2")

	// Everything deleted, and nothing delivered yet: the sink refuses it.
	if _, err := s.WaitFor(l.ctx, 1); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"w1", "w2"} {
		if l.exists(widgetKind(group), w) {
			t.Errorf("%s is there although the event was sent", w)
		}
	}
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	s.Otherwise(sink.Answer{})
	e.start(t, "-3")
	l.gone("c")

	events := s.Events()
	for _, ev := range events {
		if ev.ID != events[0].ID || string(ev.Data) != string(events[0].Data) || ev.Type != "dev.vtex.cleaner.cleaned.v1" {
			t.Errorf("two attempts differ, or the run was not completed:\n%+v\n%+v", events[0], ev)
		}
	}
	deleted := map[string]int{}
	for _, d := range l.trail.deletes() {
		if d.ObjectRef.Resource == "widgets" && d.Code() < 300 {
			deleted[d.ObjectRef.Name]++
		}
	}
	if deleted["w1"] != 1 || deleted["w2"] != 1 {
		t.Errorf("each object must be deleted once: %v", deleted)
	}
}

func TestManagerStartedOnManyCleanersArmsEach(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	const n = 1000
	for i := range n {
		ttl := "100h"
		if i%10 == 0 {
			ttl = "1s" // passes while no manager runs
		}
		name := fmt.Sprintf("c-%04d", i)
		if i%10 == 0 {
			l.configMap(name, nil, nil)
		}
		c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}, Spec: v1alpha1.CleanerSpec{
			CommonSpec: v1alpha1.CommonSpec{TTL: v1alpha1.Duration(ttl)},
			Targets: []v1alpha1.Target{{
				Name: "cm", Delete: true, OnMissing: v1alpha1.OnMissingAsNull,
				Reference: v1alpha1.Reference{Version: "v1", Kind: "ConfigMap", Name: name},
			}},
		}}
		if err := l.Create(l.ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	e.start(t, "")
	l.eventually("each Cleaner is armed, and those whose ttl has passed are evaluated", func() string {
		list := &v1alpha1.CleanerList{}
		if err := l.List(l.ctx, list, client.InNamespace(l.ns)); err != nil {
			return err.Error()
		}
		unarmed := 0
		for i := range list.Items {
			if list.Items[i].Status.NextScheduledEvaluation == nil {
				unarmed++
			}
		}
		if len(list.Items) != n-n/10 || unarmed > 0 {
			return fmt.Sprintf("%d Cleaners, want %d; %d of them say no time", len(list.Items), n-n/10, unarmed)
		}
		return ""
	})
}

func TestMetricsAreForThoseWhoMayReadThem(t *testing.T) {
	e := alone(t)
	l := newLab(t, e)
	p := e.start(t, "")
	// Something to count, and to witness.
	l.configMap("evidence", nil, nil)
	l.apply(cleanerYAML("c", "\n  ttl: 0s\n  targets:"+target))
	l.gone("c")

	if code, _ := scrape(t, p.Metrics, nil); code != http.StatusUnauthorized {
		t.Errorf("without a token metrics answer %d, want 401", code)
	}
	reader, err := e.ServiceAccountConfig(l.ctx, l.ns, "default")
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := scrape(t, p.Metrics, reader); code != http.StatusForbidden {
		t.Errorf("without the right metrics answer %d, want 403", code)
	}
	if err := l.Create(l.ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cleaner-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: l.ns, Name: "default"}},
	}); err != nil {
		t.Fatal(err)
	}
	l.eventually("metrics are served to who may read them", func() string {
		code, text := scrape(t, p.Metrics, reader)
		if code != http.StatusOK || !strings.Contains(text, "cleaner_deletions_total") {
			return fmt.Sprintf("answer %d, without cleaner_deletions_total", code)
		}
		return ""
	})
}

// scrape reads the metrics of a manager.
func scrape(t *testing.T, url string, as *rest.Config) (int, string) {
	t.Helper()
	status, text, err := operator.Scrape(t.Context(), url, as)
	if err != nil {
		t.Fatal(err)
	}
	return status, text
}
