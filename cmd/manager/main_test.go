// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/vtex/cleaner/cmd/internal/version"
)

// It needs no cluster and no namespace to say which version it is.
func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if err := runManager([]string{"--version"}, &out); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "cleaner "+version.Get().String()+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheLogHasEachOfManyLines(t *testing.T) {
	var out bytes.Buffer
	log := newLog(&out, 0)
	const n = 1000
	for range n {
		log.Info("Intent")
	}
	if got := bytes.Count(out.Bytes(), []byte("Intent")); got != n {
		t.Errorf("%d of %d lines are in the log", got, n)
	}
	out.Reset()
	log.V(1).Info("detail")
	newLog(&out, 1).V(1).Info("asked for")
	if text := out.String(); bytes.Count(out.Bytes(), []byte("\n")) != 1 || !bytes.Contains(out.Bytes(), []byte("asked for")) {
		t.Errorf("the log has %q", text)
	}
}
