// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// world is a cluster that does to its objects what Kubernetes does when a request succeeds. It knows only its own objects: no controller
// makes new ones, and no finalizers are removed but by rules. A deleted object has no time to end: it is gone, or its finalizers keep it.
type world struct {
	*snapshot.Objects
	// gone are the objects that were deleted, and orphans those of them that leave their dependents alone.
	gone, orphans map[types.UID]bool
	// namespaces are those that were deleted, by name: what they contain goes too.
	namespaces map[string]types.UID
	// leaving are the objects that are gone, but still among Objects, until dropObjects.
	leaving map[types.UID]bool
}

func newWorld(objects *snapshot.Objects) *world {
	return &world{
		Objects: objects.Clone(), gone: map[types.UID]bool{}, orphans: map[types.UID]bool{}, namespaces: map[string]types.UID{}, leaving: map[types.UID]bool{},
	}
}

// findLiving returns an object as it is now; nil if it is gone.
func (w *world) findLiving(uid types.UID) *observed.Object {
	if w.leaving[uid] {
		return nil
	}
	return w.FindObject(uid)
}

// deletion is a request to delete an object.
type deletion struct {
	at          time.Time
	propagation v1alpha1.PropagationPolicy
	// grace is how many seconds the object has to end; nil: as many as it says itself.
	grace *int64
}

// deleteObject deletes an object. Finalizers keep it, and a Namespace stays until it is empty. It reports whether that changes anything.
func (w *world) deleteObject(o *observed.Object, d deletion) (changed bool) {
	if d.propagation == v1alpha1.PropagateOrphan {
		w.orphans[o.UID] = true
	}
	ns := isNamespace(o)
	if ns {
		w.namespaces[o.Name] = o.UID
	}
	if len(o.Finalizers) == 0 && !ns {
		w.removeObject(o.UID)
		return true
	}
	content := copyObject(o)
	u := unstructured.Unstructured{Object: content}
	grace := d.findGrace(o)
	if left := u.GetDeletionGracePeriodSeconds(); o.Terminating && (left == nil || *left <= grace) {
		return false
	}
	ends := metav1.NewTime(d.at.Add(time.Duration(grace) * time.Second))
	u.SetDeletionTimestamp(&ends)
	u.SetDeletionGracePeriodSeconds(&grace)
	return w.ReplaceObject(o.UID, content)
}

// findGrace returns how many seconds an object has to end: only Pods have any.
func (d deletion) findGrace(o *observed.Object) int64 {
	if o.Resource.Group != "" || o.Resource.Resource != "pods" {
		return 0
	}
	if d.grace != nil {
		return *d.grace
	}
	if own, ok, err := unstructured.NestedInt64(o.Value, "spec", "terminationGracePeriodSeconds"); ok && err == nil {
		return own
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

func (w *world) removeObject(uid types.UID) { w.gone[uid], w.leaving[uid] = true, true }

// removeRelease takes away all records of the release that an object records. What else the release has is not known.
func (w *world) removeRelease(o *observed.Object) {
	release, _, _ := o.ReadRevision()
	for other := range w.EachObject() {
		if name, _, ok := other.ReadRevision(); ok && name == release && other.Namespace == o.Namespace && other.Resource == o.Resource {
			w.removeObject(other.UID)
		}
	}
}

// dropObjects takes what is gone off the objects.
func (w *world) dropObjects() {
	if len(w.leaving) > 0 {
		w.RemoveObjects(w.leaving)
		clear(w.leaving)
	}
}

// removeFinalizer takes a finalizer off an object, which may have waited for that alone.
func (w *world) removeFinalizer(o *observed.Object, name string) {
	left := slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == name })
	if len(left) == 0 && o.Terminating && !isNamespace(o) {
		w.removeObject(o.UID)
		return
	}
	content := copyObject(o)
	(&unstructured.Unstructured{Object: content}).SetFinalizers(left)
	w.ReplaceObject(o.UID, content)
}

// collectGarbage deletes what the objects that are gone owned or contained, and what that owned, and so on. It returns for each of these
// objects the one that took it along.
func (w *world) collectGarbage(at time.Time) map[types.UID]types.UID {
	took := map[types.UID]types.UID{}
	for more := true; more; {
		w.dropObjects()
		more = w.endNamespaces()
		for o := range w.listDependents(took) {
			took[o.UID] = w.findOwner(&o)
			w.deleteObject(&o, deletion{at: at, propagation: v1alpha1.PropagateBackground})
			more = true
		}
	}
	return took
}

// listDependents lists the objects whose owners or namespace are gone, but those that were deleted for that.
func (w *world) listDependents(took map[types.UID]types.UID) iter.Seq[observed.Object] {
	var found []observed.Object
	for o := range w.EachObject() {
		if _, known := took[o.UID]; !known && w.findOwner(o) != "" {
			found = append(found, *o)
		}
	}
	return slices.Values(found)
}

// findOwner returns the object with which another one goes: its namespace, or its first owner if all are gone; empty if it stays.
func (w *world) findOwner(o *observed.Object) types.UID {
	if uid := w.namespaces[o.Namespace]; uid != "" && o.Namespace != "" {
		return uid
	}
	if len(w.gone) == 0 {
		return ""
	}
	owners := (&unstructured.Unstructured{Object: o.Value}).GetOwnerReferences()
	if len(owners) == 0 || slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return !w.gone[r.UID] || w.orphans[r.UID] }) {
		return ""
	}
	return owners[0].UID
}

// endNamespaces removes the deleted namespaces that have no objects and no finalizers left, and reports whether there were any.
func (w *world) endNamespaces() (ended bool) {
	if len(w.namespaces) == 0 {
		return false
	}
	empty := maps.Clone(w.namespaces)
	for o := range w.EachObject() {
		delete(empty, o.Namespace)
		if isNamespace(o) && len(o.Finalizers) > 0 {
			delete(empty, o.Name)
		}
	}
	for name, uid := range empty {
		delete(w.namespaces, name)
		w.removeObject(uid)
	}
	w.dropObjects()
	return len(empty) > 0
}

// isNamespace reports whether an object is a Namespace.
func isNamespace(o *observed.Object) bool {
	return o.Resource.Group == "" && o.Resource.Resource == "namespaces"
}

// copyObject returns the content of an object, for a change.
func copyObject(o *observed.Object) map[string]any { return runtime.DeepCopyJSON(o.Value) }
