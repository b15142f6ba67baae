// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/cmd/internal/version"
)

// outputText is the form of what is not a plan, for people.
const outputText = "text"

// What each way to install the operator puts on its Deployment.
const (
	operatorSelector = "app.kubernetes.io/name=cleaner"
	versionLabel     = "app.kubernetes.io/version"
)

// versions are those of this program and of the operators of a cluster.
type versions struct {
	Client version.Info `json:"client"`
	// Operators are usually one; nil if nobody was asked.
	Operators []operatorVersion `json:"operators,omitempty"`
}

// operatorVersion is what a Deployment says of the operator that it runs.
type operatorVersion struct {
	// Deployment is <namespace>/<name>.
	Deployment string `json:"deployment"`
	// Version is that of its label; empty if it has none.
	Version string `json:"version,omitempty"`
	Image   string `json:"image"`
}

func (t *tool) newVersionCommand() *cobra.Command {
	var client bool
	output := outputText
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which version this is, and which one the cluster runs",
		Long: `Say which version this program is, and which one the operator of the cluster is: by the label
` + versionLabel + ` and the image of its Deployment, which is found by the label ` + operatorSelector + `.`,
		Example: `  kubectl cleaner version
  kubectl cleaner version --client -o json`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return t.runVersion(cmd.Context(), client, output) },
	}
	cmd.Flags().BoolVar(&client, "client", false, "ask no cluster")
	cmd.Flags().StringVarP(&output, "output", "o", output, "text, yaml or json")
	return cmd
}

// runVersion writes what is known, also where the cluster says nothing.
func (t *tool) runVersion(ctx context.Context, client bool, form string) error {
	if !slices.Contains([]string{outputText, outputYAML, outputJSON}, form) {
		return usageError{fmt.Errorf("-o %s is no form: write text, yaml or json", form)}
	}
	v := versions{Client: version.Get()}
	var asking error
	if !client {
		v.Operators, asking = t.listOperators(ctx)
	}
	if err := t.printVersions(&v, form, !client && asking == nil); err != nil {
		return err
	}
	return asking
}

func (t *tool) printVersions(v *versions, form string, asked bool) error {
	if form != outputText {
		return t.out.writeValue(form, v)
	}
	t.out.printf("Client: %s\n", v.Client)
	for _, o := range v.Operators {
		t.out.printf("Operator: %s (Deployment %s, image %s)\n", cmp.Or(o.Version, "unknown"), o.Deployment, o.Image)
	}
	if asked && len(v.Operators) == 0 {
		t.out.printf("Operator: none: no Deployment of the cluster has the label %s\n", operatorSelector)
	}
	return nil
}

// listOperators returns those of the cluster.
func (t *tool) listOperators(ctx context.Context) ([]operatorVersion, error) {
	from, err := t.newClusterClient()
	if err != nil {
		return nil, err
	}
	list, err := from.dynamic.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).
		List(ctx, metav1.ListOptions{LabelSelector: operatorSelector})
	if err != nil {
		return nil, fmt.Errorf("cannot find the operator: %w; --client asks no cluster", err)
	}
	var found []operatorVersion
	for i := range list.Items {
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &d); err != nil {
			return nil, fmt.Errorf("cannot read Deployment %s/%s: %w", list.Items[i].GetNamespace(), list.Items[i].GetName(), err)
		}
		o := operatorVersion{Deployment: d.Namespace + "/" + d.Name, Version: d.Labels[versionLabel]}
		if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
			o.Image = containers[0].Image
		}
		found = append(found, o)
	}
	return found, nil
}
