// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// retrySeconds is the Retry-After of a request that found no room. The API server retries by itself until the webhook's timeout.
const retrySeconds = 1

// readFor is how long a body may arrive before another request of the same address can take its slot. Callers are near: a body of a
// few MiB needs only part of this.
const readFor = time.Second

// ErrCutOff means that the slot of a request was given to another caller. It is the error of the request's body, and the cause of
// its context.
var ErrCutOff = errors.New("the request was dropped to make room for other callers")

// RequestLimiter bounds how many requests are handled at a time, and answers the others at once with 429 and Retry-After. A request
// whose body is still arriving, or that waits for its turn, makes room for a request of an address that holds less.
type RequestLimiter struct {
	slots *slotPool
}

// NewRequestLimiter returns a RequestLimiter for this many requests at a time. At most half of them may come from one address.
func NewRequestLimiter(requests int) *RequestLimiter {
	return &RequestLimiter{newSlotPool(requests, max(1, requests/2), readFor)}
}

// WrapHandler limits the requests to a handler. All handlers of one limiter share its slots.
func (g *RequestLimiter) WrapHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		state := dormant
		if r.Body == nil || r.Body == http.NoBody {
			state = inUse
		}
		s := g.slots.acquireSlot(callerOf(r.RemoteAddr), state, func(was slotState) {
			cancel(ErrCutOff)
			if was == dormant { // it may be reading the body
				_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) // long ago
			}
		})
		if s == nil {
			RefuseRequest(w)
			return
		}
		defer s.releaseSlot()
		r = r.WithContext(context.WithValue(ctx, slotKey{}, s))
		if state == dormant {
			r.Body = &arrivingBody{r.Body, s}
		}
		next.ServeHTTP(w, r)
	})
}

// RefuseRequest answers a request for which there is no room.
func RefuseRequest(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	http.Error(w, "too many requests: try again", http.StatusTooManyRequests)
}

// slotKey is the key of the slot in a request's context.
type slotKey struct{}

// setSlotState sets the state of a request's slot, if it has one. It returns false if the slot was taken away.
func setSlotState(ctx context.Context, state slotState) bool {
	s, ok := ctx.Value(slotKey{}).(*slot)
	return !ok || s.setState(state)
}

// arrivingBody is the body of a request whose slot is dormant until it is read.
type arrivingBody struct {
	io.ReadCloser
	slot *slot
}

// Read reads the body. It returns ErrCutOff if the slot was taken away before the end.
func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.slot.setState(inUse) {
		err = ErrCutOff
	}
	return n, err
}

// callerOf returns the caller for an address with a port. A host can use all IPv6 addresses of its /64 network, so they count as one.
func callerOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	addr = addr.WithZone("").Unmap()
	if addr.Is4() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, 64).Masked().String()
}
