// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vuln has govulncheck look for known vulnerabilities in programs, and says so where it cannot: that nothing was found
// is only said of a database that was asked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// What the process ends with.
const (
	exitChecked = 0
	exitFailed  = 1
	// exitFound is govulncheck's own.
	exitFound = 3
	// exitUnchecked is the exit code of --strict if no database could be asked.
	exitUnchecked = 4
)

// publicDatabase is the Go project's database, which govulncheck asks by itself.
const publicDatabase = "https://vuln.go.dev"

// patience is how long the database may take to say how old it is.
const patience = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run checks the programs that are named, and says what the process ends with.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fs := pflag.NewFlagSet("vuln", pflag.ContinueOnError)
	fs.SetOutput(stderr)
	checker := fs.String("govulncheck", "bin/govulncheck", "govulncheck")
	database := fs.String("db", os.Getenv("GOVULNDB"), "database of vulnerabilities; file:// is a folder (default "+publicDatabase+")")
	strict := fs.Bool("strict", false, fmt.Sprintf("end with %d if the database cannot be reached", exitUnchecked))
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return exitChecked
	case err != nil || fs.NArg() == 0:
		fmt.Fprintln(stderr, "usage: vuln [--strict] [--db URL] [--govulncheck FILE] PROGRAM ...")
		return exitFailed
	}
	if *database == "" {
		*database = publicDatabase
	}
	modified, err := age(ctx, *database)
	if err != nil {
		fmt.Fprintf(stdout, "NOT CHECKED: the database of vulnerabilities at %s cannot be reached: %v.\n"+
			"Whether the programs have known vulnerabilities is not known. Name another database in GOVULNDB, or try again elsewhere.\n", *database, err)
		if *strict {
			return exitUnchecked
		}
		return exitChecked
	}
	code := exitChecked
	for _, program := range fs.Args() {
		fmt.Fprintf(stdout, "%s, by %s as of %s:\n", program, *database, modified.Format(time.RFC3339))
		cmd := exec.CommandContext(ctx, *checker, "-db", *database, "-mode=binary", program)
		cmd.Stdout, cmd.Stderr = stdout, stderr
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
		case errors.As(err, &exit) && exit.ExitCode() == exitFound:
			code = exitFound
		default:
			fmt.Fprintf(stderr, "vuln: cannot check %s: %v\n", program, err)
			return exitFailed
		}
	}
	return code
}

// age returns when a database was changed last; it returns an error if the database does not answer.
func age(ctx context.Context, database string) (time.Time, error) {
	u, err := url.Parse(database)
	if err != nil {
		return time.Time{}, err
	}
	const index = "index/db.json"
	var text []byte
	if u.Scheme == "file" {
		text, err = os.ReadFile(filepath.Join(filepath.FromSlash(u.Path), index))
	} else {
		text, err = get(ctx, strings.TrimSuffix(database, "/")+"/"+index)
	}
	if err != nil {
		return time.Time{}, err
	}
	var about struct{ Modified time.Time }
	if err := json.Unmarshal(text, &about); err != nil || about.Modified.IsZero() {
		return time.Time{}, fmt.Errorf("what it answers is no database: %.100q", text)
	}
	return about.Modified, nil
}

func get(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, 1<<20))
}
