// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package requestdeadline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// serveSlowly answers at once to /fast, never to /never, and with half an answer to /half, until the test is over.
func serveSlowly(t *testing.T) *httptest.Server {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/never":
			<-over
		case "/half":
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			<-over
		default:
			_, _ = io.WriteString(w, "all")
		}
	}))
	t.Cleanup(func() {
		close(over)
		server.Close()
	})
	return server
}

func newClient(t *testing.T, limit time.Duration) *http.Client {
	t.Helper()
	config := &rest.Config{}
	LimitRequests(config, limit)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func get(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(r)
}

// TestWhatIsNotAnsweredEnds shows that each request ends, before its answer begins and in its midst, and that a fast one does not.
func TestWhatIsNotAnsweredEnds(t *testing.T) {
	server := serveSlowly(t)
	short, long := newClient(t, 50*time.Millisecond), newClient(t, time.Hour)

	if _, err := get(t, short, server.URL+"/never"); !errors.Is(err, errSlow) { //nolint:bodyclose // there is none
		t.Errorf("a request without an answer gives %v", err)
	}
	resp, err := get(t, short, server.URL+"/half")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err == nil || string(got) != "half" {
		t.Errorf("half an answer gives %q, %v", got, err)
	}
	_ = resp.Body.Close()

	resp, err = get(t, long, server.URL+"/fast?watch=false")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "all" {
		t.Errorf("an answer gives %q, %v", got, err)
	}
	_ = resp.Body.Close()
}

// TestAWatchGoesOn shows that a watch has no deadline, and ends when its caller says so.
func TestAWatchGoesOn(t *testing.T) {
	server := serveSlowly(t)
	for _, value := range []string{"1", "true"} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/half?watch="+value, nil)
		if err != nil {
			t.Fatal(err)
		}
		var deadline bool
		seen := roundTripper(func(r *http.Request) (*http.Response, error) {
			_, deadline = r.Context().Deadline()
			return http.DefaultTransport.RoundTrip(r)
		})
		resp, err := transport{next: seen, limit: time.Nanosecond}.RoundTrip(r)
		if err != nil || deadline {
			t.Fatalf("a watch ends by itself: %v", err)
		}
		cancel()
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("a watch ends with %v", err)
		}
		_ = resp.Body.Close()
	}
}

// TestNoRedirectIsFollowed shows that a token is sent to nobody but whom the configuration names, whatever is answered, and to which request.
func TestNoRedirectIsFollowed(t *testing.T) {
	var heard atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.Add(1) }))
	t.Cleanup(elsewhere.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				t.Errorf("it is sent with %q", r.Header.Get("Authorization"))
			}
			w.Header().Set("Location", elsewhere.URL+"/steal")
			w.WriteHeader(status)
		}))
		t.Cleanup(server.Close)
		config := &rest.Config{Host: server.URL, BearerToken: "secret"}
		LimitRequests(config, time.Hour)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{http.MethodGet, http.MethodPatch, http.MethodDelete, http.MethodPost} {
			for _, query := range []string{"", "?watch=1"} {
				r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api"+query, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := client.Do(r); !errors.Is(err, errRedirect) { //nolint:bodyclose // there is none
					t.Errorf("%s%s, answered with %d, gives %v", method, query, status, err)
				}
			}
		}
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// TestAnswersAreBounded shows that nobody who answers a request that changes something fills the memory, and that lists are read whole.
func TestAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.Query().Get("size"))
		if err != nil {
			t.Error(err)
		}
		_, _ = io.CopyN(w, zeros{}, int64(size))
	}))
	t.Cleanup(server.Close)
	client := newClient(t, time.Hour)
	for _, tc := range []struct {
		method string
		size   int
		want   error
	}{
		{http.MethodPatch, maxAnswer, nil},
		{http.MethodPatch, maxAnswer + 1, errLarge},
		{http.MethodDelete, 4 * maxAnswer, errLarge},
		{http.MethodPost, 4 * maxAnswer, errLarge},
		{http.MethodGet, 4 * maxAnswer, nil},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, fmt.Sprint(server.URL, "/?size=", tc.size), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if !errors.Is(err, tc.want) || tc.want == nil && n != int64(tc.size) || n > int64(max(tc.size, maxAnswer+1)) {
			t.Errorf("%s of %d bytes gives %d and %v, want %v", tc.method, tc.size, n, err, tc.want)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestACallersEndIsTheCallers shows that who ends a request himself is told so.
func TestACallersEndIsTheCallers(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, serveSlowly(t).URL+"/never", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newClient(t, time.Hour).Do(r); !errors.Is(err, context.Canceled) || errors.Is(err, errSlow) { //nolint:bodyclose // there is none
		t.Errorf("it ends with %v", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
