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

// Gate lets a bounded number of requests through at a time, and answers all others at once with 429 and Retry-After.
type Gate struct {
	places *places
}

// NewGate makes a Gate for this many requests at a time. Half of them may come from one address.
func NewGate(requests int) *Gate { return &Gate{newPlaces(requests, max(1, requests/2))} }

// Wrap puts the Gate before a handler. Handlers that one Gate is put before share its places.
func (g *Gate) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller := hostOf(r.RemoteAddr)
		if !g.places.take(caller) {
			w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
			http.Error(w, "there are too many requests: try again", http.StatusTooManyRequests)
			return
		}
		defer g.places.give(caller)
		next.ServeHTTP(w, r)
	})
}

// places are taken by callers: so many in all, and so many by each.
type places struct {
	all, each int

	mu    sync.Mutex
	taken int
	by    map[string]int
}

func newPlaces(all, each int) *places { return &places{all: all, each: each, by: map[string]int{}} }

// take takes a place, if there is one left for the caller.
func (p *places) take(caller string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.all || p.by[caller] >= p.each {
		return false
	}
	p.taken++
	p.by[caller]++
	return true
}

// give gives a place back.
func (p *places) give(caller string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.by[caller]--; p.by[caller] == 0 {
		delete(p.by, caller)
	}
}

// hostOf names the caller of an address with a port. A host can have all IPv6 addresses of its network: they count as one.
func hostOf(address string) string {
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
