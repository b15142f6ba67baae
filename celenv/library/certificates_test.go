// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/go-cmp/cmp"
)

// expired is a certificate that signs itself, and a key that nobody uses.
const expired = `-----BEGIN CERTIFICATE-----
MIIBAzCBtqADAgECAgEBMAUGAytlcDAbMRkwFwYDVQQDExBzaG9wLmV4YW1wbGUu
Y29tMB4XDTI0MDYwMTAwMDAwMFoXDTI1MDYwMTAwMDAwMFowGzEZMBcGA1UEAxMQ
c2hvcC5leGFtcGxlLmNvbTAqMAUGAytlcAMhADtqJ7zOtqQtYqOo0CpvDXNlMhV3
HeJDpjrASKGLWdopox8wHTAbBgNVHREEFDASghBzaG9wLmV4YW1wbGUuY29tMAUG
AytlcANBABoAFYp0FBLR2bKXPMGY1FNrZ+4hSa2t41Z65g5L8/LrcJ4Upe+vO9xz
rdMSa9L4Y49M/ihaUOEjWQyGvvgy5gI=
-----END CERTIFICATE-----
-----BEGIN EC PARAMETERS-----
BggqhkjOPQMBBw==
-----END EC PARAMETERS-----
`

// certificateOf is a certificate, signed by nobody else, with so many attributes in its name, one of them so long.
func certificateOf(t *testing.T, attributes, length int) string {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	name := pkix.Name{CommonName: strings.Repeat("a", length)}
	for range attributes - 1 {
		name.ExtraNames = append(name.ExtraNames, pkix.AttributeTypeAndValue{Type: []int{2, 5, 4, 11}, Value: "a"})
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: name}
	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// A certificate is refused before anything takes time in the square of its size.
func TestCertificatesAreBounded(t *testing.T) {
	for name, tc := range map[string]struct{ text, err string }{
		"UsualName":      {certificateOf(t, maxAttributes, 1), ""},
		"ManyAttributes": {certificateOf(t, maxAttributes+1, 1), "certificates: a name of block 1 has 65 attributes, and it can have 64"},
		"Large":          {expired + certificateOf(t, 1, maxCertificate), "certificates: block 3 has "},
	} {
		t.Run(name, func(t *testing.T) {
			err, failed := parseCertificates([]byte(tc.text)).(*types.Err)
			if failed != (tc.err != "") || failed && !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	one := map[string]any{
		"dnsNames": []any{"shop.example.com"}, "issuer": "CN=shop.example.com", "subject": "CN=shop.example.com",
		"notAfter": "2025-06-01T00:00:00Z", "notBefore": "2024-06-01T00:00:00Z",
	}
	broken := strings.Replace(expired, "MIIBAzCB", "MIIBAzCC", 1)
	cases := map[string]struct {
		reason, text string
		want         []any
		err          string
	}{
		"One":       {"What else is in the text is passed over.", "of the shop\n" + expired, []any{one}, ""},
		"Chain":     {"The order stays.", expired + expired, []any{one, one}, ""},
		"Empty":     {"As it is before one is issued.", "", []any{}, ""},
		"Key":       {"A key is no certificate.", expired[strings.Index(expired, "-----BEGIN EC"):], []any{}, ""},
		"Other":     {"A mistake must not look like no certificate.", "not PEM", nil, "certificates: the text is not in PEM form"},
		"Truncated": {"Nor half of one.", expired[:100], nil, "certificates: the text is not in PEM form"},
		"Broken":    {"Nor one that cannot be read.", broken, nil, "certificates: block 1 is no certificate: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := parseCertificates([]byte(tc.text))
			if err, failed := got.(*types.Err); failed {
				if tc.err == "" || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			text, err := EncodeJSON(got)
			if err != nil {
				t.Fatal(err)
			}
			want, err := EncodeJSON(types.DefaultTypeAdapter.NativeToValue(tc.want))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, text); diff != "" || tc.err != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
