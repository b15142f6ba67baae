// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package events

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// desk is a Recorder, and the API server that it writes to.
type desk struct {
	*Recorder
	t     *testing.T
	clock *clocktesting.FakeClock
	ended chan struct{} // closed when Start has returned
	stop  context.CancelFunc

	mu     sync.Mutex
	stored map[string]*eventsv1.Event
	asked  []string // verb and namespace
	told   []string
	counts counted
	// answer is what requests are answered with in place of what they ask for, unless it is nil or gives 0.
	answer func(ctx context.Context, namespace string) int
}

func (d *desk) CountDroppedEvents(why string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counts[why] += n
}

func newDesk(t *testing.T, answer func(ctx context.Context, namespace string) int) *desk {
	t.Helper()
	d := &desk{
		t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), ended: make(chan struct{}),
		stored: map[string]*eventsv1.Event{}, counts: counted{}, answer: answer,
	}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	var err error
	d.Recorder, err = NewRecorder(Options{
		Config: &rest.Config{Host: server.URL, QPS: -1}, Clock: d.clock, Metrics: d,
		EventsDropped: func(counts map[string]int, last error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.told = append(d.told, fmt.Sprint(counts, " ", last))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	d.stop = stop
	go func() {
		defer close(d.ended)
		_ = d.Start(ctx)
	}()
	t.Cleanup(func() {
		stop()
		d.await("the end", d.hasEnded)
	})
	return d
}

// hasEnded says that Start has returned.
func (d *desk) hasEnded() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// ServeHTTP stores Events, as far as a Recorder sees.
func (d *desk) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	namespace := strings.Split(strings.TrimPrefix(req.URL.Path, "/apis/events.k8s.io/v1/namespaces/"), "/")[0]
	d.mu.Lock()
	d.asked = append(d.asked, req.Method+" "+namespace)
	d.mu.Unlock()
	e := &eventsv1.Event{}
	body, err := io.ReadAll(req.Body)
	if req.Method == http.MethodPost && err == nil { // in protobuf
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, e)
	} else if err == nil {
		err = json.Unmarshal(body, e)
	}
	if err != nil {
		d.t.Error(err)
		return
	}
	code := 0
	if d.answer != nil {
		code = d.answer(req.Context(), namespace)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if code == 0 {
		code, e = d.store(req.Method, path.Base(req.URL.Path), e)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	var answer any = e
	if code >= 300 {
		reasons := map[int]metav1.StatusReason{404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonAlreadyExists, 403: metav1.StatusReasonForbidden}
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code]}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (d *desk) store(method, name string, e *eventsv1.Event) (int, *eventsv1.Event) {
	switch before := d.stored[name]; {
	case method == http.MethodPost && d.stored[e.Name] != nil:
		return http.StatusConflict, nil
	case method == http.MethodPost:
		d.stored[e.Name] = e
		return http.StatusCreated, e
	case before == nil:
		return http.StatusNotFound, nil
	default:
		before.Series = e.Series
		return http.StatusOK, before
	}
}

// await waits until something is so, while time goes on.
func (d *desk) await(what string, so func() bool) {
	d.t.Helper()
	d.awaitBy(100*time.Millisecond, what, so)
}

// awaitBy waits until something is so, while time goes on by steps; or stands still.
func (d *desk) awaitBy(step time.Duration, what string, so func() bool) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("%s: not in time; asked %d times, dropped %v", what, len(d.requests()), d.counts)
		}
		d.clock.Step(step)
	}
}

// requests are those that have arrived.
func (d *desk) requests() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string{}, d.asked...)
}

// shown are the Events that are stored, as their notes and counts.
func (d *desk) shown() map[string]int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]int32{}
	for _, e := range d.stored {
		out[e.Note] += countOf(e)
	}
	return out
}

// shows waits until an Event is stored with a count.
func (d *desk) shows(note string, count int32) {
	d.t.Helper()
	d.await(fmt.Sprintf("%q %d times", note, count), func() bool { return d.shown()[note] == count })
}

func about(namespace, name, version, note string) Event {
	return Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: "uid", ResourceVersion: version},
		Related:   corev1.ObjectReference{Kind: "Cleaner", Name: "c", ResourceVersion: version},
		Type:      corev1.EventTypeNormal, Reason: "Deleted", Action: "Delete", Note: note,
	}
}

// An Event is as the API server takes it, and what happens again is its count, whatever has become of the object, and of the Event.
func TestAnEventAndItsSeries(t *testing.T) {
	d := newDesk(t, nil)
	d.RecordEvent(about("shop", "a", "1", "gone"))
	d.shows("gone", 1)
	for name, e := range d.stored {
		if e.Namespace != "shop" || !strings.HasPrefix(name, "a.") || e.Regarding.UID != "uid" || e.Regarding.ResourceVersion != "1" || e.Related.Name != "c" || e.ReportingController != "cleaner" ||
			e.ReportingInstance == "" || e.Reason != "Deleted" || e.Action != "Delete" || e.Type != "Normal" || e.EventTime.IsZero() || e.Series != nil {
			t.Errorf("the Event is %+v", e)
		}
	}
	d.RecordEvent(about("shop", "a", "2", "gone"))
	d.shows("gone", 2)
	expect(t, "requests", []string{"POST shop", "PATCH shop"}, d.requests())
	d.mu.Lock()
	clear(d.stored) // they expire
	d.mu.Unlock()
	d.RecordEvent(about("shop", "a", "3", "gone"))
	d.shows("gone", 3)
	d.RecordEvent(about("shop", "a", "3", "another"))
	d.shows("another", 1)
	expect(t, "requests", []string{"POST shop", "PATCH shop", "PATCH shop", "POST shop", "POST shop"}, d.requests())
}

// Notes and names are what the API server takes, and what is in no namespace is told of in the namespace default.
func TestEventsFit(t *testing.T) {
	d := newDesk(t, nil)
	d.RecordEvent(about("", strings.Repeat("n", 253), "1", strings.Repeat("ä", MaxNote)))
	d.shows(strings.Repeat("ä", MaxNote/2), 1)
	expect(t, "requests", []string{"POST default"}, d.requests())
	for name := range d.stored {
		if len(name) > 253 {
			t.Errorf("its name has %d bytes", len(name))
		}
	}
}

// A create whose answer was lost is not made again, and what has happened meanwhile is counted.
func TestALostAnswer(t *testing.T) {
	var d *desk
	var lost sync.Once
	d = newDesk(t, func(context.Context, string) (code int) {
		lost.Do(func() {
			code = http.StatusInternalServerError
			d.withShares(func(a *shares) {
				d.mu.Lock()
				defer d.mu.Unlock()
				for _, s := range a.known { // it was stored
					d.stored[s.event.Name] = s.event.DeepCopy()
				}
			})
			d.RecordEvent(about("shop", "a", "1", "gone"))
		})
		return code
	})
	d.RecordEvent(about("shop", "a", "1", "gone"))
	d.shows("gone", 2)
	expect(t, "requests", []string{"POST shop", "POST shop", "PATCH shop"}, d.requests())
	expect(t, "dropped", counted{}, d.counts)
}

// TestAFloodDelaysNobody holds that a namespace in which nothing is answered, and that makes 60 times 64 Events again and again, costs
// bounded memory and goroutines, and that another namespace's Event is written at once.
func TestAFloodDelaysNobody(t *testing.T) {
	before := runtime.NumGoroutine()
	release := make(chan struct{})
	d := newDesk(t, func(ctx context.Context, namespace string) int {
		if strings.HasPrefix(namespace, "flood") {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return 0
	})
	defer close(release)
	for round := range 50 {
		for i := range 60 * 64 {
			d.RecordEvent(about(fmt.Sprint("flood-", i%3), fmt.Sprint("c-", i%60), fmt.Sprint(round), fmt.Sprintf("%d %d", round, i)))
		}
		if n := runtime.NumGoroutine(); n > before+100 {
			t.Fatalf("round %d: there are %d goroutines", round, n)
		}
	}
	d.withShares(func(a *shares) {
		if len(a.known) > 3*maxSeriesOfNamespace {
			t.Errorf("%d series are remembered", len(a.known))
		}
	})
	d.RecordEvent(about("shop", "a", "1", "modest"))
	d.awaitBy(0, "it is written", func() bool { return d.shown()["modest"] == 1 })
	if n := len(d.requests()); n > 4 {
		t.Errorf("it was written after %d others", n-1)
	}
}

// A request that hangs is ended.
func TestARequestThatHangsEnds(t *testing.T) {
	var once sync.Once
	d := newDesk(t, func(ctx context.Context, _ string) int {
		code := 0
		once.Do(func() {
			<-ctx.Done()
			code = http.StatusGatewayTimeout
		})
		return code
	})
	began := d.clock.Now()
	d.RecordEvent(about("shop", "a", "1", "gone"))
	d.shows("gone", 1)
	if took := d.clock.Since(began); took < requestTime+retryAfter {
		t.Errorf("it was written after %s", took)
	}
}

// What was dropped is counted, and told once a minute.
func TestDroppedEventsAreTold(t *testing.T) {
	d := newDesk(t, func(context.Context, string) int { return http.StatusForbidden })
	began := d.clock.Now()
	for i := range 3 {
		d.RecordEvent(about("shop", "a", "1", fmt.Sprint(i)))
	}
	told := func(n int) func() bool {
		return func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.told) == n
		}
	}
	d.await("it is told", told(1))
	d.RecordEvent(about("shop", "a", "1", "late"))
	d.await("it is told again", told(2))
	if d.clock.Since(began) < tellEvery {
		t.Errorf("it is told twice within %s", d.clock.Since(began))
	}
	if !strings.HasPrefix(d.told[0], "map[refused:3] ") || !strings.HasPrefix(d.told[1], "map[refused:1] ") {
		t.Errorf("it is told %q", d.told)
	}
	expect(t, "counted", counted{DroppedRefused: 4}, d.counts)
}

// At the end all that there is is written, whatever the pace, and what comes while passes end; what is not written in time is counted.
func TestTheEnd(t *testing.T) {
	d := newDesk(t, nil)
	for i := range burstOfNamespace + 100 {
		d.RecordEvent(about("shop", "a", "1", fmt.Sprint(i)))
	}
	d.awaitBy(0, "the burst is written", func() bool { return len(d.shown()) == burstOfNamespace })
	d.stop()
	d.awaitBy(0, "the rest is written", func() bool { return len(d.shown()) == burstOfNamespace+100 })
	d.RecordEvent(about("shop", "a", "1", "late"))
	d.awaitBy(0, "what comes late is written", func() bool { return d.shown()["late"] == 1 })
	began := d.clock.Now()
	d.awaitBy(10*time.Millisecond, "the end", d.hasEnded)
	if took := d.clock.Since(began); took >= flushTime {
		t.Errorf("it ends after %s", took)
	}
	expect(t, "written", burstOfNamespace+101, len(d.shown()))
	d.RecordEvent(about("shop", "a", "1", "too late"))
	expect(t, "dropped", counted{DroppedShutdown: 1}, d.counts)
}

// What waits for a request of its namespace is written at the end, too.
func TestTheEndWaitsForRequests(t *testing.T) {
	release := make(chan struct{})
	d := newDesk(t, func(context.Context, string) int {
		<-release
		return 0
	})
	for i := range 3 {
		d.RecordEvent(about("shop", "a", "1", fmt.Sprint(i)))
	}
	d.awaitBy(0, "a request", func() bool { return len(d.requests()) == 1 })
	d.stop()
	d.awaitBy(0, "the end begins", func() (ending bool) {
		d.withShares(func(a *shares) { ending = a.ending })
		return ending
	})
	for range 20 {
		d.clock.Step(lingerTime / 10)
	}
	close(release)
	d.awaitBy(0, "all are written", func() bool { return len(d.shown()) == 3 })
}

func TestTheEndHasADeadline(t *testing.T) {
	d := newDesk(t, func(ctx context.Context, _ string) int {
		<-ctx.Done()
		return 0
	})
	for i := range 10 {
		d.RecordEvent(about("shop", fmt.Sprint(i), "1", "gone"))
	}
	d.await("a request", func() bool { return len(d.requests()) == 1 })
	d.stop()
	began := d.clock.Now()
	d.await("the end", d.hasEnded)
	if took := d.clock.Since(began); took > 2*flushTime {
		t.Errorf("it takes %s to end", took)
	}
	if n := d.counts[DroppedShutdown] + d.counts[DroppedUnanswered]; n != 10 {
		t.Errorf("dropped %v", d.counts)
	}
}
