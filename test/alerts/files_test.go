// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/hack/kustomize"
)

const (
	components = "../../config/components/"
	runbooks   = "../../docs/runbooks.md"
)

// rule is an alert.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// readRules reads the alerts, and whether their labels win over those of the target.
func readRules(t *testing.T) (all []rule, honor bool) {
	t.Helper()
	objects, err := kustomize.Build("../../config/olm/monitoring")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		var spec struct {
			Groups    []struct{ Rules []rule }
			Endpoints []struct{ HonorLabels bool }
		}
		if err := yaml.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		for _, g := range spec.Groups {
			all = append(all, g.Rules...)
			if _, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{})); len(errs) > 0 {
				t.Errorf("Prometheus refuses the rules: %v", errs)
			}
		}
		for _, e := range spec.Endpoints {
			honor = e.HonorLabels
		}
	}
	if len(all) < 5 {
		t.Fatalf("there are only the alerts %v", all)
	}
	return all, honor
}

// What OLM does not install is in one folder, with the same dashboard as elsewhere; test/chart compares the chart with kustomize.
func TestMonitoringForOLM(t *testing.T) {
	objects, err := kustomize.Build("../../config/olm/monitoring")
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
		if o.GetKind() != "ConfigMap" {
			continue
		}
		want, err := os.ReadFile(components + "dashboard/cleaner.json")
		if err != nil {
			t.Fatal(err)
		}
		data, _ := o.Object["data"].(map[string]any)
		if data["cleaner.json"] != string(want) || o.GetLabels()["grafana_dashboard"] != "1" {
			t.Errorf("the dashboard has the labels %v, and is not cleaner.json", o.GetLabels())
		}
	}
	slices.Sort(kinds)
	if want := []string{"ConfigMap", "PrometheusRule", "ServiceMonitor"}; !slices.Equal(kinds, want) {
		t.Errorf("there are %v, want %v", kinds, want)
	}
}

// query is one of a panel.
type query struct{ panel, expr string }

// readDashboard reads the queries of the dashboard.
func readDashboard(t *testing.T) []query {
	t.Helper()
	text, err := os.ReadFile(components + "dashboard/cleaner.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID                 int
			Title, Description string
			GridPos            struct{ H, W, X, Y int }
			FieldConfig        struct{ Defaults struct{ Unit string } }
			Targets            []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	var out []query
	used, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range board.Panels {
		if len(p.Targets) == 0 || p.Title == "" || p.FieldConfig.Defaults.Unit == "" || !strings.HasSuffix(p.Description, ".") || ids[p.ID] {
			t.Errorf("panel %d %q has no query, title, unit or description, or the id of another one", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := used[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q, or outside", p.Title, other)
				}
				used[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			out = append(out, query{p.Title, strings.NewReplacer("$__rate_interval", "12h", "$namespace", ".*").Replace(target.Expr)})
		}
	}
	if len(out) < 10 {
		t.Fatalf("the dashboard has only the queries %v", out)
	}
	return out
}

// Each alert says how bad it is, in a sentence what is wrong, in another one what to do, and has a runbook; and no runbook is about another
// alert. A restart does not interrupt one that waits: it reads no gauge at a moment only. What happened once does not fire one that waits.
func TestFiles(t *testing.T) {
	page, err := os.ReadFile(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	var headings, names []string
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, m[1])
	}
	all, honor := readRules(t)
	if !honor {
		t.Error("the namespace of a Cleaner is replaced by the operator's: honorLabels is not set")
	}
	for _, r := range all {
		names = append(names, r.Alert)
		if want := "https://github.com/vtex/cleaner/blob/main/docs/runbooks.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: its runbook is %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s has the labels %v", r.Alert, r.Labels)
		}
		for _, about := range []string{"summary", "description"} {
			if text := r.Annotations[about]; !strings.HasSuffix(text, ".") || regexp.MustCompile(`\w[.] `).MatchString(text) {
				t.Errorf("%s says in its %s: %q", r.Alert, about, text)
			}
		}
		checkWindows(t, r)
	}
	if !slices.Equal(names, headings) {
		t.Errorf("there are the alerts\n%v\nand runbooks for\n%v", names, headings)
	}
	p := parser.NewParser(parser.Options{})
	for _, q := range readDashboard(t) {
		if _, err := p.ParseExpr(q.expr); err != nil {
			t.Errorf("%s: %s: %v", q.panel, q.expr, err)
		}
	}
}

// checkWindows checks over which time an alert reads its metrics.
func checkWindows(t *testing.T, r rule) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
	if err != nil {
		t.Fatalf("%s: %v", r.Alert, err)
	}
	var hold model.Duration
	if r.For != "" {
		if hold, err = model.ParseDuration(r.For); err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
	}
	ranges := 0
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if m, isRange := node.(*parser.MatrixSelector); isRange {
			if ranges++; hold > 0 && m.Range >= time.Duration(hold) {
				t.Errorf("%s reads %s, and waits no longer than %s", r.Alert, m.Range, r.For)
			}
		}
		return nil
	})
	if needsNone := []string{"CleanerOperatorDown", "CleanerClockSkew"}; ranges == 0 && !slices.Contains(needsNone, r.Alert) { // of no Pod, and of one
		t.Errorf("%s reads a moment only: %s", r.Alert, r.Expr)
	}
}

// commands are those of the runbook of an alert, with the output that it shows.
func commands(t *testing.T, alert string) []command {
	t.Helper()
	page, err := os.ReadFile(runbooks)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## "+alert+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, _ := strings.Cut(section, "\n```console\n")
	block, _, _ = strings.Cut(block, "\n```")
	var out []command
	for line := range strings.SplitSeq(block, "\n") {
		if text, isCommand := strings.CutPrefix(line, "$ "); isCommand {
			out = append(out, command{text: text})
		} else if len(out) > 0 {
			out[len(out)-1].shows = append(out[len(out)-1].shows, strings.TrimSpace(line))
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no commands in its runbook", alert)
	}
	return out
}

type command struct {
	text  string
	shows []string
}

// missing is a line that is shown and was not printed. "…" stands for anything.
func (c command) missing(printed string) string {
	for _, line := range c.shows {
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(strings.TrimSpace(parts[i]))
		}
		if !regexp.MustCompile(strings.Join(parts, ".*")).MatchString(printed) {
			return line
		}
	}
	return ""
}
