// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func rules() RotationPolicy {
	return RotationPolicy{Propagation: 10 * time.Minute, Overlap: 30 * 24 * time.Hour, Rotation: 90 * 24 * time.Hour}
}

func ring(t *testing.T, now time.Time, keys ...Key) Ring {
	t.Helper()
	r, err := NewRing(keys, rules(), now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerifyTakesWhatWasSigned(t *testing.T) {
	r := ring(t, start, NewKey(start))
	signature, err := r.Sign(Author, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	if current, err := r.Verify(Author, []byte("text"), signature); err != nil || !current {
		t.Errorf("got %t, %v", current, err)
	}
}

func TestVerifyRefuses(t *testing.T) {
	key := NewKey(start)
	r := ring(t, start, key)
	signature, err := r.Sign(Author, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	other := NewKey(start)
	another, err := ring(t, start, other).Sign(Author, []byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	const lost = "20250102T150405Z"
	for name, tc := range map[string]struct {
		purpose         Purpose
		text, signature string
		want            error
	}{
		"another text":                {Author, "texT", signature, ErrUnsigned},
		"another purpose":             {Record, "text", signature, ErrUnsigned},
		"purpose moved into the text": {"auth", "ortext", signature, ErrUnsigned},
		"no signature":                {Author, "text", "", ErrUnsigned},
		"the key's name alone":        {Author, "text", key.ID, ErrUnsigned},
		"an empty sum":                {Author, "text", key.ID + ".", ErrUnsigned},
		"part of the sum":             {Author, "text", signature[:len(signature)-4], ErrUnsigned},
		"more than the sum":           {Author, "text", signature + "A", ErrUnsigned},
		"a sum that is no base64":     {Author, "text", key.ID + ".!", ErrUnsigned},
		"another key of the same ID":  {Author, "text", another, ErrUnsigned},
		"an unknown key":              {Author, "text", lost + strings.TrimPrefix(signature, key.ID), ErrKeyLost},
		"an unknown key's name alone": {Author, "text", lost, ErrUnsigned},
		"an unknown key, no base64":   {Author, "text", lost + ".!", ErrUnsigned},
		"no name of a key":            {Author, "text", "tls" + strings.TrimPrefix(signature, key.ID), ErrUnsigned},
	} {
		t.Run(name, func(t *testing.T) {
			// A key that is lost is a key that this operator had: what anybody may have written says nothing of that.
			current, err := r.Verify(tc.purpose, []byte(tc.text), tc.signature)
			if current || !errors.Is(err, ErrUnsigned) || errors.Is(err, ErrKeyLost) != errors.Is(tc.want, ErrKeyLost) {
				t.Errorf("got %t, %v; want %v", current, err, tc.want)
			}
		})
	}
}

func TestTheZeroRingTrustsNobody(t *testing.T) {
	var r Ring
	if _, err := r.Sign(Author, nil); err == nil {
		t.Error("it signs")
	}
	if r.NeedsRotation(rules(), start) {
		t.Error("it has a key to replace")
	}
	if at := r.OldestKeyTime(); !at.IsZero() {
		t.Errorf("its oldest key is of %s", at)
	}
	zero := Key{ID: "20260102T150405Z", bytes: make([]byte, keyBytes)}
	signature, err := ring(t, start, zero).Sign(Author, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Verify(Author, nil, signature); !errors.Is(err, ErrUnsigned) {
		t.Errorf("got %v", err)
	}
}

// A new key is accepted at once and signs once every replica knows it; the old one is accepted for the overlap.
func TestRotation(t *testing.T) {
	first := NewKey(start)
	made := start.Add(90 * 24 * time.Hour)
	second := NewKey(made)
	signs := made.Add(10 * time.Minute)
	for _, tc := range []struct {
		name            string
		now             time.Time
		signer          Key
		old, accepted   bool
		rotates         bool
		keys            []Key
		numberOfKeysNow int
	}{
		{"alone", start, first, true, false, false, []Key{first}, 1},
		{"old enough", made, first, true, false, true, []Key{first}, 1},
		{"made", made, first, true, true, false, []Key{first, second}, 2},
		{"known to all", signs, second, true, true, false, []Key{second, first}, 2},
		{"at the end of the overlap", signs.Add(30*24*time.Hour - time.Second), second, true, true, false, []Key{first, second}, 2},
		{"after the overlap", signs.Add(30 * 24 * time.Hour), second, false, true, false, []Key{first, second}, 1},
		{"the successor is alone, and young", made, second, false, true, false, []Key{second}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := ring(t, tc.now, tc.keys...)
			signature, err := r.Sign(Record, []byte("x"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(signature, tc.signer.ID+".") {
				t.Errorf("signed as %s, want %s", signature, tc.signer)
			}
			for key, want := range map[*Key]bool{&first: tc.old, &second: tc.accepted} {
				made, err := ring(t, tc.now, *key).Sign(Record, []byte("x"))
				if err != nil {
					t.Fatal(err)
				}
				current, err := r.Verify(Record, []byte("x"), made)
				if got := err == nil; got != want {
					t.Errorf("%s: accepted %t, want %t", key, got, want)
				}
				if current != (key.ID == tc.signer.ID) {
					t.Errorf("%s: current %t", key, current)
				}
			}
			if got := r.NeedsRotation(rules(), tc.now); got != tc.rotates {
				t.Errorf("rotates %t", got)
			}
			if r.NeedsRotation(RotationPolicy{}, tc.now) {
				t.Error("it rotates without a rule to do so")
			}
			if len(r.AcceptedKeys()) != tc.numberOfKeysNow {
				t.Errorf("%d keys", len(r.AcceptedKeys()))
			}
		})
	}
}

func TestParseKey(t *testing.T) {
	for name, tc := range map[string]struct {
		id    string
		bytes int
		fails bool
	}{
		"Good":  {"20260102T150405Z", 32, false},
		"Name":  {"tls.key", 32, true},
		"Short": {"20260102T150405Z", 31, true},
		"Empty": {"20260102T150405Z", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := ParseKey(tc.id, make([]byte, tc.bytes))
			if (err != nil) != tc.fails {
				t.Fatalf("got %v", err)
			}
			if err == nil && (!k.CreatedAt().Equal(start) || len(k.Bytes()) != tc.bytes) {
				t.Errorf("made at %s, of %d bytes", k.CreatedAt(), len(k.Bytes()))
			}
		})
	}
}

func TestRingIsBounded(t *testing.T) {
	keys := make([]Key, maxKeys+1)
	for i := range keys {
		keys[i] = NewKey(start.Add(time.Duration(i) * time.Second))
	}
	if _, err := NewRing(keys, rules(), start); err == nil {
		t.Error("no error")
	}
	if r := ring(t, start, keys[1:]...); len(r.AcceptedKeys()) != maxKeys || r.SignerID() != keys[1].ID {
		t.Errorf("of %d keys %d count, and %s signs", maxKeys, len(r.AcceptedKeys()), r.SignerID())
	}
	if _, err := NewRing(nil, rules(), start); err == nil {
		t.Error("no error without a key")
	}
}

func TestKeysAreNotShown(t *testing.T) {
	k := NewKey(start)
	if got := fmt.Sprintf("%v %s", k, k); got != "key 20260102T150405Z key 20260102T150405Z" {
		t.Errorf("got %s", got)
	}
}
