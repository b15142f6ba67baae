// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the operator as its users meet it: the built binary, with the rights of its ServiceAccount, on a real
// kube-apiserver, etcd and kube-controller-manager. What it did is read from the API server's audit log.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/sink"
)

// patience bounds every wait: far more than a busy machine needs, so that only a fault reaches it.
const patience = 90 * time.Second

// quick are the flags with which tests need not wait as long as users.
func quick() []string {
	return []string{"--min-interval=100ms", "--settle=5s", "--finish-grace=4s"}
}

// env is a control plane with the operator installed.
type env struct {
	*cluster.Cluster
	client.WithWatch
	audit  *cluster.Witness
	binary string
	labs   *labs
}

// labs are the namespaces of tests that share a control plane: each judges its own, and what is in none of them.
type labs struct {
	sync.Mutex
	namespaces []string
}

func (s *labs) add(namespace string) {
	s.Lock()
	defer s.Unlock()
	s.namespaces = append(s.namespaces, namespace)
}

// but are the labs other than one.
func (s *labs) but(namespace string) []string {
	s.Lock()
	defer s.Unlock()
	return slices.DeleteFunc(slices.Clone(s.namespaces), func(n string) bool { return n == namespace })
}

// shared is the control plane of the tests that may share one, with the operator running.
var shared *env

func TestMain(m *testing.M) {
	ctrl.SetLogger(discard())
	clustertest.Suite{Live: true, Ready: ready, After: func() error { return shared.witness() }}.Main(m)
}

// ready installs Knative's kinds and the operator, and runs it.
func ready(ctx context.Context, c *cluster.Cluster) error {
	binary, err := operator.Build(ctx, c.Dir(), os.Stderr)
	if err != nil {
		return err
	}
	if shared, err = install(ctx, c, binary); err != nil {
		return err
	}
	knative, err := cluster.KnativeServingCRDs(ctx)
	if err != nil {
		return err
	}
	if err := cluster.InstallCRDs(ctx, c.Config(), knative...); err != nil {
		return err
	}
	_, err = operator.Run(ctx, c, operator.Options{Binary: binary, Args: quick()})
	return err
}

// newEnv starts a control plane and installs the operator, without running it.
func newEnv(ctx context.Context, binary string) (*env, error) {
	c, err := cluster.Start(ctx, cluster.Options{Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	e, err := install(ctx, c, binary)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return e, nil
}

// install installs the operator, without running it.
func install(ctx context.Context, c *cluster.Cluster, binary string) (*env, error) {
	e := &env{Cluster: c, binary: binary, labs: &labs{}}
	var err error
	if e.audit, err = c.Witness(); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme, rbacv1.AddToScheme, eventsv1.AddToScheme, appsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	config := c.Config()
	config.QPS = -1
	if e.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, err
	}
	if err := operator.Install(ctx, c); err != nil {
		return nil, err
	}
	if err := operator.GrantHelm(ctx, c); err != nil {
		return nil, err
	}
	return e, e.mayPatch(ctx)
}

// mayPatch lets the operator patch ConfigMaps, as a ServiceAccount too, which no preset does, as an administrator would: by a
// label.
func (e *env) mayPatch(ctx context.Context) error {
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "cleaner-may-patch", Labels: map[string]string{"cleaner.vtex.dev/aggregate-to-controller": "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"patch", "impersonate-on:serviceaccount:patch"}}},
	}
	if err := e.Create(ctx, role); err != nil {
		return fmt.Errorf("cannot let the operator patch ConfigMaps: %w", err)
	}
	return nil
}

// witness reads the audit log of all tests: every DELETE by the operator carries both preconditions, was decided, and
// spared what is protected. That holds for the time after a test too, and between the namespaces of two.
func (e *env) witness() error {
	events, err := e.audit.Events()
	if err != nil {
		return err
	}
	some := flag.Lookup("test.run").Value.String() != "" // which may all have control planes of their own
	if n := len(cluster.Deletes(events, operator.User)); n == 0 && !some {
		return errors.New("the audit log shows no DELETE by the operator, so it witnesses nothing")
	}
	log, err := invariants.ReadLogs(filepath.Join(e.Dir(), "manager*.log"))
	if err != nil {
		return err
	}
	var broken []string
	for _, v := range invariants.Check(record(events, log)) {
		if slices.Contains([]string{"I1", "I2", "I6"}, v.Invariant) {
			broken = append(broken, v.String())
		}
	}
	if len(broken) > 0 {
		return fmt.Errorf("the audit log of all tests shows:\n%s", strings.Join(broken, "\n"))
	}
	return nil
}

// record is what is to be judged of all that happened in a control plane.
func record(events []cluster.Event, log []invariants.Line) *invariants.Record {
	return &invariants.Record{
		Operator: operator.User, Audit: events, Log: log,
		Protected: []string{"kube-system", "kube-public", "kube-node-lease", operator.Namespace}, Own: operator.Namespace,
	}
}

// lab is a namespace of one test, with what tests do in it.
type lab struct {
	*testing.T
	*env
	ctx context.Context
	ns  string
	// sinks are those that the invariants are held against.
	sinks     []*sink.Sink
	operators *operators
	fixtures  *fixtures
	trail     *trail
	judge     *judge
}

// newLab makes a namespace in a control plane.
func newLab(t *testing.T, e *env) *lab {
	t.Helper()
	ns, err := e.Namespace(t.Context(), "e2e")
	if err != nil {
		t.Fatal(err)
	}
	e.labs.add(ns)
	l := &lab{T: t, env: e, ctx: t.Context(), ns: ns}
	l.operators, l.fixtures, l.trail, l.judge = &operators{l: l}, &fixtures{l}, &trail{l}, &judge{l: l}
	t.Cleanup(l.judge.hold)
	return l
}

// parallel is a namespace in the shared control plane.
func parallel(t *testing.T) *lab {
	t.Helper()
	t.Parallel()
	return newLab(t, shared)
}

// apply creates the objects of a YAML text in the namespace of the test; a status is written after the object.
func (l *lab) apply(text string) *unstructured.Unstructured {
	l.Helper()
	var last *unstructured.Unstructured
	for doc := range strings.SplitSeq(text, "\n---") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			l.Fatalf("cannot read %s: %s", doc, err)
		}
		if u.Object == nil {
			continue
		}
		if u.GetNamespace() == "" {
			u.SetNamespace(l.ns)
		}
		status := u.Object["status"]
		if err := l.Create(l.ctx, u); err != nil {
			l.Fatalf("cannot create %s %s: %s", u.GetKind(), u.GetName(), err)
		}
		if status != nil {
			u.Object["status"] = status
			if err := l.Status().Update(l.ctx, u); err != nil {
				l.Fatalf("cannot write the status of %s %s: %s", u.GetKind(), u.GetName(), err)
			}
		}
		last = u
	}
	return last
}

// configMap creates a ConfigMap.
func (l *lab) configMap(name string, labels map[string]string, data map[string]string) *corev1.ConfigMap {
	l.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name, Labels: labels}, Data: data}
	if err := l.Create(l.ctx, cm); err != nil {
		l.Fatalf("cannot create ConfigMap %s: %s", name, err)
	}
	return cm
}

// exists says whether the object is there; one that is terminating is.
func (l *lab) exists(o client.Object, name string) bool {
	l.Helper()
	err := l.Get(l.ctx, client.ObjectKey{Namespace: l.ns, Name: name}, o)
	if client.IgnoreNotFound(err) != nil {
		l.Fatalf("cannot read %s: %s", name, err)
	}
	return err == nil
}

// cleaner reads a Cleaner; nil when it is gone.
func (l *lab) cleaner(name string) *v1alpha1.Cleaner {
	l.Helper()
	c := &v1alpha1.Cleaner{}
	if !l.exists(c, name) {
		return nil
	}
	return c
}

// eventually waits until a check passes; check returns what is missing, or "".
func (l *lab) eventually(what string, check func() string) {
	l.Helper()
	var missing string
	err := wait.PollUntilContextTimeout(l.ctx, 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		missing = check()
		return missing == "", nil
	})
	if err != nil {
		l.Fatalf("%s: still missing: %s", what, missing)
	}
}

// gone waits until a Cleaner is gone.
func (l *lab) gone(name string) {
	l.Helper()
	l.eventually("the Cleaner goes", func() string {
		if c := l.cleaner(name); c != nil {
			return "it is there: " + describe(c)
		}
		return ""
	})
}

// says waits until a Cleaner's condition has a reason, and returns the Cleaner.
func (l *lab) says(name, condition, reason string) *v1alpha1.Cleaner {
	l.Helper()
	var c *v1alpha1.Cleaner
	l.eventually(fmt.Sprintf("%s says %s", condition, reason), func() string {
		if c = l.cleaner(name); c == nil {
			return "the Cleaner is gone"
		}
		got := meta.FindStatusCondition(c.Status.Conditions, condition)
		if got == nil || got.Reason != reason {
			return describe(c)
		}
		return ""
	})
	return c
}

// message is what a condition of a Cleaner says.
func message(c *v1alpha1.Cleaner, condition string) string {
	if got := meta.FindStatusCondition(c.Status.Conditions, condition); got != nil {
		return got.Message
	}
	return ""
}

func describe(c *v1alpha1.Cleaner) string {
	text, err := yaml.Marshal(c.Status)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// update changes an object, again if somebody else was faster.
func (l *lab) update(o client.Object, name string, change func()) {
	l.Helper()
	l.eventually("the update", func() string {
		if err := l.Get(l.ctx, client.ObjectKey{Namespace: l.ns, Name: name}, o); err != nil {
			return err.Error()
		}
		change()
		if err := l.Update(l.ctx, o); apierrors.IsConflict(err) {
			return err.Error()
		} else if err != nil {
			l.Fatalf("cannot update %s: %s", name, err)
		}
		return ""
	})
}
