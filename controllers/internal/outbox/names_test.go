// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/vtex/cleaner/test/sink"
)

// names is a name server that answers as a hostile one would: otherwise each time, if it is told to.
type names struct {
	conn net.PacketConn

	mu      sync.Mutex
	answers map[question][][]netip.Addr // the last of them stays
	asked   map[question]int
}

type question struct {
	name string
	kind dnsmessage.Type
}

// serveNames runs a name server until the test ends.
func serveNames(t *testing.T) *names {
	t.Helper()
	conn, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn, answers: map[question][][]netip.Addr{}, asked: map[question]int{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		n.serve()
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
	return n
}

// resolver asks this server and no other.
func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

// set says what a name stands for: one text for each time that it is asked for, with addresses in it. An empty text is
// no address, and "silent" no answer.
func (n *names) set(name string, answers ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, kind := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA} {
		var all [][]netip.Addr
		for _, text := range answers {
			addrs := []netip.Addr{}
			for _, word := range strings.Fields(text) {
				if word == "silent" {
					addrs = nil
				} else if a := netip.MustParseAddr(word); a.Is4() == (kind == dnsmessage.TypeA) {
					addrs = append(addrs, a)
				}
			}
			all = append(all, addrs)
		}
		n.answers[question{name + ".", kind}] = all
	}
}

// times is how often a name was asked for.
func (n *names) times(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[question{name + ".", dnsmessage.TypeA}]
}

func (n *names) serve() {
	buf := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(buf[:size]); err != nil || len(m.Questions) != 1 {
			continue
		}
		if answer := n.answer(m); answer != nil {
			_, _ = n.conn.WriteTo(answer, from)
		}
	}
}

func (n *names) answer(m dnsmessage.Message) []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := m.Questions[0]
	q := question{strings.ToLower(asked.Name.String()), asked.Type}
	all, known := n.answers[q]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, RecursionDesired: true, RecursionAvailable: true, RCode: dnsmessage.RCodeSuccess}
	m.Additionals = nil
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	} else {
		now := all[min(n.asked[q], len(all)-1)]
		n.asked[q]++
		if now == nil {
			return nil
		}
		for _, a := range now {
			r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: asked.Name, Type: asked.Type, Class: asked.Class}}
			if a.Is4() {
				r.Body = &dnsmessage.AResource{A: a.As4()}
			} else {
				r.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
			}
			m.Answers = append(m.Answers, r)
		}
	}
	text, err := m.Pack()
	if err != nil {
		return nil
	}
	return text
}

// everywhere allows private addresses too.
func everywhere() Policy {
	return Policy{Allow: append(privatePrefixes(), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))}
}

// own is an address of this machine that events may be sent to without further ado; empty if it has none.
func own(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && (dialPolicy{Policy: everywhere(), forTenants: true}).allowsAddress(p.Addr()) {
			return p.Addr().String()
		}
	}
	return ""
}

// TestNames shows that it is the connection that is judged, whatever the name stood for a moment before.
func TestNames(t *testing.T) {
	loopback := Policy{AllowLoopback: true}
	denied := Policy{AllowLoopback: true, Deny: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32"), netip.MustParsePrefix("::1/128")}}
	type testCase struct {
		reason  string
		policy  Policy
		answers []string
		want    []string // what comes of each attempt: "delivered", or a Failure's class
	}
	cases := map[string]testCase{
		"Permitted":    {"a name like any other", loopback, []string{"127.0.0.1"}, []string{"delivered"}},
		"Loopback":     {"the operator's own ports", Policy{}, []string{"127.0.0.1"}, []string{CauseRefusedAddress}},
		"LoopbackIPv6": {"the same", Policy{}, []string{"::1"}, []string{CauseRefusedAddress}},
		"Metadata":     {"credentials of the node", loopback, []string{"169.254.169.254"}, []string{CauseRefusedAddress}},
		"Mapped":       {"IPv4 in IPv6", Policy{}, []string{"::ffff:127.0.0.1"}, []string{CauseRefusedAddress}},
		"Compatible":   {"IPv4 in IPv6", Policy{}, []string{"::127.0.0.1"}, []string{CauseRefusedAddress}},
		"NAT64":        {"IPv4 in IPv6", loopback, []string{"64:ff9b::169.254.169.254"}, []string{CauseRefusedAddress}},
		"6to4":         {"IPv4 in IPv6", Policy{}, []string{"2002:7f00:1::"}, []string{CauseRefusedAddress}},
		"Unspecified":  {"this host, on Linux", loopback, []string{"0.0.0.0"}, []string{CauseRefusedAddress}},
		"AllRefused":   {"none of them", Policy{}, []string{"127.0.0.1 ::1 169.254.169.254 0.0.0.0"}, []string{CauseRefusedAddress}},
		"OneRefused":   {"another one may be used all the same", denied, []string{"127.0.0.2 ::1 127.0.0.1"}, []string{"delivered"}},
		"Rebound":      {"to an address of --sink-deny, and back", denied, []string{"127.0.0.1", "127.0.0.2", "127.0.0.1"}, []string{ClassAnswered, CauseRefusedAddress, "delivered"}},
		"ReboundHere":  {"to this host", loopback, []string{"127.0.0.1", "0.0.0.0", "::"}, []string{ClassAnswered, CauseRefusedAddress, CauseRefusedAddress}},
		"ReboundNode":  {"to the metadata of the node", loopback, []string{"127.0.0.1", "169.254.169.254"}, []string{ClassAnswered, CauseRefusedAddress}},
		"NoAddress":    {"a name without any", loopback, []string{""}, []string{CauseUnknownHost}},
		"Silent":       {"the name server does not answer", loopback, []string{"silent"}, []string{CauseTimeout}},
		"Unknown":      {"there is no such name", loopback, nil, []string{CauseUnknownHost}},
	}
	if a := own(t); a != "" {
		cases["ReboundLoopback"] = testCase{"with nothing but the defaults", everywhere(), []string{a, "127.0.0.1", "::1", a}, []string{ClassAnswered, CauseRefusedAddress, CauseRefusedAddress, "delivered"}}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := sink.StartAt(t, "[::]:0") // under each address of this machine, so that it sees what gets through
			if tc.want[0] == ClassAnswered {
				receiver.Answer(sink.Answer{Status: http.StatusServiceUnavailable})
			}
			server := serveNames(t)
			if tc.answers != nil {
				server.set("sink.example", tc.answers...)
			}
			b := start(t, func(o *Options, l *timeouts) {
				o.Policy, o.Resolver = tc.policy, server.resolver()
				if slices.Equal(tc.want, []string{CauseTimeout}) {
					l.connect = time.Second
				}
			})
			b.send("c", "http://sink.example"+receiver.URL[strings.LastIndex(receiver.URL, ":"):], 1)
			wait, arrived := time.Second, 0
			for i, class := range tc.want {
				b.attempted("c")
				want := Delivery{Known: true, Attempts: i + 1, Last: newNoAnswer(class), Next: b.clock.Now().Add(wait)}
				switch class {
				case "delivered":
					want.Delivered, want.Last, want.Next = true, Failure{}, time.Time{}
					arrived++
				case ClassAnswered:
					want.Last = answered(http.StatusServiceUnavailable)
					arrived++
				}
				b.want("c", 1, want)
				if i+1 < len(tc.want) {
					b.clock.Step(wait)
					wait *= 2
				}
			}
			b.arrived(receiver, arrived)
			if n := server.times("sink.example"); len(tc.want) > 1 && n != len(tc.want) {
				t.Errorf("the name was asked for %d times in %d attempts", n, len(tc.want))
			}
		})
	}
}
