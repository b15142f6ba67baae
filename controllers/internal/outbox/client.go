// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	_ "golang.org/x/crypto/x509roots/fallback" // so that https works in an image without certificates
)

// maxAnswer bounds what is read of an answer's header, and of its body.
const maxAnswer = 64 << 10

// timeouts bound one attempt. They pass by the wall clock, as the network does.
type timeouts struct {
	connect, header, total time.Duration
	// concealFor is how long after its begin an attempt without an answer is shown: what it tells is the same whatever
	// happened.
	concealFor time.Duration
}

// newClient makes the HTTP client of all attempts for tenants, or for those who run the cluster. Each attempt has a
// connection of its own, so that each is judged by the address that the sink's name stands for now.
func newClient(o Options, t timeouts, tenants bool) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		permitted := dialPolicy{Policy: o.Policy, forTenants: tenants}
		if tenants && o.ClusterAddresses != nil {
			var err error
			if permitted.clusterAddresses, err = o.ClusterAddresses(ctx); err != nil {
				return nil, fmt.Errorf("%w: %w", errUnknownCluster, err)
			}
		}
		dialer := &net.Dialer{Timeout: t.connect, Control: permitted.checkAddress, Resolver: o.Resolver}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Client{
		Timeout: t.total,
		Transport: &http.Transport{
			DialContext:            dial,
			TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    t.connect,
			ResponseHeaderTimeout:  t.header,
			MaxResponseHeaderBytes: maxAnswer,
			DisableKeepAlives:      true,
			DisableCompression:     true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// postEvent sends the event in the binary mode of CloudEvents over HTTP, with more headers, and gives the answer's status code and header.
func postEvent(ctx context.Context, client *http.Client, sink string, auth http.Header, e cloudevents.Event) (int, http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, sink, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot make a request: %w", err)
	}
	req.Header.Set("User-Agent", "cleaner.vtex.dev")
	if err := cehttp.WriteRequest(binding.WithForceBinary(ctx), binding.ToMessage(&e), req); err != nil {
		return 0, nil, fmt.Errorf("cannot write the event: %w", err)
	}
	maps.Copy(req.Header, auth)
	resp, err := client.Do(req)
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err // a URL may hold a secret in its query
	}
	if err != nil {
		return 0, nil, fmt.Errorf("cannot send the event: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // the answer has been given; how it ends changes nothing
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return resp.StatusCode, resp.Header, nil
}
