// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/planning"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/timeline"
)

// The output formats that only `forecast` has.
const (
	formSVG  = "svg"
	formHTML = "html"
)

const (
	// longestForecast bounds --until.
	longestForecast = 366 * 24 * time.Hour
	// forecastTime is how long the command takes to predict one Cleaner.
	forecastTime = 2 * time.Minute
	// maxForecastRows bounds the table.
	maxForecastRows = 1000
)

// forecastCommand is `forecast`: it plans as `plan` does, again and again.
type forecastCommand struct {
	planCommand
	until         string
	allNamespaces bool
	// patience is how long it may take to predict one Cleaner.
	patience time.Duration
}

func newForecastCommand(t *tool) *cobra.Command {
	f := &forecastCommand{planCommand: planCommand{terminal: t.terminal, cluster: t.cluster, clock: t.clock}, patience: forecastTime}
	cmd := &cobra.Command{
		Use:   "forecast [" + cleanerArgument + " | -A | -f FILE [--objects FILE|DIR ...]]",
		Short: "Show what Cleaners will do when, if nothing else changes",
		Long: `Show what Cleaners will do when, if nothing else changes: the moments at which ages, 'for', ttl, schedules and limits make
a Cleaner act. The command changes nothing.

It makes the operator's plan, carries it out in a simulated cluster, goes to the next moment at which time alone changes
the answer, and so on until --until. In that cluster each request succeeds, a deleted object takes along what it owns,
and nothing else happens: no controller makes new objects, and none removes finalizers. Each Cleaner is alone. A moment
that cannot be predicted is marked with "about", and the reason is printed: such as evictions that a PodDisruptionBudget
may refuse, requests that limits.actionsPerSecond delays, and uninstalls of Helm releases.

Without -f, the Cleaners are those of the cluster: NAME, all of the namespace, or all of the cluster with -A. The
timers of 'for' end as their status says. With -f, the Cleaners are those in a file, as for "plan".`,
		Example: `  kubectl cleaner forecast preview -n default
  kubectl cleaner forecast -A --until 30d -o html > forecast.html
  kubectl cleaner forecast -f cleaner.yaml --until 24h -o svg > forecast.svg`,
		Args:              validateArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: t.cluster.completeCleaner,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	f.flags.addInputFlags(flags)
	flags.StringVar(&f.until, "until", "7d", "end of the forecast: how far ahead, such as 24h or 30d, or a time such as 2026-01-08T00:00:00Z")
	flags.BoolVarP(&f.allNamespaces, "all-namespaces", "A", false, "include the Cleaners of all namespaces, and all ClusterCleaners")
	flags.StringVarP(&f.flags.output, "output", "o", output.Table, "output format: table, yaml, json, svg or html")
	return cmd
}

// checkArguments reports a mistake of the caller.
func (f *forecastCommand) checkArguments(args []string) error {
	forms := []string{output.Table, output.YAML, output.JSON, formSVG, formHTML}
	switch file := f.flags.file != ""; {
	case !slices.Contains(forms, f.flags.output):
		return usageError{fmt.Errorf("-o %s is not an output format: write table, yaml, json, svg or html", f.flags.output)}
	case len(args) > 0 && f.allNamespaces:
		return usageError{errors.New("-A means all Cleaners: leave the name out")}
	case file && (len(args) > 0 || f.allNamespaces):
		return usageError{errors.New("-f names the file with the Cleaners: leave the name and -A out")}
	case !file && (len(f.flags.objects) > 0 || len(f.flags.parameters) > 0):
		return usageError{errors.New("--objects and --set are for the Cleaners of a file: name the file with -f")}
	}
	return nil
}

func (f *forecastCommand) run(ctx context.Context, args []string) error {
	if err := f.checkArguments(args); err != nil {
		return err
	}
	times, err := f.flags.parseTimes(f.clock.Now())
	if err != nil {
		return err
	}
	until, err := parseUntil(f.until, times.At)
	if err != nil {
		return err
	}
	d := forecast.NewDocument(times.At, until)
	if f.flags.file != "" {
		err = f.predictFile(ctx, d, times)
	} else {
		err = f.predictCluster(ctx, d, times, args)
	}
	if err != nil {
		return err
	}
	return f.print(d)
}

// parseUntil returns the end of a forecast that begins at a moment.
func parseUntil(text string, at time.Time) (time.Time, error) {
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		ahead, err := v1alpha1.ParseDuration(text)
		if err != nil {
			return time.Time{}, usageError{fmt.Errorf("--until %s is neither a duration nor a time: write one such as 7d or 2026-01-08T00:00:00Z", text)}
		}
		until = at.Add(ahead)
	}
	switch {
	case !until.After(at):
		return time.Time{}, usageError{errors.New("--until is not after the beginning of the forecast: write a later time")}
	case until.Sub(at) > longestForecast:
		return time.Time{}, usageError{errors.New("--until is more than 366d ahead: write an earlier time")}
	}
	return until, nil
}

// predictFile predicts the Cleaners of the file.
func (f *forecastCommand) predictFile(ctx context.Context, d *forecast.Document, times planning.Times) error {
	cleaners, err := f.loadCleaners(ctx)
	if err != nil {
		return err
	}
	var problem error
	for _, c := range cleaners {
		if c.IsInvalid() {
			problem = errReported
		} else if err := f.predictCleaner(ctx, d, c, times, forecast.Input{}); err != nil {
			return err
		}
	}
	return problem
}

// predictCleaner adds what a Cleaner does to the forecast.
func (f *forecastCommand) predictCleaner(ctx context.Context, d *forecast.Document, c *manifests.Cleaner, times planning.Times, in forecast.Input) error {
	var err error
	if in.Decision, in.Objects, err = f.prepareDecision(ctx, c, times); err != nil {
		return err
	}
	deadline, name := f.clock.Now().Add(f.patience), nameOwner(c.Owner)
	in.Until, in.IsLate = d.Until.Time, func() bool { return f.clock.Now().After(deadline) }
	in.Decision.Progress = nil // a forecast evaluates again and again
	in.OnMoment = func(at time.Time) {
		f.terminal.progress.BeginStage("Predicting %s: at %s of %s", name, formatSecond(at), formatSecond(d.Until.Time))
	}
	predicted := forecast.Predict(ctx, in)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	predicted.Kind, predicted.Cleaner = ownerKind(c.Owner), name
	predicted.Warnings = append(c.FormatWarnings(), predicted.Warnings...)
	if predicted.Warnings == nil {
		predicted.Warnings = []string{}
	}
	d.Cleaners = append(d.Cleaners, predicted)
	return nil
}

// nameOwner returns <namespace>/<name>, or the name of a ClusterCleaner.
func nameOwner(o v1alpha1.Owner) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

func (f *forecastCommand) print(d *forecast.Document) error {
	out := f.terminal.out
	switch f.flags.output {
	case formSVG:
		return timeline.WriteSVG(out.To, d)
	case formHTML:
		return timeline.WriteHTML(out.To, d)
	case output.Table:
		return out.WriteColumns(func(page output.Screen) { printForecast(page, out.NewPainter(), d) })
	}
	return out.WriteValue(f.flags.output, d)
}

// printForecast prints a forecast for people.
func printForecast(out output.Screen, p output.Painter, d *forecast.Document) {
	steps := d.SortSteps()
	out.Printf("From %s to %s, if nothing else changes: %s\n", formatTime(d.At.Time), formatTime(d.Until.Time), p.Bold(countSteps(len(steps)+int(d.CountOmitted()))))
	several := len(d.Cleaners) > 1
	for i := range d.Cleaners {
		printForecastNotes(out, p, &d.Cleaners[i])
	}
	if len(steps) == 0 {
		return
	}
	if several {
		out.Printf("%s", p.FormatHeading("WHEN", "IN", "VERB", "OBJECT", "CLEANER", "RULE", "REASON"))
	} else {
		out.Printf("%s", p.FormatHeading("WHEN", "IN", "VERB", "OBJECT", "RULE", "REASON"))
	}
	for i := range steps[:min(len(steps), maxForecastRows)] {
		s := &steps[i]
		out.Printf("%s\t%s\t%s\t%s\t", formatMoment(s.Step), formatAhead(s.At.Sub(d.At.Time)), formatVerb(&s.Step.Step), s.Step.Step.NameObject()+formatDependents(s.Step))
		if several {
			out.Printf("%s\t", s.Of.Cleaner)
		}
		out.Printf("%s\t%s\n", s.Rule, s.Reason)
	}
	if n := len(steps) - maxForecastRows; n > 0 {
		out.Printf("\n%d more: see -o json\n", n)
	}
	if n := d.CountOmitted(); n > 0 {
		out.Printf("\n%d more are not listed: choose an earlier --until\n", n)
	}
}

// printForecastNotes prints what to know about a Cleaner besides its steps.
func printForecastNotes(out output.Screen, p output.Painter, c *forecast.Cleaner) {
	name := c.Kind + " " + c.Cleaner
	switch {
	case c.Mode == v1alpha1.ModeDryRun && len(c.Steps) > 0:
		out.Printf("%s: mode is DryRun: none of its steps would be carried out\n", name)
	case len(c.Steps) == 0 && len(c.States) > 0:
		last := &c.States[len(c.States)-1]
		out.Printf("%s: %s (%s)\n", name, p.FormatVerdict(last.Verdict), last.Reason)
		if last.Message != "" {
			out.Printf("  %s\n", output.EscapeLines(output.ContinuationIndent, last.Message))
		}
	}
	for i := range c.States {
		if s := &c.States[i]; s.IsBlocked() && len(c.Steps) > 0 {
			out.Printf("%s: %s from %s (%s)\n", name, p.FormatVerdict(s.Verdict), formatSecond(s.From.Time), s.Reason)
		}
	}
	for _, u := range c.Unpredictable {
		what := name
		if u.Rule != "" {
			what += ", rule " + u.Rule
		}
		out.Printf("%s: %s\n  %s\n", what, p.Yellow("not exactly predictable from "+formatSecond(u.From.Time)), u.Because)
	}
	if c.Cut != "" {
		out.Printf("%s: %s %s\n", name, p.Yellow("predicted only until "+formatSecond(c.Until.Time)+"."), c.Cut)
	}
	if !c.Ends.IsZero() {
		out.Printf("%s: cleans up, and deletes itself, at %s\n", name, formatSecond(c.Ends.Time))
	}
	for _, w := range c.Warnings {
		out.Printf("%s: %s %s\n", name, p.Yellow("warning:"), w)
	}
}

// formatMoment returns when a step is carried out.
func formatMoment(s *forecast.Step) string {
	if s.Exact {
		return formatSecond(s.At.Time)
	}
	return "about " + formatSecond(s.At.Time)
}

// formatSecond returns a moment to the second: -o json has it as it is.
func formatSecond(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// formatAhead returns how far ahead a moment is.
func formatAhead(ahead time.Duration) string {
	if ahead <= 0 {
		return "now"
	}
	return duration.HumanDuration(ahead)
}

// formatDependents says what else becomes of a deleted object.
func formatDependents(s *forecast.Step) string {
	var out []string
	if s.Dependents > 0 {
		out = append(out, fmt.Sprintf("and %d with it", s.Dependents))
	}
	if s.Remains {
		out = append(out, "stays until its finalizers are gone")
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

func countSteps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}
