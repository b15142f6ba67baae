// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
)

// shared is the control plane of all tests that need one; nil with -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Suite{Ready: func(ctx context.Context, c *cluster.Cluster) error {
		shared = c
		return cluster.InstallCRDs(ctx, c.Config(), "testdata/environments.yaml")
	}}.Main(m)
}

// lab is a namespace of a real API server.
type lab struct {
	*testing.T
	ns       string
	admin    kubernetes.Interface
	dynamic  dynamic.Interface
	actuator *Actuator
	told     []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane: not with -short")
	}
	l := &lab{T: t, ns: "t-" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))}
	l.ns = l.ns[:min(len(l.ns), 63)]
	var err error
	if l.admin, err = kubernetes.NewForConfig(shared.Config()); err != nil {
		t.Fatal(err)
	}
	if l.dynamic, err = dynamic.NewForConfig(shared.Config()); err != nil {
		t.Fatal(err)
	}
	if l.actuator, err = New(shared.Config(), fair.NewSlots(inFlight, clock.RealClock{})); err != nil {
		t.Fatal(err)
	}
	if _, err := l.admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lab) LimitWait(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (l *lab) WaitForPace(context.Context) error { return nil }
func (l *lab) MaySend(context.Context) error     { return nil }

func (l *lab) LogIntent(step *plan.Step, version string) {
	l.told = append(l.told, fmt.Sprint(step.Verb, " ", version))
}

func (l *lab) do(s *plan.Step) Outcome {
	l.Helper()
	return l.doAt(s, s.Object.ResourceVersion)
}

func (l *lab) doAt(s *plan.Step, version string) Outcome {
	l.Helper()
	return l.actuator.ExecuteStep(l.Context(), s, version, false, l)
}

// pod makes a Pod on a Node, with a container that has a grace period, and finalizers.
func (l *lab) pod(name string, finalizers ...string) observed.Object {
	l.Helper()
	_, err := l.admin.CoreV1().Pods(l.ns).Create(l.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Finalizers: finalizers},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
	return l.read(podsResource(), name)
}

// running gives a Pod the status of one that runs and is ready, so that budgets count it.
func (l *lab) running(name string) observed.Object {
	l.Helper()
	status := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	if _, err := l.admin.CoreV1().Pods(l.ns).Patch(l.Context(), name, types.StrategicMergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		l.Fatal(err)
	}
	return l.read(podsResource(), name)
}

func (l *lab) read(gvr schema.GroupVersionResource, name string) observed.Object {
	l.Helper()
	o := l.find(gvr, name)
	if o == nil {
		l.Fatalf("%s is not there", name)
	}
	return *o
}

// find is the object of a name; nil if there is none.
func (l *lab) find(gvr schema.GroupVersionResource, name string) *observed.Object {
	l.Helper()
	u, err := l.dynamic.Resource(gvr).Namespace(l.ns).Get(l.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		l.Fatal(err)
	}
	o := snapshot.FromUnstructured(gvr, u)
	return &o
}

// untouched says that an object is as it was.
func (l *lab) untouched(o observed.Object) {
	l.Helper()
	now := l.find(o.Resource, o.Name)
	if now == nil || now.ResourceVersion != o.ResourceVersion || now.UID != o.UID {
		l.Errorf("%s was touched: %+v", o.Ref, now)
	}
}

func environmentsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "environments"}
}

// custom makes an object of a kind that a CRD defines.
func (l *lab) custom(name string) observed.Object {
	l.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Environment",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app": name}},
		"spec":     map[string]any{"owner": "a-team"},
	}}
	if _, err := l.dynamic.Resource(environmentsResource()).Namespace(l.ns).Create(l.Context(), u, metav1.CreateOptions{}); err != nil {
		l.Fatal(err)
	}
	return l.read(environmentsResource(), name)
}

func patch(t v1alpha1.PatchType, body string) *plan.Patch {
	return &plan.Patch{Type: t, Body: []byte(body)}
}

// patches are one of each type, that set the label done.
func patches() map[v1alpha1.PatchType]string {
	return map[v1alpha1.PatchType]string{
		v1alpha1.PatchStrategic: `{"metadata":{"labels":{"done":"yes"}}}`,
		v1alpha1.PatchMerge:     `{"metadata":{"labels":{"done":"yes"}}}`,
		v1alpha1.PatchJSON:      `[{"op":"add","path":"/metadata/labels/done","value":"yes"}]`,
		v1alpha1.PatchApply:     `{"metadata":{"labels":{"done":"yes"}}}`,
	}
}

// steps are one of each kind, on the object of a Pod with a finalizer.
func steps(o observed.Object) map[string]*plan.Step {
	out := map[string]*plan.Step{
		"delete":          {Verb: plan.VerbDelete, Object: o},
		"evict":           {Verb: plan.VerbEvict, Object: o},
		"removeFinalizer": {Verb: plan.VerbRemoveFinalizer, Object: o, Finalizer: "example.com/b"},
	}
	for t, body := range patches() {
		out[string(t)] = &plan.Step{Verb: plan.VerbPatch, Object: o, Patch: patch(t, body)}
	}
	return out
}

func TestEachStepIsDone(t *testing.T) {
	for name := range steps(observed.Object{}) {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			o := l.pod("a", "example.com/a", "example.com/b")
			got := l.do(steps(o)[name])
			now := l.read(podsResource(), "a")
			if got.Kind != life.AnswerDone || got.Gone || got.Leaving != now.Terminating {
				t.Fatalf("it came to %+v", got)
			}
			done := now.Terminating
			switch name {
			case "removeFinalizer":
				done = slices.Equal(now.Finalizers, []string{"example.com/a"})
			case "delete", "evict":
			default:
				done = now.Labels["done"] == "yes" && now.Labels["app"] == "a"
			}
			if !done {
				t.Errorf("it is not done: %+v", now)
			}
			if name != "evict" && (got.Version != now.ResourceVersion || got.Now == nil || got.Now.ResourceVersion != now.ResourceVersion || got.Now.Value == nil) {
				t.Errorf("the answer is %+v, and the object %+v", got, now)
			}
			if len(l.told) != 1 {
				t.Errorf("%d intents", len(l.told))
			}
		})
	}
}

func TestAnotherVersionOrObjectIsNotTouched(t *testing.T) {
	l := newLab(t)
	for name := range steps(observed.Object{}) {
		t.Run(name, func(t *testing.T) {
			before := l.pod(strings.ToLower(name), "example.com/a", "example.com/b")
			now := l.running(before.Name)

			got := l.do(steps(before)[name])
			if got.Kind != life.AnswerConflict || got.Version != now.ResourceVersion || got.Now == nil || got.Sight.UID != now.UID || got.Gone || got.Why == "" {
				t.Errorf("at an older version it came to %+v", got)
			}
			other := now
			other.UID = "another"
			if got := l.do(steps(other)[name]); got.Kind != life.AnswerReplaced || !got.Gone || got.Now != nil {
				t.Errorf("for another object of the name it came to %+v", got)
			}
			l.untouched(now)

			gone := now
			gone.Name = "gone"
			if got := l.do(steps(gone)[name]); got.Kind != life.AnswerNotFound || !got.Gone {
				t.Errorf("for an object that is gone it came to %+v", got)
			}
			if made := l.find(podsResource(), "gone"); made != nil {
				t.Errorf("an object was made: %+v", made)
			}
		})
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	l := newLab(t)
	for name := range steps(observed.Object{}) {
		t.Run(name, func(t *testing.T) {
			o := l.pod(strings.ToLower(name), "example.com/a", "example.com/b")
			try := func(o observed.Object) Outcome {
				return l.actuator.ExecuteStep(t.Context(), steps(o)[name], o.ResourceVersion, true, l)
			}
			if got := try(o); got.Kind != life.AnswerDone || got.Version != o.ResourceVersion || got.Leaving {
				t.Errorf("it came to %+v", got)
			}
			l.untouched(o)
			old := o
			old.ResourceVersion = "1"
			if got := try(old); got.Kind != life.AnswerConflict {
				t.Errorf("at an older version it came to %+v", got)
			}
		})
	}
	if len(l.told) > 0 {
		t.Errorf("dry runs were told of: %v", l.told)
	}
}

func TestDeleteSaysWhatIsLeft(t *testing.T) {
	l := newLab(t)
	soon, now := int64(5), int64(0)
	o := l.pod("slow")
	got := l.do(&plan.Step{Verb: plan.VerbDelete, Object: o, Grace: &soon})
	if got.Kind != life.AnswerDone || !got.Leaving || got.Gone || got.Now == nil || !got.Now.Terminating {
		t.Fatalf("within a grace period it came to %+v", got)
	}
	if diff := cmp.Diff(l.find(podsResource(), "slow").Value, got.Now.Value); diff != "" {
		t.Errorf("what is left (-live +answered):\n%s", diff)
	}
	if p, err := l.admin.CoreV1().Pods(l.ns).Get(t.Context(), "slow", metav1.GetOptions{}); err != nil || *p.DeletionGracePeriodSeconds != soon {
		t.Errorf("the Pod has another grace: %v, %v", p.DeletionGracePeriodSeconds, err)
	}
	if got := l.doAt(&plan.Step{Verb: plan.VerbDelete, Object: *got.Now, Grace: &now}, got.Version); got.Kind != life.AnswerDone || !got.Gone || got.Now != nil {
		t.Errorf("without grace it came to %+v", got)
	}
	if l.find(podsResource(), "slow") != nil {
		t.Error("it is there")
	}
	l.pod("changed")
	before := l.running("changed")
	p := patch(v1alpha1.PatchStrategic, `{"status":{"message":"patched"}}`)
	p.Subresource = "status"
	patched := l.do(&plan.Step{Verb: plan.VerbPatch, Object: before, Patch: p})
	got = l.doAt(&plan.Step{Verb: plan.VerbDelete, Object: before, Grace: &soon}, patched.Version)
	if got.Now == nil {
		t.Fatalf("after a patch it came to %+v", got)
	}
	if diff := cmp.Diff(l.find(podsResource(), "changed").Value, got.Now.Value); diff != "" {
		t.Errorf("what is left after a patch (-live +answered):\n%s", diff)
	}
	custom := l.custom("quick")
	if got := l.do(&plan.Step{Verb: plan.VerbDelete, Object: custom}); got.Kind != life.AnswerDone || !got.Gone || !got.Leaving {
		t.Errorf("of a kind without grace it came to %+v", got)
	}
}

func TestDependents(t *testing.T) {
	l := newLab(t)
	gvr := corev1.SchemeGroupVersion.WithResource("configmaps")
	for policy, want := range map[v1alpha1.PropagationPolicy]string{
		"": "", v1alpha1.PropagateBackground: "",
		v1alpha1.PropagateForeground: metav1.FinalizerDeleteDependents, v1alpha1.PropagateOrphan: metav1.FinalizerOrphanDependents,
	} {
		t.Run("As"+string(policy), func(t *testing.T) {
			name := "c" + strings.ToLower(string(policy))
			if _, err := l.admin.CoreV1().ConfigMaps(l.ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			got := l.do(&plan.Step{Verb: plan.VerbDelete, Object: l.read(gvr, name), Propagation: policy})
			switch {
			case got.Kind != life.AnswerDone:
				t.Errorf("it came to %+v", got)
			case want == "" && !got.Gone:
				t.Errorf("it is not gone: %+v", got)
			case want != "" && (got.Now == nil || !slices.Contains(got.Now.Finalizers, want)):
				t.Errorf("it does not wait with %s: %+v", want, got.Now)
			}
		})
	}
}

func TestABudgetForbidsAnEviction(t *testing.T) {
	l := newLab(t)
	l.pod("a")
	o := l.running("a")
	budgets := l.admin.PolicyV1().PodDisruptionBudgets(l.ns)
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "all-of-them"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		b, err := budgets.Get(ctx, "all-of-them", metav1.GetOptions{})
		return err == nil && b.Status.ObservedGeneration == b.Generation && b.Status.CurrentHealthy == 1, err
	})
	if err != nil {
		t.Fatal(err)
	}
	evict := &plan.Step{Verb: plan.VerbEvict, Object: o}
	if got := l.do(evict); got.Kind != life.AnswerRefused || !strings.Contains(got.Why, "all-of-them") || got.Leaving {
		t.Errorf("it came to %+v", got)
	}
	if got := l.actuator.ExecuteStep(t.Context(), evict, o.ResourceVersion, true, l); got.Kind != life.AnswerRefused {
		t.Errorf("a dry run came to %+v", got)
	}
	l.untouched(o)
	if err := budgets.Delete(t.Context(), "all-of-them", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got Outcome
	err = wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		got = l.do(evict) // the eviction knows of budgets by a watch
		return got.Kind != life.AnswerRefused, nil
	})
	if err != nil || got.Kind != life.AnswerDone || !got.Leaving || got.Gone {
		t.Errorf("without the budget it came to %+v", got)
	}
}

func TestPatchesOfSubresources(t *testing.T) {
	l := newLab(t)
	t.Run("Status", func(t *testing.T) {
		l.pod("a")
		o := l.running("a")
		p := patch(v1alpha1.PatchStrategic, `{"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget","status":"True"}]}}`)
		p.Subresource = "status"
		got := l.do(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: p})
		pod, err := l.admin.CoreV1().Pods(l.ns).Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != life.AnswerDone || got.Version != pod.ResourceVersion || got.Now == nil {
			t.Errorf("it came to %+v", got)
		}
		if pod.Status.Phase != corev1.PodFailed || len(pod.Status.Conditions) != 2 {
			t.Errorf("it is not done: %+v", pod.Status)
		}
	})
	t.Run("Scale", func(t *testing.T) {
		_, err := l.admin.CoreV1().ReplicationControllers(l.ns).Create(t.Context(), &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "r"}, Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "r"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		gvr := corev1.SchemeGroupVersion.WithResource("replicationcontrollers")
		o := l.read(gvr, "r")
		version := o.ResourceVersion
		for _, p := range []*plan.Patch{
			patch(v1alpha1.PatchMerge, `{"spec":{"replicas":5}}`),
			patch(v1alpha1.PatchJSON, `[{"op":"replace","path":"/spec/replicas","value":3}]`),
			patch(v1alpha1.PatchApply, `{"apiVersion":"autoscaling/v1","kind":"Scale","spec":{"replicas":2}}`),
		} {
			p.Subresource, p.Force = "scale", p.Type == v1alpha1.PatchApply
			got := l.doAt(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: p}, version)
			if got.Kind != life.AnswerDone || got.Version == version || got.Version != l.read(gvr, "r").ResourceVersion || got.Now != nil {
				t.Fatalf("%s of a scale came to %+v", p.Type, got)
			}
			version = got.Version
		}
	})
	t.Run("None", func(t *testing.T) {
		o := l.custom("c")
		p := patch(v1alpha1.PatchMerge, `{"spec":{"replicas":0}}`)
		p.Subresource = "scale"
		got := l.do(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: p})
		if got.Kind != life.AnswerRefused || !strings.Contains(got.Why, `no subresource "scale"`) || got.Gone {
			t.Errorf("it came to %+v", got)
		}
		o.Name = "gone"
		if got := l.do(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: p}); got.Kind != life.AnswerNotFound || !got.Gone {
			t.Errorf("for an object that is gone it came to %+v", got)
		}
	})
}

func TestAPatchThatChangesNothingIsDone(t *testing.T) {
	l := newLab(t)
	for typ, body := range patches() {
		t.Run(string(typ), func(t *testing.T) {
			o := l.pod(strings.ToLower(string(typ)))
			first := l.do(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: patch(typ, body)})
			again := l.doAt(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: patch(typ, body)}, first.Version)
			if first.Kind != life.AnswerDone || again.Kind != life.AnswerDone || again.Version != first.Version {
				t.Errorf("it came to %+v and then to %+v", first, again)
			}
		})
	}
}

func TestPatchesThatAreRefused(t *testing.T) {
	l := newLab(t)
	custom, pod := l.custom("c"), l.pod("a")
	for name, tc := range map[string]struct {
		o     observed.Object
		patch *plan.Patch
		want  string
	}{
		"StrategicOfACRD":  {custom, patch(v1alpha1.PatchStrategic, `{"metadata":{"labels":{"a":"b"}}}`), "write type: Merge"},
		"NoSuchPath":       {pod, patch(v1alpha1.PatchJSON, `[{"op":"replace","path":"/none/of/these","value":1}]`), "may not fit the object"},
		"ItsOwnTest":       {pod, patch(v1alpha1.PatchJSON, `[{"op":"test","path":"/metadata/name","value":"other"}]`), "may not fit the object"},
		"Immutable":        {pod, patch(v1alpha1.PatchJSON, `[{"op":"replace","path":"/spec/nodeName","value":"other"}]`), "is invalid"},
		"ImmutableByMerge": {pod, patch(v1alpha1.PatchMerge, `{"spec":{"nodeName":"other"}}`), "is invalid"},
		"OwnedByOthers":    {pod, patch(v1alpha1.PatchApply, `{"metadata":{"labels":{"app":"mine"}}}`), "conflict with"},
	} {
		t.Run(name, func(t *testing.T) {
			got := l.do(&plan.Step{Verb: plan.VerbPatch, Object: tc.o, Patch: tc.patch})
			if got.Kind != life.AnswerRefused || !strings.Contains(got.Why, tc.want) || got.Version != tc.o.ResourceVersion {
				t.Errorf("it came to %+v", got)
			}
			l.untouched(tc.o)
		})
	}
	forced := patch(v1alpha1.PatchApply, `{"metadata":{"labels":{"app":"mine"}}}`)
	forced.Force = true
	if got := l.do(&plan.Step{Verb: plan.VerbPatch, Object: pod, Patch: forced}); got.Kind != life.AnswerDone || got.Now.Labels["app"] != "mine" {
		t.Errorf("by force it came to %+v", got)
	}
}

func TestWhoAppliesIsNamed(t *testing.T) {
	l := newLab(t)
	o := l.pod("a")
	// What the patch says of its object does not count.
	body := `{"apiVersion":"v2","kind":"Secret","metadata":{"name":"b","namespace":"other","uid":"u","resourceVersion":"1","labels":{"x":"y"}}}`
	if got := l.do(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: patch(v1alpha1.PatchApply, body)}); got.Kind != life.AnswerDone || got.Now.Labels["x"] != "y" {
		t.Fatalf("it came to %+v", got)
	}
	pod, err := l.admin.CoreV1().Pods(l.ns).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(pod.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == fieldManager && m.Operation == metav1.ManagedFieldsOperationApply
	}) {
		t.Errorf("the managers are %+v", pod.ManagedFields)
	}
}

func TestFinalizers(t *testing.T) {
	l := newLab(t)
	remove := func(o observed.Object, name string) *plan.Step {
		return &plan.Step{Verb: plan.VerbRemoveFinalizer, Object: o, Finalizer: name}
	}
	o := l.pod("a", "example.com/0", "example.com/1", "example.com/2", "example.com/3")
	got := l.do(remove(o, "example.com/1"))
	if got.Kind != life.AnswerDone || !slices.Equal(l.read(podsResource(), "a").Finalizers, []string{"example.com/0", "example.com/2", "example.com/3"}) {
		t.Fatalf("it came to %+v", got)
	}
	// Somebody has taken it off: this is what it was about.
	if again := l.do(remove(o, "example.com/1")); again.Kind != life.AnswerDone || again.Version != got.Version || again.Now == nil {
		t.Errorf("for one that is off it came to %+v", again)
	}
	// At this version another one has its place.
	if moved := l.doAt(remove(o, "example.com/2"), got.Version); moved.Kind != life.AnswerRefused {
		t.Errorf("for one that has moved it came to %+v", moved)
	}
	if left := l.read(podsResource(), "a").Finalizers; len(left) != 3 {
		t.Errorf("%v are left", left)
	}

	last := l.custom("last")
	if got := l.do(&plan.Step{Verb: plan.VerbPatch, Object: last, Patch: patch(v1alpha1.PatchMerge, `{"metadata":{"finalizers":["example.com/a"]}}`)}); got.Kind != life.AnswerDone {
		t.Fatalf("it came to %+v", got)
	}
	deleted := l.do(&plan.Step{Verb: plan.VerbDelete, Object: l.read(environmentsResource(), "last")})
	if deleted.Now == nil || !deleted.Leaving || deleted.Gone {
		t.Fatalf("it came to %+v", deleted)
	}
	if got := l.doAt(remove(*deleted.Now, "example.com/a"), deleted.Version); got.Kind != life.AnswerDone || !got.Gone || got.Now != nil {
		t.Errorf("for the last one it came to %+v", got)
	}
	if l.find(environmentsResource(), "last") != nil {
		t.Error("it is there")
	}
}

func TestStepsInSequence(t *testing.T) {
	l := newLab(t)
	l.pod("a")
	o := l.running("a")
	p := patch(v1alpha1.PatchStrategic, `{"status":{"phase":"Failed"}}`)
	p.Subresource = "status"
	failed := l.do(&plan.Step{Verb: plan.VerbPatch, Object: o, Patch: p})
	now := int64(0)
	remove := &plan.Step{Verb: plan.VerbDelete, Object: o, Grace: &now}
	if got := l.do(remove); got.Kind != life.AnswerConflict {
		t.Errorf("at the version before the patch it came to %+v", got)
	}
	if got := l.doAt(remove, failed.Version); got.Kind != life.AnswerDone || !got.Gone {
		t.Errorf("at the version that was answered it came to %+v", got)
	}
	if want := []string{"patch " + o.ResourceVersion, "delete " + o.ResourceVersion, "delete " + failed.Version}; !slices.Equal(l.told, want) {
		t.Errorf("told were %v, want %v", l.told, want)
	}
}

// opinion is a webhook that denies what is done to Pods of a namespace with a status, or does not answer.
func (l *lab) opinion(code int32) {
	l.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if code == 0 || json.NewDecoder(r.Body).Decode(&review) != nil {
			panic(http.ErrAbortHandler)
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Code: code, Message: "not on Fridays"}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	l.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	configurations := l.admin.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := configurations.Create(l.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: l.ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "opinion.example.com", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: certificate},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: l.ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "pods/eviction"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		if err := configurations.Delete(context.Background(), l.ns, metav1.DeleteOptions{}); err != nil {
			l.Error(err)
		}
	})
	err = wait.PollUntilContextTimeout(l.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		_, err := l.admin.CoreV1().Pods(l.ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil, nil
	})
	if err != nil {
		l.Fatal("the webhook is not asked")
	}
}

func TestAWebhookOfOthersRefuses(t *testing.T) {
	for code, want := range map[int32]life.AnswerKind{
		http.StatusForbidden:           life.AnswerRefused,
		http.StatusConflict:            life.AnswerRefused, // the object is as it was
		http.StatusUnprocessableEntity: life.AnswerRefused,
		http.StatusTooManyRequests:     life.AnswerRefused,
		http.StatusInternalServerError: life.AnswerLost,
		0:                              life.AnswerLost, // the API server answers 500, after which nobody knows
	} {
		t.Run(fmt.Sprint("with", code), func(t *testing.T) {
			l := newLab(t)
			o := l.pod("a", "example.com/a", "example.com/b")
			l.opinion(code)
			for name, s := range steps(o) {
				got := l.do(s)
				if got.Kind != want || code != 0 && !strings.Contains(got.Why, "not on Fridays") || got.Leaving {
					t.Errorf("%s came to %+v", name, got)
				}
			}
			l.untouched(o)
		})
	}
}
