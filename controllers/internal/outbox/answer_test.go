// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBackoff(t *testing.T) {
	busy := Failure{Class: ClassAnswered, Status: http.StatusServiceUnavailable}
	gone := Failure{Class: ClassAnswered, Status: http.StatusGone}
	cases := map[string]struct {
		reason   string
		attempts int
		failure  Failure
		asked    time.Duration
		want     time.Duration
	}{
		"First":          {"one second", 1, busy, 0, time.Second},
		"Second":         {"doubled", 2, busy, 0, 2 * time.Second},
		"Tenth":          {"doubled", 10, busy, 0, 512 * time.Second},
		"Eleventh":       {"at most ten minutes", 11, busy, 0, 10 * time.Minute},
		"Millionth":      {"no overflow", 1_000_000, busy, 0, 10 * time.Minute},
		"Timeout":        {"like a busy sink", 3, newNoAnswer(CauseTimeout), 0, 4 * time.Second},
		"Permanent":      {"hourly from the first", 1, gone, 0, time.Hour},
		"InvalidSink":    {"hourly", 1, Failure{Class: ClassInvalidSink}, 0, time.Hour},
		"InvalidRun":     {"hourly", 1, Failure{Class: ClassInvalidRun}, 0, time.Hour},
		"RefusedAddress": {"a name may come to stand for another one", 1, newNoAnswer(CauseRefusedAddress), 0, time.Second},
		"Asked":          {"the sink knows better", 1, busy, 90 * time.Second, 90 * time.Second},
		"AskedTooLong":   {"but no more than an hour", 1, busy, 48 * time.Hour, time.Hour},
		"AskedSooner":    {"a sink cannot ask for a flood", 5, busy, time.Second, 16 * time.Second},
		"AskedThePast":   {"a date that has passed", 1, busy, -time.Hour, time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, computeBackoff(tc.attempts, tc.failure, tc.asked)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPermanent(t *testing.T) {
	temporary := map[int]bool{101: true, 401: true, 404: true, 408: true, 409: true, 425: true, 429: true}
	for status := 100; status < 600; status++ {
		if status/100 == 2 {
			continue // delivered
		}
		want := (status/100 == 3 || status/100 == 4) && !temporary[status]
		if got := (Failure{Class: ClassAnswered, Status: status}).isPermanent(); got != want {
			t.Errorf("%d: permanent = %v", status, got)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	cases := map[string]struct {
		reason string
		value  string
		want   time.Duration
	}{
		"None":     {"there is no header", "", 0},
		"Seconds":  {"a number", "120", 2 * time.Minute},
		"Date":     {"a moment", "Mon, 06 May 2024 07:10:09 GMT", 2 * time.Minute},
		"Past":     {"a moment before", "Mon, 06 May 2024 07:08:08 GMT", -time.Second},
		"Negative": {"no number of seconds", "-5", 0},
		"Huge":     {"more than can be meant", "99999999999999999999", 0},
		"Text":     {"neither", "soon", 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			if tc.value != "" {
				h.Set("Retry-After", tc.value)
			}
			if diff := cmp.Diff(tc.want, parseRetryAfter(h, now)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestClassify(t *testing.T) {
	wrap := func(err error) error {
		return fmt.Errorf("cannot send: %w", &url.Error{Op: "Post", URL: "http://10.9.8.7", Err: &net.OpError{Op: "dial", Err: err}})
	}
	cases := map[string]struct {
		reason string
		err    error
		want   string
	}{
		"Refused":     {"our own check", wrap(errRefused), CauseRefusedAddress},
		"Cluster":     {"nobody knows what to refuse", wrap(fmt.Errorf("%w: x", errUnknownCluster)), CauseUnknownCluster},
		"Deadline":    {"the attempt took too long", wrap(context.DeadlineExceeded), CauseTimeout},
		"IOTimeout":   {"the network took too long", wrap(os.ErrDeadlineExceeded), CauseTimeout},
		"NoName":      {"there is no such name", wrap(&net.DNSError{IsNotFound: true}), CauseUnknownHost},
		"DNSTimeout":  {"nobody answered", wrap(&net.DNSError{IsTimeout: true}), CauseTimeout},
		"Certificate": {"not trusted, or expired", wrap(&tls.CertificateVerificationError{Err: errors.New("x")}), CauseTLS},
		"NotTLS":      {"https to an http port", wrap(tls.RecordHeaderError{}), CauseTLS},
		"PlainHTTP":   {"https to an http port, as net/http says it", wrap(http.ErrSchemeMismatch), CauseTLS},
		"Alert":       {"the sink refused", &url.Error{Op: "Post", Err: &net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}}, CauseTLS},
		"Other":       {"anything else", wrap(errors.New("reset by 10.9.8.7")), CauseConnection},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(newNoAnswer(tc.want), classifyError(tc.err)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestFailureString(t *testing.T) {
	want := []string{"", "no answer", "no answer", "answered 503"}
	got := []string{Failure{}.String(), newNoAnswer(CauseTimeout).String(), newNoAnswer(CauseRefusedAddress).String(), Failure{Class: ClassAnswered, Status: 503}.String()}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
