// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"
	"strconv"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

var errNotNeeded = errors.New("an uninstall has no need of this")

// How Helm describes a release that is being uninstalled, and one that was uninstalled with its history kept.
const (
	uninstallingSays = "Deletion in progress (or silently failed)"
	uninstalledSays  = "Uninstallation complete"
)

func secretsResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("secrets")
}

// recordDriver is Helm's storage of one session. It takes the place of Helm's own, which decodes whatever is in a Secret: what
// Helm gets here was read within bounds, and contains only what an uninstall needs. It only
// ever shows the release that was decided on, and writes nothing but the versions that were read.
type recordDriver struct {
	attempt *attempt
	records *releaseRecords
	hooks   *hookRunner
}

var _ driver.Driver = (*recordDriver)(nil)

// Name returns the name of Helm's own driver.
func (c *recordDriver) Name() string { return driver.SecretsDriverName }

// Query reads the release. When it is uninstalled and its history kept, Helm asks for revisions that count as deployed: none does.
func (c *recordDriver) Query(map[string]string) ([]*release.Release, error) {
	switch {
	case c.hooks.failure != nil: // Helm asks for them after a hook has failed, too
		return nil, c.hooks.failure
	case c.records.kept:
		return nil, driver.ErrReleaseNotFound
	}
	h, err := c.records.readCommitted()
	if err != nil {
		return nil, err
	}
	var shown []*release.Release
	for _, r := range h {
		shown = append(shown, r.toRelease(c.attempt.want))
	}
	return shown, nil
}

// toRelease returns a record as Helm is shown it. Hooks' logs are not what an operator puts out.
func (r record) toRelease(want UninstallRequest) *release.Release {
	if r.content == nil {
		return &release.Release{Name: want.Name, Namespace: want.Namespace, Version: r.version, Info: &release.Info{Status: release.StatusSuperseded}}
	}
	shown := *r.content.release
	info := *shown.Info
	shown.Info, shown.Manifest, shown.Hooks = &info, r.content.heads, nil
	for _, h := range r.content.release.Hooks {
		hook := *h
		shown.Hooks = append(shown.Hooks, &hook)
	}
	return &shown
}

// Update marks the release as uninstalling, or, at the end of an uninstall that keeps the history, as uninstalled. One that bears the caller's
// mark already is left as it is; an older mark of the caller's is renewed.
func (c *recordDriver) Update(_ string, to *release.Release) error {
	switch {
	case to.Info.Status == release.StatusUninstalled && c.hooks.failure != nil:
		return c.hooks.failure
	case to.Info.Status == release.StatusUninstalled:
		return c.records.markUninstalled()
	case to.Info.Status != release.StatusUninstalling:
		return c.attempt.haltWith(errNotNeeded)
	}
	h, err := c.records.readCommitted()
	if err != nil {
		return err
	}
	was, _ := h.newestRecord()
	switch {
	case !c.attempt.want.hasBegun(was):
		err = c.records.markUninstalling(was)
	case was.uninstallMark() != c.attempt.want.Mark:
		err = c.records.renewMark(was)
	}
	if err != nil {
		return c.attempt.haltWith(fmt.Errorf("cannot mark the release as uninstalling: %w", err))
	}
	return nil
}

// Delete deletes one record, but not after a hook has failed: Helm would.
func (c *recordDriver) Delete(key string) (*release.Release, error) {
	if c.hooks.failure != nil {
		return nil, c.hooks.failure
	}
	if c.attempt.halted != nil {
		return nil, c.attempt.halted
	}
	version, ok := parseVersion(key, c.attempt.want.Name)
	if !ok {
		return nil, c.attempt.haltWith(fmt.Errorf("cannot delete Secret %q: it is no record of the release", key))
	}
	gone := record{version: version}.toRelease(c.attempt.want)
	for range attempts {
		live, err := c.attempt.u.metadata.Resource(secretsResource()).Namespace(c.attempt.want.Namespace).Get(c.attempt.ctx, key, metav1.GetOptions{})
		if notfound.IsAnyObjectMissing(err) {
			return gone, nil
		}
		if err != nil {
			return nil, c.attempt.haltWith(fmt.Errorf("cannot read Secret %q: %w", key, err))
		}
		if isProtected(live) {
			return nil, c.attempt.haltWith(fmt.Errorf("cannot delete Secret %q: it is protected by %s", key, v1alpha1.ProtectKey))
		}
		ref := record{secret: trimMetadata(live.ObjectMeta)}.secretRef()
		if err := c.records.mayDelete(ref); err != nil {
			return nil, err
		}
		faults.PassPoint("before the DELETE of a record of the release")
		err = c.attempt.u.secrets.Secrets(ref.Namespace).Delete(c.attempt.ctx, key, newDeleteOptions(ref))
		faults.PassPoint("after the DELETE of a record of the release")
		switch {
		case notfound.IsAnyObjectMissing(err):
			return gone, nil
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return nil, c.attempt.haltWith(fmt.Errorf("cannot delete Secret %q: %w", key, err))
		}
		c.attempt.outcome.Deleted = append(c.attempt.outcome.Deleted, ref)
		return gone, nil
	}
	return nil, c.attempt.haltWith(fmt.Errorf("cannot delete Secret %q: it changed %d times just before its deletion", key, attempts))
}

// Get is refused: nothing asks for one record alone.
func (c *recordDriver) Get(string) (*release.Release, error) {
	return nil, c.attempt.haltWith(errNotNeeded)
}

// List is refused.
func (c *recordDriver) List(func(*release.Release) bool) ([]*release.Release, error) {
	return nil, c.attempt.haltWith(errNotNeeded)
}

// Create is refused.
func (c *recordDriver) Create(string, *release.Release) error {
	return c.attempt.haltWith(errNotNeeded)
}

// newStorage returns Helm's storage with these records.
func (s *session) newStorage() *storage.Storage {
	return storage.Init(&recordDriver{attempt: s.attempt, records: s.records, hooks: s.hooks})
}

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
	// kept says that the release is marked as uninstalled.
	kept bool
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
	if because := h.describeProtected(r.attempt.want.Name); because != "" {
		return nil, r.attempt.haltWith(&BlockedError{Reason: v1alpha1.ReasonProtected, Detail: because})
	}
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
func (r *releaseRecords) mayDelete(ref observed.Ref) error {
	if _, err := r.readMarked(); err != nil {
		return err
	}
	return r.attempt.stopIfRefused("the deletion of "+ref.String(), r.attempt.guard.MayDelete(ref))
}

// markUninstalling writes, in one request, that the release is uninstalling, and the caller's mark. It removes any earlier note about hooks
// that have run.
func (r *releaseRecords) markUninstalling(was record) error {
	if decided := r.attempt.want.ResourceVersion; decided != "" && decided != was.secret.ResourceVersion {
		return r.attempt.endWith(Upgraded)
	}
	secret, err := r.encodeSecret(was, release.StatusUninstalling, uninstallingSays)
	if err != nil {
		return err
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

// encodeSecret returns the Secret of a record with another status of the release, which is not written yet.
func (r *releaseRecords) encodeSecret(was record, status release.Status, says string) (*corev1.Secret, error) {
	secret, err := r.readSecret(was)
	if err != nil {
		return nil, err
	}
	if stopped := r.attempt.slot.run(r.attempt.ctx, func() {
		secret.Data["release"], err = was.content.encodeStatus(secret.Data["release"], status, says, r.attempt.u.clock.Now())
	}); stopped != nil || err != nil {
		return nil, errors.Join(stopped, err)
	}
	for label, value := range map[string]string{
		"status": string(status), "version": strconv.Itoa(was.version), modifiedLabel: strconv.FormatInt(r.attempt.u.clock.Now().Unix(), 10),
	} {
		metav1.SetMetaDataLabel(&secret.ObjectMeta, label, value)
	}
	return secret, nil
}

// markUninstalled writes that the release is uninstalled, when all else of it is gone, and takes the caller's mark off. Before that, it writes that
// no older revision is deployed: Helm would take one that says so for the release.
func (r *releaseRecords) markUninstalled() error {
	was, err := r.readMarked()
	if err != nil {
		return err
	}
	if err := r.supersedeDeployed(was.version); err != nil {
		return r.attempt.haltWith(fmt.Errorf("cannot mark older revisions as superseded: %w", err))
	}
	secret, err := r.encodeSecret(was, release.StatusUninstalled, uninstalledSays)
	if err != nil {
		return r.attempt.haltWith(err)
	}
	if err := r.attempt.stopIfRefused("the end of the uninstall", r.attempt.guard.MayNote(was.secretRef())); err != nil {
		return err
	}
	delete(secret.Annotations, v1alpha1.AnnotationUninstall)
	delete(secret.Annotations, hooksDoneAnnotation)
	_, err = r.attempt.u.secrets.Secrets(secret.Namespace).Update(r.attempt.ctx, secret, metav1.UpdateOptions{})
	if err != nil {
		return r.attempt.haltWith(fmt.Errorf("cannot mark the release as uninstalled: %w", err))
	}
	r.kept = true
	return nil
}

// supersedeDeployed marks the revisions before one as superseded that Helm has labelled deployed. It leaves alone what it cannot read.
func (r *releaseRecords) supersedeDeployed(before int) error {
	o := metav1.ListOptions{
		LabelSelector: labels.Set{"owner": "helm", "name": r.attempt.want.Name, "status": string(release.StatusDeployed)}.String(),
		FieldSelector: fields.OneTermEqualSelector("type", string(secretType)).String(), Limit: recordsAtOnce,
	}
	for {
		page, err := r.attempt.u.metadata.Resource(secretsResource()).Namespace(r.attempt.want.Namespace).List(r.attempt.ctx, o)
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := r.supersedeRecord(&page.Items[i].ObjectMeta, before); err != nil {
				return err
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			return nil
		}
	}
}

// supersedeRecord marks a revision as superseded, if it is one before another.
func (r *releaseRecords) supersedeRecord(secret *metav1.ObjectMeta, before int) error {
	version, ok := parseVersion(secret.Name, r.attempt.want.Name)
	if !ok || version >= before {
		return nil
	}
	if isProtected(secret) {
		return fmt.Errorf("its Secret %q is protected by %s", secret.Name, v1alpha1.ProtectKey)
	}
	was, err := r.attempt.u.readRecord(r.attempt.ctx, r.attempt.slot, record{secret: trimMetadata(*secret), version: version}, r.attempt.want.Name)
	_, unreadable := errors.AsType[*BlockedError](err)
	switch {
	case unreadable, notfound.IsAnyObjectMissing(err):
		return nil
	case err != nil:
		return err
	}
	changed, err := r.encodeSecret(was, release.StatusSuperseded, "")
	if err != nil {
		return err
	}
	if err := r.attempt.stopIfRefused("a change of an older revision", r.attempt.guard.MayNote(was.secretRef())); err != nil {
		return err
	}
	_, err = r.attempt.u.secrets.Secrets(changed.Namespace).Update(r.attempt.ctx, changed, metav1.UpdateOptions{})
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
