// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	jsonpatchop "gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/signing"
)

const operator = "system:serviceaccount:cleaner-system:cleaner-manager"

var moment = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// authority denies every review.
type authority struct{ err error }

func (a *authority) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	return r.DeepCopy(), a.err
}

// oneKey is a keyring of one key.
type oneKey struct {
	ring signing.Ring
	err  error
}

func (k oneKey) CurrentRing() (signing.Ring, error) { return k.ring, k.err }

func newKey(t testing.TB) oneKey {
	t.Helper()
	ring, err := signing.NewRing([]signing.Key{signing.NewKey(moment)}, signing.RotationPolicy{}, moment)
	if err != nil {
		t.Fatal(err)
	}
	return oneKey{ring: ring}
}

// storing is the webhook that stores authors, and the one that judges them.
func storing(t testing.TB) *authorMutator {
	t.Helper()
	v := &validator{keys: newKey(t), operator: &operatorIdentity{user: authenticationv1.UserInfo{Username: operator}}}
	return &authorMutator{&ownerValidator{v, func() v1alpha1.Owner { return &v1alpha1.Cleaner{} }}, clocktesting.NewFakePassiveClock(moment)}
}

// stored is a Cleaner of alice.
func stored(t *testing.T, a *authorMutator) *v1alpha1.Cleaner {
	t.Helper()
	ring, err := a.keys.CurrentRing()
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "1", Generation: 4, CreationTimestamp: metav1.NewTime(moment)},
		Spec:       v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{TTL: "1d"}},
	}
	value, err := author.Sign(ring, c, author.Author{Username: "alice"}, moment)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value}
	return c
}

// request has a user write an object over another, which is nil when it is created.
func request(t *testing.T, user string, now, old *v1alpha1.Cleaner) admission.Request {
	t.Helper()
	raw := func(c *v1alpha1.Cleaner) runtime.RawExtension {
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	r := admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Kind: "Cleaner"}, Namespace: "shop", Operation: admissionv1.Create, Object: raw(now),
		UserInfo: authenticationv1.UserInfo{Username: user},
	}
	if old != nil {
		r.Operation, r.OldObject = admissionv1.Update, raw(old)
	}
	return admission.Request{AdmissionRequest: r}
}

// A patch of annotations changes those that are to be different, and leaves none that is empty.
func TestNewAnnotationPatch(t *testing.T) {
	type change = jsonpatchop.Operation
	there := map[string]string{"example.com/a": "1", "b": "2", "other": "3"}
	for name, tc := range map[string]struct {
		there, want map[string]string
		patch       []change
	}{
		"First":        {nil, map[string]string{"b": "2", "c": ""}, []change{{Operation: "add", Path: "/metadata/annotations", Value: map[string]string{"b": "2"}}}},
		"NothingFirst": {nil, map[string]string{"b": "", "c": ""}, nil},
		"Nothing":      {there, nil, nil},
		"TheSame":      {there, map[string]string{"b": "2"}, nil},
		"Another":      {there, map[string]string{"b": "5"}, []change{{Operation: "add", Path: "/metadata/annotations/b", Value: "5"}}},
		"New":          {there, map[string]string{"c": "5"}, []change{{Operation: "add", Path: "/metadata/annotations/c", Value: "5"}}},
		"Gone":         {there, map[string]string{"example.com/a": ""}, []change{{Operation: "remove", Path: "/metadata/annotations/example.com~1a"}}},
		"NotThere":     {there, map[string]string{"c": ""}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Annotations: tc.there}}
			if diff := cmp.Diff(tc.patch, newAnnotationPatch(c, tc.want)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// patched is an object as the API server has it after an answer and its own part of the write.
func patched(t *testing.T, req admission.Request, answer admission.Response) *v1alpha1.Cleaner {
	t.Helper()
	text := req.Object.Raw
	if len(answer.Patches) > 0 {
		ops, err := json.Marshal(answer.Patches)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(ops)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = patch.Apply(text); err != nil {
			t.Fatal(err)
		}
	}
	c := &v1alpha1.Cleaner{}
	if err := json.Unmarshal(text, c); err != nil {
		t.Fatal(err)
	}
	if req.Operation == admissionv1.Create {
		c.Generation, c.UID, c.CreationTimestamp = 1, "new", metav1.NewTime(moment)
	} else if !bytes.Equal(req.Object.Raw, req.OldObject.Raw) {
		c.Generation++
	}
	return c
}

// TestAsks shows what asks for an evaluation: to write another moment, and nothing else.
func TestAsks(t *testing.T) {
	with := func(moment string) *v1alpha1.Cleaner {
		return &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationRequestedAt: moment}}}
	}
	for name, tc := range map[string]struct {
		c    ownerChange
		want bool
	}{
		"Another":  {ownerChange{current: with("2"), old: with("1")}, true},
		"First":    {ownerChange{current: with("1"), old: &v1alpha1.Cleaner{}}, true},
		"TheSame":  {ownerChange{current: with("1"), old: with("1")}, false},
		"None":     {ownerChange{current: &v1alpha1.Cleaner{}, old: &v1alpha1.Cleaner{}}, false},
		"TakenOff": {ownerChange{current: &v1alpha1.Cleaner{}, old: with("1")}, false},
		"Created":  {ownerChange{current: with("1")}, false},
	} {
		if got := tc.c.requestsEvaluation(); got != tc.want {
			t.Errorf("%s: it asks: %t", name, got)
		}
	}
}

// TestAuthorAfterAWrite shows whose a spec is after each kind of write, and that the validating webhook judges it so.
func TestAuthorAfterAWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		user   string
		create bool
		change func(c *v1alpha1.Cleaner)
		before func(c *v1alpha1.Cleaner)
		want   string // the author afterwards; empty if none is stored
		review bool   // whether rights are reviewed
		refuse string
		taken  bool // whether a request for an evaluation is taken off
	}{
		"Create":         {user: "bob", create: true, want: "bob", review: true},
		"CreateWithUID":  {user: "bob", create: true, change: func(c *v1alpha1.Cleaner) { c.UID = "of another" }, want: "bob", review: true},
		"CreateForged":   {user: "bob", create: true, change: func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: "{}"} }, want: "bob", review: true},
		"CreateAsking":   {user: "bob", create: true, change: func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"} }, want: "bob", review: true},
		"CreateOperator": {user: operator, create: true, refuse: "the operator itself never changes the spec"},
		"Edit":           {user: "bob", change: func(c *v1alpha1.Cleaner) { c.Spec.TTL = "2d" }, want: "bob", review: true},
		"Suspend":        {user: "bob", change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, want: "alice"},
		"SuspendOwn":     {user: "alice", change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, want: "alice"},
		"SuspendAndEdit": {user: "bob", change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend, c.Spec.TTL = true, "2d" }, want: "bob", review: true},
		"SuspendAndAsk": {user: "bob", change: func(c *v1alpha1.Cleaner) {
			c.Spec.Suspend, c.Annotations[v1alpha1.AnnotationRequestedAt] = true, "1"
		}, want: "alice"},
		"EditAfterAsking": {user: "bob", before: func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequestedAt] = "1" }, change: func(c *v1alpha1.Cleaner) { c.Spec.TTL = "2d" }, want: "bob", review: true, taken: true},
		"EditAndAsk": {user: "bob", before: func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequestedAt] = "1" }, change: func(c *v1alpha1.Cleaner) {
			c.Spec.TTL, c.Annotations[v1alpha1.AnnotationRequestedAt] = "2d", "2"
		}, want: "bob", review: true},
		"SuspendAfterAsking": {user: "bob", before: func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequestedAt] = "1" }, change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, want: "alice"},
		"SuspendForged": {user: "bob", change: func(c *v1alpha1.Cleaner) {
			c.Spec.Suspend, c.Annotations = true, map[string]string{v1alpha1.AnnotationAuthor: "{}"}
		}, want: "alice"},
		"SuspendUnknown": {user: "bob", before: unknown, change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, want: ""},
		"SuspendForeign": {user: "bob", before: func(c *v1alpha1.Cleaner) { c.Spec.TTL = "9d" }, change: func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }, want: ""},
		"ResumeAndTakeOver": {user: "bob", before: unknown, change: func(c *v1alpha1.Cleaner) {
			c.Spec.Suspend, c.Annotations = true, map[string]string{v1alpha1.AnnotationRequestedAt: "1"}
		}, want: "bob", review: true},
		"EditOperator": {user: operator, change: func(c *v1alpha1.Cleaner) { c.Spec.TTL = "2d" }, refuse: "the operator itself never changes the spec"},
		"Label":        {user: "bob", change: func(c *v1alpha1.Cleaner) { c.Labels = map[string]string{"a": "b"} }, want: "alice"},
		"Ask":          {user: "bob", change: func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationRequestedAt] = "1" }, want: "alice"},
		"Remove":       {user: "bob", change: func(c *v1alpha1.Cleaner) { c.Annotations = nil }, want: "alice"},
		"Change":       {user: "bob", change: func(c *v1alpha1.Cleaner) { c.Annotations[v1alpha1.AnnotationAuthor] += " " }, want: "alice"},
		"LabelUnknown": {user: "bob", before: unknown, change: func(c *v1alpha1.Cleaner) { c.Labels = map[string]string{"a": "b"} }, want: ""},
		"ForgeUnknown": {user: "bob", before: unknown, change: func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: "{}"} }, want: ""},
		"AskUnknown": {user: "bob", before: unknown, change: func(c *v1alpha1.Cleaner) {
			c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "1"}
		}, want: "bob", review: true},
		"AskForeign": {user: "bob", before: func(c *v1alpha1.Cleaner) { c.Spec.TTL = "9d" }, change: func(c *v1alpha1.Cleaner) {
			c.Annotations[v1alpha1.AnnotationRequestedAt] = "1"
		}, want: "bob", review: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := storing(t)
			now := stored(t, a)
			if tc.before != nil {
				tc.before(now)
			}
			var old *v1alpha1.Cleaner
			if tc.create {
				now.Annotations, now.UID, now.Generation = nil, "", 0
			} else {
				old = now.DeepCopy()
			}
			if tc.change != nil {
				tc.change(now)
			}
			req := request(t, tc.user, now, old)
			answer := a.Handle(t.Context(), req)
			if tc.refuse != "" {
				if answer.Allowed || !strings.Contains(answer.Result.Message, tc.refuse) {
					t.Fatalf("got %+v", answer)
				}
				if answer := a.ownerValidator.Handle(t.Context(), req); answer.Allowed || !strings.Contains(answer.Result.Message, tc.refuse) {
					t.Errorf("the validating webhook: %+v", answer)
				}
				return
			}
			if !answer.Allowed {
				t.Fatalf("refused: %s", answer.Result.Message)
			}
			after := patched(t, req, answer)
			if taken := now.Annotations[v1alpha1.AnnotationRequestedAt] != "" && after.Annotations[v1alpha1.AnnotationRequestedAt] == ""; taken != tc.taken {
				t.Errorf("the request is taken off: %t, want %t", taken, tc.taken)
			}
			if tc.taken {
				kept := after.DeepCopy()
				kept.Annotations[v1alpha1.AnnotationRequestedAt] = "1"
				if answer := a.ownerValidator.Handle(t.Context(), request(t, tc.user, kept, old)); answer.Allowed || !strings.Contains(answer.Result.Message, "is about the old spec") {
					t.Errorf("the validating webhook lets it stay: %+v", answer)
				}
			}
			ring, _ := a.keys.CurrentRing()
			asks := old != nil && after.Annotations[v1alpha1.AnnotationRequestedAt] != old.Annotations[v1alpha1.AnnotationRequestedAt] && after.Annotations[v1alpha1.AnnotationRequestedAt] != ""
			if _, err := author.ReadRequest(ring, after); (err == nil) != asks {
				t.Errorf("a request is signed: %v, want %t", err, asks)
			}
			got, err := author.Read(ring, after)
			if tc.want == "" {
				if err == nil {
					t.Fatalf("the author is %s", got)
				}
			} else if err != nil || got.Username != tc.want {
				t.Fatalf("the author is %s (%v)", got, err)
			}
			change, err := a.readChange(t.Context(), ptr(request(t, tc.user, after, old)))
			if err != nil {
				t.Fatal(err)
			}
			if !change.specChanged && change.currentAuthor() == change.oldAuthor() {
				if tc.review {
					t.Error("nothing is reviewed")
				}
				return
			}
			if reviewed, err := a.verifyAuthor(ring, change, req.UserInfo); err != nil || reviewed != tc.review {
				t.Errorf("judged %t, %v", reviewed, err)
			}
		})
	}
}

// TestExtraOfTheAuthor shows that of what else the API server knows about a user only the keys that a flag names are stored and signed,
// and that the validating webhook judges by them too.
func TestExtraOfTheAuthor(t *testing.T) {
	for name, tc := range map[string]struct {
		keys []string
		want map[string][]string
	}{
		"None":  {nil, nil},
		"Named": {[]string{"scopes", "absent"}, map[string][]string{"scopes": {"a", "b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := storing(t)
			a.extraKeys = tc.keys
			now := stored(t, a)
			old := now.DeepCopy()
			now.Spec.TTL, now.Annotations[v1alpha1.AnnotationRequestedAt] = "2d", "1"
			req := request(t, "bob", now, old)
			req.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}, "other": {"c"}}
			answer := a.Handle(t.Context(), req)
			if !answer.Allowed {
				t.Fatalf("refused: %s", answer.Result.Message)
			}
			after := patched(t, req, answer)
			ring, _ := a.keys.CurrentRing()
			want := author.Author{Username: "bob", Extra: tc.want}
			got, err := author.Read(ring, after)
			if diff := cmp.Diff(want, got.Author); err != nil || diff != "" {
				t.Errorf("the author: %v, -want +got:\n%s", err, diff)
			}
			asked, err := author.ReadRequest(ring, after)
			if diff := cmp.Diff(want, asked.Author); err != nil || diff != "" {
				t.Errorf("who asks: %v, -want +got:\n%s", err, diff)
			}
			final := request(t, "bob", after, old)
			final.UserInfo = req.UserInfo
			change, err := a.readChange(t.Context(), &final)
			if err != nil {
				t.Fatal(err)
			}
			if reviewed, err := a.verifyAuthor(ring, change, final.UserInfo); err != nil || !reviewed {
				t.Errorf("judged %t, %v", reviewed, err)
			}
			final.UserInfo.Extra = map[string]authenticationv1.ExtraValue{"scopes": {"z"}}
			if _, err := a.verifyAuthor(ring, change, final.UserInfo); (err != nil) != (tc.want != nil) {
				t.Errorf("of a user with another value: %v", err)
			}
		})
	}
}

// unknown is a Cleaner without an author.
func unknown(c *v1alpha1.Cleaner) { c.Annotations = nil }

func ptr[T any](v T) *T { return &v }

// TestJudge shows what the validating webhook refuses when the other one was not asked, or when somebody wrote after it.
func TestJudge(t *testing.T) {
	a := storing(t)
	for name, tc := range map[string]struct {
		user   string
		change func(now, old *v1alpha1.Cleaner)
		want   error
	}{
		"EditNotStored":     {"bob", func(now, _ *v1alpha1.Cleaner) { now.Spec.TTL, now.Annotations = "2d", nil }, errAuthorNotStored},
		"EditOfOthersName":  {"bob", func(now, _ *v1alpha1.Cleaner) { now.Spec.TTL = "2d"; a.sign(t, now, "alice") }, errAuthorNotStored},
		"ChangedAfterwards": {"bob", func(now, _ *v1alpha1.Cleaner) { now.Spec.TTL = "2d" }, errSpecChangedAfter},
		"SuspendAndWrite":   {"bob", func(now, _ *v1alpha1.Cleaner) { now.Spec.Suspend = true; a.sign(t, now, "carol") }, errAuthorWritten},
		"Annotation":        {"bob", func(now, _ *v1alpha1.Cleaner) { now.Annotations = nil }, errAuthorWritten},
		"SignedByNobody":    {operator, func(now, _ *v1alpha1.Cleaner) { now.Annotations[v1alpha1.AnnotationAuthor] = "{}" }, errAuthorWritten},
		"TakenUnasked":      {"bob", func(now, old *v1alpha1.Cleaner) { old.Annotations = nil; a.sign(t, now, "bob") }, errAuthorWritten},
		"Renewed":           {operator, func(_, old *v1alpha1.Cleaner) { old.Annotations = map[string]string{"a": "b"} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			now := stored(t, a)
			old := now.DeepCopy()
			tc.change(now, old)
			req := request(t, tc.user, now, old)
			change, err := a.readChange(t.Context(), &req)
			if err != nil {
				t.Fatal(err)
			}
			ring, _ := a.keys.CurrentRing()
			if reviewed, err := a.verifyAuthor(ring, change, req.UserInfo); !errors.Is(err, tc.want) || reviewed {
				t.Errorf("got %t, %v, want %v", reviewed, err, tc.want)
			}
		})
	}
}

// What is signed of a request stands beside the request that it was signed for, or goes.
func TestVerifyRequest(t *testing.T) {
	a := storing(t)
	ring, _ := a.keys.CurrentRing()
	askAs := func(user string, c *v1alpha1.Cleaner, at string) {
		c.Annotations[v1alpha1.AnnotationRequestedAt] = at
		value, err := author.SignRequest(ring, c, author.Author{Username: user}, "", moment)
		if err != nil {
			t.Fatal(err)
		}
		c.Annotations[v1alpha1.AnnotationRequest] = value
	}
	ask := func(c *v1alpha1.Cleaner, at string) { askAs("bob", c, at) }
	for name, tc := range map[string]struct {
		change func(now, old *v1alpha1.Cleaner)
		want   error
	}{
		"Asked":             {func(now, _ *v1alpha1.Cleaner) { ask(now, "1") }, nil},
		"Asked again":       {func(now, old *v1alpha1.Cleaner) { ask(old, "1"); ask(now, "2") }, nil},
		"Left":              {func(now, old *v1alpha1.Cleaner) { ask(old, "1"); ask(now, "1") }, nil},
		"Taken off":         {func(_, old *v1alpha1.Cleaner) { ask(old, "1") }, nil},
		"Not signed":        {func(now, _ *v1alpha1.Cleaner) { now.Annotations[v1alpha1.AnnotationRequestedAt] = "1" }, errRequestNotSigned},
		"Signed for before": {func(now, _ *v1alpha1.Cleaner) { ask(now, "1"); now.Annotations[v1alpha1.AnnotationRequestedAt] = "2" }, errRequestNotSigned},
		"By somebody else":  {func(now, _ *v1alpha1.Cleaner) { askAs("alice", now, "1") }, errRequestNotSigned},
		"Left by others":    {func(now, old *v1alpha1.Cleaner) { askAs("alice", old, "1"); askAs("alice", now, "1") }, nil},
		"Written":           {func(now, _ *v1alpha1.Cleaner) { now.Annotations[v1alpha1.AnnotationRequest] = "{}" }, errRequestWritten},
		"Put back": {func(now, old *v1alpha1.Cleaner) {
			ask(now, "1")
			old.Annotations[v1alpha1.AnnotationRequestedAt] = "1"
		}, errRequestWritten},
	} {
		t.Run(name, func(t *testing.T) {
			now := stored(t, a)
			old := now.DeepCopy()
			tc.change(now, old)
			req := request(t, "bob", now, old)
			change, err := a.readChange(t.Context(), &req)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.verifyRequest(t.Context(), ring, change, req.UserInfo); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if tc.want == nil {
				return
			}
			if answer := a.ownerValidator.Handle(t.Context(), req); answer.Allowed || !strings.Contains(answer.Result.Message, tc.want.Error()) {
				t.Errorf("the webhook answers %+v", answer)
			}
		})
	}
}

// A request is signed for the template that there is, and refused if that changes before it is judged.
func TestARequestIsSignedForItsTemplate(t *testing.T) {
	template := func(uid types.UID, generation int64) *v1alpha1.CleanerTemplate {
		return &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", UID: uid, Generation: generation}}
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	cluster := func(all ...client.Object) client.Reader {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(all...).Build()
	}
	for name, tc := range map[string]struct {
		uses          string
		signed, later client.Reader
		want, refused string
	}{
		"None":      {"", cluster(template("1", 3)), cluster(template("1", 3)), "", ""},
		"Unchanged": {"t", cluster(template("1", 3)), cluster(template("1", 3)), "1/3", ""},
		"Edited":    {"t", cluster(template("1", 3)), cluster(template("1", 4)), "1/3", "the template has changed"},
		"Made anew": {"t", cluster(template("1", 3)), cluster(template("2", 3)), "1/3", "the template has changed"},
		"Gone":      {"t", cluster(template("1", 3)), cluster(), "1/3", "the template has changed"},
		"Not there": {"t", cluster(), cluster(), "", ""},
		"Comes":     {"t", cluster(), cluster(template("1", 1)), "", "the template has changed"},
		"Unread":    {"t", cluster(template("1", 3)), unreadable{}, "1/3", "cannot read CleanerTemplate"},
	} {
		t.Run(name, func(t *testing.T) {
			a := storing(t)
			a.live = tc.signed
			old := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "1"}}
			if tc.uses != "" {
				old.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: tc.uses}
			}
			ring, err := a.keys.CurrentRing()
			if err != nil {
				t.Fatal(err)
			}
			old.Annotations = map[string]string{}
			a.sign(t, old, "alice")
			now := old.DeepCopy()
			now.Annotations[v1alpha1.AnnotationRequestedAt] = "1"
			req := request(t, "alice", now, old)
			after := patched(t, req, a.Handle(t.Context(), req))
			if made, err := author.ReadRequest(ring, after); err != nil || made.Template != tc.want || made.Author.Username != "alice" || !made.Time.Equal(moment) {
				t.Errorf("signed is %+v (%v), want template %q", made, err, tc.want)
			}
			a.live = tc.later
			answer := a.ownerValidator.Handle(t.Context(), request(t, "alice", after, old))
			if answer.Allowed != (tc.refused == "") || !answer.Allowed && !strings.Contains(answer.Result.Message, tc.refused) {
				t.Errorf("the webhook answers %+v, want %q", answer, tc.refused)
			}
		})
	}
	a := storing(t)
	a.live = unreadable{}
	old := stored(t, a)
	old.Spec.TemplateRef = &v1alpha1.TemplateRef{Name: "t"}
	now := old.DeepCopy()
	now.Annotations[v1alpha1.AnnotationRequestedAt] = "1"
	if answer := a.Handle(t.Context(), request(t, "alice", now, old)); answer.Allowed || !strings.Contains(answer.Result.Message, "cannot read CleanerTemplate") {
		t.Errorf("a request is signed for nobody knows which template: %+v", answer)
	}
}

// Who applies a manifest that lacks what is signed of a request, or has another text there, does not take it off.
func TestWhatIsSignedOfARequestStays(t *testing.T) {
	a := storing(t)
	old := stored(t, a)
	asks := old.DeepCopy()
	asks.Annotations[v1alpha1.AnnotationRequestedAt] = "1"
	req := request(t, "alice", asks, old)
	old = patched(t, req, a.Handle(t.Context(), req))
	for _, text := range []string{"", "{}"} {
		now := old.DeepCopy()
		if now.Annotations[v1alpha1.AnnotationRequest] = text; text == "" {
			delete(now.Annotations, v1alpha1.AnnotationRequest)
		}
		req := request(t, "bob", now, old)
		after := patched(t, req, a.Handle(t.Context(), req))
		if got := after.Annotations[v1alpha1.AnnotationRequest]; got == "" || got != old.Annotations[v1alpha1.AnnotationRequest] {
			t.Errorf("after %q was written, %q is there", text, got)
		}
	}
}

// unreadable is a cluster of which nothing can be read.
type unreadable struct{ client.Reader }

func (unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no answer")
}

// sign stores an author as somebody with the key could.
func (a *authorMutator) sign(t *testing.T, c *v1alpha1.Cleaner, name string) {
	t.Helper()
	ring, err := a.keys.CurrentRing()
	if err != nil {
		t.Fatal(err)
	}
	value, err := author.Sign(ring, c, author.Author{Username: name}, moment)
	if err != nil {
		t.Fatal(err)
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value}
}

// Without a key no author can be stored, so that nothing is written.
func TestNoAuthorWithoutAKey(t *testing.T) {
	a := storing(t)
	c := stored(t, a)
	a.keys = oneKey{err: errors.New("the key is lost")}
	req := request(t, "bob", c, nil)
	for _, h := range []admission.Handler{a, a.ownerValidator} {
		if answer := h.Handle(t.Context(), req); answer.Allowed || answer.Result.Code != 503 || !strings.Contains(answer.Result.Message, "the key is lost") {
			t.Errorf("%T: got %+v", h, fmt.Sprint(answer))
		}
	}
}
