// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"crypto/x509"
	"encoding/pem"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/compact"
)

// Certificates is what expressions ask about X.509 certificates.
//
//	certificates(<bytes or string>) -> <list>    // those of a text in PEM form, in its order
//
// Each is a map: dnsNames, issuer, notAfter, notBefore, subject; the names as RFC 2253 writes them, the times as timestamps. In a chain,
// the first one is the server's. Keys in the text are passed over; an empty text has none. What is no certificate is an error, and so is
// one of more than 64 KiB, or with more than 64 attributes in a name. Nothing is verified: everyone can make a certificate that says
// anything.
func Certificates() cel.EnvOption { return cel.Lib(certificatesLibrary{}) }

const (
	// maxCertificate is how many bytes a certificate can have. Those of authorities and servers have a few thousand.
	maxCertificate = 64 << 10
	// maxAttributes is how many attributes a name can have: to write it takes time in their square.
	maxAttributes = 64
)

type certificatesLibrary struct{}

func (certificatesLibrary) LibraryName() string { return "cleaner.certificates" }

func (certificatesLibrary) CompileOptions() []cel.EnvOption {
	list := cel.ListType(cel.MapType(cel.StringType, cel.DynType))
	return []cel.EnvOption{
		cel.Function("certificates",
			cel.Overload("certificates_bytes", []*cel.Type{cel.BytesType}, list, cel.UnaryBinding(func(v ref.Val) ref.Val { return parseCertificates([]byte(v.(types.Bytes))) })),
			cel.Overload("certificates_string", []*cel.Type{cel.StringType}, list, cel.UnaryBinding(func(v ref.Val) ref.Val { return parseCertificates([]byte(v.(types.String))) }))),
	}
}

func (certificatesLibrary) ProgramOptions() []cel.ProgramOption { return nil }

func parseCertificates(text []byte) ref.Val {
	all, blocks := []ref.Val{}, 0
	for rest := text; ; blocks++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if len(block.Bytes) > maxCertificate {
			return types.NewErr("certificates: block %d has %d bytes, and a certificate can have %d", blocks+1, len(block.Bytes), maxCertificate)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return types.NewErr("certificates: block %d is no certificate: %v", blocks+1, err)
		}
		if n := max(len(c.Issuer.Names), len(c.Subject.Names)); n > maxAttributes {
			return types.NewErr("certificates: a name of block %d has %d attributes, and it can have %d", blocks+1, n, maxAttributes)
		}
		all = append(all, convertCertificate(c))
	}
	if blocks == 0 && len(text) > 0 {
		return types.NewErr("certificates: the text is not in PEM form: it begins with -----BEGIN CERTIFICATE-----")
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// certificateKeys are what is known of a certificate.
var certificateKeys = []ref.Val{ //nolint:gochecknoglobals // they never change
	types.String("dnsNames"), types.String("issuer"), types.String("notAfter"), types.String("notBefore"), types.String("subject"),
}

func convertCertificate(c *x509.Certificate) ref.Val {
	return compact.NewRecord(certificateKeys, []ref.Val{
		types.NewStringList(types.DefaultTypeAdapter, c.DNSNames),
		types.String(c.Issuer.String()),
		types.Timestamp{Time: c.NotAfter},
		types.Timestamp{Time: c.NotBefore},
		types.String(c.Subject.String()),
	})
}
