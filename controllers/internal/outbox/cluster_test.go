// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// apiServer answers with what is set, by path; else NotFound. A number is the status of a refusal.
type apiServer struct {
	objects map[string]any
	asked   atomic.Int64
	status  atomic.Int64
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.asked.Add(1)
	path := r.URL.Path
	if next := r.URL.Query().Get("continue"); next != "" {
		path += "#" + next
	}
	object, ok := a.objects[path]
	code := int(a.status.Load())
	if refusal, refused := object.(int); refused && code == 0 {
		code = refusal
	}
	if !ok && code == 0 {
		code = http.StatusNotFound
	}
	w.Header().Set("Content-Type", "application/json")
	if code != 0 {
		reasons := map[int]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden}
		w.WriteHeader(code)
		object = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code],
		}
	}
	_ = json.NewEncoder(w).Encode(object)
}

func node(addresses ...string) corev1.Node {
	var n corev1.Node
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Address: a})
	}
	return n
}

func nodes(next string, items ...corev1.Node) corev1.NodeList {
	return corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{Continue: next}, Items: items}
}

const (
	servicePath   = "/api/v1/namespaces/default/services/kubernetes"
	endpointsPath = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	nodesPath     = "/api/v1/nodes"
)

func usualCluster() map[string]any {
	return map[string]any{
		servicePath: corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			Spec:     corev1.ServiceSpec{ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1", "fd00::1"}},
		},
		endpointsPath: discoveryv1.EndpointSlice{
			TypeMeta:  metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"192.168.5.1"}}, {Addresses: []string{"192.168.5.2"}}},
		},
		nodesPath:           nodes("more", node("192.168.6.1", "node-1", "34.9.9.9")),
		nodesPath + "#more": nodes("", node("::ffff:192.168.6.2")),
	}
}

// newCluster makes a Cluster of an API server, with what it warned of.
func newCluster(t *testing.T, server *apiServer) (*Cluster, *clocktesting.FakeClock, *[]string) {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.9")
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	clock, warned := clocktesting.NewFakeClock(epoch), &[]string{}
	c, err := NewCluster(&rest.Config{Host: s.URL, QPS: -1}, clock, func(what string, _ error) { *warned = append(*warned, what) })
	if err != nil {
		t.Fatal(err)
	}
	return c, clock, warned
}

func sorted(all map[netip.Addr]bool) []string {
	var texts []string
	for a := range all {
		texts = append(texts, a.String())
	}
	slices.Sort(texts)
	return texts
}

func TestClusterKnowsItsAddresses(t *testing.T) {
	server := &apiServer{objects: usualCluster()}
	c, clock, warned := newCluster(t, server)
	want := []string{"10.96.0.1", "10.96.0.9", "127.0.0.1", "192.168.5.1", "192.168.5.2", "192.168.6.1", "192.168.6.2", "34.9.9.9", "fd00::1"}
	for range 2 {
		got, err := c.ListAddresses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, sorted(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if n := server.asked.Load(); n != 4 {
		t.Errorf("%d requests were made within a minute, want 4", n)
	}

	server.objects[nodesPath] = nodes("", node("192.168.6.7"))
	clock.Step(time.Minute)
	got, err := c.ListAddresses(t.Context())
	if err != nil || !got[netip.MustParseAddr("192.168.6.7")] || got[netip.MustParseAddr("192.168.6.1")] {
		t.Errorf("after a minute: %v, %v", sorted(got), err)
	}

	server.status.Store(http.StatusServiceUnavailable)
	clock.Step(time.Minute)
	if got, err := c.ListAddresses(t.Context()); err != nil || !got[netip.MustParseAddr("192.168.6.7")] {
		t.Errorf("what was known is forgotten in an outage: %v, %v", sorted(got), err)
	}
	if len(*warned) != 0 {
		t.Errorf("warned of %v", *warned)
	}
}

func TestClusterThatCannotBeReadIsNotGuessed(t *testing.T) {
	server := &apiServer{objects: usualCluster()}
	server.status.Store(http.StatusInternalServerError)
	c, _, _ := newCluster(t, server)
	if got, err := c.ListAddresses(t.Context()); err == nil {
		t.Errorf("got %v", got)
	}
	server.status.Store(0)
	if _, err := c.ListAddresses(t.Context()); err != nil {
		t.Errorf("it is not tried again: %v", err)
	}
}

func TestClusterSaysWhatItMayNotRead(t *testing.T) {
	server := &apiServer{objects: usualCluster()}
	server.objects[nodesPath] = http.StatusForbidden
	delete(server.objects, endpointsPath)
	c, clock, warned := newCluster(t, server)
	for range 3 {
		got, err := c.ListAddresses(t.Context())
		if diff := cmp.Diff([]string{"10.96.0.1", "10.96.0.9", "127.0.0.1", "fd00::1"}, sorted(got)); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		clock.Step(time.Minute)
	}
	if diff := cmp.Diff([]string{"Nodes"}, *warned); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestHostname(t *testing.T) {
	for host, want := range map[string]string{
		"https://10.0.0.1:6443": "10.0.0.1", "https://api.example.com/prefix": "api.example.com", "10.0.0.1:443": "10.0.0.1",
		"api.example.com": "api.example.com", "https://[fd00::1]:443": "fd00::1", "": "",
	} {
		if got := parseHostname(host); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}
