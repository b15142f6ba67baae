// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ui serves pages about the Cleaners of a cluster, on loopback, to the user who started it, with that user's rights. It serves whole
// pages of HTML: a small script only exchanges the parts that have changed.
//
// It never decides and never acts: plans, forecasts and changes are those of the commands. It writes no file, and loads nothing from elsewhere.
package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/whynot"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

// The bounds of requests. The only caller is the user's browser, but anything on the machine can connect.
const (
	maxHeader      = 16 << 10
	maxBody        = 4 << 10
	maxConnections = 128
	maxStreams     = 32
	maxComputing   = 2
	maxRunning     = 4 * maxComputing
	// headerTimeout bounds how long the headers of a request take to arrive, and again its body.
	headerTimeout = 10 * time.Second
	writeTimeout  = 3 * time.Minute
	idleTimeout   = 2 * time.Minute
	endGrace      = 2 * time.Second
	// readTimeout bounds reads and changes of one Cleaner; planTimeout and forecastTimeout bound plans and forecasts.
	readTimeout     = 20 * time.Second
	planTimeout     = 30 * time.Second
	forecastTimeout = time.Minute
)

// Name names a Cleaner, or a ClusterCleaner if Namespace is empty.
type Name struct{ Namespace, Name string }

// Commands are the commands of kubectl cleaner that pages call. They act with the user's rights.
type Commands interface {
	Answers
	Changes
}

// Answers are the commands that change nothing.
type Answers interface {
	// MakePlan makes the plan of a stored Cleaner, with the counts of its rules.
	MakePlan(context.Context, *unstructured.Unstructured) (*Plan, error)
	// PrepareForecast returns what predicts stored Cleaners.
	PrepareForecast(context.Context) (Predict, error)
	// ExplainObject says what a stored Cleaner makes of an object: KIND/NAMESPACE/NAME.
	ExplainObject(ctx context.Context, u *unstructured.Unstructured, name string) (*whynot.Explanation, error)
	// PrepareWaste returns what lists the objects that stored Cleaners want to take.
	PrepareWaste(context.Context) (ListWanted, error)
}

// Changes are the commands that change a Cleaner.
type Changes interface {
	// SetSuspend suspends a Cleaner, or resumes it.
	SetSuspend(ctx context.Context, of Name, suspend bool) error
	// RequestEvaluation has the operator evaluate a Cleaner now.
	RequestEvaluation(context.Context, Name) error
}

// Plan is a plan, and what `kubectl cleaner plan` prints beside it.
type Plan struct {
	*planjson.Plan
	// Message says why the plan is as it is.
	Message string
	// DryRun says that the operator would not carry the steps out.
	DryRun bool
	// Due is the scheduled time before which the operator would not carry the steps out; zero if they are due.
	Due time.Time
}

// Predict adds what a stored Cleaner will do to a forecast. It changes nothing.
type Predict func(context.Context, *forecast.Document, *unstructured.Unstructured) error

// Options say what is served.
type Options struct {
	Client   dynamic.Interface
	Commands Commands
	// Namespace is the one whose Cleaners are shown to users who may not list those of all namespaces.
	Namespace string
	// Context and Address say which cluster it is.
	Context, Address string
	Clock            clock.Clock
	// Zone is the time zone of the times on the pages.
	Zone *time.Location
	// Port is where the pages are served.
	Port int
}

// Server serves the pages.
type Server struct {
	Options
	viewer  viewer
	guard   *guard
	pages   *pages
	fleet   *fleet
	streams streams
	turns   turns
}

// NewServer returns a server, and the address to open. The address works once.
func NewServer(o Options) (s *Server, address string, err error) {
	s = &Server{Options: o, viewer: viewer{o.Clock, o.Zone}, fleet: newFleet(), turns: newTurns()}
	if s.guard, err = newGuard(o.Port); err != nil {
		return nil, "", err
	}
	if s.pages, err = loadPages(); err != nil {
		return nil, "", err
	}
	return s, fmt.Sprintf("http://%s/?token=%s", net.JoinHostPort(loopback, fmt.Sprint(o.Port)), s.guard.token), nil
}

// ListenLoopback listens on loopback; with port 0, on a free port.
func ListenLoopback(ctx context.Context, port int) (net.Listener, int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", net.JoinHostPort(loopback, fmt.Sprint(port)))
	if err != nil {
		return nil, 0, err
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, 0, errors.Join(fmt.Errorf("%s is not an address of TCP", l.Addr()), l.Close())
	}
	return l, address.Port, nil
}

// Serve follows the Cleaners and serves their pages until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.follow(ctx)
	}()
	server := &http.Server{
		Handler: s.newHandler(), ReadHeaderTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// Requests end with the command: plans, and streams of events.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, stop := context.WithTimeout(context.WithoutCancel(ctx), endGrace)
		defer stop()
		ended <- server.Shutdown(grace)
	}()
	err := server.Serve(netutil.LimitListener(l, maxConnections))
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
		<-ended // an answer that takes longer is cut off
	}
	cancel()
	<-done
	return err
}

// newHandler routes requests. Pages that come later, such as proposals, history and restore, are further routes here and entries of listPages
// or listTabs.
func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.showOverview)
	mux.HandleFunc("GET /forecast", s.showForecast)
	mux.HandleFunc("GET /waste", s.showWaste)
	mux.HandleFunc("GET /events", s.streamEvents)
	for _, base := range []string{"/cleaners/{namespace}/{name}", "/clustercleaners/{name}"} {
		mux.HandleFunc("GET "+base, s.showState)
		mux.HandleFunc("GET "+base+"/plan", s.showPlan)
		mux.HandleFunc("GET "+base+"/forecast", s.showForecastOfOne)
		mux.HandleFunc("GET "+base+"/object", s.showObject)
		mux.HandleFunc("GET "+base+"/spec", s.showSpec)
		mux.HandleFunc("POST "+base+"/{change}", s.changeCleaner)
	}
	mux.HandleFunc("/", s.showNotFound)
	return s.guard.protect(s, mux)
}
