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
)

// completionTimeout is how long the cluster may take to say what a word may become.
const completionTimeout = 3 * time.Second

// kubectlScript is what kubectl runs to complete the words behind `kubectl cleaner`.
//
//go:embed kubectl_complete-cleaner
var kubectlScript string

// completionWriters are those that write the scripts, by the shells that there are some for.
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

func (t *tool) newCompletionCommand() *cobra.Command {
	names := slices.Sorted(maps.Keys(completionWriters()))
	return &cobra.Command{
		Use:   "completion " + strings.Join(names, "|"),
		Short: "Print what a shell needs to complete commands",
		Long: `Print what a shell needs to complete commands, flags, and names of Cleaners and namespaces of the cluster.

kubectl completes "kubectl cleaner" by itself, in each shell for which its own completion is set up, if it finds a
program kubectl_complete-cleaner on the PATH: that is what "completion kubectl" prints. The others are for who runs
kubectl-cleaner under this name: source what they print, or put it where the shell looks for completions.`,
		Example: `  kubectl cleaner completion kubectl > ~/.local/bin/kubectl_complete-cleaner
  chmod +x ~/.local/bin/kubectl_complete-cleaner
  source <(kubectl-cleaner completion bash)`,
		Args:      validateArgs(cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)),
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			return completionWriters()[args[0]](cmd.Root(), t.out.newHelpWriter())
		},
	}
}

// registerCompletions says what may stand behind the flags of all commands.
func (t *tool) registerCompletions(root *cobra.Command) error {
	var errs []error
	for _, cmd := range append(root.Commands(), root) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if with := t.flagCompletionFunc(cmd.Name(), f.Name); with != nil && f.NoOptDefVal == "" {
				errs = append(errs, cmd.RegisterFlagCompletionFunc(f.Name, with))
			}
		})
	}
	return errors.Join(errs...)
}

// flagCompletionFunc completes what follows a flag of a command; nil is any file.
func (t *tool) flagCompletionFunc(command, flag string) cobra.CompletionFunc {
	switch flag {
	case "filename", "objects", "templates", "crds":
		return cobra.FixedCompletions([]string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt)
	case "output":
		if command == "plan" {
			return cobra.FixedCompletions([]string{outputTable, outputYAML, outputJSON}, cobra.ShellCompDirectiveNoFileComp)
		}
		return cobra.FixedCompletions([]string{outputText, outputYAML, outputJSON}, cobra.ShellCompDirectiveNoFileComp)
	case "color":
		return cobra.FixedCompletions(colourModes(), cobra.ShellCompDirectiveNoFileComp)
	case "namespace", "operator-namespace", "protected-namespaces":
		return t.completeNamespace
	case "context":
		return t.kubeconfigCompletionFunc(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.Contexts)) })
	case "cluster":
		return t.kubeconfigCompletionFunc(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.Clusters)) })
	case "user":
		return t.kubeconfigCompletionFunc(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.AuthInfos)) })
	case "kubeconfig", "junit", "cache-dir", "certificate-authority", "client-certificate", "client-key":
		return nil
	}
	return cobra.NoFileCompletions
}

// completeFolders completes names of folders.
func completeFolders(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeCleaner completes how a Cleaner is named.
func (t *tool) completeCleaner(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if kind, _, ok := strings.Cut(begun, "/"); ok {
		return t.listCleanerNames(cmd.Context(), kind, kind+"/", begun), cobra.ShellCompDirectiveNoFileComp
	}
	found := append(t.listCleanerNames(cmd.Context(), "cleaner", "", begun), t.listCleanerNames(cmd.Context(), "clustercleaner", "clustercleaner/", begun)...)
	return found, cobra.ShellCompDirectiveNoFileComp
}

// completeNamespace completes names of namespaces.
func (t *tool) completeNamespace(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
	from, err := t.newClusterClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return listNames(cmd.Context(), from.dynamic.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", begun), cobra.ShellCompDirectiveNoFileComp
}

// kubeconfigCompletionFunc completes what a kubeconfig has names of.
func (t *tool) kubeconfigCompletionFunc(names func(*clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		config, err := t.config.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(&config), cobra.ShellCompDirectiveNoFileComp
	}
}

// listCleanerNames returns the names of the Cleaners of a kind, with what stands before them on the command line.
func (t *tool) listCleanerNames(ctx context.Context, kind, before, begun string) []string {
	resource, _, err := t.resolveKind(kind)
	if err != nil || resource == nil {
		return nil
	}
	return listNames(ctx, resource, before, begun)
}

// listNames returns those of objects that go on as a word begins. While somebody types nothing is said of a cluster that does not
// answer: they are none.
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
