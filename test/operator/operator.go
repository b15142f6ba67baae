// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator installs the operator into a test control plane as an administrator would, and runs it as the built
// binary, with the rights of its own ServiceAccount and no others. Tests and the demo use it.
package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/test/cluster"
)

const (
	// Namespace is where the operator is installed.
	Namespace = "cleaner-system"
	// ServiceAccount is what it runs as.
	ServiceAccount = "cleaner-manager"
	// User is how its requests are named in the audit log.
	User = "system:serviceaccount:" + Namespace + ":" + ServiceAccount
)

// Install applies config/default: CRDs, rights, and a Deployment, which is Pending forever without a kubelet: Run runs what it declares.
// Install returns when the rights are in force. It leaves out what refuses at admission: the webhook, since without a manager that serves
// it no Cleaner could be written, and the policies, since tests write what others may have written. InstallWithWebhook has both.
func Install(ctx context.Context, c *cluster.Cluster) error {
	if err := InstallWithWebhook(ctx, c); err != nil {
		return err
	}
	for _, kind := range []string{"validatingwebhookconfiguration", "mutatingwebhookconfiguration"} {
		if out, err := c.Kubectl(ctx, "delete", kind, WebhookConfiguration); err != nil {
			return fmt.Errorf("cannot take the webhook away: %w\n%s", err, out)
		}
	}
	return dropPolicies(ctx, c)
}

// dropPolicies lets others than the operator write status and authors, as where the policies are left out.
func dropPolicies(ctx context.Context, c *cluster.Cluster) error {
	if out, err := c.Kubectl(ctx, "delete", "validatingadmissionpolicybinding", StatusPolicy, AuthorPolicy); err != nil {
		return fmt.Errorf("cannot take the policies away: %w\n%s", err, out)
	}
	return nil
}

// InstallWithWebhook is all of Install, and the webhook and the policies. Until a manager serves it no Cleaner can be written.
func InstallWithWebhook(ctx context.Context, c *cluster.Cluster) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if out, err := c.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(root, "config", "default")); err != nil {
		return fmt.Errorf("cannot install the operator: %w\n%s", err, out)
	}
	if out, err := c.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s",
		"crd/cleaners.cleaner.vtex.dev", "crd/clustercleaners.cleaner.vtex.dev", "crd/cleanertemplates.cleaner.vtex.dev"); err != nil {
		return fmt.Errorf("cannot install the CRDs: %w\n%s", err, out)
	}
	return aggregated(ctx, c)
}

// InstallTemplates applies config/templates, and of config/components pods and others, which are the rights that templates
// need. It returns when the rights are in force.
func InstallTemplates(ctx context.Context, c *cluster.Cluster, others ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	config := filepath.Join(root, "config")
	components := append([]string{"pods"}, others...)
	var apply [][]string
	for _, component := range components {
		apply = append(apply, []string{"-f", filepath.Join(config, "components", component, "role.yaml")})
	}
	for _, what := range append(apply, []string{"-k", filepath.Join(config, "templates")}) {
		if out, err := c.Kubectl(ctx, append([]string{"apply", "--server-side"}, what...)...); err != nil {
			return fmt.Errorf("cannot apply %s: %w\n%s", what[1], err, out)
		}
	}
	rights := map[string][]string{
		"pods": {"pods", "--subresource=status"}, "spiderpool": {"spiderippools.spiderpool.spidernet.io", "--subresource=status"}, "nodes": {"nodes"},
	}
	for _, component := range components {
		ask := append([]string{"auth", "can-i", "--all-namespaces", "--as=" + User, "patch"}, rights[component]...)
		err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, err := c.Kubectl(ctx, ask...)
			return err == nil, nil // it exits with 1 for no
		})
		if err != nil {
			return fmt.Errorf("cannot see the operator's rights of component %q: %w", component, err)
		}
	}
	return nil
}

// GrantHelm lets the operator uninstall Helm releases and run their hooks, and act as any ServiceAccount: the presets helm and
// hooks, and the ClusterRole for impersonation bound in all namespaces, where an administrator would bind it in some. It
// returns when that is in force.
func GrantHelm(ctx context.Context, c *cluster.Cluster) error {
	if err := Grant(ctx, c, "helm", authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets"}); err != nil {
		return err
	}
	if err := Grant(ctx, c, "hooks", authorizationv1.ResourceAttributes{Verb: "impersonate-on:serviceaccount:create", Group: "batch", Resource: "jobs"}); err != nil {
		return err
	}
	out, err := c.Kubectl(ctx, "create", "clusterrolebinding", "impersonation", "--clusterrole=cleaner-impersonation", "--serviceaccount="+Namespace+":"+ServiceAccount)
	if err != nil {
		return fmt.Errorf("cannot let the operator act as ServiceAccounts: %w\n%s", err, out)
	}
	return allowed(ctx, c, authorizationv1.ResourceAttributes{Verb: "impersonate:serviceaccount", Group: "authentication.k8s.io", Resource: "serviceaccounts"})
}

// Grant switches on a preset, and returns when a right that it gives is in force.
func Grant(ctx context.Context, c *cluster.Cluster, preset string, right authorizationv1.ResourceAttributes) error {
	root, err := Root()
	if err != nil {
		return err
	}
	if out, err := c.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(root, "config", "components", preset, "role.yaml")); err != nil {
		return fmt.Errorf("cannot switch on the preset %s: %w\n%s", preset, err, out)
	}
	return allowed(ctx, c, right)
}

// allowed waits until the operator has a right in all namespaces.
func allowed(ctx context.Context, c *cluster.Cluster, right authorizationv1.ResourceAttributes) error {
	return WaitForRight(ctx, c, authorizationv1.SubjectAccessReviewSpec{User: User, ResourceAttributes: &right})
}

// WaitForRight waits until the API server knows that a user has a right: it learns of bindings by a watch.
func WaitForRight(ctx context.Context, c *cluster.Cluster, right authorizationv1.SubjectAccessReviewSpec) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	err = until(ctx, func() error {
		answer, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: right}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("the API server denies it")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot see that %s may %s %s: %w", right.User, right.ResourceAttributes.Verb, right.ResourceAttributes.Resource, err)
	}
	return nil
}

// aggregated waits until the controller manager has put the presets into the operator's ClusterRole.
func aggregated(ctx context.Context, c *cluster.Cluster) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		roles, err := client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		waiting := false
		for i := range roles.Items {
			if roles.Items[i].AggregationRule != nil && len(roles.Items[i].Rules) == 0 {
				waiting = true
			}
		}
		return !waiting, nil
	})
	if err != nil {
		return fmt.Errorf("cannot see the operator's rights: %w", err)
	}
	return nil
}

// Options say how the operator is run.
type Options struct {
	// Binary is the manager, as Build made it.
	Binary string
	// Through changes how it reaches the API server: by a proxy, say. It may be nil.
	Through func(*rest.Config)
	// Args are given to it after those that every run needs.
	Args []string
	// Env is added to its environment.
	Env []string
	// Name tells several runs of one test apart.
	Name string
	// Webhook, if not nil, has it serve the webhook with the certificates that it makes, and is pointed at it.
	Webhook *Gate
	// WebhookSecret is mounted for the webhook: the one of config/default, unless another one is named.
	WebhookSecret string
	// Doomed is a run that may end before it is ready, and is not waited for.
	Doomed bool
}

// Process is the running operator.
type Process struct {
	*cluster.Program
	// LogPath is the file with its log.
	LogPath string
	// Metrics is where it serves metrics over HTTPS.
	Metrics string
	// Probes is where it serves /healthz and /readyz over HTTP.
	Probes string
	// WebhookPort is where it serves the webhook.
	WebhookPort int
	// WebhookDir is the folder with the certificate of the webhook, which follows the Secret as long as the operator runs.
	WebhookDir string
}

// Run starts the manager as its ServiceAccount and returns when it is ready.
func Run(ctx context.Context, c *cluster.Cluster, o Options) (*Process, error) {
	config, err := c.ServiceAccountConfig(ctx, Namespace, ServiceAccount)
	if err != nil {
		return nil, err
	}
	if o.Through != nil {
		o.Through(config)
	}
	name := "manager" + o.Name
	kubeconfig := filepath.Join(c.Dir(), name+".kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	ports, err := cluster.FindFreePorts(3)
	if err != nil {
		return nil, err
	}
	probe, metrics := fmt.Sprintf("127.0.0.1:%d", ports[0]), fmt.Sprintf("127.0.0.1:%d", ports[1])
	log, certificates := filepath.Join(c.Dir(), name+".log"), filepath.Join(c.Dir(), name+"-webhook")
	args := append([]string{
		"--namespace=" + Namespace, "--sink-allow-loopback", "--health-probe-bind-address=" + probe, "--metrics-bind-address=" + metrics,
		fmt.Sprintf("--webhook=%t", o.Webhook != nil), fmt.Sprintf("--act-without-author=%t", o.Webhook == nil), fmt.Sprintf("--webhook-port=%d", ports[2]), "--webhook-cert-dir=" + certificates,
	}, o.Args...)
	stop := make(chan struct{})
	if o.Webhook != nil {
		if err := mount(ctx, c, cmp.Or(o.WebhookSecret, WebhookSecret), certificates, stop); err != nil {
			return nil, err
		}
	}
	run := cluster.ProgramOptions{
		Name: name, Path: o.Binary, Args: args, Env: append([]string{"KUBECONFIG=" + kubeconfig}, o.Env...), LogPath: log,
	}
	if !o.Doomed {
		run.Ready = "http://" + probe + "/readyz"
	}
	p, err := c.Run(ctx, run)
	if err != nil {
		close(stop)
		return nil, err
	}
	go func() {
		<-p.Exited()
		close(stop)
	}()
	if o.Webhook != nil {
		o.Webhook.To(ports[2])
	}
	return &Process{Program: p, LogPath: log, Metrics: "https://" + metrics, Probes: "http://" + probe, WebhookPort: ports[2], WebhookDir: certificates}, nil
}

// Build builds the manager into a folder, with further flags of go build if need be, and returns its path.
func Build(ctx context.Context, dir string, progress io.Writer, flags ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "manager")
	args := append([]string{"build", "-o", path}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/manager")...)
	cmd.Dir = root
	cmd.Stdout, cmd.Stderr = progress, progress
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("cannot build the manager: %w", err)
	}
	return path, nil
}

// Root is the folder of this repository.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("cannot find the working folder: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "PROJECT")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("cannot find the repository: no folder above this one has a file PROJECT")
		}
		dir = up
	}
}

// Restricted says what is wrong with the Pod of a Deployment where Pods are restricted: it must be admitted to the
// namespace of the Deployment, and one that does not drop its capabilities must not.
func Restricted(ctx context.Context, client kubernetes.Interface, d *appsv1.Deployment) error {
	create := func(change func(*corev1.PodSpec)) error {
		pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: *d.Spec.Template.Spec.DeepCopy()}
		pod.Name = "manager"
		change(&pod.Spec)
		_, err := client.CoreV1().Pods(d.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	var wrong []error
	if err := create(func(*corev1.PodSpec) {}); err != nil {
		wrong = append(wrong, fmt.Errorf("the Pod is not admitted: %w", err))
	}
	if err := create(func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil }); !apierrors.IsForbidden(err) {
		wrong = append(wrong, fmt.Errorf("the namespace restricts nothing, and this check cannot fail: %v", err)) //nolint:errorlint // there may be none
	}
	return errors.Join(wrong...)
}
