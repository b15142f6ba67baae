// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/vtex/cleaner/api/v1alpha1"
)

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
	cleaners := from.dynamic.Resource(v1alpha1.GroupVersion.WithResource("cleaners"))
	if !m.allNamespaces {
		namespace, err := m.cluster.readNamespace()
		if err != nil {
			return fmt.Errorf("cannot find the namespace: %w; set it with -n", err)
		}
		return m.changeListed(ctx, "cleaner", cleaners.Namespace(namespace), func(string) dynamic.ResourceInterface { return cleaners.Namespace(namespace) })
	}
	clusterCleaners := from.dynamic.Resource(v1alpha1.GroupVersion.WithResource("clustercleaners"))
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
