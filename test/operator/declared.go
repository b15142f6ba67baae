// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/vtex/cleaner/test/cluster"
)

// Deployment is how config/default and the chart call the operator's Deployment.
const Deployment = "cleaner-controller-manager"

// Declared is the container of a Deployment in Namespace, as it is in the cluster.
func Declared(ctx context.Context, c *cluster.Cluster, deployment string) (*corev1.Container, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	d, err := client.AppsV1().Deployments(Namespace).Get(ctx, deployment, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot read what the Deployment declares: %w", err)
	}
	return &d.Spec.Template.Spec.Containers[0], nil
}

// As has the operator run as a container declares: with its environment, and with its flags but for ports and folders,
// which are those of a Pod. A process gets its own from Run.
func As(container *corev1.Container) Options {
	var o Options
	for _, e := range container.Env {
		o.Env = append(o.Env, e.Name+"="+e.Value)
	}
	o.Args = slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"--health-probe-bind-address", "--metrics-bind-address", "--webhook-port", "--webhook-cert-dir"}, flag)
	})
	return o
}
