// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package reportdedup

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vtex/cleaner/controllers/plan"
)

// An item has a report whatever that said; and so it is said to have while nobody knows.
func TestItemsWithReports(t *testing.T) {
	var r Reports
	if r.HasItem(item("r", "a"), epoch) {
		t.Error("an item has a report that was not made")
	}
	r.NoteReport(item("r", "a"), "1", epoch, time.Hour)
	if !r.HasItem(item("r", "a"), epoch) || r.HasItem(item("r", "b"), epoch) || r.HasItem(item("q", "a"), epoch) {
		t.Error("the report of one is that of another, or of none")
	}
	r.ForgetUntil(epoch.Add(time.Hour))
	if !r.HasItem(item("r", "b"), epoch.Add(time.Hour-1)) || r.HasItem(item("r", "a"), epoch.Add(time.Hour)) {
		t.Error("nobody knows for too short a time, or for too long")
	}
}

// Whatever is reported, kept and bounded, in whatever order: what is remembered is what was reported last, nothing is remembered beyond
// the room, what is known is never reported again, and the memory that is taken is that of the items.
func TestReportsAreRemembered(t *testing.T) {
	keys, texts := rapid.SampledFrom([]string{"a", "b", "c", "d"}), rapid.SampledFrom([]string{"1", "2"})
	rules := rapid.SampledFrom([]string{"r", "q"})
	rapid.Check(t, func(t *rapid.T) {
		var r Reports
		want := map[plan.ItemKey]string{}
		room, now := 1000, epoch
		for range rapid.IntRange(1, 20).Draw(t, "events") {
			now = now.Add(2 * time.Hour) // so long that nobody waits for what was not remembered
			i, text := item(rules.Draw(t, "rule"), keys.Draw(t, "key")), texts.Draw(t, "text")
			switch rapid.SampledFrom([]string{"note", "note", "keep", "grow"}).Draw(t, "what") {
			case "note":
				r.NoteReport(i, text, now, time.Hour)
				if _, known := want[i]; known || len(want) < room {
					want[i] = text
				} else if !r.HasReport(i, "whatever", now.Add(time.Hour-1)) {
					t.Fatal("what has no room is reported again at once")
				}
			case "keep":
				wrong := map[string]bool{"q": rapid.Bool().Draw(t, "wrong")}
				for known := range want {
					if known != i && !wrong[known.Rule] {
						delete(want, known)
					}
				}
				r.KeepWanted(map[plan.ItemKey]bool{i: true}, wrong)
			case "grow":
				more := rapid.IntRange(-3, 3).Draw(t, "more")
				room = max(0, len(want)+more)
				r.GrowBy(int64(more) * reportBytes)
			}
			for _, rule := range []string{"r", "q"} {
				for _, key := range []string{"a", "b", "c", "d"} {
					said, known := want[item(rule, key)]
					later := now.Add(time.Hour)
					if r.HasItem(item(rule, key), later) != known || r.HasReport(item(rule, key), "1", later) != (said == "1") || r.HasReport(item(rule, key), "2", later) != (said == "2") {
						t.Fatalf("%s of %s is remembered otherwise than %q", key, rule, said)
					}
				}
			}
			if r.CountBytes() != int64(len(want))*reportBytes || r.IsEmpty() != (len(want) == 0) {
				t.Fatalf("%d items take %d bytes", len(want), r.CountBytes())
			}
		}
	})
}
