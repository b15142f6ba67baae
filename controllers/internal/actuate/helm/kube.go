// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"
	"io"
	"time"

	"helm.sh/helm/v3/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
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
			Ref:        observed.Ref{Resource: i.Mapping.Resource, Kind: i.Mapping.GroupVersionKind.Kind, Namespace: i.Namespace, Name: i.Name},
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

// objectDeleter deletes objects of the release, and waits until they are gone.
type objectDeleter struct {
	attempt *attempt
	records *releaseRecords
}

// deleteObject deletes one object, unless it must be kept. It returns the object if the caller must wait for it.
func (d *objectDeleter) deleteObject(o object) (*observed.Ref, error) {
	for range attempts {
		live, err := d.getMetadata(o.Ref)
		if notfound.IsAnyObjectMissing(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", o.Ref, err)
		}
		ref := refAt(o.Ref, live)
		if because := d.attempt.u.reasonToKeep(ref, live, d.attempt.want); because != "" {
			d.attempt.outcome.Kept = append(d.attempt.outcome.Kept, Kept{ref, because})
			return nil, nil
		}
		if live.DeletionTimestamp != nil {
			return &ref, nil
		}
		if !d.attempt.want.isRightReviewed(o, "delete") {
			d.attempt.outcome.Kept = append(d.attempt.outcome.Kept, Kept{ref, "the right of the author to delete it was not checked when the uninstall was planned"})
			return nil, nil
		}
		if err := d.records.mayDelete(ref); err != nil {
			return nil, err
		}
		faults.PassPoint("before the DELETE of an object of the release")
		err = d.attempt.u.metadata.Resource(ref.Resource).Namespace(ref.Namespace).Delete(d.attempt.ctx, ref.Name, newDeleteOptions(ref))
		faults.PassPoint("after the DELETE of an object of the release")
		switch {
		case notfound.IsAnyObjectMissing(err):
			return nil, nil
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("cannot delete %s: %w", ref, err)
		}
		d.attempt.outcome.Deleted = append(d.attempt.outcome.Deleted, ref)
		return &ref, nil
	}
	return nil, fmt.Errorf("cannot delete %s: it changed %d times just before its deletion", o.Ref, attempts)
}

// deleteObjects deletes the objects and returns when they are gone.
func (d *objectDeleter) deleteObjects(objects []object) error {
	var going []observed.Ref
	var failed []error
	for _, o := range objects {
		ref, err := d.deleteObject(o)
		switch {
		case d.attempt.halted != nil:
			return d.attempt.halted
		case d.attempt.ctx.Err() != nil:
			return d.attempt.haltWith(d.attempt.ctx.Err())
		}
		if err != nil {
			failed = append(failed, err)
		}
		if ref != nil {
			going = append(going, *ref)
		}
	}
	if len(failed) > 0 {
		return d.attempt.haltWith(errors.Join(failed...))
	}
	return d.waitUntilGone(going)
}

// enoughRemaining is how many objects that are still there are read when an attempt has no time left.
const enoughRemaining = 10

// waitUntilGone returns when the objects are gone, and ends the session when they still are not when its time is over.
func (d *objectDeleter) waitUntilGone(refs []observed.Ref) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		remaining, err := d.findRemaining(refs)
		if err != nil {
			return d.attempt.haltWith(err)
		}
		if len(remaining) == 0 {
			return nil
		}
		left := d.attempt.timeLeft()
		if left <= 0 {
			d.attempt.outcome.Remaining = remaining
			return d.attempt.endWith(Terminating)
		}
		select {
		case <-d.attempt.ctx.Done():
			return d.attempt.haltWith(d.attempt.ctx.Err())
		case <-d.attempt.u.clock.After(min(wait, left)):
		}
	}
}

// findRemaining returns those of the objects that are still there. Another object under the same name is not. When there is no time left,
// and enough of them are there to say so, the others count as there without being read.
func (d *objectDeleter) findRemaining(refs []observed.Ref) ([]Remaining, error) {
	var there []Remaining
	for _, ref := range refs {
		if len(there) >= enoughRemaining && d.attempt.timeLeft() <= 0 {
			there = append(there, Remaining{Ref: ref})
			continue
		}
		live, err := d.getMetadata(ref)
		if notfound.IsAnyObjectMissing(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot see whether %s is gone: %w", ref, err)
		}
		if live.UID == ref.UID {
			there = append(there, Remaining{refAt(ref, live), live.Finalizers})
		}
	}
	return there, nil
}

func (d *objectDeleter) getMetadata(ref observed.Ref) (*metav1.PartialObjectMetadata, error) {
	return d.attempt.u.metadata.Resource(ref.Resource).Namespace(ref.Namespace).Get(d.attempt.ctx, ref.Name, metav1.GetOptions{})
}

// refAt is a reference to the version of an object that was read.
func refAt(ref observed.Ref, live metav1.Object) observed.Ref {
	ref.UID, ref.ResourceVersion = live.GetUID(), live.GetResourceVersion()
	return ref
}

// newDeleteOptions returns the options of every DELETE: exactly the version that was read.
func newDeleteOptions(ref observed.Ref) metav1.DeleteOptions {
	background := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &ref.UID, ResourceVersion: &ref.ResourceVersion},
		PropagationPolicy: &background,
	}
}
