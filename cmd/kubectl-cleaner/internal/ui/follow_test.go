// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return is(), nil }); err != nil {
		t.Fatalf("not in time: %s", what)
	}
}

// followers runs the followers of a server until the test ends.
func followers(t *testing.T, s *site) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.follow(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// The fleet is what watches say: what is made, changed and deleted.
func TestFollow(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	s.fleet = newFleet()
	followers(t, s)
	eventually(t, "both kinds are listed", func() bool { return s.fleet.sourceOf("Cleaner").Listed && s.fleet.sourceOf("ClusterCleaner").Listed })
	client := s.Client.(*dynamicfake.FakeDynamicClient)
	eventually(t, "both kinds are watched", func() bool {
		n := 0
		for _, a := range client.Actions() {
			if a.GetVerb() == "watch" {
				n++
			}
		}
		return n == 2
	})
	has := func(name Name, message string) func() bool {
		return func() bool {
			rows, _, _ := s.fleet.listRows()
			for i := range rows {
				if rows[i].Name == name {
					return message == rows[i].Message
				}
			}
			return message == "gone"
		}
	}
	eventually(t, "the Cleaner is listed", has(Name{"team", "preview"}, "Rule old: 2 items wait."))
	cleaners := client.Resource(v1alpha1.GroupVersion.WithResource("cleaners")).Namespace("team")
	changed := object(t, strings.ReplaceAll(preview, "2 items wait", "3 items wait"))
	if _, err := cleaners.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is seen", has(Name{"team", "preview"}, "Rule old: 3 items wait."))
	everywhere := object(t, "kind: ClusterCleaner\nmetadata: {name: everywhere}\nspec: {}")
	if _, err := client.Resource(v1alpha1.GroupVersion.WithResource("clustercleaners")).Create(t.Context(), everywhere, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new one is seen", has(Name{"", "everywhere"}, ""))
	if err := cleaners.Delete(t.Context(), "preview", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion is seen", has(Name{"team", "preview"}, "gone"))
}

// Users who may not list all Cleaners see those of their namespace, and what is refused.
func TestFollowWithFewRights(t *testing.T) {
	other := object(t, strings.ReplaceAll(preview, "team", "other"))
	s := newSite(t, &commands{}, object(t, preview), other)
	s.fleet = newFleet()
	client := s.Client.(*dynamicfake.FakeDynamicClient)
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() == "team" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New(`User "bob" cannot list`))
	})
	followers(t, s)
	eventually(t, "the kinds are read, or refused", func() bool {
		return s.fleet.sourceOf("Cleaner").Listed && s.fleet.sourceOf("ClusterCleaner").Limit != ""
	})
	got := s.page(http.StatusOK, "/")
	wants(t, got, "Only the Cleaners of namespace team are shown (choose another one with -n): cleaners.cleaner.vtex.dev is forbidden: User &#34;bob&#34; cannot list", "ClusterCleaners cannot be shown: clustercleaners.cleaner.vtex.dev is forbidden", "/cleaners/team/preview")
	if strings.Contains(got, "/cleaners/other/") || strings.Contains(got, "Reading the Cleaners") {
		t.Error("it shows others, or waits for them")
	}
}

// A watch that is too old leads to a new list, and a failure is said until it is over. In between the Cleaners stay on the page.
func TestFollowRecovers(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	s.fleet = newFleet()
	fake := clocktesting.NewFakeClock(begin)
	s.Clock = fake
	client := s.Client.(*dynamicfake.FakeDynamicClient)
	var lists, watches, down atomic.Int64
	client.PrependReactor("list", "cleaners", func(clienttesting.Action) (bool, runtime.Object, error) {
		if lists.Add(1); down.Load() > 0 {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	first := watch.NewRaceFreeFake()
	client.PrependWatchReactor("cleaners", func(clienttesting.Action) (bool, watch.Interface, error) {
		if watches.Add(1) == 1 {
			return true, first, nil
		}
		return false, nil, nil
	})
	followers(t, s)
	eventually(t, "it watches", func() bool { return watches.Load() == 1 && s.fleet.sourceOf("Cleaner").Listed })
	down.Store(1)
	first.Error(&apierrors.NewResourceExpired("too old").ErrStatus)
	eventually(t, "it says what fails", func() bool {
		fake.Step(time.Second)
		return s.fleet.sourceOf("Cleaner").Problem == "Cannot read Cleaners: connection refused"
	})
	wants(t, s.page(http.StatusOK, "/"), "Cannot read Cleaners: connection refused", "/cleaners/team/preview")
	down.Store(0)
	eventually(t, "it has recovered", func() bool {
		fake.Step(time.Second)
		return s.fleet.sourceOf("Cleaner") == source{Listed: true} && watches.Load() > 1
	})
	if lists.Load() < 3 {
		t.Errorf("it has listed %d times", lists.Load())
	}
}

// listen reads the events of a name from a server.
func listen(t *testing.T, s *site, server *httptest.Server, path, wanted string) func() string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = s.guard.hosts[0]
	r.AddCookie(s.cookie)
	got, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = got.Body.Close() })
	if got.StatusCode != http.StatusOK || got.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %s", got.StatusCode, got.Header.Get("Content-Type"))
	}
	lines := bufio.NewScanner(got.Body)
	return func() string {
		event := ""
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == wanted {
				return data
			}
		}
		t.Fatalf("the stream has ended: %v", lines.Err())
		return ""
	}
}

// A stream says when there is something new: what was missed since the page was made, too. The stream of one Cleaner is about nothing else.
func TestEvents(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	s.Clock = clock.RealClock{} // connections have deadlines
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	isNow := func(got string, of Name) {
		t.Helper()
		if version, _, _ := s.fleet.waitForNews(of); got != fmt.Sprintf("%q", version) {
			t.Errorf("the event is %s, and not %q", got, version)
		}
	}
	of := Name{"team", "preview"}
	page := s.page(http.StatusOK, "/")
	version, _, _ := s.fleet.waitForNews(Name{})
	wants(t, page, `data-events="/events?since=`+version+`"`)
	isNow(listen(t, s, server, "/events?since=0", "change")(), Name{})
	all, one := listen(t, s, server, "/events?since="+version, "change"), listen(t, s, server, s.fleet.eventsOf(of, "7"), "change")
	s.fleet.putRow(summary{Name: Name{"team", "other"}, Version: "8"})
	isNow(all(), Name{})
	s.fleet.putRow(summary{Name: of, Version: "9"})
	isNow(one(), of)
	s.fleet.removeRow(of)
	isNow(one(), of)
}

// The page of an earlier start learns that it is old, also if as much has changed since this start as had then.
func TestEventsAfterRestart(t *testing.T) {
	before, after := newSite(t, &commands{}, object(t, preview)), newSite(t, &commands{}, object(t, preview))
	after.Clock = clock.RealClock{}
	server := httptest.NewServer(after.handler)
	t.Cleanup(server.Close)
	version, _, _ := before.fleet.waitForNews(Name{})
	of := Name{"team", "preview"}
	for _, path := range []string{"/events?since=" + version, before.fleet.eventsOf(of, "7")} {
		if got := listen(t, after, server, path, "change")(); !strings.Contains(got, after.fleet.id) {
			t.Errorf("the event is %s", got)
		}
	}
}

// A page says that it is live only while it is: not if its Cleaner is not followed, nor while the cluster cannot be read.
func TestLive(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	s.Clock = clock.RealClock{}
	server := httptest.NewServer(s.handler)
	t.Cleanup(server.Close)
	is := func(what, want string, next func() string) {
		t.Helper()
		if got := next(); got != want {
			t.Errorf("%s: live is %s", what, got)
		}
	}
	all, one := listen(t, s, server, "/events", "live"), listen(t, s, server, s.fleet.eventsOf(Name{"team", "preview"}, "7"), "live")
	unknown, cluster := listen(t, s, server, s.fleet.eventsOf(Name{"elsewhere", "preview"}, "7"), "live"), listen(t, s, server, s.fleet.eventsOf(Name{"", "everywhere"}, "7"), "live")
	is("the list", "true", all)
	is("a Cleaner", "true", one)
	is("a Cleaner that is not followed", "false", unknown)
	is("a ClusterCleaner that is not followed", "false", cluster)
	s.fleet.setSource("Cleaner", source{Listed: true, Problem: "connection refused"})
	is("the list without the cluster", "false", all)
	is("a Cleaner without the cluster", "false", one)
	s.fleet.setSource("Cleaner", source{Listed: true})
	is("the list again", "true", all)
	is("a Cleaner again", "true", one)
	s.fleet.putRow(summary{Name: Name{"elsewhere", "preview"}, Version: "1"})
	is("a Cleaner that is followed now", "true", unknown)
}

// written keeps what a handler writes.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Header() http.Header { return http.Header{} }

func (w *written) WriteHeader(int) {}

func (w *written) Flush() {}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *written) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), text)
}

// A stream about one Cleaner is not silent for long, however often others change.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &commands{}, object(t, preview))
		s.Clock = clock.RealClock{} // the one of this test
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out := &written{}
		go s.streamEvents(out, httptest.NewRequestWithContext(ctx, http.MethodGet, s.fleet.eventsOf(Name{"team", "preview"}, "7"), nil))
		for i := range 25 {
			synctest.Wait()
			s.fleet.putRow(summary{Name: Name{"team", "busy"}, Version: fmt.Sprint(i)})
			<-time.After(heartbeat / 20)
		}
		if !out.has(": still here") {
			t.Error("no sign of life")
		}
	})
}

// Only so many streams are open: the oldest one ends for one more, and its page connects again.
func TestBoundOfStreams(t *testing.T) {
	var all streams
	var open []context.Context
	for range maxStreams {
		ctx, end := all.begin(t.Context())
		defer end()
		open = append(open, ctx)
	}
	_, end := all.begin(t.Context())
	if open[0].Err() == nil || open[1].Err() != nil || len(all.open) != maxStreams {
		t.Errorf("the oldest: %v, the next: %v, %d are open", open[0].Err(), open[1].Err(), len(all.open))
	}
	end()
	if len(all.open) != maxStreams-1 {
		t.Errorf("%d are open", len(all.open))
	}
	_, end = all.begin(t.Context())
	defer end()
	if open[1].Err() != nil {
		t.Error("there was room, and one has ended")
	}
}

// Only so much is computed at a time. A page gets an answer when its time is over, also if what it waits for does not end; and pages that have left
// keep no others waiting, until too much has not ended.
func TestTurns(t *testing.T) {
	all := newTurns()
	release := make(chan struct{})
	hang := func(context.Context) (string, error) { <-release; return "late", nil }
	for i := range maxRunning {
		ctx, cancel := context.WithCancel(t.Context())
		limit := time.Hour
		if i%2 == 0 {
			limit = time.Millisecond
		} else {
			cancel()
		}
		if _, err := takeTurn(ctx, all, limit, hang); i%2 == 0 && !errors.Is(err, errTakesTooLong) || i%2 == 1 && !errors.Is(err, context.Canceled) {
			t.Errorf("what does not end: %v", err)
		}
		cancel()
		if len(all.asked) != 0 {
			t.Fatalf("%d turns are taken after the page has left", len(all.asked))
		}
	}
	for range maxRunning - len(all.running) { // a page that has left before it had its turn
		all.running <- struct{}{}
	}
	if _, err := takeTurn(t.Context(), all, time.Millisecond, func(context.Context) (string, error) { return "", errors.New("it was done") }); !errors.Is(err, errTakesTooLong) {
		t.Errorf("too much runs: %v", err)
	}
	close(release)
	eventually(t, "what ran has ended", func() bool { return len(all.running) < maxRunning })
	if is, err := takeTurn(t.Context(), all, time.Hour, hang); is != "late" || err != nil {
		t.Errorf("with room: %q, %v", is, err)
	}
	for range maxComputing {
		all.asked <- struct{}{}
	}
	if _, err := takeTurn(t.Context(), all, time.Nanosecond, hang); !errors.Is(err, errTakesTooLong) {
		t.Errorf("without a turn: %v", err)
	}
}

// A panic of a computation fails its page alone.
func TestPanicOfComputation(t *testing.T) {
	_, err := takeTurn(t.Context(), newTurns(), time.Hour, func(context.Context) (string, error) { panic("at the disco") })
	if err == nil || !strings.Contains(err.Error(), "at the disco") {
		t.Errorf("the error is %v", err)
	}
}

// Strangers hold no connection: they get an answer at once, whatever body they announce, and the connection ends. A request of the user whose body
// does not arrive ends too, and streams go on.
func TestHeldConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &commands{}, object(t, preview))
		s.Clock = clock.RealClock{} // the one of this test
		pipes := &pipeListener{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, pipes) }()
		send := func(request string) (read func() string) {
			ours, theirs := net.Pipe()
			pipes.conns <- theirs
			var got bytes.Buffer
			ended := make(chan struct{})
			go func() { defer close(ended); _, _ = got.ReadFrom(ours) }()
			go func() { _, _ = ours.Write([]byte(request)) }()
			return func() string {
				<-ended
				return got.String()
			}
		}
		const host = "Host: 127.0.0.1:4711\r\n"
		cookie := "Cookie: " + s.cookie.Name + "=" + s.cookie.Value + "\r\n"
		stream := send("GET /events HTTP/1.1\r\n" + host + cookie + "\r\n")
		for name, tc := range map[string]struct {
			request, want string
			most          time.Duration
		}{
			"Stranger":            {"GET / HTTP/1.1\r\n" + host + "\r\n", "HTTP/1.1 401 Unauthorized", time.Second},
			"StrangerWithBody":    {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1000\r\n\r\n", "HTTP/1.1 401 Unauthorized", time.Second},
			"StrangerWithChunks":  {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 401 Unauthorized", time.Second},
			"StrangerOfOtherHost": {"POST / HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 1000\r\n\r\n", "HTTP/1.1 421 Misdirected Request", time.Second},
			"StrangerReadsFile":   {"GET /assets/style.css HTTP/1.1\r\n" + host + "Content-Length: 1000\r\n\r\n", "HTTP/1.1 200 OK", time.Second},
			"HalfRequest":         {"GET / HTTP/1.1\r\n", "", headerTimeout + time.Second},
			"UserWithoutBody": {
				"POST /cleaners/team/preview/run HTTP/1.1\r\n" + host + cookie + "Origin: http://127.0.0.1:4711\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n",
				"HTTP/1.1 403 Forbidden", headerTimeout + time.Second,
			},
		} {
			began := time.Now()
			if got := send(tc.request)(); !strings.HasPrefix(got, tc.want) {
				t.Errorf("%s: %.200q", name, got)
			}
			if took := time.Since(began); took > tc.most {
				t.Errorf("%s: it takes %s", name, took)
			}
		}
		<-time.After(time.Hour)
		cancel()
		if got := stream(); strings.Count(got, ": still here") < 100 {
			t.Errorf("the stream ended early: %q", got)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// pipeListener accepts connections within the program.
type pipeListener struct {
	conns chan net.Conn
	ended chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { close(l.ended); return nil }

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// Only so many connections are open at a time.
func TestBoundOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, &commands{}, object(t, preview))
		s.Clock = clock.RealClock{} // the one of this test
		pipes := &pipeListener{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, pipes) }()
		for range maxConnections {
			_, theirs := net.Pipe()
			pipes.conns <- theirs
		}
		_, theirs := net.Pipe()
		began := time.Now()
		pipes.conns <- theirs
		if waited := time.Since(began); waited != headerTimeout {
			t.Errorf("one more was accepted after %s", waited)
		}
		<-time.After(2 * headerTimeout) // none says anything
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// The server listens on loopback alone, and ends with its context, also while pages are open.
func TestServe(t *testing.T) {
	l, port, err := ListenLoopback(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if host := l.Addr().String(); host != fmt.Sprintf("127.0.0.1:%d", port) {
		t.Errorf("it listens on %s", host)
	}
	s, address, err := NewServer(Options{Client: newFake(object(t, preview)), Commands: &commands{}, Clock: clock.RealClock{}, Zone: time.UTC, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, l) }()
	jar := &oneCookie{}
	client := &http.Client{Jar: jar}
	get := func(url string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	got := get(address)
	_ = got.Body.Close()
	if got.StatusCode != http.StatusOK || got.Request.URL.Path != "/" || got.Request.URL.RawQuery != "" {
		t.Errorf("status %d of %s", got.StatusCode, got.Request.URL)
	}
	open := get(fmt.Sprintf("http://127.0.0.1:%d/events", port))
	defer func() { _ = open.Body.Close() }()
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
}
