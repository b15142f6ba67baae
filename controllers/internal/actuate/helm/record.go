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
	"hash"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	helmtime "helm.sh/helm/v3/pkg/time"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm/manifests"
	"github.com/vtex/cleaner/controllers/internal/jsonscan"
	"github.com/vtex/cleaner/controllers/internal/recordtext"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// secretType is the type of the Secrets in which Helm keeps releases.
const secretType corev1.SecretType = v1alpha1.ReleaseSecretType

// A user who may write Secrets writes records, and could fill the operator's memory with a few kilobytes of zipped zeros. So a record is
// read as a stream, in a slot, and only this much of it is kept.
const (
	// maxRecord bounds an unpacked record; most of it is never kept.
	maxRecord = 32 << 20
	// maxManifest, maxHooks and maxHooksText bound what is: the manifest, and the hooks that a deletion runs.
	maxManifest  = 6 << 20
	maxHooks     = 256
	maxHooksText = 256 << 10
	// maxText bounds other texts that are kept, such as names.
	maxText = 1 << 10
	// maxRecords is how many revisions a release may have; recordsAtOnce of them are listed at a time.
	maxRecords    = 1000
	recordsAtOnce = 8
	// maxAnnotation bounds an annotation that is kept of each of them. Ours are shorter.
	maxAnnotation = 256
)

// record is one revision of a release.
type record struct {
	// secret is the metadata of the Secret that holds it.
	secret  metav1.ObjectMeta
	version int
	// content is what it says; nil for all revisions but the newest: of the others only the Secrets are of interest.
	content *recordContent
}

// recordContent is what is read of a record. It is not changed: others may have the same one.
type recordContent struct {
	// release has no manifest but heads, and no hooks but those of a deletion.
	release *release.Release
	// heads is the manifest with nothing left of each object but what says which it is: this much of it Helm is shown.
	heads string
	// documents are the objects of the manifest, in the order in which Helm deletes them, without what they say. manifestError
	// says why there are none.
	documents     []document
	manifestError error
	// hooks are the objects of each hook of the release, without what they say.
	hooks []hookObjects
	// digest is a fingerprint of what an uninstall of the record would delete and run. What changes while a release is
	// uninstalled, or its tests are run, is no part of it: the status, and when a hook last ran.
	digest string
	// infoOffset is where the fields of the status begin in the JSON, and fieldSpans where some of them are: both serve to change them.
	infoOffset int64
	fieldSpans map[string]span
}

// span is from one byte of the JSON to before another.
type span struct{ from, to int64 }

// releaseStatus returns the status of a release with this as its newest record.
func (r record) releaseStatus() release.Status { return r.content.release.Info.Status }

// uninstallMark is what the Secret says about who has begun to uninstall the release; empty if it does not.
func (r record) uninstallMark() string { return r.secret.Annotations[v1alpha1.AnnotationUninstall] }

// isProtected says that the record must not be touched.
func (r record) isProtected() bool { return isProtected(&r.secret) }

// describeProtected says which record of a release must not be touched; empty if all may be. Helm deletes all of them.
func (h history) describeProtected(name string) string {
	i := slices.IndexFunc(h, record.isProtected)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("release %q has a protected record: Secret %q has the label or annotation %s: \"true\"", name, h[i].secret.Name, v1alpha1.ProtectKey)
}

// modifiedLabel is the label in which Helm says when it has written a record, in seconds since 1970.
const modifiedLabel = "modifiedAt"

// modified is when the record was written last, as its label says; zero if it does not.
func (r record) modified() time.Time {
	seconds, err := strconv.ParseInt(r.secret.Labels[modifiedLabel], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}

// firstDeployed is when the release was first installed: what two releases of one name do not share. It is cut to what
// a status can hold.
func (r record) firstDeployed() time.Time {
	return r.content.release.Info.FirstDeployed.Time.UTC().Truncate(time.Microsecond)
}

// computeDigest returns the fingerprint of a manifest and of the hooks of a deletion: of their JSON, which is never there as a whole.
func computeDigest(manifest string, hooks []*release.Hook) string {
	sum := sha256.New()
	put := func(text string) { sum.Write([]byte(text)) } // a hash takes everything
	put(`{"Manifest":"`)
	hashText(sum, manifest)
	put(`","Hooks":`)
	for i, h := range hooks {
		put(map[bool]string{true: "[", false: ","}[i == 0])
		policies := h.DeletePolicies
		if len(policies) == 0 { // as Helm would write it when it has run the hook
			policies = []release.HookDeletePolicy{release.HookBeforeHookCreation}
		}
		put(`{"Name":"`)
		hashText(sum, h.Name)
		put(`","Kind":"`)
		hashText(sum, h.Kind)
		put(`","Manifest":"`)
		hashText(sum, h.Manifest)
		put(`","Events":`)
		hashJSON(sum, h.Events)
		put(`,"Weight":` + strconv.Itoa(h.Weight) + `,"DeletePolicies":`)
		hashJSON(sum, policies)
		put("}")
	}
	if len(hooks) == 0 {
		put("null}\n")
	} else {
		put("]}\n")
	}
	return fmt.Sprintf("v1:%x", sum.Sum(nil))
}

// hashText writes text as JSON does, without its quotes and a piece at a time.
func hashText(sum hash.Hash, text string) {
	const piece = 32 << 10
	for len(text) > 0 {
		n := min(piece, len(text))
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		quoted, _ := json.Marshal(text[:n]) // strings never fail
		sum.Write(quoted[1 : len(quoted)-1])
		text = text[n:]
	}
}

func hashJSON[T ~string](sum hash.Hash, list []T) {
	text, _ := json.Marshal(list) // strings never fail
	sum.Write(text)
}

// history is all records of a release, oldest revision first. Only of the newest it is known what it says.
type history []record

func (h history) newestRecord() (record, bool) {
	if len(h) == 0 {
		return record{}, false
	}
	return h[len(h)-1], true
}

// compareWith reports whether the release is the one that was decided on, and there. If it is not, its uninstall ends with a state.
func (h history) compareWith(want UninstallRequest) (state OutcomeState, same bool) {
	newest, found := h.newestRecord()
	switch {
	case !found:
		return Done, false
	case !newest.firstDeployed().Equal(want.FirstDeployed.Truncate(time.Microsecond)):
		return Replaced, false
	case newest.releaseStatus() == release.StatusUninstalled:
		return Done, false
	case newest.releaseStatus().IsPending():
		return Pending, false
	case int64(newest.version) != want.Revision, newest.secret.UID != want.UID:
		return Upgraded, false
	default:
		return "", true
	}
}

// readHistory reads a release, live: which records it has, and what the newest of them says, unless that is known already, to the
// caller or to the shelf. What is no record of it, or none that can be read, is a *BlockedError: Helm would pass over it, and its
// revision might be the newest.
func (u *Uninstaller) readHistory(ctx context.Context, slot ReadSlot, namespace, name string, known *record) (history, error) {
	if err := chartutil.ValidateReleaseName(name); err != nil {
		return nil, fmt.Errorf("%q cannot be the name of a release: %w", name, err)
	}
	for range attempts {
		h, err := u.listRecords(ctx, namespace, name)
		if err != nil || len(h) == 0 {
			return nil, err
		}
		newest := &h[len(h)-1]
		if known != nil && known.secret.UID == newest.secret.UID && known.secret.ResourceVersion == newest.secret.ResourceVersion {
			*newest = *known
			return h, nil
		}
		read, err := u.readRecord(ctx, slot, *newest, name)
		switch {
		case notfound.IsAnyObjectMissing(err):
			continue
		case err != nil:
			return nil, err
		}
		*newest = read
		return h, nil
	}
	return nil, fmt.Errorf("cannot read the newest of the release's Secrets: it was gone %d times", attempts)
}

// listRecords lists the Secrets of a release without what is in them, a few at a time: of their metadata alone each can be
// as large as an object may be.
func (u *Uninstaller) listRecords(ctx context.Context, namespace, name string) (history, error) {
	var h history
	o := metav1.ListOptions{
		LabelSelector: labels.Set{"owner": "helm", "name": name}.String(),
		FieldSelector: fields.OneTermEqualSelector("type", string(secretType)).String(),
		Limit:         recordsAtOnce,
	}
	for {
		page, err := u.metadata.Resource(secretsResource()).Namespace(namespace).List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("cannot list the release's Secrets: %w", err)
		}
		for i := range page.Items {
			secret := &page.Items[i]
			version, ok := parseVersion(secret.Name, name)
			if !ok {
				return nil, newUnreadableError(secret.Name, name, errors.New("it is not named as one"))
			}
			h = append(h, record{secret: trimMetadata(secret.ObjectMeta), version: version})
		}
		if len(h) > maxRecords {
			return nil, &BlockedError{
				Reason: v1alpha1.ReasonTooManyObjects,
				Detail: fmt.Sprintf("release %q has more than %d records: delete the Secrets of its older revisions", name, maxRecords),
			}
		}
		if o.Continue = page.Continue; o.Continue == "" {
			break
		}
	}
	slices.SortFunc(h, func(a, b record) int { return a.version - b.version })
	return h, nil
}

// trimMetadata returns what is kept of the metadata of a Secret.
func trimMetadata(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
	for _, key := range []string{hooksDoneAnnotation, v1alpha1.AnnotationUninstall} {
		if value := m.Annotations[key]; value != "" && len(value) <= maxAnnotation {
			metav1.SetMetaDataAnnotation(&kept, key, strings.Clone(value))
		}
	}
	if modified := m.Labels[modifiedLabel]; modified != "" {
		metav1.SetMetaDataLabel(&kept, modifiedLabel, strings.Clone(modified))
	}
	if isProtected(&m) {
		metav1.SetMetaDataAnnotation(&kept, v1alpha1.ProtectKey, "true")
	}
	return kept
}

// parseVersion returns the revision that the name of a Secret says.
func parseVersion(secret, release string) (int, bool) {
	text, ok := strings.CutPrefix(secret, fmt.Sprintf("%s.%s.v", storage.HelmStorageType, release))
	version, err := strconv.Atoi(text)
	return version, ok && err == nil && version > 0 && text == strconv.Itoa(version)
}

// readRecord reads what a record says, in a slot, unless it was read before.
func (u *Uninstaller) readRecord(ctx context.Context, slot ReadSlot, r record, name string) (record, error) {
	if known, err, found := u.shelf.findRecord(&r.secret); found {
		return known, err
	}
	secret, err := u.secrets.Secrets(r.secret.Namespace).Get(ctx, r.secret.Name, metav1.GetOptions{})
	if err != nil {
		return record{}, err
	}
	if stopped := slot.run(ctx, func() { r, err = decodeRecord(ctx, secret, secret.Namespace, name) }); stopped != nil {
		return record{}, stopped
	}
	if ctx.Err() == nil {
		u.shelf.keepRecord(&secret.ObjectMeta, r, err)
	}
	return r, err
}

// decodeRecord reads the record in a Secret. What Helm's own code takes for granted about one is checked here: it would crash
// on some Secrets that any user can write. It ends with ctx, because others wait for it.
func decodeRecord(ctx context.Context, secret *corev1.Secret, namespace, name string) (record, error) {
	version, ok := parseVersion(secret.Name, name)
	if !ok {
		return record{}, newUnreadableError(secret.Name, name, errors.New("it is not named as one"))
	}
	c, manifest, err := scanRelease(ctx, secret.Data["release"])
	if err == nil {
		err = validateRelease(c.release, version, namespace, name)
	}
	if ctx.Err() != nil {
		return record{}, ctx.Err()
	}
	if err != nil {
		return record{}, newUnreadableError(secret.Name, name, err)
	}
	c.digest = computeDigest(manifest, c.release.Hooks)
	c.parse(ctx, manifest)
	if ctx.Err() != nil {
		return record{}, ctx.Err()
	}
	return record{secret: trimMetadata(secret.ObjectMeta), version: version, content: c}, nil
}

// parse reads the manifest and the hooks.
func (c *recordContent) parse(ctx context.Context, manifest string) {
	if c.heads, c.manifestError = extractHeads(ctx, manifest); c.manifestError != nil {
		return
	}
	if c.manifestError = weighHooks(ctx, c.release.Hooks); c.manifestError != nil {
		return
	}
	if c.documents, c.manifestError = parseHeads(ctx, c.heads); c.manifestError != nil {
		return
	}
	for _, h := range c.release.Hooks {
		if ctx.Err() != nil {
			return
		}
		docs, err := parseHook(h.Manifest)
		c.hooks = append(c.hooks, hookObjects{dropContents(docs), err})
	}
}

// weigh is about how much of the memory it takes.
func (c *recordContent) weigh() int {
	bytes := len(c.heads)
	for i := range c.documents {
		bytes += c.documents[i].weigh()
	}
	for i, h := range c.release.Hooks {
		bytes += 512 + len(h.Name) + len(h.Kind) + len(h.Manifest)
		if i < len(c.hooks) {
			for d := range c.hooks[i].documents {
				bytes += c.hooks[i].documents[d].weigh()
			}
		}
	}
	return bytes
}

func newUnreadableError(secret, name string, err error) *BlockedError {
	return &BlockedError{
		Reason: v1alpha1.ReasonReleaseUnreadable,
		Detail: fmt.Sprintf("Secret %q does not contain a readable record of release %q: %v", secret, name, err),
	}
}

// scanRelease reads what is needed of the JSON of a release: which one it is, its status, its manifest, and the hooks of a
// deletion. The rest, such as its chart and its values, is read over.
func scanRelease(ctx context.Context, data []byte) (*recordContent, string, error) {
	text, err := recordtext.Unpack(bytes.NewReader(data))
	if err != nil {
		return nil, "", err
	}
	s := jsonscan.New(manifests.NewReader(ctx, text), maxRecord)
	r := &release.Release{}
	c := &recordContent{release: r, fieldSpans: map[string]span{}}
	d := &recordDecoder{scanner: s, content: c, left: maxHooksText}
	manifest := ""
	s.ReadObject(map[string]func(){
		"name":      func() { r.Name = s.ReadText("name", maxText) },
		"namespace": func() { r.Namespace = s.ReadText("namespace", maxText) },
		"version":   func() { r.Version = s.ReadInteger() },
		"info":      d.readInfo,
		"manifest":  func() { manifest = s.ReadText("manifest", maxManifest) },
		"hooks": func() {
			s.ReadArray("hooks", maxHooks, d.readHook)
		},
	})
	s.ExpectEnd()
	return c, manifest, s.Err()
}

// recordDecoder reads the parts of a release from its JSON.
type recordDecoder struct {
	scanner *jsonscan.Scanner
	content *recordContent
	// left is how much more text hooks may have.
	left int
}

// readInfo reads the status of a release, and where it stands.
func (d *recordDecoder) readInfo() {
	s, c, info := d.scanner, d.content, &release.Info{}
	field := func(name string, read func()) func() {
		return func() {
			from := s.NextOffset()
			read()
			c.fieldSpans[name] = span{from, s.Offset()}
		}
	}
	c.infoOffset = s.NextOffset() + 1
	if !s.ReadObject(map[string]func(){
		"first_deployed": func() { info.FirstDeployed = d.readTime() },
		"status":         field("status", func() { info.Status = release.Status(s.ReadText("status", maxText)) }),
		"deleted":        field("deleted", s.SkipValue),
		"description":    field("description", s.SkipValue),
	}) {
		return
	}
	c.release.Info = info
}

// readTime reads a time as Helm does.
func (d *recordDecoder) readTime() helmtime.Time {
	s, t := d.scanner, helmtime.Time{}
	text := s.ReadText("time", maxText)
	if text == "" || s.Err() != nil {
		return t
	}
	if err := t.Time.UnmarshalText([]byte(text)); err != nil {
		s.SetError("it has no time where one should be: %w", err)
	}
	return t
}

// readHook reads one hook, and keeps it if a deletion runs it.
func (d *recordDecoder) readHook() {
	s, h := d.scanner, &release.Hook{}
	if !s.ReadObject(map[string]func(){
		"name":     func() { h.Name = s.ReadText("name of a hook", maxText) },
		"kind":     func() { h.Kind = s.ReadText("kind of a hook", maxText) },
		"manifest": func() { h.Manifest = s.ReadText("text of hooks", maxHooksText) },
		"weight":   func() { h.Weight = s.ReadInteger() },
		"events": func() {
			s.ReadArray("events of a hook", 16, func() { h.Events = append(h.Events, release.HookEvent(s.ReadText("event of a hook", maxText))) })
		},
		"delete_policies": func() {
			s.ReadArray("delete policies of a hook", 16, func() {
				h.DeletePolicies = append(h.DeletePolicies, release.HookDeletePolicy(s.ReadText("delete policy of a hook", maxText)))
			})
		},
	}) {
		s.SetError("it has an empty hook")
	}
	if !isDeleteHook(h) {
		return
	}
	if d.left -= len(h.Manifest); d.left < 0 {
		s.SetError("its text of hooks is longer than %d KiB", maxHooksText>>10)
	}
	d.content.release.Hooks = append(d.content.release.Hooks, h)
}

// validateRelease says what is wrong with a release that was read from a Secret of its revision.
func validateRelease(r *release.Release, version int, namespace, name string) error {
	switch {
	case r.Info == nil, r.Info.Status == "":
		return errors.New("it has no status")
	case r.Name != name:
		return fmt.Errorf("it is of release %q", r.Name)
	case r.Namespace != namespace:
		return fmt.Errorf("it is of a release in namespace %q", r.Namespace)
	case r.Version != version:
		return fmt.Errorf("it is of revision %d", r.Version)
	default:
		return nil
	}
}

// encodeStatus returns the data of a record with another status of its release, and what describes it, if that is not empty, zipped as Helm
// does. One that is uninstalling is that since now. Everything else in it stays as it is.
func (c *recordContent) encodeStatus(data []byte, status release.Status, says string, now time.Time) ([]byte, error) {
	text, err := recordtext.Unpack(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	values := map[string]string{"status": strconv.Quote(string(status))}
	if says != "" {
		values["description"] = strconv.Quote(says)
	}
	if status == release.StatusUninstalling {
		deleted, err := helmtime.Time{Time: now}.MarshalJSON()
		if err != nil {
			return nil, err
		}
		values["deleted"] = string(deleted)
	}
	var out bytes.Buffer
	encoded := base64.NewEncoder(base64.StdEncoding, &out)
	zipped, err := gzip.NewWriterLevel(encoded, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if err := c.replaceFields(zipped, text, values); err != nil {
		return nil, err
	}
	if err := errors.Join(zipped.Close(), encoded.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// replaceFields copies the JSON of a record with other values of fields of its status. What is not there yet is put first.
func (c *recordContent) replaceFields(to io.Writer, text io.Reader, values map[string]string) error {
	type piece struct {
		span
		text string
	}
	var pieces []piece
	for name, value := range values {
		p := piece{c.fieldSpans[name], value}
		if p.to == 0 {
			p.span, p.text = span{c.infoOffset, c.infoOffset}, fmt.Sprintf("%q:%s,", name, value)
		}
		pieces = append(pieces, p)
	}
	slices.SortStableFunc(pieces, func(a, b piece) int { return int(a.from - b.from) })
	at := int64(0)
	for _, p := range pieces {
		if _, err := io.CopyN(to, text, p.from-at); err != nil {
			return err
		}
		if _, err := io.WriteString(to, p.text); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, text, p.to-p.from); err != nil {
			return err
		}
		at = p.to
	}
	_, err := io.Copy(to, io.LimitReader(text, maxRecord))
	return err
}

// isRecordName says whether Helm would keep a release in a Secret of this name.
func isRecordName(name string) bool { return strings.HasPrefix(name, storage.HelmStorageType+".") }

// secretRef is a reference to the Secret of a record.
func (r record) secretRef() observed.Ref {
	return refAt(observed.Ref{Resource: secretsResource(), Kind: "Secret", Namespace: r.secret.Namespace, Name: r.secret.Name}, &r.secret)
}
