// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const demo = `building …

── One ──
   1.0s  EVENT: a <script> & more
   1.0s    delete shop/a: deleted
  90.0s  The webhook refuses it: no

── Two ──
  90.1s  done`

func TestReadLines(t *testing.T) {
	lines, err := readLines(strings.NewReader(demo))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		got = append(got, fmt.Sprintf("%s|%s|%s|%s|%d", l.Class, l.Time, l.Text, l.at, l.Y))
	}
	want := []string{
		"chapter||── One ──|0s|0", "event|1.0s|EVENT: a <script> & more|1s|18", "deletion|1.0s|  delete shop/a: deleted|1s|36",
		"refusal|90.0s|The webhook refuses it: no|1m30s|54", "|||1m30s|72", "chapter||── Two ──|1m30s|90", "|90.1s|done|1m30.1s|108",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Pauses are cut short, and each line scrolls the terminal by one.
func TestScrollLines(t *testing.T) {
	lines := []line{{}, {at: time.Second}, {at: time.Hour}, {at: time.Hour}}
	steps, total := scrollLines(lines)
	if want := time.Second + longestPause + shortestPause + lastPause; total != want {
		t.Errorf("it takes %s, want %s", total, want)
	}
	for i, s := range steps {
		if s.Offset != (rows-1-i)*lineHeight {
			t.Errorf("line %d is at %d", i, s.Offset)
		}
	}
	if steps[0].Percent != "0.000" || len(steps) != len(lines) {
		t.Errorf("got %v", steps)
	}
}

// The picture is XML that shows the lines as they are, and nothing in it is loaded from elsewhere.
func TestRecord(t *testing.T) {
	var out strings.Builder
	if err := record(strings.NewReader(demo), &out); err != nil {
		t.Fatal(err)
	}
	text := ""
	for d := xml.NewDecoder(strings.NewReader(out.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, out.String())
		}
		if data, ok := token.(xml.CharData); ok {
			text += string(data)
		}
	}
	for _, want := range []string{"EVENT: a <script> & more", "── Two ──", "translateY(450px)", "90.0s"} {
		if !strings.Contains(text, want) {
			t.Errorf("it has no %q:\n%s", want, out.String())
		}
	}
	for _, foreign := range []string{"href", "url(", "<script", "ZgotmplZ"} {
		if strings.Contains(out.String(), foreign) {
			t.Errorf("it has %q", foreign)
		}
	}
	if err := record(strings.NewReader("building …"), &out); err == nil {
		t.Error("nothing was recorded")
	}
	if err := record(strings.NewReader("── One ──\n"+strings.Repeat("a\n", maxLines)), &out); err == nil {
		t.Error("it has no end")
	}
}

func TestCutText(t *testing.T) {
	long := strings.Repeat("é", 2*columns)
	if got := []rune(cutText(long)); len(got) != columns-9 || got[len(got)-1] != '…' {
		t.Errorf("got %d runes", len(got))
	}
	if got := cutText("é"); got != "é" {
		t.Errorf("got %q", got)
	}
}
