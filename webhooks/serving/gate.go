// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
)

// retrySeconds is when a request that found no room is to be sent again. The API server does so by itself, for as long as
// the timeout of the webhook lets it.
const retrySeconds = 1

// RequestLimiter lets a bounded number of requests through at a time, and answers all others at once with 429 and Retry-After.
type RequestLimiter struct {
	slots *callerSlots
}

// NewRequestLimiter makes a RequestLimiter for this many requests at a time. Half of them may come from one address.
func NewRequestLimiter(requests int) *RequestLimiter {
	return &RequestLimiter{newCallerSlots(requests, max(1, requests/2))}
}

// WrapHandler puts the limiter before a handler. Handlers that one limiter is put before share its slots.
func (g *RequestLimiter) WrapHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := callerOf(r.RemoteAddr)
		if !g.slots.acquireSlot(caller) {
			w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
			http.Error(w, "there are too many requests: try again", http.StatusTooManyRequests)
			return
		}
		defer g.slots.releaseSlot(caller)
		next.ServeHTTP(w, r)
	})
}

// callerSlots are taken by callers: so many in all, and so many by each.
type callerSlots struct {
	maxTotal, maxPerCaller int

	mu            sync.Mutex
	taken         int
	takenByCaller map[string]int
}

func newCallerSlots(all, each int) *callerSlots {
	return &callerSlots{maxTotal: all, maxPerCaller: each, takenByCaller: map[string]int{}}
}

// acquireSlot takes a slot, if there is one left for the caller.
func (p *callerSlots) acquireSlot(caller string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.maxTotal || p.takenByCaller[caller] >= p.maxPerCaller {
		return false
	}
	p.taken++
	p.takenByCaller[caller]++
	return true
}

// releaseSlot gives a slot back.
func (p *callerSlots) releaseSlot(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.takenByCaller[caller]--; p.takenByCaller[caller] == 0 {
		delete(p.takenByCaller, caller)
	}
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
