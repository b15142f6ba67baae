// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/notfound"
)

var errNotNeeded = errors.New("an uninstall has no need of this")

// uninstallingSays is how Helm describes a release that is being uninstalled.
const uninstallingSays = "Deletion in progress (or silently failed)"

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

// Query reads the release.
func (c *recordDriver) Query(map[string]string) ([]*release.Release, error) {
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

// Update marks the release as uninstalling, the only update of an uninstall that does not keep the history. One that bears the
// caller's mark already is left as it is; an older mark of the caller's is renewed.
func (c *recordDriver) Update(string, *release.Release) error {
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
