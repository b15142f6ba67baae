// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// secretType is the type of the Secrets in which Helm keeps releases.
const secretType corev1.SecretType = "helm.sh/release.v1"

// maxRecord and maxHistory bound what is unpacked, of one record and of all records of a release. Whoever may write
// Secrets could otherwise fill the operator's memory with a few kilobytes of zipped nothing.
const (
	maxRecord  = 32 << 20
	maxHistory = 256 << 20
)

// record is one revision of a release.
type record struct {
	secret  *corev1.Secret
	release *release.Release
	// size is that of the unpacked record.
	size int
}

// firstDeployed is when the release was first installed: what two releases of one name do not share. It is cut to what
// a status can hold.
func (r record) firstDeployed() time.Time {
	return r.release.Info.FirstDeployed.Time.UTC().Truncate(time.Microsecond)
}

// digest is a fingerprint of what an uninstall of the record would delete and run. What changes while a release is
// uninstalled, or its tests are run, is no part of it: the status, and when a hook last ran.
func (r record) digest() string {
	type hook struct {
		Name, Kind, Manifest string
		Events               []release.HookEvent
		Weight               int
		DeletePolicies       []release.HookDeletePolicy
	}
	says := struct {
		Manifest string
		Hooks    []hook
	}{Manifest: r.release.Manifest}
	for _, h := range r.deleteHooks() {
		policies := h.DeletePolicies
		if len(policies) == 0 { // as Helm would write it when it has run the hook
			policies = []release.HookDeletePolicy{release.HookBeforeHookCreation}
		}
		says.Hooks = append(says.Hooks, hook{h.Name, h.Kind, h.Manifest, h.Events, h.Weight, policies})
	}
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(says); err != nil {
		panic(err) // strings and numbers: it cannot be
	}
	return fmt.Sprintf("v1:%x", hash.Sum(nil))
}

// history is all records of a release, oldest revision first.
type history []record

func (h history) newest() (record, bool) {
	if len(h) == 0 {
		return record{}, false
	}
	return h[len(h)-1], true
}

// is compares the release with the one that was decided on. Unfinished means that it is that one, and there.
func (h history) is(want Committed) OutcomeState {
	newest, found := h.newest()
	switch {
	case !found:
		return Done
	case !newest.firstDeployed().Equal(want.FirstDeployed.Truncate(time.Microsecond)):
		return Replaced
	case newest.release.Info.Status == release.StatusUninstalled:
		return Done
	case newest.release.Info.Status.IsPending():
		return Pending
	case int64(newest.release.Version) != want.Revision, newest.secret.UID != want.UID:
		return Upgraded
	default:
		return Unfinished
	}
}

// records reads all records of a release, live. One that cannot be read is a *BlockedError: Helm would pass over it, and
// its revision might be the newest.
func (u *Uninstaller) records(ctx context.Context, namespace, name string) (history, error) {
	if err := chartutil.ValidateReleaseName(name); err != nil {
		return nil, fmt.Errorf("%q cannot be the name of a release: %w", name, err)
	}
	list, err := u.secrets.Secrets(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.Set{"owner": "helm", "name": name}.String(),
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the release's Secrets: %w", err)
	}
	var h history
	size := 0
	for i := range list.Items {
		secret := &list.Items[i]
		if secret.Type != secretType {
			continue
		}
		r, err := decode(secret, namespace, name)
		if err != nil {
			return nil, err
		}
		if size += r.size; size > maxHistory {
			return nil, unreadable(secret, name, fmt.Errorf("with the others it is larger than %d MiB", maxHistory>>20))
		}
		h = append(h, r)
	}
	slices.SortFunc(h, func(a, b record) int { return a.release.Version - b.release.Version })
	return h, nil
}

// decode reads the record in a Secret. What Helm's own code takes for granted about one is checked here: it would crash
// on some Secrets that any user can write.
func decode(secret *corev1.Secret, namespace, name string) (record, error) {
	text, err := unpack(secret.Data["release"])
	if err != nil {
		return record{}, unreadable(secret, name, err)
	}
	r := &release.Release{}
	if err := json.Unmarshal(text, r); err != nil {
		return record{}, unreadable(secret, name, fmt.Errorf("it is not a release: %w", err))
	}
	if err := sound(secret, r, namespace, name); err != nil {
		return record{}, unreadable(secret, name, err)
	}
	return record{secret: secret, release: r, size: len(text)}, nil
}

func unreadable(secret *corev1.Secret, name string, err error) *BlockedError {
	return &BlockedError{
		Reason: v1alpha1.ReasonReleaseUnreadable,
		Detail: fmt.Sprintf("Secret %q is no readable record of release %q: %v", secret.Name, name, err),
	}
}

// unpack undoes what Helm does to the JSON of a release: gzip and base64.
func unpack(data []byte) ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(string(data))
	if err != nil {
		return nil, fmt.Errorf("it is not base64: %w", err)
	}
	if !bytes.HasPrefix(packed, []byte{0x1f, 0x8b, 0x08}) {
		return packed, nil
	}
	zipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("it does not unzip: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(zipped, maxRecord+1))
	if err != nil {
		return nil, fmt.Errorf("it does not unzip: %w", err)
	}
	if len(text) > maxRecord {
		return nil, fmt.Errorf("it is larger than %d MiB", maxRecord>>20)
	}
	return text, nil
}

// sound says what is wrong with a release that was read from a Secret.
func sound(secret *corev1.Secret, r *release.Release, namespace, name string) error {
	switch {
	case r.Info == nil:
		return errors.New("it has no status")
	case r.Name != name:
		return fmt.Errorf("it is of release %q", r.Name)
	case r.Namespace != namespace:
		return fmt.Errorf("it is of a release in namespace %q", r.Namespace)
	case slices.Contains(r.Hooks, nil):
		return errors.New("it has an empty hook")
	case secret.Name != fmt.Sprintf("%s.%s.v%d", storage.HelmStorageType, name, r.Version):
		return fmt.Errorf("it is of revision %d", r.Version)
	default:
		return nil
	}
}

// isRecordName says whether Helm would keep a release in a Secret of this name.
func isRecordName(name string) bool { return strings.HasPrefix(name, storage.HelmStorageType+".") }
