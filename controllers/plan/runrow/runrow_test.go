// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package runrow

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func TestRowsAreReadAsTheyAreWritten(t *testing.T) {
	for _, r := range []Row{
		{Rule: "targets.pods", Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "7"}},
		{Rule: "targets.r", Ref: observed.Ref{Resource: schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "revisions"}, Namespace: "n", Name: "x.y", UID: "u", ResourceVersion: "9"}},
		{Rule: "r", Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}, Namespace: "n", Name: "a b", UID: "u", ResourceVersion: "9"}},
		{Rule: "r", Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}, Namespace: "n", Name: "a u 8", UID: "u", ResourceVersion: "9"}},
	} {
		got, err := ParseRow(r.String())
		if err != nil || got != r {
			t.Errorf("%s was read as %+v, %v", r, got, err)
		}
	}
	for _, text := range []string{"", "a b c d", "a pods/v1 n/x", "a pods/v1 n m/x u v", "a pods/v1 n/ u v", "a pods n/x u v", "a pods/v1 x u v", "a pods/v1 n/ u v", " pods/v1 n/x u v", "a pods/v1 n/x  v", "a pods/v1/w n/x u v"} {
		if r, err := ParseRow(text); err == nil {
			t.Errorf("%q was read as %+v", text, r)
		}
	}
}

// FuzzRow shows that the row of an object can be read back, whatever name the API server lets it have: that of an Event may have spaces.
func FuzzRow(f *testing.F) {
	for _, name := range []string{"a", "x.y", "a b", " ", "  a  b ", "a u 1", "n/a", "a/b", "%20", "\n", "\t\"\\", "名 前", "\u2028", "\u0000", strings.Repeat(" ", MaxName)} {
		f.Add(name, "n")
		f.Add(name, "")
	}
	f.Fuzz(func(t *testing.T, name, namespace string) {
		if name == "" || len(name) > MaxName || !utf8.ValidString(name) || strings.ContainsAny(namespace, " /") || !utf8.ValidString(namespace) {
			return // no object has it, or none that is acted on
		}
		want := Row{Rule: "targets.all", Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}, Namespace: namespace, Name: name, UID: "u-1", ResourceVersion: "1"}}
		text, err := json.Marshal([]string{want.String()})
		if err != nil {
			t.Fatal(err)
		}
		var stored []string
		if err := json.Unmarshal(text, &stored); err != nil {
			t.Fatal(err)
		}
		if got, err := ParseRow(stored[0]); err != nil || got != want {
			t.Errorf("%q was read as %+v, %v", stored[0], got, err)
		}
	})
}

// Whatever bytes an object is named with: what is recorded of it is what is read back of that.
func TestARowIsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 8), func(b []byte) string { return string(b) })
		row := Row{Rule: text.Draw(t, "rule"), Ref: observed.Ref{Namespace: text.Draw(t, "namespace"), Name: text.Draw(t, "name"), UID: types.UID(text.Draw(t, "UID")), ResourceVersion: text.Draw(t, "version")}}.String()
		stored, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		var read string
		if err := json.Unmarshal(stored, &read); err != nil || read != row {
			t.Fatalf("%q is read back as %q, %v", row, read, err)
		}
	})
}

func TestWhatMadeARow(t *testing.T) {
	work := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{{Name: "kept"}, {Name: "pods", Delete: true}}}
	for rule, want := range map[string]int{TargetRule("pods"): 1, TargetRule("kept"): -1, TargetRule("none"): -1, "pods": -1} {
		row := Row{Rule: rule}
		if got := row.FindTarget(work); got != want || row.IsOfRule() != (rule == "pods") {
			t.Errorf("%s: target %d, of a rule: %t", rule, got, row.IsOfRule())
		}
	}
}

func TestStoredBytes(t *testing.T) {
	for text, want := range map[string]int{"": 3, "a b": 6, "<": 9, "\"": 5} {
		if got := StoredBytes(text); got != want {
			t.Errorf("%q takes %d bytes, want %d", text, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, tc := range map[string]struct{ shown, forbidden string }{
		"web":                          {"web", ""},
		"a b":                          {"a b", ""},
		"a\nb":                         {"a b", "its name contains a control character"},
		"a\u202eb":                     {"a b", ""},
		"\xff":                         {"\ufffd", "its name is not valid UTF-8"},
		strings.Repeat("a", MaxName):   {strings.Repeat("a", MaxName), ""},
		strings.Repeat("a", MaxName+1): {strings.Repeat("a", MaxName+1), "its name is longer than 1024 bytes"},
	} {
		if got := ShowName(name); got != tc.shown {
			t.Errorf("%q is shown as %q", name, got)
		}
		if got := ForbidsName(name); (got == "") != (tc.forbidden == "") || !strings.HasPrefix(got, tc.forbidden) {
			t.Errorf("%q: %s", name, got)
		}
	}
}
