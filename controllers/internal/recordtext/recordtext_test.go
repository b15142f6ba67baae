// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package recordtext

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// pack packs a text as Helm does.
func pack(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestUnpack unpacks what Helm packs, and says what is wrong with anything else.
func TestUnpack(t *testing.T) {
	plain := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	whole := pack(t, `{"name":"web"}`)
	for name, tc := range map[string]struct{ data, want, says string }{
		"Zipped":       {data: whole, want: `{"name":"web"}`},
		"NotZipped":    {data: plain(`{"name":"web"}`), want: `{"name":"web"}`},
		"Short":        {data: plain("{}"), want: "{}"},
		"Empty":        {},
		"NotBase64":    {data: "{}{}", says: "it is not base64: illegal base64 data at input byte 0"},
		"NotToItsEnd":  {data: plain(strings.Repeat("a", 3000)) + "!!!!", want: strings.Repeat("a", 3000), says: "it is not base64: illegal base64 data at input byte "},
		"CutInBase64":  {data: plain("abcdef")[:7], says: "it is not base64: unexpected EOF"},
		"CutInGzip":    {data: whole[:len(whole)/2/4*4], says: "unexpected EOF"},
		"CutInHeading": {data: plain("\x1f\x8b\x08")[:4], says: "it does not unzip: unexpected EOF"},
		"NotGzip":      {data: plain("\x1f\x8b\x08\xff..........zipped"), says: "it does not unzip: "},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pieces := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
				got, err := "", error(nil)
				text, err := Unpack(pieces(strings.NewReader(tc.data)))
				if err == nil {
					var all []byte
					all, err = io.ReadAll(text)
					got = string(all)
				}
				switch {
				case tc.says == "" && err != nil, tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
					t.Errorf("the error is %v, want %q", err, tc.says)
				case tc.want != "" && !strings.HasPrefix(tc.want, got) || tc.says == "" && got != tc.want:
					t.Errorf("got %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// TestUnpackReadsNoMoreThanIsAsked has a megabyte of zeros, of which a caller reads the beginning.
func TestUnpackReadsNoMoreThanIsAsked(t *testing.T) {
	data := strings.NewReader(pack(t, strings.Repeat("\x00", 64<<20)))
	size := data.Len()
	text, err := Unpack(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(text, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if read := size - data.Len(); read > size/4 {
		t.Errorf("%d of %d bytes are read", read, size)
	}
}
