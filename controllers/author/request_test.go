// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package author

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// A request counts for the object, the spec and the value that it was signed for, and for no other.
func TestReadRequest(t *testing.T) {
	key, other := signing.NewKey(now.Add(-time.Hour)), signing.NewKey(now.Add(-time.Minute))
	for name, tc := range map[string]struct {
		change func(c *v1alpha1.Cleaner)
		ring   signing.Ring
		valid  bool
	}{
		"As it was signed":  {func(*v1alpha1.Cleaner) {}, ringOf(t, key), true},
		"Suspended":         {func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, ringOf(t, key), true},
		"Labelled":          {func(c *v1alpha1.Cleaner) { c.Labels = map[string]string{"a": "b"} }, ringOf(t, key), true},
		"Another spec":      {func(c *v1alpha1.Cleaner) { c.Spec.TTL = "2d" }, ringOf(t, key), false},
		"A schedule":        {func(c *v1alpha1.Cleaner) { c.Spec.Schedule = "@daily" }, ringOf(t, key), false},
		"Another value":     {func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequestedAt] = "2" }, ringOf(t, key), false},
		"Another object":    {func(c *v1alpha1.Cleaner) { c.Name = "d" }, ringOf(t, key), false},
		"Another namespace": {func(c *v1alpha1.Cleaner) { c.Namespace = "other" }, ringOf(t, key), false},
		"Made anew":         {func(c *v1alpha1.Cleaner) { c.UID = "2" }, ringOf(t, key), false},
		"Another key":       {func(*v1alpha1.Cleaner) {}, ringOf(t, other), false},
		"An author's": {func(c *v1alpha1.Cleaner) {
			c.Annotations[v1alpha1.AnnotationRequest] = c.Annotations[v1alpha1.AnnotationAuthor]
		}, ringOf(t, key), false},
		"Nothing is signed":    {func(c *v1alpha1.Cleaner) { delete(c.Annotations, v1alpha1.AnnotationRequest) }, ringOf(t, key), false},
		"It is no signature":   {func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequest] = "{}" }, ringOf(t, key), false},
		"It is no JSON":        {func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequest] = "yes" }, ringOf(t, key), false},
		"Nothing is asked":     {func(c *v1alpha1.Cleaner) { delete(c.Annotations, v1alpha1.AnnotationRequestedAt) }, ringOf(t, key), false},
		"At another time":      {changeTime, ringOf(t, key), false},
		"For another template": {replaceRequest(`"uid/3"`, `"uid/4"`), ringOf(t, key), false},
		"Of another user":      {replaceRequest(`"alice"`, `"mallory"`), ringOf(t, key), false},
		"Of another group":     {replaceRequest(`"team"`, `"system:masters"`), ringOf(t, key), false},
		"Of two users":         {replaceRequest(`{"author":`, `{"author":{"username":"mallory"},"author":`), ringOf(t, key), false},
		"Behind a space":       {replaceRequest(`{"author":`, ` {"author":`), ringOf(t, key), false},
		"Of nobody":            {replaceRequest(`"author":{"username":"alice","groups":["team","system:authenticated"]},`, ``), ringOf(t, key), false},
		"In groups too large":  {func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequest] += strings.Repeat(" ", maxBytes) }, ringOf(t, key), false},
		"For no template":      {replaceRequest(`"template":"uid/3",`, ""), ringOf(t, key), false},
	} {
		t.Run(name, func(t *testing.T) {
			c := cleaner()
			sign(t, ringOf(t, key), c, false)
			c.Annotations[v1alpha1.AnnotationRequestedAt] = "1"
			value, err := SignRequest(ringOf(t, key), c, alice, "uid/3", now.Add(time.Minute+time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			c.Annotations[v1alpha1.AnnotationRequest] = value
			tc.change(c)
			got, err := ReadRequest(tc.ring, c)
			if (err == nil) != tc.valid || !tc.valid && (!errors.Is(err, ErrNoRequest) || !cmp.Equal(got, Request{})) || tc.valid && (!got.Time.Equal(now.Add(time.Minute)) || got.Template != "uid/3" || !cmp.Equal(got.Author, alice)) {
				t.Errorf("got %+v, %v, want valid: %t", got, err, tc.valid)
			}
		})
	}
}

// changeTime writes a later time beside the signature.
func changeTime(c *v1alpha1.Cleaner) {
	replaceRequest(`"time":"2026-01-02T15:05:05Z"`, `"time":"2026-01-03T15:05:05Z"`)(c)
}

// replaceRequest writes another text beside the signature.
func replaceRequest(from, to string) func(c *v1alpha1.Cleaner) {
	return func(c *v1alpha1.Cleaner) {
		before := c.Annotations[v1alpha1.AnnotationRequest]
		if c.Annotations[v1alpha1.AnnotationRequest] = strings.Replace(before, from, to, 1); c.Annotations[v1alpha1.AnnotationRequest] == before {
			panic("there is no " + from + " in " + before)
		}
	}
}

// A spec that is no JSON has no request: neither is one signed for it, nor does any text that is signed count as one.
func TestASpecThatIsNoJSONHasNoRequest(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	c := cleaner()
	c.Spec.Parameters.Raw = []byte(`{`)
	if value, err := SignRequest(ring, c, alice, "", now); value != "" || err == nil || !strings.Contains(err.Error(), "cannot write the spec") {
		t.Errorf("signed is %q, %v", value, err)
	}
	r := request{Author: alice, Time: metav1.NewTime(now)}
	for _, text := range []string{"", "null"} {
		var err error
		if r.Signature, err = ring.Sign(signing.Request, []byte(text)); err != nil {
			t.Fatal(err)
		}
		c.Annotations = map[string]string{v1alpha1.AnnotationRequest: encodeText(&r)}
		if got, err := ReadRequest(ring, c); !errors.Is(err, ErrNoRequest) || !cmp.Equal(got, Request{}) {
			t.Errorf("where %q is signed it reads %+v, %v", text, got, err)
		}
	}
}

// What is signed stays as it is, so that what an earlier version has signed can be read.
func TestTheTextOfARequest(t *testing.T) {
	namespaced := cleaner()
	namespaced.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"}
	spec, err := FingerprintSpec(namespaced)
	if err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "2"}}
	empty, err := FingerprintSpec(cluster)
	if err != nil {
		t.Fatal(err)
	}
	r := &request{Author: alice, Time: metav1.NewTime(now.In(time.FixedZone("", 3600))), Template: "uid/3", Signature: "s"}
	const rest = `"author":{"username":"alice","groups":["team","system:authenticated"]},"template":"uid/3","time":"2026-01-02T15:04:05Z"}`
	for want, c := range map[string]v1alpha1.Owner{
		`{"version":1,"kind":"Cleaner","namespace":"shop","name":"c","uid":"1","spec":"` + spec + `","requestedAt":"1",` + rest:    namespaced,
		`{"version":1,"kind":"ClusterCleaner","namespace":"","name":"c","uid":"2","spec":"` + empty + `","requestedAt":"",` + rest: cluster,
	} {
		if text, err := marshalRequest(c, r); err != nil || string(text) != want {
			t.Errorf("got %s, %v, want %s", text, err, want)
		}
	}
}

// A template is another one when it is made anew, and when its spec changes.
func TestFingerprintOfATemplate(t *testing.T) {
	for want, template := range map[string]*v1alpha1.CleanerTemplate{
		"":      nil,
		"uid/3": {ObjectMeta: metav1.ObjectMeta{UID: "uid", Generation: 3}},
		"uid/4": {ObjectMeta: metav1.ObjectMeta{UID: "uid", Generation: 4}},
		"new/3": {ObjectMeta: metav1.ObjectMeta{UID: "new", Generation: 3}},
	} {
		if got := FingerprintTemplate(template); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A request is read up to the size that one may have, and no larger one, whoever has signed it.
func TestARequestHasASize(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	sized := func(bytes int) *v1alpha1.Cleaner {
		c := cleaner()
		r := request{Author: Author{Username: "alice", Groups: []string{""}}, Time: metav1.NewTime(now)}
		signed := func() string {
			text, err := marshalRequest(c, &r)
			if err != nil {
				t.Fatal(err)
			}
			if r.Signature, err = ring.Sign(signing.Request, text); err != nil {
				t.Fatal(err)
			}
			return encodeText(&r)
		}
		r.Author.Groups[0] = strings.Repeat("g", bytes-len(signed())) // a signature takes as many bytes, whatever it is of
		c.Annotations = map[string]string{v1alpha1.AnnotationRequest: signed()}
		return c
	}
	for bytes, valid := range map[int]bool{maxBytes: true, maxBytes + 1: false} {
		c := sized(bytes)
		if n := len(c.Annotations[v1alpha1.AnnotationRequest]); n != bytes {
			t.Fatalf("it has %d bytes, want %d", n, bytes)
		}
		if _, err := ReadRequest(ring, c); (err == nil) != valid {
			t.Errorf("of %d bytes: %v, want valid: %t", bytes, err, valid)
		}
	}
}

// Without a key nothing is signed.
func TestNoRequestIsSignedWithoutAKey(t *testing.T) {
	if value, err := SignRequest(signing.Ring{}, cleaner(), alice, "", now); value != "" || err == nil || !strings.Contains(err.Error(), "cannot sign the request") {
		t.Errorf("signed is %q, %v", value, err)
	}
}

// Whoever has no place in the annotation asks for nothing.
func TestWhoCannotAsk(t *testing.T) {
	c := cleaner()
	c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"}
	for want, who := range map[string]Author{
		"has a control character": {Username: "a\tb"},
		"is in 1 groups":          {Username: "a", Groups: []string{strings.Repeat("g", maxBytes)}},
	} {
		if _, err := SignRequest(ringOf(t, signing.NewKey(now)), c, who, "", now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
