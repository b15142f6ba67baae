// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/casetest"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// hostile is a text that forges a line, clears the screen, rings, sets a colour by one character, and reorders what follows.
const hostile = "x\x1b[2J\r\nforged\tline\a\v\u0085\u009b31m\u202eabc\u2066def\u2028\U000e0041"

var (
	// raw is what a terminal would obey.
	raw = regexp.MustCompile(`[\x00-\x09\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}\x{2028}\x{2029}\x{2066}-\x{2069}\x{e0000}-\x{e007f}]`)
	// forged is a line that a tenant began.
	forged = regexp.MustCompile(`(?m)^ ?forged`)
)

// harmless wants a text that does nothing that a tenant says.
func harmless(t *testing.T, what, got string) {
	t.Helper()
	if found := raw.FindString(got); found != "" {
		t.Errorf("%s writes %+q raw:\n%q", what, found, got)
	}
	if forged.MatchString(got) {
		t.Errorf("%s has a line that a tenant began:\n%q", what, got)
	}
}

// command runs one, and returns what it writes to standard output and standard error.
func command(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	var stdout, stderr strings.Builder
	run(t.Context(), clock.RealClock{}, args, strings.NewReader(""), &stdout, &stderr)
	return stdout.String(), stderr.String()
}

// write makes a file of a text in which HOSTILE, within double quotes, stands for what is hostile, and TEXT for the same
// in a string of an expression that stands in double quotes.
func write(t *testing.T, path, text string) {
	t.Helper()
	quoted := func(s string) string { return strings.Trim(strconv.QuoteToASCII(s), `"`) }
	text = strings.NewReplacer("HOSTILE", quoted(hostile), "TEXT", quoted(quoted(hostile))).Replace(text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const hostileSpec = `
  lifecycle: Recurring
  targets:
  - {name: maps, reference: {version: v1, kind: ConfigMap}}
  - {name: pods, reference: {version: v1, kind: Pod}}
`

// hostileObjects are a ConfigMap that may not be deleted, and a Pod.
const hostileObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: "HOSTILE", namespace: web, uid: u1, resourceVersion: "1", labels: {cleaner.vtex.dev/protect: "true"}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: web, uid: u2, resourceVersion: "1"}
`

// hostileRules come to a step, one that is withheld, one that waits and errors, all with names and texts that are hostile.
const hostileRules = `
  rules:
  - {name: steps, forEach: maps.items, when: "true", reason: "'TEXT'", actions: [{report: {}}]}
  - {name: withheld, forEach: maps.items, when: "true", actions: [{delete: {}}]}
  - {name: pending, forEach: maps.items, when: "true", for: 1h, actions: [{report: {}}]}
  - {name: keys, forEach: maps.items, when: "item.data.nothing == '1'", actions: [{report: {}}]}
  - {name: errors, forEach: pods.items, when: "{'a': true}['TEXT']", actions: [{report: {}}]}
`

// TestTenantsDoNotWriteToTheTerminal has each command that reads files print texts that try to.
func TestTenantsDoNotWriteToTheTerminal(t *testing.T) {
	for name, tc := range map[string]struct {
		spec string
		// shown is how often a plan for people shows the text; 0 if there is no plan.
		shown int
	}{
		"Rules":          {spec: hostileSpec + hostileRules, shown: 6},
		"UnknownField":   {spec: hostileSpec + `  "HOSTILE": 1`},
		"Condition":      {spec: hostileSpec + `  conditions: ["'''HOSTILE''' == ''"]`, shown: 2},
		"ConditionError": {spec: hostileSpec + `  conditions: ["{'a': true}['''HOSTILE''']"]`, shown: 3},
		"Lifecycle":      {spec: "\n" + `  lifecycle: "HOSTILE"`},
		"Expression":     {spec: hostileSpec + `  conditions: ["nothing == 'TEXT' // HOSTILE", "// HOSTILE\n   nothing"]`},
		"Template":       {spec: "\n" + `  lifecycle: Recurring` + "\n" + `  templateRef: {name: "HOSTILE"}`},
		"Parameter":      {spec: "\n" + `  lifecycle: Recurring` + "\n" + `  templateRef: {name: podgc-terminated, parameters: {"HOSTILE": 1}}`},
		"Twice":          {spec: "\n" + `  "HOSTILE": 1` + "\n" + `  "HOSTILE": 1`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, objects := filepath.Join(dir, casetest.FileCleaner), filepath.Join(dir, casetest.FileObjects)
			write(t, file, "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: Cleaner\nmetadata: {name: a, namespace: web}\nspec:"+tc.spec+"\n")
			write(t, objects, hostileObjects)
			write(t, filepath.Join(dir, casetest.FilePlan), `verdict: "HOSTILE"`)
			plan := []string{"plan", "-f", file, "--objects", objects}
			for _, args := range [][]string{{"validate", "-f", file}, {"test", dir}, plan, append(plan, "--color=always")} {
				out, errs := command(t, args...)
				got := escape.ReplaceAllString(out+errs, "") // without the colours of this program
				harmless(t, args[0], got)
				want := 1
				switch args[0] {
				case "validate":
					want = min(want, strings.Count(tc.spec, `"HOSTILE"`))
				case "plan":
					want = max(want, tc.shown)
				}
				if shown := strings.Count(got, "forged"); shown < want {
					t.Errorf("%s shows the text %d times, want %d:\n%q", args[0], shown, want, got)
				}
			}
			if tc.shown == 0 {
				return
			}
			for _, args := range [][]string{{"configmap/web/" + hostile, "-o", "json"}, {"configmap/web/" + hostile}, {"pod/web/a"}} {
				out, errs := command(t, append([]string{"explain", "-f", file, "--objects", objects, "--object"}, args...)...)
				harmless(t, "explain", out+errs)
				if len(args) > 1 && !strings.Contains(out, "forged") {
					t.Errorf("explain does not show the name:\n%q", out+errs)
				}
			}
			for form, read := range map[string]func([]byte, any) error{
				output.JSON: json.Unmarshal,
				output.YAML: func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
			} {
				out, errs := command(t, append(plan, "-o", form)...)
				harmless(t, form, out+errs)
				var document struct {
					Steps []struct{ Name, Reason string }
				}
				if err := read([]byte(out), &document); err != nil {
					t.Errorf("%s: %s", form, err)
				}
				if name == "Rules" && len(document.Steps) == 0 {
					t.Errorf("%s has no steps:\n%s", form, out)
				}
				for _, s := range document.Steps {
					if s.Name != hostile || s.Reason != hostile {
						t.Errorf("a program reads as %s %q and %q, want %q", form, s.Name, s.Reason, hostile)
					}
				}
			}
		})
	}
	t.Run("NameOfTheCleaner", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "cleaner.yaml")
		write(t, file, `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: "HOSTILE", namespace: "HOSTILE"}
spec: {ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Pod, name: a}, delete: true}]}
`)
		for _, args := range [][]string{{"plan", "-f", file, "--objects", file}, {"validate", "-f", file}} {
			out, errs := command(t, args...)
			harmless(t, args[0], out+errs)
		}
	})
	t.Run("NameOfAFile", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), strings.ReplaceAll(hostile, "/", ""), "\x9b31m")
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "objects.yaml"), "")
		write(t, filepath.Join(dir, "a.yaml"), "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: Cleaner\nspec: {a: 1}\n")
		for _, args := range [][]string{{"test", dir}, {"validate", "-f", dir}, {"validate", "-f", filepath.Join(dir, "none")}, {"plan", "-f", dir}} {
			out, errs := command(t, args...)
			harmless(t, args[0], out+errs)
			if strings.Contains(out+errs, "\x9b31m") {
				t.Errorf("%s writes a byte that is no UTF-8:\n%q", args[0], out+errs)
			}
		}
	})
}

// TestAClusterDoesNotWriteToTheTerminal has each command that asks a cluster print what is hostile in all its answers.
func TestAClusterDoesNotWriteToTheTerminal(t *testing.T) {
	cleaner := &v1alpha1.Cleaner{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: manifests.KindCleaner}}
	corrupt(reflect.ValueOf(&cleaner.Status).Elem())
	cleaner.Status.Conditions[0].Type, cleaner.Status.Run.Result = v1alpha1.ConditionReady, ""
	cleaner.Status.Conditions = append(cleaner.Status.Conditions, metav1.Condition{Type: hostile, Status: hostile, Reason: hostile, Message: hostile})
	deployments := map[string]any{"apiVersion": "apps/v1", "kind": "DeploymentList", "items": []any{map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": hostile, "namespace": hostile, "labels": map[string]any{versionLabel: hostile}},
		"spec":     map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"image": hostile}}}}},
	}}}
	failure := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: hostile}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Add("Warning", "299 - \"forged \u202e by a webhook\"")
		answer, code := any(failure), http.StatusForbidden
		switch {
		case strings.HasSuffix(r.URL.Path, "/good"):
			answer, code = cleaner, http.StatusOK
		case strings.HasSuffix(r.URL.Path, "/deployments"):
			answer, code = deployments, http.StatusOK
		}
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "cleaner.yaml")
	write(t, file, "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: Cleaner\nmetadata: {name: a, namespace: web}\nspec: {ttl: 1h, targets: [{name: a, reference: {version: v1, kind: Pod, name: a}, delete: true}]}\n")
	for _, args := range [][]string{
		{"explain", "good"}, {"explain", "bad"}, {"run", "good"}, {"run", "bad"}, {"suspend", "good"}, {"resume", "bad"},
		{"version"}, {"version", "-o", "json"}, {"version", "-o", "yaml"},
		{"plan", "-f", file}, {"validate", "-f", file, "--live"},
	} {
		t.Run(strings.Join(args[:min(2, len(args))], " "), func(t *testing.T) {
			stderr := captured(t)
			out, errs := command(t, append(args, "--server", server.URL, "-n", "web", "--kubeconfig", os.DevNull)...)
			harmless(t, strings.Join(args, " "), out+errs)
			if !strings.Contains(out+errs, "forged") {
				t.Errorf("%v does not show the text:\n%q", args, out+errs)
			}
			if past := stderr(); past != "" {
				t.Errorf("%v writes past the screen: %q", args, past)
			}
		})
	}
}

// TestOnlyTheScreenWrites shows that no other file writes to a terminal, or says that a text is safe.
func TestOnlyTheScreenWrites(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writes := regexp.MustCompile(`\bfmt\.F?[Pp]rint|\bos\.Std(out|err)\b|\b(safeText|layout|cell)\(|\b(screen|cell|helpWriter)\{`)
	for _, file := range files {
		text := contents(t, file)
		switch {
		case file == "screen.go", file == "colour.go", strings.HasSuffix(file, "_test.go"):
			continue
		case file == "main.go": // hands both to screens
			for _, once := range []string{"os.Stdout, os.Stderr)", "screen{to: stdout, colourMode: &t.colourMode}, screen{to: stderr, colourMode: &t.colourMode}"} {
				text = strings.Replace(text, once, "", 1)
			}
		}
		for line := range strings.Lines(text) {
			if writes.MatchString(line) {
				t.Errorf("%s writes, or makes text safe, by itself: write it with screen.printf: %s", file, strings.TrimSpace(line))
			}
		}
	}
}

// captured takes what libraries write to standard error by themselves, until it is asked for.
func captured(t *testing.T) func() string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = file
	return func() string {
		os.Stderr = old
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// corrupt makes each text in a value hostile, and each list one of one.
func corrupt(v reflect.Value) {
	switch at, isTime := v.Addr().Interface().(*metav1.Time); {
	case isTime:
		at.Time = time.Unix(0, 0)
		return
	case v.Kind() == reflect.String:
		v.SetString(hostile)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		corrupt(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		corrupt(v.Index(0))
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				corrupt(v.Field(i))
			}
		}
	}
}
