// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
)

const (
	// rowsPerPage is how many Cleaners a page of the overview shows.
	rowsPerPage = 100
	// maxChoices is how many namespaces the filter suggests, and maxQuery how long a text it may have.
	maxChoices = 200
	maxQuery   = 200
)

// filter is what the overview is narrowed to.
type filter struct {
	Namespace, Text, Tone string
	Page                  int
}

// readFilter reads the filter from an address. What makes no sense there is left out.
func readFilter(q url.Values) filter {
	f := filter{Namespace: strings.TrimSpace(q.Get("namespace")), Text: strings.TrimSpace(q.Get("text")), Tone: q.Get("state"), Page: 1}
	if len(f.Namespace) > maxQuery || len(f.Text) > maxQuery {
		f.Namespace, f.Text = shorten(f.Namespace, maxQuery/4), shorten(f.Text, maxQuery/4)
	}
	if !slices.Contains(tones(), f.Tone) {
		f.Tone = ""
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 1 {
		f.Page = n
	}
	return f
}

// address returns the address of the overview with this filter.
func (f filter) address() string {
	q := url.Values{}
	for _, field := range []struct{ name, value string }{{"namespace", f.Namespace}, {"text", f.Text}, {"state", f.Tone}} {
		if field.value != "" {
			q.Set(field.name, field.value)
		}
	}
	if f.Page > 1 {
		q.Set("page", strconv.Itoa(f.Page))
	}
	if len(q) == 0 {
		return "/"
	}
	return "/?" + q.Encode()
}

// matchesText reports whether a Cleaner has the namespace and the text of the filter.
func (f filter) matchesText(r *summary) bool {
	if f.Namespace != "" && r.Namespace != f.Namespace {
		return false
	}
	if f.Text == "" {
		return true
	}
	text := strings.ToLower(f.Text)
	for _, in := range []string{r.DisplayName(), r.Kind(), r.Reason, r.Message, r.Mode, r.LastObject} {
		if strings.Contains(strings.ToLower(in), text) {
			return true
		}
	}
	return false
}

// tile is a choice of the overview: how many Cleaners are in a state.
type tile struct {
	Label, Tone, Count, Address string
	Current                     bool
}

// row is a Cleaner of the overview.
type row struct {
	summary
	ID         string
	NextTime   *moment
	LastTime   *moment
	DoneText   string
	FailedText string
}

// overview is the list of Cleaners.
type overview struct {
	Filter     filter
	Tiles      []tile
	Rows       []row
	Namespaces []string
	// Headline says in a sentence how the Cleaners are, and Shown which of them are on this page.
	Headline, Shown string
	// Loading says that they have not been listed yet.
	Loading        bool
	Notes          []string
	Previous, Next string
	Empty          string
}

// makeOverview narrows the Cleaners down, and lays out a page of them.
func (v viewer) makeOverview(f filter, rows []*summary, sources map[string]source) *overview {
	o := &overview{Filter: f}
	o.addNotes(sources)
	counts, namespaces := map[string]int{}, map[string]bool{}
	var found []*summary
	matched := 0
	for _, r := range rows {
		if r.Namespace != "" {
			namespaces[r.Namespace] = true
		}
		if !f.matchesText(r) {
			continue
		}
		matched++
		counts[r.Tone]++
		if f.Tone == "" || f.Tone == r.Tone {
			found = append(found, r)
		}
	}
	for name := range namespaces {
		o.Namespaces = append(o.Namespaces, name)
	}
	slices.Sort(o.Namespaces)
	o.Namespaces = o.Namespaces[:min(len(o.Namespaces), maxChoices)]
	o.addTiles(matched, counts)
	o.Headline = describeFleet(matched, counts)
	o.addRows(v, found)
	if len(found) == 0 && !o.Loading {
		o.Empty = "There are no Cleaners here yet."
		if len(rows) > 0 {
			o.Empty = "No Cleaner matches. Clear the filter to see all " + groupDigits(int64(len(rows))) + "."
		}
	}
	return o
}

// addNotes says what is not known yet, or may not be seen.
func (o *overview) addNotes(sources map[string]source) {
	for _, kind := range []string{manifests.KindCleaner, manifests.KindClusterCleaner} {
		from := sources[kind]
		o.Loading = o.Loading || !from.Listed && from.Limit == "" && from.Problem == ""
		for _, note := range []string{from.Problem, from.Limit} {
			if note != "" {
				o.Notes = append(o.Notes, note)
			}
		}
	}
}

// labelTone names a tone for people.
func labelTone(tone string) string {
	return map[string]string{toneAttention: "Needs attention", toneUnseen: "Not seen yet", toneWorking: "Working", toneQuiet: "Quiet", toneSuspended: "Suspended"}[tone]
}

func (o *overview) addTiles(matched int, counts map[string]int) {
	f := o.Filter
	f.Page = 1
	add := func(label, tone string, n int) {
		f.Tone = tone
		o.Tiles = append(o.Tiles, tile{Label: label, Tone: tone, Count: groupDigits(int64(n)), Address: f.address(), Current: o.Filter.Tone == tone})
	}
	add("All", "", matched)
	for _, tone := range tones() {
		if counts[tone] > 0 || o.Filter.Tone == tone || tone == toneAttention {
			add(labelTone(tone), tone, counts[tone])
		}
	}
}

// describeFleet says in a sentence how the Cleaners are. A screen reader reads it when it changes.
func describeFleet(matched int, counts map[string]int) string {
	text := countOf(matched, "Cleaner")
	switch n := counts[toneAttention]; {
	case matched == 0:
		return text + "."
	case n == 0:
		text += ", none needs attention"
	case n == 1:
		text += ", 1 needs attention"
	default:
		text += ", " + groupDigits(int64(n)) + " need attention"
	}
	if n := counts[toneSuspended]; n > 0 {
		text += ", " + groupDigits(int64(n)) + " suspended"
	}
	return text + "."
}

// addRows lays out the page that the filter asks for.
func (o *overview) addRows(v viewer, found []*summary) {
	pages := max(1, (len(found)+rowsPerPage-1)/rowsPerPage)
	o.Filter.Page = min(max(1, o.Filter.Page), pages)
	from := (o.Filter.Page - 1) * rowsPerPage
	to := min(len(found), from+rowsPerPage)
	for _, r := range found[from:to] {
		shown := row{summary: *r, ID: "row:" + r.Kind() + ":" + r.DisplayName(), NextTime: v.showTime(r.Next), LastTime: v.showTime(r.LastActed), DoneText: groupDigits(r.Done)}
		if r.Failed > 0 {
			shown.FailedText = groupDigits(r.Failed)
		}
		o.Rows = append(o.Rows, shown)
	}
	if len(found) > 0 {
		o.Shown = groupDigits(int64(from+1)) + "–" + groupDigits(int64(to)) + " of " + groupDigits(int64(len(found)))
	}
	link := func(page int) string {
		f := o.Filter
		f.Page = page
		return f.address()
	}
	if o.Filter.Page > 1 {
		o.Previous = link(o.Filter.Page - 1)
	}
	if o.Filter.Page < pages {
		o.Next = link(o.Filter.Page + 1)
	}
}

// showOverview shows the list of Cleaners.
func (s *Server) showOverview(w http.ResponseWriter, r *http.Request) {
	rows, sources, version := s.fleet.listRows()
	content := s.viewer.makeOverview(readFilter(r.URL.Query()), rows, sources)
	s.showPage(w, r, http.StatusOK, &page{
		Template: "overview", Title: "Cleaners", Current: "/", Events: "/events?" + url.Values{"since": {version}}.Encode(), Content: content,
	})
}
