// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requestdeadline ends requests to the API server that take too long, so that an unanswered request blocks nothing for good. It follows
// no redirect: only the API server receives the operator's token. It bounds the responses to writes. It ends no watch, and repeats no
// request.
package requestdeadline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// RequestLimit is how long a request may take, with its answer. An API server gives each 60 s by default.
const RequestLimit = 65 * time.Second

// errSlow is why a request was ended.
var errSlow = errors.New("the API server did not answer in time")

// errRedirect is why an answer is not taken. An API server redirects no request that the operator sends. What it forwards an answer of may:
// the client would send its token there.
var errRedirect = errors.New("the API server redirects the request, which is not followed")

// LimitRequests ends the requests of all clients that are made of a configuration from now on, and refuses redirects.
func LimitRequests(config *rest.Config, limit time.Duration) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next: next, limit: limit} })
}

type transport struct {
	next  http.RoundTripper
	limit time.Duration
}

// RoundTrip sends a request.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if isWatch(r) {
		return t.sendOnce(r)
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), t.limit, errSlow)
	resp, err := t.sendOnce(r.WithContext(ctx))
	switch {
	case err != nil:
		cancel()
		if errors.Is(context.Cause(ctx), errSlow) {
			return nil, errSlow
		}
		return nil, err
	case resp.Body == nil:
		cancel()
	default:
		resp.Body = body{boundAnswer(r, resp.Body), cancel}
	}
	return resp, nil
}

// sendOnce sends a request, and refuses to be sent elsewhere.
func (t transport) sendOnce(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil || resp.StatusCode/100 != 3 || resp.StatusCode == http.StatusNotModified {
		return resp, err
	}
	_ = resp.Body.Close() // it is of no interest
	return nil, errRedirect
}

// maxAnswer is how many bytes the answer to a request that changes something may have: an object, or a Status. An API server stores 1.5 MiB
// of one, and more as JSON.
const maxAnswer = 24 << 20

// errLarge is why an answer is not read to its end.
var errLarge = fmt.Errorf("the answer to a request has more than %d bytes", maxAnswer)

// boundAnswer is the body of an answer, which ends with an error where it is too large. Lists are as large as there are objects.
func boundAnswer(r *http.Request, answer io.ReadCloser) io.ReadCloser {
	if r.Method == http.MethodGet {
		return answer
	}
	return &boundBody{ReadCloser: answer, left: maxAnswer}
}

type boundBody struct {
	io.ReadCloser
	left int
}

// Read reads on. The byte after the last one that may be read is an error.
func (b *boundBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, errLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return n, errLarge
	}
	return n, err
}

// isWatch reports whether the response to a request lasts until one side ends it.
func isWatch(r *http.Request) bool {
	switch r.URL.Query().Get("watch") {
	case "", "0", "false":
		return false
	default:
		return true
	}
}

// body is one that was read when it is closed.
type body struct {
	io.ReadCloser
	read context.CancelFunc
}

// Close ends the request.
func (b body) Close() error {
	defer b.read()
	return b.ReadCloser.Close()
}
