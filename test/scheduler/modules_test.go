// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/test/operator"
)

// requirements is what a go.mod says.
type requirements struct {
	Module  struct{ Path string }
	Require []struct{ Path, Version string }
	Replace []struct {
		Old, New struct{ Path, Version string }
	}
}

func modules(t *testing.T, dir ...string) requirements {
	t.Helper()
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
	cmd.Dir = filepath.Join(append([]string{root}, dir...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var m requirements
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// versions are those of Kubernetes that a module is built with.
func (m requirements) versions() map[string]string {
	all := map[string]string{}
	for _, r := range m.Require {
		if r.Path == "k8s.io/kubernetes" {
			all[r.Path] = r.Version
		}
	}
	for _, r := range m.Replace {
		if r.New.Version != "" {
			all[r.Old.Path] = r.New.Path + " " + r.New.Version
		}
	}
	return all
}

// The operator's module has no part of the scheduler, and replaces nothing: whoever imports it gets what it says.
func TestTheMainModuleHasNoScheduler(t *testing.T) {
	m := modules(t)
	if m.Module.Path != "github.com/vtex/cleaner" || len(m.Require) < 50 {
		t.Fatalf("this is %+v", m)
	}
	for _, r := range m.Require {
		if r.Path == "k8s.io/kubernetes" || r.Path == "k8s.io/kube-scheduler" || strings.HasPrefix(r.Path, m.Module.Path) {
			t.Errorf("it requires %s", r.Path)
		}
	}
	if len(m.Replace) > 0 {
		t.Errorf("it replaces %v", m.Replace)
	}
}

// The scheduler is built from the Kubernetes of the control plane that it is tested in.
func TestOneKubernetes(t *testing.T) {
	want, got := modules(t, "test", "controlplane").versions(), modules(t, "scheduler").versions()
	if diff := cmp.Diff(want, got); diff != "" || len(want) < 30 {
		t.Errorf("-test/controlplane +scheduler:\n%s", diff)
	}
}

// Of the main module the scheduler has the arithmetic, and nothing else.
func TestTheSchedulerHasTheArithmeticAlone(t *testing.T) {
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/...")
	cmd.Dir = filepath.Join(root, "scheduler")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for path := range strings.Lines(string(out)) {
		if path = strings.TrimSpace(path); strings.HasPrefix(path, "github.com/vtex/cleaner/") {
			ours = append(ours, strings.TrimPrefix(path, "github.com/vtex/cleaner/"))
		}
	}
	if diff := cmp.Diff([]string{"celenv/addresses", "scheduler/podallocatableip", "scheduler/cmd/cleaner-scheduler"}, ours); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
