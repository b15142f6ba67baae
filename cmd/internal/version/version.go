// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version says which version of Cleaner a program is, and what it was built from.
//
// The file VERSION is the one place where a version is written by hand: the Makefile reads it, and what is installed beside
// the programs is held to it by a test. The package asks neither git nor a network.
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

// What `make` says with -X; programs that `go build` or `go install` made have what Go itself has written into them.
//
//nolint:gochecknoglobals // the linker sets nothing else
var (
	// stamped is the version, if it is not the one that is written.
	stamped string
	// commit is what the program was built from, with -dirty behind it if that was changed.
	commit string
)

// Info is which version of Cleaner a program is.
type Info struct {
	// Version is a semantic version, without a v before it.
	Version string `json:"version"`
	// Commit is what it was built from, with -dirty behind it if that was changed; empty if nobody knows.
	Commit string `json:"commit,omitempty"`
	// GoVersion is that of the compiler.
	GoVersion string `json:"goVersion"`
	// Platform is <system>/<architecture>.
	Platform string `json:"platform"`
}

// Get says which version this program is.
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

// commitOf is the commit that Go has written into a program; empty if it was told not to, or found none.
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

// String is all of it on one line.
func (i Info) String() string {
	from := "commit unknown"
	if i.Commit != "" {
		from = "commit " + i.Commit
	}
	return fmt.Sprintf("%s (%s, %s, %s)", i.Version, from, i.GoVersion, i.Platform)
}
