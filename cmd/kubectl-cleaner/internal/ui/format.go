// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// viewer lays out what pages show. It reads nothing but the clock.
type viewer struct {
	clock clock.PassiveClock
	// zone is the time zone of the times.
	zone *time.Location
}

// moment is a time on a page: exact, with its time zone, and how far away it is.
type moment struct{ Text, Machine, Away string }

// showTime returns a moment to show, in the user's time zone; nil if there is none.
func (v viewer) showTime(at time.Time) *moment { return v.showTimeIn(at, v.zone) }

// showTimeIn is showTime for a time zone.
func (v viewer) showTimeIn(at time.Time, zone *time.Location) *moment {
	if at.IsZero() {
		return nil
	}
	m := &moment{Text: at.In(zone).Format("2006-01-02 15:04:05.999999999 MST"), Machine: at.UTC().Format(time.RFC3339Nano), Away: "now"}
	switch ahead := at.Sub(v.clock.Now()); {
	case ahead >= time.Second:
		m.Away = "in " + duration.HumanDuration(ahead)
	case ahead <= -time.Second:
		m.Away = duration.HumanDuration(-ahead) + " ago"
	}
	return m
}

// describeZone names a time zone: with summer time, both names that its times have.
func (v viewer) describeZone(zone *time.Location) string {
	now := v.clock.Now().In(zone)
	text := describeOffset(now)
	if other := describeOffset(now.AddDate(0, 6, 0)); other != text {
		text += " or " + other
	}
	return text
}

// describeOffset names the time zone of a time as it is then.
func describeOffset(at time.Time) string {
	name, offset := at.Zone()
	if name == "UTC" {
		return name
	}
	sign := "+"
	if offset < 0 {
		sign, offset = "−", -offset
	}
	utc := fmt.Sprintf("UTC%s%02d:%02d", sign, offset/3600, offset%3600/60)
	if strings.ContainsAny(name, "+-0123456789") {
		return utc
	}
	return name + " (" + utc + ")"
}

// showLine makes a text of the cluster fit for a line: hidden characters, which could reorder it, are shown as Go writes them.
func showLine(text string) string { return string(output.EscapeText(text)) }

// shorten makes a text fit for a line, of at most so many characters.
func shorten(text string, most int) string {
	if len(text) > 4*most { // what is cut off anyway is not made fit
		text = strings.ToValidUTF8(text[:4*most], "")
	}
	shown := []rune(showLine(text))
	if len(shown) > most {
		return string(shown[:most-1]) + "…"
	}
	return string(shown)
}

// countOf formats a number with a word, in the plural unless it is one.
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return groupDigits(int64(n)) + " " + what + "s"
}

// groupDigits formats a number with a comma after each group of three digits.
func groupDigits(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
