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
	"strconv"
	"time"
)

// What came of an attempt that did not deliver: the classes of Failure, which the author of a Cleaner may know.
const (
	// ClassAnswered: the sink answered with a status code that is not 2xx.
	ClassAnswered = "answered"
	// ClassNoAnswer: no HTTP answer came. Why is a Cause, and no matter for an author: the differences between causes are
	// a port scan of all that the operator can reach.
	ClassNoAnswer = "no answer"
	// ClassInvalidSink: the sink is no URL that an event can be sent to.
	ClassInvalidSink = "invalid sink"
	// ClassInvalidRun: no event can be made of what is recorded.
	ClassInvalidRun = "invalid run"
	// ClassNoCredential: it was not sent, because what shows the sink who has sent it could not be read or used.
	ClassNoCredential = "no credential"
	// ClassPanic: the operator failed to make or to send the event.
	ClassPanic = "panic"
)

// Why no answer came: the causes of ClassNoAnswer, for metrics and the operator's log.
const (
	// CauseRefusedAddress: the sink's name stands for an address that is not connected to.
	CauseRefusedAddress = "refused address"
	// CauseTimeout: the sink did not connect or answer in time.
	CauseTimeout = "timeout"
	// CauseUnknownHost: the sink's name could not be resolved.
	CauseUnknownHost = "unknown host"
	// CauseTLS: there was no agreement on TLS, or the sink's certificate is not trusted.
	CauseTLS = "TLS failed"
	// CauseConnection: the connection could not be made or was lost.
	CauseConnection = "connection failed"
	// CauseUnknownCluster: the cluster's own addresses, which are not connected to, could not be read.
	CauseUnknownCluster = "unknown cluster"
)

// Failure says why an attempt did not deliver, without anything that the sink said: the text of an answer or of an
// error may hold what the author of a Cleaner may not read.
type Failure struct {
	// Class is one of the Class constants; empty when there was no failure.
	Class string
	// Status is the status code, when Class is ClassAnswered.
	Status int
	// Cause is one of the Cause constants, when Class is ClassNoAnswer. It is not for the author of a Cleaner.
	Cause string
	// Why says what is wrong, when Class is ClassNoCredential. It is for the author, and never holds the value.
	Why string
}

// String writes the failure for the author of a Cleaner: "no answer", "answered 503".
func (f Failure) String() string {
	switch f.Class {
	case ClassAnswered:
		return fmt.Sprintf("%s %d", f.Class, f.Status)
	case ClassNoCredential:
		return f.Why
	default:
		return f.Class
	}
}

func newNoAnswer(cause string) Failure { return Failure{Class: ClassNoAnswer, Cause: cause} }

// isPermanent says that the sink, asked again, would most likely say the same: only a person can change that.
func (f Failure) isPermanent() bool {
	switch f.Class {
	case ClassInvalidSink, ClassInvalidRun:
		return true
	case ClassAnswered:
		switch f.Status {
		case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
			return false
		}
		return f.Status >= 300 && f.Status < 500
	default:
		return false
	}
}

const (
	firstRetry     = time.Second
	maxRetry       = 10 * time.Minute
	permanentRetry = time.Hour
	maxRetryAfter  = time.Hour
)

// computeBackoff returns how long to wait after a number of failed attempts. f is the last failure, and asked the time that the sink
// asked for.
func computeBackoff(attempts int, f Failure, asked time.Duration) time.Duration {
	wait := permanentRetry
	if !f.isPermanent() {
		wait = min(firstRetry<<min(attempts-1, 16), maxRetry)
	}
	return max(wait, min(asked, maxRetryAfter))
}

// parseRetryAfter reads the header of this name: seconds, or a date. Anything else is no time at all.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now)
	}
	return 0
}

// classifyError says why no answer came.
func classifyError(err error) Failure {
	var (
		timeout     net.Error
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		op          *net.OpError
	)
	switch {
	case errors.Is(err, errRefused):
		return newNoAnswer(CauseRefusedAddress)
	case errors.Is(err, errUnknownCluster):
		return newNoAnswer(CauseUnknownCluster)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return newNoAnswer(CauseTimeout)
	case errors.As(err, &dns):
		return newNoAnswer(CauseUnknownHost)
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &certificate), errors.As(err, &record),
		errors.As(err, &op) && op.Op == "remote error": // an alert, as crypto/tls gives it
		return newNoAnswer(CauseTLS)
	default:
		return newNoAnswer(CauseConnection)
	}
}
