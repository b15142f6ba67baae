// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package reported

import (
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func item(rule, key string) plan.ItemKey { return plan.ItemKey{Rule: rule, Key: key} }

func TestReportsBeyondTheirRoom(t *testing.T) {
	var r Reports
	r.GrowBy(reportBytes)
	r.NoteReport(item("r", "a"), "1", epoch, time.Hour)
	r.NoteReport(item("r", "b"), "1", epoch, time.Hour)
	for _, tc := range []struct {
		what, key, said string
		at              time.Duration
		has             bool
	}{
		{"what is remembered was made", "a", "1", 2 * time.Hour, true},
		{"and says something else now", "a", "2", 0, false},
		{"what is not remembered is not made again at once", "b", "1", time.Minute, true},
		{"but once in a while", "b", "1", 2 * time.Hour, false},
	} {
		if got := r.HasReport(item("r", tc.key), tc.said, epoch.Add(tc.at)); got != tc.has {
			t.Errorf("%s: got %t", tc.what, got)
		}
	}
	if r.CountBytes() != reportBytes {
		t.Errorf("%d bytes are taken", r.CountBytes())
	}
	if r.GrowBy(-2 * reportBytes); r.room != 0 {
		t.Errorf("there is room for %d where there is none", r.room)
	}
}

func TestReportsThatAreKept(t *testing.T) {
	var r Reports
	if !r.IsEmpty() {
		t.Error("reports are remembered that were not made")
	}
	for _, i := range []plan.ItemKey{item("r", "a"), item("r", "b"), item("wrong", "c"), item("gone", "d")} {
		r.NoteReport(i, "1", epoch, time.Hour)
		r.NoteReport(i, "2", epoch, time.Hour)
	}
	r.KeepWanted(map[plan.ItemKey]bool{item("r", "a"): true}, map[string]bool{"wrong": true})
	for _, tc := range []struct {
		what string
		of   plan.ItemKey
		has  bool
	}{
		{"an item that is wanted", item("r", "a"), true},
		{"an item that is not wanted any more", item("r", "b"), false},
		{"an item of a rule that something is wrong with", item("wrong", "c"), true},
		{"an item of a rule that has none any more", item("gone", "d"), false},
	} {
		if got := r.HasReport(tc.of, "2", epoch); got != tc.has {
			t.Errorf("%s: got %t", tc.what, got)
		}
	}
	if r.CountBytes() != 2*reportBytes || len(r.made) != 2 {
		t.Errorf("%d bytes are taken, of %d rules", r.CountBytes(), len(r.made))
	}
	r.ForgetUntil(epoch.Add(time.Minute))
	if !r.IsEmpty() || !r.HasReport(item("r", "a"), "2", epoch) || r.HasReport(item("r", "a"), "2", epoch.Add(time.Minute)) {
		t.Error("what was forgotten is reported again at once, or never")
	}
}
