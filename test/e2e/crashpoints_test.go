// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/test/e2e/mistakes"
	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// crash is one crash of a chain: each process of it carries on what the ones before have left, beside a new Cleaner, and
// dies at the next point.
type crash struct {
	at string
	n  int // the pass; the first if 0
	// first is done while no process runs.
	first func(*chain)
	// with is what else the new Cleaner's spec says.
	with string
	// old makes no new Cleaner: one that was left behind leads to the point.
	old bool
}

// chain is a test of crashes.
type chain struct {
	*lab
	sink, deaf *sink.Sink
	cleaners   int
}

func newChain(t *testing.T) *chain {
	t.Helper()
	l := newLab(t, alone(t))
	c := &chain{lab: l, sink: l.sink(), deaf: l.sink()}
	c.deaf.Otherwise(sink.Answer{Status: 503})
	return c
}

// last is the name of the Cleaner that was made last.
func (c *chain) last() string { return fmt.Sprintf("c-%03d", c.cleaners) }

// add makes a Cleaner with objects that its condition sees, and one that it does not.
func (c *chain) add(with string, url string) {
	c.Helper()
	c.cleaners++
	n := c.last()
	c.configMap(n+"-a", map[string]string{"seen": n}, nil)
	c.configMap(n+"-b", map[string]string{"seen": n}, nil)
	c.configMap(n+"-c", map[string]string{"unseen": n}, nil)
	switch {
	case strings.Contains(with, "serviceAccountName:"):
		c.hooked(n)
	case strings.Contains(with, "helm:"):
		release(c.lab, n, map[string]string{"note": "x"})
	}
	if strings.Contains(with, "helm:") {
		with = strings.ReplaceAll(with, "RELEASE", n)
	}
	if !strings.Contains(with, "ttl:") {
		with += "\n  ttl: 0s"
	}
	c.apply(cleanerYAML(n, fmt.Sprintf(`%s
  retry: {period: 10s}
  cloudEventSink: %q
  targets:
  - name: seen
    reference: {version: v1, kind: ConfigMap, matchLabels: {seen: %q}}
    delete: true
  - name: unseen
    reference: {version: v1, kind: ConfigMap, matchLabels: {unseen: %q}}
    includeWhenEvaluating: false
    delete: true
  conditions: ['seen.items.all(m, !("keep" in m.metadata.labels))']`, with, url, n, n)))
}

// hooked installs a release with hooks before and after its deletion, and lets the ServiceAccount do what all this needs.
func (c *chain) hooked(name string) {
	c.Helper()
	if !c.exists(&corev1.ServiceAccount{}, tenant) {
		account(c.lab, "get", "list", "watch", "create", "delete")
		role := &rbacv1.Role{}
		c.update(role, tenant, func() {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "update", "delete"}})
		})
	}
	hook := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-%s\", annotations: {helm.sh/hook: %[1]s, helm.sh/hook-delete-policy: hook-succeeded}}\n"
	_, err := helmtest.Install(c.ctx, c.Config(), c.ns, name, helmtest.Chart{Templates: map[string]string{
		"config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-config\"}\n",
		"before.yaml": fmt.Sprintf(hook, "pre-delete"),
		"after.yaml":  fmt.Sprintf(hook, "post-delete"),
	}})
	if err != nil {
		c.Fatal(err)
	}
}

const (
	helmToo  = "\n  helm: {release: RELEASE, delete: true}"
	hooksToo = "\n  serviceAccountName: " + tenant + helmToo
)

// completing are the points on the way to Completed.
func completing() []crash {
	held := func(c *chain) {
		c.add("", c.sink.URL)
		hold(c.lab, c.last()+"-b", "example.test/hold")
	}
	freed := func(c *chain) { hold(c.lab, c.last()+"-b") }
	return []crash{
		{at: "before a report", with: "\n  ttl: 2s"},
		{at: "after a report", with: "\n  ttl: 2s"},
		{at: "decided"},
		{at: "held by the finalizer"},
		{at: "committed"},
		{at: "before LookRows"},
		{at: "after LookRows"},
		{at: "before Recheck"},
		{at: "after Recheck"},
		{at: "before Act"},
		{at: "before a DELETE"},
		{at: "after a DELETE"},
		{at: "before a DELETE", n: 2},
		{at: "after a DELETE", n: 2},
		{at: "after Act"},
		{at: "before Settle", old: true, first: held},
		{at: "after Settle", old: true},
		{at: "before WriteResult", first: freed},
		{at: "after WriteResult"},
		{at: "before the event"},
		{at: "after the event"},
		{at: "before DeleteSelf"},
		{at: "after DeleteSelf"},
		{at: "before RemoveFinalizer"},
		{at: "after RemoveFinalizer"},
	}
}

// uninstalling are the points of an uninstall.
func uninstalling() []crash {
	return []crash{
		{at: "before LookRelease", with: helmToo},
		{at: "after LookRelease", with: helmToo},
		{at: "before ReviewAuthor", with: helmToo},
		{at: "after ReviewAuthor", with: helmToo},
		{at: "before AskSlot", with: helmToo},
		{at: "after AskSlot", with: helmToo},
		{at: "before StartUninstall", with: helmToo},
		{at: "after StartUninstall", with: helmToo},
		{at: "before the release is marked", with: helmToo},
		{at: "after the release is marked", with: helmToo},
		{at: "before FinishUninstall", old: true},
		{at: "after FinishUninstall", old: true},
		{at: "before the DELETE of an object of the release", with: helmToo},
		{at: "after the DELETE of an object of the release", with: helmToo},
		{at: "before the DELETE of an object of the release", n: 2, with: helmToo},
		{at: "before the DELETE of a record of the release", with: helmToo},
		{at: "after the DELETE of a record of the release", with: helmToo},
		{at: "before an object of a hook is created", with: hooksToo},
		{at: "after an object of a hook is created", with: hooksToo},
		{at: "before it is noted that hooks are done", with: hooksToo},
		{at: "after it is noted that hooks are done", with: hooksToo},
		{at: "before it is noted that hooks are done", n: 2, with: hooksToo},
		{at: "after it is noted that hooks are done", n: 2, with: hooksToo},
	}
}

// leaving are the points on the ways to Partial and Abandoned.
func leaving() []crash {
	edit := func(c *chain) {
		cleaner := &v1alpha1.Cleaner{}
		c.update(cleaner, c.last(), func() { cleaner.Spec.Conditions = []string{"false"} })
	}
	return []crash{
		{at: "committed"},
		{at: "before MoveToUnsent", old: true, first: edit},
		{at: "after MoveToUnsent", old: true},
		{at: "before ClearUnsent", old: true},
		{at: "after ClearUnsent", old: true},
		{at: "committed", first: func(c *chain) { c.add("", c.deaf.URL) }, old: true},
		{at: "before GiveUp", old: true, first: func(c *chain) {
			if err := c.Delete(c.ctx, c.cleaner(c.last())); err != nil {
				c.Fatal(err)
			}
		}},
		{at: "after GiveUp", old: true},
		{at: "after WriteResult"}, // something is deleted, and can be judged
	}
}

// acting are the points that only Cleaners with rules, or that stay, pass: they have tests of their own.
func acting() []crash {
	return []crash{
		{at: "before a PATCH"},
		{at: "after a PATCH"},
		{at: "before an eviction"},
		{at: "after an eviction"},
		{at: "before ClearRecord"},
		{at: "after ClearRecord"},
	}
}

func TestACrashAtEachStepConverges(t *testing.T) {
	for name, crashes := range map[string][]crash{"completing": completing(), "uninstalling": uninstalling(), "leaving": leaving()} {
		t.Run(name, func(t *testing.T) {
			c := newChain(t)
			for _, crash := range crashes {
				if crash.first != nil {
					crash.first(c)
				}
				if !crash.old {
					c.add(crash.with, c.sink.URL)
				}
				c.lab.operators.crashesAt(crash.at, max(crash.n, 1))
			}
			c.lab.operators.run(faulty(t, mistakes.Mistake{}), lone()...)
			c.converges(name == "leaving")
		})
	}
}

// converges waits until all Cleaners have come to their end: they are gone, or, if something may be left, rest without a run.
func (c *chain) converges(mayRest bool) {
	c.Helper()
	c.eventually("all Cleaners come to an end", func() string {
		list := &v1alpha1.CleanerList{}
		if err := c.List(c.ctx, list, client.InNamespace(c.ns)); err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if o := &list.Items[i]; !mayRest || o.Status.Run != nil || o.Status.Unsent != nil || len(o.Finalizers) > 0 {
				return o.Name + ": " + describe(o)
			}
		}
		return ""
	})
	c.lab.trail.deletedOnce()
	if mayRest {
		return
	}
	list := &corev1.ConfigMapList{}
	if err := c.List(c.ctx, list, client.InNamespace(c.ns)); err != nil {
		c.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Name != "kube-root-ca.crt" {
			c.Errorf("%s is there although all Cleaners have completed", list.Items[i].Name)
		}
	}
	if s := releaseSecrets(c.lab); len(s) > 0 {
		c.Errorf("records of releases are there although all Cleaners have completed: %v", s)
	}
	ids := map[string]bool{}
	for _, e := range c.sink.Events() {
		ids[e.ID] = true
	}
	if len(ids) != c.cleaners {
		c.Errorf("the sink received %d different events of %d Cleaners", len(ids), c.cleaners)
	}
}

// Each point that the source passes is in one of the tables above.
func TestEachPointIsCrashedAt(t *testing.T) {
	tested := map[string]bool{}
	for _, c := range slices.Concat(completing(), uninstalling(), leaving(), acting()) {
		tested[c.at] = true
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(points(t))), slices.Sorted(maps.Keys(tested))); diff != "" {
		t.Errorf("points (-source +tests):\n%s", diff)
	}
}

// points are what the source calls the points that it passes.
func points(t *testing.T) map[string]bool {
	t.Helper()
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	err = filepath.WalkDir(filepath.Join(root, "controllers"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || filepath.Base(filepath.Dir(path)) == "faults" {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if x, named := ast.Unparen(call.Fun).(*ast.SelectorExpr); !ok || !named || identifier(x.X) != "faults" {
				return true
			}
			switch f.Sel.Name {
			case "PassPoint":
				literal, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					t.Fatalf("%s: a point whose name is no literal", path)
				}
				name, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				out[name] = true
			case "PassBefore", "PassAfter":
				for k := life.LookRows; k <= life.GiveUp; k++ { // Idle, Evaluate and OpenAgain come before: they are no requests
					out[strings.ToLower(strings.TrimPrefix(f.Sel.Name, "Pass"))+" "+k.String()] = true
				}
			default:
				t.Fatalf("%s: faults.%s is not known here", path, f.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func identifier(e ast.Expr) string {
	if i, ok := e.(*ast.Ident); ok {
		return i.Name
	}
	return ""
}

func TestKilledAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("CLEANER_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CLEANER_TEST_SEED must be a number: %s", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the seed was %d: set CLEANER_TEST_SEED to it for the same kills", seed)
		}
	})
	c := newChain(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 50 {
		with := fmt.Sprintf("\n  ttl: %dms", 200*i)
		if i%10 == 0 {
			with += helmToo
		}
		c.add(with, c.sink.URL)
	}
	const kills = 15
	for range kills {
		p := c.lab.operators.doomed(c.binary, "", lone()...)
		select {
		case <-p.Exited():
			t.Fatalf("it ended by itself; its log:\n%s", tail(p.LogPath))
		case <-time.After(time.Duration(300+random.IntN(1500)) * time.Millisecond):
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	c.lab.operators.run(c.binary, lone()...)
	c.converges(false)
}
