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
	"github.com/vtex/cleaner/controllers/internal/faults"
	"github.com/vtex/cleaner/controllers/plan"
)

const (
	// hookAnnotation is on each object that an uninstall has made for a hook, and says for which hooks of which record:
	// so the next try tells a hook that runs already from something else of its name.
	hookAnnotation = "cleaner.vtex.dev/hook"
	// hooksDoneAnnotation is on the record of a release, and names the events whose hooks have all ended well. They are not
	// run again: the objects that they need may be gone by then, and their own may take long to go.
	hooksDoneAnnotation = "cleaner.vtex.dev/hooks-done"
	// manifestStart begins the text of the objects of a release, as Helm hands it over. That of a hook never begins so.
	manifestStart = "\n---\n"
)

// noAccountDetail says what a release with hooks needs.
const noAccountDetail = "its delete hooks are only run as a ServiceAccount: name one in serviceAccountName, or set helm.disableHooks: true to uninstall it without running them"

// givesRightsDetail says what a release needs of which a hook gives rights to somebody.
const givesRightsDetail = "gives rights to somebody, and whoever may write the release's record can have added it: set helm.disableHooks: true to uninstall it without running its hooks, or uninstall it with Helm"

// HookError says that a hook did not end well.
type HookError struct {
	// Hook is the hook, such as "pre-delete hook backup.jobs.batch/v1".
	Hook string
	// Why says what went wrong.
	Why string
}

// Error says which hook failed, and why.
func (e *HookError) Error() string { return e.Hook + " failed: " + e.Why }

// isDeleteHook says that Helm runs a hook when it uninstalls a release.
func isDeleteHook(h *release.Hook) bool {
	return slices.Contains(h.Events, release.HookPreDelete) || slices.Contains(h.Events, release.HookPostDelete)
}

// getDeleteHooks returns the hooks that Helm runs when it uninstalls the release: no others are read.
func (r record) getDeleteHooks() []*release.Hook { return r.content.release.Hooks }

// resolveHooks returns the objects of all delete hooks of a release, or why these cannot be run; empty if they can, or if
// there are none.
func (u *Uninstaller) resolveHooks(ctx context.Context, r record) (all []object, why string, _ error) {
	hooks := r.getDeleteHooks()
	if len(hooks) > 0 && u.account.Name == "" {
		return nil, noAccountDetail, nil
	}
	kinds := u.newKindResolver()
	for _, h := range hooks {
		objects, err := u.resolveHook(ctx, kinds, h.Manifest, r.secret.Namespace)
		if blocked, ok := errors.AsType[*BlockedError](err); ok {
			return nil, fmt.Sprintf("its hook %q cannot be run: %v", h.Name, blocked), nil
		}
		if err != nil {
			return nil, "", err
		}
		for _, o := range objects {
			if because := u.protection.OfRelease(o.Ref, o.namespaced); because != "" {
				return nil, fmt.Sprintf("its hook %q cannot be run: %s: %s", h.Name, o.Ref, because), nil
			}
			if o.grantsRights() {
				return nil, fmt.Sprintf("its hook %q cannot be run: %s %s", h.Name, o.Ref, givesRightsDetail), nil
			}
		}
		all = append(all, objects...)
	}
	return all, "", nil
}

// grantsRights says that whoever has an object made has rights given to somebody: a role or a binding, an approved certificate,
// an account, or a token of one.
func (o object) grantsRights() bool {
	switch r := o.Resource.GroupResource(); {
	case v1alpha1.JudgesRequester(r.Group), r == serviceAccounts():
		return true
	case r == schema.GroupResource{Resource: "secrets"}:
		return o.content["type"] == string(corev1.SecretTypeServiceAccountToken) || o.content["type"] == string(corev1.SecretTypeBootstrapToken)
	default:
		return false
	}
}

// resolveHook returns the objects that a hook is made of. One that cannot be made is a *BlockedError.
func (u *Uninstaller) resolveHook(ctx context.Context, kinds *kindResolver, manifest, namespace string) ([]object, error) {
	blocked := func(format string, args ...any) error {
		return &BlockedError{Reason: v1alpha1.ReasonReleaseHasHooks, Detail: fmt.Sprintf(format, args...)}
	}
	if isReleaseManifest(manifest) {
		return nil, blocked("it is not written as Helm writes hooks")
	}
	var docs []document
	var wrong error
	if stopped := runExclusively(ctx, func() { docs, wrong = parseHook(manifest) }); stopped != nil {
		return nil, stopped
	}
	if wrong != nil {
		return nil, blocked("%v", wrong)
	}
	found, err := u.resolveDocuments(ctx, kinds, docs, namespace)
	if err != nil {
		return nil, err
	}
	if len(found.kept) > 0 {
		return nil, blocked("%s", found.kept[0].Because)
	}
	return found.objects, nil
}

// parseHook returns the objects of a hook in the order in which they are written.
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

// isReleaseManifest tells the objects of a release from those of a hook, in what Helm hands over.
func isReleaseManifest(text string) bool { return text == "" || strings.HasPrefix(text, manifestStart) }

// hookRunID is which hooks of which record are run, as it is written on their objects.
func (s *session) hookRunID() string { return fmt.Sprintf("%s-%s", s.event, s.want.UID) }

// isOurs says that an object was made for the hooks that Helm has come to, by this try or an earlier one.
func (s *session) isOurs(live *unstructured.Unstructured) bool {
	return live.GetAnnotations()[hookAnnotation] == s.hookRunID()
}

// describeHook names an object as one of a hook.
func (s *session) describeHook(ref plan.Ref) string { return fmt.Sprintf("%s hook %s", s.event, ref) }

// failHook remembers why a hook failed. Helm cleans up after it, as the hooks' delete policies say; nothing else is done.
func (s *session) failHook(o object, format string, args ...any) error {
	s.outcome.State, s.outcome.Hook = HookFailed, s.describeHook(o.Ref)
	s.hookFailure = &HookError{Hook: s.outcome.Hook, Why: fmt.Sprintf(format, args...)}
	return s.hookFailure
}

// deleteHookObjects deletes objects of hooks as the delete policies ask for. What goes wrong is remembered: Helm would print it.
func (s *session) deleteHookObjects(objects []object) {
	var going []object
	for _, o := range objects {
		if s.isHalted() {
			return
		}
		spared, err := s.shouldSpare(o)
		if err != nil {
			_ = s.haltWith(err)
			return
		}
		if !spared {
			going = append(going, o)
		}
	}
	_ = s.deleteObjects(going)
}

// shouldSpare says that an object is not deleted yet: it is of a hook that an earlier try has left running, or has seen to its
// end, and this try goes on with it. When all hooks have ended well, only what was made for them is deleted: by then
// there may be objects of these names for the hooks of another event.
func (s *session) shouldSpare(o object) (bool, error) {
	if s.madeObjects[o.Ref] { // by this try, which has no more use for it
		return false, nil
	}
	live, err := s.readObject(o)
	if s.hooksLeft == 0 {
		return live == nil || !s.isOurs(live), err
	}
	if err != nil || live == nil || !s.isOurs(live) || live.GetDeletionTimestamp() != nil {
		return false, err
	}
	ended, wrong := checkEnded(o, live)
	return wrong == "" && (ended || s.hookTimeLeft(live) > 0), nil
}

// hookTimeLeft is how long a hook may still take. Its creation is by the API server's clock: ours must not cut it short by
// what it is ahead.
func (s *session) hookTimeLeft(live *unstructured.Unstructured) time.Duration {
	return live.GetCreationTimestamp().Add(s.want.HookTimeout + s.u.ahead()).Sub(s.u.clock.Now())
}

// readObject reads an object whole; nil if it is gone.
func (s *session) readObject(o object) (*unstructured.Unstructured, error) {
	live, err := s.clientFor(o).Get(s.ctx, o.Name, metav1.GetOptions{})
	switch {
	case isObjectMissing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read %s: %w", s.describeHook(o.Ref), err)
	}
	return live, nil
}

func (s *session) clientFor(o object) dynamic.ResourceInterface {
	return s.u.objects.Resource(o.Resource).Namespace(o.Namespace)
}

// createObject creates an object of a hook, unless an earlier try has.
func (s *session) createObject(o object) error {
	live, err := s.readObject(o)
	switch {
	case err != nil:
		return s.haltWith(err)
	case live != nil && !s.isOurs(live):
		return s.failHook(o, "there is an object of this name already, which was not made for this uninstall; delete it if nobody needs it")
	case live != nil && live.GetDeletionTimestamp() != nil:
		return s.failHook(o, "the one that was made for this uninstall is being deleted")
	case live != nil:
		s.madeObjects[o.Ref] = true
		return nil
	}
	if !s.isRightReviewed(o, "create") {
		return s.failHook(o, "the right to create it was not reviewed")
	}
	if _, err := s.readMarked(); err != nil {
		return err
	}
	if err := s.stopIfRefused("the creation of "+o.String(), s.guard.MayRunHook(o.Ref)); err != nil {
		return err
	}
	faults.PassPoint("before an object of a hook is created")
	created, err := s.clientFor(o).Create(s.ctx, s.stampObject(o), metav1.CreateOptions{})
	faults.PassPoint("after an object of a hook is created")
	switch {
	case s.ctx.Err() != nil:
		return s.haltWith(s.ctx.Err())
	case err != nil:
		return s.failHook(o, "cannot create it: %v", err)
	}
	s.madeObjects[o.Ref] = true
	s.outcome.Created = append(s.outcome.Created, refAt(o.Ref, created))
	return nil
}

// stampObject returns an object of a hook as it is created: it says to which release it belongs, as Helm says on all others, and
// for which hooks it was made.
func (s *session) stampObject(o object) *unstructured.Unstructured {
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
	annotations[releaseNameAnnotation], annotations[releaseNamespaceAnnotation] = s.want.Name, s.want.Namespace
	annotations[hookAnnotation] = s.hookRunID()
	made.SetLabels(labels)
	made.SetAnnotations(annotations)
	return made
}

// waitForHookObject returns when an object of a hook has ended well, or is one that has no end. When the time of this try is over
// before that, the session ends, and the next try goes on.
func (s *session) waitForHookObject(o object) error {
	live, err := s.readObject(o)
	for gone := false; ; {
		switch {
		case err != nil:
			return s.haltWith(err)
		case live == nil:
			return s.failHook(o, "it was deleted before it was seen to end")
		case !s.isOurs(live):
			return s.failHook(o, "somebody has made another object of its name")
		}
		ended, wrong := checkEnded(o, live)
		left := s.hookTimeLeft(live)
		switch {
		case wrong != "":
			return s.failHook(o, "%s", wrong)
		case ended:
			return nil
		case gone, live.GetDeletionTimestamp() != nil:
			return s.failHook(o, "it was deleted before it had ended")
		case left <= 0:
			return s.failHook(o, "it did not end within %s", s.want.HookTimeout)
		}
		if left = min(left, s.deadline.Sub(s.u.clock.Now())); left <= 0 {
			s.outcome.Hook = s.describeHook(o.Ref)
			return s.endWith(HookRunning)
		}
		live, gone, err = s.waitForChange(o, live, left)
	}
}

// waitForChange returns an object after something has happened to it, or after the time has passed. One that is gone is as it was last.
func (s *session) waitForChange(o object, live *unstructured.Unstructured, within time.Duration) (_ *unstructured.Unstructured, gone bool, _ error) {
	w, err := s.clientFor(o).Watch(s.ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, o.Name).String(), ResourceVersion: live.GetResourceVersion(),
	})
	if err != nil {
		return nil, false, fmt.Errorf("cannot watch %s: %w", s.describeHook(o.Ref), err)
	}
	defer w.Stop()
	over := s.u.clock.After(within)
	select {
	case e := <-w.ResultChan():
		if seen, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
			return seen, e.Type == watch.Deleted, nil
		}
		select { // the watch has ended: a moment, and another look
		case <-s.u.clock.After(min(firstWait, within)):
		case <-s.ctx.Done():
			return nil, false, s.ctx.Err()
		}
	case <-over:
	case <-s.ctx.Done():
		return nil, false, s.ctx.Err()
	}
	live, err = s.readObject(o)
	return live, false, err
}

// checkEnded says whether an object of a hook has ended, and what is wrong if not well. Only Jobs and Pods have an end, as with
// Helm; others are ready when they are there.
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

// joinReason joins a reason and a message, of which either may be missing.
func joinReason(reason, message string) string {
	switch {
	case reason == "" && message == "":
		return "it says no reason"
	case reason == "":
		return message
	case message == "":
		return reason
	default:
		return reason + ": " + message
	}
}

// startEvent is called when Helm comes to an event.
func (s *session) startEvent(event release.HookEvent) {
	s.event, s.hooksLeft, s.skipEvent, s.madeObjects = event, s.hookCounts[event], slices.Contains(s.doneEvents, string(event)), map[plan.Ref]bool{}
}

// finishPreDelete is called when Helm has come to the objects of the release: the pre-delete hooks have ended well.
func (s *session) finishPreDelete() error {
	if s.hookFailure != nil {
		return s.hookFailure
	}
	s.startEvent(release.HookPostDelete)
	return nil
}

// finishHook is called when a hook has ended well. With the last one of the event that is noted, before Helm cleans up: the
// objects may take longer to go than this try has, and the next one would find hooks that it knows nothing of.
func (s *session) finishHook() error {
	if s.hooksLeft--; s.hooksLeft > 0 || s.skipEvent {
		return nil
	}
	r, err := s.readMarked()
	if err != nil {
		return err
	}
	if err := s.stopIfRefused(fmt.Sprintf("the note that the %s hooks are done", s.event), s.guard.MayNote(r.secretRef())); err != nil {
		return err
	}
	s.doneEvents = append(s.doneEvents, string(s.event))
	noted, err := s.readSecret(r)
	if err != nil {
		return s.haltWith(err)
	}
	metav1.SetMetaDataAnnotation(&noted.ObjectMeta, hooksDoneAnnotation, strings.Join(s.doneEvents, ","))
	faults.PassPoint("before it is noted that hooks are done")
	_, err = s.u.secrets.Secrets(noted.Namespace).Update(s.ctx, noted, metav1.UpdateOptions{})
	faults.PassPoint("after it is noted that hooks are done")
	if err != nil {
		return s.haltWith(fmt.Errorf("cannot note that the %s hooks are done: %w", s.event, err))
	}
	return nil
}
