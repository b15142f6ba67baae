// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// server is an API server whose clock is ahead of ours, and that takes its time to answer.
type server struct {
	t     *testing.T
	clock *clocktesting.FakePassiveClock // ours
	meter *Meter
	ahead time.Duration
	// before and after are how long a request and its answer are on their way.
	before, after time.Duration
	// says is the Date that is answered in place of the right one.
	says string
}

func newServer(t *testing.T, limit time.Duration) *server {
	s := &server{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC)), before: 10 * time.Millisecond, after: 10 * time.Millisecond}
	s.meter = New(Options{Clock: s.clock, Max: limit})
	return s
}

func (s *server) step(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

// RoundTrip answers.
func (s *server) RoundTrip(*http.Request) (*http.Response, error) {
	s.step(s.before)
	rec := httptest.NewRecorder()
	rec.Header().Set("Date", s.clock.Now().Add(s.ahead).UTC().Format(http.TimeFormat))
	if s.says != "" {
		rec.Header().Set("Date", s.says)
	}
	s.step(s.after)
	return rec.Result(), nil
}

// between is how long after an answer the next request is sent: no whole seconds, so that it is sent at another fraction of one.
const between = 1137 * time.Millisecond

// offAfterOneAnswer is half of what one answer leaves open: a second, which a Date does not divide, and 20 ms on the way.
const offAfterOneAnswer = 510 * time.Millisecond

// get sends a request for a path, a while after the last one.
func (s *server) get(path string) {
	s.t.Helper()
	s.step(between)
	resp, err := s.meter.WrapTransport(s).RoundTrip(httptest.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://api.test"+path, nil))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// getAt sends a request when our clock is so far past a whole second.
func (s *server) getAt(past time.Duration) {
	s.t.Helper()
	s.clock.SetTime(s.clock.Now().Add(2 * between).Truncate(time.Second).Add(past - between))
	s.get(lease)
}

const lease = "/apis/coordination.k8s.io/v1/namespaces/cleaner-system/leases/cleaner.vtex.dev"

func TestSkewIsMeasured(t *testing.T) {
	cases := map[string]struct {
		ahead     time.Duration // the server's clock
		suspected bool
		wait      time.Duration // how much longer we have to wait: the skew and what a request takes, in whole seconds
	}{
		"Equal":         {0, false, 0},
		"AheadALittle":  {300 * time.Millisecond, false, 0},
		"Ahead":         {50 * time.Second, false, 0},
		"TooFarAhead":   {62 * time.Second, true, 0},
		"BehindALittle": {-300 * time.Millisecond, false, time.Second},
		"Behind":        {-50*time.Second + 400*time.Millisecond, false, 50 * time.Second},
		"TooFarBehind":  {-62 * time.Second, true, 63 * time.Second},
		"Years":         {10 * 365 * 24 * time.Hour, true, 0},
		"AnHour":        {-time.Hour, true, time.Hour + time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, time.Minute)
			s.ahead = tc.ahead
			s.get(lease)
			if got := s.meter.EstimateSkew() - tc.ahead; got.Abs() > offAfterOneAnswer {
				t.Errorf("after one answer the measurement is %s off", got)
			}
			if got := s.meter.IsSuspect(); got != tc.suspected {
				t.Errorf("after one answer it is suspected: %t", got)
			}
			for range 50 {
				s.get(lease)
			}
			if got := s.meter.EstimateSkew() - tc.ahead; got.Abs() > 30*time.Millisecond {
				t.Errorf("after many answers the measurement is %s off", got)
			}
			if got := s.meter.IsSuspect(); got != tc.suspected {
				t.Errorf("after many answers it is suspected: %t", got)
			}
			if got := s.meter.ClockAhead(); got != tc.wait {
				t.Errorf("our clock is ahead by %s, want %s", got, tc.wait)
			}
		})
	}
}

// A Date has whole seconds. What follows from one is exact: a nanosecond more is another answer.
func TestBoundsOfOneAnswerAreExact(t *testing.T) {
	for name, tc := range map[string]struct {
		past      time.Duration // our clock when the request is sent and answered, past a whole second
		ahead     time.Duration // the server's clock
		suspected bool
		wait      time.Duration
	}{
		"AsFarAheadAsItMayBe":  {0, time.Minute, false, 0},
		"FartherAhead":         {-1, time.Minute + 1, true, 0},
		"AsFarBehindAsItMayBe": {0, -61 * time.Second, false, 61 * time.Second},
		"FartherBehind":        {1, -61*time.Second - 1, true, 62 * time.Second},
		"MayBeEqual":           {0, -time.Second, false, 0},
		"IsBehind":             {1, -time.Second - 1, false, 2 * time.Second},
		"BehindByWholeSeconds": {0, -2 * time.Second, false, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, time.Minute)
			s.before, s.after, s.ahead = 0, 0, tc.ahead
			s.getAt(tc.past)
			if got := s.meter.IsSuspect(); got != tc.suspected {
				t.Errorf("it is suspected: %t", got)
			}
			if got := s.meter.ClockAhead(); got != tc.wait {
				t.Errorf("our clock is ahead by %s, want %s", got, tc.wait)
			}
		})
	}
}

// The skew is in the middle of what an answer leaves open, and where two answers leave one moment, it is there.
func TestTheSkewIsBetweenTheBounds(t *testing.T) {
	for name, tc := range map[string]struct {
		ahead []time.Duration // the server's clock, at each answer
		want  time.Duration
	}{
		"OneAnswer":      {[]time.Duration{0}, 500 * time.Millisecond},
		"Behind":         {[]time.Duration{-time.Second}, -500 * time.Millisecond},
		"TouchFromAbove": {[]time.Duration{0, time.Second}, time.Second},
		"TouchFromBelow": {[]time.Duration{0, -time.Second}, 0},
		"Apart":          {[]time.Duration{0, 2 * time.Second}, 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, time.Minute)
			s.before, s.after = 0, 0
			for _, s.ahead = range tc.ahead {
				s.getAt(0)
			}
			if got := s.meter.EstimateSkew(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestASlowAnswerIsNoSkew(t *testing.T) {
	for _, way := range []string{"there", "back"} {
		s := newServer(t, time.Minute)
		if s.before = 5 * time.Minute; way == "back" {
			s.before, s.after = s.after, s.before
		}
		s.get(lease)
		if s.meter.IsSuspect() || s.meter.ClockAhead() != 0 {
			t.Errorf("minutes on the way %s count as a skew of %s", way, s.meter.EstimateSkew())
		}
	}
}

func TestAClockThatIsSetIsNoticedAtOnce(t *testing.T) {
	s := newServer(t, time.Minute)
	var told []bool
	s.meter.opts.SuspectChanged = func(suspect bool, skew time.Duration) {
		if suspect != (skew.Abs() > time.Minute) {
			t.Errorf("told %t of %s", suspect, skew)
		}
		told = append(told, suspect)
	}
	for range 20 {
		s.get(lease)
	}
	for _, step := range []time.Duration{10 * 365 * 24 * time.Hour, -time.Hour, 61 * time.Second, -62 * time.Second} {
		s.step(step) // ours
		s.ahead = -step
		s.get(lease)
		if !s.meter.IsSuspect() {
			t.Errorf("our clock was set by %s, and nothing is suspected", step)
		}
		if than, said := map[bool]string{true: "ahead of", false: "behind"}[step > 0], s.meter.DescribeSuspect(); !strings.Contains(said, "more than 1m0s "+than+" the API server's") {
			t.Errorf("our clock was set by %s, and it is said that %q", step, said)
		}
		s.step(-step)
		s.ahead = 0
		s.get(lease)
		if s.meter.IsSuspect() || s.meter.DescribeSuspect() != "" {
			t.Errorf("our clock is right again after %s, and is suspected", step)
		}
	}
	if len(told) != 8 {
		t.Errorf("it was told %v", told)
	}
}

func TestAClockThatDriftsIsFollowed(t *testing.T) {
	s := newServer(t, time.Minute)
	for range 2000 {
		s.ahead -= 7 * time.Millisecond
		s.get(lease)
		if off := s.meter.EstimateSkew() - s.ahead; off.Abs() > offAfterOneAnswer {
			t.Fatalf("at %s the measurement is %s off", s.ahead, off)
		}
	}
	if got := s.meter.ClockAhead(); got != 14*time.Second {
		t.Errorf("our clock is ahead by %s", got)
	}
}

func TestOnlyTheAPIServersOwnAnswersCount(t *testing.T) {
	const root = "/k8s/clusters/c"
	for name, tc := range map[string]struct {
		root, path string
		want       bool
	}{
		"Lease":                           {"", lease, true},
		"CoreKind":                        {"", "/api/v1/namespaces/shop", true},
		"OwnKind":                         {"", "/apis/cleaner.vtex.dev/v1alpha1/namespaces/shop/cleaners/c/status", true},
		"Groups":                          {"", "/apis", true},
		"Version":                         {"", "/version", true},
		"BehindAGateway":                  {root, root + lease, true},
		"BehindAGatewayWithASlash":        {root + "/", root + lease, true},
		"OfTheGatewayItself":              {root, lease, false},
		"BelowAnotherRoot":                {root, root + "2" + lease, false},
		"ExtensionServer":                 {"", "/apis/metrics.k8s.io/v1beta1/pods", false},
		"ExtensionServerThatNamesTheRest": {"", "/apis/metrics.k8s.io/v1beta1/nodes" + lease, false},
		"SchemaOfAnExtensionServer":       {"", "/openapi/v3/apis/metrics.k8s.io/v1beta1", false},
		"Pod":                             {"", "/api/v1/namespaces/shop/pods/evil/proxy", false},
		"PathOfAPod":                      {"", "/api/v1/namespaces/shop/pods/https:evil:443/proxy" + lease, false},
		"Service":                         {"", "/api/v1/namespaces/shop/services/evil/proxy/", false},
		"Node":                            {"", "/api/v1/nodes/worker/proxy/api/v1/pods", false},
		"Nothing":                         {"", "", false},
		"Elsewhere":                       {"", "/elsewhere" + lease, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, time.Minute)
			s.meter.opts.Root = tc.root
			s.ahead = time.Hour
			s.get(tc.path)
			if s.meter.IsSuspect() != tc.want {
				t.Errorf("%s counts: %t", tc.path, !tc.want)
			}
		})
	}
}

func TestWhatIsNoMeasurement(t *testing.T) {
	s := newServer(t, time.Minute)
	if s.meter.IsSuspect() || s.meter.ClockAhead() != 0 || s.meter.EstimateSkew() != 0 {
		t.Error("something is known before the first answer")
	}
	s.says = "yesterday"
	s.get(lease)
	s.says, s.after = "", -time.Hour // our clock is set back while the answer is on its way
	s.get(lease)
	if s.meter.measured {
		t.Errorf("it measured %s", s.meter.EstimateSkew())
	}
}

func TestNoLimit(t *testing.T) {
	s := newServer(t, 0)
	s.ahead = -time.Hour
	s.get(lease)
	if s.meter.IsSuspect() || s.meter.ClockAhead() != 0 {
		t.Error("without a limit nothing is suspected or corrected")
	}
	if got := s.meter.EstimateSkew() + time.Hour; got.Abs() > offAfterOneAnswer {
		t.Errorf("it is measured all the same, and is %s off", got)
	}
}
