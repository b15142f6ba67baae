// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vtex/cleaner/test/cluster"
)

// Without an image, the operator runs on the machine of the user: with what docs/quick-start.md says instead of its first step, and the flags of
// make run, the Cleaner of that page reports, and then deletes.
func TestRunWithoutAnImage(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
	flags := regexp.MustCompile(`(?m)^\t\$\(GO\) run \./cmd/manager (.*)$`).FindStringSubmatch(readFile(t, "Makefile"))
	if flags == nil {
		t.Fatal("make run does not run the operator")
	}
	s, p := newShell(t), readPage(t, quickStart)
	s.lay(t, p)
	run := func(commands ...string) {
		t.Helper()
		for _, command := range commands {
			if out, err := s.run(t.Context(), command); err != nil {
				t.Fatalf("$ %s\n%v\n%s", command, err, out)
			}
		}
	}
	for _, command := range []string{"make install", "kubectl create namespace cleaner-system", "make run"} {
		if !strings.Contains(p.text, "`"+command+"`") {
			t.Errorf("%s does not name %s", p.name, command)
		}
	}
	run("make install", "kubectl create namespace cleaner-system")
	log := filepath.Join(t.TempDir(), "log")
	operator, err := s.cluster.Run(t.Context(), cluster.ProgramOptions{
		Name: "make-run", Path: s.binary, Args: append(strings.Fields(flags[1]), "--metrics-bind-address=0", "--health-probe-bind-address=0"), Env: s.env, LogPath: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = operator.Kill() })
	run(
		"kubectl create namespace quick-start", "kubectl apply -f previews.yaml", "kubectl apply -f expired-previews.yaml",
		`kubectl wait -n quick-start --for=jsonpath='{.status.conditions[?(@.type=="Ready")].reason}'=DryRun --timeout=60s cleaner/expired-previews`,
		"kubectl get configmap preview-1 -n quick-start",
		`kubectl patch cleaner expired-previews -n quick-start --type=merge -p '{"spec":{"mode":"Enforce"}}'`,
		"kubectl wait -n quick-start --for=delete --timeout=60s configmap/preview-1",
		"kubectl get configmap preview-2 -n quick-start",
	)
}
