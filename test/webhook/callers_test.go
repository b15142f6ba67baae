// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
)

// forged is what only the API server should ask: whether somebody in system:masters may write a Cleaner.
const forged = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":"default",
"kind":{"group":"cleaner.vtex.dev","version":"v1alpha1","kind":"Cleaner"},"userInfo":{"username":"jane","groups":["system:masters"]},
"object":{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"Cleaner","metadata":{"name":"a","namespace":"default"},
"spec":{"ttl":"1d","targets":[{"name":"pods","reference":{"version":"v1","kind":"Pod","name":"a"},"delete":true}]}}}}`

// whether is the path at which the API server asks whether a Cleaner may be written.
const whether = "validate-cleaner-vtex-dev-v1alpha1-cleaner"

// ask asks the webhook of a manager directly, as any Pod could.
func ask(t *testing.T, p *operator.Process, path, review string, certificates ...tls.Certificate) (string, error) {
	t.Helper()
	asks := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates},
	}}
	url := fmt.Sprintf("https://127.0.0.1:%d/%s", p.WebhookPort, path)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(review))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := asks.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// clientCertificate makes a certificate for the API server that is its own authority, as PEM.
func clientCertificate(t *testing.T, name string) (certificate, key []byte) {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, signer.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(signer)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
}

// admission is the configuration that gives the API server a client certificate for the webhook, as docs/security.md has it.
const admission = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: DIR/webhooks.kubeconfig
- name: MutatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    kubeConfigFile: DIR/webhooks.kubeconfig
`

const webhooksKubeconfig = `apiVersion: v1
kind: Config
users:
- name: cleaner-webhook.cleaner-system.svc
  user:
    client-certificate: DIR/client.crt
    client-key: DIR/client.key
`

// With --webhook-client-ca the webhook answers the API server, which has the certificate, and nobody else.
func TestOnlyTheAPIServerIsAnswered(t *testing.T) {
	dir := t.TempDir()
	crt, key := clientCertificate(t, "kube-apiserver")
	for name, content := range map[string]string{
		"client.crt": string(crt), "client.key": string(key), "admission.yaml": admission, "webhooks.kubeconfig": webhooksKubeconfig,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(content, "DIR", dir)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options()
	o.APIServerFlags = append(o.APIServerFlags, "--admission-control-config-file="+filepath.Join(dir, "admission.yaml"))
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	e, err := install(t.Context(), c, shared.binary)
	if err != nil {
		t.Fatal(err)
	}
	e.manager = e.replica(t, "-guarded", "--webhook-client-ca="+filepath.Join(dir, "client.crt"), "--webhook-client-names=kube-apiserver")
	e.asked(t, "default", "the API server is answered")

	if answer, err := ask(t, e.manager, whether, forged); err == nil {
		t.Errorf("a caller without a certificate was answered: %s", answer)
	}
	other, otherKey := clientCertificate(t, "kube-apiserver")
	pair, err := tls.X509KeyPair(other, otherKey)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := ask(t, e.manager, whether, forged, pair); err == nil {
		t.Errorf("a caller with a certificate of its own was answered: %s", answer)
	}
	log, err := os.ReadFile(e.manager.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(log, []byte("A connection failed")) {
		t.Error("the log does not say that a connection failed")
	}
}

// The servers of the real manager speak HTTP/1.1 alone, unless it is told otherwise.
func TestServersDoNotSpeakHTTP2(t *testing.T) {
	on := shared.replica(t, "-http2", "--enable-http2")
	for _, c := range []struct {
		manager *operator.Process
		want    string
	}{{shared.manager, "http/1.1"}, {on, "h2"}} {
		metrics := strings.TrimSuffix(strings.TrimPrefix(c.manager.Metrics, "https://"), "/metrics")
		for name, address := range map[string]string{"webhook": fmt.Sprintf("127.0.0.1:%d", c.manager.WebhookPort), "metrics": metrics} {
			dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}
			conn, err := dialer.DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := conn.(*tls.Conn).ConnectionState().NegotiatedProtocol; got != c.want {
				t.Errorf("%s: agreed on %q, want %q", name, got, c.want)
			}
			_ = conn.Close()
		}
	}
}
