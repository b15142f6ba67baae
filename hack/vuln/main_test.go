// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// vulnerability is one that github.com/robfig/cron is said to have until a version.
const vulnerability = `{"schema_version": "1.3.1", "id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z",
	"summary": "A schedule that is made up", "details": "It is made up.",
	"affected": [{"package": {"name": "github.com/robfig/cron/v3", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "FIXED"}]}],
		"ecosystem_specific": {"imports": [{"path": "github.com/robfig/cron/v3", "symbols": ["ParseStandard"]}]}}],
	"database_specific": {"url": "https://pkg.go.dev/vuln/GO-2026-0001"}}`

// database writes one with a vulnerability, as files and, for those who ask by HTTP, compressed.
func database(t *testing.T, fixed string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index/db.json":        `{"modified": "2026-01-01T00:00:00Z"}`,
		"index/modules.json":   `[{"path": "github.com/robfig/cron/v3", "vulns": [{"id": "GO-2026-0001", "modified": "2026-01-01T00:00:00Z", "fixed": "` + fixed + `"}]}]`,
		"ID/GO-2026-0001.json": strings.ReplaceAll(vulnerability, "FIXED", fixed),
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{path: []byte(text), path + ".gz": zipped.Bytes()} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// build runs go build in a folder.
func build(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %v: %v\n%s", args, err, out)
	}
}

// program builds a program that calls what the vulnerability is in.
func program(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod":  "module example.com/scheduled\n\ngo 1.26\n\nrequire github.com/robfig/cron/v3 v3.0.1\n",
		"go.sum":  string(sums),
		"main.go": "package main\n\nimport \"github.com/robfig/cron/v3\"\n\nfunc main() { println(cron.ParseStandard(\"@daily\")) }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build(t, dir, "-buildvcs=false", "-o", "program", ".")
	return filepath.Join(dir, "program")
}

func TestVuln(t *testing.T) {
	if testing.Short() {
		t.Skip("builds govulncheck: not with -short")
	}
	checker := filepath.Join(t.TempDir(), "govulncheck")
	build(t, "../tools", "-o", checker, "golang.org/x/vuln/cmd/govulncheck")
	built := program(t)

	known, past := database(t, "3.9.9"), database(t, "3.0.1")
	server := httptest.NewServer(http.FileServer(http.Dir(known)))
	defer server.Close()
	refusing := httptest.NewServer(http.NotFoundHandler())
	defer refusing.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	const (
		found     = "GO-2026-0001"
		none      = "No vulnerabilities found"
		unchecked = "NOT CHECKED: "
	)
	cases := map[string]struct {
		db     string
		strict bool
		code   int
		says   string
	}{
		"known":                     {db: "file://" + known, code: exitFound, says: found},
		"known, asked by HTTP":      {db: server.URL, code: exitFound, says: found},
		"mended":                    {db: "file://" + past, code: exitChecked, says: none},
		"nobody there":              {db: closed.URL, code: exitChecked, says: unchecked},
		"nobody there, strict":      {db: closed.URL, strict: true, code: exitUnchecked, says: unchecked},
		"refused":                   {db: refusing.URL, code: exitChecked, says: unchecked},
		"no such folder, strict":    {db: "file:///no/such/folder", strict: true, code: exitUnchecked, says: unchecked},
		"a folder with other files": {db: "file://" + filepath.Dir(built), strict: true, code: exitUnchecked, says: unchecked},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOVULNDB", tc.db)
			args := []string{"--govulncheck", checker, built}
			if tc.strict {
				args = append(args, "--strict")
			}
			var out, errs strings.Builder
			if code := run(t.Context(), args, &out, &errs); code != tc.code {
				t.Errorf("it ends with %d, not with %d", code, tc.code)
			}
			for _, say := range []string{found, none, unchecked} {
				if strings.Contains(out.String(), say) != (say == tc.says) {
					t.Errorf("whether it says %q is wrong in:\n%s%s", say, out.String(), errs.String())
				}
			}
		})
	}
	t.Setenv("GOVULNDB", "file://"+known)
	var out, errs strings.Builder
	if code := run(t.Context(), []string{"--govulncheck", checker, "main.go"}, &out, &errs); code != exitFailed || strings.Contains(out.String(), none) {
		t.Errorf("what is no program is checked, with %d:\n%s%s", code, out.String(), errs.String())
	}
	if code := run(t.Context(), nil, &out, &errs); code != exitFailed {
		t.Errorf("nothing is checked, and it ends with %d", code)
	}
}
