// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
)

// completionTimeout is how long completion waits for the cluster.
const completionTimeout = 3 * time.Second

// kubectlScript is the program that kubectl runs to complete the arguments of `kubectl cleaner`.
//
//go:embed kubectl_complete-cleaner
var kubectlScript string

// completionWriters returns the functions that write completion scripts, by shell.
func completionWriters() map[string]func(*cobra.Command, io.Writer) error {
	return map[string]func(*cobra.Command, io.Writer) error{
		"bash":       func(root *cobra.Command, w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"zsh":        func(root *cobra.Command, w io.Writer) error { return root.GenZshCompletion(w) },
		"fish":       func(root *cobra.Command, w io.Writer) error { return root.GenFishCompletion(w, true) },
		"powershell": func(root *cobra.Command, w io.Writer) error { return root.GenPowerShellCompletionWithDesc(w) },
		"kubectl": func(_ *cobra.Command, w io.Writer) error {
			_, err := io.WriteString(w, kubectlScript)
			return err
		},
	}
}

// completionCommand is `completion`.
type completionCommand struct{ out output.Screen }

func (c completionCommand) newCommand() *cobra.Command {
	names := slices.Sorted(maps.Keys(completionWriters()))
	return &cobra.Command{
		Use:   "completion " + strings.Join(names, "|"),
		Short: "Print completion scripts",
		Long: `Print scripts that complete commands, flags, and the names of Cleaners and namespaces in the cluster.

If kubectl's own completion is set up in your shell, it also completes "kubectl cleaner", as long as the program
kubectl_complete-cleaner is on the PATH. "completion kubectl" prints that program. The shell scripts complete
the standalone command kubectl-cleaner: source one, or put it where your shell looks for completions.`,
		Example: `  kubectl cleaner completion kubectl > ~/.local/bin/kubectl_complete-cleaner
  chmod +x ~/.local/bin/kubectl_complete-cleaner
  source <(kubectl-cleaner completion bash)`,
		Args:      validateArgs(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			return completionWriters()[args[0]](cmd.Root(), c.out.NewHelpWriter())
		},
	}
}

// flagCompletions completes the values of flags.
type flagCompletions struct{ cluster kubeconfig }

// registerAll registers completions for the flags of all commands.
func (c flagCompletions) registerAll(root *cobra.Command) error {
	var errs []error
	for _, cmd := range append(root.Commands(), root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if with := c.findFunc(cmd.Name(), f.Name); with != nil && f.NoOptDefVal == "" {
				errs = append(errs, cmd.RegisterFlagCompletionFunc(f.Name, with))
			}
		})
	}
	return errors.Join(errs...)
}

// findFunc returns the function that completes the value of a flag; nil means any file.
func (c flagCompletions) findFunc(command, flag string) cobra.CompletionFunc {
	switch flag {
	case "filename", "objects", "templates", "crds":
		return cobra.FixedCompletions([]string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt)
	case "output":
		switch command {
		case "forecast":
			return cobra.FixedCompletions([]string{output.Table, output.YAML, output.JSON, formSVG, formHTML}, cobra.ShellCompDirectiveNoFileComp)
		case "plan", "list", "explain":
			return cobra.FixedCompletions([]string{output.Table, output.YAML, output.JSON}, cobra.ShellCompDirectiveNoFileComp)
		}
		return cobra.FixedCompletions([]string{outputText, output.YAML, output.JSON}, cobra.ShellCompDirectiveNoFileComp)
	case "color":
		return cobra.FixedCompletions(output.ColourModes(), cobra.ShellCompDirectiveNoFileComp)
	case "namespace", "operator-namespace", "protected-namespaces":
		return c.cluster.completeNamespace
	case "context":
		return c.cluster.newCompletionFunc(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.Contexts)) })
	case "cluster":
		return c.cluster.newCompletionFunc(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.Clusters)) })
	case "user":
		return c.cluster.newCompletionFunc(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.AuthInfos)) })
	case "kubeconfig", "junit", "cache-dir", "certificate-authority", "client-certificate", "client-key":
		return nil
	}
	return cobra.NoFileCompletions
}

// completeFolders completes folders.
func completeFolders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeCleaner completes the argument that names a Cleaner.
func (k kubeconfig) completeCleaner(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if kind, _, ok := strings.Cut(begun, "/"); ok {
		return k.listCleanerNames(cmd.Context(), kind, kind+"/", begun), cobra.ShellCompDirectiveNoFileComp
	}
	found := append(k.listCleanerNames(cmd.Context(), "cleaner", "", begun), k.listCleanerNames(cmd.Context(), "clustercleaner", "clustercleaner/", begun)...)
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespace completes the names of namespaces.
func (k kubeconfig) completeNamespace(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	from, err := k.newClusterClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return listNames(cmd.Context(), from.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", begun), cobra.ShellCompDirectiveNoFileComp
}

// newCompletionFunc returns a function that completes names from the kubeconfig.
func (k kubeconfig) newCompletionFunc(names func(*clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, err := k.flags.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(&config), cobra.ShellCompDirectiveNoFileComp
	}
}

// listCleanerNames returns the names of the Cleaners of a kind that begin like this, each with the prefix before.
func (k kubeconfig) listCleanerNames(ctx context.Context, kind, before, begun string) []string {
	resource, _, err := k.resolveKind(kind)
	if err != nil || resource == nil {
		return nil
	}
	return listNames(ctx, resource, before, begun)
}

// listNames returns the names of objects that begin like this, each with the prefix before. If the cluster does not answer, it returns
// none: an error would disturb the user while typing.
func listNames(ctx context.Context, resource dynamic.ResourceInterface, before, begun string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	list, err := resource.List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		return nil
	}
	var found []string
	for i := range list.Items {
		if name := before + list.Items[i].GetName(); strings.HasPrefix(name, begun) {
			found = append(found, name)
		}
	}
	return found
}
