// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package author

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

var (
	now   = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	alice = Author{Username: "alice", Groups: []string{"team", "system:authenticated"}}
)

func ringOf(t *testing.T, keys ...signing.Key) signing.Ring {
	t.Helper()
	r, err := signing.NewRing(keys, signing.RotationPolicy{Propagation: time.Minute, Overlap: time.Hour}, now.Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cleaner is one as it is stored after it was created.
func cleaner() *v1alpha1.Cleaner {
	return &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "c", UID: "1", Generation: 1, CreationTimestamp: metav1.NewTime(now),
		},
		Spec: v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{
			Conditions: []string{"true"}, Parameters: &runtime.RawExtension{Raw: []byte(`{"b": 1, "a": 1.50}`)},
		}},
	}
}

// sign stores an author as the webhook does when an object is created: without its UID, and maybe without its name.
func sign(t *testing.T, ring signing.Ring, c *v1alpha1.Cleaner, generated bool) {
	t.Helper()
	asked := c.DeepCopy()
	asked.UID = ""
	if generated {
		asked.Name, asked.GenerateName, c.GenerateName = "", "c-", "c-"
	}
	value, err := Sign(ring, asked, alice, now)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value}
}

func TestReadGivesTheAuthor(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	for name, generated := range map[string]bool{"Name": false, "GenerateName": true} {
		t.Run(name, func(t *testing.T) {
			c := cleaner()
			sign(t, ring, c, generated)
			got, err := Read(ring, c)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Stored{Author: alice, WrittenAt: now, NeedsRenewal: true}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			bound, err := Renew(ring, c, got)
			if err != nil {
				t.Fatal(err)
			}
			c.Annotations[v1alpha1.AnnotationAuthor] = bound
			c.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)) // which does not matter any more
			if got, err = Read(ring, c); err != nil || got.NeedsRenewal {
				t.Errorf("bound: got %v, %v", got, err)
			}
		})
	}
}

// What was signed for one object and one spec is worth nothing elsewhere.
func TestReadRefuses(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	for name, change := range map[string]func(c *v1alpha1.Cleaner){
		"another namespace": func(c *v1alpha1.Cleaner) { c.Namespace = "other" },
		"another name":      func(c *v1alpha1.Cleaner) { c.Name = "d" },
		"another spec":      func(c *v1alpha1.Cleaner) { c.Spec.Conditions = nil },
		"another parameter": func(c *v1alpha1.Cleaner) { c.Spec.Parameters.Raw = []byte(`{"a": 1.5, "b": false}`) },
		"a later creation": func(c *v1alpha1.Cleaner) {
			c.CreationTimestamp = metav1.NewTime(now.Add(maxCreationSkew + time.Second))
		},
		"an earlier creation": func(c *v1alpha1.Cleaner) {
			c.CreationTimestamp = metav1.NewTime(now.Add(-maxCreationSkew - time.Second))
		},
		"another user":          replace(`"alice"`, `"admin"`),
		"another group":         replace(`"team"`, `"system:masters"`),
		"another time":          replace("2026-01-02T15:04:05Z", "2026-01-02T15:04:06Z"),
		"another form":          replace(`"about":"name"`, `"about":"uid"`),
		"an unknown form":       replace(`"about":"name"`, `"about":""`),
		"no signature":          replace(`"signature":"2026`, `"signature":"`),
		"no JSON":               replace(`{`, ``),
		"two authors":           replace(`{"author":`, `{"author":{"username":"mallory"},"author":`),
		"an author in capitals": replace(`{"author":`, `{"author":{"username":"mallory"},"Author":`),
		"two names":             replace(`{"username":`, `{"username":"mallory","username":`),
		"a name in capitals":    replace(`{"username":`, `{"username":"mallory","UserName":`),
		"an unknown member":     replace(`,"time"`, `,"note":"","time"`),
		"another order":         replace(`{"username":"alice","groups":["team","system:authenticated"]}`, `{"groups":["team","system:authenticated"],"username":"alice"}`),
		"white space":           replace(`{"author"`, `{ "author"`),
		"white space behind it": func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationAuthor] += "\n" },
		"an escaped letter":     replace(`"alice"`, `"\u0061lice"`),
		"an empty field":        replace(`{"username":"alice"`, `{"username":"alice","uid":""`),
		"an annotation too big": func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationAuthor] += strings.Repeat(" ", maxBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			c := cleaner()
			sign(t, ring, c, false)
			change(c)
			if got, err := Read(ring, c); !errors.Is(err, ErrForeign) {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// A spec that cannot be told from others has no author: what was signed for one would be good for all.
func TestASpecThatCannotBeReadHasNoAuthor(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	c := cleaner()
	sign(t, ring, c, false)
	c.Spec.Parameters.Raw = []byte(`{`)
	if value, err := Sign(ring, c, alice, now); err == nil || value != "" {
		t.Errorf("it is signed: %q, %v", value, err)
	}
	if got, err := Read(ring, c); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v, %v", got, err)
	}
	if text, err := marshalStatement(c, &annotation{About: byName}); err == nil || text != nil {
		t.Errorf("%q would be signed: %v", text, err)
	}
}

// Nothing is signed without a key.
func TestSignWithoutAKey(t *testing.T) {
	if value, err := Sign(signing.Ring{}, cleaner(), alice, now); err == nil || value != "" {
		t.Errorf("got %q, %v", value, err)
	}
}

// What a policy of the API server has to compare is written as it is, but for quotes and backslashes; and it is read back.
func TestTextOfAnAuthor(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	for name, tc := range map[string]struct {
		who  Author
		want string
	}{
		"User":           {Author{Username: "alice", Groups: []string{"a", "b"}}, `{"author":{"username":"alice","groups":["a","b"]},"time":`},
		"NoGroups":       {Author{Username: "alice"}, `{"author":{"username":"alice"},"time":`},
		"Extra":          {Author{Username: "alice", Extra: map[string][]string{"k": {"v"}}}, `{"author":{"username":"alice","extra":{"k":["v"]}},"time":`},
		"ServiceAccount": {Author{Username: "system:serviceaccount:a:b", UID: "7"}, `{"author":{"username":"system:serviceaccount:a:b","uid":"7"},"time":`},
		"HTML":           {Author{Username: "<a&b>@x", Groups: []string{"<&>"}}, `{"author":{"username":"<a&b>@x","groups":["<&>"]},"time":`},
		"Quotes":         {Author{Username: `a"b\c'd`, Groups: []string{`"\`}}, `{"author":{"username":"a\"b\\c'd","groups":["\"\\"]},"time":`},
		"OtherLetters":   {Author{Username: "Zoë 名 \U0001f600 \x7f"}, `{"author":{"username":"Zoë 名 ` + "\U0001f600 \x7f" + `"},"time":`},
	} {
		t.Run(name, func(t *testing.T) {
			c := cleaner()
			value, err := Sign(ring, c, tc.who, now)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(value, tc.want) {
				t.Errorf("it is %s, and should begin with %s", value, tc.want)
			}
			c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value}
			got, err := Read(ring, c)
			if diff := cmp.Diff(tc.who, got.Author); err != nil || diff != "" {
				t.Errorf("%v, -want +got:\n%s", err, diff)
			}
		})
	}
}

// A key that is gone says nothing, neither for the author nor against them. It is not gone if it was never there: an object that is
// younger than the keys was not signed with an older one.
func TestReadWithoutTheKey(t *testing.T) {
	c := cleaner()
	sign(t, ringOf(t, signing.NewKey(now)), c, false)
	later := ringOf(t, signing.NewKey(now.Add(time.Second)))
	c.CreationTimestamp = metav1.NewTime(now)
	if got, err := Read(later, c); !errors.Is(err, ErrKeyLost) || got.Username != alice.Username || got.Extra != nil || got.NeedsRenewal {
		t.Errorf("got %+v, %v", got, err)
	}
	c.CreationTimestamp = metav1.NewTime(now.Add(time.Second))
	if got, err := Read(later, c); !errors.Is(err, ErrForeign) || got.Username != "" {
		t.Errorf("of a younger object: got %+v, %v", got, err)
	}
}

func replace(old, now string) func(c *v1alpha1.Cleaner) {
	return func(c *v1alpha1.Cleaner) {
		c.Annotations[v1alpha1.AnnotationAuthor] = strings.Replace(c.Annotations[v1alpha1.AnnotationAuthor], old, now, 1)
	}
}

// A bound statement is about one UID: another object of the same name, namespace and spec is not it.
func TestBoundAuthorIsOfOneObject(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	c := cleaner()
	value, err := Sign(ring, c, alice, now)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value}
	if _, err := Read(ring, c); err != nil {
		t.Fatal(err)
	}
	c.UID = "2"
	if _, err := Read(ring, c); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v", err)
	}
	cluster := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "1", Generation: 1, Annotations: c.Annotations}}
	if _, err := Read(ring, cluster); !errors.Is(err, ErrForeign) {
		t.Errorf("as a ClusterCleaner: got %v", err)
	}
}

func TestReadWithoutAuthor(t *testing.T) {
	if _, err := Read(ringOf(t, signing.NewKey(now)), cleaner()); !errors.Is(err, ErrAbsent) {
		t.Errorf("got %v", err)
	}
}

// An author that an older key has signed is still one, and is signed again.
func TestAuthorOutlivesItsKey(t *testing.T) {
	old, young := signing.NewKey(now), signing.NewKey(now.Add(time.Minute))
	c := cleaner()
	value, err := Sign(ringOf(t, old), c, alice, now)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value}
	both := ringOf(t, old, young)
	got, err := Read(both, c)
	if err != nil || !got.NeedsRenewal {
		t.Fatalf("got %v, %v", got, err)
	}
	if value, err = Renew(both, c, got); err != nil {
		t.Fatal(err)
	}
	c.Annotations[v1alpha1.AnnotationAuthor] = value
	if got, err := Read(ringOf(t, young), c); err != nil || got.NeedsRenewal || got.Username != "alice" {
		t.Errorf("renewed: got %v, %v", got, err)
	}
}

func TestOf(t *testing.T) {
	extra := map[string]authenticationv1.ExtraValue{"scopes": {"a"}, "authentication.kubernetes.io/pod-name": {"p"}}
	for name, tc := range map[string]struct {
		user authenticationv1.UserInfo
		keys []string
		want Author
	}{
		"User":             {authenticationv1.UserInfo{Username: "alice", UID: "7", Groups: []string{"g"}, Extra: extra}, nil, Author{Username: "alice", Groups: []string{"g"}}},
		"AllowedExtra":     {authenticationv1.UserInfo{Username: "alice", Extra: extra}, []string{"scopes", "none"}, Author{Username: "alice", Extra: map[string][]string{"scopes": {"a"}}}},
		"ServiceAccount":   {authenticationv1.UserInfo{Username: "system:serviceaccount:shop:bot", UID: "7", Groups: []string{"g"}, Extra: extra}, []string{"scopes"}, Author{Username: "system:serviceaccount:shop:bot", UID: "7"}},
		"NoServiceAccount": {authenticationv1.UserInfo{Username: "system:serviceaccount:shop", UID: "7", Groups: []string{"g"}}, nil, Author{Username: "system:serviceaccount:shop", Groups: []string{"g"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, FromUser(tc.user, tc.keys)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestAuthorIsBounded(t *testing.T) {
	many := Author{Username: "alice"}
	for range 5000 {
		many.Groups = append(many.Groups, "a-group-with-a-name")
	}
	_, err := Sign(ringOf(t, signing.NewKey(now)), cleaner(), many, now)
	if err == nil || !strings.Contains(err.Error(), "5000 groups") {
		t.Errorf("got %v", err)
	}
}

// A name that would be written otherwise than the policy of the API server compares it is nobody's.
func TestNamesThatCannotBeWritten(t *testing.T) {
	for name, who := range map[string]Author{
		"ControlCharacter": {Username: "a\tb"}, "LineSeparator": {Username: "a\u2028b"}, "ParagraphSeparator": {Username: "a", Groups: []string{"b", "c\u2029"}},
		"UID": {Username: "system:serviceaccount:a:b", UID: "7\n"},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := Sign(ringOf(t, signing.NewKey(now)), cleaner(), who, now)
			if err == nil || !strings.Contains(err.Error(), "has a control character") {
				t.Errorf("got %s, %v", value, err)
			}
		})
	}
}

// The same spec has one fingerprint, in whatever order it was written, whether empty fields were, and while it is suspended.
func TestFingerprint(t *testing.T) {
	var prints []string
	for _, text := range []string{
		`{"spec": {"conditions": ["true"], "parameters": {"a": 1, "b": {"c": null, "d": 2.5}}}}`,
		`{"spec": {"parameters": {"b": {"d": 2.5, "c": null}, "a": 1}, "conditions": ["true"], "suspend": true, "targets": [], "mode": ""}}`,
	} {
		c := &v1alpha1.Cleaner{}
		if err := json.Unmarshal([]byte(text), c); err != nil {
			t.Fatal(err)
		}
		fingerprint, err := FingerprintSpec(c)
		if err != nil {
			t.Fatal(err)
		}
		prints = append(prints, fingerprint)
	}
	if prints[0] != prints[1] {
		t.Errorf("two fingerprints: %v", prints)
	}
}

// What an earlier version has signed is read for ever, or its authors are lost: never change this value.
func TestAuthorOfAnEarlierVersion(t *testing.T) {
	key, err := signing.ParseKey("20260102T150405Z", []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	c := cleaner()
	c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: `{"author":{"username":"alice","groups":["team","system:authenticated"]},"time":"2026-01-02T15:04:05Z",` +
		`"about":"uid","signature":"20260102T150405Z.dwydbfcKmH5gK4Xh1km9UzSuNww6PlpTw_wXcTiwBkY"}`}
	got, err := Read(ringOf(t, key), c)
	if err != nil {
		value, _ := Sign(ringOf(t, key), cleaner(), alice, now)
		t.Fatalf("%v; this version writes %s", err, value)
	}
	if got.Username != "alice" {
		t.Errorf("got %v", got)
	}
}

// Whatever bytes an author and a request have: what is signed is read back as it was, or it is refused and not written.
func TestWhatIsSignedIsWhatIsReadBack(t *testing.T) {
	ring := ringOf(t, signing.NewKey(now))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 5), func(b []byte) string { return string(b) })
		who := Author{Username: text.Draw(t, "username"), UID: text.Draw(t, "UID")}
		for range rapid.IntRange(0, 2).Draw(t, "groups") {
			who.Groups = append(who.Groups, text.Draw(t, "group"))
		}
		if rapid.Bool().Draw(t, "with an attribute") {
			who.Extra = map[string][]string{text.Draw(t, "key"): {text.Draw(t, "value")}}
		}
		c := cleaner()
		value, err := Sign(ring, c, who, now)
		if err != nil {
			return
		}
		asks, err := SignRequest(ring, c, who, "", now)
		if err != nil {
			t.Fatalf("%+v may write, and not ask: %v", who, err)
		}
		c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value, v1alpha1.AnnotationRequest: asks}
		stored, err := Read(ring, c)
		if err != nil || !reflect.DeepEqual(stored.Author, who) {
			t.Errorf("%+v is read back as %+v, %v", who, stored.Author, err)
		}
		request, err := ReadRequest(ring, c)
		if err != nil || !reflect.DeepEqual(request.Author, who) {
			t.Errorf("%+v asks, and it is read back as %+v, %v", who, request.Author, err)
		}
	})
}
