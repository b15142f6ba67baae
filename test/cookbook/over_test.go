// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/invariants"
	"github.com/vtex/cleaner/test/operator"
)

// thing is an object that a play has made.
type thing struct {
	*unstructured.Unstructured
	// shown is how a status names it.
	shown string
}

// play is what a recipe is played with.
type play struct {
	// objects are made before, with their status; those whose name begins with go- are to be deleted, and no others.
	objects string
	// stage makes what cannot be written down, and gives the names of what is to be deleted.
	stage func(t *testing.T, l *lab) (goes, stays []client.Object)
	// protected are the names of Namespaces that are to be deleted where the manager allows it, and nowhere else.
	protected []string
}

// plays are the recipes that need no object to have been there for days.
func plays() map[string]play {
	return map[string]play{
		"kube-janitor":     {objects: janitor, protected: []string{"janitor-temp"}},
		"kyverno-ttl":      {objects: kyverno, protected: []string{"kyverno-temp"}},
		"old-pipelineruns": {objects: pipelineRuns()},
		"old-replicasets":  {stage: replicaSets},
		"old-revisions":    {objects: revisions()},
		"stale-leases":     {objects: leases},
	}
}

const janitor = `
{apiVersion: v1, kind: Namespace, metadata: {name: janitor-temp, annotations: {janitor/expires: "2020-01-01"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: janitor-stays, annotations: {janitor/ttl: forever}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: go-day, annotations: {janitor/expires: "2020-01-31"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: go-minute, annotations: {janitor/expires: "2020-01-31T10:30"}}}
---
{apiVersion: v1, kind: Service, metadata: {name: go-second, annotations: {janitor/expires: "2020-01-31T10:30:00Z"}}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: go-ttl, annotations: {janitor/ttl: 1s}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: later, annotations: {janitor/expires: "2199-01-01", janitor/ttl: 9999d}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: typo, annotations: {janitor/expires: "1.1.2020", janitor/ttl: "7"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}`

const kyverno = `
{apiVersion: v1, kind: Namespace, metadata: {name: kyverno-temp, labels: {cleanup.kyverno.io/ttl: "2020-01-31"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: go-day, labels: {cleanup.kyverno.io/ttl: "2020-01-31"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: go-time, labels: {cleanup.kyverno.io/ttl: "2020-01-31T103000Z"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: go-ttl, labels: {cleanup.kyverno.io/ttl: 1s}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: later, labels: {cleanup.kyverno.io/ttl: "2199-01-01"}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: old-enough-tomorrow, labels: {cleanup.kyverno.io/ttl: 1d}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: typo, labels: {cleanup.kyverno.io/ttl: soon}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain}}`

const leases = `
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: go-old}, spec: {holderIdentity: old-1, renewTime: "2020-01-01T00:00:00.000000Z"}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: held}, spec: {holderIdentity: new-1, renewTime: "2199-01-01T00:00:00.000000Z"}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: new}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: cookbook-node, namespace: kube-node-lease}, spec: {holderIdentity: node, renewTime: "2020-01-01T00:00:00.000000Z"}}`

// pipelineRuns are 13 of one Pipeline that have finished, of which three are beyond ten; and others.
func pipelineRuns() string {
	const run = `
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: %s}
spec: {pipelineRef: {name: %s}}
status: {completionTime: "2020-01-%02dT00:00:00Z", conditions: [{type: Succeeded, status: "True"}]}`
	texts := []string{fmt.Sprintf(run, "only-one", "deploy", 1)}
	for day := 1; day <= 13; day++ {
		name := "build-"
		if day <= 3 {
			name = "go-build-"
		}
		texts = append(texts, fmt.Sprintf(run, fmt.Sprint(name, day), "build", day))
	}
	return strings.Join(append(texts, `
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: running}
spec: {pipelineRef: {name: build}}
status: {startTime: "2020-01-01T00:00:00Z", conditions: [{type: Succeeded, status: Unknown}]}`), "\n---")
}

// revisions are five of one Configuration without a route, of which two are beyond three; and one with a route.
func revisions() string {
	texts := []string{`
apiVersion: serving.knative.dev/v1
kind: Configuration
metadata: {name: shop}
spec: {template: {spec: {containers: [{image: example.com/shop}]}}}`}
	for generation := 1; generation <= 6; generation++ {
		name, state := "shop-", "reserve"
		switch generation {
		case 1, 3:
			name = "go-shop-"
		case 2:
			state = "active"
		}
		texts = append(texts, fmt.Sprintf(`
apiVersion: serving.knative.dev/v1
kind: Revision
metadata:
  name: %s%d
  labels: {serving.knative.dev/configurationGeneration: "%[2]d", serving.knative.dev/routingState: %s}
  annotations: {serving.knative.dev/routingStateModified: "2020-01-01T00:00:00Z"}
spec: {containers: [{image: example.com/shop}]}
status: {conditions: [{type: Active, status: "False", lastTransitionTime: "2020-01-01T00:00:00Z"}]}`, name, generation, state))
	}
	return strings.Join(texts, "\n---")
}

// replicaSets are those that the Deployment controller makes of six versions of a Deployment without replicas, after the
// first of which somebody has rolled back to it: of the six the three oldest revisions go, and the first is the newest.
func replicaSets(t *testing.T, l *lab) (goes, stays []client.Object) {
	t.Helper()
	ns := namespace(t, l, "old-replicasets")
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/web:1"}}}},
		},
	}
	if err := l.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	list := &appsv1.ReplicaSetList{}
	for revision, version := range []string{"1", "2", "3", "4", "5", "6", "1"} {
		patch := fmt.Appendf(nil, `{"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/web:%s"}]}}}}`, version)
		if err := l.Patch(t.Context(), d, client.RawPatch("application/strategic-merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(revision + 1)
		eventually(t, "the Deployment has revision "+want, func() string {
			if err := l.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err.Error()
			}
			if got := d.Annotations["deployment.kubernetes.io/revision"]; got != want {
				return "it has " + got
			}
			return ""
		})
	}
	if err := l.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		rs := &list.Items[i]
		rs.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		switch rs.Annotations["deployment.kubernetes.io/revision"] {
		case "2", "3", "4":
			goes = append(goes, rs)
		default:
			stays = append(stays, rs)
		}
	}
	if len(goes) != 3 || len(stays) != 3 {
		t.Fatalf("the Deployment has %d ReplicaSets to delete and %d others", len(goes), len(stays))
	}
	return goes, stays
}

// namespace makes one for a recipe.
func namespace(t *testing.T, l *lab, recipe string) string {
	t.Helper()
	ns, err := l.Namespace(t.Context(), recipe)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// scene is a recipe with what was made for it.
type scene struct {
	recipe                 *unstructured.Unstructured
	goes, stays, protected []thing
}

// make makes the objects of a play.
func (l *lab) make(t *testing.T, name string, p play) *scene {
	t.Helper()
	s := &scene{recipe: recipe(t, name, "DryRun")}
	if p.stage != nil {
		goes, stays := p.stage(t, l)
		for _, o := range goes {
			s.goes = append(s.goes, l.thing(t, o))
		}
		for _, o := range stays {
			s.stays = append(s.stays, l.thing(t, o))
		}
		return s
	}
	ns := namespace(t, l, name)
	var configuration *unstructured.Unstructured
	for text := range strings.SplitSeq(p.objects, "\n---") {
		o := l.create(t, ns, text, configuration)
		switch one := l.thing(t, o); {
		case o.GetKind() == "Configuration":
			configuration = o
		case strings.HasPrefix(o.GetName(), "go-"):
			s.goes = append(s.goes, one)
		case slices.Contains(p.protected, o.GetName()):
			s.protected = append(s.protected, one)
		default:
			s.stays = append(s.stays, one)
		}
	}
	return s
}

// create makes an object of a namespace, or of where it says, with its controller, if there is one, and then its status.
func (l *lab) create(t *testing.T, ns, text string, controller *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("cannot read %s: %s", text, err)
	}
	if o.GetNamespace() == "" && o.GetKind() != "Namespace" {
		o.SetNamespace(ns)
	}
	if controller != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(controller, controller.GroupVersionKind())})
	}
	status := o.Object["status"]
	if err := l.Create(t.Context(), o); err != nil {
		t.Fatalf("cannot create %s %s: %s", o.GetKind(), o.GetName(), err)
	}
	if status != nil {
		o.Object["status"] = status
		if err := l.Status().Update(t.Context(), o); err != nil {
			t.Fatalf("cannot write the status of %s %s: %s", o.GetKind(), o.GetName(), err)
		}
	}
	return o
}

// thing is an object with the name by which a status shows it.
func (l *lab) thing(t *testing.T, o client.Object) thing {
	t.Helper()
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		u = &unstructured.Unstructured{}
		u.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
		u.SetNamespace(o.GetNamespace())
		u.SetName(o.GetName())
	}
	gvk := u.GroupVersionKind()
	mapping, err := l.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		t.Fatal(err)
	}
	shown := u.GetName() + "." + mapping.Resource.Resource
	if gvk.Group != "" {
		shown += "." + gvk.Group
	}
	shown += "/" + gvk.Version
	if u.GetNamespace() != "" {
		shown = u.GetNamespace() + "/" + shown
	}
	return thing{u, shown}
}

// left says whether an object is there, and not terminating.
func (l *lab) left(t *testing.T, o thing) bool {
	t.Helper()
	now := o.DeepCopy()
	err := l.Get(t.Context(), client.ObjectKeyFromObject(o), now)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil && now.GetDeletionTimestamp() == nil
}

// allLeft wants all of these objects to be left.
func (l *lab) allLeft(t *testing.T, things ...[]thing) {
	t.Helper()
	for _, o := range slices.Concat(things...) {
		if !l.left(t, o) {
			t.Errorf("%s is gone", o.shown)
		}
	}
}

// noneLeft waits until none of these objects is left.
func (l *lab) noneLeft(t *testing.T, things []thing) {
	t.Helper()
	for _, o := range things {
		eventually(t, o.shown+" is deleted", func() string {
			if l.left(t, o) {
				return "it is there"
			}
			return ""
		})
	}
}

// would are the objects that a recipe in DryRun says it would delete, sorted.
func would(s status) []string {
	var out []string
	for _, a := range s.LastActions {
		if strings.HasPrefix(a.Result, "would be deleted") {
			out = append(out, a.Object)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// shown are the names of objects in a status, sorted.
func shown(things []thing) []string {
	var out []string
	for _, o := range things {
		out = append(out, o.shown)
	}
	slices.Sort(out)
	return out
}

// withholds says what a recipe has yet to say of Namespaces that it may not delete.
func withholds(s status, protected []thing) string {
	for _, o := range protected {
		if !slices.ContainsFunc(s.LastEvaluation.Withheld, func(w struct{ Object, Because string }) bool {
			return w.Object == o.shown && strings.Contains(w.Because, "--allow-protected-kinds=namespaces")
		}) {
			return fmt.Sprintf("%s is not withheld, but %v is", o.shown, s.LastEvaluation.Withheld)
		}
	}
	return ""
}

// Each recipe is put into DryRun, as it comes, and says what it would do. Then it is made to do it. Namespaces are withheld
// by a manager that protects them, and deleted by one that does not.
func TestWhatIsOverGoes(t *testing.T) {
	l := need(t)
	witness, err := l.Witness()
	if err != nil {
		t.Fatal(err)
	}
	l.operate(t, "-over-without")
	l.installCRDs(t)
	scenes := map[string]*scene{}
	for name, p := range plays() {
		scenes[name] = l.make(t, name, p)
	}
	for name, s := range scenes {
		l.put(t, s.recipe)
		eventually(t, name+" says what it would delete", func() string {
			if diff := gocmp.Diff(shown(s.goes), would(l.status(t, s.recipe))); diff != "" {
				return "(-want +got):\n" + diff
			}
			return ""
		})
		l.allLeft(t, s.goes, s.stays, s.protected)
	}
	if t.Failed() {
		return
	}
	for name, s := range scenes {
		l.put(t, recipe(t, name, "Enforce"))
		l.noneLeft(t, s.goes)
		eventually(t, name+" has nothing left to do but what it may not", func() string { return withholds(l.status(t, s.recipe), s.protected) })
		l.allLeft(t, s.stays, s.protected)
	}

	l.operate(t, "-over-with", "--allow-protected-kinds=namespaces")
	for _, s := range scenes {
		l.noneLeft(t, s.protected)
		l.allLeft(t, s.stays)
	}
	empty := recipe(t, "empty-namespaces", "DryRun")
	l.put(t, empty)
	eventually(t, "empty-namespaces finds the one that is empty", func() string {
		found := would(l.status(t, empty))
		if !slices.Contains(found, "janitor-stays.namespaces/v1") {
			return fmt.Sprintf("it finds %v", found)
		}
		for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system", operator.Namespace, scenes["kube-janitor"].stays[1].GetNamespace()} {
			if slices.Contains(found, name+".namespaces/v1") {
				t.Errorf("empty-namespaces would delete namespace %s", name)
			}
		}
		return ""
	})
	l.judge(t, witness)
}

// installCRDs has the API server serve Knative's and Tekton's kinds.
func (l *lab) installCRDs(t *testing.T) {
	t.Helper()
	for _, find := range []func(context.Context) ([]string, error){cluster.KnativeServingCRDs, cluster.TektonCRDs} {
		files, err := find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.InstallCRDs(t.Context(), l.Config(), files...); err != nil {
			t.Fatal(err)
		}
	}
}

// judge holds what the operator did, as a witness saw it, against what it promises.
func (l *lab) judge(t *testing.T, witness *cluster.Witness) {
	t.Helper()
	events, err := witness.Events()
	if err != nil {
		t.Fatal(err)
	}
	log, err := invariants.ReadLogs(filepath.Join(l.Dir(), "manager*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range invariants.Check(&invariants.Record{
		Operator: operator.User, Audit: events, Log: log, Own: operator.Namespace, AllowedKinds: l.allowed,
		Protected: []string{"kube-system", "kube-public", "kube-node-lease", operator.Namespace},
	}) {
		if slices.Contains([]string{"I1", "I2", "I6"}, v.Invariant) { // the others are about Cleaners that are there at the end
			t.Error(v)
		}
	}
}
