// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// maxWaste bounds how many objects one page counts.
const maxWaste = 200_000

// Wanted is an object that a Cleaner would delete or evict now, or would if nothing prevented it.
type Wanted struct {
	UID types.UID
	// Kind is its kind, with its group after a dot if it has one.
	Kind    string
	Created time.Time
}

// ListWanted lists what a stored Cleaner wants to take now. It changes nothing.
type ListWanted func(context.Context, *unstructured.Unstructured) ([]Wanted, error)

// ageGroup is a column of the waste: objects that are younger than a duration, but belong to no earlier column.
type ageGroup struct {
	label   string
	younger time.Duration
}

// ageGroups are in the order of age. The last one has no end.
func ageGroups() []ageGroup {
	const day = 24 * time.Hour
	return []ageGroup{{"under 1 day", day}, {"1 to 7 days", 7 * day}, {"7 to 30 days", 30 * day}, {"30 to 90 days", 90 * day}, {"over 90 days", 1<<63 - 1}}
}

// wastePage shows what the Cleaners want to take now, by kind and age.
type wastePage struct {
	Filter filter
	// Asked says that the user has asked for it; Problems say what is not counted, and why.
	Asked    bool
	Problems []string
	Headline string
	Ages     []string
	Rows     []wasteRow
	// MoreRows says how many kinds are not shown.
	MoreRows string
}

// wasteRow is a kind. Counts and Bars have an entry for each age.
type wasteRow struct {
	Kind, Total, Title string
	Counts             []string
	Bars               []wasteBar
}

// wasteBar is a part of a bar of SVG, in percents.
type wasteBar struct{ X, Width, Class string }

// showWaste shows the waste of the Cleaners of the filter, as soon as it is asked for: it reads much.
func (s *Server) showWaste(w http.ResponseWriter, r *http.Request) {
	f := readFilter(r.URL.Query())
	content := &wastePage{Filter: f, Asked: r.URL.Query().Get("count") != ""}
	if content.Asked {
		now := s.Clock.Now()
		made, err := takeTurn(r.Context(), s.turns, forecastTimeout, func(ctx context.Context) (*wasteCount, error) {
			count := newWasteCount(now)
			return count, count.addAll(ctx, s, f)
		})
		if err != nil {
			content.Problems = []string{describeError(err)}
		} else {
			made.layOut(content)
		}
	}
	s.showPage(w, r, http.StatusOK, &page{Template: "waste", Title: "Waste", Current: "/waste", Content: content})
}

// wasteCount counts objects, each of them once: several Cleaners may want one.
type wasteCount struct {
	prediction
	now      time.Time
	seen     map[types.UID]bool
	kinds    map[string][]int
	cleaners int
	// full says that there are more objects than are counted.
	full bool
}

func newWasteCount(now time.Time) *wasteCount {
	return &wasteCount{now: now, seen: map[types.UID]bool{}, kinds: map[string][]int{}}
}

// addAll counts what each Cleaner of the filter wants, until the time is over.
func (c *wasteCount) addAll(ctx context.Context, s *Server, f filter) error {
	list, err := s.Commands.PrepareWaste(ctx)
	if err != nil {
		return err
	}
	all := readMatching(ctx, s, f, &c.prediction)
	left := len(all)
	for _, u := range all {
		if ctx.Err() != nil {
			break
		}
		left--
		wanted, err := list(ctx, u)
		if err != nil {
			name := Name{u.GetNamespace(), u.GetName()}
			c.addProblem("Cannot plan %s %s: %s", name.Kind(), showLine(name.DisplayName()), describeError(err))
			continue
		}
		c.cleaners++
		c.addObjects(wanted)
	}
	if left > 0 {
		c.addProblem("%s could not be planned in time: choose a namespace or a text.", countOf(left, "Cleaner"))
	}
	return nil
}

// addObjects counts objects.
func (c *wasteCount) addObjects(wanted []Wanted) {
	groups := ageGroups()
	for _, o := range wanted {
		if c.seen[o.UID] {
			continue
		}
		if len(c.seen) == maxWaste {
			c.full = true
			return
		}
		c.seen[o.UID] = true
		ages := c.kinds[o.Kind]
		if ages == nil {
			ages = make([]int, len(groups))
			c.kinds[o.Kind] = ages
		}
		ages[findAgeGroup(groups, c.now.Sub(o.Created))]++
	}
}

// findAgeGroup returns the group of an age: the last one if it is as old as can be said, or of no known time.
func findAgeGroup(groups []ageGroup, age time.Duration) int {
	if at := slices.IndexFunc(groups, func(g ageGroup) bool { return age < g.younger }); at >= 0 {
		return at
	}
	return len(groups) - 1
}

// layOut lays out what was counted, the kinds with most objects first.
func (c *wasteCount) layOut(page *wastePage) {
	page.Headline = countOf(len(c.seen), "object") + " of " + countOf(len(c.kinds), "kind") + ", which " + countOf(c.cleaners, "Cleaner") + " would remove now"
	for _, g := range ageGroups() {
		page.Ages = append(page.Ages, g.label)
	}
	if c.full {
		c.addProblem("Only the first %s objects are counted: choose a namespace or a text.", groupDigits(maxWaste))
	}
	page.Problems = c.problems[:min(len(c.problems), maxRows)]
	if n := len(c.problems) - maxRows; n > 0 {
		page.Problems = append(page.Problems, groupDigits(int64(n))+" more problems are not shown.")
	}
	type kind struct {
		name  string
		total int
	}
	var kinds []kind
	for name, ages := range c.kinds {
		total := 0
		for _, n := range ages {
			total += n
		}
		kinds = append(kinds, kind{name, total})
	}
	slices.SortFunc(kinds, func(a, b kind) int { return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.name, b.name)) })
	for _, k := range kinds[:min(len(kinds), maxRows)] {
		page.Rows = append(page.Rows, makeWasteRow(k.name, c.kinds[k.name], k.total, kinds[0].total))
	}
	if n := len(kinds) - maxRows; n > 0 {
		page.MoreRows = countOf(n, "more kind") + " not shown: choose a namespace or a text."
	}
}

// makeWasteRow lays out a kind. The bar of the kind with most objects is as wide as the page.
func makeWasteRow(kind string, ages []int, total, most int) wasteRow {
	row := wasteRow{Kind: shorten(kind, maxText), Total: groupDigits(int64(total))}
	groups, before := ageGroups(), 0
	for i, n := range ages {
		row.Counts = append(row.Counts, groupDigits(int64(n)))
		if n == 0 {
			continue
		}
		row.Bars = append(row.Bars, wasteBar{
			X: formatPercent(100 * float64(before) / float64(most)), Width: formatPercent(100 * float64(n) / float64(most)), Class: fmt.Sprintf("age%d", i),
		})
		if row.Title != "" {
			row.Title += ", "
		}
		row.Title += groupDigits(int64(n)) + " of " + groups[i].label
		before += n
	}
	return row
}
