// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/release"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm/manifests"
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/notfound"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	// hookAnnotation is on each object that an uninstall has created for a hook, and names the event and the record. So the next attempt
	// recognizes a hook that is running.
	hookAnnotation = "cleaner.vtex.dev/hook"
	// hooksDoneAnnotation is on the record of a release, and names the events whose hooks have all succeeded. They do not run again: the
	// objects that they need may be gone by then, and their own objects may take long to disappear.
	hooksDoneAnnotation = "cleaner.vtex.dev/hooks-done"
	// manifestStart begins the text of the objects of a release, as Helm hands it over. The text of a hook never begins so.
	manifestStart = manifests.HeadStart
)

// noAccountDetail says what a release with hooks needs.
const noAccountDetail = "its delete hooks run only when the operator acts as a ServiceAccount of the namespace of the release: set one, or set disableHooks: true to uninstall the release without them"

// grantsRightsDetail says what to do about a release with a hook that grants rights.
const grantsRightsDetail = "grants permissions, and any user who can write the release Secret could have added it: set disableHooks: true to uninstall the release without its hooks, or uninstall it with Helm"

// HookError says that a hook failed.
type HookError struct {
	// Hook is the hook, such as "pre-delete hook backup.jobs.batch/v1".
	Hook string
	// Why is the reason.
	Why string
}

// Error says which hook failed, and why.
func (e *HookError) Error() string { return e.Hook + " failed: " + e.Why }

// isDeleteHook says whether Helm runs a hook when it uninstalls a release.
func isDeleteHook(h *release.Hook) bool {
	return slices.Contains(h.Events, release.HookPreDelete) || slices.Contains(h.Events, release.HookPostDelete)
}

// getDeleteHooks returns the hooks that Helm runs when it uninstalls the release. No other hooks are read.
func (r record) getDeleteHooks() []*release.Hook { return r.content.release.Hooks }

// resolveHooks returns the objects of all delete hooks of a release, or why the hooks cannot run.
func (u *Uninstaller) resolveHooks(ctx context.Context, r record) (all []object, why string, _ error) {
	hooks := r.getDeleteHooks()
	if len(hooks) > 0 && !u.answersFor(r.secret.Namespace) {
		return nil, noAccountDetail, nil
	}
	kinds := u.newKindResolver()
	for i, h := range hooks {
		objects, err := u.resolveHook(ctx, kinds, h.Manifest, r.content.hooks[i], r.secret.Namespace)
		if blocked, ok := errors.AsType[*BlockedError](err); ok {
			return nil, fmt.Sprintf("its hook %q cannot run: %v", h.Name, blocked), nil
		}
		if err != nil {
			return nil, "", err
		}
		for _, o := range objects {
			if because := u.protection.OfRelease(o.Ref, o.namespaced); because != "" {
				return nil, fmt.Sprintf("its hook %q cannot run: %s: %s", h.Name, o.Ref, because), nil
			}
			if o.grantsRights() {
				return nil, fmt.Sprintf("its hook %q cannot run: %s %s", h.Name, o.Ref, grantsRightsDetail), nil
			}
		}
		all = append(all, objects...)
	}
	return all, "", nil
}

// grantsRights says whether the creation of an object can grant rights: a role, a binding, a certificate request, a ServiceAccount, or a
// token.
func (o object) grantsRights() bool {
	switch r := o.Resource.GroupResource(); {
	case v1alpha1.JudgesRequester(r.Group), r == serviceAccounts():
		return true
	case r == schema.GroupResource{Resource: "secrets"}:
		return givesToken(o.content["type"])
	default:
		return false
	}
}

// givesToken says whether Kubernetes makes a token for a Secret of this type, or accepts one from it.
func givesToken(kind any) bool {
	return kind == string(corev1.SecretTypeServiceAccountToken) || kind == string(corev1.SecretTypeBootstrapToken)
}

// hookObjects are the objects of a hook, or the error in its manifest.
type hookObjects struct {
	documents []document
	wrong     error
}

// resolveHook returns the objects of a hook, as the API server knows them. The error is a *BlockedError if they cannot be created.
func (u *Uninstaller) resolveHook(ctx context.Context, kinds *kindResolver, manifest string, parsed hookObjects, namespace string) ([]object, error) {
	blocked := func(format string, args ...any) error {
		return &BlockedError{Reason: v1alpha1.ReasonReleaseHasHooks, Detail: fmt.Sprintf(format, args...)}
	}
	if isReleaseManifest(manifest) {
		return nil, blocked("its manifest is not one that Helm writes for a hook")
	}
	if parsed.wrong != nil {
		return nil, blocked("%v", parsed.wrong)
	}
	found, err := u.resolveDocuments(ctx, kinds, parsed.documents, namespace)
	if err != nil {
		return nil, err
	}
	if len(found.kept) > 0 {
		return nil, blocked("%s", found.kept[0].Because)
	}
	return found.objects, nil
}

// parseHook returns the objects of a hook in the order of its manifest.
func parseHook(manifest string) ([]document, error) {
	texts, err := splitDocuments(manifest)
	if err != nil {
		return nil, err
	}
	var docs []document
	for _, text := range texts {
		written, err := parseDocuments(text, "")
		if err != nil {
			return nil, err
		}
		docs = append(docs, written...)
	}
	return docs, nil
}

// isReleaseManifest says whether a text from Helm contains the objects of the release. Otherwise it contains those of a hook.
func isReleaseManifest(text string) bool { return text == "" || strings.HasPrefix(text, manifestStart) }

// hookRunner runs the hooks that Helm asks for.
type hookRunner struct {
	attempt *attempt
	records *releaseRecords
	objects *objectDeleter

	// needed says whether hooks run, counts how many for each event, and doneEvents the events whose hooks have all succeeded.
	needed     bool
	counts     map[release.HookEvent]int
	doneEvents []string
	// event is the event whose hooks Helm runs now, left how many of them have not succeeded yet, and skipEvent whether an earlier attempt
	// has run them.
	event     release.HookEvent
	left      int
	skipEvent bool
	// made are the objects of these hooks that exist because of this uninstall.
	made map[observed.Ref]bool
	// failure is the hook that failed.
	failure error
}

// hookRunID is the value of hookAnnotation: the event, and the record.
func (h *hookRunner) hookRunID() string { return fmt.Sprintf("%s-%s", h.event, h.attempt.want.UID) }

// isOurs says whether this attempt or an earlier one has created an object for the hooks of this event.
func (h *hookRunner) isOurs(live *unstructured.Unstructured) bool {
	return live.GetAnnotations()[hookAnnotation] == h.hookRunID()
}

// describeHook names an object of a hook in messages.
func (h *hookRunner) describeHook(ref observed.Ref) string {
	return fmt.Sprintf("%s hook %s", h.event, ref)
}

// failHook remembers why a hook failed. Helm then deletes objects as the hook's delete policy says, and does nothing else.
func (h *hookRunner) failHook(o object, format string, args ...any) error {
	h.attempt.outcome.State, h.attempt.outcome.Hook = HookFailed, h.describeHook(o.Ref)
	h.failure = &HookError{Hook: h.attempt.outcome.Hook, Why: fmt.Sprintf(format, args...)}
	return h.failure
}

// deleteHookObjects deletes objects of hooks as the delete policies say. It remembers errors, which Helm would only print.
func (h *hookRunner) deleteHookObjects(objects []object) {
	var going []object
	for _, o := range objects {
		if h.attempt.isHalted() {
			return
		}
		spared, err := h.shouldSpare(o)
		if err != nil {
			_ = h.attempt.haltWith(err)
			return
		}
		if !spared {
			going = append(going, o)
		}
	}
	_ = h.objects.deleteObjects(going)
}

// shouldSpare says whether an object is not deleted yet. An earlier attempt has left its hook running, or has seen it end, and this attempt
// continues with it. When all hooks have succeeded, only their own objects are deleted: the hooks of another event may have objects with
// the same names by then.
func (h *hookRunner) shouldSpare(o object) (bool, error) {
	if h.made[o.Ref] { // by this attempt, which needs it no longer
		return false, nil
	}
	live, err := h.readObject(o)
	if h.left == 0 {
		return live == nil || !h.isOurs(live), err
	}
	if err != nil || live == nil || !h.isOurs(live) || live.GetDeletionTimestamp() != nil {
		return false, err
	}
	ended, wrong := checkEnded(o, live)
	return wrong == "" && (ended || h.hookTimeLeft(live) > 0), nil
}

// hookTimeLeft is how long a hook may still take. The API server's clock sets its creation time, so the hook gets as much more time as the
// operator's clock may be ahead.
func (h *hookRunner) hookTimeLeft(live *unstructured.Unstructured) time.Duration {
	return live.GetCreationTimestamp().Add(h.attempt.want.HookTimeout + h.attempt.u.ahead()).Sub(h.attempt.u.clock.Now())
}

// readObject reads an object with all its fields. It returns nil if the object is gone.
func (h *hookRunner) readObject(o object) (*unstructured.Unstructured, error) {
	live, err := h.clientFor(o).Get(h.attempt.ctx, o.Name, metav1.GetOptions{})
	switch {
	case notfound.IsAnyObjectMissing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", h.describeHook(o.Ref), err)
	}
	return live, nil
}

func (h *hookRunner) clientFor(o object) dynamic.ResourceInterface {
	return h.attempt.u.objects.Resource(o.Resource).Namespace(o.Namespace)
}

// createObject creates an object of a hook, unless an earlier attempt has.
func (h *hookRunner) createObject(o object) error {
	live, err := h.readObject(o)
	switch {
	case err != nil:
		return h.attempt.haltWith(err)
	case live != nil && !h.isOurs(live):
		return h.failHook(o, "an object with its name exists, and was not created for this uninstall; delete it if it is not needed")
	case live != nil && live.GetDeletionTimestamp() != nil:
		return h.failHook(o, "the object that was created for this uninstall is being deleted")
	case live != nil:
		h.made[o.Ref] = true
		return nil
	}
	if !h.attempt.want.isRightReviewed(o, "create") {
		return h.failHook(o, "the right to create it was not reviewed")
	}
	if _, err := h.records.readMarked(); err != nil {
		return err
	}
	if err := h.attempt.stopIfRefused("the creation of "+o.String(), h.attempt.guard.MayRunHook(o.Ref)); err != nil {
		return err
	}
	faults.PassPoint("before an object of a hook is created")
	created, err := h.clientFor(o).Create(h.attempt.ctx, h.stampObject(o), metav1.CreateOptions{})
	faults.PassPoint("after an object of a hook is created")
	switch {
	case h.attempt.ctx.Err() != nil:
		return h.attempt.haltWith(h.attempt.ctx.Err())
	case err != nil:
		return h.failHook(o, "cannot create it: %v", err)
	}
	h.made[o.Ref] = true
	h.attempt.outcome.Created = append(h.attempt.outcome.Created, refAt(o.Ref, created))
	return nil
}

// stampObject returns an object of a hook as it is created: with the label and annotations that Helm writes on all objects of a release,
// and with hookAnnotation.
func (h *hookRunner) stampObject(o object) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.content)}
	made.SetNamespace(o.Namespace)
	labels, annotations := made.GetLabels(), made.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[managedByLabel] = managedByHelm
	annotations[releaseNameAnnotation], annotations[releaseNamespaceAnnotation] = h.attempt.want.Name, h.attempt.want.Namespace
	annotations[hookAnnotation] = h.hookRunID()
	made.SetLabels(labels)
	made.SetAnnotations(annotations)
	return made
}

// waitForHookObject returns when an object of a hook has succeeded, or is of a kind that does not end. If this attempt has no time left before
// that, the session ends, and the next attempt continues.
func (h *hookRunner) waitForHookObject(o object) error {
	live, err := h.readObject(o)
	for gone := false; ; {
		switch {
		case err != nil:
			return h.attempt.haltWith(err)
		case live == nil:
			return h.failHook(o, "it was deleted before the operator saw it end")
		case !h.isOurs(live):
			return h.failHook(o, "another client has created another object with its name")
		}
		ended, wrong := checkEnded(o, live)
		left := h.hookTimeLeft(live)
		switch {
		case wrong != "":
			return h.failHook(o, "%s", wrong)
		case ended:
			return nil
		case gone, live.GetDeletionTimestamp() != nil:
			return h.failHook(o, "it was deleted before it ended")
		case left <= 0:
			return h.failHook(o, "it did not end within %s", h.attempt.want.HookTimeout)
		}
		if left = min(left, h.attempt.timeLeft()); left <= 0 {
			h.attempt.outcome.Hook = h.describeHook(o.Ref)
			return h.attempt.endWith(HookRunning)
		}
		live, gone, err = h.waitForChange(o, live, left)
	}
}

// waitForChange returns an object after its next change, or after this time. An object that is gone is returned as it was before.
func (h *hookRunner) waitForChange(o object, live *unstructured.Unstructured, within time.Duration) (_ *unstructured.Unstructured, gone bool, _ error) {
	w, err := h.clientFor(o).Watch(h.attempt.ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Name).String(), ResourceVersion: live.GetResourceVersion(),
	})
	if err != nil {
		return nil, false, fmt.Errorf("cannot watch %s: %w", h.describeHook(o.Ref), err)
	}
	defer w.Stop()
	timeIsUp := h.attempt.u.clock.After(within)
	select {
	case e := <-w.ResultChan():
		if seen, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
			return seen, e.Type == watch.Deleted, nil
		}
		select { // the watch has ended: pause, and read again
		case <-h.attempt.u.clock.After(min(firstWait, within)):
		case <-h.attempt.ctx.Done():
			return nil, false, h.attempt.ctx.Err()
		}
	case <-timeIsUp:
	case <-h.attempt.ctx.Done():
		return nil, false, h.attempt.ctx.Err()
	}
	live, err = h.readObject(o)
	return live, false, err
}

// checkEnded says whether an object of a hook has ended, and what is wrong if it failed. As with Helm, only Jobs and Pods end; other objects
// are ready once they exist.
func checkEnded(o object, live *unstructured.Unstructured) (ended bool, wrong string) {
	switch o.kind.GroupKind() {
	case batchv1.SchemeGroupVersion.WithKind("Job").GroupKind():
		job := &batchv1.Job{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, job); err != nil {
			return false, err.Error()
		}
		for _, c := range job.Status.Conditions {
			switch {
			case c.Status != corev1.ConditionTrue:
			case c.Type == batchv1.JobComplete:
				return true, ""
			case c.Type == batchv1.JobFailed:
				return true, joinReason(c.Reason, c.Message)
			}
		}
		return false, ""
	case corev1.SchemeGroupVersion.WithKind("Pod").GroupKind():
		pod := &corev1.Pod{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, pod); err != nil {
			return false, err.Error()
		}
		switch pod.Status.Phase {
		case corev1.PodSucceeded:
			return true, ""
		case corev1.PodFailed:
			return true, joinReason(pod.Status.Reason, pod.Status.Message)
		}
		return false, ""
	default:
		return true, ""
	}
}

// joinReason joins a reason and a message. Either may be empty.
func joinReason(reason, message string) string {
	switch {
	case reason == "" && message == "":
		return "it gives no reason"
	case reason == "":
		return message
	case message == "":
		return reason
	default:
		return reason + ": " + message
	}
}

// checkHooks finds out whether there are hooks to run, and which have run. It believes the record about that only if the caller has started
// the uninstall.
func (h *hookRunner) checkHooks(newest record) error {
	h.needed = len(newest.getDeleteHooks()) > 0 && !h.attempt.want.DisableHooks
	if !h.needed {
		return nil
	}
	_, why, err := h.attempt.u.resolveHooks(h.attempt.ctx, newest)
	switch {
	case err != nil:
		return err
	case why != "":
		return &BlockedError{Reason: v1alpha1.ReasonReleaseHasHooks, Detail: why}
	}
	h.counts = map[release.HookEvent]int{}
	for _, hook := range newest.getDeleteHooks() {
		for _, event := range hook.Events { // Helm runs a hook twice that names an event twice
			h.counts[event]++
		}
	}
	if done := newest.secret.Annotations[hooksDoneAnnotation]; done != "" && h.attempt.want.hasBegun(newest) {
		h.doneEvents = strings.Split(done, ",")
	}
	h.startEvent(release.HookPreDelete)
	return nil
}

// startEvent is called when Helm starts the hooks of an event.
func (h *hookRunner) startEvent(event release.HookEvent) {
	h.event, h.left, h.skipEvent, h.made = event, h.counts[event], slices.Contains(h.doneEvents, string(event)), map[observed.Ref]bool{}
}

// finishPreDelete is called when Helm starts with the objects of the release: the pre-delete hooks have succeeded.
func (h *hookRunner) finishPreDelete() error {
	if h.failure != nil {
		return h.failure
	}
	h.startEvent(release.HookPostDelete)
	return nil
}

// finishHook is called when a hook has succeeded. After the last hook of an event it records that, before Helm deletes the objects of these
// hooks: they may take longer to disappear than this attempt has, and the next attempt must not run the hooks again.
func (h *hookRunner) finishHook() error {
	if h.left--; h.left > 0 || h.skipEvent {
		return nil
	}
	r, err := h.records.readMarked()
	if err != nil {
		return err
	}
	if err := h.attempt.stopIfRefused(fmt.Sprintf("the note that the %s hooks are done", h.event), h.attempt.guard.MayNote(r.secretRef())); err != nil {
		return err
	}
	h.doneEvents = append(h.doneEvents, string(h.event))
	noted, err := h.records.readSecret(r)
	if err != nil {
		return h.attempt.haltWith(err)
	}
	metav1.SetMetaDataAnnotation(&noted.ObjectMeta, hooksDoneAnnotation, strings.Join(h.doneEvents, ","))
	faults.PassPoint("before it is noted that hooks are done")
	_, err = h.attempt.u.secrets.Secrets(noted.Namespace).Update(h.attempt.ctx, noted, metav1.UpdateOptions{})
	faults.PassPoint("after it is noted that hooks are done")
	if err != nil {
		return h.attempt.haltWith(fmt.Errorf("cannot record that the %s hooks are done: %w", h.event, err))
	}
	return nil
}
