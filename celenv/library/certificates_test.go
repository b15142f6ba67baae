// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
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
