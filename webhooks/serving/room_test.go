// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// connect opens a connection from an address of this machine.
func connect(t *testing.T, from, address string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// over makes a connection one over TLS.
func over(conn net.Conn, pairs ...tls.Certificate) net.Conn {
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: pairs})
}

// ask sends a request without a body over a connection, and returns the code of its answer.
func ask(conn net.Conn) (int, error) {
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return 0, err
	}
	return readCode(conn)
}

// readCode reads an answer, and returns its code.
func readCode(conn net.Conn) (int, error) {
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, err
}

// TestSlowBodiesMakeRoom shows that who sends bodies slowly from several addresses, or has them wait for a turn, does not keep
// another address from its answer, and is told so.
func TestSlowBodiesMakeRoom(t *testing.T) {
	const requests = 16
	for name, sent := range map[string]string{"a body that does not end": "{", "a turn that does not come": "{}"} {
		t.Run(name, func(t *testing.T) {
			entered, turns := make(chan struct{}, requests), NewTurns()
			end, _ := turns.Take(t.Context(), "10.0.0.1:1")
			defer end()
			address := serve(t, Options{}, NewRequestLimiter(requests).WrapHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				slow := r.URL.Path == "/slow"
				if slow {
					entered <- struct{}{}
				}
				_, err := io.ReadAll(r.Body)
				if err == nil && slow {
					if _, ok := turns.Take(r.Context(), r.RemoteAddr); !ok {
						err = context.Cause(r.Context())
					}
				}
				if err != nil {
					http.Error(w, err.Error(), http.StatusTooManyRequests)
				}
			})))
			var slow []net.Conn
			for i := range requests {
				conn := over(connect(t, fmt.Sprintf("127.0.0.%d", 2+i%2), address))
				if _, err := fmt.Fprintf(conn, "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n%s", sent); err != nil {
					t.Fatal(err)
				}
				slow = append(slow, conn)
				<-entered // the oldest is the first
			}
			apiServer := client("127.0.0.1")
			for range requests {
				err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
					resp, err := post(t, apiServer, "https://"+address+"/")
					if err != nil {
						return false, err
					}
					return resp.StatusCode == http.StatusOK, resp.Body.Close()
				})
				if err != nil {
					t.Fatalf("the API server has no answer: %v", err)
				}
			}
			if code, err := readCode(slow[0]); code != http.StatusTooManyRequests {
				t.Errorf("the first that was slow is answered %d, %v", code, err)
			}
		})
	}
}

// TestWhatIsJudgedIsNotCutOff shows that a request whose body is there keeps its slot.
func TestWhatIsJudgedIsNotCutOff(t *testing.T) {
	const requests = 16
	entered, release := make(chan struct{}), make(chan struct{})
	address := serve(t, Options{}, NewRequestLimiter(requests).WrapHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		entered <- struct{}{}
		<-release
	})))
	var judged []net.Conn
	for i := range requests {
		conn := over(connect(t, fmt.Sprintf("127.0.0.%d", 2+i%2), address))
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
			t.Fatal(err)
		}
		judged = append(judged, conn)
		<-entered
	}
	if code, err := ask(over(connect(t, "127.0.0.1", address))); code != http.StatusTooManyRequests {
		t.Errorf("one beyond the bound is answered %d, %v", code, err)
	}
	close(release)
	for _, conn := range judged {
		if code, err := readCode(conn); code != http.StatusOK {
			t.Errorf("one that was judged is answered %d, %v", code, err)
		}
	}
}

// TestASlowBodyMakesRoomForItsOwnAddress shows that a body that has had its time gives way to a request of the same address.
func TestASlowBodyMakesRoomForItsOwnAddress(t *testing.T) {
	const requests = 4
	entered := make(chan struct{}, requests)
	address := serve(t, Options{}, NewRequestLimiter(requests).WrapHandler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		_, _ = io.ReadAll(r.Body)
	})))
	for range requests / 2 {
		if _, err := io.WriteString(over(connect(t, "127.0.0.1", address)), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		<-entered
	}
	began, c := time.Now(), client("127.0.0.1")
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, readTimeout, true, func(context.Context) (bool, error) {
		resp, err := post(t, c, "https://"+address+"/")
		if err != nil {
			return false, err
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if took := time.Since(began); err != nil || took > readTimeout/2 {
		t.Errorf("answered after %s: %v", took, err)
	}
}

// TestConnectionsMakeRoom shows that who holds all connections, of as many addresses as that takes, is cut off in favour of another address.
func TestConnectionsMakeRoom(t *testing.T) {
	for name, hold := range map[string]func(net.Conn) error{
		"idle": func(conn net.Conn) error {
			_, err := ask(over(conn))
			return err
		},
		"without a handshake": func(net.Conn) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, Options{}, echo())
			for pod := range maxConnections / maxConnectionsPerCaller {
				for range maxConnectionsPerCaller {
					if err := hold(connect(t, fmt.Sprintf("127.0.0.%d", 2+pod), address)); err != nil {
						t.Fatal(err)
					}
				}
			}
			var held []net.Conn
			for range 8 {
				conn := over(connect(t, "127.0.0.1", address))
				if code, err := ask(conn); code != http.StatusOK {
					t.Fatalf("the API server is answered %d, %v", code, err)
				}
				held = append(held, conn)
			}
			for _, conn := range held {
				if code, err := ask(conn); code != http.StatusOK {
					t.Errorf("the API server is answered %d, %v, over a connection that it has", code, err)
				}
			}
		})
	}
}

// TestProbersMakeRoom shows that seventeen Pods that hold as many connections as they may do not keep the kubelet from its answer.
func TestProbersMakeRoom(t *testing.T) {
	p, address := serveProbes(t)
	if err := p.AddHealthzCheck("ping", healthz.Ping); err != nil {
		t.Fatal(err)
	}
	for pod := range 17 {
		for range maxProbeConnectionsPerCaller {
			_, _ = io.WriteString(connect(t, fmt.Sprintf("127.0.0.%d", 2+pod), address), "GET /healthz HTTP/1.1\r\n") // it may be cut off
		}
	}
	if code, text := probe(t, "127.0.0.1", "http://"+address+"/healthz"); code != http.StatusOK {
		t.Errorf("the kubelet has %d %s", code, text)
	}
}

// TestAVerifiedClientKeepsItsConnections shows that a caller with a client certificate is cut off for nobody, though it holds most.
func TestAVerifiedClientKeepsItsConnections(t *testing.T) {
	const verified, pods, each = 64, 16, 60 // all connections
	ca, path := newAuthority(t, 1), filepath.Join(t.TempDir(), "ca.crt")
	ca.write(t, path)
	pair := ca.client(t, "kube-apiserver", x509.ExtKeyUsageClientAuth)
	address := serve(t, Options{ClientCA: path}, echo())
	var held []net.Conn
	for range verified {
		conn := over(connect(t, "127.0.0.1", address), pair)
		if code, err := ask(conn); code != http.StatusOK {
			t.Fatalf("answered %d, %v", code, err)
		}
		held = append(held, conn)
	}
	for i := range pods * each {
		connect(t, fmt.Sprintf("127.0.0.%d", 2+i/each), address)
	}
	for range verified {
		connect(t, "127.0.0.100", address)
	}
	last := connect(t, "127.0.0.101", address)
	if _, err := io.WriteString(last, strings.Repeat("x", 8)); err != nil { // no handshake: it is answered once it was let in
		t.Fatal(err)
	}
	_ = last.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = last.Read(make([]byte, 1))
	for i, conn := range held {
		if code, err := ask(conn); code != http.StatusOK {
			t.Fatalf("connection %d: answered %d, %v", i, code, err)
		}
	}
}
