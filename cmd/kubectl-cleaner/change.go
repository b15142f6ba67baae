// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// cleanerArgument is the argument that names a Cleaner, as help shows it.
const cleanerArgument = "[cleaner/]NAME | clustercleaner/NAME"

// changeCommand is `suspend`, `resume` and `run`: they change one Cleaner in the cluster.
type changeCommand struct {
	out     output.Screen
	cluster kubeconfig
	clock   clock.PassiveClock
}

func (c changeCommand) newSuspendCommand(suspend bool) *cobra.Command {
	use, short, said := "suspend", "Suspend a Cleaner: it stops before its next request", "suspended"
	long := `Suspend a Cleaner or a ClusterCleaner: set spec.suspend. It stops before its next request. An open run is kept, and
continues when the Cleaner is resumed. Requests that were already sent are not undone, and events about finished work
are still delivered.`
	if !suspend {
		use, short, said = "resume", "Resume a suspended Cleaner", "resumed"
		long = `Resume a suspended Cleaner or ClusterCleaner: set spec.suspend to false. The operator evaluates it at once.`
	}
	many := manyCleaners{changeCommand: c, suspend: suspend, said: said}
	cmd := &cobra.Command{
		Use:   use + " " + cleanerArgument + " | --all",
		Short: short,
		Long: long + `

With --all, the command does this to all Cleaners of the namespace; with --all -A, to all Cleaners and ClusterCleaners
of the cluster.`,
		Example: fmt.Sprintf(`  kubectl cleaner %[1]s preview -n default
  kubectl cleaner %[1]s clustercleaner/everywhere
  kubectl cleaner %[1]s --all -l team=web -n default
  kubectl cleaner %[1]s --all -A`, use),
		Args:              validateArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: c.cluster.completeCleaner,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := many.checkArguments(args); err != nil {
				return err
			}
			if len(args) == 1 {
				return c.patchCleaner(cmd.Context(), args[0], said, suspendChange(suspend))
			}
			return many.changeAll(cmd.Context())
		},
	}
	many.addFlags(cmd)
	return cmd
}

func (c changeCommand) newRunCommand() *cobra.Command {
	becomeAuthor := false
	cmd := &cobra.Command{
		Use:   "run " + cleanerArgument,
		Short: "Evaluate a Cleaner now",
		Long: `Evaluate a Cleaner or a ClusterCleaner now: set the annotation ` + v1alpha1.AnnotationRequestedAt + `. The operator does not
wait for a change of a target or for retry.period. The Cleaner still acts only if its ttl has passed and its conditions
are true.

If the author of the spec is unknown (the status says ` + v1alpha1.ReasonAuthorMissing + `), the request makes you the author: the Cleaner then acts with
your rights, also if another user wrote the spec. So the command refuses to do that unless you set --become-author. Read the spec first.`,
		Example: `  kubectl cleaner run preview -n default
  kubectl cleaner run clustercleaner/everywhere
  kubectl cleaner run preview -n default --become-author`,
		Args:              validateArgs(oneCleaner),
		ValidArgsFunction: c.cluster.completeCleaner,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.runEvaluation(cmd.Context(), args[0], becomeAuthor)
		},
	}
	cmd.Flags().BoolVar(&becomeAuthor, "become-author", false, "become the author of the spec if its author is unknown: the Cleaner then acts with your rights")
	return cmd
}

// runEvaluation requests an evaluation, and says what that has changed.
func (c changeCommand) runEvaluation(ctx context.Context, argument string, becomeAuthor bool) error {
	found, err := c.cluster.findCleaner(argument)
	if err != nil {
		return err
	}
	isAuthor, err := found.requestEvaluation(ctx, c.clock.Now(), becomeAuthor)
	if err != nil {
		return err
	}
	c.out.Printf("%s evaluation requested\n", found.displayName)
	if isAuthor {
		c.out.Printf("you are now the author of its spec: it acts with your rights\n")
	}
	return nil
}

// requestEvaluation requests an evaluation, and reports whether that has made the caller the author of the spec. A dry run shows first whether
// the webhook would sign the caller as the author: without becomeAuthor, nothing is changed then.
func (c *cleanerRef) requestEvaluation(ctx context.Context, now time.Time, becomeAuthor bool) (isAuthor bool, err error) {
	requested := map[string]any{v1alpha1.AnnotationRequestedAt: now.UTC().Format(time.RFC3339Nano)}
	change := map[string]any{"metadata": map[string]any{"annotations": requested}}
	before, err := c.get(ctx)
	if err != nil {
		return false, err
	}
	if !becomeAuthor {
		tried, err := c.patch(ctx, change, metav1.DryRunAll)
		if err != nil {
			return false, err
		}
		if isNewAuthor(before, tried) {
			return false, &newAuthorError{c.displayName}
		}
	}
	after, err := c.patch(ctx, change)
	if err != nil {
		return false, err
	}
	return isNewAuthor(before, after), nil
}

// newAuthorError says that a request was not sent, because it would make the caller the author of the spec.
type newAuthorError struct{ displayName string }

func (e *newAuthorError) Error() string {
	return fmt.Sprintf("the author of the spec of %[1]s is unknown, and this request would make you the author: the Cleaner would act with your rights. "+
		"Read the spec (kubectl get %[1]s -o yaml), then set --become-author", e.displayName)
}

// isNewAuthor reports whether a request for an evaluation has changed the author.
func isNewAuthor(before, after *unstructured.Unstructured) bool {
	return before.GetAnnotations()[v1alpha1.AnnotationAuthor] != after.GetAnnotations()[v1alpha1.AnnotationAuthor]
}

// cleanerRef is a Cleaner in the cluster.
type cleanerRef struct {
	resource dynamic.ResourceInterface
	name     string
	// displayName is <kind>/<name>, as kubectl prints it.
	displayName string
}

// findCleaner returns the Cleaner that an argument names. It does not check that the Cleaner exists.
func (k kubeconfig) findCleaner(argument string) (*cleanerRef, error) {
	kind, name, ok := strings.Cut(argument, "/")
	if !ok {
		kind, name = "cleaner", argument
	}
	resource, singular, err := k.resolveKind(kind)
	if err != nil {
		return nil, err
	}
	if resource == nil {
		return nil, usageError{fmt.Errorf("%q is not a kind of Cleaner: write cleaner/%s or clustercleaner/%s", kind, name, name)}
	}
	return &cleanerRef{resource: resource, name: name, displayName: singular + "/" + name}, nil
}

// resolveKind returns the client for a kind of Cleaners, by any name of the kind, and the singular name. in is nil for another kind.
func (k kubeconfig) resolveKind(kind string) (in dynamic.ResourceInterface, singular string, err error) {
	from, err := k.newClusterClient()
	if err != nil {
		return nil, "", err
	}
	gv := v1alpha1.GroupVersion
	switch strings.ToLower(kind) {
	case "cleaner", "cleaners", "cln":
		namespace, err := k.readNamespace()
		if err != nil {
			return nil, "", fmt.Errorf("cannot find the namespace of the Cleaner: %w; set it with -n", err)
		}
		return from.Dynamic.Resource(gv.WithResource("cleaners")).Namespace(namespace), "cleaner", nil
	case "clustercleaner", "clustercleaners", "ccln":
		return from.Dynamic.Resource(gv.WithResource("clustercleaners")), "clustercleaner", nil
	}
	return nil, "", nil
}

func (c changeCommand) patchCleaner(ctx context.Context, argument, said string, change map[string]any) error {
	found, err := c.cluster.findCleaner(argument)
	if err != nil {
		return err
	}
	if _, err := found.patch(ctx, change); err != nil {
		return err
	}
	c.out.Printf("%s %s\n", found.displayName, said)
	return nil
}

// get reads a Cleaner.
func (c *cleanerRef) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.resource.Get(ctx, c.name, metav1.GetOptions{})
}

// patch sends a merge patch, and returns the Cleaner with it.
func (c *cleanerRef) patch(ctx context.Context, change map[string]any, dryRun ...string) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	return c.resource.Patch(ctx, c.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "kubectl-cleaner", DryRun: dryRun})
}

// manyCleaners is `suspend` and `resume` of all Cleaners of a namespace, or of the cluster.
type manyCleaners struct {
	changeCommand
	suspend bool
	// said is what was done, in a word.
	said string

	all, allNamespaces bool
	selector           string
}

func (m *manyCleaners) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&m.all, "all", false, "change all Cleaners of the namespace")
	flags.BoolVarP(&m.allNamespaces, "all-namespaces", "A", false, "with --all: change the Cleaners of all namespaces, and all ClusterCleaners")
	flags.StringVarP(&m.selector, "selector", "l", "", "with --all: change only those with these labels, such as team=web")
}

// checkArguments reports a mistake of the caller: either one Cleaner is named, or all are meant.
func (m *manyCleaners) checkArguments(args []string) error {
	switch {
	case len(args) == 0 && !m.all:
		return usageError{errors.New("name a Cleaner, or set --all")}
	case len(args) == 1 && m.all:
		return usageError{errors.New("--all changes all Cleaners: leave the name out")}
	case !m.all && (m.allNamespaces || m.selector != ""):
		return usageError{errors.New("-A and -l choose among all Cleaners: set --all too, and leave the name out")}
	}
	return nil
}

// suspendChange returns the change that suspends or resumes a Cleaner.
func suspendChange(suspend bool) map[string]any {
	return map[string]any{"spec": map[string]any{"suspend": suspend}}
}

// changeAll changes all Cleaners that are meant. One that cannot be changed does not keep the others from it.
func (m *manyCleaners) changeAll(ctx context.Context) error {
	from, err := m.cluster.newClusterClient()
	if err != nil {
		return err
	}
	cleaners := from.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("cleaners"))
	if !m.allNamespaces {
		namespace, err := m.cluster.readNamespace()
		if err != nil {
			return fmt.Errorf("cannot find the namespace: %w; set it with -n", err)
		}
		return m.changeListed(ctx, "cleaner", cleaners.Namespace(namespace), func(string) dynamic.ResourceInterface { return cleaners.Namespace(namespace) })
	}
	clusterCleaners := from.Dynamic.Resource(v1alpha1.GroupVersion.WithResource("clustercleaners"))
	return errors.Join(
		m.changeListed(ctx, "clustercleaner", clusterCleaners, func(string) dynamic.ResourceInterface { return clusterCleaners }),
		m.changeListed(ctx, "cleaner", cleaners, func(namespace string) dynamic.ResourceInterface { return cleaners.Namespace(namespace) }),
	)
}

// changeListed changes the Cleaners of a list, each in its namespace, and prints a line for each.
func (m *manyCleaners) changeListed(ctx context.Context, kind string, list dynamic.ResourceInterface, in func(namespace string) dynamic.ResourceInterface) error {
	var problems []error
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list.List(ctx, o) })
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: m.selector}, func(o runtime.Object) error {
		if problem := m.changeOne(ctx, kind, o, in); problem != nil {
			problems = append(problems, problem)
		}
		return ctx.Err()
	})
	if err != nil {
		problems = append(problems, fmt.Errorf("cannot list %ss: %w", kind, err))
	}
	return errors.Join(problems...)
}

// changeOne changes one Cleaner of a list, unless that would change nothing.
func (m *manyCleaners) changeOne(ctx context.Context, kind string, listed runtime.Object, in func(namespace string) dynamic.ResourceInterface) error {
	o, err := meta.Accessor(listed)
	if err != nil {
		return err
	}
	name := kind + "/" + o.GetName()
	if o.GetNamespace() != "" && m.allNamespaces {
		name += " in namespace " + o.GetNamespace()
	}
	if u, ok := listed.(*unstructured.Unstructured); ok {
		if is, _, err := unstructured.NestedBool(u.Object, "spec", "suspend"); err == nil && is == m.suspend {
			m.out.Printf("%s was not changed: it is %s\n", name, map[bool]string{true: "suspended already", false: "not suspended"}[m.suspend])
			return nil
		}
	}
	c := &cleanerRef{resource: in(o.GetNamespace()), name: o.GetName()}
	if _, err := c.patch(ctx, suspendChange(m.suspend)); err != nil {
		return fmt.Errorf("cannot change %s: %w", name, err)
	}
	m.out.Printf("%s %s\n", name, m.said)
	return nil
}
