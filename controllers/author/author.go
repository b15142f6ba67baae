// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package author says who wrote the spec of a Cleaner, so that the operator does for a Cleaner only what its author may.
//
// The webhook writes the author into an annotation, from the request's own user, and signs it. The operator believes
// nothing else: an annotation that is not signed for exactly this object and this spec counts as absent.
//
// It makes no request, and it does not say what an author may do: package rights and the reviewers do.
package author

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

const (
	// maxBytes bounds the annotation: a user may be in thousands of groups.
	maxBytes = 64 << 10
	// maxCreationSkew is how long after its creation a Cleaner may still be the one that a statement without a UID is about.
	maxCreationSkew = 5 * time.Minute
	// version is the version of the signed text.
	version = 1
)

var (
	// ErrAbsent says that no author is stored.
	ErrAbsent = errors.New("no author is stored")
	// ErrForeign says that the annotation was not signed by this operator for this object and this spec.
	ErrForeign = errors.New("the stored author is not signed by this operator for this object and its spec")
	// ErrKeyLost says that the key is lost with which the annotation was signed, so that it cannot be verified.
	ErrKeyLost = errors.New("the stored author was signed with a key that is lost")
)

// Author is the user who wrote a spec, as the API server named it.
type Author struct {
	// Username is the name of the user.
	Username string `json:"username"`
	// UID is the UID of a ServiceAccount. It is empty for other users.
	UID string `json:"uid,omitempty"`
	// Groups are those that the user was in when the spec was written. They are empty for a ServiceAccount, whose groups
	// follow from its name.
	Groups []string `json:"groups,omitempty"`
	// Extra are further attributes, by those keys that the administrator has allowed.
	Extra map[string][]string `json:"extra,omitempty"`
}

// FromUser returns the author that a request's user is. Of the user's extra attributes it keeps the keys that are allowed.
func FromUser(user authenticationv1.UserInfo, extraKeys []string) Author {
	a := Author{Username: user.Username}
	if _, _, ok := a.ServiceAccount(); ok {
		a.UID = user.UID
		return a
	}
	a.Groups = slices.Clone(user.Groups)
	for _, key := range extraKeys {
		if values, ok := user.Extra[key]; ok {
			if a.Extra == nil {
				a.Extra = map[string][]string{}
			}
			a.Extra[key] = slices.Clone(values)
		}
	}
	return a
}

// serviceAccountPrefix begins the username of each ServiceAccount, as Kubernetes documents it.
const serviceAccountPrefix = "system:serviceaccount:"

// ServiceAccount is the ServiceAccount that the author is; ok is false for other users.
func (a Author) ServiceAccount() (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(a.Username, serviceAccountPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != ""
}

// String is how messages name the author.
func (a Author) String() string { return fmt.Sprintf("user %q", a.Username) }

// checkWritable says which name cannot be written as the policy in config/policy/author.yaml compares it: one that JSON has to
// escape by more than a backslash.
func (a Author) checkWritable() error {
	escaped := func(r rune) bool { return r < ' ' || r == '\u2028' || r == '\u2029' }
	for _, name := range append([]string{a.Username, a.UID}, a.Groups...) {
		if strings.ContainsFunc(name, escaped) {
			return fmt.Errorf("%s cannot write it: the name %q has a control character: let a user write it in whose name and groups there is none", a, name)
		}
	}
	for _, text := range a.listTexts() {
		if !utf8.ValidString(text) { // JSON would name another user
			return fmt.Errorf("%s cannot write it: %q is not valid UTF-8: let a user write it whose name, groups and attributes are", a, text)
		}
	}
	return nil
}

// listTexts are all texts that name an author.
func (a Author) listTexts() []string {
	all := append([]string{a.Username, a.UID}, a.Groups...)
	for key, values := range a.Extra {
		all = append(append(all, key), values...)
	}
	return all
}

// Stored is an author as it was read back.
type Stored struct {
	Author
	// WrittenAt is when the spec was written.
	WrittenAt time.Time
	// NeedsRenewal says that the annotation should be written again: it does not name the UID yet, or an older key signed it.
	NeedsRenewal bool
}

// annotation is the value of v1alpha1.AnnotationAuthor.
type annotation struct {
	Author Author      `json:"author"`
	Time   metav1.Time `json:"time"`
	// About says how the signed text names the object.
	About     form   `json:"about"`
	Signature string `json:"signature"`
}

// encodeText writes an annotation in its one form. It begins with the author, in JSON that escapes quotes and backslashes
// alone: the policy in config/policy/author.yaml compares that beginning with the user of the request. It is made of text and times,
// which always have JSON; without it the text would be empty, as where nothing is signed.
func encodeText(annotation any) string {
	out := &strings.Builder{}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(annotation)
	return strings.TrimSuffix(out.String(), "\n")
}

// parseText reads an annotation that encodeText has written. No other text passes, even if it means the same: one that names two
// authors would show one to the policy and the other one here.
func parseText(raw string, annotation any) bool {
	return len(raw) <= maxBytes && json.Unmarshal([]byte(raw), annotation) == nil && encodeText(annotation) == raw
}

// checkSize says that an annotation that names a user has no room for their groups.
func checkSize(who Author, text string) error {
	if len(text) > maxBytes {
		return fmt.Errorf("%s is in %d groups, and they take %d bytes of the %d that an author may have: let a user or a ServiceAccount in fewer groups write it",
			who, len(who.Groups), len(text), maxBytes)
	}
	return nil
}

// form is how a statement names its object: what the API server knew of it when it was signed.
type form string

const (
	byUID          form = "uid"
	byName         form = "name"
	byGenerateName form = "generateName"
)

// statement is what is signed.
type statement struct {
	Version      int         `json:"version"`
	Kind         string      `json:"kind"`
	Namespace    string      `json:"namespace"`
	Name         string      `json:"name"`
	GenerateName string      `json:"generateName"`
	UID          types.UID   `json:"uid"`
	Spec         string      `json:"spec"`
	Author       Author      `json:"author"`
	Time         metav1.Time `json:"time"`
}

// marshalStatement returns the text that is signed about an object.
func marshalStatement(c v1alpha1.Owner, a *annotation) ([]byte, error) {
	spec, err := FingerprintSpec(c)
	if err != nil {
		return nil, err
	}
	s := statement{
		Version: version, Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(),
		Spec: spec, Author: a.Author, Time: metav1.Time{Time: a.Time.UTC()},
	}
	switch a.About {
	case byUID:
		s.UID, s.Name = c.GetUID(), c.GetName()
	case byName:
		s.Name = c.GetName()
	case byGenerateName:
		s.GenerateName = c.GetGenerateName()
	default:
		return nil, ErrForeign
	}
	return json.Marshal(s)
}

// Sign gives the annotation that says that an author wrote the spec of an object at a moment.
func Sign(ring signing.Ring, c v1alpha1.Owner, who Author, now time.Time) (string, error) {
	if err := who.checkWritable(); err != nil {
		return "", err
	}
	a := &annotation{Author: who, Time: metav1.NewTime(now.UTC().Truncate(time.Second)), About: byUID}
	switch {
	case c.GetUID() != "":
	case c.GetName() != "":
		a.About = byName
	default:
		a.About = byGenerateName
	}
	text, err := marshalStatement(c, a)
	if err != nil {
		return "", err
	}
	if a.Signature, err = ring.Sign(signing.Author, text); err != nil {
		return "", fmt.Errorf("cannot sign the author: %w", err)
	}
	out := encodeText(a)
	return out, checkSize(who, out)
}

// Read returns the author of an object's spec. The error is ErrAbsent, ErrForeign or ErrKeyLost. With ErrKeyLost, the author is the one
// that the annotation names, unverified. An object that is newer than all accepted keys cannot be signed with a lost one.
func Read(ring signing.Ring, c v1alpha1.Owner) (Stored, error) {
	raw, ok := c.GetAnnotations()[v1alpha1.AnnotationAuthor]
	if !ok || raw == "" {
		return Stored{}, ErrAbsent
	}
	a := &annotation{}
	if !parseText(raw, a) {
		return Stored{}, ErrForeign
	}
	text, err := marshalStatement(c, a)
	if err != nil {
		return Stored{}, ErrForeign
	}
	current, err := ring.Verify(signing.Author, text, a.Signature)
	if errors.Is(err, signing.ErrKeyLost) && c.GetCreationTimestamp().Time.Before(ring.OldestKeyTime()) {
		a.Author.Extra = nil // the policy does not vouch for them
		return Stored{Author: a.Author, WrittenAt: a.Time.Time}, ErrKeyLost
	}
	if err != nil || a.About != byUID && !isNearCreation(c, a.Time.Time) {
		return Stored{}, ErrForeign
	}
	return Stored{Author: a.Author, WrittenAt: a.Time.Time, NeedsRenewal: !current || a.About != byUID}, nil
}

// isNearCreation says that a statement which names no UID was made when the object was created. The API server sets the time
// of creation, so that a copy on a later object of the same name does not pass.
func isNearCreation(c v1alpha1.Owner, at time.Time) bool {
	age := c.GetCreationTimestamp().Sub(at)
	return age.Abs() <= maxCreationSkew
}

// Renew is the annotation for an author that was read: it names the UID, and the key that signs now has signed it.
func Renew(ring signing.Ring, c v1alpha1.Owner, s Stored) (string, error) {
	return Sign(ring, c, s.Author, s.WrittenAt)
}

// FingerprintSpec returns what distinguishes one spec from another. It is the same whether empty fields and defaults are written out or
// left out, and in any order. It ignores suspend: to suspend or resume a Cleaner says nothing about what it does.
func FingerprintSpec(c v1alpha1.Owner) (string, error) {
	var spec any
	switch c := c.(type) {
	case *v1alpha1.Cleaner:
		s := c.Spec
		s.Suspend, spec = false, &s
	case *v1alpha1.ClusterCleaner:
		s := c.Spec
		s.Suspend, spec = false, &s
	}
	text, err := v1alpha1.EncodeExplicit(spec)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
