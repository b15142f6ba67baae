// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// listCommand is `list`, with its flags.
type listCommand struct {
	out     output.Screen
	cluster kubeconfig
	clock   clock.PassiveClock

	allNamespaces    bool
	selector, output string
}

// cleanerList is what `list -o json` prints. Its structure is a promise.
type cleanerList struct {
	Kind  string          `json:"kind"`
	Items []listedCleaner `json:"items"`
}

// listedCleaner says how one Cleaner is.
type listedCleaner struct {
	Kind string `json:"kind"`
	// Namespace is empty for a ClusterCleaner.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Ready, Reason and Message are those of condition Ready; empty if the operator has not seen the Cleaner yet.
	Ready   string        `json:"ready"`
	Reason  string        `json:"reason"`
	Message string        `json:"message"`
	Mode    v1alpha1.Mode `json:"mode"`
	// Next is when the next evaluation is due if nothing changes before then.
	Next *metav1.Time `json:"next,omitempty"`
	// Done counts the actions, and Failed those that were refused or lost.
	Done    int64       `json:"done"`
	Failed  int64       `json:"failed"`
	Created metav1.Time `json:"created"`
	// RuleCounts say how many items of each rule each step has left out.
	RuleCounts []v1alpha1.RuleCounts `json:"ruleCounts,omitempty"`
}

func (l *listCommand) newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List Cleaners, and how they are",
		Long: `List the Cleaners of the namespace; with -A, all Cleaners and ClusterCleaners of the cluster. Each row says whether the
Cleaner is ready, what it waits for or what is wrong, when it is evaluated next, and how many actions it has carried out.`,
		Example: `  kubectl cleaner list -n default
  kubectl cleaner list -A -l team=web
  kubectl cleaner list -A -o json`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&l.allNamespaces, "all-namespaces", "A", false, "list the Cleaners of all namespaces, and all ClusterCleaners")
	flags.StringVarP(&l.selector, "selector", "l", "", "list only those with these labels, such as team=web")
	flags.StringVarP(&l.output, "output", "o", output.Table, "output format: table, yaml or json")
	return cmd
}

// run lists what can be listed, and reports the rest.
func (l *listCommand) run(ctx context.Context) error {
	if !slices.Contains([]string{output.Table, output.YAML, output.JSON}, l.output) {
		return usageError{fmt.Errorf("-o %s is not an output format: write table, yaml or json", l.output)}
	}
	from, err := l.cluster.newClusterClient()
	if err != nil {
		return err
	}
	found := cleanerList{Kind: "CleanerList", Items: []listedCleaner{}}
	cleaners, problem := from.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("cleaners")), error(nil)
	if l.allNamespaces {
		everywhere := l.addListed(ctx, &found, "ClusterCleaners", from.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("clustercleaners")))
		problem = errors.Join(everywhere, l.addListed(ctx, &found, "Cleaners", cleaners))
	} else {
		namespace, err := l.cluster.readNamespace()
		if err != nil {
			return fmt.Errorf("cannot find the namespace: %w; set it with -n", err)
		}
		if problem = l.addListed(ctx, &found, "Cleaners", cleaners.Namespace(namespace)); problem == nil && len(found.Items) == 0 && l.output == output.Table {
			l.out.Printf("There are no Cleaners in namespace %s.\n", namespace)
			return nil
		}
	}
	return errors.Join(problem, l.print(&found))
}

// addListed adds the Cleaners of a list.
func (l *listCommand) addListed(ctx context.Context, to *cleanerList, what string, list dynamic.ResourceInterface) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list.List(ctx, o) })
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: l.selector}, func(o runtime.Object) error {
		u, ok := o.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("cannot read a %T", o)
		}
		owner, err := manifests.DecodeOwner(u)
		if err != nil {
			return err
		}
		to.Items = append(to.Items, newListed(owner))
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", what, err)
	}
	return nil
}

// newListed says how a Cleaner is, from its status.
func newListed(owner v1alpha1.Owner) listedCleaner {
	s := owner.State()
	c := listedCleaner{
		Kind: ownerKind(owner), Namespace: owner.GetNamespace(), Name: owner.GetName(), Mode: cmp.Or(owner.Common().Mode, v1alpha1.ModeEnforce),
		Next: s.NextScheduledEvaluation, Created: owner.GetCreationTimestamp(),
		RuleCounts: s.RuleCounts,
	}
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); ready != nil {
		c.Ready, c.Reason, c.Message = string(ready.Status), ready.Reason, ready.Message
	}
	if s.Counters != nil {
		c.Done, c.Failed = s.Counters.Acted, s.Counters.Failed
	}
	return c
}

func (l *listCommand) print(found *cleanerList) error {
	if l.output != output.Table {
		return l.out.WriteValue(l.output, found)
	}
	if len(found.Items) == 0 {
		return nil
	}
	return l.out.WriteColumns(func(page output.Screen) {
		if l.allNamespaces {
			page.Printf("NAMESPACE\t")
		}
		page.Printf("NAME\tREADY\tREASON\tMODE\tNEXT\tDONE\tAGE\n")
		for i := range found.Items {
			c, next := &found.Items[i], ""
			if c.Next != nil {
				next = formatTime(c.Next.Time)
			}
			if l.allNamespaces {
				page.Printf("%s\t", c.Namespace)
			}
			page.Printf("%s\t%s\t%s\t%s\t%s\t%d\t%s\n", c.displayName(), c.Ready, c.Reason, c.Mode, next, c.Done, duration.HumanDuration(l.clock.Since(c.Created.Time)))
		}
	})
}

// displayName is the argument that names the Cleaner for other commands.
func (c *listedCleaner) displayName() string {
	if c.Kind == manifests.KindClusterCleaner {
		return "clustercleaner/" + c.Name
	}
	return c.Name
}
