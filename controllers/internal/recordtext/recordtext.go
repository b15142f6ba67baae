// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package recordtext unpacks the JSON of the record of a Helm release, as a stream: any user may have written it, and a few kilobytes may
// unpack to gigabytes. It bounds nothing: its callers read as much as they want.
package recordtext

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
)

// gzipMagic is how gzip begins. Records of early versions of Helm are not zipped.
var gzipMagic = []byte{0x1f, 0x8b, 0x08} //nolint:gochecknoglobals // never changes

// Unpack undoes what Helm does to the JSON of a release: gzip and base64.
func Unpack(data io.Reader) (io.Reader, error) {
	packed := bufio.NewReader(base64Reader{base64.NewDecoder(base64.StdEncoding, data)})
	begin, err := packed.Peek(len(gzipMagic))
	if !bytes.Equal(begin, gzipMagic) {
		if err != nil && err != io.EOF { //nolint:errorlint // Peek wraps nothing
			return nil, err
		}
		return packed, nil
	}
	zipped, err := gzip.NewReader(packed)
	if err != nil {
		return nil, fmt.Errorf("it does not unzip: %w", err)
	}
	return zipped, nil
}

// base64Reader says of errors where they come from.
type base64Reader struct{ decoder io.Reader }

// Read reads what is decoded.
func (r base64Reader) Read(into []byte) (int, error) {
	n, err := r.decoder.Read(into)
	if err != nil && err != io.EOF { //nolint:errorlint // a Reader ends with io.EOF itself
		err = fmt.Errorf("it is not base64: %w", err)
	}
	return n, err
}
