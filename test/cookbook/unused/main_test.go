// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package unused

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/operator"
)

const (
	// folder is where the recipes are.
	folder = "../../../config/samples/cookbook"
)

// plane is the control plane of all tests, with config/default and what the recipes need besides; nil with -short.
var plane *lab

type lab struct {
	*cluster.Cluster
	client.Client
	binary string
	gate   *operator.Gate
	// allowed are the protected kinds that recipes need to have given free.
	allowed []string
	running *operator.Process
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Suite{Cluster: cluster.Options{APIServerFlags: operator.Routing()}, Ready: func(ctx context.Context, c *cluster.Cluster) error {
		plane = &lab{Cluster: c}
		return plane.install(ctx)
	}}.Main(m)
}

func (l *lab) install(ctx context.Context) (err error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	if l.Client, err = client.New(l.Config(), client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if l.binary, err = operator.Build(ctx, l.Dir(), os.Stderr); err != nil {
		return err
	}
	if err := operator.InstallWithWebhook(ctx, l.Cluster); err != nil {
		return err
	}
	if l.gate, err = operator.OpenGate(ctx, l.Cluster); err != nil {
		return err
	}
	roles, err := filepath.Glob(filepath.Join(folder, "*", "role.yaml"))
	if err != nil || len(roles) == 0 {
		return fmt.Errorf("there are no roles: %w", err)
	}
	for _, role := range roles {
		if _, err := l.Kubectl(ctx, "apply", "--server-side", "--validate=strict", "-f", role); err != nil {
			return err
		}
	}
	switches, err := filepath.Glob(filepath.Join(folder, "*", "testdata", "*", "allow-protected-kinds"))
	if err != nil {
		return err
	}
	for _, path := range switches {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		l.allowed = append(l.allowed, strings.Fields(string(text))...)
	}
	slices.Sort(l.allowed)
	l.allowed = slices.Compact(l.allowed)
	return nil
}

// operate runs the operator with these flags, in the place of the one that runs.
func (l *lab) operate(t *testing.T, name string, args ...string) {
	t.Helper()
	if l.running != nil {
		if err := l.running.Kill(); err != nil {
			t.Fatal(err)
		}
		<-l.running.Exited()
	}
	// None of the tests is about who leads: the next one need not wait for the Lease.
	args = append([]string{"--leader-elect=false", "--min-interval=100ms"}, args...)
	p, err := operator.Run(context.WithoutCancel(t.Context()), l.Cluster, operator.Options{Binary: l.binary, Name: name, Webhook: l.gate, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	l.running = p
}

// everythingAllowed is the flag that gives free what recipes need.
func (l *lab) everythingAllowed() string {
	return "--allow-protected-kinds=" + strings.Join(l.allowed, ",")
}

func need(t *testing.T) *lab {
	t.Helper()
	if plane == nil {
		t.Skip("needs a control plane: not with -short")
	}
	return plane
}

// recipe reads a recipe, and has its rules wait for a second only: nobody waits for a day here.
func recipe(t *testing.T, name, mode string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name, "cleaner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	spec := u.Object["spec"].(map[string]any)
	spec["mode"] = mode
	rules, _ := spec["rules"].([]any)
	for _, rule := range rules {
		if r := rule.(map[string]any); r["for"] != nil {
			r["for"] = "1s"
		}
	}
	return u
}

// apply applies manifests, and returns what was said about them.
func (l *lab) apply(t *testing.T, manifests string, args ...string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := l.Kubectl(t.Context(), append([]string{"apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", path}, args...)...)
	return err
}

// put applies a recipe, in the namespace that it names, and takes it away when the test is over.
func (l *lab) put(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if ns := u.GetNamespace(); ns != "" {
		l.must(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+ns+"}}")
	}
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	l.must(t, string(text))
	t.Cleanup(func() {
		if err := l.Delete(context.WithoutCancel(t.Context()), u.DeepCopy()); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

func (l *lab) must(t *testing.T, manifests string) {
	t.Helper()
	if err := l.apply(t, manifests); err != nil {
		t.Fatal(err)
	}
}

// status is what a recipe says of itself.
type status struct {
	ObservedGeneration int64
	Conditions         []struct{ Type, Status, Reason, Message string }
	LastActions        []struct{ Object, Action, Result string }
	LastEvaluation     struct {
		Errors   []struct{ Message string }
		Withheld []struct{ Object, Because string }
	}
}

func (l *lab) status(t *testing.T, u *unstructured.Unstructured) status {
	t.Helper()
	got := &unstructured.Unstructured{}
	got.SetGroupVersionKind(u.GroupVersionKind())
	if err := l.Get(t.Context(), client.ObjectKeyFromObject(u), got); err != nil {
		t.Fatal(err)
	}
	var s struct{ Status status }
	text, err := got.MarshalJSON()
	if err := errors.Join(err, yaml.Unmarshal(text, &s)); err != nil {
		t.Fatal(err)
	}
	if s.Status.ObservedGeneration != got.GetGeneration() {
		return status{}
	}
	return s.Status
}

// ready is the condition Ready in words: its reason and its message.
func (s status) ready() (reason, message string) {
	for _, c := range s.Conditions {
		if c.Type == "Ready" {
			return c.Reason, c.Message
		}
	}
	return "", "it has no status yet"
}

// says waits until a recipe gives one of these reasons.
func (l *lab) says(t *testing.T, u *unstructured.Unstructured, reasons ...string) status {
	t.Helper()
	var s status
	live.Eventually(t, fmt.Sprintf("%s says %v", u.GetName(), reasons), func() string {
		s = l.status(t, u)
		reason, message := s.ready()
		if slices.Contains(reasons, reason) {
			return ""
		}
		return reason + ": " + message
	})
	return s
}
