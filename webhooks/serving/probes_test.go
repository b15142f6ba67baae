// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// serveProbes starts the server of probes, and gives its address.
func serveProbes(t *testing.T) (*Probes, string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Probes{alive: &healthz.Handler{Checks: map[string]healthz.Checker{}}, ready: &healthz.Handler{Checks: map[string]healthz.Checker{}}}
	server := newProbeServer(p, logr.Discard())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(limitProbes(server, listener)) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return p, listener.Addr().String()
}

// probe asks as the kubelet does, by a connection of its own.
func probe(t *testing.T, from, url string) (int, string) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestProbesAreAnswered shows that the checks are served as controller-runtime serves them: all, and each by its name.
func TestProbesAreAnswered(t *testing.T) {
	p, address := serveProbes(t)
	for _, err := range []error{
		p.AddHealthzCheck("ping", healthz.Ping), p.AddReadyzCheck("ping", healthz.Ping),
		p.AddReadyzCheck("webhook", func(*http.Request) error { return errors.New("confidential") }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/healthz": "200 ok", "/healthz/": "200 ok", "/healthz/ping": "200 ok", "/readyz/ping": "200 ok", "/readyz?exclude=webhook": "200 ok",
		"/readyz":         "500 [+]ping ok\n[-]webhook failed: reason withheld\nhealthz check failed\n",
		"/readyz/webhook": "500 internal server error: confidential\n",
		"/readyz/none":    "404 404 page not found\n",
		"/":               "404 404 page not found\n",
		"/healthzz":       "404 404 page not found\n",
		"/debug/pprof/":   "404 404 page not found\n",
	} {
		code, text := probe(t, "127.0.0.1", "http://"+address+path)
		if got := fmt.Sprint(code, " ", text); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

// TestAFloodAtTheProbesIsBounded shows that somebody who opens more than a thousand connections and begins a megabyte of header on each
// takes little memory, and that the kubelet has its answer meanwhile: it has another address.
func TestAFloodAtTheProbesIsBounded(t *testing.T) {
	const connections, header, most = 1200, 1 << 20, 16 << 20
	p, address := serveProbes(t)
	if err := p.AddHealthzCheck("ping", healthz.Ping); err != nil {
		t.Fatal(err)
	}
	text := append([]byte("GET /healthz HTTP/1.1\r\nHost: x\r\nX-A: "), bytes.Repeat([]byte("x"), header)...)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range connections {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go func() {
			_, _ = conn.Write(text) // it may be cut off
		}()
		if code, text := probe(t, "127.0.0.1", "http://"+address+"/healthz"); code != http.StatusOK {
			t.Fatalf("the kubelet has %d %s", code, text)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse); took > most {
		t.Errorf("%d connections take %d MiB", connections, took>>20)
	}
}

// TestASlowProberIsCutOff shows that who begins a request and does not end it loses the connection.
func TestASlowProberIsCutOff(t *testing.T) {
	_, address := serveProbes(t)
	for _, sent := range []string{"", "GET /healthz HTTP/1.1\r\n", "POST /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome"} {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(probeTimeout + 10*time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, conn)
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			t.Errorf("%q holds its connection", sent)
		}
		_ = conn.Close()
	}
}

// TestProbesAreServedFromTheStart shows that probes are answered while the API server is away, and that without an address
// nothing is served.
func TestProbesAreServedFromTheStart(t *testing.T) {
	ports, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ports.Addr().String()
	_ = ports.Close()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "https://127.0.0.1:1"}, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Logger: testr.New(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := AddProbes(t.Context(), mgr, "0", logr.Discard()); err != nil {
		t.Fatal(err)
	}
	p, err := AddProbes(t.Context(), mgr, address, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AddReadyzCheck("ping", healthz.Ping); err != nil {
		t.Fatal(err)
	}
	if _, err := AddProbes(t.Context(), mgr, address, logr.Discard()); err == nil {
		t.Error("two listen on one port")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Start(ctx) }()
	if code, text := probe(t, "127.0.0.1", "http://"+address+"/readyz"); code != http.StatusOK {
		t.Errorf("got %d %s", code, text)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
