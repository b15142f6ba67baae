// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

// noneFree is why a Node is no place for a Pod.
const noneFree = "1 node(s) didn't have a free pod IP in their podCIDRs"

// A Node takes as many Pods as it has addresses. The next one goes elsewhere, or waits and is told why.
func TestANodeTakesWhatFits(t *testing.T) {
	l := newLab(t)
	l.node("small", "10.20.0.0/29") // 5 addresses
	l.node("large", "10.21.0.0/24")
	first := l.pods("first", 5, prefers("small"))
	if diff := cmp.Diff(map[string]int{"small": 5}, l.bound(first...)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	l.pod("next", prefers("small"))
	if diff := cmp.Diff(map[string]int{"large": 1}, l.bound("next")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	l.pod("waits", on("small"))
	message := l.pending("waits")
	if !strings.HasPrefix(message, "0/2 nodes are available: ") || !strings.Contains(message, noneFree) ||
		!strings.Contains(message, "1 node(s) didn't match Pod's node affinity/selector") || !strings.Contains(message, "No preemption victims found") {
		t.Errorf("it is told %q", message)
	}
	// The same is in an Event.
	eventually(t, "the Event", func() string {
		events := &corev1.EventList{}
		l.must(shared.List(t.Context(), events, client.InNamespace(l.namespace)))
		for _, e := range events.Items {
			if e.InvolvedObject.Name == "waits" && e.Reason == "FailedScheduling" && strings.Contains(e.Message, noneFree) {
				return ""
			}
		}
		return "there is none"
	})
}

// What the scheduler is about to bind counts: of many Pods at once not one too many is bound. Without the plugin they all are.
func TestABurstIsCounted(t *testing.T) {
	l := newLab(t)
	l.node("a", "10.22.0.0/29")
	l.node("b", "10.23.0.0/28")
	names := l.pods("pod", 40)
	waiting := 0
	eventually(t, "all Pods are bound or told to wait", func() string {
		list := &corev1.PodList{}
		l.must(shared.List(t.Context(), list, client.InNamespace(l.namespace)))
		waiting = 0
		for _, p := range list.Items {
			if p.Spec.NodeName != "" {
				continue
			}
			if len(p.Status.Conditions) == 0 || !strings.Contains(p.Status.Conditions[0].Message, "2 node(s) didn't have a free pod IP in their podCIDRs") {
				return p.Name
			}
			waiting++
		}
		return ""
	})
	if waiting != 40-5-13 {
		t.Errorf("%d of 40 Pods wait, and 18 have an address", waiting)
	}
	count := map[string]int{}
	for _, name := range names {
		if node := l.get(name).Spec.NodeName; node != "" {
			count[strings.TrimPrefix(node, l.namespace+"-")]++
		}
	}
	if diff := cmp.Diff(map[string]int{"a": 5, "b": 13}, count); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	without := l.pods("without", 3, by(plain), on("a"))
	if diff := cmp.Diff(map[string]int{"a": 3}, l.bound(without...)); diff != "" {
		t.Errorf("without the plugin (-want +got):\n%s", diff)
	}
}

// A Pod that waits is tried again as soon as an address may be free: when a Pod goes or ends, and when a Node comes. The
// scheduler itself looks after it every five minutes, which is later than any test waits.
func TestAFreedAddressIsTaken(t *testing.T) {
	l := newLab(t)
	l.node("small", "10.24.0.0/29")
	names := l.pods("pod", 5)
	l.bound(names...)
	wait := func(name string) {
		l.pod(name)
		if message := l.pending(name); !strings.HasPrefix(message, "0/1 nodes are available: "+noneFree) {
			t.Fatalf("%s is told %q", name, message)
		}
	}
	wait("after-a-deletion")
	l.gone(names[0])
	l.bound("after-a-deletion")
	wait("after-a-success")
	l.ends(names[1], corev1.PodSucceeded)
	l.bound("after-a-success")
	wait("after-a-failure")
	l.ends(names[2], corev1.PodFailed)
	l.bound("after-a-failure")
	wait("after-a-node")
	l.node("other", "10.25.0.0/29")
	if diff := cmp.Diff(map[string]int{"other": 1}, l.bound("after-a-node")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Of two families each Pod needs an address, so that the scarcer one decides, whichever comes first.
func TestTheScarcerFamilyDecides(t *testing.T) {
	for name, ranges := range map[string][]string{"IPv6": {"10.26.0.0/24", "fd00:26::/125"}, "IPv4": {"fd00:27::/64", "10.27.0.0/29"}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.node("dual", ranges...)
			fits := map[string]int{"IPv6": 6, "IPv4": 5}[name]
			l.bound(l.pods("pod", fits)...)
			l.pod("waits")
			if message := l.pending("waits"); !strings.Contains(message, noneFree) {
				t.Errorf("it is told %q", message)
			}
		})
	}
}

// Who has no address of the range does not count, and goes to a Node that has none left.
func TestOnlyHoldersOfAddressesCount(t *testing.T) {
	l := newLab(t)
	l.node("small", "10.28.0.0/29")
	l.bound(l.pods("host", 8, hostNetwork)...)
	ended := l.pods("ended", 5)
	l.bound(ended...)
	for _, name := range ended {
		l.ends(name, corev1.PodSucceeded)
	}
	l.bound(l.pods("pod", 5)...)
	l.pod("waits")
	if message := l.pending("waits"); !strings.Contains(message, noneFree) {
		t.Errorf("it is told %q", message)
	}
	l.bound(l.pods("late-host", 2, hostNetwork)...)
}

// A Node without ranges is left alone: its Pods have their addresses elsewhere.
func TestNodesWithoutRangesAreLeftAlone(t *testing.T) {
	l := newLab(t)
	l.node("pooled")
	if diff := cmp.Diff(map[string]int{"pooled": 30}, l.bound(l.pods("pod", 30)...)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A Pod of a higher priority takes the address of one of a lower, as it takes its processor time. The address is free when
// that Pod is gone, and not before.
func TestPreemption(t *testing.T) {
	l := newLab(t)
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: l.namespace}, Value: 1000}
	l.must(shared.Create(t.Context(), class))
	l.node("tiny", "10.29.0.0/30") // one address
	l.bound(l.pods("host", 1, hostNetwork)...)
	l.bound(l.pods("low", 1)...)
	l.pod("high", func(p *corev1.Pod) { p.Spec.PriorityClassName = class.Name })
	eventually(t, "the Pod of a lower priority is to go", func() string {
		if p := l.get("low-0"); p.DeletionTimestamp == nil {
			return "it stays"
		}
		return ""
	})
	if l.get("host-0").DeletionTimestamp != nil {
		t.Error("a Pod without an address had to go")
	}
	if p := l.get("high"); p.Spec.NodeName != "" {
		t.Error("it has the address of a Pod that is not gone yet")
	}
	l.gone("low-0")
	l.bound("high")
}

// Each profile has its own args. Where all addresses are reserved nobody need make room.
func TestReservedAddresses(t *testing.T) {
	l := newLab(t)
	l.node("small", "10.30.0.0/29")
	l.bound(l.pods("pod", 2, by(sparing))...)
	l.pod("waits", by(sparing))
	if message := l.pending("waits"); !strings.Contains(message, noneFree) {
		t.Errorf("it is told %q", message)
	}
	l.bound(l.pods("other", 3)...)

	l = newLab(t)
	l.node("none", "10.31.0.0/31")
	l.pod("waits")
	message := l.pending("waits")
	if !strings.Contains(message, "1 node(s) had podCIDRs without a pod IP that is not reserved") || !strings.Contains(message, "Preemption is not helpful for scheduling") {
		t.Errorf("it is told %q", message)
	}
}

// The scheduler does not start with args that mean nothing, and says which field it is.
func TestWrongArgumentsAreRefused(t *testing.T) {
	for args, want := range map[string]string{"reservedIPv4": "args.reservedIPv4: Invalid value: -1: write 0 or more", "reserved": "unknown field"} {
		config := runtime.DeepCopyJSON(shared.config)
		plugin := config["profiles"].([]any)[0].(map[string]any)["pluginConfig"].([]any)[0].(map[string]any)
		plugin["args"] = map[string]any{args: int64(-1)}
		flags, _, err := arguments(config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out, err := exec.CommandContext(ctx, shared.binary, flags...).CombinedOutput()
		cancel()
		if err == nil || ctx.Err() == context.DeadlineExceeded || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, and no %q in\n%s", args, err, want, out)
		}
	}
}

// Its Pod is admitted where Pods are restricted, and reads nothing but its configuration.
func TestThePodIsRestricted(t *testing.T) {
	d := shared.deployment.DeepCopy()
	if err := operator.Restricted(t.Context(), shared.clientset, d); err != nil {
		t.Error(err)
	}
	pod := d.Spec.Template.Spec
	if security := pod.Containers[0].SecurityContext; security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		t.Error("it may write to its image")
	}
	if len(pod.Volumes) != 1 || pod.Volumes[0].ConfigMap == nil || pod.Volumes[0].ConfigMap.Name != ours {
		t.Errorf("it mounts %v", pod.Volumes)
	}
}

// The probes of its Pod are answered to anybody, and its metrics are read by who may read the operator's.
func TestProbesAndMetrics(t *testing.T) {
	container := shared.deployment.Spec.Template.Spec.Containers[0]
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func(path, token string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shared.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := insecure.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe.HTTPGet.Port.StrVal != container.Ports[0].Name || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("the probe is %v", probe.HTTPGet)
		}
		eventually(t, probe.HTTPGet.Path, func() string {
			if code, body := get(probe.HTTPGet.Path, ""); code != http.StatusOK {
				return body
			}
			return ""
		})
	}
	if code, _ := get("/metrics", ""); code != http.StatusForbidden {
		t.Errorf("without a token the metrics are answered with %d", code)
	}
	ns, err := shared.Namespace(t.Context(), "reader")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := shared.ServiceAccountConfig(t.Context(), ns, "default")
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cleaner-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "default"}},
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the metrics are read", func() string {
		code, body := get("/metrics", reader.BearerToken)
		if code != http.StatusOK || !strings.Contains(body, `scheduler_plugin_`) {
			return fmt.Sprintf("%d: %.200s", code, body)
		}
		return ""
	})
}

// What the account of the scheduler may do is what kube-scheduler may, and no more: mayAllItTries holds it to be enough.
func TestTheRightsAreThoseOfAScheduler(t *testing.T) {
	type right struct{ verb, group, resource, namespace, name string }
	may := func(user string, groups []string, r right) bool {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource, Namespace: r.namespace, Name: r.name,
		}}}
		answer, err := shared.clientset.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Allowed
	}
	account := "system:serviceaccount:" + system + ":" + ours
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + system, "system:authenticated"}
	own := map[right]bool{
		{"update", "coordination.k8s.io", "leases", system, ours}:                       true,
		{"update", "coordination.k8s.io", "leases", system, "cleaner.vtex.dev"}:         false, // the operator's
		{"update", "coordination.k8s.io", "leases", metav1.NamespaceDefault, ours}:      false,
		{"list", "", "configmaps", "kube-system", "extension-apiserver-authentication"}: true,
		{"get", "", "configmaps", system, ours}:                                         false, // it is mounted
		{"get", "", "secrets", system, "cleaner-signing-key"}:                           false,
		{"impersonate", "", "serviceaccounts", system, "cleaner-manager"}:               false,
		{"patch", "", "nodes", "", ""}:                                                  false,
		{"create", "", "pods", system, ""}:                                              false,
		{"patch", "cleaner.vtex.dev", "cleaners/status", metav1.NamespaceDefault, ""}:   false,
	}
	for r, want := range own {
		if got := may(account, groups, r); got != want {
			t.Errorf("that it may %+v is %t", r, got)
		}
	}
	for _, r := range []right{
		{"create", "", "pods/binding", "default", ""}, {"delete", "", "pods", "default", ""}, {"patch", "", "pods/status", "default", ""}, {"list", "", "nodes", "", ""},
		{"delete", "", "nodes", "", ""}, {"get", "", "secrets", "default", ""}, {"create", "", "pods", "default", ""}, {"update", "", "persistentvolumes", "", ""}, {"watch", "storage.k8s.io", "csinodes", "", ""},
	} {
		if ours, theirs := may(account, groups, r), may("system:kube-scheduler", []string{"system:authenticated"}, r); ours != theirs {
			t.Errorf("that it may %+v is %t, and for kube-scheduler it is %t", r, ours, theirs)
		}
	}
}

// One leads, by a Lease of its own: that of kube-scheduler is not touched.
func TestTheLeaseIsItsOwn(t *testing.T) {
	lease, err := shared.clientset.CoordinationV1().Leases(system).Get(t.Context(), ours, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		t.Fatalf("%v, %v", lease, err)
	}
	if _, err := shared.clientset.CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-scheduler", metav1.GetOptions{}); err == nil {
		t.Error("it has taken that of kube-scheduler")
	}
}

// The configuration that the page shows, for who runs it in the place of kube-scheduler, is one: with it the Pods that name no
// scheduler are counted.
func TestTheConfigurationOfThePage(t *testing.T) {
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "scheduler.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\napiVersion: kubescheduler")
	text, _, found := strings.Cut("apiVersion: kubescheduler"+text, "```")
	if !found {
		t.Fatal("docs/scheduler.md has no configuration")
	}
	config := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	if config["clientConnection"] == nil {
		t.Error("it does not say where the API server is")
	}
	flags, _, err := arguments(config)
	if err != nil {
		t.Fatal(err)
	}
	p, err := shared.Run(t.Context(), cluster.ProgramOptions{Name: "page", Path: shared.binary, Args: flags, LogPath: filepath.Join(shared.Dir(), "page.log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if err := shared.clientset.CoordinationV1().Leases("kube-system").Delete(context.WithoutCancel(t.Context()), "kube-scheduler", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	l := newLab(t)
	l.node("tiny", "10.32.0.0/30")
	l.bound(l.pods("pod", 1, by(corev1.DefaultSchedulerName))...)
	l.pod("waits", by(corev1.DefaultSchedulerName))
	if message := l.pending("waits"); !strings.Contains(message, noneFree) {
		t.Errorf("it is told %q", message)
	}
}
