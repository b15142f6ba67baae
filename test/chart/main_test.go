// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/helmtest"
	"github.com/vtex/cleaner/test/operator"
)

// build builds the manager, once for all tests that need it.
var build = sync.OnceValues(func() (string, error) { return operator.Build(context.Background(), binaries, os.Stderr) })

// binaries is where it is.
var binaries string

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if binaries, err = os.MkdirTemp("", "cleaner-chart-"); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		return 1
	}
	defer os.RemoveAll(binaries)
	return m.Run()
}

// lab is a control plane of a test's own, with an empty namespace for the operator that admits restricted Pods only.
type lab struct {
	*testing.T
	*cluster.Cluster
	client.Client
	binary  string
	gate    *operator.Gate
	manager *operator.Process
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
	c, err := cluster.Start(t.Context(), cluster.Options{Log: os.Stderr, APIServerFlags: operator.Routing()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	l := &lab{T: t, Cluster: c}
	if l.binary, err = build(); err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := c.Config()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if l.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	l.must(l.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}))
	l.must(cluster.WaitForDefaults(t.Context(), c.Config(), namespace)) // which are none of the release
	if l.gate, err = operator.OpenGate(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// helm is how one of Helm's commands gets at the control plane. Each begins anew, as on a command line.
func (l *lab) helm() *action.Configuration {
	l.Helper()
	config := l.Config()
	config.WarningHandler = rest.NoWarnings{} // that templates delete by force is no news here
	cfg, err := helmtest.Configuration(config, namespace)
	l.must(err)
	return cfg
}

// install does what `helm install` does.
func (l *lab) install(path, values string, change func(*action.Install)) (*release.Release, error) {
	l.Helper()
	install := action.NewInstall(l.helm())
	install.ReleaseName, install.Namespace = name, namespace
	if change != nil {
		change(install)
	}
	return install.RunWithContext(l.Context(), load(l.T, path), parse(l.T, values))
}

// upgrade does what `helm upgrade --reset-then-reuse-values` does.
func (l *lab) upgrade(path, values string) (*release.Release, error) {
	l.Helper()
	upgrade := action.NewUpgrade(l.helm())
	upgrade.Namespace, upgrade.ResetThenReuseValues = namespace, true
	return upgrade.RunWithContext(l.Context(), name, load(l.T, path), parse(l.T, values))
}

// run starts what the Deployment declares, with its own flags but for addresses of this machine, and returns when it serves.
func (l *lab) run() {
	l.Helper()
	deployment := &appsv1.Deployment{}
	l.must(l.Get(l.Context(), client.ObjectKey{Namespace: namespace, Name: operator.Deployment}, deployment))
	l.eventually("a Pod of the Deployment is admitted", func(ctx context.Context) (string, error) {
		pods := &corev1.PodList{}
		err := l.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(deployment.Spec.Selector.MatchLabels))
		if err != nil || len(pods.Items) == 0 {
			return "there is none", err
		}
		return "", nil
	})
	l.eventually("the presets are in force", func(ctx context.Context) (string, error) {
		out, _ := l.Kubectl(ctx, "auth", "can-i", "--as="+operator.User, "--namespace=default", "delete", "configmaps")
		if !strings.Contains(string(out), "yes") { // it exits with 1 for no
			return string(out), nil
		}
		return "", nil
	})
	o := operator.As(&deployment.Spec.Template.Spec.Containers[0])
	o.Binary, o.Webhook = l.binary, l.gate
	p, err := operator.Run(l.Context(), l.Cluster, o)
	l.must(err)
	l.manager = p
}

// stop ends the manager, as its Deployment's end does.
func (l *lab) stop() {
	l.Helper()
	l.gate.To(0)
	l.must(l.manager.Kill())
}

// eventually waits until a check passes; check says what is missing, or nothing.
func (l *lab) eventually(what string, check func(context.Context) (string, error)) {
	l.Helper()
	missing := ""
	err := wait.PollUntilContextTimeout(l.Context(), 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		missing, err = check(ctx)
		return missing == "", err
	})
	if err != nil {
		l.Fatalf("%s: %v: %s", what, err, missing)
	}
}

// apply creates objects; Cleaners that name no namespace in default.
func (l *lab) apply(texts ...string) error {
	l.Helper()
	for _, text := range texts {
		for _, u := range read(l.T, text) {
			if u.GetKind() == "Cleaner" && u.GetNamespace() == "" {
				u.SetNamespace(metav1.NamespaceDefault)
			}
			if err := l.Create(l.Context(), u); err != nil {
				return fmt.Errorf("cannot create %s %s: %w", u.GetKind(), u.GetName(), err)
			}
		}
	}
	return nil
}

// templates are the names of the templates that there are.
func (l *lab) templates() []string {
	l.Helper()
	list := &v1alpha1.CleanerTemplateList{}
	l.must(l.List(l.Context(), list))
	var names []string
	for _, t := range list.Items {
		names = append(names, t.Name)
	}
	return names
}

// cleans shows that the operator works: a Cleaner that the webhook has seen deletes a ConfigMap, and then itself.
func (l *lab) cleans() {
	l.Helper()
	const ns = metav1.NamespaceDefault
	cleaner := func(condition string) string {
		return fmt.Sprintf(`
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: once}
spec:
  ttl: 0s
  conditions: ['%s']
  targets:
  - name: old
    reference: {version: v1, kind: ConfigMap, matchLabels: {preview: "42"}}
    delete: true
`, condition)
	}
	if err := l.apply(cleaner("olt.items.size() > 0")); err == nil || !strings.Contains(err.Error(), "did you mean") {
		l.Fatalf("the webhook does not read expressions: %v", err)
	}
	l.must(l.Create(l.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: ns, Labels: map[string]string{"preview": "42"}}}))
	l.must(l.apply(cleaner("old.items.size() > 0")))
	for _, o := range []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Name: "once"}}} {
		l.eventually(fmt.Sprintf("%T is gone", o), func(ctx context.Context) (string, error) {
			err := l.Get(ctx, client.ObjectKey{Namespace: ns, Name: o.GetName()}, o)
			if err == nil {
				u, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
				return fmt.Sprint((&unstructured.Unstructured{Object: u}).Object["status"]), nil
			}
			return "", client.IgnoreNotFound(err)
		})
	}
}
