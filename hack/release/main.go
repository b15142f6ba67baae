// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release makes what a release is made of, from one commit: the images of the operator and of the scheduler as OCI layouts for
// several platforms, the archives of the kubectl plugin with a manifest for krew, a software bill of materials for each program, and the
// folder with all files from which users install without building anything.
//
// Everything is built by Go itself and by libraries: it needs no container daemon. It runs in the folder of the repository. The same
// commit, Go version and flags give the same bytes. It publishes nothing, but for `push`, and never signs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const usage = `usage: release image  --out FOLDER [--platforms ...] [--of NAME]  an OCI layout, and the SBOMs beside it
       release plugin --out FOLDER --url URL [--platforms ...]   archives, checksums.txt and cleaner.yaml for krew
       release files  --out FOLDER --image REFERENCE [FILE ...]  install.yaml, templates.yaml, the files, and checksums.txt
       release push   --from FOLDER REFERENCE                    the OCI layout to a registry`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// run is main with an error.
func run(ctx context.Context, args []string, out io.Writer) error {
	var to, from, url, program, image string
	var platforms []string
	b := &builder{root: ".", flags: []string{"-trimpath"}, progress: os.Stderr}
	fs := pflag.NewFlagSet("release", pflag.ContinueOnError)
	fs.Usage = func() { fmt.Fprintf(os.Stderr, "%s\n\n%s", usage, fs.FlagUsages()) }
	fs.StringVar(&to, "out", "", "folder to write to")
	fs.StringVar(&from, "from", "", "folder of the layout to push")
	fs.StringVar(&program, "of", managerName, "the program that is in the image: "+managerName+" or "+schedulerName)
	fs.StringVar(&url, "url", "", "where the archives are going to be found")
	fs.StringVar(&image, "image", "", "the image that the manifests run")
	fs.StringSliceVar(&platforms, "platforms", nil, "what to build for, such as linux/amd64")
	fs.StringVar(&b.version, "version", "", "the version, without a v")
	fs.StringVar(&b.commit, "commit", "", "the commit that is built")
	date := fs.String("date", "", "when that commit was made, in seconds since 1970")
	if err := fs.Parse(args); err != nil {
		return err
	}
	what := fs.Arg(0)
	if what == "push" {
		if from == "" || fs.NArg() != 2 {
			return errors.New("push needs --from and a reference:\n" + usage)
		}
		return push(ctx, from, fs.Arg(1), out)
	}
	if what == "files" {
		return b.files(to, image, fs.Args()[1:], out)
	}
	var err error
	if b.date, err = seconds(*date); err != nil {
		return err
	}
	if b.version == "" || to == "" || fs.NArg() != 1 {
		return errors.New("--version, --out and one thing to make are needed:\n" + usage)
	}
	targets, err := parsePlatforms(platforms)
	if err != nil {
		return err
	}
	switch what {
	case "image":
		if program != managerName && program != schedulerName {
			return fmt.Errorf("--of %q is no program with an image: write %s or %s", program, managerName, schedulerName)
		}
		return b.image(ctx, program, to, targets, out)
	case "plugin":
		if url == "" {
			return errors.New("--url is missing: write where the archives are going to be found")
		}
		return b.plugin(ctx, to, strings.TrimSuffix(url, "/"), targets, out)
	}
	return fmt.Errorf("%q is nothing to make:\n%s", what, usage)
}

// seconds reads a time.
func seconds(text string) (time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("--date %q is no time: write what `git log -1 --format=%%ct` says", text)
	}
	return time.Unix(n, 0).UTC(), nil
}

// platform is what a program is built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// file is the platform as a part of the names of files.
func (p platform) file() string { return p.os + "_" + p.arch }

func parsePlatforms(texts []string) ([]platform, error) {
	if len(texts) == 0 {
		return nil, errors.New("--platforms is missing: write such as linux/amd64,linux/arm64")
	}
	var all []platform
	for _, text := range texts {
		system, arch, ok := strings.Cut(text, "/")
		if !ok || system == "" || arch == "" || strings.Contains(arch, "/") {
			return nil, fmt.Errorf("%q is no platform: write such as linux/arm64", text)
		}
		all = append(all, platform{system, arch})
	}
	return all, nil
}
