// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	// maxHeader bounds the header of a request, in bytes. Go reads 4 KiB more.
	maxHeader = 64 << 10
	// headerTimeout bounds the TLS handshake, and the header of a request.
	headerTimeout = 5 * time.Second
	// readTimeout bounds a request with its body: callers are near, and send at most a few MiB.
	readTimeout = 10 * time.Second
	// writeTimeout bounds a request until its answer is written. Kubernetes gives a webhook at most 30 seconds.
	writeTimeout = 40 * time.Second
	// idleTimeout is how long a connection may wait for its next request.
	idleTimeout = 90 * time.Second
	// stopTimeout is how long open requests may take when the server stops.
	stopTimeout = 15 * time.Second
	// logInterval is the shortest time between two log lines about failed connections: anybody can cause them.
	logInterval = 10 * time.Second
)

// Options are the options of a Server.
type Options struct {
	// Address is the address to listen on, such as ":9443".
	Address string
	// CertDir is the folder with tls.crt and tls.key, which may change at any time. If it is empty, the server uses a
	// self-signed certificate.
	CertDir string
	// HTTP2 lets callers use HTTP/2.
	HTTP2 bool
	// ClientCA is a file with the certificates of the authorities that sign callers' certificates. If it is set, callers
	// without such a certificate are refused.
	ClientCA string
	// ClientNames are the common names and DNS names that callers' certificates may have; empty allows all.
	ClientNames []string
	// Log receives some of the failed connections.
	Log logr.Logger
}

// Server serves one handler over HTTPS, in every replica.
type Server struct {
	options Options
	handler http.Handler
	address atomic.Pointer[net.Addr] // nil until it listens
}

// New returns a Server. It returns an error if the ClientCA cannot be used.
func New(o Options, handler http.Handler) (*Server, error) {
	if len(o.ClientNames) > 0 && o.ClientCA == "" {
		return nil, errors.New("client names require a client CA that has signed the certificates")
	}
	if o.ClientCA != "" {
		if _, err := cert.NewPool(o.ClientCA); err != nil {
			return nil, fmt.Errorf("cannot use the client CA: %w", err)
		}
	}
	return &Server{options: o, handler: handler}, nil
}

// NeedLeaderElection returns false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// ListenAddress returns the address on which the server listens; nil before that.
func (s *Server) ListenAddress() net.Addr {
	if a := s.address.Load(); a != nil {
		return *a
	}
	return nil
}

// CheckReady fails until the server listens.
func (s *Server) CheckReady(*http.Request) error {
	if s.ListenAddress() == nil {
		return errors.New("the server is not listening yet")
	}
	return nil
}

// Start serves until ctx is done and the open requests are answered.
func (s *Server) Start(ctx context.Context) error {
	config, err := s.newTLSConfig(ctx)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.options.Address)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	address := listener.Addr()
	s.address.Store(&address)
	s.options.Log.Info("Serving", "address", address.String(), "clientCertificates", s.options.ClientCA != "")

	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(s.options.HTTP2)
	server := &http.Server{
		Handler: s.handler, TLSConfig: config, Protocols: protocols, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: stdlog.New(&throttledLog{log: s.options.Log, throttle: rate.Sometimes{Interval: logInterval}}, "", 0),
	}
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		stopped <- server.Shutdown(ctx)
	}()
	bounded := limitConnections(server, listener, maxConnections, maxConnectionsPerCaller)
	if err := server.ServeTLS(bounded, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve: %w", err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("cannot answer all requests before the shutdown: %w", err)
	}
	return nil
}

// newTLSConfig returns the server's TLS configuration.
func (s *Server) newTLSConfig(ctx context.Context) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.options.HTTP2 {
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	var err error
	if config.GetCertificate, err = s.loadCertificate(ctx); err != nil {
		return nil, err
	}
	if s.options.ClientCA == "" {
		return config, nil
	}
	config.ClientAuth, config.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, true // each connection is verified
	base := config.Clone()
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		pool, err := cert.NewPool(s.options.ClientCA) // for each connection, because the authority can be renewed
		if err != nil {
			return nil, fmt.Errorf("cannot use the client CA: %w", err)
		}
		now := base.Clone()
		now.ClientCAs = pool
		now.VerifyConnection = func(state tls.ConnectionState) error {
			if err := s.verifyClientName(state); err != nil {
				return err
			}
			if c, ok := hello.Conn.(*slotConn); ok {
				c.slot.setKnown()
			}
			return nil
		}
		return now, nil
	}
	return config, nil
}

// verifyClientName returns an error if a verified client certificate has none of ClientNames.
func (s *Server) verifyClientName(state tls.ConnectionState) error {
	if len(s.options.ClientNames) == 0 {
		return nil
	}
	if len(state.PeerCertificates) > 0 {
		client := state.PeerCertificates[0]
		for _, name := range s.options.ClientNames {
			if client.Subject.CommonName == name || client.VerifyHostname(name) == nil {
				return nil
			}
		}
	}
	return errors.New("the client's certificate has none of the allowed names")
}

// loadCertificate returns the function that returns the current certificate for each connection.
func (s *Server) loadCertificate(ctx context.Context) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if s.options.CertDir == "" {
		chain, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		if err != nil {
			return nil, fmt.Errorf("cannot create a self-signed certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return nil, fmt.Errorf("cannot use the self-signed certificate: %w", err)
		}
		return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }, nil
	}
	watcher, err := certwatcher.New(filepath.Join(s.options.CertDir, "tls.crt"), filepath.Join(s.options.CertDir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("cannot use the certificate in %s: %w", s.options.CertDir, err)
	}
	go func() {
		if err := watcher.Start(ctx); err != nil && !errors.Is(err, os.ErrClosed) {
			s.options.Log.Error(err, "Cannot watch the certificate")
		}
	}()
	return watcher.GetCertificate, nil
}

// throttledLog logs net/http's messages about connections, and drops most of them.
type throttledLog struct {
	log      logr.Logger
	throttle rate.Sometimes
}

// Write takes one line.
func (s *throttledLog) Write(line []byte) (int, error) {
	s.throttle.Do(func() { s.log.Info("A connection failed", "why", string(line)) })
	return len(line), nil
}
