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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/faults"
)

var errNotNeeded = errors.New("an uninstall has no need of this")

// uninstallingSays is how Helm describes a release that is being uninstalled.
const uninstallingSays = "Deletion in progress (or silently failed)"

func secretsResource() schema.GroupVersionResource {
	return corev1.SchemeGroupVersion.WithResource("secrets")
}

// recordDriver is Helm's storage of one session. It takes the place of Helm's own, which decodes whatever is in a Secret: what
// Helm is shown here is made of what was read within bounds, and has nothing that an uninstall has no need of. It only
// ever shows the release that was decided on, and writes nothing but the versions that were read.
type recordDriver struct {
	s *session
}

var _ driver.Driver = (*recordDriver)(nil)

// Name is that of Helm's own.
func (c *recordDriver) Name() string { return driver.SecretsDriverName }

// Query reads the release.
func (c *recordDriver) Query(map[string]string) ([]*release.Release, error) {
	h, err := c.s.readCommitted()
	if err != nil {
		return nil, err
	}
	var shown []*release.Release
	for _, r := range h {
		shown = append(shown, r.toRelease(c.s.want))
	}
	return shown, nil
}

// toRelease returns a record as Helm is shown it. Hooks' logs are not what an operator puts out.
func (r record) toRelease(want Committed) *release.Release {
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

// Update marks the release as uninstalling, the only update of an uninstall that does not keep the history. One that bears the
// caller's mark already is left as it is; an older mark of the caller's is renewed.
func (c *recordDriver) Update(string, *release.Release) error {
	h, err := c.s.readCommitted()
	if err != nil {
		return err
	}
	was, _ := h.newestRecord()
	switch {
	case !c.s.isOurUninstall(was):
		err = c.s.markUninstalling(was)
	case was.uninstallMark() != c.s.want.Mark:
		err = c.s.renewMark(was)
	}
	if err != nil {
		return c.s.haltWith(fmt.Errorf("cannot mark the release as uninstalling: %w", err))
	}
	return nil
}

// markUninstalling writes, in one request, that the release is uninstalling, and that the caller has begun that. What somebody has noted
// about its hooks before counts for nothing.
func (s *session) markUninstalling(was record) error {
	secret, err := s.readSecret(was)
	if err != nil {
		return err
	}
	if stopped := runExclusively(s.ctx, func() {
		secret.Data["release"], err = was.content.encodeUninstalling(secret.Data["release"], s.u.clock.Now())
	}); stopped != nil || err != nil {
		return errors.Join(stopped, err)
	}
	for label, value := range map[string]string{
		"status": string(release.StatusUninstalling), "version": strconv.Itoa(was.version), "modifiedAt": strconv.FormatInt(s.u.clock.Now().Unix(), 10),
	} {
		metav1.SetMetaDataLabel(&secret.ObjectMeta, label, value)
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.AnnotationUninstall, s.want.Mark)
	delete(secret.Annotations, hooksDoneAnnotation)
	if err := s.stopIfRefused("the start", s.guard.MayStart()); err != nil {
		return err
	}
	faults.PassPoint("before the release is marked")
	_, err = s.u.secrets.Secrets(secret.Namespace).Update(s.ctx, secret, metav1.UpdateOptions{})
	faults.PassPoint("after the release is marked")
	return err
}

// renewMark writes the caller's mark in the place of an older one.
func (s *session) renewMark(was record) error {
	if err := s.stopIfRefused("the renewal of its mark", s.guard.MayNote(was.secretRef())); err != nil {
		return err
	}
	secret, err := s.readSecret(was)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.AnnotationUninstall, s.want.Mark)
	_, err = s.u.secrets.Secrets(secret.Namespace).Update(s.ctx, secret, metav1.UpdateOptions{})
	return err
}

// readSecret reads the Secret of a record, which must be as it was when the record was read.
func (s *session) readSecret(r record) (*corev1.Secret, error) {
	secret, err := s.u.secrets.Secrets(r.secret.Namespace).Get(s.ctx, r.secret.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read Secret %q: %w", r.secret.Name, err)
	case secret.UID != r.secret.UID || secret.ResourceVersion != r.secret.ResourceVersion:
		return nil, fmt.Errorf("cannot update Secret %q: it was changed meanwhile", r.secret.Name)
	}
	return secret, nil
}

// Delete deletes one record, but not after a hook has failed: Helm would.
func (c *recordDriver) Delete(key string) (*release.Release, error) {
	if c.s.hookFailure != nil {
		return nil, c.s.hookFailure
	}
	if c.s.halted != nil {
		return nil, c.s.halted
	}
	version, ok := parseVersion(key, c.s.want.Name)
	if !ok {
		return nil, c.s.haltWith(fmt.Errorf("cannot delete Secret %q: it is no record of the release", key))
	}
	gone := record{version: version}.toRelease(c.s.want)
	for range attempts {
		live, err := c.s.u.metadata.Resource(secretsResource()).Namespace(c.s.want.Namespace).Get(c.s.ctx, key, metav1.GetOptions{})
		if isObjectMissing(err) {
			return gone, nil
		}
		if err != nil {
			return nil, c.s.haltWith(fmt.Errorf("cannot read Secret %q: %w", key, err))
		}
		ref := record{secret: trimMetadata(live.ObjectMeta)}.secretRef()
		if err := c.s.mayDelete(ref); err != nil {
			return nil, err
		}
		faults.PassPoint("before the DELETE of a record of the release")
		err = c.s.u.secrets.Secrets(ref.Namespace).Delete(c.s.ctx, key, newDeleteOptions(ref))
		faults.PassPoint("after the DELETE of a record of the release")
		switch {
		case isObjectMissing(err):
			return gone, nil
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return nil, c.s.haltWith(fmt.Errorf("cannot delete Secret %q: %w", key, err))
		}
		c.s.outcome.Deleted = append(c.s.outcome.Deleted, ref)
		return gone, nil
	}
	return nil, c.s.haltWith(fmt.Errorf("cannot delete Secret %q: it changed %d times just before its deletion", key, attempts))
}

// Get is refused: nothing asks for one record alone.
func (c *recordDriver) Get(string) (*release.Release, error) { return nil, c.s.haltWith(errNotNeeded) }

// List is refused.
func (c *recordDriver) List(func(*release.Release) bool) ([]*release.Release, error) {
	return nil, c.s.haltWith(errNotNeeded)
}

// Create is refused.
func (c *recordDriver) Create(string, *release.Release) error { return c.s.haltWith(errNotNeeded) }

// newStorage returns Helm's storage with these records.
func (s *session) newStorage() *storage.Storage { return storage.Init(&recordDriver{s: s}) }
