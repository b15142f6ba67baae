// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/test/cluster"
)

// What config/default calls the parts of the webhook.
const (
	WebhookConfiguration = "cleaner-webhook"
	WebhookService       = "cleaner-webhook"
	WebhookSecret        = "cleaner-webhook-cert"
)

// Routing makes an API server call webhooks at the endpoints of their Services, as a Gate writes them. Without it the API
// server calls the Service's own address, and there is no kube-proxy here that would answer.
func Routing() []string { return []string{"--enable-aggregator-routing=true"} }

// Gate is where the API server calls the webhook: a port of this machine, from which connections are passed on to one
// manager or to none.
type Gate struct {
	listener net.Listener

	mu     sync.Mutex
	port   int
	passed map[net.Conn]bool
}

// OpenGate has the API server call the webhook at a gate, which is shut at first. It stays until the API server is gone.
func OpenGate(ctx context.Context, c *cluster.Cluster) (*Gate, error) {
	return OpenGateOf(ctx, c, WebhookService, "https")
}

// OpenGateOf is OpenGate for an operator whose webhook has another Service than in config/default: at its port of this name.
func OpenGateOf(ctx context.Context, c *cluster.Cluster, service, port string) (*Gate, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	address, kind, err := reachable()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return nil, fmt.Errorf("cannot listen for the webhook: %w", err)
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: service + "-gate",
			// Not those of the control plane's own controller, which would remove the slice.
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "test.cleaner.vtex.dev"},
		},
		AddressType: kind,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: ptr.To(int32(l.Addr().(*net.TCPAddr).Port)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if _, err := client.DiscoveryV1().EndpointSlices(Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot route the webhook to %s: %w", address, err), l.Close())
	}
	g := &Gate{listener: l, passed: map[net.Conn]bool{}}
	go g.serve()
	return g, nil
}

// To passes connections on to a port of this machine from now on, and cuts those that there are. To 0 shuts the gate.
func (g *Gate) To(port int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.port = port
	for conn := range g.passed {
		_ = conn.Close() // both ends notice
	}
}

func (g *Gate) serve() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.pass(conn)
	}
}

// pass passes one connection on until one of its ends closes it.
func (g *Gate) pass(from net.Conn) {
	defer from.Close()
	g.mu.Lock()
	port := g.port
	g.passed[from] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.passed, from)
	}()
	if port == 0 {
		return
	}
	to, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(to, from) // however it ends, it has ended
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// reachable is an address of this machine that an EndpointSlice may have: loopback ones are refused.
func reachable() (string, discoveryv1.AddressType, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", "", fmt.Errorf("cannot find this machine's addresses: %w", err)
	}
	for _, a := range addresses {
		n, ok := a.(*net.IPNet)
		switch {
		case !ok || !n.IP.IsGlobalUnicast():
		case n.IP.To4() != nil:
			return n.IP.String(), discoveryv1.AddressTypeIPv4, nil
		default:
			return n.IP.String(), discoveryv1.AddressTypeIPv6, nil
		}
	}
	return "", "", errors.New("this machine has no address but loopback, and an API server is not told of those: the webhook cannot be called")
}

// mount keeps a Secret as files in a folder, as a kubelet does, until stop is closed.
func mount(ctx context.Context, c *cluster.Cluster, secret, dir string, stop <-chan struct{}) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make a folder for the webhook's certificates: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		<-stop
		cancel()
	}()
	go func() {
		for ctx.Err() == nil {
			follow(ctx, client, secret, dir)
			select { // the API server is restarting
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return nil
}

// follow writes each version of the Secret until the watch ends. A caller that waits for a file sees when it cannot be written.
func follow(ctx context.Context, client kubernetes.Interface, name, dir string) {
	w, err := client.CoreV1().Secrets(Namespace).Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if secret, ok := e.Object.(*corev1.Secret); ok {
			write(dir, secret.Data)
		}
	}
}

// write swaps all files at once: the folder that the names point into is replaced.
func write(dir string, data map[string][]byte) {
	now, err := os.MkdirTemp(dir, "..now-")
	if err != nil {
		return
	}
	for name, content := range data {
		if os.WriteFile(filepath.Join(now, name), content, 0o600) != nil {
			return
		}
	}
	link := filepath.Join(dir, "..data")
	before, _ := os.Readlink(link) // none at first
	if os.Symlink(filepath.Base(now), link+"_new") != nil || os.Rename(link+"_new", link) != nil {
		return
	}
	for name := range data {
		_ = os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)) // it is there already, but for the first time
	}
	if before != "" {
		_ = os.RemoveAll(filepath.Join(dir, before)) // left to the end of the test
	}
}
