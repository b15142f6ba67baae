// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/util/wait"
)

// serve starts a real server and gives its address. It is stopped, and has to stop well, at the end of the test.
func serve(t *testing.T, o Options, handler http.Handler) string {
	t.Helper()
	o.Address, o.Log = "127.0.0.1:0", testr.New(t)
	s, err := New(o, handler)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	err = wait.PollUntilContextTimeout(ctx, time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		return s.CheckReady(nil) == nil, nil
	})
	if err != nil {
		t.Fatal("the server does not listen")
	}
	return s.ListenAddress().String()
}

// client is a caller from one address of this machine, with a certificate or without.
func client(from string, pairs ...tls.Certificate) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext:     dialer.DialContext,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: pairs}, // the server's certificate is its own
	}}
}

func echo() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	})
}

func TestHTTP2IsOffUnlessItIsAskedFor(t *testing.T) {
	for _, on := range []bool{false, true} {
		address := serve(t, Options{HTTP2: on}, echo())
		for _, offered := range [][]string{{"h2"}, {"h2", "http/1.1"}} {
			conn, err := dial(t, address, &tls.Config{InsecureSkipVerify: true, NextProtos: offered})
			if err != nil {
				if on || len(offered) > 1 { // who speaks nothing else is refused
					t.Errorf("on %t, offered %v: %v", on, offered, err)
				}
				continue
			}
			if got := conn.ConnectionState().NegotiatedProtocol; (got == "h2") != on {
				t.Errorf("on %t, offered %v: agreed on %q", on, offered, got)
			}
			_ = conn.Close()
		}
	}
}

func TestAFloodFromOneAddressLeavesRoomForOthers(t *testing.T) {
	const requests, flood = 16, 200
	release, entered := make(chan struct{}), make(chan struct{}, flood)
	gate := NewRequestLimiter(requests)
	address := serve(t, Options{}, gate.WrapHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-release
		}
	})))
	stranger, apiServer := client("127.0.0.1"), client("127.0.0.2")
	codes := make(chan int, flood)
	var all sync.WaitGroup
	for range flood {
		all.Go(func() {
			resp, err := post(t, stranger, "https://"+address+"/slow")
			if err != nil {
				codes <- 0
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
			}
			codes <- resp.StatusCode
		})
	}
	for range requests / 2 {
		<-entered
	}
	for range flood - requests/2 { // while those that were let in still wait
		if code := <-codes; code != http.StatusTooManyRequests {
			t.Fatalf("a request beyond the limit was answered %d", code)
		}
	}
	resp, err := post(t, apiServer, "https://"+address+"/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("another caller was answered %d during the flood", resp.StatusCode)
	}
	close(release)
	for range requests / 2 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a request that was let in was answered %d", code)
		}
	}
	all.Wait()
	if n := len(gate.slots.heldByCaller); n != 0 || len(gate.slots.held) != 0 {
		t.Errorf("%d places are still taken, by %d callers", len(gate.slots.held), n)
	}
}

func TestCallersAreToldApartByTheirNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:5":                "10.0.0.1",
		"[::ffff:10.0.0.1]:5":       "10.0.0.1",
		"[2001:db8:1:2:3:4:5:6]:5":  "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:77": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5":          "fe80::/64",
		"pipe":                      "pipe",
	} {
		if got := callerOf(address); got != want {
			t.Errorf("%s: got %s, want %s", address, got, want)
		}
	}
}

// Who never sends a whole request holds a connection and nothing else, and not for long.
func TestASlowCallerIsCutOff(t *testing.T) {
	t.Parallel()
	address := serve(t, Options{}, echo())
	for _, c := range []struct {
		sent  string
		limit time.Duration
	}{
		{"POST / HTTP/1.1\r\nHost: a\r\nX: ", headerTimeout},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nsome", readTimeout},
	} {
		conn, err := dial(t, address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, c.sent); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(c.limit + 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, conn)
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			t.Errorf("%q holds its connection for more than %s", c.sent, c.limit)
		}
		_ = conn.Close()
	}
}

func TestAHeaderIsBounded(t *testing.T) {
	address := serve(t, Options{}, echo())
	conn, err := dial(t, address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { // it may be cut off while it writes
		_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n", strings.Repeat("x", 2*maxHeader))
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d", resp.StatusCode)
	}
}

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	address := serve(t, Options{}, echo())
	from := func(host string) net.Conn {
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}).Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for range maxConnectionsPerCaller {
		from("127.0.0.1")
	}
	beyond := from("127.0.0.1")
	if err := beyond.SetReadDeadline(time.Now().Add(4 * time.Second)); err != nil { // before headerTimeout would end it
		t.Fatal(err)
	}
	if _, err := beyond.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one connection too many was kept: %v", err)
	}
	other := tls.Client(from("127.0.0.2"), &tls.Config{InsecureSkipVerify: true})
	if err := other.HandshakeContext(t.Context()); err != nil {
		t.Errorf("another address is not served: %v", err)
	}
}

// authority signs certificates of clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, serial int64) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key = sign(t, nil, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprintf("authority %d", serial)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func sign(t *testing.T, by *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed, key
}

func (a *authority) client(t *testing.T, name string, usage x509.ExtKeyUsage, dns ...string) tls.Certificate {
	t.Helper()
	cert, key := sign(t, a, &x509.Certificate{
		SerialNumber: big.NewInt(100), Subject: pkix.Name{CommonName: name}, DNSNames: dns, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (a *authority) write(t *testing.T, path string) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheClientThatIsNamedIsServed(t *testing.T) {
	ours, theirs := newAuthority(t, 1), newAuthority(t, 2)
	path := filepath.Join(t.TempDir(), "ca.crt")
	ours.write(t, path)
	address := serve(t, Options{ClientCA: path, ClientNames: []string{"kube-apiserver", "api.example.com"}}, echo())
	call := func(pairs ...tls.Certificate) error {
		resp, err := post(t, client("127.0.0.1", pairs...), "https://"+address+"/")
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	const usage = x509.ExtKeyUsageClientAuth
	for name, c := range map[string]struct {
		pairs  []tls.Certificate
		served bool
	}{
		"its common name":         {[]tls.Certificate{ours.client(t, "kube-apiserver", usage)}, true},
		"its DNS name":            {[]tls.Certificate{ours.client(t, "x", usage, "api.example.com")}, true},
		"none":                    {nil, false},
		"another name":            {[]tls.Certificate{ours.client(t, "kubelet", usage)}, false},
		"of another authority":    {[]tls.Certificate{theirs.client(t, "kube-apiserver", usage)}, false},
		"for servers":             {[]tls.Certificate{ours.client(t, "kube-apiserver", x509.ExtKeyUsageServerAuth)}, false},
		"names by another prefix": {[]tls.Certificate{ours.client(t, "kube-apiserver.evil", usage)}, false},
	} {
		if err := call(c.pairs...); (err == nil) != c.served {
			t.Errorf("certificate %s: %v", name, err)
		}
	}
	theirs.write(t, path) // the authority is renewed
	if err := call(theirs.client(t, "kube-apiserver", usage)); err != nil {
		t.Errorf("after the authority was renewed: %v", err)
	}
	if err := call(ours.client(t, "kube-apiserver", usage)); err == nil {
		t.Error("the former authority is still trusted")
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.crt")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"names without an authority": {ClientNames: []string{"a"}},
		"no such file":               {ClientCA: filepath.Join(t.TempDir(), "none")},
		"nothing in the file":        {ClientCA: empty},
	} {
		if _, err := New(o, echo()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// dial opens a connection over TLS.
func dial(t *testing.T, address string, config *tls.Config) (*tls.Conn, error) {
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// post sends an empty JSON object.
func post(t *testing.T, c *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return c.Do(req)
}
