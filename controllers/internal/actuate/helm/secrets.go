// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"

	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/vtex/cleaner/controllers/internal/faults"
)

var errNotNeeded = errors.New("an uninstall has no need of this")

// recordSecrets is the Secrets client under Helm's storage. It only ever shows the release that was decided on, writes
// nothing but the versions that were read, and hands nothing to Helm that Helm could not decode. The contexts it is
// given are Helm's, which are empty: the session's counts.
type recordSecrets struct {
	corev1client.SecretInterface // nil: what is not below, Helm's storage does not use

	s *session
	// read are the records that Helm was shown last, by name.
	read map[string]record
}

// List reads the release.
func (c *recordSecrets) List(context.Context, metav1.ListOptions) (*corev1.SecretList, error) {
	h, err := c.s.committed()
	if err != nil {
		return nil, err
	}
	list := &corev1.SecretList{}
	c.read = map[string]record{}
	for _, r := range h {
		c.read[r.secret.Name] = r
		list.Items = append(list.Items, *r.secret)
	}
	return list, nil
}

// Get reads one record.
func (c *recordSecrets) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Secret, error) {
	if c.s.halted != nil {
		return nil, c.s.halted
	}
	r, err := c.live(name)
	if err != nil {
		return nil, err
	}
	return r.secret, nil
}

func (c *recordSecrets) live(name string) (record, error) {
	secret, err := c.s.u.secrets.Secrets(c.s.want.Namespace).Get(c.s.ctx, name, metav1.GetOptions{})
	if err != nil {
		return record{}, err
	}
	return decode(secret, c.s.want.Namespace, c.s.want.Name)
}

// Update marks the release as uninstalling, the only update of an uninstall that does not keep the history. One that is
// marked already is left as it is.
func (c *recordSecrets) Update(_ context.Context, secret *corev1.Secret, _ metav1.UpdateOptions) (*corev1.Secret, error) {
	if c.s.halted != nil {
		return nil, c.s.halted
	}
	was, found := c.read[secret.Name]
	if !found {
		return nil, c.s.halt(fmt.Errorf("cannot update Secret %q: it was not read", secret.Name))
	}
	if was.release.Info.Status == release.StatusUninstalling {
		return was.secret, nil
	}
	if err := c.s.obey("the start", c.s.guard.MayStart()); err != nil {
		return nil, err
	}
	marked := was.secret.DeepCopy()
	marked.Labels, marked.Data = secret.Labels, secret.Data
	faults.Point("before the release is marked")
	updated, err := c.s.u.secrets.Secrets(c.s.want.Namespace).Update(c.s.ctx, marked, metav1.UpdateOptions{})
	faults.Point("after the release is marked")
	if err != nil {
		return nil, c.s.halt(fmt.Errorf("cannot mark the release as uninstalling: %w", err))
	}
	return updated, nil
}

// Delete deletes one record, but not after a hook has failed: Helm would.
func (c *recordSecrets) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	if c.s.failed != nil {
		return c.s.failed
	}
	for range attempts {
		r, err := c.live(name)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return c.s.halt(err)
		}
		ref := secretRef(r.secret)
		if err := c.s.mayDelete(ref); err != nil {
			return err
		}
		faults.Point("before the DELETE of a record of the release")
		err = c.s.u.secrets.Secrets(ref.Namespace).Delete(c.s.ctx, name, preconditions(ref))
		faults.Point("after the DELETE of a record of the release")
		switch {
		case isGone(err):
			return nil
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return c.s.halt(fmt.Errorf("cannot delete Secret %q: %w", name, err))
		}
		c.s.outcome.Deleted = append(c.s.outcome.Deleted, ref)
		return nil
	}
	return c.s.halt(fmt.Errorf("cannot delete Secret %q: it changed %d times just before its deletion", name, attempts))
}

// Create is refused.
func (c *recordSecrets) Create(context.Context, *corev1.Secret, metav1.CreateOptions) (*corev1.Secret, error) {
	return nil, c.s.halt(errNotNeeded)
}
