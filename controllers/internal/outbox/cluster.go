// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// clusterAge is how old the knowledge of the cluster's own addresses may be when a connection is made.
	clusterAge = time.Minute
	// clusterTimeout bounds one reading of them.
	clusterTimeout = 5 * time.Second
	// nodePage is how many nodes are read at once.
	nodePage = 500
	// kubernetesService is the Service of the API server, and the name of the EndpointSlice behind it.
	kubernetesService = "kubernetes"
)

// Cluster knows the addresses of the API server and of the nodes. They are read when they are needed, and are at most a
// minute old then.
type Cluster struct {
	client   kubernetes.Interface
	host     string // of the API server, as this process reaches it
	service  string // of the API server, from the Pod's environment; may be empty
	resolver *net.Resolver
	clock    clock.PassiveClock
	warn     func(what string, err error)

	readLock  chan struct{} // held while reading
	addresses map[netip.Addr]bool
	readAt    time.Time
	warned    map[string]bool
}

// NewCluster makes a Cluster that has read nothing yet. warn receives, once for each, what the operator may not read: those addresses
// stay unknown. It may be called at any time.
func NewCluster(config *rest.Config, c clock.PassiveClock, warn func(what string, err error)) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client that reads the cluster's addresses: %w", err)
	}
	return &Cluster{
		client: client, host: parseHostname(config.Host), service: os.Getenv("KUBERNETES_SERVICE_HOST"), resolver: net.DefaultResolver,
		clock: c, warn: warn, readLock: make(chan struct{}, 1), warned: map[string]bool{},
	}, nil
}

// parseHostname returns the host of what client-go takes as one: a URL, or a host with a port or without.
func parseHostname(host string) string {
	if u, err := url.Parse(host); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return host
}

// ListAddresses returns the known addresses; the caller must not change them. If none could ever be read, it returns an error. Addresses
// that were read once are used until they can be read again.
func (c *Cluster) ListAddresses(ctx context.Context) (map[netip.Addr]bool, error) {
	select {
	case c.readLock <- struct{}{}:
		defer func() { <-c.readLock }()
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot read the cluster's addresses in time: %w", ctx.Err())
	}
	if c.addresses != nil && c.clock.Since(c.readAt) < clusterAge {
		return c.addresses, nil
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	found, err := c.readAddresses(ctx)
	if err != nil && c.addresses == nil {
		return nil, err
	}
	if err == nil {
		c.addresses = found
	}
	c.readAt = c.clock.Now() // also after an error: an API server in trouble is not asked at each connection
	return c.addresses, nil
}

func (c *Cluster) readAddresses(ctx context.Context) (map[netip.Addr]bool, error) {
	var texts []string
	for _, source := range []struct {
		what string
		read func(context.Context) ([]string, error)
	}{
		{"the Service of the API server", c.readServiceAddresses},
		{"the EndpointSlice of the API server", c.readEndpointAddresses},
		{"Nodes", c.readNodeAddresses},
	} {
		found, err := source.read(ctx)
		switch {
		case apierrors.IsForbidden(err):
			if !c.warned[source.what] {
				c.warned[source.what] = true
				c.warn(source.what, err)
			}
		case err != nil && !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("cannot read %s: %w", source.what, err)
		default:
			delete(c.warned, source.what)
		}
		texts = append(texts, found...)
	}
	for _, host := range []string{c.host, c.service} {
		found, err := c.resolveHost(ctx, host)
		if err != nil {
			return nil, err
		}
		texts = append(texts, found...)
	}
	all := map[netip.Addr]bool{}
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil { // a node has names among its addresses
			all[normalizeAddress(addr)] = true
		}
	}
	return all, nil
}

// resolveHost gives the addresses of a host.
func (c *Cluster) resolveHost(ctx context.Context, host string) ([]string, error) {
	if host == "" {
		return nil, nil
	}
	found, err := c.resolver.LookupHost(ctx, host)
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound { // reached by a proxy, say: then no sink has its address either
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot find the API server's address: %w", err)
	}
	return found, nil
}

func (c *Cluster) readServiceAddresses(ctx context.Context) ([]string, error) {
	service, err := c.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, kubernetesService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return slices.Concat(service.Spec.ClusterIPs, []string{service.Spec.ClusterIP}, service.Spec.ExternalIPs), nil
}

func (c *Cluster) readEndpointAddresses(ctx context.Context) ([]string, error) {
	endpoints, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, kubernetesService, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var all []string
	for i := range endpoints.Endpoints {
		all = append(all, endpoints.Endpoints[i].Addresses...)
	}
	return all, nil
}

func (c *Cluster) readNodeAddresses(ctx context.Context) ([]string, error) {
	var all []string
	options := metav1.ListOptions{Limit: nodePage}
	for {
		nodes, err := c.client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range nodes.Items {
			all = append(all, addressesOfNode(&nodes.Items[i])...)
		}
		if options.Continue = nodes.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

func addressesOfNode(node *corev1.Node) []string {
	var all []string
	for _, a := range node.Status.Addresses {
		all = append(all, a.Address)
	}
	return all
}
