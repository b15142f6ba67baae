// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sink is a receiver of CloudEvents for tests: a real HTTP server that records requests and answers as the test says, badly if
// need be.
//
// It reads events from the plain HTTP request rather than with a CloudEvents library, so that it shares no mistake with the sender.
package sink

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// Event is a request as it arrived.
type Event struct {
	// ID, Source, Type, Subject, Time and SpecVersion are the event's attributes.
	ID, Source, Type, Subject, Time, SpecVersion string
	// ContentType is the type of the data.
	ContentType string
	// Data is the event's data.
	Data []byte
	// Path is the path and query of the URL.
	Path string
	// Header is the whole header.
	Header http.Header
	// Status is the status code that it is answered with; 0 if it gets no answer.
	Status int
}

// Answer is what the sink does with one request, after having recorded it. The zero value answers 202.
type Answer struct {
	// Status is the status code: 202 when it is 0.
	Status int
	// Header is added to the answer.
	Header http.Header
	// Body is how many bytes the answer has.
	Body int64
	// Until delays the answer until it is closed.
	Until <-chan struct{}
	// Hang never ends the answer. With a Status its header is sent before.
	Hang bool
	// Close closes the connection without an answer.
	Close bool
	// Raw answers in a way that is no HTTP. The connection is its own, and closed when it returns.
	Raw func(net.Conn)
}

// Sink is an HTTP handler that records events. It is made with New or Start.
type Sink struct {
	// URL is where it is reached, when it was started.
	URL string
	// Close ends the answers that hang or wait; one that was started is reached no more, and its port is closed.
	Close func()

	mu      sync.Mutex
	events  []Event
	answers []Answer
	others  Answer
	arrived chan struct{} // closed, and another one put in its place, at each event
	closed  chan struct{}
}

// New makes a sink that is not served yet. Close ends what it lets hang.
func New() *Sink {
	s := &Sink{arrived: make(chan struct{}), closed: make(chan struct{})}
	s.Close = sync.OnceFunc(func() { close(s.closed) })
	return s
}

// Start makes a sink and serves it on a loopback address until the test ends.
func Start(t testing.TB) *Sink {
	t.Helper()
	return StartAt(t, "127.0.0.1:0")
}

// StartAt is Start at another address, such as the address of a sink that was closed.
func StartAt(t testing.TB, address string) *Sink {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("cannot start a sink: %s", err)
	}
	s := New()
	server := httptest.NewUnstartedServer(s)
	_ = server.Listener.Close() // the one that it made for itself
	server.Listener = listener
	server.Start()
	s.URL = server.URL
	end := s.Close
	s.Close = sync.OnceFunc(func() {
		end()
		server.Close()
	})
	t.Cleanup(s.Close)
	return s
}

// Answer sets how the next requests are answered, one each, in this order.
func (s *Sink) Answer(answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = slices.Clone(answers)
}

// Otherwise sets how all requests are answered that Answer says nothing about.
func (s *Sink) Otherwise(a Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = a
}

// Codes are plain answers with these status codes.
func Codes(codes ...int) []Answer {
	answers := make([]Answer, 0, len(codes))
	for _, c := range codes {
		answers = append(answers, Answer{Status: c})
	}
	return answers
}

// Events are all requests that arrived, in their order, delivered or not.
func (s *Sink) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// WaitFor waits until n requests have arrived, and gives all that have.
func (s *Sink) WaitFor(ctx context.Context, n int) ([]Event, error) {
	for {
		s.mu.Lock()
		events, arrived := slices.Clone(s.events), s.arrived
		s.mu.Unlock()
		if len(events) >= n {
			return events, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return events, fmt.Errorf("cannot wait for %d events, there are %d: %w", n, len(events), ctx.Err())
		}
	}
}

// ServeHTTP records the request and answers it.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender went away: nothing has arrived
	}
	a := s.record(r, body)

	if a.Close || a.Raw != nil {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		if a.Raw != nil {
			a.Raw(conn)
		}
		return
	}
	if a.Until != nil && !s.wait(r, a.Until) {
		return
	}
	if a.Hang && a.Status == 0 {
		s.wait(r, nil)
		panic(http.ErrAbortHandler) // to return would be an answer: 200
	}
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	if a.Status == 0 {
		a.Status = http.StatusAccepted
	}
	w.WriteHeader(a.Status)
	if _, err := io.CopyN(w, zeros{}, a.Body); err != nil {
		return // the sender has read enough
	}
	if a.Hang {
		_ = http.NewResponseController(w).Flush()
		s.wait(r, nil)
	}
}

// record keeps the request and says how to answer it.
func (s *Sink) record(r *http.Request, body []byte) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := r.Header
	a := s.next()
	s.events = append(s.events, Event{
		ID: h.Get("Ce-Id"), Source: h.Get("Ce-Source"), Type: h.Get("Ce-Type"), Subject: h.Get("Ce-Subject"),
		Time: h.Get("Ce-Time"), SpecVersion: h.Get("Ce-Specversion"), ContentType: h.Get("Content-Type"),
		Data: body, Path: r.URL.RequestURI(), Header: h.Clone(), Status: a.code(),
	})
	close(s.arrived)
	s.arrived = make(chan struct{})
	return a
}

// next is how the next request is answered.
func (s *Sink) next() Answer {
	if len(s.answers) == 0 {
		return s.others
	}
	a := s.answers[0]
	s.answers = s.answers[1:]
	return a
}

// code is the status code of an answer; 0 if there is none.
func (a Answer) code() int {
	switch {
	case a.Close, a.Hang && a.Status == 0:
		return 0
	case a.Status == 0:
		return http.StatusAccepted
	default:
		return a.Status
	}
}

// wait waits for until; it says false when the sender or the sink went away before.
func (s *Sink) wait(r *http.Request, until <-chan struct{}) bool {
	select {
	case <-until:
		return true
	case <-r.Context().Done():
		return false
	case <-s.closed:
		return false
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
