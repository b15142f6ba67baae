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

// records is Helm's storage of one session. It takes the place of Helm's own, which decodes whatever is in a Secret: what
// Helm is shown here is made of what was read within bounds, and has nothing that an uninstall has no need of. It only
// ever shows the release that was decided on, and writes nothing but the versions that were read.
type records struct {
	s *session
}

var _ driver.Driver = (*records)(nil)

// Name is that of Helm's own.
func (c *records) Name() string { return driver.SecretsDriverName }

// Query reads the release.
func (c *records) Query(map[string]string) ([]*release.Release, error) {
	h, err := c.s.committed()
	if err != nil {
		return nil, err
	}
	var shown []*release.Release
	for _, r := range h {
		shown = append(shown, r.shown(c.s.want))
	}
	return shown, nil
}

// shown is a record as Helm is shown it. Hooks' logs are not what an operator puts out.
func (r record) shown(want Committed) *release.Release {
	if r.said == nil {
		return &release.Release{Name: want.Name, Namespace: want.Namespace, Version: r.version, Info: &release.Info{Status: release.StatusSuperseded}}
	}
	shown := *r.said.release
	info := *shown.Info
	shown.Info, shown.Manifest, shown.Hooks = &info, r.said.heads, nil
	for _, h := range r.said.release.Hooks {
		hook := *h
		shown.Hooks = append(shown.Hooks, &hook)
	}
	return &shown
}

// Update marks the release as uninstalling, the only update of an uninstall that does not keep the history. One that bears the
// caller's mark already is left as it is; an older mark of the caller's is renewed.
func (c *records) Update(string, *release.Release) error {
	h, err := c.s.committed()
	if err != nil {
		return err
	}
	was, _ := h.newest()
	switch {
	case !c.s.begun(was):
		err = c.s.begin(was)
	case was.mark() != c.s.want.Mark:
		err = c.s.renew(was)
	}
	if err != nil {
		return c.s.halt(fmt.Errorf("cannot mark the release as uninstalling: %w", err))
	}
	return nil
}

// begin writes, in one request, that the release is uninstalling, and that the caller has begun that. What somebody has noted
// about its hooks before counts for nothing.
func (s *session) begin(was record) error {
	secret, err := s.whole(was)
	if err != nil {
		return err
	}
	if stopped := takeTurn(s.ctx, func() {
		secret.Data["release"], err = was.said.marked(secret.Data["release"], s.u.clock.Now())
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
	if err := s.obey("the start", s.guard.MayStart()); err != nil {
		return err
	}
	faults.Point("before the release is marked")
	_, err = s.u.secrets.Secrets(secret.Namespace).Update(s.ctx, secret, metav1.UpdateOptions{})
	faults.Point("after the release is marked")
	return err
}

// renew writes the caller's mark in the place of an older one.
func (s *session) renew(was record) error {
	if err := s.obey("the renewal of its mark", s.guard.MayNote(was.ref())); err != nil {
		return err
	}
	secret, err := s.whole(was)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.AnnotationUninstall, s.want.Mark)
	_, err = s.u.secrets.Secrets(secret.Namespace).Update(s.ctx, secret, metav1.UpdateOptions{})
	return err
}

// whole reads the Secret of a record, which must be as it was when the record was read.
func (s *session) whole(r record) (*corev1.Secret, error) {
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
func (c *records) Delete(key string) (*release.Release, error) {
	if c.s.failed != nil {
		return nil, c.s.failed
	}
	if c.s.halted != nil {
		return nil, c.s.halted
	}
	version, ok := versionIn(key, c.s.want.Name)
	if !ok {
		return nil, c.s.halt(fmt.Errorf("cannot delete Secret %q: it is no record of the release", key))
	}
	gone := record{version: version}.shown(c.s.want)
	for range attempts {
		live, err := c.s.u.metadata.Resource(secretsResource()).Namespace(c.s.want.Namespace).Get(c.s.ctx, key, metav1.GetOptions{})
		if isGone(err) {
			return gone, nil
		}
		if err != nil {
			return nil, c.s.halt(fmt.Errorf("cannot read Secret %q: %w", key, err))
		}
		ref := record{secret: ownMeta(live.ObjectMeta)}.ref()
		if err := c.s.mayDelete(ref); err != nil {
			return nil, err
		}
		faults.Point("before the DELETE of a record of the release")
		err = c.s.u.secrets.Secrets(ref.Namespace).Delete(c.s.ctx, key, preconditions(ref))
		faults.Point("after the DELETE of a record of the release")
		switch {
		case isGone(err):
			return gone, nil
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return nil, c.s.halt(fmt.Errorf("cannot delete Secret %q: %w", key, err))
		}
		c.s.outcome.Deleted = append(c.s.outcome.Deleted, ref)
		return gone, nil
	}
	return nil, c.s.halt(fmt.Errorf("cannot delete Secret %q: it changed %d times just before its deletion", key, attempts))
}

// Get is refused: nothing asks for one record alone.
func (c *records) Get(string) (*release.Release, error) { return nil, c.s.halt(errNotNeeded) }

// List is refused.
func (c *records) List(func(*release.Release) bool) ([]*release.Release, error) {
	return nil, c.s.halt(errNotNeeded)
}

// Create is refused.
func (c *records) Create(string, *release.Release) error { return c.s.halt(errNotNeeded) }

// storage is Helm's storage with these records.
func (s *session) storage() *storage.Storage { return storage.Init(&records{s: s}) }
