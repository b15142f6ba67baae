// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cookbook

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/live"
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
	stage func(t *testing.T, e *env) (goes, stays []client.Object)
	// protected are the names of Namespaces that are to be deleted where the manager allows it, and nowhere else.
	protected []string
}

// plays are the recipes that need no object to have been there for days.
func plays() map[string]play {
	return map[string]play{
		"kube-janitor":          {objects: janitor, protected: []string{"janitor-temp"}},
		"kyverno-ttl":           {objects: kyverno, protected: []string{"kyverno-temp"}},
		"old-pipelineruns":      {objects: pipelineRuns()},
		"old-release-revisions": {stage: releaseRecords},
		"old-replicasets":       {stage: replicaSets},
		"old-revisions":         {objects: revisions()},
		"old-taskruns":          {objects: taskRuns()},
		"stale-leases":          {objects: leases},
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

// taskRuns are five of one Task, of which two are old enough and beyond three in all; two of another one, which are left although they are old.
func taskRuns() string {
	const run = `
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: %s}
spec: {taskRef: {name: %s}}
status: {podName: a, startTime: "2020-01-01T00:00:00Z"%s, conditions: [{type: Succeeded, status: "%s"}]}`
	var texts []string
	for _, one := range []struct{ name, task, finished, succeeded string }{
		{name: "go-scan-1", task: "scan", finished: "2020-01-02T00:00:00Z", succeeded: "True"},
		{name: "go-scan-2", task: "scan", finished: "2020-01-03T00:00:00Z", succeeded: "False"},
		{name: "scan-3", task: "scan", finished: "2020-01-04T00:00:00Z", succeeded: "True"},
		{name: "scan-4", task: "scan", finished: time.Now().UTC().Format(time.RFC3339), succeeded: "True"},
		{name: "scan-5", task: "scan", succeeded: "Unknown"},
		{name: "lint-1", task: "lint", finished: "2020-01-02T00:00:00Z", succeeded: "True"},
		{name: "lint-2", task: "lint", finished: "2020-01-03T00:00:00Z", succeeded: "True"},
	} {
		at := ""
		if one.finished != "" {
			at = fmt.Sprintf(", completionTime: %q", one.finished)
		}
		texts = append(texts, fmt.Sprintf(run, one.name, one.task, at, one.succeeded))
	}
	return strings.Join(texts, "\n---")
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
func replicaSets(t *testing.T, e *env) (goes, stays []client.Object) {
	t.Helper()
	ns := namespace(t, e, "old-replicasets")
	labels := map[string]string{"app": "web"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/web:1"}}}},
		},
	}
	if err := e.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	list := &appsv1.ReplicaSetList{}
	for revision, version := range []string{"1", "2", "3", "4", "5", "6", "1"} {
		patch := fmt.Appendf(nil, `{"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example.com/web:%s"}]}}}}`, version)
		if err := e.Patch(t.Context(), d, client.RawPatch("application/strategic-merge-patch+json", patch)); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(revision + 1)
		live.Eventually(t, "the Deployment has revision "+want, func() string {
			if err := e.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				return err.Error()
			}
			if got := d.Annotations["deployment.kubernetes.io/revision"]; got != want {
				return "it has " + got
			}
			return ""
		})
	}
	if err := e.List(t.Context(), list, client.InNamespace(ns)); err != nil {
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

// releaseRecords are those of eight revisions of a release, the last three of which failed: of the three oldest two go, as the third is
// deployed. A Secret with the labels of a record is none.
func releaseRecords(t *testing.T, e *env) (goes, stays []client.Object) {
	t.Helper()
	ns := namespace(t, e, "old-release-revisions")
	const deployed, last, kept = 3, 8, 5
	for revision := 1; revision <= last; revision++ {
		status := "superseded"
		switch {
		case revision == deployed:
			status = "deployed"
		case revision > last-3:
			status = "failed"
		}
		record := &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: fmt.Sprintf("sh.helm.release.v1.web.v%d", revision),
				Labels: map[string]string{"owner": "helm", "name": "web", "version": fmt.Sprint(revision), "status": status},
			},
			Type: "helm.sh/release.v1",
			Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"name": "web", "info": {"status": %q}, "chart": {}}`, status)))},
		}
		if revision <= last-kept && revision != deployed {
			goes = append(goes, record)
		} else {
			stays = append(stays, record)
		}
	}
	backup := stays[0].DeepCopyObject().(*corev1.Secret)
	backup.Name, backup.Labels["version"], backup.Labels["status"] = "backup", "1", "superseded"
	stays = append(stays, backup)
	for _, o := range slices.Concat(goes, stays) {
		gvk := o.GetObjectKind().GroupVersionKind()
		if err := e.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(gvk) // the client empties it
	}
	return goes, stays
}

// namespace makes one for a recipe.
func namespace(t *testing.T, e *env, recipe string) string {
	t.Helper()
	ns, err := e.Namespace(t.Context(), recipe)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// refused are the recipes that are about nothing but Namespaces: without the manager's leave they are invalid.
func refused() []string { return []string{"empty-namespaces", "old-previews"} }

// slow are the recipes that wait for days, or for what only a kubelet can say. kubectl cleaner test plays them.
func slow() []string {
	return []string{
		"completed-jobs", "crash-looping-pods", "crds-without-instances", "daemonsets-without-nodes", "evicted-pods", "failed-jobs", "finished-pods", "image-pull-pods", "old-preview-releases", "pending-pods",
		"scaled-down-deployments", "scaled-down-statefulsets", "stuck-finalizers", "suspended-jobs",
	}
}

// scene is a recipe with what was made for it.
type scene struct {
	goes, stays, protected []thing
}

// make makes the objects of a play.
func (e *env) make(t *testing.T, recipe string, p play) *scene {
	t.Helper()
	s := &scene{}
	if p.stage != nil {
		goes, stays := p.stage(t, e)
		for _, o := range goes {
			s.goes = append(s.goes, newThing(o))
		}
		for _, o := range stays {
			s.stays = append(s.stays, newThing(o))
		}
		return s
	}
	ns := namespace(t, e, recipe)
	var configuration *unstructured.Unstructured
	for text := range strings.SplitSeq(p.objects, "\n---") {
		o := e.apply(t, ns, text, configuration)
		switch one := newThing(o); {
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

// apply makes an object of a namespace, or of where it says, with its controller, if there is one, and then its status.
func (e *env) apply(t *testing.T, ns, text string, controller *unstructured.Unstructured) *unstructured.Unstructured {
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
	if err := e.Create(t.Context(), o); err != nil {
		t.Fatalf("cannot create %s %s: %s", o.GetKind(), o.GetName(), err)
	}
	if status != nil {
		o.Object["status"] = status
		if err := e.Status().Update(t.Context(), o); err != nil {
			t.Fatalf("cannot write the status of %s %s: %s", o.GetKind(), o.GetName(), err)
		}
	}
	return o
}

// newThing returns an object with the name by which a status shows it.
func newThing(o client.Object) thing {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		u = &unstructured.Unstructured{}
		u.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
		u.SetNamespace(o.GetNamespace())
		u.SetName(o.GetName())
	}
	gvk := u.GroupVersionKind()
	return thing{u, observed.FormatName(gvk.Kind, u.GetNamespace(), u.GetName())}
}

// there says whether an object is there, and not terminating.
func (e *env) there(t *testing.T, o thing) bool {
	t.Helper()
	now := o.DeepCopy()
	err := e.Get(t.Context(), client.ObjectKeyFromObject(o), now)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil && now.GetDeletionTimestamp() == nil
}

// withholds says what a recipe has yet to say of Namespaces that it may not delete.
func withholds(c *v1alpha1.ClusterCleaner, protected []thing) string {
	for _, o := range protected {
		if !slices.ContainsFunc(c.Status.LastEvaluation.Withheld, func(w v1alpha1.Withheld) bool {
			return w.Object == o.shown && strings.Contains(w.Because, "--allow-protected-kinds=namespaces")
		}) {
			return fmt.Sprintf("%s is not withheld, but %v is", o.shown, c.Status.LastEvaluation.Withheld)
		}
	}
	return ""
}

// rests says what a recipe has yet to do that has nothing to do but what it may not.
func rests(c *v1alpha1.ClusterCleaner) string {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || !slices.Contains([]string{v1alpha1.ReasonNothingToDo, v1alpha1.ReasonProtected, v1alpha1.ReasonEvaluationFailed}, ready.Reason) {
		return fmt.Sprintf("it says %v", ready)
	}
	return ""
}

// names are those of a status, sorted.
func names(things []thing) []string {
	var out []string
	for _, o := range things {
		out = append(out, o.shown)
	}
	slices.Sort(out)
	return out
}

// Each recipe is applied as it is, and says what it would do. Then it is made to do it. What needs the manager's leave
// besides is withheld by a manager without, and deleted by one with it.
func TestWhatIsOver(t *testing.T) {
	e := shared
	without, err := operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Name: "-without", Args: []string{"--min-interval=100ms"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { live.Judge(t, e, e.Dir(), e.audit, "namespaces") })
	scenes := map[string]*scene{}
	for recipe, p := range plays() {
		scenes[recipe] = e.make(t, recipe, p)
	}
	for recipe, s := range scenes {
		e.recipe(t, recipe)
		want := names(s.goes)
		live.Eventually(t, recipe+" says what it would delete", func() string {
			c := e.recipe(t, recipe)
			if diff := gocmp.Diff(want, would(c)); diff != "" {
				return "(-want +got):\n" + diff
			}
			return ""
		})
		for _, o := range slices.Concat(s.goes, s.stays, s.protected) {
			if !e.there(t, o) {
				t.Errorf("%s: %s is gone, and the recipe is in DryRun", recipe, o.shown)
			}
		}
	}
	if t.Failed() {
		return
	}

	for recipe := range scenes {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"mode": "Enforce"}}`))
		if err := e.Patch(t.Context(), e.recipe(t, recipe), patch); err != nil {
			t.Fatal(err)
		}
	}
	for recipe, s := range scenes {
		for _, o := range s.goes {
			live.Eventually(t, recipe+" deletes "+o.shown, func() string {
				if e.there(t, o) {
					return "it is there"
				}
				return ""
			})
		}
	}
	for recipe, s := range scenes {
		live.Eventually(t, recipe+" has nothing left to do", func() string {
			c := e.recipe(t, recipe)
			return cmp.Or(rests(c), withholds(c, s.protected))
		})
		for _, o := range slices.Concat(s.stays, s.protected) {
			if !e.there(t, o) {
				t.Errorf("%s: %s is gone", recipe, o.shown)
			}
		}
	}

	for _, recipe := range refused() {
		e.recipe(t, recipe)
		live.Eventually(t, recipe+" is refused", func() string {
			valid := meta.FindStatusCondition(e.recipe(t, recipe).Status.Conditions, v1alpha1.ConditionValid)
			if valid == nil || valid.Status != metav1.ConditionFalse || !strings.Contains(valid.Message, "--allow-protected-kinds=namespaces") {
				return fmt.Sprintf("it says %v", valid)
			}
			return ""
		})
	}

	if err := without.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-without.Exited()
	if _, err := operator.Run(t.Context(), e.Cluster, operator.Options{
		Binary: e.binary, Name: "-with", Args: []string{"--min-interval=100ms", "--allow-protected-kinds=namespaces", "--allow-protected-kinds=customresourcedefinitions.apiextensions.k8s.io"},
	}); err != nil {
		t.Fatal(err)
	}
	for recipe, s := range scenes {
		for _, o := range s.protected {
			live.Eventually(t, recipe+" deletes "+o.shown, func() string {
				if e.there(t, o) {
					return "it is there"
				}
				return ""
			})
		}
		for _, o := range s.stays {
			if !e.there(t, o) {
				t.Errorf("%s: %s is gone", recipe, o.shown)
			}
		}
	}

	// The others wait for what takes days. The operator may read, with the rights that they say they need, what they look at.
	for _, recipe := range slices.Concat(refused(), slow()) {
		e.recipe(t, recipe)
		live.Eventually(t, recipe+" can read what it looks at", func() string {
			conditions := e.recipe(t, recipe).Status.Conditions
			for _, kind := range []string{v1alpha1.ConditionValid, v1alpha1.ConditionTargetsResolved, v1alpha1.ConditionReady} {
				if c := meta.FindStatusCondition(conditions, kind); c == nil || c.Status != metav1.ConditionTrue {
					return fmt.Sprintf("it says %v", c)
				}
			}
			return ""
		})
	}
	pending := map[string]bool{}
	for _, p := range e.recipe(t, "empty-namespaces").Status.Pending {
		pending[p.Key] = true
	}
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system", operator.Namespace, scenes["kube-janitor"].stays[1].GetNamespace()} {
		if pending["Namespace "+name] {
			t.Errorf("empty-namespaces waits for namespace %s", name)
		}
	}
	if !pending["Namespace janitor-stays"] {
		t.Errorf("empty-namespaces does not wait for janitor-stays, which is empty, but for %v", pending)
	}
}
