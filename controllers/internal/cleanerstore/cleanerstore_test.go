// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cleanerstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/signedrecords"
	"github.com/vtex/cleaner/controllers/signing"
)

var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// leading is a Lease that is fresh, or not.
type leading bool

// Fresh says that this process leads.
func (l leading) Fresh() bool { return bool(l) }

// read is a Cleaner as it was read, with an open run, whose record is signed.
func read(t *testing.T) *Store {
	t.Helper()
	ring, err := signing.NewRing([]signing.Key{signing.NewKey(now)}, signing.RotationPolicy{}, now)
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "uid", Generation: 1, ResourceVersion: "7"},
		Spec:       v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}},
	}
	c.Status.Run = &v1alpha1.Run{Number: 1, Decides: "v1:x", Rows: []string{"targets.pods pods/v1 shop/a 0f6d1f1c-0000-4000-8000-000000000001 1"}}
	o := New(&API{Lease: leading(true), Clock: clocktesting.NewFakePassiveClock(now)}, types.NamespacedName{Namespace: "shop", Name: "c"}, c, &Memory{})
	o.Ring = ring
	signIt(t, o, c)
	o.Stored = c.DeepCopy()
	return o
}

// signIt signs the record of a Cleaner.
func signIt(t *testing.T, o *Store, c v1alpha1.Owner) {
	t.Helper()
	if err := signedrecords.SignRecord(o.Ring, c, c.State(), now); err != nil {
		t.Fatal(err)
	}
}

// TestAWriteNamesOnlyWhatItIsFor keeps the report from touching the record, and the record from touching the report.
func TestAWriteNamesOnlyWhatItIsFor(t *testing.T) {
	var path, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		path, body = r.URL.Path, string(text)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"Cleaner","metadata":{"namespace":"shop","name":"c","uid":"uid","resourceVersion":"8"},`+
			`"spec":{"ttl":"1h"},"status":{"runs":1}}`)
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Cleaner"), meta.RESTScopeNamespace)
	to, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	const cleaner = "/apis/cleaner.vtex.dev/v1alpha1/namespaces/shop/cleaners/c"
	cases := map[string]struct {
		write      func(p *Store) error
		path, body string
	}{
		"Finalizer": {
			write: func(p *Store) error {
				return p.WriteMetadata(t.Context(), func(c v1alpha1.Owner) { controllerutil.AddFinalizer(c, v1alpha1.Finalizer) })
			},
			path: cleaner, body: `{"metadata":{"finalizers":["cleaner.vtex.dev/run"],"resourceVersion":"7"}}`,
		},
		"Record": {
			write: func(p *Store) error {
				return p.WriteStatus(t.Context(), func(s *v1alpha1.CleanerStatus) { s.Run.Rows, s.Run.Result = nil, v1alpha1.ResultPartial })
			},
			path: cleaner + "/status", body: `{"metadata":{"resourceVersion":"7"},"status":{"recordedAt":"…","run":{"result":"Partial","rows":null},"signature":"…"}}`,
		},
		"Report": {
			write: func(p *Store) error {
				_, _, err := p.WriteReport(t.Context(), now, nil)
				return err
			},
			path: cleaner + "/status", body: `{"metadata":{"uid":"uid"},"status":{"observedGeneration":3}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := read(t)
			o.API.Client = to
			o.Stored.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
			o.Draft.State().ObservedGeneration = 3 // a draft of the report
			o.Draft.State().Runs, o.Draft.State().Run = 9, nil
			if err := tc.write(o); err != nil {
				t.Fatal(err)
			}
			body = regexp.MustCompile(`("(?:signature|recordedAt)":)"[^"]+"`).ReplaceAllString(body, `$1"…"`)
			if path != tc.path || body != tc.body {
				t.Errorf("sent to %s:\n%s\nwant to %s:\n%s", path, body, tc.path, tc.body)
			}
			if name != "Report" && (o.Stored.GetResourceVersion() != "8" || o.Stored.Common().TTL != "1h" || o.Draft.State().Runs != 1 || o.Draft.State().ObservedGeneration != 3) {
				t.Errorf("the answer was not taken: read %+v, draft %+v", o.Stored, o.Draft.State())
			}
		})
	}
}

// The answer to a request is a part of the signed record, so nobody can take it back; any other report leaves the record alone.
func TestAnAnswerIsSigned(t *testing.T) {
	for name, request := range map[string]string{"Answer": "now", "AReport": ""} {
		t.Run(name, func(t *testing.T) {
			o := read(t)
			o.Draft.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: request})
			o.Draft.State().LastRequestedAt = request
			patch, err := o.reportPatch()
			if err != nil {
				t.Fatal(err)
			}
			change, err := patch.Data(nil)
			if err != nil {
				t.Fatal(err)
			}
			before, err := json.Marshal(o.Stored)
			if err != nil {
				t.Fatal(err)
			}
			text, err := jsonpatch.MergePatch(before, change)
			if err != nil {
				t.Fatal(err)
			}
			after := &v1alpha1.Cleaner{}
			if err := json.Unmarshal(text, after); err != nil {
				t.Fatal(err)
			}
			if _, err := signedrecords.VerifyRecord(o.Ring, after); err != nil || after.Status.LastRequestedAt != request || len(after.Status.Run.Rows) != 1 {
				t.Errorf("%v: the status is %+v", err, after.Status)
			}
			if signs := strings.Contains(string(change), "signature"); signs != (request != "") || signs != strings.Contains(string(change), `"resourceVersion":"7"`) {
				t.Errorf("the patch is %s", change)
			}
		})
	}
}

// An answer signs the whole record. So none is written over a record that is not believed, whatever was verified before.
func TestAnAnswerSignsNoForgedRecord(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(o *Store, c *v1alpha1.Cleaner)
		want   error
	}{
		"AsVerified": {func(*Store, *v1alpha1.Cleaner) {}, nil},
		"VerifiedUnderAnotherVersion": {func(o *Store, _ *v1alpha1.Cleaner) { // its metadata were written since
			o.memory.verified.version = "6"
		}, nil},
		"Forged": {func(o *Store, c *v1alpha1.Cleaner) {
			o.memory.verified.version = "6"
			c.Status.Run.Rows = []string{"targets.pods pods/v1 shop/b 0f6d1f1c-0000-4000-8000-000000000002 2"}
		}, signedrecords.ErrForeign},
		"Never": {func(o *Store, c *v1alpha1.Cleaner) {
			o.memory.verified, o.memory.Record = verified{}, nil
			c.Status.Run.ServiceAccountName = "admin"
		}, signedrecords.ErrForeign},
		"Earlier": {func(o *Store, c *v1alpha1.Cleaner) {
			o.memory.verified = verified{}
			later := c.DeepCopy()
			signIt(t, o, later)
			o.memory.rememberRecord(&later.Status)
		}, signedrecords.ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			o := read(t)
			if _, err := o.BelieveRecord(); err != nil {
				t.Fatal(err)
			}
			tc.change(o, o.Stored.(*v1alpha1.Cleaner))
			*o.Draft.State() = *o.Stored.State().DeepCopy()
			o.Draft.State().LastRequestedAt = "now"
			if patch, err := o.reportPatch(); !errors.Is(err, tc.want) || (patch == nil) != (tc.want != nil) {
				t.Errorf("got %v and %v, want %v", patch, err, tc.want)
			}
			o.Draft.State().LastRequestedAt = o.Stored.State().LastRequestedAt
			if _, err := o.reportPatch(); err != nil {
				t.Errorf("a report without an answer: %v", err)
			}
		})
	}
}

// forging is an API server with a Cleaner whose status somebody has just written.
type forging struct {
	client.Reader
	now *v1alpha1.Cleaner
}

func (f forging) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	f.now.DeepCopyInto(into.(*v1alpha1.Cleaner)) //nolint:forcetypeassert // nothing else is read
	return nil
}

// A record that was emptied, or in whose place an earlier one was put back, is none, even if nothing but the state of its run
// differs: what is done must not be done again, and a sink gets no two events of one number.
func TestAnEarlierRecordIsNotBelieved(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(earlier, now *v1alpha1.Cleaner)
		want   error
	}{
		"Same":    {func(earlier, now *v1alpha1.Cleaner) { now.DeepCopyInto(earlier) }, nil},
		"Earlier": {func(*v1alpha1.Cleaner, *v1alpha1.Cleaner) {}, signedrecords.ErrForeign},
		"Emptied": {func(earlier, _ *v1alpha1.Cleaner) { earlier.Status = v1alpha1.CleanerStatus{} }, signedrecords.ErrForeign},
		"OfAnEarlierVersion": {func(earlier, now *v1alpha1.Cleaner) { // which noted no times
			now.DeepCopyInto(earlier)
			earlier.Status.Runs--
		}, signedrecords.ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			o := read(t)
			c := o.Stored.(*v1alpha1.Cleaner)
			signIt(t, o, c)
			earlier := c.DeepCopy()
			if _, err := o.BelieveRecord(); err != nil {
				t.Fatal(err)
			}
			signIt(t, o, c) // it is written once more, with the same content
			o.memory.verified = verified{}
			if _, err := o.BelieveRecord(); err != nil {
				t.Fatal(err)
			}
			tc.change(earlier, c)
			o.Stored, o.memory.verified = earlier, verified{}
			if _, err := o.BelieveRecord(); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
	t.Run("Never", func(t *testing.T) {
		o := read(t)
		o.Stored, o.memory = &v1alpha1.Cleaner{}, &Memory{}
		if _, err := o.BelieveRecord(); err != nil {
			t.Error(err)
		}
	})
}

// What is read after the operator has deleted a Cleaner is not believed either, before it is verified.
func TestARecordThatIsReadAgainIsVerified(t *testing.T) {
	o := read(t)
	before := o.Stored
	now := before.(*v1alpha1.Cleaner).DeepCopy()
	now.ResourceVersion, now.Status.Run.Number = "8", 99
	o.API.Live = forging{now: now}
	if err := o.RereadCleaner(t.Context()); !errors.Is(err, ErrOutdated) || o.Stored != before {
		t.Errorf("got %v, and run %d", err, o.Stored.State().Run.Number)
	}
	signIt(t, o, now)
	if err := o.RereadCleaner(t.Context()); err != nil || o.Stored.State().Run.Number != 99 {
		t.Errorf("signed: got %v, and run %d", err, o.Stored.State().Run.Number)
	}
}

// A report is written when it says something new, at most once a second, and by the leader alone.
func TestSendReport(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(o *Store)
		counters *v1alpha1.Counters
		sent     bool
		due      time.Time
		err      error
	}{
		"News":         {change: func(o *Store) { o.Draft.State().ObservedGeneration = 3 }, counters: &v1alpha1.Counters{Acted: 5}, sent: true},
		"NoNews":       {change: func(*Store) {}},
		"CountersOnly": {change: func(*Store) {}, counters: &v1alpha1.Counters{Acted: 5}},
		"RuleCountsOnly": {change: func(o *Store) {
			o.Stored.State().RuleCounts = []v1alpha1.RuleCounts{{Rule: "old", Items: 3, Matched: 2}}
			o.Draft.State().RuleCounts = []v1alpha1.RuleCounts{{Rule: "old", Items: 4, Matched: 1}}
		}},
		"TooSoon": {change: func(o *Store) {
			o.Draft.State().ObservedGeneration, o.memory.reported = 3, now.Add(-reportEvery/2)
		}, due: now.Add(reportEvery / 2)},
		"Leaving": {change: func(o *Store) {
			o.Draft.State().ObservedGeneration = 3
			o.Draft.SetDeletionTimestamp(new(metav1.NewTime(now)))
		}},
		"NotLeader": {change: func(o *Store) {
			o.Draft.State().ObservedGeneration, o.API.Lease = 3, leading(false)
		}, err: ErrNotOwner},
	} {
		t.Run(name, func(t *testing.T) {
			o := read(t)
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			o.API.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(o.Stored.DeepCopyOwner()).WithStatusSubresource(o.Stored).Build()
			tc.change(o)
			sent, due, err := o.WriteReport(t.Context(), now, tc.counters)
			if sent != tc.sent || !due.Equal(tc.due) || !errors.Is(err, tc.err) {
				t.Fatalf("sent %v, due %s, %v", sent, due, err)
			}
			stored := &v1alpha1.Cleaner{}
			if err := o.API.Client.Get(t.Context(), o.Key, stored); err != nil {
				t.Fatal(err)
			}
			if written := stored.Status.ObservedGeneration == 3; written != tc.sent || written != (stored.Status.Counters != nil) {
				t.Errorf("the status is %+v", stored.Status)
			}
			if tc.sent && (o.memory.Written != stored.ResourceVersion || !o.memory.reported.Equal(now)) {
				t.Errorf("it remembers version %s, written at %s", o.memory.Written, o.memory.reported)
			}
		})
	}
}

// The counts of rules are written with whatever else is written, and when they are those of other rules.
func TestRuleCountsAreWritten(t *testing.T) {
	counts := func(rule string, items int64) []v1alpha1.RuleCounts {
		return []v1alpha1.RuleCounts{{Rule: rule, Items: items}}
	}
	for name, tc := range map[string]struct {
		stored, draft []v1alpha1.RuleCounts
		news          bool
		want          []v1alpha1.RuleCounts
	}{
		"WithNews":    {counts("old", 3), counts("old", 4), true, counts("old", 4)},
		"WithoutNews": {counts("old", 3), counts("old", 4), false, counts("old", 3)},
		"First":       {nil, counts("old", 4), false, counts("old", 4)},
		"OtherRule":   {counts("old", 3), counts("new", 3), false, counts("new", 3)},
		"NoneAnyMore": {counts("old", 3), nil, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := read(t)
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			o.Stored.State().RuleCounts, o.Draft.State().RuleCounts = tc.stored, tc.draft
			o.API.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(o.Stored.DeepCopyOwner()).WithStatusSubresource(o.Stored).Build()
			if tc.news {
				o.Draft.State().ObservedGeneration = 3
			}
			if _, _, err := o.WriteReport(t.Context(), now, nil); err != nil {
				t.Fatal(err)
			}
			stored := &v1alpha1.Cleaner{}
			if err := o.API.Client.Get(t.Context(), o.Key, stored); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(stored.Status.RuleCounts, tc.want) {
				t.Errorf("stored are %v, not %v", stored.Status.RuleCounts, tc.want)
			}
		})
	}
}

// An answer that refuses a write says that nothing was written; no other error does.
func TestMayBeWritten(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"None":        {nil, false},
		"Conflict":    {apierrors.NewConflict(schema.GroupResource{}, "c", nil), false},
		"Invalid":     {fmt.Errorf("cannot write: %w", apierrors.NewInvalid(schema.GroupKind{}, "c", nil)), false},
		"TooMany":     {apierrors.NewTooManyRequests("later", 1), false},
		"NotOwner":    {ErrNotOwner, false},
		"Lost":        {io.ErrUnexpectedEOF, true},
		"Ended":       {context.DeadlineExceeded, true},
		"ServerError": {apierrors.NewInternalError(io.EOF), true},
		"Timeout":     {apierrors.NewTimeoutError("etcd", 1), true},
	} {
		if got := MayBeWritten(tc.err); got != tc.want {
			t.Errorf("%s: it is %v that it may be written", name, got)
		}
	}
}
