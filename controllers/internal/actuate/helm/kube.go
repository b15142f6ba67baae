// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"fmt"
	"io"
	"time"

	"helm.sh/helm/v3/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

// kubeClient is the client that Helm uninstalls with: it can delete objects, and nothing else.
type kubeClient struct {
	s *session
}

var (
	_ kube.Interface                    = (*kubeClient)(nil)
	_ kube.InterfaceExt                 = (*kubeClient)(nil)
	_ kube.InterfaceDeletionPropagation = (*kubeClient)(nil)
)

// IsReachable is left to the requests that follow.
func (c *kubeClient) IsReachable() error { return nil }

// Build turns the manifest of the release into the objects that it stands for.
func (c *kubeClient) Build(manifest io.Reader, _ bool) (kube.ResourceList, error) {
	if c.s.halted != nil {
		return nil, c.s.halted
	}
	text, err := io.ReadAll(manifest)
	if err != nil {
		return nil, c.s.halt(err)
	}
	docs, err := parse(string(text))
	if err != nil {
		return nil, c.s.halt(&BlockedError{Reason: v1alpha1.ReasonReleaseUnreadable, Detail: err.Error()})
	}
	reach, err := c.s.u.resolve(c.s.ctx, docs, c.s.want.Namespace)
	if err != nil {
		return nil, c.s.halt(err)
	}
	var list kube.ResourceList
	for _, o := range reach.objects {
		list.Append(info(o))
	}
	return list, nil
}

// info is an object as Helm hands it around.
func info(o object) *resource.Info {
	scope := meta.RESTScopeRoot
	if o.namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &resource.Info{
		Namespace: o.Namespace,
		Name:      o.Name,
		Mapping:   &meta.RESTMapping{Resource: o.Resource, GroupVersionKind: o.kind, Scope: scope},
	}
}

// objectOf undoes info.
func objectOf(i *resource.Info) object {
	return object{
		Ref:        plan.Ref{Resource: i.Mapping.Resource, Namespace: i.Namespace, Name: i.Name},
		kind:       i.Mapping.GroupVersionKind,
		namespaced: i.Namespaced(),
	}
}

// Delete deletes as DeleteWithPropagationPolicy does.
func (c *kubeClient) Delete(list kube.ResourceList) (*kube.Result, []error) {
	return c.DeleteWithPropagationPolicy(list, metav1.DeletePropagationBackground)
}

// DeleteWithPropagationPolicy deletes the objects in stages and returns when they are gone. The policy is Background,
// whatever Helm asks for. What goes wrong with one object does not hold up the others of its stage; what comes after it
// waits.
func (c *kubeClient) DeleteWithPropagationPolicy(list kube.ResourceList, _ metav1.DeletionPropagation) (*kube.Result, []error) {
	var objects []object
	for _, i := range list {
		objects = append(objects, objectOf(i))
	}
	first, last := inStages(objects)
	for _, stage := range [][]object{first, last} {
		if err := c.s.removeAll(stage); err != nil {
			return nil, []error{err}
		}
	}
	return &kube.Result{Deleted: list}, nil
}

// WaitForDelete has nothing to wait for: the deletions did.
func (c *kubeClient) WaitForDelete(kube.ResourceList, time.Duration) error { return nil }

// Create is what a hook would need.
func (c *kubeClient) Create(kube.ResourceList) (*kube.Result, error) {
	return nil, c.s.halt(errHooks)
}

// WatchUntilReady is what a hook would need.
func (c *kubeClient) WatchUntilReady(kube.ResourceList, time.Duration) error {
	return c.s.halt(errHooks)
}

// Wait is no part of an uninstall.
func (c *kubeClient) Wait(kube.ResourceList, time.Duration) error {
	return c.s.halt(errNotNeeded)
}

// WaitWithJobs is no part of an uninstall.
func (c *kubeClient) WaitWithJobs(kube.ResourceList, time.Duration) error {
	return c.s.halt(errNotNeeded)
}

// Update is no part of an uninstall.
func (c *kubeClient) Update(_, _ kube.ResourceList, _ bool) (*kube.Result, error) {
	return nil, c.s.halt(errNotNeeded)
}

// WaitAndGetCompletedPodPhase is no part of an uninstall.
func (c *kubeClient) WaitAndGetCompletedPodPhase(name string, _ time.Duration) (corev1.PodPhase, error) {
	return "", c.s.halt(fmt.Errorf("pod %q: %w", name, errNotNeeded))
}
