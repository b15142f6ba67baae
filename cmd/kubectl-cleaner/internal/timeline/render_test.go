// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/controllers/plan/planjson"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func moment(ahead time.Duration) planjson.Moment { return planjson.Moment{Time: begin.Add(ahead)} }

// document is a forecast of one Cleaner for a week.
func document(of forecast.Cleaner) *forecast.Document {
	d := forecast.NewDocument(begin, begin.Add(7*24*time.Hour))
	if of.Until.IsZero() {
		of.Until = d.Until
	}
	d.Cleaners = append(d.Cleaners, of)
	return d
}

func step(ahead time.Duration, verb, name string) forecast.Step {
	return forecast.Step{At: moment(ahead), Exact: true, Step: planjson.Step{Rule: "r", Verb: verb, Kind: "Pod", Namespace: "web", Name: name}}
}

// drawBoth returns the image and the page.
func drawBoth(t *testing.T, d *forecast.Document) (svg, page string) {
	t.Helper()
	var one, two strings.Builder
	if err := errors.Join(WriteSVG(&one, d), WriteHTML(&two, d)); err != nil {
		t.Fatal(err)
	}
	return one.String(), two.String()
}

// hostile is text that would be markup, a style, a script, a link or an end of something if it were not escaped.
const hostile = `"><script>forged()</script><style>*{}</style>&amp;</title></desc></svg><a href="javascript:forged()">' onload='forged()' {{.Title}}` + "\x1b[31m\x00\u202e\ufffe"

// elements lists the elements of a text, and their attributes that could do something.
func elements(t *testing.T, text string) (names map[string]int, active []string) {
	t.Helper()
	names = map[string]int{}
	d := xml.NewDecoder(strings.NewReader(text))
	d.Strict = false
	d.AutoClose, d.Entity = xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			return names, active
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		names[e.Name.Local]++
		for _, a := range e.Attr {
			if a.Name.Local == "href" || a.Name.Local == "src" || a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") {
				active = append(active, e.Name.Local+" "+a.Name.Local)
			}
		}
	}
}

// What tenants wrote is text: the same elements are there, however they call their objects.
func TestHostileTexts(t *testing.T) {
	build := func(text string) *forecast.Document {
		s := step(time.Hour, "delete", text)
		s.Rule, s.Reason, s.Namespace, s.Kind, s.Key = text, text, text, text, text
		other := step(2*time.Hour, text, "a")
		other.Rule, other.Exact = text, false
		d := document(forecast.Cleaner{
			Kind: "Cleaner", Cleaner: text, Steps: []forecast.Step{s, other}, Warnings: []string{text}, Cut: text, Until: moment(24 * time.Hour),
			States:        []forecast.State{{From: moment(0), Verdict: v1alpha1.VerdictBlocked, Reason: text, Message: text}},
			Unpredictable: []forecast.Unpredictable{{From: moment(0), Rule: text, Because: text}},
		})
		d.Cleaners = append(d.Cleaners, forecast.Cleaner{Kind: "Cleaner", Cleaner: text, States: []forecast.State{{From: moment(0), Reason: text, Message: text}}})
		return d
	}
	harmlessSVG, harmlessPage := drawBoth(t, build("harmless"))
	gotSVG, gotPage := drawBoth(t, build(hostile))
	for name, pair := range map[string][2]string{"svg": {harmlessSVG, gotSVG}, "html": {harmlessPage, gotPage}} {
		want, _ := elements(t, pair[0])
		got, active := elements(t, pair[1])
		if fmt.Sprint(want) != fmt.Sprint(got) || len(active) > 0 {
			t.Errorf("%s: elements %v, want %v; attributes %v", name, got, want, active)
		}
		if n := strings.Count(pair[1], "forged()"); n < 3 {
			t.Errorf("%s shows the text %d times", name, n)
		}
		if strings.ContainsAny(pair[1], "\x1b\x00\u202e\ufffe") {
			t.Errorf("%s has characters that are not shown", name)
		}
		if strings.Contains(pair[1], "ZgotmplZ") {
			t.Errorf("%s has a text at a place where none may be", name)
		}
	}
	strict := xml.NewDecoder(strings.NewReader(gotSVG))
	for {
		if _, err := strict.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the image is not XML: %v", err)
		}
	}
}

// Nothing is loaded, nothing runs, and the policy of the page allows its own style sheet and no more.
func TestStandsAlone(t *testing.T) {
	svg, page := drawBoth(t, document(forecast.Cleaner{Kind: "Cleaner", Cleaner: "web/c", Steps: []forecast.Step{step(time.Hour, "delete", "a")}}))
	address := regexp.MustCompile(`(?i)https?://[^"\s]+|url\(|@import|<script|<link|<img|<iframe`)
	for name, text := range map[string]string{"svg": svg, "html": page} {
		for _, found := range address.FindAllString(text, -1) {
			if found != "http://www.w3.org/2000/svg" {
				t.Errorf("%s has %s", name, found)
			}
		}
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(page)
	sum := sha256.Sum256([]byte(style[1]))
	if want := "style-src &#39;sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "&#39;"; !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), want) || strings.Contains(page, "unsafe") {
		t.Errorf("the policy of the page is not %s", want)
	}
	for _, want := range []string{`role="img"`, `<title id="title">`, `<desc id="description">`, "prefers-color-scheme: dark"} {
		if !strings.Contains(svg, want) {
			t.Errorf("the image has no %s", want)
		}
	}
	for _, want := range []string{`<html lang="en">`, `<meta charset="utf-8">`, `name="viewport"`, `<th scope="col">`, `datetime="2026-01-01T01:00:00Z"`, "prefers-color-scheme: dark"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

// What there is too much of is counted.
func TestLeftOut(t *testing.T) {
	d := forecast.NewDocument(begin, begin.Add(7*24*time.Hour))
	for n := range maxLanes + 3 {
		c := forecast.Cleaner{Kind: "Cleaner", Cleaner: fmt.Sprint("web/c", n), Until: d.Until, Omitted: 2}
		for m := range maxRows/maxLanes + 1 {
			c.Steps = append(c.Steps, step(time.Duration(m)*time.Hour, "delete", fmt.Sprint(m)))
		}
		d.Cleaners = append(d.Cleaners, c)
	}
	svg, page := drawBoth(t, d)
	for _, want := range []string{"3 more rules are not drawn.", "206 more steps are not listed."} {
		if !strings.Contains(svg, want) || !strings.Contains(page, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if want := "163 more steps are not in the table"; !strings.Contains(page, want) || strings.Count(page, "<tr>") != maxRows+1 {
		t.Errorf("%d rows, and it does not say %q", strings.Count(page, "<tr>"), want)
	}
	if n := strings.Count(page, "<article>"); n != maxLanes {
		t.Errorf("%d lanes", n)
	}
}

func TestDrawLane(t *testing.T) {
	about := step(100*time.Hour, "patch", "c")
	about.Exact = false
	gone := step(84*time.Hour, "delete", "a")
	gone.Dependents, gone.Remains = 1, true
	for name, tc := range map[string]struct {
		of   forecast.Cleaner
		want []string
	}{
		"Several": {
			of: forecast.Cleaner{Steps: []forecast.Step{step(84*time.Hour, "report", "b"), gone}},
			want: []string{
				`class="mark delete" x="50.00%"`, "2026-01-04T12:00:00Z: report Pod web/b\n2026-01-04T12:00:00Z: delete Pod web/a", `>2</text>`, "2 steps, the first in 3d12h",
				"report 1", "delete 1",
			},
		},
		"Apart": {
			of:   forecast.Cleaner{Steps: []forecast.Step{step(0, "report", "a"), step(4*time.Hour, "delete", "b"), step(5*time.Hour, "delete", "c")}},
			want: []string{`class="mark delete" x="0.00%"`, `class="mark delete" x="2.98%"`, "report Pod web/a\n2026-01-01T04:00:00Z: delete Pod web/b</title>"},
		},
		"About":   {of: forecast.Cleaner{Steps: []forecast.Step{about}}, want: []string{`class="mark patch about"`, "about 2026-01-05T04:00:00Z: patch Pod web/c"}},
		"Now":     {of: forecast.Cleaner{Mode: v1alpha1.ModeDryRun, Steps: []forecast.Step{step(0, "evict", "a")}}, want: []string{"DryRun: 1 step, the first now", `class="mark evict" x="0.00%"`}},
		"Nothing": {of: forecast.Cleaner{States: []forecast.State{{From: moment(0), Verdict: v1alpha1.VerdictWait, Reason: "Suspended", Message: "It is suspended."}}}, want: []string{"no steps: Suspended. It is suspended."}},
		"Blocked": {
			of: forecast.Cleaner{States: []forecast.State{
				{From: moment(0), Verdict: v1alpha1.VerdictBlocked, Reason: "LimitExceeded", Message: "Too many."}, {From: moment(84 * time.Hour), Verdict: v1alpha1.VerdictWait},
			}},
			want: []string{`class="band blocked" x="0.00%" y="6" width="50.00%"`, "Blocked (LimitExceeded): Too many."},
		},
		"Cut":           {of: forecast.Cleaner{Cut: "It takes too long.", Until: moment(84 * time.Hour)}, want: []string{`class="band unknown" x="50.00%"`, "not predicted<", "Not predicted: It takes too long."}},
		"Ends":          {of: forecast.Cleaner{Steps: []forecast.Step{step(84*time.Hour, "helmUninstall", "a")}, Ends: moment(84 * time.Hour)}, want: []string{`class="band ended" x="50.00%"`, `class="mark uninstall"`}},
		"Unpredictable": {of: forecast.Cleaner{Steps: []forecast.Step{about}, Unpredictable: []forecast.Unpredictable{{From: moment(84 * time.Hour), Rule: "r", Because: "Who knows?"}}}, want: []string{`class="band unpredictable" x="50.00%"`, "Who knows?"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.of.Kind, tc.of.Cleaner = "Cleaner", "web/c"
			svg, page := drawBoth(t, document(tc.of))
			for _, want := range tc.want {
				if !strings.Contains(svg, want) || !strings.Contains(page, want) {
					t.Errorf("%q is missing in\n%s\n%s", want, svg, page)
				}
			}
			if name == "Several" && !strings.Contains(page, "stays until its finalizers are gone and 1 object with it") {
				t.Error("the page does not say what becomes of the object")
			}
		})
	}
}

// The axis has a few round times, whatever the forecast is for.
func TestListTicks(t *testing.T) {
	for ahead, want := range map[time.Duration]string{
		6 * time.Minute:       "Jan 1 00:01 00:02 00:03 00:04 00:05 00:06",
		7 * 24 * time.Hour:    "Jan 1 Jan 2 Jan 3 Jan 4 Jan 5 Jan 6 Jan 7 Jan 8",
		24 * time.Hour:        "Jan 1 03:00 06:00 09:00 12:00 15:00 18:00 21:00 Jan 2",
		366 * 24 * time.Hour:  "",
		3000 * 24 * time.Hour: "",
	} {
		g := drawing{at: begin, until: begin.Add(ahead)}
		var labels []string
		for _, tick := range g.listTicks() {
			labels = append(labels, tick.Label)
		}
		if len(labels) > maxTicks+1 || want != "" && strings.Join(labels, " ") != want {
			t.Errorf("%s: %v, want %s", ahead, labels, want)
		}
	}
}

// Equal forecasts give equal bytes.
func TestEqualBytes(t *testing.T) {
	d := document(forecast.Cleaner{Steps: []forecast.Step{step(0, "delete", "a"), step(1, "report", "b"), step(2, "patch", "c"), step(3, "evict", "d")}})
	first, _ := drawBoth(t, d)
	for range 20 {
		if again, _ := drawBoth(t, d); !bytes.Equal([]byte(first), []byte(again)) {
			t.Fatal("the images differ")
		}
	}
}

// A figure is what the page has below its heading, and brings no style of its own: another page may forbid styles that are not in a file.
func TestWriteFigure(t *testing.T) {
	d := document(forecast.Cleaner{Kind: "Cleaner", Cleaner: "web/c", Steps: []forecast.Step{step(time.Hour, "delete", "a"), step(2*time.Hour, "patch", "b")}})
	_, page := drawBoth(t, d)
	var figure strings.Builder
	if err := WriteFigure(&figure, d); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(page, figure.String()) || !strings.Contains(figure.String(), `<h2 id="timeline">`) {
		t.Errorf("the page does not have the figure\n%s", figure.String())
	}
	names, active := elements(t, figure.String())
	if names["style"]+names["script"]+names["h1"]+names["html"] > 0 || len(active) > 0 {
		t.Errorf("elements %v, attributes %v", names, active)
	}
	if !strings.Contains(page, Style()) {
		t.Error("the page does not have the style sheet of the figure")
	}
}
