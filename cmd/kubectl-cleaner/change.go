// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// how a Cleaner is named on the command line.
const cleanerArgument = "[cleaner/]NAME | clustercleaner/NAME"

func (t *tool) newSuspendCommand(suspend bool) *cobra.Command {
	use, short, said := "suspend", "Stop a Cleaner before its next deed", "suspended"
	long := `Stop a Cleaner or a ClusterCleaner before its next deed, by spec.suspend. A run that has begun is kept, and goes on when
it is resumed; requests that were sent already are not taken back, and events of what was done are delivered still.`
	if !suspend {
		use, short, said = "resume", "Let a Cleaner that was suspended go on", "resumed"
		long = `Let a Cleaner or a ClusterCleaner that was suspended go on, by spec.suspend. It is evaluated at once.`
	}
	return &cobra.Command{
		Use:   use + " " + cleanerArgument,
		Short: short,
		Long:  long,
		Example: fmt.Sprintf(`  kubectl cleaner %[1]s preview -n default
  kubectl cleaner %[1]s clustercleaner/everywhere`, use),
		Args:              validateArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: t.completeCleaner,
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.patchCleaner(cmd.Context(), args[0], said, map[string]any{"spec": map[string]any{"suspend": suspend}})
		},
	}
}

func (t *tool) newRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run " + cleanerArgument,
		Short: "Have a Cleaner evaluated now",
		Long: `Have a Cleaner or a ClusterCleaner evaluated now, by an annotation: it does not wait for an event, nor for its
retry.period. It does what it would have done of its own accord, and no more: its ttl and its conditions have to hold.`,
		Example: `  kubectl cleaner run preview -n default
  kubectl cleaner run clustercleaner/everywhere`,
		Args:              validateArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: t.completeCleaner,
		RunE: func(cmd *cobra.Command, args []string) error {
			requested := map[string]any{v1alpha1.AnnotationRequestedAt: t.clock.Now().UTC().Format(time.RFC3339Nano)}
			return t.patchCleaner(cmd.Context(), args[0], "is evaluated now", map[string]any{"metadata": map[string]any{"annotations": requested}})
		},
	}
}

// cleanerRef is a Cleaner of the cluster.
type cleanerRef struct {
	resource dynamic.ResourceInterface
	name     string
	// displayName is <kind>/<name>, as kubectl writes it.
	displayName string
}

// findCleaner finds a Cleaner by how it is named on the command line.
func (t *tool) findCleaner(argument string) (*cleanerRef, error) {
	kind, name, ok := strings.Cut(argument, "/")
	if !ok {
		kind, name = "cleaner", argument
	}
	resource, singular, err := t.resolveKind(kind)
	if err != nil {
		return nil, err
	}
	if resource == nil {
		return nil, usageError{fmt.Errorf("%q is no kind of Cleaner: write cleaner/%s or clustercleaner/%s", kind, name, name)}
	}
	return &cleanerRef{resource: resource, name: name, displayName: singular + "/" + name}, nil
}

// resolveKind finds where the Cleaners of a kind are, by any of its names; nil if it is no such kind.
func (t *tool) resolveKind(kind string) (in dynamic.ResourceInterface, singular string, err error) {
	from, err := t.newClusterClient()
	if err != nil {
		return nil, "", err
	}
	gv := v1alpha1.GroupVersion
	switch strings.ToLower(kind) {
	case "cleaner", "cleaners", "cln":
		namespace, _, err := t.config.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return nil, "", fmt.Errorf("cannot find the namespace of the Cleaner: %w; write -n", err)
		}
		return from.dynamic.Resource(gv.WithResource("cleaners")).Namespace(namespace), "cleaner", nil
	case "clustercleaner", "clustercleaners", "ccln":
		return from.dynamic.Resource(gv.WithResource("clustercleaners")), "clustercleaner", nil
	}
	return nil, "", nil
}

func (t *tool) patchCleaner(ctx context.Context, argument, said string, change map[string]any) error {
	c, err := t.findCleaner(argument)
	if err != nil {
		return err
	}
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	if _, err := c.resource.Patch(ctx, c.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "kubectl-cleaner"}); err != nil {
		return err
	}
	t.out.printf("%s %s\n", c.displayName, said)
	return nil
}

// get reads a Cleaner.
func (c *cleanerRef) get(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.resource.Get(ctx, c.name, metav1.GetOptions{})
}
