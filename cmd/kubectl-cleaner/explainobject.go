// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/whynot"
)

// nothing is printed where a cell is empty.
const nothing = "<none>"

// checkArguments reports a mistake of the caller.
func (e *explainCommand) checkArguments(args []string) error {
	f := &e.flags
	switch file := f.file != ""; {
	case !slices.Contains([]string{output.Table, output.YAML, output.JSON}, f.output):
		return usageError{fmt.Errorf("-o %s is not an output format: write table, yaml or json", f.output)}
	case file && len(args) > 0:
		return usageError{errors.New("-f names the file with the Cleaner: leave the name out")}
	case !file && len(args) == 0:
		return usageError{errors.New("name a Cleaner, or the file with it: -f FILE")}
	case !file && (len(f.objects) > 0 || len(f.parameters) > 0):
		return usageError{errors.New("--objects and --set are for the Cleaner of a file: name the file with -f")}
	}
	return nil
}

// explainObject explains what a Cleaner makes of the object.
func (e *explainCommand) explainObject(ctx context.Context, args []string) error {
	if err := e.checkArguments(args); err != nil {
		return err
	}
	name, err := whynot.ParseName(e.object)
	if err != nil {
		return usageError{fmt.Errorf("--object %w", err)}
	}
	times, err := e.flags.parseTimes(e.clock.Now())
	if err != nil {
		return err
	}
	d, err := e.loadDecision(ctx, args, times)
	if err != nil {
		return err
	}
	waiting := d.Waiting
	d, world, err := e.prepareDecision(ctx, d.Cleaner, times)
	if err != nil {
		return err
	}
	d.Waiting = waiting
	x, err := whynot.Explain(ctx, d, world, name)
	if err != nil {
		return err
	}
	if e.flags.output != output.Table {
		return e.terminal.out.WriteValue(e.flags.output, x)
	}
	out := e.terminal.out
	return out.WriteColumns(func(page output.Screen) { printExplanation(page, out.NewPainter(), ownerKind(d.Cleaner.Owner), x) })
}

// loadDecision reads the Cleaner of the file or of the cluster, and what waits by its status.
func (e *explainCommand) loadDecision(ctx context.Context, args []string, times planning.Times) (planning.Decision, error) {
	d := planning.Decision{Times: times}
	if len(args) == 0 {
		cleaners, err := e.loadCleaners(ctx)
		switch {
		case err != nil:
			return d, err
		case len(cleaners) != 1:
			return d, fmt.Errorf("%s has %d Cleaners: write one of them to a file of its own", e.flags.file, len(cleaners))
		case cleaners[0].IsInvalid():
			return d, errReported
		}
		d.Cleaner = cleaners[0]
		return d, nil
	}
	named, err := e.cluster.findCleaner(args[0])
	if err != nil {
		return d, err
	}
	u, err := named.get(ctx)
	if err != nil {
		return d, err
	}
	loader, err := e.loadClusterTemplates(ctx)
	if err != nil {
		return d, err
	}
	c, state, err := loadStored(ctx, loader, u)
	if err != nil {
		return d, err
	}
	d.Cleaner = c
	if e.flags.since == "" {
		d.Waiting = state.Pending
	}
	return d, nil
}

// printExplanation prints an explanation for people, the answer first.
func printExplanation(out output.Screen, p output.Painter, kind string, x *whynot.Explanation) {
	out.Printf("%s %s, %s at %s\n%s\n", kind, x.Cleaner, x.Object, formatTime(x.At.Time), p.Bold(x.Answer))
	out.Printf("%s", p.FormatHeading("TARGET", "SELECTS IT", "BECAUSE"))
	for _, t := range x.Targets {
		selects := "no"
		if t.Selected {
			selects = "yes"
		}
		out.Printf("%s\t%s\t%s\n", t.Name, selects, cmp.Or(t.Because, nothing))
	}
	if len(x.Rules) > 0 {
		out.Printf("%s", p.FormatHeading("RULE", "STEP", "BECAUSE"))
	}
	for i := range x.Rules {
		r := &x.Rules[i]
		out.Printf("%s\t%s\t%s\n", r.Name, string(r.Step), cmp.Or(describeBecause(r), nothing))
	}
	for i := range x.Rules {
		printParts(out, p, &x.Rules[i])
	}
	printNext(out, x.Next, x.Recheck)
}

// describeBecause says why a rule leaves the object out, or acts on it, as far as the step does not say it.
func describeBecause(r *whynot.Rule) string {
	var out []string
	if r.Item != "" {
		out = append(out, "by an action of the item "+r.Item)
	}
	if !r.Until.IsZero() {
		out = append(out, "until "+formatTime(r.Until.Time))
	}
	if r.Because != "" {
		out = append(out, r.Because)
	}
	return strings.Join(out, "; ")
}

// printParts prints what the parts of `when` of a rule gave.
func printParts(out output.Screen, p output.Painter, r *whynot.Rule) {
	of := ""
	for _, part := range r.Parts {
		if part.Of != of {
			of = part.Of
			out.Printf("\nRule %s, %s:\n", r.Name, of)
		}
		value := output.EscapeText(part.Value)
		switch {
		case part.NotNeeded:
			value = p.Yellow("not needed")
		case part.Error != "":
			value = p.Red(part.Error)
		}
		out.Printf("  %s%s: %s\n", strings.Repeat("  ", part.Depth), part.Expression, value)
	}
}
