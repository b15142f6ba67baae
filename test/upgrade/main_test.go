// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/operator"
)

// patience bounds every wait: far more than a busy machine needs, so that only a fault reaches it.
const patience = 2 * time.Minute

// version is a version of the operator: what is installed, and what runs.
type version struct {
	name, binary, crds string
	// grade is what the API server says about a new field where a spec says nothing.
	grade string
}

// shared is the control plane, with the operator installed and not running.
var shared struct {
	*cluster.Cluster
	gate *operator.Gate
	this version
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Suite{Live: true, Cluster: cluster.Options{APIServerFlags: operator.Routing()}, Ready: ready}.Main(m)
}

// ready builds this version, and installs it.
func ready(ctx context.Context, c *cluster.Cluster) error {
	shared.Cluster = c
	root, err := operator.Root()
	if err != nil {
		return err
	}
	shared.this = version{name: "this", crds: filepath.Join(root, "config", "crd", "bases")}
	if shared.this.binary, err = operator.Build(ctx, c.Dir(), os.Stderr); err != nil {
		return err
	}
	if err := operator.InstallWithWebhook(ctx, c); err != nil {
		return err
	}
	shared.gate, err = operator.OpenGate(ctx, c)
	return err
}

// lab is a namespace in which one version of the operator runs after the other.
type lab struct {
	*testing.T
	client.Client // of the administrator
	ns            string
	audit         *cluster.Witness
	manager       *operator.Process
	runs          int
}

func newLab(t *testing.T) *lab {
	t.Helper()
	ns, err := shared.Namespace(t.Context(), "upgrade")
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, ns: ns}
	if l.audit, err = shared.Witness(); err != nil {
		t.Fatal(err)
	}
	l.Client = clientOf(t, "")
	return l
}

// clientOf is a client of a user; of the administrator without a name.
func clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	config := shared.Config()
	config.QPS = -1
	config.Impersonate.UserName = user
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// eventually waits until a check passes; check returns what is missing, or "".
func (l *lab) eventually(what string, check func() string) {
	l.Helper()
	var missing string
	err := wait.PollUntilContextTimeout(l.Context(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		missing = check()
		return missing == "", nil
	})
	if err != nil {
		l.Fatalf("%s: still missing: %s", what, missing)
	}
}

// run starts a version, and has it serve the webhook.
func (l *lab) run(v version) *operator.Process {
	l.Helper()
	l.runs++
	p, err := operator.Run(l.Context(), shared.Cluster, operator.Options{
		Binary: v.binary, Webhook: shared.gate, Name: fmt.Sprintf("-%d-%s", l.runs, v.name), Args: []string{"--min-interval=100ms", "--settle=5s"},
	})
	l.must(err)
	return p
}

// apply creates the objects of a YAML text in the namespace.
func (l *lab) apply(as client.Client, text string) {
	l.Helper()
	for doc := range strings.SplitSeq(text, "\n---") {
		u := &unstructured.Unstructured{}
		l.must(yaml.Unmarshal([]byte(doc), &u.Object))
		if u.GetKind() != "ClusterCleaner" && u.GetKind() != "CustomResourceDefinition" {
			u.SetNamespace(l.ns)
		}
		if err := as.Create(l.Context(), u); err != nil {
			l.Fatalf("cannot create %s %s: %s", u.GetKind(), u.GetName(), err)
		}
	}
}

// exists says whether an object is there.
func (l *lab) exists(kind, name string) bool {
	l.Helper()
	u := l.object(kind, name)
	err := l.Get(l.Context(), client.ObjectKeyFromObject(u), u)
	l.must(client.IgnoreNotFound(err))
	return err == nil
}

// object is an object of a kind, without what is in it.
func (l *lab) object(kind, name string) *unstructured.Unstructured {
	versions := map[string]string{"Widget": group + "/v1", "ConfigMap": "v1", "Cleaner": v1alpha1.GroupVersion.String(), "ClusterCleaner": v1alpha1.GroupVersion.String()}
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(versions[kind])
	u.SetKind(kind)
	u.SetName(name)
	if kind != "ClusterCleaner" {
		u.SetNamespace(l.ns)
	}
	return u
}

// gone waits until an object is gone.
func (l *lab) gone(kind, name string) {
	l.Helper()
	l.eventually(fmt.Sprintf("%s %s goes", kind, name), func() string {
		if !l.exists(kind, name) {
			return ""
		}
		if kind != "Cleaner" {
			return "it is there"
		}
		c := &v1alpha1.Cleaner{}
		if err := l.Get(l.Context(), client.ObjectKey{Namespace: l.ns, Name: name}, c); err != nil {
			return err.Error()
		}
		text, err := yaml.Marshal(c.Status)
		l.must(err)
		return "it is there: " + string(text)
	})
}

// cleaner reads a Cleaner.
func (l *lab) cleaner(name string) *v1alpha1.Cleaner {
	l.Helper()
	c := &v1alpha1.Cleaner{}
	l.must(l.Get(l.Context(), client.ObjectKey{Namespace: l.ns, Name: name}, c))
	return c
}

// says waits until Ready of a Cleaner has a reason.
func (l *lab) says(name, reason string) {
	l.Helper()
	l.eventually(name+" says "+reason, func() string {
		if got := readyOf(l.cleaner(name)); got != reason {
			return "it says " + got
		}
		return ""
	})
}

// readyOf is the reason of a Cleaner's condition Ready.
func readyOf(c v1alpha1.Owner) string {
	if now := meta.FindStatusCondition(c.State().Conditions, v1alpha1.ConditionReady); now != nil {
		return now.Reason
	}
	return ""
}

// merge sends a merge patch.
func (l *lab) merge(as client.Client, kind, name, patch string) {
	l.Helper()
	l.must(as.Patch(l.Context(), l.object(kind, name), client.RawPatch("application/merge-patch+json", []byte(patch))))
}

// ask has a Cleaner be evaluated, as kubectl cleaner run does.
func (l *lab) ask(as client.Client, kind, name, id string) {
	l.Helper()
	l.merge(as, kind, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationRequestedAt, id))
}
