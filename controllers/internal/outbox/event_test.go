// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package outbox

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func identity(name string) CleanerRef {
	return CleanerRef{Kind: "Cleaner", Namespace: "faststore-proxy", Name: name, UID: "b0f5c9a2-4a52-4f1c-9a0c-0d1a7b6c5e4f"}
}

// finished is a run that deleted one object and found another one gone.
func finished(number int64) *v1alpha1.Run {
	at := func(s int) metav1.Time { return metav1.Date(2024, 5, 6, 7, 8, s, 0, time.UTC) }
	end := at(30)
	return &v1alpha1.Run{
		Number: number, Decides: "v1:00", DecidedAt: at(9), FinishedAt: &end, Result: v1alpha1.ResultCompleted,
		Helm: &v1alpha1.HelmRelease{Name: "account", Revision: 2, UID: "u", Outcome: v1alpha1.OutcomeDeleted},
		Counts: []v1alpha1.Count{
			{Resource: "revisions.serving.knative.dev/v1", Outcome: v1alpha1.OutcomeDeleted, Count: 1},
			{Resource: "secrets/v1", Outcome: v1alpha1.OutcomeGone, Count: 1},
		},
		Outcomes: []v1alpha1.RowOutcome{
			{Row: "targets.revisions revisions.serving.knative.dev/v1 faststore-proxy/r-00001 u-1 17", Outcome: v1alpha1.OutcomeDeleted},
			{Row: "targets.secret secrets/v1 faststore-proxy/s u-2 18", Outcome: v1alpha1.OutcomeGone},
		},
	}
}

// TestRefOf shows that a reference says whose run it is: a Cleaner and a ClusterCleaner may have one name.
func TestRefOf(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "u"}
	cluster := metav1.ObjectMeta{Name: "c", UID: "u"}
	for _, tc := range []struct {
		of            v1alpha1.Owner
		want          CleanerRef
		clusterScoped bool
	}{
		{&v1alpha1.Cleaner{ObjectMeta: meta}, CleanerRef{Kind: "Cleaner", Namespace: "shop", Name: "c", UID: "u"}, false},
		{&v1alpha1.ClusterCleaner{ObjectMeta: cluster}, CleanerRef{Kind: "ClusterCleaner", Name: "c", UID: "u"}, true},
	} {
		got := RefOf(tc.of)
		if diff := cmp.Diff(tc.want, got); diff != "" || got.isClusterScoped() != tc.clusterScoped {
			t.Errorf("%s: cluster-scoped: %t (-want +got):\n%s", tc.want.Kind, got.isClusterScoped(), diff)
		}
		if _, err := NewEvent(got, finished(1)); err != nil {
			t.Errorf("%s: %v", tc.want.Kind, err)
		}
	}
}

func TestEventGolden(t *testing.T) {
	partial := finished(7)
	partial.Result, partial.Message = v1alpha1.ResultPartial, "the spec was edited during the run: <stopped>"
	partial.Withheld = []v1alpha1.Withheld{{Object: "ServiceAccount shop/default", Because: "it is labelled as protected"}}
	partial.Helm, partial.Outcomes = nil, partial.Outcomes[:1]
	empty := finished(1)
	empty.Helm, empty.Counts, empty.Outcomes = nil, nil, nil

	for name, run := range map[string]*v1alpha1.Run{"cleaned": finished(3), "partial": partial, "empty": empty} {
		t.Run(name, func(t *testing.T) {
			e, err := NewEvent(identity("sfj-commit--account"), run)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(e, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".json")
			if *update {
				if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.TrimSpace(string(want)), string(got)); diff != "" {
				t.Errorf("an event that consumers rely on has changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventType(t *testing.T) {
	withheld := []v1alpha1.Withheld{{Object: "o", Because: "b"}}
	cases := map[string]struct {
		reason   string
		result   v1alpha1.Result
		withheld []v1alpha1.Withheld
		want     string
	}{
		"Completed": {"all is gone", v1alpha1.ResultCompleted, nil, TypeCleaned},
		"Withheld":  {"a protected object is still there", v1alpha1.ResultCompleted, withheld, TypePartial},
		"Partial":   {"something was kept", v1alpha1.ResultPartial, nil, TypePartial},
		"Abandoned": {"nothing is known", v1alpha1.ResultAbandoned, nil, TypePartial},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := finished(1)
			run.Result, run.Withheld = tc.result, tc.withheld
			e, err := NewEvent(identity("c"), run)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, e.Type()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestARowThatCannotBeReadCostsNoEvent shows that what another version of the operator wrote, or somebody else, is left
// out of the objects, and not of the counts.
func TestARowThatCannotBeReadCostsNoEvent(t *testing.T) {
	run := finished(1)
	run.Outcomes = append([]v1alpha1.RowOutcome{{Row: "v2|something else", Outcome: v1alpha1.OutcomeKept}}, run.Outcomes...)
	run.Counts = append(run.Counts, v1alpha1.Count{Resource: "unreadable", Outcome: v1alpha1.OutcomeKept, Count: 1})
	e, err := NewEvent(identity("c"), run)
	if err != nil {
		t.Fatal(err)
	}
	var got eventData
	if err := json.Unmarshal(e.Data(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Objects) != 2 || len(got.Counts) != 3 || !got.Truncated {
		t.Errorf("the event says %s", e.Data())
	}
}

func TestEventIsTheSameWhenReadBack(t *testing.T) {
	run := finished(1)
	run.DecidedAt = metav1.NewTime(run.DecidedAt.Add(123456789).In(time.FixedZone("", 3600)))
	*run.FinishedAt = metav1.NewTime(run.FinishedAt.Add(987654321).In(time.FixedZone("", -3600)))
	text, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	read := &v1alpha1.Run{}
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatal(err)
	}
	var events [2][]byte
	for i, r := range []*v1alpha1.Run{run, read} {
		e, err := NewEvent(identity("c"), r)
		if err != nil {
			t.Fatal(err)
		}
		if events[i], err = json.Marshal(e); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(events[0], events[1]) {
		t.Errorf("as written:\n%s\nas read back:\n%s", events[0], events[1])
	}
}

func TestEventErrors(t *testing.T) {
	cases := map[string]struct {
		reason string
		edit   func(*CleanerRef, *v1alpha1.Run)
	}{
		"NoResult":   {"an open run is not reported", func(_ *CleanerRef, r *v1alpha1.Run) { r.Result = "" }},
		"NoEnd":      {"the time of the event is recorded, not now", func(_ *CleanerRef, r *v1alpha1.Run) { r.FinishedAt = nil }},
		"NoNumber":   {"runs are numbered from 1", func(_ *CleanerRef, r *v1alpha1.Run) { r.Number = 0 }},
		"NoUID":      {"the id would not be unique", func(c *CleanerRef, _ *v1alpha1.Run) { c.UID = "" }},
		"NoName":     {"the source would be another one's", func(c *CleanerRef, _ *v1alpha1.Run) { c.Name = "" }},
		"BadSource":  {"a URI has no such characters", func(c *CleanerRef, _ *v1alpha1.Run) { c.Name = "%zz" }},
		"EmptyKinds": {"a kind is needed for the source", func(c *CleanerRef, _ *v1alpha1.Run) { c.Kind = "" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, run := identity("c"), finished(1)
			tc.edit(&c, run)
			if e, err := NewEvent(c, run); err == nil {
				t.Errorf("%s: got an event:\n%s", tc.reason, e)
			}
		})
	}
}

func TestSource(t *testing.T) {
	want := []string{
		"/apis/cleaner.vtex.dev/v1alpha1/namespaces/faststore-proxy/cleaners/c",
		"/apis/cleaner.vtex.dev/v1alpha1/clustercleaners/c",
	}
	got := []string{formatSource(identity("c")), formatSource(CleanerRef{Kind: "ClusterCleaner", Name: "c"})}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEventSize(t *testing.T) {
	long := strings.Repeat("x", 250)
	rows := func(n int, name string) (all []v1alpha1.RowOutcome) {
		for i := range n {
			all = append(all, v1alpha1.RowOutcome{Row: fmt.Sprintf("targets.t pods/v1 ns/%s%03d u 1", name, i), Outcome: v1alpha1.OutcomeDeleted})
		}
		return all
	}
	withheld := func(n int) (all []v1alpha1.Withheld) {
		for range n {
			all = append(all, v1alpha1.Withheld{Object: long, Because: long})
		}
		return all
	}
	type size struct {
		Objects, Withheld, Counts int
		Truncated                 bool
	}
	cases := map[string]struct {
		reason   string
		rows     []v1alpha1.RowOutcome
		withheld []v1alpha1.Withheld
		deleted  int64
		message  string
		want     size
	}{
		"Fits":        {"nothing is left out", rows(200, ""), nil, 200, "", size{200, 0, 1, false}},
		"MoreRows":    {"the run had more rows than are named", rows(200, ""), nil, 5000, "", size{200, 0, 1, true}},
		"TooManyRows": {"never more than 200", rows(300, ""), nil, 300, "", size{200, 0, 1, true}},
		"LongNames":   {"the last references go first", rows(200, long), nil, 200, "", size{185, 0, 1, true}},
		"Withheld":    {"then what was withheld goes", rows(200, long), withheld(200), 200, "", size{0, 123, 1, true}},
		"LongMessage": {"a message is cut", nil, nil, 0, strings.Repeat("é", 100_000), size{0, 0, 1, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			run := finished(1)
			run.Helm, run.Outcomes, run.Withheld, run.Message = nil, tc.rows, tc.withheld, tc.message
			run.Counts = []v1alpha1.Count{{Resource: "pods/v1", Outcome: v1alpha1.OutcomeDeleted, Count: tc.deleted}}
			e, err := NewEvent(identity("c"), run)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(e.Data()); n > maxData {
				t.Errorf("%s: %d bytes", tc.reason, n)
			}
			var d eventData
			if err := json.Unmarshal(e.Data(), &d); err != nil {
				t.Fatal(err)
			}
			got := size{len(d.Objects), len(d.Withheld), len(d.Counts), d.Truncated}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for i, o := range d.Objects {
				if want := fmt.Sprintf("%03d", i); !strings.HasSuffix(o.Name, want) {
					t.Fatalf("%s: reference %d is %q", tc.reason, i, o.Name)
				}
			}
			if n := len(e.Data()); (len(d.Objects) < len(tc.rows) && len(tc.rows) <= maxObjects) && n < maxData-len(long)*3 {
				t.Errorf("%s: only %d bytes are used", tc.reason, n)
			}
			if tc.message != "" && d.Message != tc.message[:maxMessage] {
				t.Errorf("%s: got %d bytes of it", tc.reason, len(d.Message))
			}
		})
	}
}
