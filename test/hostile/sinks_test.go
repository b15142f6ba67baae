// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// forged is the sink of events that no run of the operator has caused, and here is a service on the operator's own machine.
const (
	forgedSink = "forged"
	here       = "here"
)

// behaviours are what servers do with a connection on which a request has come, until it is cut.
func behaviours(inward int) map[string]func(net.Conn) error {
	const ok = "HTTP/1.1 200 OK\r\n"
	endless := func(head, part string) func(net.Conn) error {
		return func(c net.Conn) error {
			_, err := io.WriteString(c, head)
			for part := strings.Repeat(part, 1+(1<<14)/len(part)); err == nil; {
				_, err = io.WriteString(c, part)
			}
			return err
		}
	}
	answer := func(text string) func(net.Conn) error {
		return func(c net.Conn) error {
			_, err := io.WriteString(c, text)
			return err
		}
	}
	return map[string]func(net.Conn) error{
		forgedSink:  answer(ok + "Content-Length: 0\r\n\r\n"),
		"never":     silent,
		"handshake": silent,
		"slow":      dripping(ok + "Content-Length: 0\r\n\r\n"),
		"headers":   endless(ok, "X-More: "+strings.Repeat("x", 100)+"\r\n"),
		"hints":     endless("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
		"gigabytes": endless("HTTP/1.1 500 Oh\r\nTransfer-Encoding: chunked\r\n\r\n", "400\r\n"+strings.Repeat("x", 0x400)+"\r\n"),
		"zip":       unzips,
		"redirect":  answer("HTTP/1.1 307 There\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n\r\n"),
		"inward":    answer(fmt.Sprintf("HTTP/1.1 308 There\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n", inward)),
		"upgrade":   answer("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
		"noise":     endless("", "\x00\xff\r\n\r"),
		"reset":     reset,
		"later":     answer("HTTP/1.1 503 Later\r\nRetry-After: 99999999999999999999999999\r\nContent-Length: 0\r\n\r\n"),
		"text":      answer("HTTP/1.1 500 hunter2\r\nX-Secret: hunter2\r\nContent-Length: 11\r\n\r\nhunter2\x1b[2J"),
	}
}

// silent never answers.
func silent(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	return err
}

// dripping answers a byte a second.
func dripping(text string) func(net.Conn) error {
	return func(c net.Conn) error {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for i := range len(text) {
			if _, err := c.Write([]byte{text[i]}); err != nil {
				return err
			}
			<-tick.C
		}
		return nil
	}
}

// unzips answers with a hundred megabytes in a hundred kilobytes.
func unzips(c net.Conn) error {
	text, err := zipped(100<<20, "x")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c, "HTTP/1.1 500 Oh\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	return err
}

// reset cuts the connection.
func reset(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return errors.New("it is no TCP")
	}
	return tcp.SetLinger(0)
}

// servers are those that mean harm, and those that must not be reached.
type servers struct {
	listeners map[string]net.Listener
	heard     map[string]*atomic.Int64
}

// serve starts all servers, until the test ends: on an address that other machines could have, and here, on loopback ones.
func serve(t testing.TB) *servers {
	t.Helper()
	s := &servers{listeners: map[string]net.Listener{}, heard: map[string]*atomic.Int64{}}
	address, err := outward()
	if err != nil {
		t.Fatal(err)
	}
	inward := s.listen(t, here, "127.0.0.1:0", nil)
	if six, err := net.Listen("tcp", fmt.Sprintf("[::1]:%d", inward)); err == nil { // not everywhere is there IPv6
		s.accept(t, here, six, nil)
	}
	for name, behave := range behaviours(inward) {
		s.listen(t, name, net.JoinHostPort(address, "0"), behave)
	}
	return s
}

func (s *servers) listen(t testing.TB, name, address string, behave func(net.Conn) error) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.listeners[name], s.heard[name] = l, &atomic.Int64{}
	s.accept(t, name, l, behave)
	return l.Addr().(*net.TCPAddr).Port
}

func (s *servers) accept(t testing.TB, name string, l net.Listener, behave func(net.Conn) error) {
	t.Cleanup(func() { _ = l.Close() })
	heard := s.heard[name]
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			go func() {
				defer c.Close()
				if behave == nil {
					return
				}
				_, _ = c.Read(make([]byte, 1<<16)) // the request, or its beginning
				_ = behave(c)                      // until the other end has enough
			}()
		}
	}()
}

func (s *servers) url(name string) string { return "http://" + s.listeners[name].Addr().String() + "/" }

// addresses is the range in which the servers are that mean harm.
func (s *servers) addresses() string {
	ip, _ := netip.AddrFromSlice(s.listeners[forgedSink].Addr().(*net.TCPAddr).IP)
	ip = ip.Unmap()
	return netip.PrefixFrom(ip, ip.BitLen()).String()
}

func (s *servers) port(name string) int { return s.listeners[name].Addr().(*net.TCPAddr).Port }

// outward is an address of this machine that is no loopback one.
func outward() (string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "", err
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return n.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address but loopback ones, where no sink may be")
}
