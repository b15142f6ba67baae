// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"
	"strconv"

	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/plan"
)

// hasBegun says whether the release is uninstalling because the caller has started that. A user who may write the record can write the
// status, but not the mark.
func (c UninstallRequest) hasBegun(r record) bool {
	mark := r.uninstallMark()
	return r.releaseStatus() == release.StatusUninstalling && mark != "" && (mark == c.Mark || mark == c.Begun)
}

// releaseRecords reads and writes the records of the release that was decided on, and of no other.
type releaseRecords struct {
	attempt *attempt
	// lastRead is the newest record as it was last read. It is decoded again only if its Secret has changed.
	lastRead *record
}

// readCommitted reads the release, and ends the session if it is no longer the one that was decided on. If its uninstall has started, and
// its record has changed since, that is an error: only a user can decide what to do.
func (r *releaseRecords) readCommitted() (history, error) {
	if r.attempt.halted != nil {
		return nil, r.attempt.halted
	}
	h, err := r.attempt.u.readHistory(r.attempt.ctx, r.attempt.slot, r.attempt.want.Namespace, r.attempt.want.Name, r.lastRead)
	if err != nil {
		return nil, r.attempt.haltWith(err)
	}
	if state, same := h.compareWith(r.attempt.want); !same {
		return nil, r.attempt.endWith(state)
	}
	newest, _ := h.newestRecord()
	r.lastRead = &newest
	switch {
	case r.attempt.want.Digest == "" || r.attempt.want.Digest == newest.content.digest:
		return h, nil
	case r.attempt.want.hasBegun(newest):
		return nil, r.attempt.haltWith(fmt.Errorf("its record, Secret %q, has changed since the uninstall was decided: nothing that it contains now is deleted or run; "+
			"restore the record, or check it and uninstall the release with Helm", newest.secret.Name))
	default:
		return nil, r.attempt.endWith(Upgraded)
	}
}

// readMarked reads the release before a write, and stops the session if it no longer has the caller's mark.
func (r *releaseRecords) readMarked() (record, error) {
	h, err := r.readCommitted()
	if err != nil {
		return record{}, err
	}
	newest, _ := h.newestRecord()
	switch {
	case newest.releaseStatus() != release.StatusUninstalling:
		return record{}, r.attempt.haltWith(fmt.Errorf("its status is %q, not %q", newest.releaseStatus(), release.StatusUninstalling))
	case !r.attempt.want.hasBegun(newest):
		return record{}, r.attempt.haltWith(fmt.Errorf("its record, Secret %q, no longer has the mark of this uninstall: another client has changed its annotation %s", newest.secret.Name, v1alpha1.AnnotationUninstall))
	}
	return newest, nil
}

// mayDelete is called between the read of an object and its DELETE.
func (r *releaseRecords) mayDelete(ref plan.Ref) error {
	if _, err := r.readMarked(); err != nil {
		return err
	}
	return r.attempt.stopIfRefused("the deletion of "+ref.String(), r.attempt.guard.MayDelete(ref))
}

// markUninstalling writes, in one request, that the release is uninstalling, and the caller's mark. It removes any earlier note about hooks
// that have run.
func (r *releaseRecords) markUninstalling(was record) error {
	secret, err := r.readSecret(was)
	if err != nil {
		return err
	}
	if stopped := r.attempt.slot.run(r.attempt.ctx, func() {
		secret.Data["release"], err = was.content.encodeUninstalling(secret.Data["release"], r.attempt.u.clock.Now())
	}); stopped != nil || err != nil {
		return errors.Join(stopped, err)
	}
	for label, value := range map[string]string{
		"status": string(release.StatusUninstalling), "version": strconv.Itoa(was.version), "modifiedAt": strconv.FormatInt(r.attempt.u.clock.Now().Unix(), 10),
	} {
		metav1.SetMetaDataLabel(&secret.ObjectMeta, label, value)
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.AnnotationUninstall, r.attempt.want.Mark)
	delete(secret.Annotations, hooksDoneAnnotation)
	if err := r.attempt.stopIfRefused("the start", r.attempt.guard.MayStart()); err != nil {
		return err
	}
	faults.PassPoint("before the release is marked")
	_, err = r.attempt.u.secrets.Secrets(secret.Namespace).Update(r.attempt.ctx, secret, metav1.UpdateOptions{})
	faults.PassPoint("after the release is marked")
	return err
}

// renewMark replaces an older mark of the caller.
func (r *releaseRecords) renewMark(was record) error {
	if err := r.attempt.stopIfRefused("the renewal of its mark", r.attempt.guard.MayNote(was.secretRef())); err != nil {
		return err
	}
	secret, err := r.readSecret(was)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.AnnotationUninstall, r.attempt.want.Mark)
	_, err = r.attempt.u.secrets.Secrets(secret.Namespace).Update(r.attempt.ctx, secret, metav1.UpdateOptions{})
	return err
}

// readSecret reads the Secret of a record. It is an error if it has changed since the record was read.
func (r *releaseRecords) readSecret(of record) (*corev1.Secret, error) {
	secret, err := r.attempt.u.secrets.Secrets(of.secret.Namespace).Get(r.attempt.ctx, of.secret.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read Secret %q: %w", of.secret.Name, err)
	case secret.UID != of.secret.UID || secret.ResourceVersion != of.secret.ResourceVersion:
		return nil, fmt.Errorf("cannot update Secret %q: it has changed since it was read", of.secret.Name)
	}
	return secret, nil
}
