// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/test/sink"
)

// certificate makes a certificate that signs itself, valid until a moment, for a name or for 127.0.0.1.
func certificate(t *testing.T, until time.Time, name string) tls.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-48 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if name != "" {
		template.IPAddresses, template.DNSNames = nil, []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}
}

func TestTLS(t *testing.T) {
	valid, past := time.Now().Add(24*time.Hour), time.Now().Add(-time.Hour)
	good := certificate(t, valid, "")
	cases := map[string]struct {
		reason string
		config *tls.Config
		trust  bool
		want   string // empty: delivered
	}{
		"Trusted":     {"https as it should be", &tls.Config{Certificates: []tls.Certificate{good}}, true, ""},
		"HTTP/2":      {"a sink that would rather speak it is spoken to as any other", &tls.Config{Certificates: []tls.Certificate{good}, NextProtos: []string{"h2", "http/1.1"}}, true, ""},
		"UnknownCA":   {"signed by nobody known", &tls.Config{Certificates: []tls.Certificate{good}}, false, CauseTLS},
		"Expired":     {"not valid any more", &tls.Config{Certificates: []tls.Certificate{certificate(t, past, "")}}, true, CauseTLS},
		"OtherName":   {"somebody else's", &tls.Config{Certificates: []tls.Certificate{certificate(t, valid, "other.example")}}, true, CauseTLS},
		"OldVersion":  {"not safe", &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, true, CauseTLS},
		"WantsOurs":   {"there is no certificate to show", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert}, true, CauseTLS},
		"WantsOurs12": {"the same, told earlier", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}, true, CauseTLS},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			receiver := sink.New()
			defer receiver.Close()
			protocols := make(chan string, 1)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				protocols <- r.Proto
				receiver.ServeHTTP(w, r)
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // a refused handshake is what is wanted
			server.EnableHTTP2 = len(tc.config.NextProtos) > 0
			server.TLS = tc.config
			server.StartTLS()
			defer server.Close()
			b := start(t, func(o *Options, _ *timeouts) {
				o.RootCAs = x509.NewCertPool()
				if tc.trust {
					o.RootCAs.AddCert(tc.config.Certificates[0].Leaf)
				}
			})
			b.send("c", server.URL, 1)
			b.attempted("c")
			if tc.want != "" {
				b.want("c", 1, Delivery{Known: true, Attempts: 1, Last: newNoAnswer(tc.want), Next: epoch.Add(time.Second)})
				b.arrived(receiver, 0)
				return
			}
			b.want("c", 1, Delivery{Known: true, Delivered: true, Attempts: 1})
			b.arrived(receiver, 1)
			if diff := cmp.Diff("HTTP/1.1", <-protocols); diff != "" {
				t.Errorf("the protocol (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTLSWithWhatDoesNotSpeakIt(t *testing.T) {
	plain := sink.Start(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts the connection, and nobody says a word
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	b := start(t, func(_ *Options, l *timeouts) { l.connect = time.Second })
	for url, want := range map[string]string{
		strings.Replace(plain.URL, "http", "https", 1): CauseTLS,
		"https://" + silent.Addr().String():            CauseTimeout,
	} {
		b.send(url, url, 1)
		b.attempted(url)
		b.want(url, 1, Delivery{Known: true, Attempts: 1, Last: newNoAnswer(want), Next: epoch.Add(time.Second)})
	}
	b.arrived(plain, 0)
}
