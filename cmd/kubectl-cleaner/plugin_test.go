// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/cmd/internal/version"
)

const pluginCleaner = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: preview, namespace: default}
spec: {targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {app: web}}, delete: true}], conditions: ["pods.items.size() > 0"]}
`

// testPlugin has kubectl find the plugin on the PATH, run all examples, and complete words.
func testPlugin(t *testing.T, kubectl, kubeconfig string) {
	p := newPlugin(t, kubectl, kubeconfig)
	examples := 0
	walk(commandLine(t), func(cmd *cobra.Command) {
		examples++
		if cmd.Name() != "ui" {
			p.shell(cmd.Example)
			return
		}
		for line := range strings.Lines(cmd.Example) {
			p.serve(line)
		}
	})
	if examples < 10 {
		t.Errorf("only %d commands show examples", examples)
	}
	for line, want := range map[string]string{
		`suspend ""`:               "clustercleaner/everywhere\n",
		`suspend "pre"`:            "preview\n",
		`explain "cln/p"`:          "cln/preview\n",
		`run -n team ""`:           "clustercleaner/everywhere\n:4",
		`resume "clustercleaner/"`: "clustercleaner/everywhere\n:4",
		`explain -n "tea"`:         "team\n:4",
		`explain --context ""`:     "cleaner-test\n:4",
		`version -o ""`:            "json\n:4",
	} {
		if got := p.shell("kubectl __complete cleaner " + line); !strings.Contains(got, want) {
			t.Errorf("%s may become %q, which has no %q", line, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := p.shell("kubectl cleaner completion " + shell); !strings.Contains(got, "kubectl-cleaner") || !strings.Contains(got, "__complete") {
			t.Errorf("the script for %s is\n%s", shell, got)
		}
	}
	p.shell("kubectl-cleaner completion bash > script && bash -n script")
}

// testVersion asks a cluster without the operator, and one that seems to have it.
func testVersion(t *testing.T, s *session, client dynamic.Interface) {
	own := version.Get().String()
	s.wants(s.run(0, "version"), "Client: "+own+"\nOperator: not found: no Deployment has the label app.kubernetes.io/name=cleaner\n")
	deployment := &unstructured.Unstructured{}
	text := `{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": {"name": "manager", "labels": {"app.kubernetes.io/name": "cleaner", "app.kubernetes.io/version": "0.0.9"}},
		"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "manager", "image": "example.com/cleaner:0.0.9"}]}}}}`
	if err := yaml.Unmarshal([]byte(text), &deployment.Object); err != nil {
		t.Fatal(err)
	}
	deployments := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace("team")
	if _, err := deployments.Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.wants(s.run(0, "version"), "Operator: 0.0.9 (Deployment team/manager, image example.com/cleaner:0.0.9)\n")
	s.wants(s.run(0, "version", "-o", "json"), `"client": {`, `"deployment": "team/manager"`, `"version": "0.0.9"`)
	s.wants(s.run(0, "version", "-o", "yaml", "--client"), "client:\n", "platform: "+version.Get().Platform)
	if got := s.run(0, "version", "--client"); got != "Client: "+own+"\n" {
		t.Errorf("it asks no cluster, and says %q", got)
	}
	s.wants(s.run(1, "version", "--server=https://127.0.0.1:1"), "Client: "+own, "cannot find the operator: ", "use --client to print only the client version")
	s.wants(s.run(2, "version", "-o", "table"), "write text, yaml or json")
	if err := deployments.Delete(t.Context(), "manager", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// plugin is this program as kubectl finds it.
type plugin struct {
	t   *testing.T
	dir string
	env []string
}

// newPlugin puts this program on a PATH, with what the examples of its help name beside it.
func newPlugin(t *testing.T, kubectl, kubeconfig string) *plugin {
	t.Helper()
	config, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	dir, home := t.TempDir(), t.TempDir()
	bin := filepath.Join(home, ".local", "bin")
	for path, text := range map[string]string{
		filepath.Join(dir, "cleaner.yaml"):                            pluginCleaner,
		filepath.Join(dir, "crds", "crd.yaml"):                        "",
		filepath.Join(dir, "my-template", "cleaner.yaml"):             pluginCleaner,
		filepath.Join(dir, "my-template", "testdata", "objects.yaml"): "",
		filepath.Join(bin, "unused"):                                  "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		filepath.Join(dir, "config"): config, filepath.Join(bin, "kubectl"): kubectl, filepath.Join(bin, "kubectl-cleaner"): program(t),
	} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	return &plugin{t: t, dir: dir, env: []string{
		"HOME=" + home, "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + kubeconfig, "NOW=2026-01-01T00:00:00Z",
	}}
}

// serve runs a command that serves pages, ends it as soon as it says where they are, and wants it to end well.
func (p *plugin) serve(line string) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "bash", "-euo", "pipefail", "-c", "exec "+strings.TrimSpace(line))
	cmd.Dir, cmd.Env = p.dir, p.env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "?token=") {
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // if it has ended, Wait says why
	if err := cmd.Wait(); err != nil {
		p.t.Errorf("%s: %v\n%s", line, err, errs.String())
	}
}

// shell runs a script, of which each command has to succeed, and returns what it prints.
func (p *plugin) shell(script string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = p.dir, p.env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		p.t.Errorf("%s\n%v\n%s%s", script, err, out, errs.String())
	}
	return string(out)
}
