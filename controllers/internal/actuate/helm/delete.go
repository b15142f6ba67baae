// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan"
)

// objectDeleter deletes objects of the release, and waits until they are gone.
type objectDeleter struct {
	attempt *attempt
	records *releaseRecords
}

// deleteObject deletes one object, unless it must be kept. It returns the object if the caller must wait for it.
func (d *objectDeleter) deleteObject(o object) (*plan.Ref, error) {
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
	var going []plan.Ref
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
func (d *objectDeleter) waitUntilGone(refs []plan.Ref) error {
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
func (d *objectDeleter) findRemaining(refs []plan.Ref) ([]Remaining, error) {
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

func (d *objectDeleter) getMetadata(ref plan.Ref) (*metav1.PartialObjectMetadata, error) {
	return d.attempt.u.metadata.Resource(ref.Resource).Namespace(ref.Namespace).Get(d.attempt.ctx, ref.Name, metav1.GetOptions{})
}

// refAt is a reference to the version of an object that was read.
func refAt(ref plan.Ref, live metav1.Object) plan.Ref {
	ref.UID, ref.ResourceVersion = live.GetUID(), live.GetResourceVersion()
	return ref
}

// newDeleteOptions returns the options of every DELETE: exactly the version that was read.
func newDeleteOptions(ref plan.Ref) metav1.DeleteOptions {
	background := metav1.DeletePropagationBackground
	return metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &ref.UID, ResourceVersion: &ref.ResourceVersion},
		PropagationPolicy: &background,
	}
}
