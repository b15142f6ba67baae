// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// options are what the command line says.
type options struct {
	root, list   string
	seed         int64
	seeded       bool
	count        int
	only         []string
	at           string
	parallel     int
	leeway       time.Duration
	dry, verbose bool
}

func main() {
	o := options{root: ".", leeway: 20 * time.Second}
	pflag.StringVar(&o.list, "list", "hack/mutants/mutants.yaml", "file that lists packages and mutants")
	pflag.Int64Var(&o.seed, "seed", 0, "which mutants are planted (default: the seed of the list)")
	pflag.IntVar(&o.count, "count", 0, "how many mutants are planted in each package (default: as the list says)")
	pflag.StringSliceVar(&o.only, "packages", nil, "plant mutants in these packages of the list only")
	pflag.StringVar(&o.at, "at", "", "plant all mutants whose FILE:LINE matches this regular expression, instead of a choice")
	pflag.IntVar(&o.parallel, "parallel", 2, "how many mutants are tested at a time")
	pflag.BoolVar(&o.dry, "dry-run", false, "show the mutants, and run no test")
	pflag.BoolVarP(&o.verbose, "verbose", "v", false, "say of each mutant that is caught which test does it")
	pflag.Parse()
	o.seeded = pflag.CommandLine.Changed("seed")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run plants mutants and reports. It returns an error if the tests are not as good as the list demands.
func run(ctx context.Context, o options, out io.Writer) error {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return err
	}
	l, err := readList(o.list)
	if err != nil {
		return err
	}
	if o.seeded {
		l.Seed = o.seed
	}
	if err := boundMemory(); err != nil {
		return fmt.Errorf("cannot bound memory: %w", err)
	}
	packages, err := readPackages(ctx, root, l.Packages)
	if err != nil {
		return err
	}
	p, err := plan(l, packages, o)
	if err != nil {
		return err
	}
	if o.dry {
		for _, m := range p.mutants() {
			fmt.Fprintf(out, "%s\n%s", m, m.diff())
		}
		return nil
	}

	n := &nursery{root: root, rooms: map[string]room{}, parallel: o.parallel, leeway: o.leeway}
	for _, r := range l.Packages {
		n.rooms[r.Path] = r
	}
	if err := n.check(ctx, p.packages()); err != nil {
		return err
	}
	results, err := n.plant(ctx, p.mutants(), func(r result) { o.tell(out, r, p.known[r.mutant]) })
	if err != nil {
		return err
	}
	return p.report(out, results, l.Percent)
}

// tell prints a mutant that lives, and, if asked to, those that do not.
func (o options) tell(out io.Writer, r result, known *edit) {
	switch {
	case r.fate == lived && known != nil:
		fmt.Fprintf(out, "known   %s: %s\n", r.mutant, known.Why)
	case r.fate == lived:
		e := r.edit()
		fmt.Fprintf(out, "LIVED   %s\n%s    - {in: %s, was: %q, now: %q, why: }\n", r.mutant, r.diff(), e.In, e.Was, e.Now)
	case r.fate == late || known != nil:
		fmt.Fprintf(out, "%s: %s\n%s", r.mutant, r.fate, r.diff())
	case o.verbose:
		fmt.Fprintf(out, "caught  %s: %s\n", r.mutant, r.by)
	}
}

// season is what is planted in one run.
type season struct {
	// chosen count, sown are planted to see whether the list is still right.
	chosen, sown []*mutant
	known        map[*mutant]*edit
}

// mutants are all that are planted.
func (p *season) mutants() []*mutant { return slices.Concat(p.chosen, p.sown) }

// packages are those that something is planted in.
func (p *season) packages() []*code {
	var out []*code
	for _, m := range p.mutants() {
		if !slices.Contains(out, m.code) {
			out = append(out, m.code)
		}
	}
	return out
}

// plan chooses the mutants.
func plan(l *list, packages []*code, o options) (*season, error) {
	p := &season{known: map[*mutant]*edit{}}
	at, err := regexp.Compile(o.at)
	if err != nil {
		return nil, fmt.Errorf("--at: %w", err)
	}
	wanted := func(c *code) bool { return len(o.only) == 0 || slices.Contains(o.only, c.Path) }
	for _, path := range o.only {
		if !slices.ContainsFunc(packages, func(c *code) bool { return c.Path == path }) {
			return nil, fmt.Errorf("the list has no package %s", path)
		}
	}
	for _, c := range packages {
		if !wanted(c) {
			continue
		}
		all, count := findMutants(c), c.Mutants
		if o.count > 0 {
			count = o.count
		}
		if o.at != "" {
			all = slices.DeleteFunc(all, func(m *mutant) bool { return !at.MatchString(fmt.Sprintf("%s:%d", m.file.name, m.line())) })
			count = len(all)
		}
		p.chosen = append(p.chosen, choose(all, l.Seed, count)...)
	}
	var problems []error
	for i, e := range slices.Concat(l.Always, l.Known) {
		m, err := e.find(packages)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("an entry of the list no longer fits: %w", err))
			continue
		case !wanted(m.code) || o.at != "" && !slices.ContainsFunc(p.chosen, m.same):
			continue
		case !m.code.compiles(m):
			problems = append(problems, fmt.Errorf("an entry of the list does not compile: %s", m))
			continue
		}
		if same := slices.IndexFunc(p.chosen, m.same); same >= 0 {
			m = p.chosen[same]
		} else if i < len(l.Always) {
			p.chosen = append(p.chosen, m)
		} else {
			p.sown = append(p.sown, m)
		}
		if i >= len(l.Always) {
			p.known[m] = &e
		}
	}
	return p, errors.Join(problems...)
}

// report says how good the tests are.
func (p *season) report(out io.Writer, results []result, percent int) error {
	total, byPackage, problems := map[fate]int{}, map[*code]map[fate]int{}, []error(nil)
	for i, r := range results {
		known := p.known[r.mutant] != nil
		switch {
		case r.fate == unbuilt:
			if known {
				problems = append(problems, fmt.Errorf("%s is known to live, and does not compile with the tests: take it off the list", r.mutant))
			}
			continue
		case known && r.fate != lived:
			problems = append(problems, fmt.Errorf("%s is known to live, and was caught by %s: take it off the list", r.mutant, r.by))
		case !known && r.fate == lived:
			problems = append(problems, fmt.Errorf("%s lives, and no entry of the list says why it may", r.mutant))
		}
		if i < len(p.chosen) {
			total[r.fate]++
			if byPackage[r.code] == nil {
				byPackage[r.code] = map[fate]int{}
			}
			byPackage[r.code][r.fate]++
		}
	}
	fmt.Fprintln(out)
	for _, c := range p.packages() {
		fmt.Fprintf(out, "%-36s %s\n", c.Path, count(byPackage[c]))
	}
	fmt.Fprintf(out, "%-36s %s\n", strings.Repeat("-", 5), count(total))
	if all := total[caught] + total[late] + total[lived]; 100*(total[caught]+total[late]) < percent*all {
		problems = append(problems, fmt.Errorf("less than %d %% are caught", percent))
	}
	return errors.Join(problems...)
}

// count puts numbers into words.
func count(n map[fate]int) string {
	all := n[caught] + n[late] + n[lived]
	return fmt.Sprintf("%4d planted, %4d caught (%d by the time limit), %3d live: %5.1f %%",
		all, n[caught]+n[late], n[late], n[lived], 100*float64(n[caught]+n[late])/float64(max(all, 1)))
}
