// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// The limits of probes. A prober needs one connection for each probe, for some milliseconds.
const (
	maxProbeConnections          = 512
	maxProbeConnectionsPerCaller = 32
	maxProbeHeader               = 4 << 10
	probeTimeout                 = 3 * time.Second
)

// Probes serves /healthz and /readyz over HTTP to all callers, as long as the manager runs. So a process that waits for the API
// server does not look like one that hangs.
type Probes struct {
	manager.Manager
	alive, ready *healthz.Handler
}

// AddProbes adds the probe server to a manager. If the address is empty or 0, nothing is served. Add all checks to the Probes that it
// returns.
func AddProbes(ctx context.Context, mgr manager.Manager, address string, log logr.Logger) (*Probes, error) {
	p := &Probes{Manager: mgr, alive: &healthz.Handler{Checks: map[string]healthz.Checker{}}, ready: &healthz.Handler{Checks: map[string]healthz.Checker{}}}
	if address == "" || address == "0" {
		return p, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for probes: %w", err)
	}
	server := newProbeServer(p, log)
	if err := mgr.Add(&manager.Server{Name: "health probe", Server: server, Listener: limitProbes(server, listener)}); err != nil {
		return nil, fmt.Errorf("cannot add the probe server to the manager: %w", err)
	}
	return p, nil
}

// AddHealthzCheck adds a check to /healthz.
func (p *Probes) AddHealthzCheck(name string, check healthz.Checker) error {
	p.alive.Checks[name] = check
	return nil
}

// AddReadyzCheck adds a check to /readyz.
func (p *Probes) AddReadyzCheck(name string, check healthz.Checker) error {
	p.ready.Checks[name] = check
	return nil
}

// ServeHTTP answers a probe: all checks or, below /healthz/ and /readyz/, one of them.
func (p *Probes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for path, handler := range map[string]*healthz.Handler{"/healthz": p.alive, "/readyz": p.ready} {
		if rest, ok := strings.CutPrefix(r.URL.Path, path); ok && (rest == "" || rest[0] == '/') {
			http.StripPrefix(path, handler).ServeHTTP(w, r)
			return
		}
	}
	http.NotFound(w, r)
}

// newProbeServer returns the probe server, which gives each caller little memory and time.
func newProbeServer(handler http.Handler, log logr.Logger) *http.Server {
	return &http.Server{
		Handler: handler, MaxHeaderBytes: maxProbeHeader,
		ReadHeaderTimeout: probeTimeout, ReadTimeout: probeTimeout, WriteTimeout: probeTimeout, IdleTimeout: probeTimeout,
		ErrorLog: stdlog.New(&throttledLog{log: log, throttle: rate.Sometimes{Interval: logInterval}}, "", 0),
	}
}

// limitProbes bounds the connections of probers, in total and per address.
func limitProbes(server *http.Server, listener net.Listener) net.Listener {
	return limitConnections(server, listener, maxProbeConnections, maxProbeConnectionsPerCaller)
}
