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
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// outputText is the output format for people of all commands but plan.
const outputText = "text"

// The labels of the operator's Deployment, however it is installed.
const (
	operatorSelector = "app.kubernetes.io/name=cleaner"
	versionLabel     = "app.kubernetes.io/version"
)

// versions are the versions of this program and of the operators in a cluster.
type versions struct {
	Client version.Info `json:"client"`
	// Operators usually has one entry. It is nil if no cluster was asked.
	Operators []operatorVersion `json:"operators,omitempty"`
}

// operatorVersion is the version of the operator that a Deployment runs.
type operatorVersion struct {
	// Deployment is <namespace>/<name>.
	Deployment string `json:"deployment"`
	// Version is the value of the version label; empty if there is none.
	Version string `json:"version,omitempty"`
	Image   string `json:"image"`
}

// versionCommand is `version`, with its flags.
type versionCommand struct {
	out     output.Screen
	cluster kubeconfig

	// client means that no cluster is asked.
	client bool
	output string
}

func (v *versionCommand) newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the client and operator versions",
		Long: `Print the version of this program and the version of the operator in the cluster: the label ` + versionLabel + `
and the image of the Deployment with the label ` + operatorSelector + `.`,
		Example: `  kubectl cleaner version
  kubectl cleaner version --client -o json`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return v.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&v.client, "client", false, "print only the client version, without contacting a cluster")
	cmd.Flags().StringVarP(&v.output, "output", "o", outputText, "output format: text, yaml or json")
	return cmd
}

// run prints the versions. If the cluster does not answer, it prints its own first.
func (v *versionCommand) run(ctx context.Context) error {
	if !slices.Contains([]string{outputText, output.YAML, output.JSON}, v.output) {
		return usageError{fmt.Errorf("-o %s is not an output format: write text, yaml or json", v.output)}
	}
	known := versions{Client: version.Get()}
	var asking error
	if !v.client {
		known.Operators, asking = v.listOperators(ctx)
	}
	if err := v.printVersions(&known, !v.client && asking == nil); err != nil {
		return err
	}
	return asking
}

func (v *versionCommand) printVersions(known *versions, asked bool) error {
	if v.output != outputText {
		return v.out.WriteValue(v.output, known)
	}
	v.out.Printf("Client: %s\n", known.Client)
	for _, o := range known.Operators {
		v.out.Printf("Operator: %s (Deployment %s, image %s)\n", cmp.Or(o.Version, "unknown"), o.Deployment, o.Image)
	}
	if asked && len(known.Operators) == 0 {
		v.out.Printf("Operator: not found: no Deployment has the label %s\n", operatorSelector)
	}
	return nil
}

// listOperators returns the versions of the operators in the cluster.
func (v *versionCommand) listOperators(ctx context.Context) ([]operatorVersion, error) {
	from, err := v.cluster.newClusterClient()
	if err != nil {
		return nil, err
	}
	list, err := from.Dynamic.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).
		List(ctx, metav1.ListOptions{LabelSelector: operatorSelector})
	if err != nil {
		return nil, fmt.Errorf("cannot find the operator: %w; use --client to print only the client version", err)
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
