// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// rowNames lists the Cleaners of an overview.
func rowNames(o *overview) []string {
	var out []string
	for i := range o.Rows {
		out = append(out, o.Rows[i].DisplayName())
	}
	return out
}

func TestMakeOverview(t *testing.T) {
	s := newSite(t, &commands{})
	rows := []summary{
		{Name: Name{"b", "broken"}, Tone: toneAttention, Reason: "AccessDenied", Message: "You may not list pods."}, {Name: Name{"a", "fresh"}, Tone: toneUnseen},
		{Name: Name{"", "everywhere"}, Tone: toneQuiet, Mode: "DryRun"}, {Name: Name{"a", "calm"}, Tone: toneQuiet, Done: 12345, Failed: 1}, {Name: Name{"b", "off"}, Tone: toneSuspended},
	}
	for _, r := range rows {
		s.fleet.putRow(r)
	}
	for name, tc := range map[string]struct {
		filter filter
		want   string
		says   string
	}{
		"All":       {filter{}, "b/broken a/fresh everywhere a/calm b/off", "5 Cleaners, 1 needs attention, 1 suspended."},
		"Namespace": {filter{Namespace: "a"}, "a/fresh a/calm", "2 Cleaners, none needs attention."},
		"Text":      {filter{Text: "ACCESS"}, "b/broken", "1 Cleaner, 1 needs attention."},
		"Mode":      {filter{Text: "dryrun"}, "everywhere", "1 Cleaner, none needs attention."},
		"Kind":      {filter{Text: "clustercleaner"}, "everywhere", "1 Cleaner, none needs attention."},
		"Tone":      {filter{Tone: toneQuiet}, "everywhere a/calm", "5 Cleaners, 1 needs attention, 1 suspended."},
		"Both":      {filter{Namespace: "b", Tone: toneQuiet}, "", "2 Cleaners, 1 needs attention, 1 suspended."},
		"Nothing":   {filter{Text: "none"}, "", "0 Cleaners."},
	} {
		t.Run(name, func(t *testing.T) {
			all, sources, _ := s.fleet.listRows()
			o := s.viewer.makeOverview(tc.filter, all, sources)
			if got := strings.Join(rowNames(o), " "); got != tc.want || o.Headline != tc.says {
				t.Errorf("it lists %s, and says %s", got, o.Headline)
			}
			if (o.Empty != "") != (tc.want == "") || !slices.Equal(o.Namespaces, []string{"a", "b"}) {
				t.Errorf("it says %q, and suggests %v", o.Empty, o.Namespaces)
			}
			shown := map[string]string{}
			for _, tile := range o.Tiles {
				shown[tile.Tone] = tile.Address
				if tile.Current != (tile.Tone == tc.filter.Tone) {
					t.Errorf("tile %q", tile.Label)
				}
			}
			if want := (filter{Namespace: tc.filter.Namespace, Text: tc.filter.Text, Tone: toneAttention, Page: 1}); shown[toneAttention] != want.address() {
				t.Errorf("the tile leads to %s", shown[toneAttention])
			}
		})
	}
}

// Ten thousand Cleaners are pages of a hundred, each of which says which ones it shows.
func TestOverviewOfTenThousand(t *testing.T) {
	s := newSite(t, &commands{})
	for i := range 10000 {
		s.fleet.putRow(summary{
			Name: Name{fmt.Sprintf("team-%03d", i%300), fmt.Sprintf("preview-%05d", i)}, Tone: toneQuiet, Reason: "NothingToDo", Message: "Nothing to clean up.", Next: begin.Add(time.Duration(i) * time.Second),
		})
	}
	began := time.Now()
	got := s.page(http.StatusOK, "/?page=3")
	t.Logf("%d bytes in %s", len(got), time.Since(began))
	wants(t, got, "201–300 of 10,000", `rel="prev"`, `rel="next"`, "10,000 Cleaners, none needs attention.", `<a id="previous" class="button" href="/?page=2"`)
	if n := strings.Count(got, "<tr id="); n != rowsPerPage || len(got) > 128<<10 {
		t.Errorf("%d rows, %d bytes", n, len(got))
	}
	if n := strings.Count(got, "<option"); n != maxChoices {
		t.Errorf("it suggests %d namespaces", n)
	}
	last := s.page(http.StatusOK, "/?page=999999999")
	wants(t, last, "9,901–10,000 of 10,000")
	if strings.Contains(last, `rel="next"`) {
		t.Error("there is a page after the last one")
	}
	wants(t, s.page(http.StatusOK, "/?page=-1&text=preview-00042"), "1–1 of 1", "preview-00042")
	// All pages together show each Cleaner once.
	seen := map[string]bool{}
	row := regexp.MustCompile(`<tr id="([^"]*)"`)
	for page := range 100 {
		for _, m := range row.FindAllStringSubmatch(s.page(http.StatusOK, fmt.Sprintf("/?page=%d", page+1)), -1) {
			seen[m[1]] = true
		}
	}
	if len(seen) != 10000 {
		t.Errorf("the pages show %d Cleaners", len(seen))
	}
}

// An address with anything in it is an overview.
func TestReadFilter(t *testing.T) {
	s := newSite(t, &commands{}, object(t, preview))
	for _, query := range []string{"state=forged", "page=x", "page=99999999999999999999", "text=" + strings.Repeat("a", 5000), "namespace=" + strings.Repeat("%FF", 300), "page=0"} {
		if got := s.page(http.StatusOK, "/?"+query); len(got) > 20<<10 {
			t.Errorf("%s: %d bytes", query, len(got))
		}
	}
}

// What is not known yet, or may not be seen, is said.
func TestOverviewSaysWhatIsMissing(t *testing.T) {
	s := newSite(t, &commands{})
	s.fleet.sources = map[string]source{}
	wants(t, s.page(http.StatusOK, "/"), "Reading the Cleaners of the cluster…")
	s.fleet.setSource("ClusterCleaner", source{Limit: "ClusterCleaners cannot be shown: forbidden"})
	s.fleet.setSource("Cleaner", source{Listed: true, Limit: "Only the Cleaners of namespace team are shown", Problem: "Cannot read Cleaners: connection refused"})
	wants(t, s.page(http.StatusOK, "/"), "ClusterCleaners cannot be shown: forbidden", "Only the Cleaners of namespace team are shown", "Cannot read Cleaners: connection refused", "There are no Cleaners here yet.")
}

func TestSummarize(t *testing.T) {
	for name, tc := range map[string]struct{ spec, status, want string }{
		"Unseen":     {"{}", "{}", toneUnseen},
		"Quiet":      {"{}", `{conditions: [{type: Ready, status: "True"}]}`, toneQuiet},
		"NotReady":   {"{}", `{conditions: [{type: Ready, status: "False"}]}`, toneAttention},
		"Unknown":    {"{}", `{conditions: [{type: Ready, status: "Unknown"}]}`, toneAttention},
		"Stalled":    {"{}", `{conditions: [{type: Ready, status: "True"}, {type: Stalled, status: "True"}]}`, toneAttention},
		"Mismatch":   {"{}", `{conditions: [{type: Ready, status: "True"}, {type: SchemaMismatch, status: "True"}]}`, toneAttention},
		"Working":    {"{}", `{conditions: [{type: Ready, status: "True"}, {type: Reconciling, status: "True"}]}`, toneWorking},
		"Suspended":  {"{suspend: true}", `{conditions: [{type: Ready, status: "False"}]}`, toneSuspended},
		"Unreadable": {"{suspend: maybe}", "{}", toneAttention},
	} {
		got := summarizeObject(object(t, "kind: Cleaner\nmetadata: {name: a, namespace: b}\nspec: "+tc.spec+"\nstatus: "+tc.status))
		if got.Tone != tc.want || got.DisplayName() != "b/a" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got := summarizeObject(object(t, preview))
	if got.Path() != "/cleaners/team/preview" || got.Version != "7" || got.Reason != "Holding" || got.Done != 1234 || got.Failed != 2 || !got.Next.Equal(begin.Add(90*time.Minute)) || got.LastAction != "delete" || got.LastObject != "ConfigMap shop/a" || got.Mode != "Enforce" {
		t.Errorf("%+v", got)
	}
}

func TestGroupDigits(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -999: "-999"} {
		if got := groupDigits(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
}
