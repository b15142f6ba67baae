// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

// trim trims a review of a Cleaner.
func trim(text string) (*trimmed, error) {
	return trimReview(strings.NewReader(text), reflect.TypeFor[v1alpha1.CleanerSpec]())
}

// TestAReviewIsTrimmed shows what is left of a review: what the handlers look at, as it was written.
func TestAReviewIsTrimmed(t *testing.T) {
	const author, asked, signed = v1alpha1.AnnotationAuthor, v1alpha1.AnnotationRequestedAt, v1alpha1.AnnotationRequest
	for name, c := range map[string]struct{ object, want string }{
		"spec":         {`{"kind": "Cleaner", "spec": {"ttl": "1\"d\\", "suspend": true, "a": [1, -2.5e+3, null, {}, [], "}"]}}`, `{"kind":"Cleaner","spec":{"ttl":"1\"d\\","suspend":true,"a":[1,-2.5e+3,null,{},[],"}"]}}`},
		"status":       {`{"status": {"a": ["]", "\"", {"b": "\\"}]}, "spec": {}}`, `{"spec":{}}`},
		"metadata":     {`{"metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [{}], "uid": "1", "generateName": "g", "namespace": "n", "creationTimestamp": null}}`, `{"metadata":{"name":"a","uid":"1","generateName":"g","namespace":"n","creationTimestamp":null}}`},
		"annotations":  {`{"metadata": {"annotations": {"` + author + `": "me", "x": "y", "z": "z", "` + asked + `": "now", "` + signed + `": "s"}}}`, `{"metadata":{"annotations":{"` + author + `":"me","others":"","` + asked + `":"now","` + signed + `":"s"}}}`},
		"other only":   {`{"metadata": {"annotations": {"x": "y"}}}`, `{"metadata":{"annotations":{"others":""}}}`},
		"other names":  {`{"Spec": {}, "\u0073pec": {}, "` + strings.Repeat("s", 5000) + `": 1}`, `{}`},
		"null":         {`null`, `null`},
		"another type": {`[1, 2]`, `[1,2]`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := trim(reviewOf("Cleaner", c.object, c.object))
			if err != nil {
				t.Fatal(err)
			}
			var review struct {
				Request struct {
					UID, Operation    string
					Object, OldObject json.RawMessage
				}
			}
			if err := json.Unmarshal(got.text, &review); err != nil {
				t.Fatal(err)
			}
			if r := review.Request; r.UID != "1" || r.Operation != "UPDATE" || got.refused != nil {
				t.Errorf("got %s, refused %v", got.text, got.refused)
			}
			if diff := cmp.Diff([]string{c.want, c.want}, []string{string(review.Request.Object), string(review.Request.OldObject)}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestWhatIsNoReview shows that a text that is no review is not read further, however long or deep it is.
func TestWhatIsNoReview(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":     {"", "cannot read the review: it ends too early: EOF"},
		"cut":         {`{"request": {"object": {"spec": {"a`, "cannot read the review: it ends too early: EOF"},
		"binary":      {"\x1f\x8b\x00", errNoJSON.Error()},
		"two":         {"{}{}", errNoJSON.Error()},
		"no colon":    {`{"a" 1}`, errNoJSON.Error()},
		"blanks":      {strings.Repeat(" ", maxReview+1), errReviewTooLarge.Error()},
		"lists":       {`{"a":` + strings.Repeat("[", maxReview), errReviewTooLarge.Error()},
		"many values": {`{"kind":"` + strings.Repeat(`a","kind":"`, 500_000) + `"}`, errReviewTooLarge.Error()},
	} {
		if got, err := trim(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, %v; want %s", name, got, err, c.want)
		}
	}
}

// TestWhatIsTooLargeIsRefused shows what the webhook says of an object that it does not read, and that one that is too large
// already can be made smaller.
func TestWhatIsTooLargeIsRefused(t *testing.T) {
	handlers := newHandlers(town(t, []string{"*"}), clock.RealClock{})
	annotation := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{}}`, name, strings.Repeat("x", maxMetadataText))
	}
	small, large := objectOf("Cleaner", `{"ttl":"1d"}`, ""), objectOf("Cleaner", `{"rules":[`+strings.Repeat("{},", 20_000)+`{}]}`, "")
	long := objectOf("Cleaner", fmt.Sprintf(`{"ttl":%q}`, strings.Repeat("x", maxSpecText)), "")
	const entries = "has far more entries than are allowed: it would take more than 4 MiB of memory: leave some out"
	for name, c := range map[string]struct{ now, old, want string }{
		"entries":         {large, "", "spec.rules: " + entries},
		"entries, edited": {large, small, "spec.rules: " + entries},
		"still too large": {large, large, "spec.rules: " + entries},
		"length":          {long, "", "spec: is more than 524288 bytes long as JSON; at most 262144 are allowed: shorten the expressions or the parameters"},
		"depth":           {objectOf("Cleaner", `{"parameters":{"a":`+strings.Repeat("[", 300_000)+strings.Repeat("]", 300_000)+`}}`, ""), "", "spec.parameters: is nested more than 256 deep: write it flatter"},
		"author":          {annotation(v1alpha1.AnnotationAuthor), "", "metadata.annotations[" + v1alpha1.AnnotationAuthor + "]: is too long: shorten it"},
		"request":         {annotation(v1alpha1.AnnotationRequestedAt), "", "metadata.annotations[" + v1alpha1.AnnotationRequestedAt + "]: is too long: shorten it"},
		"made smaller":    {small, large, ""},
		"made shorter":    {small, long, ""},
		"was too long":    {small, annotation(v1alpha1.AnnotationRequestedAt), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{AuthorPath, Path} {
				w := send(t.Context(), handlers[path], reviewOf("Cleaner", c.now, c.old))
				checkAnswer(t, w, nil)
				var answer struct {
					Response struct {
						Allowed bool
						Status  struct{ Message, Reason string }
					}
				}
				if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
					t.Fatal(err)
				}
				got := answer.Response
				if c.want != "" && (got.Allowed || got.Status.Message != c.want || got.Status.Reason != "Invalid") {
					t.Errorf("%s: got %v, want %s", path, got, c.want)
				}
				if c.want == "" && path == AuthorPath && !got.Allowed {
					t.Errorf("%s: got %v", path, got)
				}
				if c.want == "" && strings.Contains(got.Status.Message, entries) {
					t.Errorf("%s: got %v", path, got)
				}
			}
		})
	}
}

// TestWhatTakesMemoryIsMeasured shows that a review that is short and takes much memory once it is decoded counts as large.
func TestWhatTakesMemoryIsMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		object, old string
		large       bool
	}{
		"small":  {`{"ttl":"1d"}`, "", false},
		"large":  {`{"rules":[` + strings.Repeat("{},", 4_000) + `{}]}`, "", true},
		"before": {`{"ttl":"1d"}`, `{"rules":[` + strings.Repeat("{},", 4_000) + `{}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			old := ""
			if c.old != "" {
				old = objectOf("Cleaner", c.old, "")
			}
			got, err := trim(reviewOf("Cleaner", objectOf("Cleaner", c.object, ""), old))
			if err != nil || got.refused != nil || len(got.text) > maxLightText {
				t.Fatalf("got %v, %v", got, err)
			}
			if large := got.decoded > maxLightDecoded; large != c.large {
				t.Errorf("it takes %d bytes", got.decoded)
			}
		})
	}
}

// TestNoSpecThatIsAllowedIsTooLarge shows that the bounds of the stream are beyond those of the schema: whoever keeps to these
// never meets them.
func TestNoSpecThatIsAllowedIsTooLarge(t *testing.T) {
	list := func(n int, entry string) string { return "[" + strings.Repeat(entry+",", n-1) + entry + "]" }
	fill := func(entry string) string { // as many as a spec has room for
		return list((validation.MaxSpecBytes-1024)/(len(entry)+1), entry)
	}
	var labels []string
	for i := range 64 {
		labels = append(labels, fmt.Sprintf(`"k%d":"v"`, i))
	}
	many := "{" + strings.Join(labels, ",") + "}"
	for name, spec := range map[string]string{
		"values":     `{"targets":[{"reference":{"matchExpressions":[{"key":"a","operator":"In","values":` + fill(`"a"`) + `}]}}]}`,
		"parameters": `{"parameters":{"a":` + fill(`{}`) + `}}`,
		"template":   `{"templateRef":{"name":"t","parameters":{"a":` + fill(`1`) + `}}}`,
		"actions":    `{"rules":` + list(64, `{"actions":`+list(64, `{"patch":{}}`)+`}`) + `}`,
		"confirm":    `{"rules":` + list(64, `{"confirm":`+list(64, `{}`)+`}`) + `}`,
		"labels":     `{"targets":` + list(64, `{"reference":{"matchLabels":`+many+`}}`) + `}`,
		"selectors":  `{"targets":` + list(64, `{"reference":{"matchExpressions":`+list(64, `{"key":"a","operator":"Exists"}`)+`}}`) + `}`,
		"conditions": `{"conditions":` + list(64, `"true"`) + `,"variables":` + list(64, `{"name":"a"}`) + `}`,
	} {
		if got, err := trim(reviewOf("Cleaner", objectOf("Cleaner", spec, ""), "")); err != nil || got.refused != nil {
			t.Errorf("%s: %v, refused %v", name, err, got.refused)
		}
	}
}

// FuzzTrim trims anything. What is left of JSON is JSON, within bounds, and trimmed it is the same.
func FuzzTrim(f *testing.F) {
	f.Add([]byte(reviewOf("Cleaner", objectOf("Cleaner", `{"ttl":"1\\\"d","rules":[{},1,null,"a"]}`, `,"status":{}`), objectOf("Cleaner", `{"targets":[{"reference":{"matchLabels":{"a":"b"}}}]}`, ""))))
	f.Add([]byte(review(`{"object":{"metadata":{"annotations":{"a":"b","` + v1alpha1.AnnotationAuthor + `":{}}},"spec":7},"oldObject":[]}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		once, err := trim(string(body))
		if err != nil || !json.Valid(body) {
			return
		}
		if !json.Valid(once.text) || len(once.text) > maxTrimmed {
			t.Fatalf("of %q is left %q", body, once.text)
		}
		if twice, err := trim(string(once.text)); err != nil || string(twice.text) != string(once.text) {
			t.Errorf("of %q is left %q, %v", once.text, twice.text, err)
		}
	})
}
