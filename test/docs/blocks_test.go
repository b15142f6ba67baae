// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"fmt"
	"html"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// kustomization is the kind of what no API server is sent: a session builds it.
const kustomization = "Kustomization"

// manifest is what an API server is sent of a block; nil if that is nothing.
func (b block) manifest() (*metav1.PartialObjectMetadata, error) {
	if b.language != "yaml" {
		return nil, nil
	}
	m := &metav1.PartialObjectMetadata{}
	if err := yaml.Unmarshal([]byte(b.text), m); err != nil {
		return nil, err
	}
	if m.Kind == "" || m.Kind == kustomization || ofAPIServer(b) || strings.HasPrefix(b.text, schedulerFile) {
		return nil, nil
	}
	return m, nil
}

// How the files begin that an API server reads itself, so that it is not sent them.
const (
	admissionFile         = "apiVersion: apiserver.config.k8s.io/v1\n"
	kubeconfigOfAdmission = "apiVersion: v1\nkind: Config\n"
)

// schedulerFile is how the file begins that a scheduler reads.
const schedulerFile = "apiVersion: kubescheduler.config.k8s.io/v1\n"

// ofAPIServer says whether a block is a file that an API server reads itself.
func ofAPIServer(b block) bool {
	return strings.HasPrefix(b.text, admissionFile) || strings.HasPrefix(b.text, kubeconfigOfAdmission)
}

// The files that an API server reads itself are those with which a test of the webhook starts one.
func TestFilesOfTheAPIServer(t *testing.T) {
	used := readFile(t, "test/webhook/callers_test.go")
	elsewhere := strings.NewReplacer("/etc/kubernetes/pki/webhook-", "DIR/", "/etc/kubernetes/", "DIR/")
	found := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if !ofAPIServer(b) {
				continue
			}
			found++
			if !strings.Contains(used, "`"+elsewhere.Replace(strings.TrimRight(b.text, "\n"))+"\n`") {
				t.Errorf("%s:%d: test/webhook/callers_test.go starts no API server with this file", p.name, b.line)
			}
		}
	}
	if found < 2 {
		t.Errorf("there are only %d files", found)
	}
}

// read are the blocks of YAML that no API server is sent, by how they begin, and the tests that read them.
func read() map[string]string {
	return map[string]string{
		`time: "`:             "TestExpressions",
		admissionFile:         "TestFilesOfTheAPIServer",
		kubeconfigOfAdmission: "TestFilesOfTheAPIServer",
		schedulerFile:         "TestTheConfigurationOfThePage",
	}
}

// drawing is what drawings have, and commands and their output do not.
var drawing = regexp.MustCompile(`[─│]─?[▶│─]`)

// held says which test holds a block to the truth; an error if none does.
func (p page) held(b block) (string, error) {
	switch b.language {
	case "console":
		steps, err := b.steps()
		if len(steps) == 0 && err == nil {
			err = fmt.Errorf("has no command: commands begin with $ and a blank")
		}
		return "TestSessions", err
	case "yaml":
		m, err := b.manifest()
		if m != nil || err != nil {
			return "TestSessions", err
		}
		for begin, test := range read() {
			if strings.HasPrefix(b.text, begin) {
				return test, nil
			}
		}
		if !strings.Contains(b.text, "kind: "+kustomization) {
			return "", fmt.Errorf("is of no kind, and no test reads it")
		}
		builds := func(s block) bool { return s.language == "console" && strings.Contains(s.text, "kubectl kustomize ") }
		if b.file == "" || !slices.ContainsFunc(p.blocks, builds) {
			return "", fmt.Errorf("is not built by a session of the page")
		}
		return "TestSessions", nil
	case "go":
		if strings.HasPrefix(b.text, receiver) {
			return "TestReceiver", nil
		}
		return "", fmt.Errorf("is Go that no test runs: only the receiver of events is")
	case "go.mod":
		return "TestOneVersion", nil
	case "text":
		switch {
		case strings.HasPrefix(b.text, "── "):
			return "TestRecording", nil
		case strings.HasPrefix(b.text, chartTemplate):
			return "TestAReleaseWithItsOwnCleaner", nil
		case drawing.MatchString(b.text) && !strings.Contains(b.text, "\n$ "):
			return "a drawing", nil
		}
		return "", fmt.Errorf("is neither a recording of the demo, nor a template of a chart, nor a drawing: a session is a block of the language console")
	}
	return "", fmt.Errorf("is in the language %q, which no test runs: write console, yaml or text", b.language)
}

// chartTemplate is how the template of a Cleaner begins with which a test installs a chart: braces are no YAML.
const chartTemplate = "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: Cleaner\nmetadata:\n  name: {{ .Release.Name }}\n"

// receiver is how the Go of a receiver of events begins.
const receiver = "// Verify says "

// The receiver of events that a page shows is the one by which tests verify what sinks are sent.
func TestReceiver(t *testing.T) {
	_, used, found := strings.Cut(readFile(t, "test/sink/verify.go"), "\n"+receiver)
	shown := 0
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language != "go" {
				continue
			}
			if shown++; !found || strings.TrimPrefix(b.text, receiver) != used {
				t.Errorf("%s:%d: tests verify nothing in this way: write what is in test/sink/verify.go", p.name, b.line)
			}
		}
	}
	if shown == 0 {
		t.Error("no page shows a receiver")
	}
}

// No block escapes: a test runs it, applies it, or reads it. And commands that are not run are on some page.
func TestBlocks(t *testing.T) {
	found, commands := map[string]int{}, 0
	unused := notRun()
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.language == "console" {
				steps, _ := b.steps() // held says what is wrong
				commands += len(steps)
				for _, s := range steps {
					maps.DeleteFunc(unused, func(prefix, _ string) bool { return strings.HasPrefix(s.command, prefix) })
				}
			}
			test, err := p.held(b)
			if err != nil {
				t.Errorf("%s:%d: the block %v", p.name, b.line, err)
			}
			found[test]++
		}
	}
	if commands < 40 {
		t.Errorf("there are only %d commands", commands)
	}
	for prefix := range unused {
		t.Errorf("no page has a command %q: take it out of those that are not run", prefix)
	}
	for _, test := range []string{"TestSessions", "TestExpressions", "TestOneVersion", "TestRecording", "a drawing"} {
		if found[test] == 0 {
			t.Errorf("no block is for %s", test)
		}
	}
}

func TestBlocksThatEscapeAreFound(t *testing.T) {
	cases := map[string]struct {
		block block
		held  bool
	}{
		"command":              {block{language: "console", text: "$ kubectl get pods\n"}, true},
		"no command":           {block{language: "console", text: "kubectl get pods\n"}, false},
		"manifest":             {block{language: "yaml", text: "kind: Pod\n"}, true},
		"broken manifest":      {block{language: "yaml", text: "kind: [\n"}, false},
		"values":               {block{language: "yaml", text: "replicas: 3\n"}, false},
		"nobody's overlay":     {block{language: "yaml", text: "kind: Kustomization\n"}, false},
		"drawing":              {block{language: "text", text: "a ──▶ b\n"}, true},
		"template of a chart":  {block{language: "text", text: chartTemplate + "spec: {}\n"}, true},
		"other template":       {block{language: "text", text: "kind: Pod\nmetadata: {name: {{ .Release.Name }}}\n"}, false},
		"command as a text":    {block{language: "text", text: "$ kubectl get pods\n"}, false},
		"other language":       {block{language: "go", text: "package main\n"}, false},
		"no language at all":   {block{text: "kubectl get pods\n"}, false},
		"command in a drawing": {block{language: "text", text: "a ──▶ b\n$ rm x\n"}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if test, err := (page{}).held(tc.block); (err == nil) != tc.held {
				t.Errorf("held by %q, %v", test, err)
			}
		})
	}
}

// The picture of the demo in README.md has the parts that docs/demo.md has, in their order; and what they are about, the demo tells.
func TestRecording(t *testing.T) {
	whole := recording(t, "docs/demo.md")
	heading := regexp.MustCompile("── ([^─<]+) ──")
	picture := html.UnescapeString(readFile(t, "docs/pictures/demo.svg"))
	for _, line := range whole {
		if !heading.MatchString(line) {
			continue
		}
		_, rest, found := strings.Cut(picture, line)
		if !found {
			t.Errorf("docs/pictures/demo.svg has no part %q there: make pictures", line)
			continue
		}
		picture = rest
	}
	code := ""
	names, err := filepath.Glob("../../hack/demo/*.go")
	if err != nil || len(names) == 0 {
		t.Fatalf("the code of the demo is not there: %v", err)
	}
	for _, name := range names {
		code += readFile(t, "hack/demo/"+filepath.Base(name))
	}
	for _, line := range whole {
		if m := heading.FindStringSubmatch(line); m != nil && !strings.Contains(code, `"`+m[1]+`"`) {
			t.Errorf("the demo has no part %q", m[1])
		}
	}
}

// What docs/demo.md shows of the comparison with the originals is what docs/templates.md says now: the demo reads it from there.
func TestRecordingOfTheComparison(t *testing.T) {
	lines := recording(t, "docs/demo.md")
	lines = lines[slices.Index(lines, "── Beside the originals ──")+1:]
	if len(lines) < 4 || len(lines) > 20 {
		t.Fatalf("docs/demo.md shows %d lines of the comparison", len(lines))
	}
	rows := readPage(t, "docs/templates.md").part(t, "## Beside the originals").rows()
	var told []string
	for _, row := range rows[1:] {
		told = append(told, row[0])
		for i := 1; i < len(row)-1; i++ { // the last says which tests show it
			told = append(told, "  "+rows[0][i]+": "+link.ReplaceAllString(row[i], "$1"))
		}
	}
	moment := regexp.MustCompile(`^ +[0-9.]+s  `)
	for _, line := range lines {
		text, isCut := strings.CutSuffix(moment.ReplaceAllString(line, ""), "…")
		at := slices.IndexFunc(told, func(s string) bool { return s == text || isCut && strings.HasPrefix(s, text) })
		if at < 0 {
			t.Errorf("docs/demo.md has a line that the demo does not say there: %q", line)
			continue
		}
		told = told[at+1:]
	}
}

// recording are the lines that a page shows of the demo.
func recording(t *testing.T, name string) []string {
	t.Helper()
	for _, b := range readPage(t, name).blocks {
		if strings.HasPrefix(b.text, "── ") {
			lines := strings.Split(strings.TrimSpace(b.text), "\n")
			return slices.DeleteFunc(lines, func(line string) bool { return line == "" || strings.TrimSpace(line) == "…" })
		}
	}
	t.Fatalf("%s shows nothing of the demo", name)
	return nil
}
