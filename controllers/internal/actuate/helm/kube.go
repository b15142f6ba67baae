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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
)

// kubeClient is the client that Helm uninstalls with: it can delete objects, and run hooks.
type kubeClient struct {
	attempt *attempt
	objects *objectDeleter
	hooks   *hookRunner
}

var (
	_ kube.Interface                    = (*kubeClient)(nil)
	_ kube.InterfaceExt                 = (*kubeClient)(nil)
	_ kube.InterfaceDeletionPropagation = (*kubeClient)(nil)
)

// IsReachable is left to the requests that follow.
func (c *kubeClient) IsReachable() error { return nil }

// Build turns what Helm read in the record, all objects of the release or one hook, into the objects that it stands for.
func (c *kubeClient) Build(manifest io.Reader, _ bool) (kube.ResourceList, error) {
	text, err := io.ReadAll(manifest)
	if err != nil {
		return nil, c.attempt.haltWith(err)
	}
	if !isReleaseManifest(string(text)) {
		return c.buildHook(string(text))
	}
	if c.attempt.halted != nil {
		return nil, c.attempt.halted
	}
	if err := c.hooks.finishPreDelete(); err != nil {
		return nil, err
	}
	docs, err := parseHeads(c.attempt.ctx, string(text))
	if err != nil {
		return nil, c.attempt.haltWith(&BlockedError{Reason: v1alpha1.ReasonReleaseUnreadable, Detail: err.Error()})
	}
	reach, err := c.attempt.u.resolveDocuments(c.attempt.ctx, c.attempt.u.newKindResolver(), docs, c.attempt.want.Namespace)
	if err != nil {
		return nil, c.attempt.haltWith(err)
	}
	return newInfos(reach.objects), nil
}

// buildHook returns what a hook stands for: nothing when it is not to be run again but only cleaned up after, in the end, and
// nothing when the session has ended. Helm would print an error; what it asks for next fails.
func (c *kubeClient) buildHook(text string) (kube.ResourceList, error) {
	if c.attempt.isHalted() || c.hooks.skipEvent && c.hooks.left > 0 {
		return nil, nil
	}
	var parsed hookObjects
	if stopped := c.attempt.slot.run(c.attempt.ctx, func() { parsed.documents, parsed.wrong = parseHook(text) }); stopped != nil {
		return nil, c.attempt.haltWith(stopped)
	}
	objects, err := c.attempt.u.resolveHook(c.attempt.ctx, c.attempt.u.newKindResolver(), text, parsed, c.attempt.want.Namespace)
	if err != nil {
		return nil, c.attempt.haltWith(err)
	}
	return newInfos(objects), nil
}

func newInfos(objects []object) kube.ResourceList {
	var list kube.ResourceList
	for _, o := range objects {
		list.Append(newInfo(o))
	}
	return list
}

// newInfo returns an object as Helm hands it around.
func newInfo(o object) *resource.Info {
	scope := meta.RESTScopeRoot
	if o.namespaced {
		scope = meta.RESTScopeNamespace
	}
	return &resource.Info{
		Namespace: o.Namespace,
		Name:      o.Name,
		Object:    &unstructured.Unstructured{Object: o.content},
		Mapping:   &meta.RESTMapping{Resource: o.Resource, GroupVersionKind: o.kind, Scope: scope},
	}
}

// objectsOf undoes newInfos.
func objectsOf(list kube.ResourceList) []object {
	var objects []object
	for _, i := range list {
		o := object{
			Ref:        plan.Ref{Resource: i.Mapping.Resource, Namespace: i.Namespace, Name: i.Name},
			kind:       i.Mapping.GroupVersionKind,
			namespaced: i.Namespaced(),
		}
		if u, ok := i.Object.(*unstructured.Unstructured); ok {
			o.content = u.Object
		}
		objects = append(objects, o)
	}
	return objects
}

// Delete deletes objects of a hook: before it is run, or after it.
func (c *kubeClient) Delete(list kube.ResourceList) (*kube.Result, []error) {
	c.hooks.deleteHookObjects(objectsOf(list))
	return &kube.Result{Deleted: list}, nil
}

// DeleteWithPropagationPolicy deletes the objects in stages and returns when they are gone. The policy is Background, whatever Helm asks
// for. A failure of one object does not delay the others of its stage; the next stage waits.
func (c *kubeClient) DeleteWithPropagationPolicy(list kube.ResourceList, _ metav1.DeletionPropagation) (*kube.Result, []error) {
	first, last := splitStages(objectsOf(list))
	for _, stage := range [][]object{first, last} {
		if err := c.objects.deleteObjects(stage); err != nil {
			return nil, []error{err}
		}
	}
	return &kube.Result{Deleted: list}, nil
}

// WaitForDelete has nothing to wait for: the deletions did.
func (c *kubeClient) WaitForDelete(kube.ResourceList, time.Duration) error { return nil }

// Create makes the objects of a hook.
func (c *kubeClient) Create(list kube.ResourceList) (*kube.Result, error) {
	for _, o := range objectsOf(list) {
		if err := c.hooks.createObject(o); err != nil {
			return nil, err
		}
	}
	return &kube.Result{Created: list}, c.attempt.halted
}

// WatchUntilReady returns when a hook has ended well. How long that may take is the session's to know.
func (c *kubeClient) WatchUntilReady(list kube.ResourceList, _ time.Duration) error {
	for _, o := range objectsOf(list) {
		if err := c.hooks.waitForHookObject(o); err != nil {
			return err
		}
	}
	if c.attempt.halted != nil {
		return c.attempt.halted
	}
	return c.hooks.finishHook()
}

// Wait is no part of an uninstall.
func (c *kubeClient) Wait(kube.ResourceList, time.Duration) error {
	return c.attempt.haltWith(errNotNeeded)
}

// WaitWithJobs is no part of an uninstall.
func (c *kubeClient) WaitWithJobs(kube.ResourceList, time.Duration) error {
	return c.attempt.haltWith(errNotNeeded)
}

// Update is no part of an uninstall.
func (c *kubeClient) Update(_, _ kube.ResourceList, _ bool) (*kube.Result, error) {
	return nil, c.attempt.haltWith(errNotNeeded)
}

// WaitAndGetCompletedPodPhase is no part of an uninstall.
func (c *kubeClient) WaitAndGetCompletedPodPhase(name string, _ time.Duration) (corev1.PodPhase, error) {
	return "", c.attempt.haltWith(fmt.Errorf("pod %q: %w", name, errNotNeeded))
}
