// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package signing signs what the operator stores where others can write, so that it can tell its own words when it reads
// them back: the author of a Cleaner, the record of its runs, and which uninstalls of Helm releases are its own.
//
// A signature is an HMAC over a purpose and a text. The text says what the signature is about (kind, namespace, name,
// UID), so that a signature copied to another object is worthless.
//
// It holds no key of its own and reads none: package keyring does. It never logs a key.
package signing

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// keyBytes is the size of a key: the size of the hash.
	keyBytes = sha256.Size
	// keyIDLayout is how the ID of a key gives the time at which it was made, in UTC.
	keyIDLayout = "20060102T150405Z"
	// maxKeys bounds what a Secret may hold.
	maxKeys = 16
)

// Purpose keeps signatures for one use from being taken for another.
type Purpose string

const (
	// Author is for the statement of who wrote the spec of a Cleaner.
	Author Purpose = "author"
	// Record is for what the status of a Cleaner says about its runs.
	Record Purpose = "record"
	// Request is for a request for an evaluation.
	Request Purpose = "request"
	// Uninstall is for the mark on the record of a Helm release whose uninstall the operator has begun.
	Uninstall Purpose = "uninstall"
	// RuleUninstall is for the same mark, of an uninstall that a rule has begun.
	RuleUninstall Purpose = "ruleUninstall"
)

// Keys gives the keys with which the operator signs what it reads back from where others can write.
type Keys interface {
	// CurrentRing is the ring of the keys that count now. It fails while there is none.
	CurrentRing() (Ring, error)
}

// ErrUnsigned says that a text is not signed by a key of the ring.
var ErrUnsigned = errors.New("it is not signed by this operator")

// ErrKeyLost says that a text names a key that is not in the ring. It is an ErrUnsigned.
var ErrKeyLost = fmt.Errorf("%w: its key no longer exists", ErrUnsigned)

// Key is one key.
type Key struct {
	// ID is when the key was made, as 20260102T150405Z.
	ID    string
	bytes []byte
}

// NewKey makes a key at a moment.
func NewKey(now time.Time) Key {
	k := Key{ID: now.UTC().Format(keyIDLayout), bytes: make([]byte, keyBytes)}
	_, _ = rand.Read(k.bytes) // never fails, and never returns less
	return k
}

// ParseKey reads a key from its ID and its bytes.
func ParseKey(id string, bytes []byte) (Key, error) {
	if _, err := time.Parse(keyIDLayout, id); err != nil {
		return Key{}, fmt.Errorf("key %q: a key is named by the time at which it was made, such as 20260102T150405Z", id)
	}
	if len(bytes) != keyBytes {
		return Key{}, fmt.Errorf("key %q has %d bytes: a key has %d", id, len(bytes), keyBytes)
	}
	return Key{ID: id, bytes: slices.Clone(bytes)}, nil
}

// Bytes are the key itself, for the Secret that keeps it.
func (k Key) Bytes() []byte { return slices.Clone(k.bytes) }

// CreatedAt returns when the key was made.
func (k Key) CreatedAt() time.Time {
	at, _ := time.Parse(keyIDLayout, k.ID) // ParseKey and NewKey make no other ID
	return at
}

// String hides the key.
func (k Key) String() string { return "key " + k.ID }

func (k Key) computeMAC(purpose Purpose, text []byte) []byte {
	mac := hmac.New(sha256.New, k.bytes)
	_, _ = fmt.Fprintf(mac, "%d %s %d ", len(purpose), purpose, len(text)) // hash.Hash never fails
	_, _ = mac.Write(text)
	return mac.Sum(nil)
}

// Ring is the keys that are accepted, and the one that signs. The zero Ring accepts nothing and cannot sign.
type Ring struct {
	signer Key
	keys   []Key // newest first
}

// RotationPolicy says how keys follow each other.
type RotationPolicy struct {
	// Propagation is how long a new key is only accepted: until every replica knows it.
	Propagation time.Duration
	// Overlap is for how long a key is accepted after its successor has begun to sign.
	Overlap time.Duration
	// Rotation is how old the newest key may become; 0: a key is never replaced.
	Rotation time.Duration
}

// NewRing makes a ring of the keys that count at a moment. A key that is alone signs at once.
func NewRing(keys []Key, rules RotationPolicy, now time.Time) (Ring, error) {
	if len(keys) == 0 {
		return Ring{}, errors.New("there is no key")
	}
	if len(keys) > maxKeys {
		return Ring{}, fmt.Errorf("there are %d keys: at most %d are allowed", len(keys), maxKeys)
	}
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted, func(a, b Key) int { return strings.Compare(b.ID, a.ID) })
	r := Ring{signer: sorted[len(sorted)-1]}
	for i, k := range sorted {
		if i > 0 && !now.Before(sorted[i-1].CreatedAt().Add(rules.Propagation+rules.Overlap)) {
			break // its successor has signed for long enough
		}
		r.keys = append(r.keys, k)
	}
	for _, k := range r.keys {
		if !now.Before(k.CreatedAt().Add(rules.Propagation)) {
			r.signer = k
			break
		}
	}
	return r, nil
}

// SignerID returns the ID of the key that signs now.
func (r Ring) SignerID() string { return r.signer.ID }

// AcceptedKeys returns the keys that are accepted, newest first.
func (r Ring) AcceptedKeys() []Key { return slices.Clone(r.keys) }

// NeedsRotation says whether the newest key is so old that another one has to follow it.
func (r Ring) NeedsRotation(rules RotationPolicy, now time.Time) bool {
	return rules.Rotation > 0 && len(r.keys) > 0 && !now.Before(r.keys[0].CreatedAt().Add(rules.Rotation))
}

// OldestKeyTime returns when the oldest key that is accepted was made; the zero time if none is accepted.
func (r Ring) OldestKeyTime() time.Time {
	if len(r.keys) == 0 {
		return time.Time{}
	}
	return r.keys[len(r.keys)-1].CreatedAt()
}

// Sign signs a text for a purpose, as <key>.<signature>.
func (r Ring) Sign(purpose Purpose, text []byte) (string, error) {
	if r.signer.bytes == nil {
		return "", errors.New("there is no key to sign with")
	}
	return r.signer.ID + "." + base64.RawURLEncoding.EncodeToString(r.signer.computeMAC(purpose, text)), nil
}

// Verify checks a signature of a text for a purpose. current reports whether the key that signs now made it: replace a signature by an
// older key. The error is ErrUnsigned or ErrKeyLost.
func (r Ring) Verify(purpose Purpose, text []byte, signature string) (current bool, err error) {
	id, encoded, found := strings.Cut(signature, ".")
	sum, decodeErr := base64.RawURLEncoding.DecodeString(encoded)
	if !found || decodeErr != nil {
		return false, ErrUnsigned
	}
	known := false
	for _, k := range r.keys {
		if k.ID == id && hmac.Equal(sum, k.computeMAC(purpose, text)) {
			return id == r.signer.ID, nil
		}
		known = known || k.ID == id
	}
	if _, err := time.Parse(keyIDLayout, id); err == nil && !known {
		return false, ErrKeyLost
	}
	return false, ErrUnsigned
}
