// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"helm.sh/helm/v3/pkg/release"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/helmtest"
)

// The ends of the Pods of hooks, as the tests' kubelet makes them. One that never ends is ended by its test.
const (
	well  = "Succeeded"
	badly = "Failed"
	never = "Never"
)

// job makes a manifest of a Job whose Pod ends in some way.
func job(name, ends string, annotations ...string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s, annotations: {%s}}
spec:
  backoffLimit: 0
  template:
    metadata: {labels: {ends: %s}}
    spec: {restartPolicy: Never, containers: [{name: c, image: example.test/c}]}
`, name, strings.Join(annotations, ", "), ends)
}

// pod makes a manifest of a Pod that ends in some way.
func pod(name, ends string, annotations ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {ends: %s}, annotations: {%s}}\n"+
		"spec: {restartPolicy: Never, containers: [{name: c, image: example.test/c}]}\n", name, ends, strings.Join(annotations, ", "))
}

const (
	preDelete  = "helm.sh/hook: pre-delete"
	postDelete = "helm.sh/hook: post-delete"
)

// small is a chart with one object, and hooks.
func small(hooks ...string) helmtest.Chart {
	return helmtest.Chart{Templates: map[string]string{"a.yaml": config("a"), "hooks.yaml": strings.Join(hooks, "---\n")}}
}

// newWorldWithAccount is one in which a ServiceAccount uninstalls, and Pods come to their ends.
func newWorldWithAccount(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.account = types.NamespacedName{Namespace: w.namespace, Name: "deleter"}
	w.kubelet()
	return w
}

// kubelet ends the Pods of the namespace as their labels say, until the test is over.
func (w *world) kubelet() {
	w.t.Helper()
	pods := must(w.client.CoreV1().Pods(w.namespace).Watch(w.ctx, metav1.ListOptions{LabelSelector: "ends in (" + well + "," + badly + ")"}))(w.t)
	done := make(chan struct{})
	w.t.Cleanup(func() {
		pods.Stop()
		<-done
	})
	go func() {
		defer close(done)
		for e := range pods.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted && p.Status.Phase == corev1.PodPending {
				w.endPod(p.Name, p.Labels["ends"])
			}
		}
	}()
}

// endPod writes what a kubelet would when a Pod has ended. It may be gone already.
func (w *world) endPod(name, phase string) {
	patch := fmt.Appendf(nil, `{"status":{"phase":%q,"reason":"AsAsked","message":"the test says so"}}`, phase)
	_, err := w.client.CoreV1().Pods(w.namespace).Patch(w.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !notfound.IsAnyObjectMissing(err) && w.ctx.Err() == nil {
		w.t.Errorf("cannot end Pod %q: %v", name, err)
	}
}

// endPods ends all Pods that the kubelet leaves alone, as soon as there is one.
func (w *world) endPods(phase string) {
	w.t.Helper()
	pods := &corev1.PodList{}
	w.until(func() bool {
		pods = must(w.client.CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: "ends=" + never}))(w.t)
		return len(pods.Items) > 0
	})
	for i := range pods.Items {
		w.endPod(pods.Items[i].Name, phase)
	}
}

// recordName is the release's only record.
const recordName = "Secret sh.helm.release.v1.shop.v1"

func TestHooksRun(t *testing.T) {
	w := newWorldWithAccount(t)
	w.install(small(
		config("settings", preDelete, `"helm.sh/hook-weight": "-5"`, `"helm.sh/hook-delete-policy": hook-succeeded`),
		job("backup", well, preDelete),
		pod("check", well, preDelete, `"helm.sh/hook-weight": "5"`, `"helm.sh/hook-delete-policy": "hook-succeeded,hook-failed"`),
		job("farewell", well, postDelete, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`),
		job("installed", well, "helm.sh/hook: post-upgrade"),
	))
	got := w.uninstall(w.committed())
	if diff := cmp.Diff(Outcome{State: Done}, got, cmpopts.IgnoreFields(Outcome{}, "Created", "Deleted")); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ConfigMap settings", "Job backup", "Pod check", "Job farewell"}, refs(got.Created)); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	want := []string{
		"update " + recordName,
		"create ConfigMap settings", "create Job backup", "create Pod check",
		"update " + recordName,
		"delete Pod check", "delete ConfigMap settings",
		"delete ConfigMap a",
		"create Job farewell", "update " + recordName, "delete Job farewell",
		"delete " + recordName,
	}
	if diff := cmp.Diff(want, w.writes()); diff != "" {
		t.Errorf("requests, in this order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Job backup"}, w.names()); diff != "" {
		t.Errorf("left: what no delete policy takes (-want +got):\n%s", diff)
	}
	backup := must(w.client.BatchV1().Jobs(w.namespace).Get(w.ctx, "backup", metav1.GetOptions{}))(t)
	if backup.Annotations["meta.helm.sh/release-name"] != "shop" || backup.Labels["app.kubernetes.io/managed-by"] != "Helm" || backup.Status.Succeeded != 1 {
		t.Errorf("the hook does not say whose it is, or has not succeeded: %+v", backup)
	}
}

// TestHookFails has a hook fail, looks at what is there, and has the next attempt succeed.
func TestHookFails(t *testing.T) {
	cases := map[string]struct {
		reason string
		hooks  []string
		change func(*UninstallRequest)
		hook   string
		why    string
		left   []string
	}{
		"Job": {
			reason: "a pre-delete hook that fails holds everything",
			hooks:  []string{job("backup", badly, preDelete)},
			hook:   "pre-delete hook Job backup", why: "BackoffLimitExceeded",
			left: []string{"ConfigMap a", "Job backup", recordName},
		},
		"Pod": {
			reason: "a Pod may be a hook, and says why it failed",
			hooks:  []string{pod("backup", badly, preDelete)},
			hook:   "pre-delete hook Pod backup", why: "AsAsked: the test says so",
			left: []string{"ConfigMap a", recordName},
		},
		"Second": {
			reason: "those after it are not run, those before it are cleaned up",
			hooks: []string{
				config("settings", preDelete, `"helm.sh/hook-weight": "-5"`, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`),
				job("backup", badly, preDelete),
				job("later", well, preDelete, `"helm.sh/hook-weight": "5"`),
			},
			hook: "pre-delete hook Job backup", why: "BackoffLimitExceeded",
			left: []string{"ConfigMap a", "Job backup", recordName},
		},
		"DeletedWhenFailed": {
			reason: "the delete policy is honoured",
			hooks:  []string{job("backup", badly, preDelete, `"helm.sh/hook-delete-policy": hook-failed`)},
			hook:   "pre-delete hook Job backup", why: "BackoffLimitExceeded",
			left: []string{"ConfigMap a", recordName},
		},
		"PostDelete": {
			reason: "a post-delete hook that fails holds the record",
			hooks:  []string{job("farewell", badly, postDelete)},
			hook:   "post-delete hook Job farewell", why: "BackoffLimitExceeded",
			left: []string{"Job farewell", recordName},
		},
		"Hangs": {
			reason: "a hook that takes too long has failed",
			hooks:  []string{job("backup", never, preDelete)},
			change: func(c *UninstallRequest) { c.HookTimeout = 3 * time.Second },
			hook:   "pre-delete hook Job backup", why: "it did not end within 3s",
			left: []string{"ConfigMap a", "Job backup", recordName},
		},
		"Refused": {
			reason: "what the API server does not create has failed",
			hooks:  []string{"apiVersion: v1\nkind: Service\nmetadata: {name: backup, annotations: {" + preDelete + "}}\nspec: {ports: [{port: 99999}]}\n"},
			hook:   "pre-delete hook Service backup", why: "99999",
			left: []string{"ConfigMap a", recordName},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorldWithAccount(t)
			w.install(small(tc.hooks...))
			want := w.committed()
			if tc.change != nil {
				tc.change(&want)
			}
			for try := range 2 { // the second is as the first
				got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{})
				failed, ok := errors.AsType[*HookError](err)
				if !ok || strings.ReplaceAll(failed.Hook, w.namespace+"/", "") != tc.hook || !strings.Contains(failed.Why, tc.why) {
					t.Fatalf("%s: try %d: got error %v, want that %s failed: %s", tc.reason, try, err, tc.hook, tc.why)
				}
				got.Hook = strings.ReplaceAll(got.Hook, w.namespace+"/", "")
				if diff := cmp.Diff(Outcome{State: HookFailed, Hook: tc.hook}, got, cmpopts.IgnoreFields(Outcome{}, "Created", "Deleted")); diff != "" {
					t.Errorf("%s: try %d: outcome (-want +got):\n%s", tc.reason, try, diff)
				}
				if diff := cmp.Diff(tc.left, w.names()); diff != "" {
					t.Errorf("%s: try %d: left (-want +got):\n%s", tc.reason, try, diff)
				}
				if diff := cmp.Diff(observed.ReleaseUninstalling, w.look().State); diff != "" {
					t.Errorf("%s: try %d: state of the release (-want +got):\n%s", tc.reason, try, diff)
				}
			}
			want.DisableHooks = true
			if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
				t.Errorf("%s: outcome without hooks (-want +got):\n%s", tc.reason, diff)
			}
			w.writes()
		})
	}
}

// TestHookIsTriedAgain has a hook fail once.
func TestHookIsTriedAgain(t *testing.T) {
	w := newWorldWithAccount(t)
	w.install(small(job("backup", never, preDelete)))
	want := w.committed()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.endPods(badly)
	}()
	if got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{}); got.State != HookFailed {
		t.Fatalf("got %q, %v: want a hook that failed", got.State, err)
	}
	<-ended
	first := must(w.client.BatchV1().Jobs(w.namespace).Get(w.ctx, "backup", metav1.GetOptions{}))(t)
	got := must(w.uninstaller().Uninstall(w.ctx, nil, want, guard{runHook: func(ref observed.Ref) error {
		if ref.Name == "backup" { // the Pod of the first try is gone with its Job, or ended
			go w.endNewPod(first.UID)
		}
		return nil
	}}))(t)
	if diff := cmp.Diff(Done, got.State); diff != "" {
		t.Errorf("outcome of the second try (-want +got):\n%s", diff)
	}
	second := must(w.client.BatchV1().Jobs(w.namespace).Get(w.ctx, "backup", metav1.GetOptions{}))(t)
	if second.UID == first.UID || second.Status.Succeeded != 1 {
		t.Errorf("the hook was not run again: %+v", second.Status)
	}
	w.writes()
}

// endNewPod ends the Pod of another Job than the one given.
func (w *world) endNewPod(not types.UID) {
	w.until(func() bool {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(w.ctx, metav1.ListOptions{LabelSelector: "ends=" + never})
		if err != nil {
			return w.ctx.Err() != nil
		}
		for i := range pods.Items {
			if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && owner.UID != not {
				w.endPod(pods.Items[i].Name, well)
				return true
			}
		}
		return false
	})
}

// TestHookThatTakesLong has a hook run for longer than a call may wait: the next call goes on with it.
func TestHookThatTakesLong(t *testing.T) {
	for event, annotation := range map[string]string{"pre-delete": preDelete, "post-delete": postDelete} {
		t.Run(event, func(t *testing.T) {
			w := newWorldWithAccount(t)
			w.install(small(job("slow", never, annotation, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded,hook-failed"`)))
			want := w.committed()
			want.Timeout = 0
			for range 3 {
				got := w.uninstall(want)
				if diff := cmp.Diff(Outcome{State: HookRunning, Hook: event + " hook Job " + w.namespace + "/slow"}, got, cmpopts.IgnoreFields(Outcome{}, "Created", "Deleted")); diff != "" {
					t.Errorf("outcome (-want +got):\n%s", diff)
				}
			}
			w.endPods(well)
			want.Timeout = 30 * time.Second
			if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			w.wantGone()
			created := slices.DeleteFunc(w.writes(), func(write string) bool { return !strings.HasPrefix(write, "create") })
			if diff := cmp.Diff([]string{"create Job slow"}, created); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPreDeleteHooksRunOnce holds an object of the release: what its hooks need may be gone when it is tried again.
func TestPreDeleteHooksRunOnce(t *testing.T) {
	w := newWorldWithAccount(t)
	w.install(small(job("backup", well, "helm.sh/hook: 'pre-delete,post-delete'", `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`)))
	hold := func(text string) {
		must(w.client.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, "a", types.MergePatchType, []byte(`{"metadata":{"finalizers":`+text+`}}`), metav1.PatchOptions{}))(t)
	}
	hold(`["example.com/hold"]`)
	want := w.committed()
	want.Timeout = 0
	for range 2 {
		w.until(func() bool { return w.uninstall(want).State == Terminating })
	}
	hold("null")
	want.Timeout = 30 * time.Second
	if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	w.wantGone()
	created := slices.DeleteFunc(w.writes(), func(write string) bool { return !strings.HasPrefix(write, "create") })
	if diff := cmp.Diff([]string{"create Job backup", "create Job backup"}, created); diff != "" {
		t.Errorf("once before the deletion and once after it (-want +got):\n%s", diff)
	}
}

// TestHookThatGoesSlowly has the object of a hook that has ended well held by a finalizer for longer than a call may wait.
// Another hook has the same object after it: what is cleaned up after the one must not be that of the other.
func TestHookThatGoesSlowly(t *testing.T) {
	cases := map[string]struct {
		reason, events string
		created        int
	}{
		"PreDelete":  {reason: "nothing of the release is deleted until it is gone", events: preDelete, created: 1},
		"PostDelete": {reason: "nor is the record", events: postDelete, created: 1},
		"Both":       {reason: "it is made for each event once", events: "helm.sh/hook: 'pre-delete,post-delete'", created: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithAccount(t)
			w.install(small("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: held, finalizers: [example.test/hold], annotations: {" +
				tc.events + `, "helm.sh/hook-delete-policy": hook-succeeded}}` + "\n"))
			want := w.committed()
			want.Timeout = 0 // a look, and no wait
			for range tc.created {
				for try := range 3 {
					got := w.uninstall(want)
					if got.State != Terminating || len(got.Remaining) != 1 || got.Remaining[0].Ref.Name != "held" {
						t.Fatalf("%s: try %d: got %+v, want that the hook's object is waited for", tc.reason, try, got)
					}
				}
				patch := []byte(`{"metadata":{"finalizers":null}}`)
				must(w.client.CoreV1().ConfigMaps(w.namespace).Patch(w.ctx, "held", types.MergePatchType, patch, metav1.PatchOptions{}))(t)
			}
			w.until(func() bool { return w.uninstall(want).State == Done })
			w.wantGone()
			created := slices.DeleteFunc(w.writes(), func(write string) bool { return !strings.HasPrefix(write, "create") })
			if len(created) != tc.created {
				t.Errorf("%s: created %q", tc.reason, created)
			}
		})
	}
}

func TestHookOfSomebodyElse(t *testing.T) {
	cases := map[string]struct {
		reason   string
		policies string
	}{
		"NeverDeleted": {reason: "Helm makes no object that is there", policies: "hook-succeeded"},
		"DeletedFirst": {reason: "nor is one deleted that does not say that it belongs to the release", policies: "before-hook-creation"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithAccount(t)
			w.install(small(job("backup", well, preDelete, `"helm.sh/hook-delete-policy": `+tc.policies)))
			theirs := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: "backup", Annotations: map[string]string{"helm.sh/hook": "pre-delete", "meta.helm.sh/release-name": "bank", "meta.helm.sh/release-namespace": w.namespace}},
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "example.test/c"}},
				}}},
			}
			must(w.client.BatchV1().Jobs(w.namespace).Create(w.ctx, theirs, metav1.CreateOptions{}))(t)
			got, err := w.uninstaller().Uninstall(w.ctx, nil, w.committed(), allow{})
			if got.State != HookFailed || !strings.Contains(err.Error(), "an object with its name exists") {
				t.Errorf("%s: got %q, %v", tc.reason, got.State, err)
			}
			if diff := cmp.Diff([]string{"update " + recordName}, w.writes()); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHooksThatGiveRights shows that a hook which gives rights to somebody is not run, as a ServiceAccount neither: whoever may
// write the record of a release would have the account give them its own. Without its hooks the release can be uninstalled.
func TestHooksThatGiveRights(t *testing.T) {
	head := func(apiVersion, kind string) string {
		return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: gift}\n"
	}
	for name, tc := range map[string]struct {
		manifest string
		blocked  string
	}{
		"RoleBinding": {
			head("rbac.authorization.k8s.io/v1", "RoleBinding") + "roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects: [{kind: ServiceAccount, name: hob}]\n",
			"RoleBinding gift" + " " + grantsRightsDetail,
		},
		"Role":          {head("rbac.authorization.k8s.io/v1", "Role") + "rules: []\n", "Role gift" + " " + grantsRightsDetail},
		"ResourceClaim": {head("resource.k8s.io/v1", "ResourceClaim") + "spec: {}\n", "ResourceClaim gift " + grantsRightsDetail},
		"Certificate": {
			head("certificates.k8s.io/v1", "CertificateSigningRequest"),
			"CertificateSigningRequest gift: certificatesigningrequests.certificates.k8s.io are cluster-scoped: a release may delete them only if the operator runs with --allow-protected-kinds=certificatesigningrequests.certificates.k8s.io",
		},
		"ServiceAccount": {head("v1", "ServiceAccount"), "ServiceAccount gift" + " " + grantsRightsDetail},
		"Token":          {head("v1", "Secret") + "type: kubernetes.io/service-account-token\n", "Secret gift" + " " + grantsRightsDetail},
		"List":           {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ServiceAccount, metadata: {name: gift}}\n", "ServiceAccount gift" + " " + grantsRightsDetail},
		"Secret":         {head("v1", "Secret") + "stringData: {a: b}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithAccount(t)
			w.install(small(config("settings", preDelete)))
			w.rewrite(func(r *release.Release) { r.Hooks[0].Manifest = tc.manifest })
			blocked := ""
			if tc.blocked != "" {
				blocked = `its hook "settings" cannot run: ` + tc.blocked
			}
			if got := strings.ReplaceAll(w.look().HooksBlocked, w.namespace+"/", ""); got != blocked {
				t.Errorf("got  %q\nwant %q", got, blocked)
			}
			got, err := w.uninstaller().Uninstall(w.ctx, nil, w.committed(), allow{})
			if tc.blocked == "" {
				if err != nil || got.State != Done {
					t.Errorf("it is not run: %q, %v", got.State, err)
				}
				return
			}
			if why, is := errors.AsType[*BlockedError](err); !is || why.Reason != v1alpha1.ReasonReleaseHasHooks || strings.ReplaceAll(why.Detail, w.namespace+"/", "") != blocked {
				t.Errorf("got %q, %v", got.State, err)
			}
			if writes := w.writes(); len(writes) > 0 {
				t.Errorf("something was done: %q", writes)
			}
			without := w.committed()
			without.DisableHooks = true
			if got := w.uninstall(without); got.State != Done || len(got.Created) > 0 {
				t.Errorf("without its hooks: %+v", got)
			}
		})
	}
}

// TestHookIsDeletedByOthers has somebody delete the Job of a hook while it is waited for.
func TestHookIsDeletedByOthers(t *testing.T) {
	cases := map[string]struct {
		reason, ends string
		want         OutcomeState
	}{
		"BeforeItsEnd": {reason: "nobody knows what it has not done", ends: never, want: HookFailed},
		"AfterItsEnd":  {reason: "as ttlSecondsAfterFinished does", ends: well, want: Done},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithAccount(t)
			w.install(small(job("backup", tc.ends, preDelete)))
			jobs := must(w.client.BatchV1().Jobs(w.namespace).Watch(w.ctx, metav1.ListOptions{}))(t)
			defer jobs.Stop()
			go func() {
				for e := range jobs.ResultChan() {
					j, ok := e.Object.(*batchv1.Job)
					if ok && e.Type != watch.Deleted && (j.Status.Succeeded > 0 && j.Status.CompletionTime != nil || tc.ends == never && j.Status.Active > 0) {
						background := metav1.DeletePropagationBackground
						_ = w.client.BatchV1().Jobs(w.namespace).Delete(w.ctx, "backup", metav1.DeleteOptions{PropagationPolicy: &background})
					}
				}
			}()
			got, err := w.uninstaller().Uninstall(w.ctx, nil, w.committed(), allow{})
			if diff := cmp.Diff(tc.want, got.State); diff != "" {
				t.Errorf("%s (-want +got):\n%s\n%v", tc.reason, diff, err)
			}
		})
	}
}

// fast is a clock that is ahead of the API server's.
type fast struct {
	clock.RealClock

	by time.Duration
}

func (c fast) Now() time.Time { return c.RealClock.Now().Add(c.by) }

// TestHookByAFastClock has a hook run for a short while by the API server's clock, and for too long by ours.
func TestHookByAFastClock(t *testing.T) {
	cases := map[string]struct {
		reason string
		ahead  func() time.Duration
		want   OutcomeState
	}{
		"Known":   {reason: "it has just begun", ahead: func() time.Duration { return time.Minute }, want: HookRunning},
		"Unknown": {reason: "it seems to be over: the clock matters", want: HookFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithAccount(t)
			w.install(small(job("slow", never, preDelete)))
			want := w.committed()
			want.HookTimeout, want.Timeout = 50*time.Second, 0
			cfg := must(controlPlane.ConfigFor(w.user, "system:masters"))(t)
			u := must(New(Options{Config: cfg, ServiceAccount: w.account, Clock: fast{by: time.Minute}, Ahead: tc.ahead}))(t)
			for try := range 2 { // the second finds the hook of the first
				if got, err := u.Uninstall(w.ctx, nil, want, allow{}); got.State != tc.want {
					t.Errorf("%s: try %d: got %q, %v, want %q", tc.reason, try, got.State, err, tc.want)
				}
			}
			created := slices.DeleteFunc(w.writes(), func(write string) bool { return !strings.HasPrefix(write, "create") })
			if tc.want == HookRunning && len(created) != 1 {
				t.Errorf("%s: created %q", tc.reason, created)
			}
		})
	}
}

// TestHookEndsWithItsContext cancels the wait for a hook that hangs.
func TestHookEndsWithItsContext(t *testing.T) {
	w := newWorldWithAccount(t)
	w.install(small(job("slow", never, preDelete, `"helm.sh/hook-delete-policy": "hook-failed,before-hook-creation"`)))
	want := w.committed()
	want.Timeout = time.Hour
	ctx, cancel := context.WithCancel(w.ctx)
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		if got, err := w.uninstaller().Uninstall(ctx, nil, want, allow{}); !errors.Is(err, context.Canceled) || got.State != Unfinished {
			t.Errorf("got %q, %v: want the end of the context", got.State, err)
		}
	}()
	w.until(func() bool { return slices.Contains(w.names(), "Job slow") })
	cancel()
	select {
	case <-returned:
	case <-time.After(5 * time.Second):
		t.Fatal("it still waits")
	}
	w.endPods(well)
	want.Timeout = 30 * time.Second
	if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
		t.Errorf("outcome of the next try (-want +got):\n%s", diff)
	}
	created := slices.DeleteFunc(w.writes(), func(write string) bool { return !strings.HasPrefix(write, "create") })
	if diff := cmp.Diff([]string{"create Job slow"}, created); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
}

// TestResumeWithHooks ends the uninstall at each of its writes, in three ways, and has another Uninstaller go on.
func TestResumeWithHooks(t *testing.T) {
	// The mark, a hook, its note, an object, a hook, its note and its deletion, the record.
	const writes = 8
	for _, way := range []string{"Stopped", "BeforeRequest", "AfterRequest"} {
		for nth := 1; nth <= writes; nth++ {
			t.Run(fmt.Sprintf("%s/%d", way, nth), func(t *testing.T) {
				t.Parallel()
				w := newWorldWithAccount(t)
				w.install(small(
					job("backup", well, preDelete),
					job("farewell", well, postDelete, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`),
				))
				want := w.committed()
				asked := 0
				ask := func() error {
					if asked++; asked == nth && way == "Stopped" {
						return errRefused
					}
					return nil
				}
				var faults []func(http.RoundTripper) http.RoundTripper
				if way != "Stopped" {
					faults = append(faults, crash(nth, way == "AfterRequest"))
				}
				got, err := w.uninstaller(faults...).Uninstall(w.ctx, nil, want, guard{
					start: ask, delete: func(observed.Ref) error { return ask() }, runHook: func(observed.Ref) error { return ask() }, note: func(observed.Ref) error { return ask() },
				})
				if err == nil {
					t.Fatalf("got %q, want an error", got.State)
				}
				if diff := cmp.Diff(Done, w.uninstall(want).State); diff != "" {
					t.Errorf("outcome of the second attempt (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"Job backup"}, w.names()); diff != "" {
					t.Errorf("left (-want +got):\n%s", diff)
				}
				count := map[string]int{}
				for _, write := range w.writes() {
					count[write]++
				}
				wantCount := map[string]int{
					"update " + recordName: 3, "delete " + recordName: 1, "delete ConfigMap a": 1,
					"create Job backup": 1, "create Job farewell": 1, "delete Job farewell": 1,
				}
				if diff := cmp.Diff(wantCount, count); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestLeftUninstallingByOthers finds a release that Helm itself has begun to uninstall.
func TestLeftUninstallingByOthers(t *testing.T) {
	cases := map[string]struct {
		reason  string
		account bool
		disable bool
		created []string
		blocked string
	}{
		"AsAccount":    {reason: "hooks are run at least once", account: true, created: []string{"create Job backup"}},
		"HooksOff":     {reason: "unless nobody wants them", account: true, disable: true},
		"AsTheCleaner": {reason: "nobody has answered for its hooks", blocked: v1alpha1.ReasonReleaseHasHooks},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithAccount(t)
			if !tc.account {
				w.account = types.NamespacedName{}
			}
			w.install(small(job("backup", well, preDelete)))
			check(t, helmtest.SetStatus(w.admin, w.namespace, "shop", release.StatusUninstalling))
			want := w.committed()
			want.DisableHooks = tc.disable
			got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{})
			if tc.blocked != "" {
				if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Reason != tc.blocked {
					t.Errorf("%s: got %v, want %s", tc.reason, err, tc.blocked)
				}
				if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
					t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
				}
				return
			}
			if diff := cmp.Diff(Done, must(got, err)(t).State); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			var created []string
			for _, write := range w.writes() {
				if strings.HasPrefix(write, "create") {
					created = append(created, write)
				}
			}
			if diff := cmp.Diff(tc.created, created); diff != "" {
				t.Errorf("%s: created (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestNotesOfOthersCountForNothing has somebody note that the hooks of a release are done: before an uninstall is begun nobody can
// know, also if somebody else has begun one.
func TestNotesOfOthersCountForNothing(t *testing.T) {
	for name, status := range map[string]release.Status{"Deployed": release.StatusDeployed, "Uninstalling": release.StatusUninstalling} {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithAccount(t)
			w.install(small(job("backup", well, preDelete)))
			check(t, helmtest.SetStatus(w.admin, w.namespace, "shop", status))
			w.mark(hooksDoneAnnotation, string(release.HookPreDelete))
			if diff := cmp.Diff(Done, w.uninstall(w.committed()).State); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if writes := w.writes(); !slices.Contains(writes, "create Job backup") {
				t.Errorf("the hook was not run: %q", writes)
			}
		})
	}
}

// TestAsAServiceAccount impersonates an account that may do what an uninstall with hooks needs, and nothing else.
func TestAsAServiceAccount(t *testing.T) {
	w := newWorldWithAccount(t)
	must(w.client.CoreV1().ServiceAccounts(w.namespace).Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "deleter"}}, metav1.CreateOptions{}))(t)
	role := must(w.client.RbacV1().Roles(w.namespace).Create(w.ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "deleter"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list", "get", "update", "delete"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "delete"}},
			{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "create", "delete"}},
		},
	}, metav1.CreateOptions{}))(t)
	must(w.client.RbacV1().RoleBindings(w.namespace).Create(w.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "deleter"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "deleter"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "deleter"}},
	}, metav1.CreateOptions{}))(t)
	w.install(small(job("backup", well, preDelete, `"helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"`)))
	want := w.committed()

	cfg := must(controlPlane.ConfigFor(w.user, "system:masters"))(t)
	cfg.Impersonate.UserName = fmt.Sprintf("system:serviceaccount:%s:deleter", w.namespace)
	u := must(New(Options{Config: cfg, ServiceAccount: w.account, Clock: clock.RealClock{}}))(t)
	if got, err := u.Uninstall(w.ctx, nil, want, allow{}); err == nil || !strings.Contains(err.Error(), "cannot watch resource \"jobs\"") {
		t.Fatalf("got %q, %v: want the right that is missing", got.State, err)
	}
	role.Rules[2].Verbs = append(role.Rules[2].Verbs, "watch")
	must(w.client.RbacV1().Roles(w.namespace).Update(w.ctx, role, metav1.UpdateOptions{}))(t)
	var got Outcome
	w.until(func() bool { // rights are granted a moment later
		var err error
		got, err = u.Uninstall(w.ctx, nil, want, allow{})
		return err == nil
	})
	if diff := cmp.Diff(Done, got.State); diff != "" {
		t.Errorf("outcome (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Role deleter", "RoleBinding deleter", "ServiceAccount deleter"}, w.names()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	w.writes()
}
