// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// explainCommand is `explain`. With the name of an object it makes a plan, as `plan` does.
type explainCommand struct {
	planCommand
	object string
}

func newExplainCommand(t *tool) *cobra.Command {
	e := &explainCommand{planCommand: planCommand{terminal: t.terminal, cluster: t.cluster, clock: t.clock}}
	cmd := &cobra.Command{
		Use:   "explain " + cleanerArgument + " [--object KIND/NAMESPACE/NAME]",
		Short: "Explain why a Cleaner has or has not acted, or why not on an object",
		Long: `Explain why a Cleaner or a ClusterCleaner has or has not acted, from its status: the result of the last evaluation, what
it waits for, what it could not read or was not allowed to do, and its last actions. Also which targets it keeps in memory as
whole objects, and which rules it evaluates as a whole after each change, and why.

With --object, evaluate the Cleaner now, with your own rights, and explain what it makes of one object: which rule acts
on the object and when, or which step of each rule leaves it out, and what each part of 'when' gives. With -f too, the
Cleaner is that in a file, as for "plan". The command changes nothing.`,
		Example: `  kubectl cleaner explain preview -n default
  kubectl cleaner explain preview -n default --object pod/web-1
  kubectl cleaner explain clustercleaner/everywhere --object configmap/team/b`,
		Args:              validateArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: t.cluster.completeCleaner,
		RunE: func(cmd *cobra.Command, args []string) error {
			if e.object == "" {
				return e.explainStatus(cmd, args)
			}
			return e.explainObject(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.object, "object", "", "object to explain, as KIND/NAMESPACE/NAME, or KIND/NAME if it has no namespace, or the Cleaner's; KIND may be KIND.GROUP")
	e.flags.addInputFlags(flags)
	flags.StringVarP(&e.flags.output, "output", "o", output.Table, "output format of --object: table, yaml or json")
	return cmd
}

// explainStatus explains a Cleaner by its status.
func (e *explainCommand) explainStatus(cmd *cobra.Command, args []string) error {
	if err := validateArgs(oneCleaner)(cmd, args); err != nil {
		return err
	}
	var wrong error
	own := cmd.LocalNonPersistentFlags()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if wrong == nil && own.Lookup(f.Name) != nil {
			wrong = usageError{fmt.Errorf("--%s is for --object: name an object, or omit it", f.Name)}
		}
	})
	if wrong != nil {
		return wrong
	}
	c, err := e.cluster.findCleaner(args[0])
	if err != nil {
		return err
	}
	u, err := c.get(cmd.Context())
	if err != nil {
		return err
	}
	owner, err := manifests.DecodeOwner(u)
	if err != nil {
		return err
	}
	stored := e.compileStored(cmd.Context(), u)
	out := e.terminal.out
	return out.WriteColumns(func(page output.Screen) {
		printStatus(page, out.NewPainter(), c.displayName, owner)
		printCosts(page, stored)
	})
}

// compileStored compiles a Cleaner of the cluster; nil if it is invalid, as its status says, or its template cannot be read.
func (e *explainCommand) compileStored(ctx context.Context, u *unstructured.Unstructured) *manifests.Cleaner {
	loader, err := e.loadClusterTemplates(ctx)
	if err != nil {
		return nil
	}
	c, _, err := loadStored(ctx, loader, u)
	if err != nil {
		return nil
	}
	return c
}

// printCosts prints what the operator cannot do cheaply for a Cleaner, and why: targets that it keeps as whole objects, and rules that it evaluates as
// a whole after each change.
func printCosts(out output.Screen, c *manifests.Cleaner) {
	if c == nil {
		return
	}
	readings := c.Programs.FindReadings()
	for i := range c.Work.Targets {
		name := c.Work.Targets[i].Name
		if reading, seen := readings[name]; seen && reading.WholeFor != "" {
			out.Printf("\nMemory: of target %q, whole objects are kept, for %s\n", name, reading.WholeFor)
		}
	}
	for i := range c.Work.Rules {
		if reuse := c.Programs.FindReuse(i); reuse.Impossible != "" {
			out.Printf("\nTime: of rule %q, %s\n", c.Work.Rules[i].Name, describeReuse(reuse))
		}
	}
}

// printStatus prints a status for people, the most important part first.
func printStatus(out output.Screen, p output.Painter, name string, owner v1alpha1.Owner) {
	s := owner.State()
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		out.Printf("%s has no status: the operator has not seen it yet, or is not running.\n", name)
		return
	case s.ObservedGeneration < owner.GetGeneration():
		out.Printf("%s: this status is for an earlier generation of the spec; the operator has not processed the current one yet.\n", name)
	}
	out.Printf("%s: %s\n%s\n", name, p.Bold(ready.Reason), ready.Message)
	for _, c := range s.Conditions {
		if c.Type != v1alpha1.ConditionReady && (c.Status != metav1.ConditionTrue || slices.Contains([]string{v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionRequestDropped, v1alpha1.ConditionSchemaMismatch}, c.Type)) && c.Message != ready.Message {
			out.Printf("%s: %s: %s\n", p.Yellow(fmt.Sprintf("%s is %s", c.Type, c.Status)), c.Reason, c.Message)
		}
	}
	printEvaluation(out, p, s.LastEvaluation, ready.Message)
	if len(s.Pending) > 0 {
		out.Printf("%s", p.FormatHeading("PENDING", "RULE", "UNTIL"))
		for _, h := range s.Pending {
			out.Printf("%s\t%s\t%s\n", h.Key, h.Rule, formatTime(h.Until.Time))
		}
	}
	printSkippedKinds(out, p, s.SkippedKinds)
	if len(s.Findings) > 0 {
		out.Printf("%s", p.FormatHeading("FINDING", "COUNT", "ITEMS", "MESSAGE"))
		for _, f := range s.Findings {
			out.Printf("%s\t%d\t%s\t%s\n", f.Rule, f.Count, someOf(f.Items, f.Count), f.Message)
		}
	}
	printRuleCounts(out, p, s.RuleCounts)
	printRun(out, s.Run)
	if len(s.LastActions) > 0 {
		out.Printf("%s", p.FormatHeading("LAST ACTION", "OBJECT", "RULE", "TIME", "RESULT"))
		for _, a := range s.LastActions {
			out.Printf("%s\t%s\t%s\t%s\t%s\n", a.Action, a.Object, a.Rule, formatTime(a.Time.Time), a.Result)
		}
	}
	if n := s.NextScheduledEvaluation; n != nil {
		out.Printf("\nNext: %s\n", formatTime(n.Time))
	}
}

// printSkippedKinds prints which kinds targets of kind "*" skip.
func printSkippedKinds(out output.Screen, p output.Painter, skipped *v1alpha1.SkippedKinds) {
	if skipped == nil {
		return
	}
	out.Printf("%s", p.FormatHeading("SKIPPED KIND", "TARGET", "WHY"))
	for _, k := range skipped.Kinds {
		out.Printf("%s\t%s\t%s\n", k.Kind, k.Target, k.Reason)
	}
	if more := skipped.Count - int64(len(skipped.Kinds)); more > 0 {
		out.Printf("and %d more\n", more)
	}
}

// printRuleCounts prints what became of the items of each rule.
func printRuleCounts(out output.Screen, p output.Painter, counts []v1alpha1.RuleCounts) {
	if len(counts) == 0 {
		return
	}
	out.Printf("%s", p.FormatHeading("RULE", "ITEMS", "MATCHED", "KEPT", "SPARED", "WAITING", "PROTECTED", "SHADOWED", "DEFERRED", "ERRORS", "ACTED"))
	for _, c := range counts {
		out.Printf("%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", c.Rule, c.Items, c.Matched, c.Kept, c.Spared, c.Waiting, c.Protected, c.Shadowed, c.Deferred, c.Errors, c.Acted)
	}
}

// printEvaluation prints the last evaluation. It leaves out its message if that was already printed.
func printEvaluation(out output.Screen, p output.Painter, e *v1alpha1.Evaluation, written string) {
	if e == nil {
		return
	}
	out.Printf("\nEvaluated: %s (%s), since %s\n", p.FormatVerdict(e.Verdict), e.Reason, formatTime(e.Time.Time))
	if e.Message != written {
		out.Printf("%s\n", e.Message)
	}
	for _, c := range e.Conditions {
		answer := p.Red(c.Error)
		if c.Value != nil {
			answer = output.EscapeText(strconv.FormatBool(*c.Value))
		}
		out.Printf("  %s: %s\n", c.Expression, answer)
	}
	for _, i := range e.Errors {
		out.Printf("  %s in %s: %s%s\n", p.Red("error"), describePlace(i), strings.TrimSpace(i.Field+" "+i.Message), describeCount(i))
	}
	for _, h := range e.Withheld {
		out.Printf("  withheld: %s: %s\n", h.Object, h.Because)
	}
}

// describePlace names the rule of an error, and the first item that has it. An error of the rule as a whole has none.
func describePlace(e v1alpha1.ItemError) string {
	if e.Key == "" {
		return "rule " + e.Rule
	}
	return "rule " + e.Rule + ", " + e.Key
}

// describeCount says how many items have an error, or nothing if it is an error of the rule as a whole.
func describeCount(e v1alpha1.ItemError) string {
	switch {
	case e.Count > 1:
		return fmt.Sprintf(" (%d items)", e.Count)
	case e.Key == "":
		return ""
	default:
		return " (1 item)"
	}
}

// printRun prints the state or the result of a run.
func printRun(out output.Screen, r *v1alpha1.Run) {
	if r == nil {
		return
	}
	out.Printf("\nRun %d, started at %s: ", r.Number, formatTime(r.DecidedAt.Time))
	if r.Result == "" {
		out.Printf("in progress, %d objects\n", len(r.Rows))
	} else {
		out.Printf("%s. %s\n", r.Result, r.Message)
	}
	for _, c := range r.Counts {
		out.Printf("  %s: %d %s\n", c.Resource, c.Count, c.Outcome)
	}
}

// someOf lists the items that a status names, with … if there are more.
func someOf(items []string, count int64) string {
	text := strings.Join(items, ", ")
	if count > int64(len(items)) {
		text += ", …"
	}
	return text
}
