// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/sink"
)

var epoch = time.Date(2024, 5, 6, 8, 0, 0, 0, time.UTC)

// sent compares what was sent, whatever was answered.
var sent = cmpopts.IgnoreFields(sink.Event{}, "Status")

// bench is a Sender that runs, its clock, and what it says.
type bench struct {
	*Sender
	t     *testing.T
	ctx   context.Context
	clock *clocktesting.FakeClock
	done  chan types.NamespacedName
	stop  func() // ends the Sender and waits for its end

	mu      sync.Mutex
	results map[string]int
}

func (b *bench) CountDelivery(result string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results[result]++
}

func (b *bench) counted() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]int{}
	for k, n := range b.results {
		out[k] = n
	}
	return out
}

// start makes a Sender as prepare does, and runs it.
func start(t *testing.T, edit ...func(*Options, *timeouts)) *bench {
	t.Helper()
	b := prepare(t, edit...)
	b.run()
	return b
}

// prepare makes a Sender that may reach loopback addresses, edited by edit.
func prepare(t *testing.T, edit ...func(*Options, *timeouts)) *bench {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	b := &bench{
		t: t, ctx: ctx, clock: clocktesting.NewFakeClock(epoch),
		done: make(chan types.NamespacedName, 1000), results: map[string]int{},
	}
	o := Options{
		Clock: b.clock, Policy: Policy{AllowLoopback: true}, Metrics: b,
		DeliveryChanged: func(k types.NamespacedName) { b.done <- k },
	}
	limits := timeouts{connect: 5 * time.Second, header: 10 * time.Second, total: 20 * time.Second}
	for _, e := range edit {
		e(&o, &limits)
	}
	s, err := newSender(o, limits)
	if err != nil {
		t.Fatal(err)
	}
	b.Sender = s
	return b
}

// run starts the Sender, until stop or the end of the test.
func (b *bench) run() {
	ctx, end := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.Start(ctx) }()
	b.stop = sync.OnceFunc(func() {
		end()
		select {
		case err := <-ended:
			if err != nil {
				b.t.Errorf("Start: %v", err)
			}
		case <-time.After(10 * time.Second):
			b.t.Error("Start does not end")
		}
	})
	b.t.Cleanup(b.stop)
}

func key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "faststore-proxy", Name: name}
}

func (b *bench) send(name, url string, run int64) {
	b.QueueDelivery(key(name), identity(name), Sink{URL: url}, finished(run))
}

func (b *bench) state(name string, run int64) Delivery {
	return b.GetDelivery(key(name), identity(name).UID, run)
}

// attempted waits for the end of an attempt.
func (b *bench) attempted(name string) {
	b.t.Helper()
	select {
	case k := <-b.done:
		if k != key(name) {
			b.t.Fatalf("an attempt of %q ended, not of %q", k, name)
		}
	case <-b.ctx.Done():
		b.t.Fatalf("no attempt of %q has ended", name)
	}
}

// arrived waits for the sink to have n requests, and checks that it has no more.
func (b *bench) arrived(s *sink.Sink, n int) []sink.Event {
	b.t.Helper()
	events, err := s.WaitFor(b.ctx, n)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(events) != n {
		b.t.Fatalf("%d requests have arrived instead of %d", len(events), n)
	}
	return events
}

// entered waits until n deliveries of the usual namespace wait for an attempt at the sink, or make it.
func (b *bench) entered(url string, n int) {
	b.t.Helper()
	users := func() int {
		b.pools.mu.Lock()
		defer b.pools.mu.Unlock()
		if h, ok := b.pools.m["sink "+key("").Namespace+" "+strings.TrimPrefix(url, "http://")]; ok {
			return h.users
		}
		return 0
	}
	for users() != n {
		if b.ctx.Err() != nil {
			b.t.Fatalf("%d deliveries have come to %q instead of %d", users(), url, n)
		}
		runtime.Gosched()
	}
}

// occupied waits until all slots of a namespace are taken.
func (b *bench) occupied(namespace string) {
	b.t.Helper()
	isFree := func() bool {
		b.pools.mu.Lock()
		defer b.pools.mu.Unlock()
		p := b.pools.m["namespace "+namespace]
		return p == nil || p.free > 0
	}
	for isFree() {
		if b.ctx.Err() != nil {
			b.t.Fatalf("a slot of namespace %q is free", namespace)
		}
		runtime.Gosched()
	}
}

// empty waits until the Sender keeps nothing and does nothing.
func (b *bench) empty() {
	b.t.Helper()
	left := func() int {
		b.Sender.mu.Lock()
		defer b.Sender.mu.Unlock()
		b.pools.mu.Lock()
		defer b.pools.mu.Unlock()
		return len(b.deliveries) + len(b.pending) + len(b.pools.m) + b.countBusy()
	}
	for left() > 0 {
		if b.ctx.Err() != nil {
			b.t.Fatalf("%d deliveries and attempts are left", left())
		}
		runtime.Gosched()
	}
}

// countBusy is how many workers are taken, of as many as there are by default: each free one goes to another namespace.
func (b *bench) countBusy() int {
	free := 0
	for n := range defaultWorkers {
		worker := b.workers.AskSlot(types.NamespacedName{Namespace: fmt.Sprint("free-", n)}, func() { free++ })
		defer worker.GiveBack()
	}
	return defaultWorkers - free
}

func (b *bench) want(name string, run int64, want Delivery) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.state(name, run)); diff != "" {
		b.t.Errorf("State (-want +got):\n%s", diff)
	}
}

func answered(status int) Failure { return Failure{Class: ClassAnswered, Status: status} }

func TestDelivers(t *testing.T) {
	receiver := sink.Start(t)
	b := start(t)
	b.want("c", 3, Delivery{})
	b.send("c", receiver.URL+"/in?x=1", 3)
	b.attempted("c")
	b.send("c", receiver.URL+"/in?x=1", 3)
	b.send("c", receiver.URL+"/elsewhere", 3)
	b.want("c", 3, Delivery{Known: true, Delivered: true, Attempts: 1})

	e := b.arrived(receiver, 1)[0]
	want, err := NewEvent(identity("c"), finished(3))
	if err != nil {
		t.Fatal(err)
	}
	uid := string(identity("c").UID)
	if diff := cmp.Diff(sink.Event{
		ID: uid + "-3", Subject: uid, Type: TypeCleaned, SpecVersion: "1.0",
		Source: "/apis/cleaner.vtex.dev/v1alpha1/namespaces/faststore-proxy/cleaners/c",
		Time:   "2024-05-06T07:08:30Z", ContentType: "application/json", Data: want.Data(), Path: "/in?x=1",
		Header: e.Header, Status: http.StatusAccepted,
	}, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "Referer"} {
		if e.Header.Get(name) != "" {
			t.Errorf("the request has a header %s", name)
		}
	}
	if got := e.Header.Get("Connection"); got != "close" {
		t.Errorf("the request says %q of the connection: it may be used again, for an address that was not checked anew", got)
	}
	if diff := cmp.Diff(map[string]int{"delivered": 1}, b.counted()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestTriesAgainWithTheSameBytes(t *testing.T) {
	receiver := sink.Start(t)
	asks := http.Header{"Set-Cookie": {"session=1; Path=/"}, "Www-Authenticate": {`Basic realm="x"`}, "Alt-Svc": {`h2="127.0.0.1:1"`}}
	receiver.Answer(
		sink.Answer{Status: 503, Header: asks}, sink.Answer{Close: true}, sink.Answer{Status: 404}, sink.Answer{Status: 429},
		sink.Answer{Status: 500}, sink.Answer{Status: 200},
	)
	b := start(t)
	b.send("c", receiver.URL, 1)
	failures := []Failure{answered(503), newNoAnswer(CauseConnection), answered(404), answered(429), answered(500)}
	wait := time.Second
	for i, f := range failures {
		b.attempted("c")
		b.want("c", 1, Delivery{Known: true, Attempts: i + 1, Last: f, Next: b.clock.Now().Add(wait)})
		b.send("c", receiver.URL, 1) // changes nothing
		b.clock.Step(wait - time.Millisecond)
		b.arrived(receiver, i+1)
		b.clock.Step(time.Millisecond)
		wait *= 2
	}
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 6})

	events := b.arrived(receiver, 6)
	for i, e := range events {
		if diff := cmp.Diff(events[0], e, sent); diff != "" {
			t.Errorf("attempt %d differs from the first (-first +this):\n%s", i+1, diff)
		}
	}
	if diff := cmp.Diff(map[string]int{"delivered": 1, "answered": 4, "connection failed": 1}, b.counted()); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestAnswers(t *testing.T) {
	date := epoch.Add(5 * time.Minute).Format(http.TimeFormat)
	after := func(v string) http.Header { return http.Header{"Retry-After": {v}} }
	cases := map[string]struct {
		reason string
		answer sink.Answer
		again  time.Duration // zero: delivered
	}{
		"200":             {"delivered", sink.Answer{Status: 200}, 0},
		"202":             {"delivered", sink.Answer{Status: 202}, 0},
		"204":             {"delivered", sink.Answer{Status: 204}, 0},
		"299":             {"delivered", sink.Answer{Status: 299}, 0},
		"301":             {"not followed", sink.Answer{Status: 301}, time.Hour},
		"304":             {"no answer to a POST", sink.Answer{Status: 304}, time.Hour},
		"308":             {"not followed", sink.Answer{Status: 308}, time.Hour},
		"400":             {"it will be as bad the next time", sink.Answer{Status: 400}, time.Hour},
		"401":             {"the Secret may be changed", sink.Answer{Status: 401}, time.Second},
		"403":             {"a person must change it", sink.Answer{Status: 403}, time.Hour},
		"404":             {"a route may not be there yet", sink.Answer{Status: 404}, time.Second},
		"408":             {"slow", sink.Answer{Status: 408}, time.Second},
		"409":             {"a moment's conflict", sink.Answer{Status: 409}, time.Second},
		"410":             {"gone for good", sink.Answer{Status: 410}, time.Hour},
		"413":             {"it will be as large the next time", sink.Answer{Status: 413}, time.Hour},
		"425":             {"too early", sink.Answer{Status: 425}, time.Second},
		"429":             {"busy", sink.Answer{Status: 429}, time.Second},
		"429 Seconds":     {"as asked", sink.Answer{Status: 429, Header: after("120")}, 2 * time.Minute},
		"500":             {"broken", sink.Answer{Status: 500}, time.Second},
		"501":             {"broken", sink.Answer{Status: 501}, time.Second},
		"503":             {"busy", sink.Answer{Status: 503}, time.Second},
		"503 Date":        {"as asked", sink.Answer{Status: 503, Header: after(date)}, 5 * time.Minute},
		"503 Too long":    {"an hour is enough", sink.Answer{Status: 503, Header: after("86400")}, time.Hour},
		"503 Meaningless": {"as if not asked", sink.Answer{Status: 503, Header: after("soon")}, time.Second},
		"500 Seconds":     {"with any status", sink.Answer{Status: 500, Header: after("30")}, 30 * time.Second},
		"400 Seconds":     {"permanent all the same", sink.Answer{Status: 400, Header: after("30")}, time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := sink.Start(t)
			receiver.Answer(tc.answer)
			b := start(t)
			b.send("c", receiver.URL, 1)
			b.attempted("c")
			if tc.again == 0 {
				b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
				b.clock.Step(24 * time.Hour)
				b.arrived(receiver, 1)
				return
			}
			b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: answered(tc.answer.Status), Next: epoch.Add(tc.again)})
			b.clock.Step(tc.again - time.Millisecond)
			b.arrived(receiver, 1)
			b.clock.Step(time.Millisecond)
			b.attempted("c")
			b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 2})
			b.arrived(receiver, 2)
		})
	}
}

func TestFollowsNoRedirect(t *testing.T) {
	receiver, other := sink.Start(t), sink.Start(t)
	b := start(t)
	for i, status := range []int{301, 302, 303, 307, 308} {
		name := fmt.Sprint("c", status)
		receiver.Answer(sink.Answer{Status: status, Header: http.Header{"Location": {other.URL}}})
		b.send(name, receiver.URL, 1)
		b.attempted(name)
		b.arrived(receiver, i+1)
		b.want(name, 1, Delivery{Known: true, Attempts: 1, Last: answered(status), Next: epoch.Add(time.Hour)})
	}
	b.arrived(other, 0)
}

func TestRefusesAddressesWhateverTheName(t *testing.T) {
	receiver := sink.Start(t)
	port := receiver.URL[strings.LastIndex(receiver.URL, ":"):]
	b := start(t, func(o *Options, _ *timeouts) { o.Policy = Policy{} })
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]", "169.254.169.254"} {
		b.send(host, "http://"+host+port, 1)
		b.attempted(host)
		b.want(host, 1, Delivery{
			Known: true, Attempts: 1, Last: newNoAnswer(CauseRefusedAddress), Next: epoch.Add(time.Second),
		})
		b.CancelDeliveries(key(host))
	}
	b.arrived(receiver, 0)
}

func TestUsesNoProxy(t *testing.T) {
	receiver, proxy, names := sink.Start(t), sink.Start(t), serveNames(t)
	names.set("sink.example", "127.0.0.1") // net/http asks no proxy for a loopback address
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	b := start(t, func(o *Options, _ *timeouts) { o.Resolver = names.resolver() })
	b.send("c", strings.Replace(receiver.URL, "127.0.0.1", "sink.example", 1), 1)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
	b.arrived(receiver, 1)
	b.arrived(proxy, 0)
}

func TestBoundsAnAttempt(t *testing.T) {
	const long = time.Hour
	header := timeouts{connect: long, header: 50 * time.Millisecond, total: long}
	total := timeouts{connect: long, header: long, total: time.Second} // a header arrives in that, on any machine
	none := timeouts{connect: long, header: long, total: long}
	cases := map[string]struct {
		reason string
		limits timeouts
		answer sink.Answer
		want   Delivery
	}{
		"Hang":          {"no answer", header, sink.Answer{Hang: true}, Delivery{Last: newNoAnswer(CauseTimeout)}},
		"HangTotal":     {"no answer, bounded in all", total, sink.Answer{Hang: true}, Delivery{Last: newNoAnswer(CauseTimeout)}},
		"HangAfter200":  {"it has said that it has the event", total, sink.Answer{Status: 200, Hang: true}, Delivery{Delivered: true}},
		"HangAfter503":  {"it has said what it has to say", total, sink.Answer{Status: 503, Hang: true}, Delivery{Last: answered(503)}},
		"LongHeader":    {"nobody needs so much", none, sink.Answer{Header: http.Header{"X": {strings.Repeat("x", 1<<20)}}}, Delivery{Last: newNoAnswer(CauseConnection)}},
		"EndlessHeader": {"nobody needs so many", none, raw("HTTP/1.1 200 OK\r\n", "X: x\r\n", 0), Delivery{Last: newNoAnswer(CauseConnection)}},
		"EndlessHints":  {"and the answer never comes", none, raw("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 0), Delivery{Last: newNoAnswer(CauseConnection)}},
		"SlowHeader":    {"a byte now and then is no answer", header, raw("HTTP/1.1 200 OK\r\nX: ", "x", 5*time.Millisecond), Delivery{Last: newNoAnswer(CauseTimeout)}},
		"SlowBody":      {"what follows 200 is not waited for", total, raw("HTTP/1.1 200 OK\r\n\r\n", "x", 5*time.Millisecond), Delivery{Delivered: true}},
		"NotHTTP":       {"no answer to a request", none, raw("SSH-2.0-OpenSSH_9.9\r\n", "", 0), Delivery{Last: newNoAnswer(CauseConnection)}},
		"HTTP/2":        {"unasked for", none, raw("\x00\x00\x00\x04\x00\x00\x00\x00\x00", "", 0), Delivery{Last: newNoAnswer(CauseConnection)}},
		"Close":         {"no answer", none, sink.Answer{Close: true}, Delivery{Last: newNoAnswer(CauseConnection)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := sink.Start(t)
			receiver.Otherwise(tc.answer)
			b := start(t, func(_ *Options, l *timeouts) { *l = tc.limits })
			b.send("c", receiver.URL, 1)
			b.attempted("c")
			tc.want.Known, tc.want.Attempts = true, 1
			if !tc.want.Delivered {
				tc.want.Next = epoch.Add(time.Second)
			}
			b.want("c", 1, tc.want)
			b.arrived(receiver, 1)
		})
	}
}

// raw writes a text, and then another one again and again, with a pause in between if there is one, until nobody reads.
func raw(first, again string, pause time.Duration) sink.Answer {
	return sink.Answer{Raw: func(conn net.Conn) {
		_, err := io.WriteString(conn, first)
		for err == nil && again != "" {
			if pause > 0 {
				<-time.After(pause)
			}
			_, err = io.WriteString(conn, again)
		}
	}}
}

func TestKeepsTryingADeadSink(t *testing.T) {
	const closed = "http://127.0.0.1:1" // no system gives this port away, as it may one that a listener has left
	times := func(d time.Duration, n int) []time.Duration { return slices.Repeat([]time.Duration{d}, n) }
	var doubled []time.Duration
	for wait := time.Second; wait < 10*time.Minute; wait *= 2 {
		doubled = append(doubled, wait)
	}
	doubled = append(doubled, times(10*time.Minute, 3)...)
	cases := map[string]struct {
		answer sink.Answer
		closed bool
		last   Failure
		waits  []time.Duration
	}{
		"500":         {answer: sink.Answer{Status: 500}, last: answered(500), waits: doubled},
		"404":         {answer: sink.Answer{Status: 404}, last: answered(404), waits: doubled},
		"429":         {answer: sink.Answer{Status: 429}, last: answered(429), waits: doubled},
		"Close":       {answer: sink.Answer{Close: true}, last: newNoAnswer(CauseConnection), waits: doubled},
		"Hang":        {answer: sink.Answer{Hang: true}, last: newNoAnswer(CauseTimeout), waits: doubled},
		"ClosedPort":  {closed: true, last: newNoAnswer(CauseConnection), waits: doubled},
		"400":         {answer: sink.Answer{Status: 400}, last: answered(400), waits: times(time.Hour, 5)},
		"307":         {answer: sink.Answer{Status: 307}, last: answered(307), waits: times(time.Hour, 5)},
		"429 Seconds": {answer: sink.Answer{Status: 429, Header: http.Header{"Retry-After": {"900"}}}, last: answered(429), waits: times(15*time.Minute, 12)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := sink.Start(t)
			receiver.Otherwise(tc.answer)
			url := receiver.URL
			if tc.closed {
				url = closed
			}
			b := start(t, func(_ *Options, l *timeouts) {
				if tc.answer.Hang {
					l.header = 50 * time.Millisecond
				}
			})
			b.send("c", url, 1)
			for i, wait := range tc.waits {
				b.attempted("c")
				b.want("c", 1, Delivery{Known: true, Attempts: i + 1, Last: tc.last, Next: b.clock.Now().Add(wait)})
				b.clock.Step(wait)
			}
			b.attempted("c")
			if !tc.closed {
				b.arrived(receiver, len(tc.waits)+1)
			}
		})
	}
}

func TestReadsLittleOfABody(t *testing.T) {
	const size = 1 << 30
	var written atomic.Int64
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		w.WriteHeader(http.StatusOK)
		chunk := make([]byte, 32<<10)
		for written.Load() < size {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer server.Close()
	b := start(t)
	b.send("c", server.URL, 1)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
	<-ended
	if n := written.Load(); n > 64<<20 { // what fits into the buffers of the kernel counts as written
		t.Errorf("%d bytes of the answer were taken", n)
	}
}

func TestNothingToSend(t *testing.T) {
	receiver := sink.Start(t)
	b := start(t)
	b.QueueDelivery(key("open"), identity("open"), Sink{URL: receiver.URL}, finished(0))
	b.attempted("open")
	b.want("open", 0, Delivery{Known: true, Attempts: 1, Last: Failure{Class: ClassInvalidRun}, Next: epoch.Add(time.Hour)})
	b.send("nowhere", "http://me:secret@"+strings.TrimPrefix(receiver.URL, "http://"), 1)
	b.attempted("nowhere")
	b.want("nowhere", 1, Delivery{Known: true, Attempts: 1, Last: Failure{Class: ClassInvalidSink}, Next: epoch.Add(time.Hour)})
	b.arrived(receiver, 0)
}

func TestAHangingSinkDelaysNoOther(t *testing.T) {
	const dead = 200
	in := func(namespace, name string) (types.NamespacedName, CleanerRef) {
		i := identity(name)
		i.Namespace = namespace
		return types.NamespacedName{Namespace: namespace, Name: name}, i
	}
	for name, tc := range map[string]struct {
		namespace string                         // where the Cleaners whose sinks hang are; the others are in one of their own
		sinkOf    func(url string, i int) string // the sink of the Cleaner i
		hang      int                            // how many attempts hang at a time, of 32
	}{
		"OneSink":        {key("").Namespace, func(url string, _ int) string { return url }, 4},
		"OtherNamespace": {"noisy", func(url string, _ int) string { return url }, 4},
		"ManyNames": {"noisy", func(url string, i int) string {
			return strings.Replace(url, "127.0.0.1", fmt.Sprintf("sink-%d.example", i), 1)
		}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hanging, good, names := sink.Start(t), sink.Start(t), serveNames(t)
			hanging.Otherwise(sink.Answer{Hang: true})
			b := start(t, func(o *Options, _ *timeouts) { o.Resolver = names.resolver() })
			for i := range dead {
				names.set(fmt.Sprintf("sink-%d.example", i), "127.0.0.1")
				k, of := in(tc.namespace, fmt.Sprint("dead", i))
				b.QueueDelivery(k, of, Sink{URL: tc.sinkOf(hanging.URL, i)}, finished(1))
			}
			b.arrived(hanging, tc.hang)
			for i := range 20 {
				name := fmt.Sprint("good", i)
				b.send(name, good.URL, 1)
				b.attempted(name)
				b.want(name, 1, Delivery{Known: true, Delivered: true, Attempts: 1})
			}
			b.arrived(good, 20)
			if tc.namespace != key("").Namespace { // the sink that hangs for others gets what is its own
				b.send("fair", hanging.URL, 1)
				tc.hang++
			}
			b.arrived(hanging, tc.hang)
			k, of := in(tc.namespace, "dead0")
			if diff := cmp.Diff(Delivery{Known: true}, b.GetDelivery(k, of.UID, 1)); diff != "" {
				t.Errorf("State (-want +got):\n%s", diff)
			}

			// Who goes leaves nothing behind, and ends at once what was under way.
			for i := range dead {
				k, _ := in(tc.namespace, fmt.Sprint("dead", i))
				b.CancelDeliveries(k)
			}
			for i := range 20 {
				b.CancelDeliveries(key(fmt.Sprint("good", i)))
			}
			b.CancelDeliveries(key("fair"))
			b.empty()
		})
	}
}

// TestNamespacesShareWorkers has all sinks of some namespaces hang before the event of another one comes. Few namespaces leave it a worker,
// and of many it waits for one attempt of each at most.
func TestNamespacesShareWorkers(t *testing.T) {
	for name, tc := range map[string]struct{ namespaces, hang, end int }{ // how many attempts hang at least, and end at most before its own
		"Few":  {namespaces: 4, hang: 26, end: 0},
		"Many": {namespaces: 40, hang: 32, end: 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hanging, good, names := sink.Start(t), sink.Start(t), serveNames(t)
			hanging.Otherwise(sink.Answer{Hang: true})
			b := start(t, func(o *Options, l *timeouts) {
				o.Resolver, l.header, l.total = names.resolver(), time.Hour, time.Hour // no attempt ends by itself
			})
			for n := range defaultWorkers / namespaceShare * tc.namespaces {
				k, host := types.NamespacedName{Namespace: fmt.Sprint("noisy-", n%tc.namespaces), Name: fmt.Sprint("dead-", n)}, fmt.Sprintf("sink-%d.example", n)
				of := identity(k.Name)
				of.Namespace = k.Namespace
				names.set(host, "127.0.0.1")
				b.QueueDelivery(k, of, Sink{URL: strings.Replace(hanging.URL, "127.0.0.1", host, 1) + "/" + k.String()}, finished(1))
			}
			if _, err := hanging.WaitFor(b.ctx, tc.hang); err != nil {
				t.Fatal(err)
			}
			b.clock.Step(10 * time.Second)
			b.send("guard", good.URL, 1)
			for ended := 0; ended < tc.end && len(good.Events()) == 0; ended++ {
				before := hanging.Events()
				namespace, dead, _ := strings.Cut(strings.TrimPrefix(before[ended].Path, "/"), "/")
				b.CancelDeliveries(types.NamespacedName{Namespace: namespace, Name: dead})
				for len(hanging.Events()) == len(before) && len(good.Events()) == 0 && b.ctx.Err() == nil { // until another one has its worker
					runtime.Gosched()
				}
			}
			b.arrived(good, 1)
		})
	}
}

func TestAWaitingDeliveryOccupiesNoWorker(t *testing.T) {
	receiver := sink.Start(t)
	receiver.Answer(sink.Codes(503, 503, 503)...)
	b := start(t, func(o *Options, _ *timeouts) { o.Workers = 1 })
	for _, name := range []string{"a", "b", "c"} {
		b.send(name, receiver.URL, 1)
		b.attempted(name)
		b.want(name, 1, Delivery{Known: true, Attempts: 1, Last: answered(503), Next: epoch.Add(time.Second)})
	}
	b.send("d", receiver.URL, 1)
	b.attempted("d")
	b.want("d", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
}

func TestAnotherSinkTakesOver(t *testing.T) {
	good := sink.Start(t)
	t.Run("WhileWaiting", func(t *testing.T) {
		bad := sink.Start(t)
		bad.Otherwise(sink.Answer{Status: 400})
		b := start(t)
		b.send("waiting", bad.URL, 1)
		b.attempted("waiting")
		b.send("waiting", good.URL, 1)
		b.attempted("waiting")
		b.want("waiting", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
		b.arrived(bad, 1)
	})
	t.Run("WhileUnderWay", func(t *testing.T) {
		bad, until := sink.Start(t), make(chan struct{})
		bad.Answer(sink.Answer{Status: 400, Until: until})
		b := start(t)
		b.send("flying", bad.URL, 1)
		b.arrived(bad, 1)
		b.send("flying", good.URL, 1)
		b.want("flying", 1, Delivery{Known: true})
		close(until)
		b.attempted("flying")
		b.attempted("flying")
		b.want("flying", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
	})
	t.Run("WhileItHangs", func(t *testing.T) {
		bad := sink.Start(t)
		bad.Otherwise(sink.Answer{Hang: true})
		b := start(t, func(_ *Options, l *timeouts) { l.header = time.Second })
		b.send("hanging", bad.URL, 1)
		b.arrived(bad, 1)
		b.send("hanging", good.URL, 1)
		b.attempted("hanging") // its end does not wait for a clock
		b.attempted("hanging")
		b.want("hanging", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
		b.arrived(bad, 1)
	})
	t.Run("WhileItsTurnHasNotCome", func(t *testing.T) {
		bad := sink.Start(t)
		bad.Otherwise(sink.Answer{Hang: true})
		b := start(t, func(o *Options, _ *timeouts) { o.Workers = 8 })
		b.send("first", bad.URL, 1)
		b.arrived(bad, 1)
		b.send("second", bad.URL, 1)
		b.entered(bad.URL, 2)
		b.send("second", good.URL, 1)
		b.attempted("second")
		b.want("second", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
		b.arrived(bad, 1)
	})
	t.Run("WhileNoWorkerIsFree", func(t *testing.T) {
		bad := sink.Start(t)
		bad.Otherwise(sink.Answer{Hang: true})
		b := start(t, func(o *Options, _ *timeouts) { o.Workers = 1 })
		other, of := types.NamespacedName{Namespace: "other", Name: "first"}, identity("first")
		of.Namespace = other.Namespace
		b.QueueDelivery(other, of, Sink{URL: bad.URL}, finished(1))
		b.arrived(bad, 1)
		b.send("second", bad.URL, 1)
		b.occupied(key("").Namespace)
		b.send("second", good.URL, 1)
		b.CancelDeliveries(other)
		b.attempted("second")
		b.want("second", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
		b.arrived(bad, 1)
	})
	b := start(t)
	b.arrived(good, 5)
}

// occupy takes all slots of one kind that an event of Cleaner c to a sink needs, until they are given back. waits says that the event
// waits for one.
func (b *bench) occupy(kind, url string) (waits func() bool, giveBack func()) {
	names := map[string]string{"sink": "sink " + key("").Namespace + " " + strings.TrimPrefix(url, "http://"), "namespace": "namespace " + key("").Namespace}
	if kind == "worker" {
		var held []interface{ GiveBack() }
		for n := range defaultWorkers {
			held = append(held, b.workers.AskSlot(types.NamespacedName{Namespace: fmt.Sprint("other-", n)}, func() {}))
		}
		waits = func() bool {
			p := b.pools.m[names["namespace"]]
			return p != nil && p.free < b.ofNamespace
		}
		return waits, func() {
			for _, slot := range held {
				slot.GiveBack()
			}
		}
	}
	slots := map[string]int{"sink": b.ofSink, "namespace": b.ofNamespace}[kind]
	p := b.pools.enterPool(names[kind], slots)
	for range slots {
		p.takeSlot(b.ctx, 0, nil)
	}
	return func() bool { return len(p.line) == 1 }, func() {
		for range slots {
			p.giveBack()
		}
		p.leavePool()
	}
}

// TestWhoDoesNotWaitAnyMoreHoldsNoSlot has an event stop waiting for each kind of slot: none that it has taken, or has asked for, is lost.
func TestWhoDoesNotWaitAnyMoreHoldsNoSlot(t *testing.T) {
	for _, kind := range []string{"sink", "namespace", "worker"} {
		for name, stop := range map[string]func(b *bench, other string){
			"Cancelled":   func(b *bench, _ string) { b.CancelDeliveries(key("c")) },
			"AnotherSink": func(b *bench, other string) { b.send("c", other, 1) },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				first, other := sink.Start(t), sink.Start(t)
				b := start(t)
				waits, giveBack := b.occupy(kind, first.URL)
				b.send("c", first.URL, 1)
				for there := false; !there; runtime.Gosched() {
					b.pools.mu.Lock()
					there = waits()
					b.pools.mu.Unlock()
					if b.ctx.Err() != nil {
						t.Fatal("the event does not wait")
					}
				}
				stop(b, other.URL)
				left := 0
				if kind == "sink" {
					left = 1 // who occupies it
				}
				b.entered(first.URL, left)
				giveBack()
				if name == "AnotherSink" {
					b.attempted("c")
					b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
					b.CancelDeliveries(key("c"))
				}
				b.empty()
				b.arrived(first, 0)
			})
		}
	}
}

// TestACancelledDeliveryTriesNothing cancels deliveries whose next attempt has to wait until nothing can be told from it.
func TestACancelledDeliveryTriesNothing(t *testing.T) {
	v := &vault{value: "token"}
	b := prepare(t, v.open)
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	for range 100 {
		d := &delivery{
			id: id{key: key("c"), uid: identity("c").UID, run: 1}, cleaner: identity("c"), record: finished(1), changed: make(chan struct{}, 1),
			sink: guarded(v1alpha1.SinkAuthBearer, "http://127.0.0.1:1"), quietUntil: epoch.Add(time.Minute),
		}
		b.deliverRun(ctx, d, func(time.Time, func()) { t.Error("an attempt is concealed that was not made") })
	}
	if len(v.asked) > 0 {
		t.Errorf("its Secret is read %d times", len(v.asked))
	}
}

func TestForget(t *testing.T) {
	receiver := sink.Start(t)
	b := start(t)

	receiver.Answer(sink.Answer{Hang: true})
	b.send("c", receiver.URL, 1)
	b.arrived(receiver, 1)
	b.CancelDeliveries(key("c"))
	b.want("c", 1, Delivery{})

	receiver.Answer(sink.Answer{Status: 503})
	b.send("c", receiver.URL, 1) // known of no more, so sent again, though the attempt before may not have ended yet
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: answered(503), Next: epoch.Add(time.Second)})
	b.CancelDeliveries(key("c"))
	b.clock.Step(time.Hour)
	b.send("other", receiver.URL, 1)
	b.attempted("other")
	b.arrived(receiver, 3)
}

func TestTwoRunsAreKept(t *testing.T) {
	receiver := sink.Start(t)
	b := start(t)
	for run := range int64(4) {
		b.send("c", receiver.URL, run+1)
		b.attempted("c")
	}
	delivered := Delivery{Known: true, Delivered: true, Attempts: 1}
	for run, want := range map[int64]Delivery{1: {}, 2: {}, 3: delivered, 4: delivered} {
		b.want("c", run, want)
	}

	again := identity("c")
	again.UID = "another"
	b.QueueDelivery(key("c"), again, Sink{URL: receiver.URL}, finished(1))
	b.attempted("c")
	b.want("c", 4, Delivery{})
	if got := b.GetDelivery(key("c"), again.UID, 1); got != delivered {
		t.Errorf("a Cleaner of the same name: %+v", got)
	}
	ids := map[string]bool{}
	for _, e := range b.arrived(receiver, 5) {
		ids[e.ID] = true
	}
	if len(ids) != 5 {
		t.Errorf("5 runs have the ids %v", ids)
	}
}

func TestStopAndStartAgain(t *testing.T) {
	receiver := sink.Start(t)
	receiver.Answer(sink.Answer{Hang: true})
	b := start(t)
	b.send("c", receiver.URL, 1)
	b.send("c", receiver.URL, 1)
	b.arrived(receiver, 1)
	b.stop() // ends well before the attempt would
	b.want("c", 1, Delivery{Known: true})
	if n := len(b.done) + len(b.counted()); n != 0 {
		t.Error("an attempt that was cancelled is not one that failed")
	}

	b = start(t)
	b.send("c", receiver.URL, 1)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
	events := b.arrived(receiver, 2)
	if diff := cmp.Diff(events[0], events[1], sent); diff != "" {
		t.Errorf("after a restart the event differs (-before +after):\n%s", diff)
	}
}

func TestSendBeforeStart(t *testing.T) {
	receiver, former := sink.Start(t), sink.Start(t)
	receiver.Answer(sink.Codes(503, 503)...)
	b := prepare(t)
	b.send("forgotten", former.URL, 1)
	b.CancelDeliveries(key("forgotten"))
	b.send("c", former.URL, 1)
	b.send("c", receiver.URL, 1)
	b.run()
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: answered(503), Next: epoch.Add(time.Second)})
	b.clock.Step(time.Second)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Attempts: 2, Last: answered(503), Next: epoch.Add(3 * time.Second)})
	b.clock.Step(2 * time.Second)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 3})
	b.arrived(former, 0)
}

func TestNewSenderErrors(t *testing.T) {
	for name, o := range map[string]Options{
		"NoClock":         {},
		"NegativeWorkers": {Clock: clocktesting.NewFakeClock(epoch), Workers: -1},
	} {
		if _, err := NewSender(o); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// explosive panics for sinks whose path is /broken.
type explosive struct{ http.RoundTripper }

func (e explosive) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/broken" {
		panic("made up")
	}
	return e.RoundTripper.RoundTrip(r)
}

// TestAnAttemptThatPanicsIsAFailedOne shows that a panic is tried again like a failure, and that the others go on.
func TestAnAttemptThatPanicsIsAFailedOne(t *testing.T) {
	receiver := sink.Start(t)
	b := prepare(t)
	b.tenantClient.Transport = explosive{b.tenantClient.Transport}
	b.run()
	b.send("broken", receiver.URL+"/broken", 1)
	b.attempted("broken")
	b.want("broken", 1, Delivery{Known: true, Attempts: 1, Last: Failure{Class: ClassPanic}, Next: epoch.Add(time.Second)})
	b.send("c", receiver.URL, 1)
	b.attempted("c")
	b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
}
