// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package author

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			if (err == nil) != tc.valid || tc.valid && (!got.Time.Equal(now.Add(time.Minute)) || got.Template != "uid/3" || !cmp.Equal(got.Author, alice)) {
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
