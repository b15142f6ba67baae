// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority signs the certificates of one cluster: those of its servers, which clients verify, and those of clients,
// which say who they are. It lives in memory; only its certificate is written down.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	crt, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "cleaner-test-ca"}, key)
	if err != nil {
		return nil, fmt.Errorf("cannot make the certificate authority: %w", err)
	}
	pem, err := cert.EncodeCertificates(crt)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the certificate authority: %w", err)
	}
	return &authority{cert: crt, key: key, pem: pem}, nil
}

// server returns a certificate and key, as PEM, for a server on loopback and under the API server's own names.
func (a *authority) server(serviceIP net.IP) (crt, key []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), serviceIP},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// client returns a certificate and key, as PEM, that make their bearer this user in these groups.
func (a *authority) client(user string, groups []string) (crt, key []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (crtPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make a serial number: %w", err)
	}
	template.NotBefore = a.cert.NotBefore
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot sign the certificate of %q: %w", template.Subject.CommonName, err)
	}
	crt, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot parse the certificate of %q: %w", template.Subject.CommonName, err)
	}
	if crtPEM, err = cert.EncodeCertificates(crt); err != nil {
		return nil, nil, fmt.Errorf("cannot encode the certificate of %q: %w", template.Subject.CommonName, err)
	}
	if keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key); err != nil {
		return nil, nil, fmt.Errorf("cannot encode the key of %q: %w", template.Subject.CommonName, err)
	}
	return crtPEM, keyPEM, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return key, nil
}
