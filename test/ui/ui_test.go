// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cluster"
)

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: old-settings, namespace: team, labels: {app: web}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept-settings, namespace: team, labels: {app: web, keep: "true"}}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: preview, namespace: team}
spec:
  lifecycle: Recurring
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}}]
  rules:
  - {name: settings, forEach: maps.items, when: "true", unless: '"keep" in item.metadata.labels', reason: '"nothing reads it"', actions: [{delete: {}}]}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: later, namespace: team}
spec:
  lifecycle: Recurring
  targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}}]
  rules: [{name: settings, forEach: maps.items, when: "true", for: 2h, actions: [{delete: {}}]}]
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: everywhere}
spec: {ttl: 1h, targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}, delete: true}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: team}
rules: [{apiGroups: [cleaner.vtex.dev], resources: [cleaners], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: bob}]
`

// lab is a control plane with Cleaners, whose statuses the test writes as an operator would.
type lab struct {
	t      *testing.T
	plane  *cluster.Cluster
	client dynamic.Interface
	binary string
}

// newLab starts a control plane, and creates the objects of the tests.
func newLab(t *testing.T) *lab {
	t.Helper()
	l := startLab(t)
	if err := cluster.InstallCRDs(t.Context(), l.plane.Config(), "../../config/crd/bases"); err != nil {
		t.Fatal(err)
	}
	l.create(objects)
	return l
}

// create creates the objects of a file.
func (l *lab) create(manifests string) {
	l.t.Helper()
	for text := range strings.SplitSeq(manifests, "---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			l.t.Fatal(err)
		}
		gvk := u.GroupVersionKind()
		resource := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
		if _, err := l.client.Resource(resource).Namespace(u.GetNamespace()).Create(l.t.Context(), u, metav1.CreateOptions{}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// startLab starts a control plane, and builds the program.
func startLab(t *testing.T) *lab {
	t.Helper()
	ctx := t.Context()
	l := &lab{t: t, binary: filepath.Join(t.TempDir(), "kubectl-cleaner")}
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", l.binary, "./cmd/kubectl-cleaner")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var err error
	if l.plane, err = cluster.Start(context.WithoutCancel(ctx), cluster.Options{Log: os.Stderr}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	if l.client, err = dynamic.NewForConfig(l.plane.Config()); err != nil {
		t.Fatal(err)
	}
	return l
}

var cleanersResource = schema.GroupVersionResource{Group: "cleaner.vtex.dev", Version: "v1alpha1", Resource: "cleaners"}

func (l *lab) cleaners() dynamic.ResourceInterface {
	return l.client.Resource(cleanersResource).Namespace("team")
}

// setReady writes the status of Cleaner preview, as the operator would.
func (l *lab) setReady(status, reason, message string) {
	l.t.Helper()
	body := fmt.Sprintf(`{"status": {"observedGeneration": 1, "nextScheduledEvaluation": "2030-01-01T00:00:00Z", "counters": {"acted": 41},
		"conditions": [{"type": "Ready", "status": %q, "reason": %q, "message": %q, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
		"lastActions": [{"object": "ConfigMap default/gone", "rule": "settings", "action": "delete", "time": "2026-01-01T00:00:00Z", "result": "deleted"}]}}`, status, reason, message)
	if _, err := l.cleaners().Patch(l.t.Context(), "preview", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) read(name string) *unstructured.Unstructured {
	l.t.Helper()
	u, err := l.cleaners().Get(l.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		l.t.Fatal(err)
	}
	return u
}

// serve starts kubectl cleaner ui for a user, and returns the address that it prints.
func (l *lab) serve(t *testing.T, name string, config *rest.Config, args ...string) (*cluster.Program, string) {
	t.Helper()
	kubeconfig, log := filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "log")
	if err := cluster.WriteKubeconfig(kubeconfig, config); err != nil {
		t.Fatal(err)
	}
	program, err := l.plane.Run(t.Context(), cluster.ProgramOptions{Name: name, Path: l.binary, Args: append([]string{"ui", "--kubeconfig", kubeconfig}, args...), Env: append(os.Environ(), "TZ=Europe/Berlin"), LogPath: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Kill() })
	var address string
	printed := regexp.MustCompile(`http://127\.0\.0\.1:\d+/\?token=\w+`)
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		text, err := os.ReadFile(log)
		address = string(printed.Find(text))
		return address != "", err
	}); err != nil {
		t.Fatalf("it prints no address: %v", err)
	}
	return program, address
}

// TestPages opens the pages in a browser.
func TestPages(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
	chromium := findChromium()
	if chromium == "" {
		t.Skip("NOT CHECKED: there is no Chromium on this machine, and CHROMIUM does not name one")
	}
	l := newLab(t)
	l.setReady("True", "NothingToDo", "Nothing to clean up.")
	program, address := l.serve(t, "ui", l.plane.Config())
	b := newTab(browser(t, chromium), t, address)

	t.Run("Token", func(t *testing.T) {
		b := b.in(t)
		b.has("heading", "Cleaners")
		if got := evaluate[string](b, "location.href"); got != b.address+"/" {
			t.Errorf("it is at %s", got)
		}
		if got := evaluate[string](b, "document.cookie"); got != "" {
			t.Errorf("scripts see the cookie %s", got)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = got.Body.Close()
		if got.StatusCode != http.StatusUnauthorized {
			t.Errorf("used again, the address gives status %d", got.StatusCode)
		}
	})
	t.Run("Overview", func(t *testing.T) {
		b := b.in(t)
		b.open("/")
		for _, e := range [][2]string{
			{"banner", ""}, {"navigation", "Pages"}, {"main", ""}, {"search", "Filter Cleaners"}, {"navigation", "States"}, {"link", "preview"}, {"link", "later"}, {"link", "everywhere"}, {"table", "Cleaners 1–3 of 3"},
			{"columnheader", "State"}, {"rowheader", "preview team"}, {"link", "3 All"}, {"combobox", "Namespace"}, {"searchbox", "Text"}, {"button", "Filter"},
		} {
			b.has(e[0], e[1])
		}
		b.reads("3 Cleaners, none needs attention.", "2030-01-01 01:00:00 CET", "cleaner-test", "Nothing to clean up.")
		b.focus("searchbox", "Text")
		b.do(chromedp.KeyEvent("Every"))
		b.press("button", "Filter")
		b.has("table", "Cleaners 1–1 of 1")
		b.press("link", "Clear")
		b.has("table", "Cleaners 1–3 of 3")
	})
	t.Run("LiveUpdate", func(t *testing.T) {
		b := b.in(t)
		b.open("/")
		b.reads("Live")
		b.focus("link", "preview")
		evaluate[bool](b, "window.same = true")
		l.setReady("False", "AccessDenied", "You may not list pods.")
		b.reads("3 Cleaners, 1 needs attention.", "AccessDenied", "You may not list pods.")
		if !evaluate[bool](b, "window.same === true && document.activeElement.textContent === 'preview'") {
			t.Error("the page was loaded again, or has lost the focus")
		}
		b.press("link", "1 Needs attention")
		b.has("table", "Cleaners 1–1 of 1")
		b.press("link", "preview")
		b.reads("You may not list pods.")
		l.setReady("True", "NothingToDo", "All is well again.")
		b.reads("All is well again.")
	})
	t.Run("State", func(t *testing.T) {
		b := b.in(t)
		b.open("/cleaners/team/preview")
		b.has("heading", "team / preview")
		b.has("navigation", "Cleaner team/preview")
		b.has("rowheader", "ConfigMap default/gone")
		b.reads("ConfigMap with labels app=web", "41 actions", "2030-01-01 01:00:00 CET", "deleted")
		b.press("link", "Spec")
		b.has("region", "The spec as YAML")
		b.reads("forEach: maps.items")
	})
	t.Run("Plan", func(t *testing.T) {
		b := b.in(t)
		b.open("/cleaners/team/preview")
		b.press("link", "Plan")
		b.has("heading", "It would take 1 step now")
		b.has("rowheader", "ConfigMap team/old-settings")
		b.has("rowheader", "Spared by unless")
		b.reads("nothing reads it")
	})
	t.Run("Forecast", func(t *testing.T) {
		b := b.in(t)
		b.open("/cleaners/team/later/forecast")
		b.has("heading", "Timeline")
		b.reads("2 steps of 1 Cleaner", "ConfigMap team/kept-settings", "delete")
		b.press("link", "Forecast") // of all
		b.press("button", "Predict")
		b.has("heading", "Timeline")
		b.reads("of 3 Cleaners", "ClusterCleaner everywhere")
	})
	t.Run("Object", func(t *testing.T) {
		b := b.in(t)
		b.open("/cleaners/team/preview")
		b.press("link", "Object")
		b.focus("textbox", "Object")
		b.do(chromedp.KeyEvent("configmap/team/kept-settings"))
		b.press("button", "Explain")
		b.has("heading", "The Cleaner does not act on it.")
		b.has("rowheader", "maps")
		b.reads("unless: it is true")
		b.open("/cleaners/team/preview/object?name=configmap/team/old-settings")
		b.has("heading", "Rule settings deletes it now.")
	})
	t.Run("Waste", func(t *testing.T) {
		b := b.in(t)
		b.open("/")
		b.press("link", "Waste")
		b.reads("takes up to a minute")
		b.press("button", "Count")
		b.has("heading", "1 object of 1 kind, which 3 Cleaners would remove now")
		b.has("rowheader", "ConfigMap")
		b.has("image", "ConfigMap: 1 of under 1 day")
		b.has("list", "Ages")
	})
	t.Run("Funnel", func(t *testing.T) {
		b := b.in(t)
		b.open("/cleaners/team/preview")
		body := `{"status": {"ruleCounts": [{"rule": "settings", "items": 2, "matched": 2, "spared": 1, "acted": 1}]}}`
		if _, err := l.cleaners().Patch(t.Context(), "preview", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		b.has("heading", "Rules")
		b.has("rowheader", "Spared by unless")
	})
	t.Run("Buttons", func(t *testing.T) {
		b := b.in(t)
		b.open("/cleaners/team/later")
		b.press("button", "Suspend")
		b.reads("Suspended. It stops before its next request.")
		if suspended, _, _ := unstructured.NestedBool(l.read("later").Object, "spec", "suspend"); !suspended {
			t.Error("it is not suspended")
		}
		b.press("button", "Resume")
		b.reads("Resumed. The operator evaluates it at once.")
		if suspended, _, _ := unstructured.NestedBool(l.read("later").Object, "spec", "suspend"); suspended {
			t.Error("it is suspended still")
		}
		b.press("button", "Run now")
		b.reads("Evaluation requested.")
		if l.read("later").GetAnnotations()["cleaner.vtex.dev/requestedAt"] == "" {
			t.Error("no evaluation is requested")
		}
	})
	t.Run("Keyboard", func(t *testing.T) {
		b := b.in(t)
		b.open("/cleaners/team/preview")
		var names []string
		for range 13 {
			b.do(chromedp.KeyEvent(kb.Tab))
			names = append(names, evaluate[string](b, "document.activeElement.textContent.trim()"))
			if width := evaluate[string](b, "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"); width != "solid2px" {
				t.Errorf("the focus of %s is not seen: %s", names[len(names)-1], width)
			}
		}
		if got := strings.Join(names, ", "); !strings.HasPrefix(got, "Skip to the content, Cleaner, Cleaners, Forecast, Waste, Cleaners, Run now, Suspend, State, Plan, Forecast, Object, Spec") {
			t.Errorf("the order is %s", got)
		}
	})
	t.Run("Narrow", func(t *testing.T) {
		b := b.in(t)
		for _, width := range []int64{320, 640, 1600} { // 640 is 1280 at 200 %
			b.do(chromedp.EmulateViewport(width, 800))
			for _, path := range []string{"/", "/cleaners/team/preview", "/cleaners/team/preview/plan", "/cleaners/team/later/forecast", "/cleaners/team/preview/spec", "/cleaners/team/preview/object?name=configmap/team/kept-settings", "/waste?count=now"} {
				b.open(path)
				if wide := evaluate[int64](b, "document.documentElement.scrollWidth"); wide > width {
					t.Errorf("%s is %d wide, and the window %d", path, wide, width)
				}
			}
		}
		b.do(chromedp.ResetViewport())
	})
	t.Run("FewRights", func(t *testing.T) {
		config, err := l.plane.ConfigFor("bob")
		if err != nil {
			t.Fatal(err)
		}
		_, address := l.serve(t, "ui-of-bob", config, "-n", "team")
		b := newTab(browser(t, chromium), t, address)
		b.reads("Only the Cleaners of namespace team are shown", `User "bob" cannot list resource "cleaners"`, "ClusterCleaners cannot be shown", "preview")
		b.press("link", "preview")
		b.press("button", "Suspend")
		b.has("heading", "Cleaner team/preview was not suspended")
		b.reads(`User "bob" cannot patch resource "cleaners"`, "Nothing was changed.")
		b.press("link", "Continue")
		b.press("link", "Plan")
		b.has("heading", "No plan can be made")
		if suspended, _, _ := unstructured.NestedBool(l.read("preview").Object, "spec", "suspend"); suspended {
			t.Error("it is suspended")
		}
	})
	t.Run("End", func(t *testing.T) {
		b := b.in(t)
		b.open("/")
		b.reads("Live")
		if found := b.violations(); len(found) > 0 {
			t.Errorf("the browser says %s", strings.Join(found, "\n"))
		}
		if err := program.Kill(); err != nil {
			t.Fatal(err)
		}
		b.reads("Not connected")
	})
}
