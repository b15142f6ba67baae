// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"regexp"
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const (
		none = " is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as \"360h\" or \"1h30m\""
		long = " is too long: the longest duration is 292 years (106751d)"
	)
	cases := map[string]struct {
		want time.Duration
		err  string
	}{
		"0s":                    {want: 0},
		"360h":                  {want: 360 * time.Hour},
		"15d":                   {want: 360 * time.Hour},
		"2w":                    {want: 336 * time.Hour},
		"1h30m":                 {want: 90 * time.Minute},
		"1.5h":                  {want: 90 * time.Minute},
		"1m1h":                  {want: 61 * time.Minute},
		"1s1ms1us1µs1ns":        {want: 1001002001},
		"0.1ns":                 {want: 0},
		"0.000000001s":          {want: 1},
		"106751d":               {want: 106751 * 24 * time.Hour},
		"9223372036854775807ns": {want: 1<<63 - 1},
		"9223372036854775808ns": {err: `"9223372036854775808ns"` + long},
		"106752d":               {err: `"106752d"` + long},
		"":                      {err: `""` + none},
		"15":                    {err: `"15"` + none},
		"-1s":                   {err: `"-1s"` + none},
		"1 s":                   {err: `"1 s"` + none},
		"1y":                    {err: `"1y"` + none},
		".5s":                   {err: `".5s"` + none},
		"1e3s":                  {err: `"1e3s"` + none},
		"1s\n":                  {err: `"1s\n"` + none},
	}
	for text, tc := range cases {
		t.Run(text, func(t *testing.T) {
			got, err := ParseDuration(text)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if got != tc.want || message != tc.err {
				t.Errorf("got %v, %q; want %v, %q", got, message, tc.want, tc.err)
			}
		})
	}
}

// The schema and ParseDuration read the same texts as durations.
func TestDurationHasThePatternOfTheSchema(t *testing.T) {
	schema, err := os.ReadFile("../../config/crd/bases/cleaner.vtex.dev_cleaners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`pattern: (\^.*\(ns\|.*)`).FindAllSubmatch(schema, -1)
	if len(found) == 0 {
		t.Fatal("the schema has no pattern of durations")
	}
	for _, m := range found {
		pattern := regexp.MustCompile(string(m[1]))
		for _, unit := range []string{"", "ns", "us", "µs", "ms", "s", "m", "h", "d", "w", "y", "S"} {
			for _, number := range []string{"", "1", "1.5", ".5", "1.", "-1", "1s2"} {
				if text := number + unit; pattern.MatchString(text) != IsDuration(text) {
					t.Errorf("%q is a duration: %t, and by the schema it is %t", text, IsDuration(text), !IsDuration(text))
				}
			}
		}
	}
}

func TestDurationParseEmpty(t *testing.T) {
	if got, err := Duration("").Parse(time.Hour); got != time.Hour || err != nil {
		t.Errorf("got %v, %v; want the other one", got, err)
	}
	if got, err := Duration("0s").Parse(time.Hour); got != 0 || err != nil {
		t.Errorf("got %v, %v; want 0s", got, err)
	}
}
