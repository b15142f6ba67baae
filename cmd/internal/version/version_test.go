// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package version

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersionIsThatOfTheFile(t *testing.T) {
	text, err := os.ReadFile("VERSION")
	if err != nil {
		t.Fatal(err)
	}
	semantic := regexp.MustCompile(`^(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}(-[0-9A-Za-z.-]+)?\n$`)
	if !semantic.Match(text) {
		t.Errorf("VERSION is %q: write one such as 1.2.3 or 1.2.3-rc.1, and no v", text)
	}
	got := Get()
	if got.Version != strings.TrimSpace(string(text)) || got.GoVersion != runtime.Version() || got.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("got %+v", got)
	}
}

func TestCommitOf(t *testing.T) {
	cases := map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"without a repository": {nil, ""},
		"clean":                {[]debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}, "abc"},
		"dirty":                {[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}}, "abc-dirty"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := commitOf(&debug.BuildInfo{Settings: tc.settings}); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	i := Info{Version: "1.2.3", Commit: "abc-dirty", GoVersion: "go1.26", Platform: "linux/arm64"}
	if got := i.String(); got != "1.2.3 (commit abc-dirty, go1.26, linux/arm64)" {
		t.Error(got)
	}
	i.Commit = ""
	if got := i.String(); got != "1.2.3 (commit unknown, go1.26, linux/arm64)" {
		t.Error(got)
	}
}
