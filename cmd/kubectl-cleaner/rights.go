// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/cmd/internal/protectedkinds"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/output"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
)

// rightsCommand is `rights`, with its flags.
type rightsCommand struct {
	terminal terminal
	cluster  kubeconfig

	file, account                 string
	templates, crds, allowedKinds []string
	live                          bool
	// served says which kinds are served.
	served func([]v1alpha1.ClusterTarget) []validation.ServedKind
}

func (r *rightsCommand) newCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rights -f FILE",
		Short: "Print the Roles that a Cleaner needs, ready to apply",
		Long: `Print what a Cleaner or a ClusterCleaner reads and changes as Roles and ClusterRoles, with their bindings: for the
ServiceAccount that the spec names, otherwise for the operator. The command changes nothing: read the output,
then apply it. Its author needs the same rights.

Without --live, the kinds are the built-in ones, and those of --crds.`,
		Example: `  kubectl cleaner rights -f cleaner.yaml
  kubectl cleaner rights -f cleaner.yaml --live --service-account team/cleaner`,
		Args:              validateArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&r.file, "filename", "f", "", "file with Cleaners and ClusterCleaners, and optionally templates; - is standard input")
	flags.StringArrayVar(&r.templates, "templates", nil, "file or folder with CleanerTemplates, in addition to those that are shipped; may be repeated")
	flags.StringArrayVar(&r.crds, "crds", nil, "file or folder with CustomResourceDefinitions; may be repeated")
	flags.Var(protectedkinds.NewValue(&r.allowedKinds), "allow-protected-kinds", "protected resources that may be deleted, as in the operator's flag of this name")
	flags.BoolVar(&r.live, "live", false, "ask the cluster of the kubeconfig which kinds it serves")
	flags.StringVar(&r.account, "service-account", defaultOperator, "namespace/name of the operator's ServiceAccount, for Cleaners that name none")
	return cmd
}

func (r *rightsCommand) run(ctx context.Context) error {
	operator, name, err := parseAccount(r.account)
	switch {
	case r.file == "":
		return usageError{errors.New("-f is missing: name the file with the Cleaner")}
	case err != nil:
		return err
	case r.live && len(r.crds) > 0:
		return usageError{errors.New("--live and --crds both say which kinds are served: use one of them")}
	}
	objects, err := r.makeObjects(ctx, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: operator, Name: name})
	if err != nil {
		return err
	}
	for i, o := range objects {
		if i > 0 {
			r.terminal.out.Printf("---\n")
		}
		if err := r.terminal.out.WriteValue(output.YAML, o); err != nil {
			return err
		}
	}
	return nil
}

// makeObjects returns what all Cleaners of the file need.
func (r *rightsCommand) makeObjects(ctx context.Context, operator rbacv1.Subject) ([]any, error) {
	cleaners, err := r.loadCleaners(ctx)
	if err != nil {
		return nil, err
	}
	var objects []any
	for _, c := range cleaners {
		if c.IsInvalid() {
			for _, p := range c.Problems {
				r.terminal.printProblem(p)
			}
			return nil, errReported
		}
		if err := (&planCommand{cluster: r.cluster}).setDefaultNamespace(c); err != nil {
			return nil, err
		}
		roles, err := r.makeRoles(c, operator)
		if err != nil {
			return nil, err
		}
		objects = append(objects, roles...)
	}
	return objects, nil
}

// loadCleaners reads the Cleaners of the file.
func (r *rightsCommand) loadCleaners(ctx context.Context) ([]*manifests.Cleaner, error) {
	p := planCommand{terminal: r.terminal, cluster: r.cluster, flags: planFlags{file: r.file, templates: r.templates, allowedKinds: r.allowedKinds}}
	l, documents, err := p.prepareLoader(ctx)
	if err != nil {
		return nil, err
	}
	kinds := validateCommand{terminal: r.terminal, cluster: r.cluster}
	kinds.flags.live = r.live
	found, err := kinds.newKindFinder(l)
	if err != nil {
		return nil, err
	}
	if found == nil {
		if found, err = r.terminal.newOfflineKindFinder(l, r.crds); err != nil {
			return nil, err
		}
	}
	r.served = found
	own, err := manifests.SelectCleaners(r.file, documents)
	if err != nil {
		return nil, err
	}
	var out []*manifests.Cleaner
	for _, d := range own {
		out = append(out, l.LoadCleaner(ctx, d, nil))
	}
	return out, nil
}

// makeRoles returns the Roles and bindings of a Cleaner.
func (r *rightsCommand) makeRoles(c *manifests.Cleaner, account rbacv1.Subject) ([]any, error) {
	served := r.served(c.Work.Targets)
	for i := range served {
		if served[i].Resource == "" && !c.Work.Targets[i].IsOfAnyKind() {
			t := &c.Work.Targets[i]
			return nil, fmt.Errorf("target %q of %s: the resource of kind %s is unknown: use --live, or --crds with its definition", t.Name, c.Owner.GetName(), t.Reference.Kind)
		}
	}
	namespace := c.Owner.GetNamespace()
	if a := c.Work.ServiceAccount; a != nil {
		account = rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: cmp.Or(a.Namespace, namespace), Name: a.Name}
	}
	byScope := map[string][]rights.Right{} // by namespace; empty for the cluster
	options := validation.Options{AllowProtectedKinds: r.allowedKinds, Served: served}
	for _, one := range slices.Concat(rights.ListRequired(namespace, c.Work, options), rights.ListKindRights(c.Work, options)) {
		if one.Verb != "impersonate" { // the account does not impersonate itself, and the operator is bound for that elsewhere
			byScope[one.Namespace] = append(byScope[one.Namespace], one)
		}
	}
	name := strings.Join(slices.DeleteFunc([]string{"cleaner", namespace, c.Owner.GetName()}, func(part string) bool { return part == "" }), "-")
	var out []any
	for _, scope := range slices.Sorted(maps.Keys(byScope)) {
		out = append(out, newRole(name, scope, byScope[scope]), newBinding(name, scope, account))
	}
	return out, nil
}

// newRole returns a Role; of all namespaces a ClusterRole.
func newRole(name, namespace string, allowed []rights.Right) any {
	meta, rules := metav1.ObjectMeta{Name: name, Namespace: namespace}, makeRules(allowed)
	if namespace == "" {
		return rbacv1.ClusterRole{TypeMeta: newRBACType("ClusterRole"), ObjectMeta: meta, Rules: rules}
	}
	return rbacv1.Role{TypeMeta: newRBACType("Role"), ObjectMeta: meta, Rules: rules}
}

// newBinding binds the role of this name to an account.
func newBinding(name, namespace string, account rbacv1.Subject) any {
	meta, role := metav1.ObjectMeta{Name: name, Namespace: namespace}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
	if namespace == "" {
		role.Kind = "ClusterRole"
		return rbacv1.ClusterRoleBinding{TypeMeta: newRBACType("ClusterRoleBinding"), ObjectMeta: meta, RoleRef: role, Subjects: []rbacv1.Subject{account}}
	}
	return rbacv1.RoleBinding{TypeMeta: newRBACType("RoleBinding"), ObjectMeta: meta, RoleRef: role, Subjects: []rbacv1.Subject{account}}
}

func newRBACType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// defaultOperator is the ServiceAccount of the operator, where no flag says otherwise.
const defaultOperator = "cleaner-system/cleaner-manager"

// parseAccount parses namespace/name of --service-account.
func parseAccount(text string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" {
		return "", "", usageError{fmt.Errorf("--service-account %s is not an account: write namespace/name", text)}
	}
	return namespace, name, nil
}

// accountReview asks the cluster about the rights of the accounts with which the operator acts for Cleaners.
type accountReview struct {
	cluster kubeconfig
	// operator is the ServiceAccount of the operator, as namespace/name.
	operator     string
	allowedKinds []string
}

// findLacks says which rights the account of a Cleaner lacks; empty if it lacks none.
func (a *accountReview) findLacks(ctx context.Context, c *manifests.Cleaner, served []validation.ServedKind) (string, error) {
	if len(served) < len(c.Work.Targets) {
		return "", errors.New("it is not known which kinds the API server serves")
	}
	if err := (&planCommand{cluster: a.cluster}).setDefaultNamespace(c); err != nil {
		return "", err
	}
	config, err := a.cluster.newRESTConfig()
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	namespace, name, err := parseAccount(a.operator)
	if err != nil {
		return "", err
	}
	if as := c.Work.ServiceAccount; as != nil {
		namespace, name = cmp.Or(as.Namespace, c.Owner.GetNamespace()), as.Name
	} else if _, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		return "", fmt.Errorf("the operator's ServiceAccount %s/%s does not exist: name it with --service-account", namespace, name)
	}
	needed := rights.ListForAccount(c.Owner.GetNamespace(), c.Work, validation.Options{AllowProtectedKinds: a.allowedKinds, Served: served})
	missing, err := rights.FindAccountLacks(ctx, client.AuthorizationV1().SubjectAccessReviews(), rights.NewAccountSubject(namespace, name), needed)
	if err != nil || len(missing) == 0 {
		return "", err
	}
	return rights.DescribeLacks(fmt.Sprintf("ServiceAccount %s/%s", namespace, name), missing), nil
}

// makeRules joins rights to the same objects.
func makeRules(allowed []rights.Right) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	allowed = slices.Clone(allowed)
	slices.SortFunc(allowed, observed.CompareRights)
	for _, r := range allowed {
		rule := rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Group}, Resources: []string{r.Resource}}
		if r.Subresource != "" {
			rule.Resources[0] += "/" + r.Subresource
		}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		if n := len(out) - 1; n >= 0 && slices.Equal(out[n].APIGroups, rule.APIGroups) && slices.Equal(out[n].Resources, rule.Resources) && slices.Equal(out[n].ResourceNames, rule.ResourceNames) {
			if !slices.Contains(out[n].Verbs, r.Verb) {
				out[n].Verbs = append(out[n].Verbs, r.Verb)
			}
			continue
		}
		out = append(out, rule)
	}
	return out
}
