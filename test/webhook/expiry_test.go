// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/operator"
)

// block is the content of the first block of a PEM text.
func block(t *testing.T, text []byte) []byte {
	t.Helper()
	b, _ := pem.Decode(text)
	if b == nil {
		t.Fatal("this is no PEM text")
	}
	return b.Bytes
}

// expired is a certificate of an authority for the webhook that ended an hour ago.
func expired(t *testing.T, authority, key []byte) (certificate, certificateKey []byte) {
	t.Helper()
	parent, err := x509.ParseCertificate(block(t, authority))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := parseKey(block(t, key))
	if err != nil {
		t.Fatal(err)
	}
	name := "cleaner-webhook." + operator.Namespace + ".svc"
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, signer.Public(), signer) // the authority's own key does for it
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

func parseKey(der []byte) (crypto.Signer, error) {
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	return x509.ParseECPrivateKey(der)
}

// A certificate that has expired is replaced, and its authority stays, so that the API server goes on trusting it.
func TestAnExpiredCertificateIsReplaced(t *testing.T) {
	ns := shared.namespace(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operator.Namespace, Name: operator.WebhookSecret}}
	if err := shared.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	authority := bytes.Clone(secret.Data["ca.crt"])
	old, key := expired(t, authority, secret.Data["ca.key"])
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{"tls.crt": old, "tls.key": key}})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the certificate is replaced", func(ctx context.Context) string {
		if err := shared.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return err.Error()
		}
		now, err := x509.ParseCertificate(block(t, secret.Data["tls.crt"]))
		if err != nil {
			return err.Error()
		}
		if now.NotAfter.Before(time.Now()) {
			return "it is the expired one"
		}
		return ""
	})
	if !bytes.Equal(secret.Data["ca.crt"], authority) {
		t.Error("the authority was replaced with it")
	}
	shared.asked(t, ns, "it is served with")
}
