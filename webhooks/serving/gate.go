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

// retrySeconds is when a request that found no room is to be sent again. The API server does so by itself, for as long as
// the timeout of the webhook lets it.
const retrySeconds = 1

// readFor is how long a body may arrive before its slot is taken away for another request of the same address. Callers are near: a
// body of some MiB takes a part of this.
const readFor = time.Second

// ErrCutOff is what the body of a request ends with whose slot was given to another caller, and the cause that its context is
// done by.
var ErrCutOff = errors.New("others that hold less need the room")

// RequestLimiter lets a bounded number of requests through at a time, and answers all others at once with 429 and Retry-After. A
// request whose body is still arriving, or that waits for one of Turns, makes room for one of an address that holds less.
type RequestLimiter struct {
	slots *slotPool
}

// NewRequestLimiter makes a RequestLimiter for this many requests at a time. Half of them may come from one address.
func NewRequestLimiter(requests int) *RequestLimiter {
	return &RequestLimiter{newSlotPool(requests, max(1, requests/2), readFor)}
}

// WrapHandler puts the limiter before a handler. Handlers that one limiter is put before share its slots.
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
			if was == dormant { // it may be reading
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

// RefuseRequest answers a request that there is no room for.
func RefuseRequest(w http.ResponseWriter) {
	w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	http.Error(w, "there are too many requests: try again", http.StatusTooManyRequests)
}

// slotKey is where the context of a request has its slot.
type slotKey struct{}

// setSlotState says what the slot of a request, if it has one, is used for. It is false if the slot was taken away.
func setSlotState(ctx context.Context, state slotState) bool {
	s, ok := ctx.Value(slotKey{}).(*slot)
	return !ok || s.setState(state)
}

// arrivingBody is the body of a request whose slot is dormant until it is read.
type arrivingBody struct {
	io.ReadCloser
	slot *slot
}

// Read reads the body. It fails with ErrCutOff if the slot was taken away before the end.
func (b *arrivingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !b.slot.setState(inUse) {
		err = ErrCutOff
	}
	return n, err
}

// callerOf names the caller of an address with a port. A host can have all IPv6 addresses of its network: they count as one.
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
