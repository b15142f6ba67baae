// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version contains the version of Cleaner that a program is, and the commit that it was built from.
//
// The file VERSION is the only place where the version is written by hand. The Makefile reads it, and a test compares the
// manifests with it. The package uses neither git nor a network.
package version

import (
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

//go:embed VERSION
var written string

// The values that `make` sets with -X. In programs made with `go build` or `go install`, Go itself has stored the commit.
//
//nolint:gochecknoglobals // the linker sets nothing else
var (
	// stamped is the version, if it is not the one of the file VERSION.
	stamped string
	// commit is the commit that the program was built from, with -dirty at the end if files were changed.
	commit string
)

// Info is the version of a program.
type Info struct {
	// Version is a semantic version without the leading v.
	Version string `json:"version"`
	// Commit is the commit that it was built from, with -dirty at the end if files were changed; empty if unknown.
	Commit string `json:"commit,omitempty"`
	// GoVersion is the version of the compiler.
	GoVersion string `json:"goVersion"`
	// Platform is <system>/<architecture>.
	Platform string `json:"platform"`
}

// Get returns the version of this program.
func Get() Info {
	i := Info{
		Version: strings.TrimSpace(written), Commit: commit,
		GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	if stamped != "" {
		i.Version = stamped
	}
	if build, ok := debug.ReadBuildInfo(); ok && i.Commit == "" {
		i.Commit = commitOf(build)
	}
	return i
}

// commitOf returns the commit that Go has stored in a program; empty if it has stored none.
func commitOf(build *debug.BuildInfo) string {
	var revision, dirty string
	for _, s := range build.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + dirty
}

// String returns the whole version on one line.
func (i Info) String() string {
	from := "commit unknown"
	if i.Commit != "" {
		from = "commit " + i.Commit
	}
	return fmt.Sprintf("%s (%s, %s, %s)", i.Version, from, i.GoVersion, i.Platform)
}
