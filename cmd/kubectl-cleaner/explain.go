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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func (t *tool) newExplainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "explain " + cleanerArgument,
		Short: "Say why a Cleaner has or has not acted, from its status",
		Long: `Say why a Cleaner or a ClusterCleaner has or has not acted, from its status: what the last evaluation came to, what it
waits for, what it could not read or was not allowed to do, and what it did last. Nothing is evaluated, and nothing is
changed; "plan" evaluates.`,
		Example: `  kubectl cleaner explain preview -n default
  kubectl cleaner explain clustercleaner/everywhere`,
		Args:              validateArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: t.completeCleaner,
		RunE:              func(cmd *cobra.Command, args []string) error { return t.runExplain(cmd.Context(), args[0]) },
	}
}

func (t *tool) runExplain(ctx context.Context, argument string) error {
	c, err := t.findCleaner(argument)
	if err != nil {
		return err
	}
	u, err := c.get(ctx)
	if err != nil {
		return err
	}
	owner, ok := newObject(u.GetKind()).(v1alpha1.Owner)
	if !ok {
		return fmt.Errorf("%s is a %s", c.displayName, u.GetKind())
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, owner); err != nil {
		return fmt.Errorf("cannot read %s: %w", c.displayName, err)
	}
	return t.out.writeColumns(func(page screen) { printStatus(page, t.out.newPainter(), c.displayName, owner) })
}

// printStatus writes a status for people, the most important first.
func printStatus(out screen, p painter, name string, owner v1alpha1.Owner) {
	s := owner.State()
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		out.printf("%s has no status: the operator has not seen it yet, or does not run.\n", name)
		return
	case s.ObservedGeneration < owner.GetGeneration():
		out.printf("%s: what follows is about an earlier spec; the operator has not seen the new one yet.\n", name)
	}
	out.printf("%s: %s\n%s\n", name, p.bold(ready.Reason), ready.Message)
	for _, c := range s.Conditions {
		if c.Type != v1alpha1.ConditionReady && (c.Status != metav1.ConditionTrue || slices.Contains([]string{v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.ConditionRequestDropped}, c.Type)) && c.Message != ready.Message {
			out.printf("%s: %s: %s\n", p.yellow(fmt.Sprintf("%s is %s", c.Type, c.Status)), c.Reason, c.Message)
		}
	}
	printEvaluation(out, p, s.LastEvaluation, ready.Message)
	if len(s.Pending) > 0 {
		out.printf("%s", p.formatHeading("PENDING", "RULE", "UNTIL"))
		for _, h := range s.Pending {
			out.printf("%s\t%s\t%s\n", h.Key, h.Rule, formatTime(h.Until.Time))
		}
	}
	if len(s.Findings) > 0 {
		out.printf("%s", p.formatHeading("FINDING", "ITEMS", "FOUND", "WHY"))
		for _, f := range s.Findings {
			out.printf("%s\t%d\t%s\t%s\n", f.Rule, f.Count, someOf(f.Items, f.Count), f.Message)
		}
	}
	printRun(out, s.Run)
	if len(s.LastActions) > 0 {
		out.printf("%s", p.formatHeading("LAST ACTION", "OBJECT", "RULE", "TIME", "RESULT"))
		for _, a := range s.LastActions {
			out.printf("%s\t%s\t%s\t%s\t%s\n", a.Action, a.Object, a.Rule, formatTime(a.Time.Time), a.Result)
		}
	}
	if n := s.NextScheduledEvaluation; n != nil {
		out.printf("\nNext: %s\n", formatTime(n.Time))
	}
}

// printEvaluation writes the last evaluation, without the message that was written already.
func printEvaluation(out screen, p painter, e *v1alpha1.Evaluation, written string) {
	if e == nil {
		return
	}
	out.printf("\nEvaluated: %s (%s), since %s\n", p.formatVerdict(e.Verdict), e.Reason, formatTime(e.Time.Time))
	if e.Message != written {
		out.printf("%s\n", e.Message)
	}
	for _, c := range e.Conditions {
		answer := p.red(c.Error)
		if c.Value != nil {
			answer = escapeText(strconv.FormatBool(*c.Value))
		}
		out.printf("  %s: %s\n", c.Expression, answer)
	}
	for _, i := range e.Errors {
		out.printf("  %s in rule %s, %s: %s %s (%d times)\n", p.red("error"), i.Rule, i.Key, i.Field, i.Message, max(i.Count, 1))
	}
	for _, h := range e.Withheld {
		out.printf("  not touched: %s: %s\n", h.Object, h.Because)
	}
}

// printRun writes what became of a run.
func printRun(out screen, r *v1alpha1.Run) {
	if r == nil {
		return
	}
	out.printf("\nRun %d, decided at %s: ", r.Number, formatTime(r.DecidedAt.Time))
	if r.Result == "" {
		out.printf("under way, %d objects\n", len(r.Rows))
	} else {
		out.printf("%s. %s\n", r.Result, r.Message)
	}
	for _, c := range r.Counts {
		out.printf("  %s: %d %s\n", c.Resource, c.Count, c.Outcome)
	}
}

// someOf lists the items that a status names, and says whether there are more.
func someOf(items []string, count int64) string {
	text := strings.Join(items, ", ")
	if count > int64(len(items)) {
		text += ", …"
	}
	return text
}
