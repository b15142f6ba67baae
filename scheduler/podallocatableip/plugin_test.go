// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podallocatableip

import (
	"encoding/json"
	"fmt"
	"go/build"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"
)

// plugin is one with these args, as kube-scheduler hands them over.
func plugin(t testing.TB, args string) *Plugin {
	t.Helper()
	made, err := New(t.Context(), &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := made.(*Plugin)
	if !ok || p.Name() != Name {
		t.Fatalf("got a %T", made)
	}
	return p
}

func node(ranges ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	if len(ranges) > 0 {
		n.Spec.PodCIDR = ranges[0]
	}
	return n
}

func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "default"}, Spec: corev1.PodSpec{NodeName: "node"}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func hostNetwork(p *corev1.Pod) { p.Spec.HostNetwork = true }

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }

func pods(n int, changes ...func(*corev1.Pod)) []*corev1.Pod {
	var all []*corev1.Pod
	for range n {
		all = append(all, pod(changes...))
	}
	return all
}

// info is what the scheduler knows of a Node with these Pods.
func info(n *corev1.Node, has ...[]*corev1.Pod) *framework.NodeInfo {
	i := framework.NewNodeInfo()
	for _, list := range has {
		for _, p := range list {
			i.AddPod(p)
		}
	}
	i.SetNode(n)
	return i
}

func TestFilter(t *testing.T) {
	none := fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ReasonNone)
	noneFree := fwk.NewStatus(fwk.Unschedulable, ReasonNoneFree)
	small := node("10.0.0.0/29") // 5 addresses
	cases := map[string]struct {
		reason string
		args   string
		pod    *corev1.Pod
		info   *framework.NodeInfo
		want   *fwk.Status
	}{
		"Empty":       {"An address is free.", "{}", pod(), info(small), nil},
		"OneLeft":     {"The last address is one.", "{}", pod(), info(small, pods(4)), nil},
		"Full":        {"None is left. A Pod less would help, so that the scheduler may preempt.", "{}", pod(), info(small, pods(5)), noneFree},
		"Beyond":      {"Others have bound more than there are.", "{}", pod(), info(small, pods(9)), noneFree},
		"NoRange":     {"Its Pods have their addresses elsewhere.", "{}", pod(), info(node(), pods(300)), nil},
		"HostPods":    {"Those on the host's network hold none.", "{}", pod(), info(small, pods(4), pods(50, hostNetwork)), nil},
		"HostAndFull": {"And hide none that do.", "{}", pod(), info(small, pods(50, hostNetwork), pods(5)), noneFree},
		"Ended": {
			"Those that have ended hold none.", "{}", pod(), info(small, pods(4), pods(5, phase(corev1.PodSucceeded)), pods(5, phase(corev1.PodFailed))), nil,
		},
		"NotEnded": {
			"All others do: they wait for one, have one, or nobody knows.", "{}", pod(),
			info(small, pods(1), pods(1, phase(corev1.PodPending)), pods(2, phase(corev1.PodRunning)), pods(1, phase(corev1.PodUnknown))), noneFree,
		},
		"Terminating": {"One that is to end holds its address still.", "{}", pod(), info(small, pods(4), pods(1, terminating)), noneFree},
		"HostPod":     {"A Pod on the host's network needs none.", "{}", pod(hostNetwork), info(small, pods(5)), nil},
		"HostNone":    {"Also where there is none.", "{}", pod(hostNetwork), info(node("10.0.0.0/31")), nil},
		"None":        {"No Pod that goes would make an address of a reserved one: preemption is of no use.", "{}", pod(), info(node("10.0.0.0/31")), none},
		"SixScarcer":  {"Each Pod needs one of both, and here the IPv6 range has fewer.", "{}", pod(), info(node("10.0.0.0/24", "fd00::/125"), pods(6)), noneFree},
		"SixFree":     {"It has six.", "{}", pod(), info(node("10.0.0.0/24", "fd00::/125"), pods(5)), nil},
		"FourScarcer": {"Here the IPv4 range has fewer, which comes second.", "{}", pod(), info(node("fd00::/64", "10.0.0.0/29"), pods(5)), noneFree},
		"SixNone":     {"One family alone makes no Pod.", "{}", pod(), info(node("10.0.0.0/24", "fd00::/128")), none},
		"Reserved":    {"What is reserved is an argument.", `{"reservedIPv4": 4}`, pod(), info(small, pods(4)), noneFree},
		"ReservedTwo": {"For each family its own.", `{"reservedIPv4": 0, "reservedIPv6": 1}`, pod(), info(node("10.0.0.0/29", "fd00::/126"), pods(3)), noneFree},
		"NoReserved":  {"None may be.", `{"reservedIPv4": 0}`, pod(), info(small, pods(7)), nil},
		"AllReserved": {"All may be.", `{"reservedIPv4": 8}`, pod(), info(small), none},
		"Unreadable":  {"What cannot be read holds nobody up but who would go there.", "{}", pod(), info(node("ten")), fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ReasonUnreadable)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := plugin(t, tc.args).Filter(t.Context(), nil, tc.pod, tc.info)
			if got.Code() != tc.want.Code() || got.Message() != tc.want.Message() {
				t.Errorf("%s Want %v, got %v", tc.reason, tc.want, got)
			}
		})
	}
}

// The cases are those that the template pod-ip-pressure is held to: where it begins to taint, the plugin begins to reject.
func TestFilterOfTheSharedCases(t *testing.T) {
	text, err := os.ReadFile("../../celenv/addresses/testdata/nodes.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Why      string
		Ranges   []string
		Reserved *int64
		Pods     int

		Unreadable bool
	}
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) < 10 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	for _, c := range cases {
		args := "{}"
		if c.Reserved != nil {
			args = fmt.Sprintf(`{"reservedIPv4": %d, "reservedIPv6": %d}`, *c.Reserved, *c.Reserved)
		}
		p, n := plugin(t, args), node(c.Ranges...)
		if c.Unreadable {
			if status := p.Filter(t.Context(), nil, pod(), info(n)); status.Message() != ReasonUnreadable {
				t.Errorf("%s: of %v the plugin says %v", c.Why, c.Ranges, status)
			}
			continue
		}
		if status := p.Filter(t.Context(), nil, pod(), info(n, pods(c.Pods))); status.IsSuccess() {
			t.Errorf("%s: of %v one more than %d Pods is let in", c.Why, c.Ranges, c.Pods)
		}
		if c.Pods == 0 {
			continue
		}
		if status := p.Filter(t.Context(), nil, pod(), info(n, pods(c.Pods-1))); !status.IsSuccess() {
			t.Errorf("%s: of %v the last of %d Pods is rejected: %v", c.Why, c.Ranges, c.Pods, status)
		}
	}
}

// Whatever Pods a Node has, in whatever order: it takes one more if those that hold an address are fewer than there are.
func TestFilterByCounting(t *testing.T) {
	kinds := []func(*corev1.Pod){func(*corev1.Pod) {}, hostNetwork, phase(corev1.PodRunning), phase(corev1.PodSucceeded), phase(corev1.PodFailed), terminating}
	holds := []bool{true, false, true, false, false, true}
	p := plugin(t, "{}")
	rapid.Check(t, func(rt *rapid.T) {
		held := 0
		var has []*corev1.Pod
		for _, kind := range rapid.SliceOfN(rapid.IntRange(0, len(kinds)-1), 0, 30).Draw(rt, "pods") {
			has = append(has, pod(kinds[kind]))
			if holds[kind] {
				held++
			}
		}
		got := p.Filter(t.Context(), nil, pod(), info(node("10.0.0.0/28"), has)).IsSuccess()
		if want := held < 13; got != want {
			rt.Fatalf("%d of 13 addresses are held, and that one more is let in is %t", held, got)
		}
	})
}

func TestArguments(t *testing.T) {
	for args, want := range map[string]Arguments{
		"": {3, 2}, "{}": {3, 2}, "null": {3, 2}, `{"reservedIPv4": 10}`: {10, 2}, `{"reservedIPv6": 0}`: {3, 0}, "reservedIPv4: 1\nreservedIPv6: 5\n": {1, 5},
	} {
		if got := plugin(t, args).reserved; got != want {
			t.Errorf("%q: want %+v, got %+v", args, want, got)
		}
	}
	if made, err := New(t.Context(), nil, nil); err != nil || made.(*Plugin).reserved != (Arguments{3, 2}) {
		t.Errorf("without args: %+v, %v", made, err)
	}
	for args, want := range map[string]string{
		`{"reservedIPv4": -1}`:                     "args.reservedIPv4: Invalid value: -1: write 0 or more",
		`{"reservedIPv4": -1, "reservedIPv6": -2}`: "args.reservedIPv6: Invalid value: -2: write 0 or more",
		`{"reserved": 3}`:                          `unknown field "reserved"`,
		`{"reservedIPv4": "three"}`:                "reservedIPv4",
		`{"reservedIPv4": 1, "reservedIPv4": 2}`:   "reservedIPv4",
		`[3, 2]`:                                   "write such as {reservedIPv4: 3, reservedIPv6: 2}",
	} {
		made, err := New(t.Context(), &runtime.Unknown{Raw: []byte(args)}, nil)
		if err == nil || made != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", args, want, err)
		}
	}
	if _, err := New(t.Context(), &corev1.Pod{}, nil); err == nil || !strings.Contains(err.Error(), "*v1.Pod") {
		t.Errorf("a Pod for args: %v", err)
	}
}

// What the scheduler hears of is what can make a rejected Pod fit, and it is asked only of what does.
func TestEventsToRegister(t *testing.T) {
	events, err := plugin(t, "{}").EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var labels []string
	hints := map[string]fwk.QueueingHintFn{}
	for _, e := range events {
		labels = append(labels, e.Event.Label())
		hints[e.Event.Label()] = e.QueueingHintFn
	}
	if diff := cmp.Diff([]string{"PodDelete", "NodeAdd"}, labels); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	unbound := func(p *corev1.Pod) { p.Spec.NodeName = "" }
	nominated := func(p *corev1.Pod) { p.Status.NominatedNodeName = "node" }
	cases := map[string]struct {
		reason, event string
		old, now      any
		want          fwk.QueueingHint
	}{
		"Gone":          {"It held an address.", "PodDelete", pod(), nil, fwk.Queue},
		"Ended":         {"The scheduler hears of one that has ended as of one that is gone, in its last or its new phase.", "PodDelete", pod(phase(corev1.PodSucceeded)), nil, fwk.Queue},
		"OnHost":        {"It held none.", "PodDelete", pod(hostNetwork), nil, fwk.QueueSkip},
		"Unbound":       {"It had no Node yet.", "PodDelete", pod(unbound), nil, fwk.QueueSkip},
		"Nominated":     {"One was kept for it.", "PodDelete", pod(unbound, nominated), nil, fwk.Queue},
		"HostNominated": {"But not for one on the host's network.", "PodDelete", pod(unbound, nominated, hostNetwork), nil, fwk.QueueSkip},
		"Node":          {"It may have one free.", "NodeAdd", nil, node("10.0.0.0/29"), fwk.Queue},
		"NodeNoRange":   {"It is left alone.", "NodeAdd", nil, node(), fwk.Queue},
		"NodeNone":      {"It never has one.", "NodeAdd", nil, node("10.0.0.0/31"), fwk.QueueSkip},
		"NodeSixNone":   {"It never has one of both.", "NodeAdd", nil, node("10.0.0.0/24", "fd00::/128"), fwk.QueueSkip},
		"NodeBroken":    {"Nobody knows.", "NodeAdd", nil, node("ten"), fwk.QueueSkip},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := hints[tc.event](klog.Background(), pod(unbound), tc.old, tc.now)
			if err != nil || got != tc.want {
				t.Errorf("%s Want %v, got %v, %v", tc.reason, tc.want, got, err)
			}
		})
	}
	for event, hint := range hints {
		if got, err := hint(klog.Background(), pod(unbound), "?", "?"); got != fwk.Queue || err == nil {
			t.Errorf("%s of something else: %v, %v", event, got, err)
		}
	}
}

// Pods for which the plugin decides alike have one signature, and no others.
func TestSignPod(t *testing.T) {
	sign := func(p *corev1.Pod) fwk.SignFragment {
		fragments, status := plugin(t, "{}").SignPod(t.Context(), p)
		if !status.IsSuccess() || len(fragments) != 1 {
			t.Fatalf("%v, %v", fragments, status)
		}
		return fragments[0]
	}
	if a, b := sign(pod()), sign(pod(func(p *corev1.Pod) { p.Name = "other" })); a != b {
		t.Errorf("%v and %v differ", a, b)
	}
	if a, b := sign(pod()), sign(pod(hostNetwork)); a == b {
		t.Errorf("%v is that of both", a)
	}
}

// The page says what each message means, and what the arguments are by default.
func TestThePageSaysIt(t *testing.T) {
	page, err := os.ReadFile("../../docs/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	byDefault := plugin(t, "{}").reserved
	for _, want := range []string{
		"| `" + ReasonNoneFree + "` | ", "| `" + ReasonNone + "` | ", "| `" + ReasonUnreadable + "` | ",
		fmt.Sprintf("| `reservedIPv4` | `%d` | ", byDefault.ReservedIPv4), fmt.Sprintf("| `reservedIPv6` | `%d` | ", byDefault.ReservedIPv6),
		"`" + Name + "`",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/scheduler.md does not have %q", want)
		}
	}
}

// Whoever builds a scheduler of another version of Kubernetes can have the plugin: it needs the interface alone.
func TestNeedsNoKubernetes(t *testing.T) {
	pkg, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range pkg.Imports {
		if strings.HasPrefix(path, "k8s.io/kubernetes") {
			t.Errorf("the plugin imports %s", path)
		}
	}
}
