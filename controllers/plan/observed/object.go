// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package observed has what was read of the cluster: objects, targets, the Helm release, and the rights that its uninstall needs.
//
// It is pure. It reads nothing itself, decides nothing, and never changes what it has: a changed snapshot is another one.
package observed

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/backoff"
)

// Ref identifies one version of one object.
type Ref struct {
	Resource schema.GroupVersionResource
	// Kind is the kind as the API server writes it, for messages: it identifies nothing. Empty where it is not known, as in the row of a run.
	Kind            string
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
}

// Place is where the object is, whichever it is.
func (r *Ref) Place() backoff.Place {
	return backoff.Place{Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}
}

// CompareNames orders objects by their namespaces, and then by their names.
func CompareNames(a, b *Ref) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// CompareRefs orders objects of several resources by their names, and those of one name by their resources.
func CompareRefs(a, b *Ref) int {
	return cmp.Or(CompareNames(a, b), strings.Compare(a.Resource.Group, b.Resource.Group), strings.Compare(a.Resource.Resource, b.Resource.Resource))
}

// ResourceName writes a resource as records have it: "<resource>.<group>/<version>", or "pods/v1" in the core group.
func ResourceName(r schema.GroupVersionResource) string {
	if r.Group == "" {
		return r.Resource + "/" + r.Version
	}
	return r.Resource + "." + r.Group + "/" + r.Version
}

// ParseResourceName reads what ResourceName wrote.
func ParseResourceName(s string) (schema.GroupVersionResource, error) {
	name, version, ok := strings.Cut(s, "/")
	if !ok || name == "" || version == "" || strings.Contains(version, "/") {
		return schema.GroupVersionResource{}, fmt.Errorf("%q is not a resource: expected <resource>.<group>/<version>", s)
	}
	resource, group, _ := strings.Cut(name, ".")
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, nil
}

// String names the object in messages: "<Kind> <namespace>/<name>", or "<Kind> <name>" if it has no namespace. Where the kind is not known,
// "<resource>.<group>" is there instead: the kind cannot be derived from that. It identifies nothing: Identify does.
func (r Ref) String() string {
	kind := r.Kind
	if kind == "" {
		kind = r.Resource.GroupResource().String()
	}
	return FormatName(kind, r.Namespace, r.Name)
}

// FormatName names an object in messages: "<Kind> <namespace>/<name>", or "<Kind> <name>" if it has no namespace.
func FormatName(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(kind + " " + name)
}

// IsVersion says that both are the same version of the same object, whatever is known of its kind.
func (r Ref) IsVersion(other Ref) bool {
	r.Kind, other.Kind = "", ""
	return r == other
}

// Object is what a decision sees of an object.
type Object struct {
	Ref

	// Labels are the object's labels, for selectors. Never changed.
	Labels map[string]string
	// Annotations are the keys of the annotations by one of which the object was selected, joined by commas; empty: by none.
	Annotations string
	// OfRelease says that Value is the item of a revision of a Helm release, and not the Secret that records it. Unreadable says why the item has
	// nothing of the record; empty: it has.
	OfRelease  bool
	Unreadable string
	// Protected says that the object carries the protecting label or annotation.
	Protected bool
	// Terminating says that the object has a deletionTimestamp.
	Terminating bool
	// OutOfGrace says that the grace period of a terminating object is 0: its time is over.
	OutOfGrace bool
	// Finalizers are what holds a terminating object.
	Finalizers []string
	// Generation is metadata.generation: it counts changes of the desired state. 0: the kind does not have it.
	Generation int64
	// Content is the number of what expressions can read of the object: two objects with the same number have equal Values, but for
	// metadata.resourceVersion. 0: it has none. Another process has other numbers.
	Content uint64
	// Value is the whole object as expressions read it, without managedFields: maps, slices, strings, int64, float64 and
	// bool. It is nil where only metadata was read. Never changed.
	Value map[string]any
	// Assembled says that Value is of an earlier version, but for its metadata: a response had no more of this one.
	Assembled bool
}

// DescribeUnreadable says that the record of the Helm release cannot be read, and why; for an object that is Unreadable.
func (o *Object) DescribeUnreadable() string {
	return "the record of the Helm release cannot be read: " + o.Unreadable
}

// ReadRevision returns the release and the revision that a Secret records by its name; not ok if it is not named as one that does.
func (r *Ref) ReadRevision() (release string, revision int64, ok bool) {
	name, ok := strings.CutPrefix(r.Name, v1alpha1.ReleaseSecretPrefix)
	at := strings.LastIndex(name, ".v")
	if !ok || at <= 0 {
		return "", 0, false
	}
	revision, err := strconv.ParseInt(name[at+len(".v"):], 10, 64)
	return name[:at], revision, err == nil && revision > 0 && strconv.FormatInt(revision, 10) == name[at+len(".v"):]
}

// DescribeRelease names the release that a Secret records in messages; the Secret, if it records none.
func (r *Ref) DescribeRelease() string {
	release, _, ok := r.ReadRevision()
	if !ok {
		return r.String()
	}
	return FormatName("release", r.Namespace, release)
}

// IsLeaving says that the object is terminating, or that it records a release that is being uninstalled, or was.
func (o *Object) IsLeaving() bool {
	return o.Terminating || o.OfRelease && (o.Labels["status"] == "uninstalling" || o.Labels["status"] == "uninstalled")
}

// ReleaseName names a release.
type ReleaseName struct{ Namespace, Name string }

// AddNewestRevisions adds the newest revision of each release of which the target has records, to those of other targets.
func (t *Target) AddNewestRevisions(newest map[ReleaseName]int64) {
	for i := range t.Objects {
		if of, revision, ok := t.Objects[i].ReadRelease(); ok {
			newest[of] = max(newest[of], revision)
		}
	}
}

// EachNewestRevision goes through the records of the newest revisions.
func (t *Target) EachNewestRevision(yield func(*Object) bool) {
	newest := map[ReleaseName]int64{}
	t.AddNewestRevisions(newest)
	for i := range t.Objects {
		if of, revision, ok := t.Objects[i].ReadRelease(); ok && revision == newest[of] && !yield(&t.Objects[i]) {
			return
		}
	}
}

// ReadRelease returns the release and the revision that a Secret records by its name, as ReadRevision does, with the namespace.
func (r *Ref) ReadRelease() (of ReleaseName, revision int64, ok bool) {
	name, revision, ok := r.ReadRevision()
	return ReleaseName{r.Namespace, name}, revision, ok
}

// Seen is an object as conditions saw it, in each of the targets among which they did. Nil: they did not.
type Seen []SeenIn

// SeenIn is an object as one target showed it.
type SeenIn struct {
	Target int
	Object Object
}

// OwnObject is the object of a target at the version that conditions saw. Where they saw it as another resource only, such as an
// Event of the other group that serves Events, it stays the target's own: requests are about what the rights are about.
func (s Seen) OwnObject(own Object) Object {
	for i := range s {
		if s[i].Object.Resource == own.Resource {
			return s[i].Object
		}
	}
	own.ResourceVersion = s[0].Object.ResourceVersion
	own.Protected = own.Protected || s[0].Object.Protected
	return own
}

// TargetState says how far the objects of a target are known.
type TargetState int

const (
	// Unknown is the zero value: nothing is known, and nothing may be concluded.
	Unknown TargetState = iota
	// Complete means that Objects are all there are.
	Complete
	// Unsynced means that the kind is still being read.
	Unsynced
	// Forbidden means that the operator may not read the kind.
	Forbidden
	// NoSuchKind means that the API server said that it does not serve the kind.
	NoSuchKind
	// Failed means that reading went wrong otherwise.
	Failed
	// TooLarge means that its objects take more memory than the operator may have.
	TooLarge
)

// String names the state for people and tests.
func (s TargetState) String() string {
	names := [...]string{"Unknown", "Complete", "Unsynced", "Forbidden", "NoSuchKind", "Failed", "TooLarge"}
	if int(s) < 0 || int(s) >= len(names) {
		return "Unknown"
	}
	return names[s]
}

// Target is what one of spec.targets looks like.
type Target struct {
	State TargetState
	// Detail says what is wrong, for people, when the State is not Complete.
	Detail string
	// Resource is the resource that the reference's kind turned out to be. Empty while that is not known.
	Resource schema.GroupVersionResource
	// Namespaced says whether the resource lives in namespaces. Meaningful when Resource is set.
	Namespaced bool
	// Kinds are what is known of each kind, of a target of all kinds; nil: it is of one. Objects are then those of the kinds that are Complete, and
	// Resource is empty.
	Kinds []KindState
	// Outdated says that the API server may show the objects otherwise at the same versions, because the definition of their kind has changed, or may have.
	Outdated bool
	// Custom says that the kind is none of Kubernetes itself: what objects are at a version depends on its CustomResourceDefinition, if it has one.
	// Definition is the state of that by which watched objects were read; "" if there is none.
	Custom     bool
	Definition string
	// Objects are ordered by namespace and name, and then by resource. At most one, when the reference has a name.
	Objects []Object
	// At stands for what the objects were when they were read, so that a later read can say what has changed since: only who read them knows
	// more of it. Nil: no read can say that.
	At any
	// IsChange says that Changes are there in the place of Objects: what is different since an earlier At, once for each name.
	IsChange bool
	Changes  []Change
	// More is how many objects there are besides Objects. It is 0 but after ComputeChange, which leaves the first objects of a list, without Values.
	More int
}

// Change is how an object of a target differs from what it was.
type Change struct {
	Namespace, Name string
	// Was says that it was among the objects, and Before is the number that its content had.
	Was    bool
	Before uint64
	// Now is the object; nil: it is not among the objects now.
	Now *Object
}

// NameFirst returns the target, which is a list, with no more than the names of its first objects.
func (t *Target) NameFirst(most int) Target {
	out := *t
	out.More = max(0, len(t.Objects)-most)
	out.Objects = slices.Clone(t.Objects[:len(t.Objects)-out.More])
	for i := range out.Objects {
		out.Objects[i] = Object{Ref: out.Objects[i].Ref}
	}
	return out
}

// IsAmongFirst says that an object that comes or goes is, or was, among the first ones of a list, of which the target has these.
func (t *Target) IsAmongFirst(most int, c *Change) bool {
	return len(t.Objects) < most || CompareNames(&Ref{Namespace: c.Namespace, Name: c.Name}, &t.Objects[len(t.Objects)-1].Ref) <= 0
}

// WithChanges returns the target with its objects as they are after changes.
func (t *Target) WithChanges(changes []Change) Target {
	out := *t
	out.Objects = slices.Clone(t.Objects)
	for _, c := range changes {
		at, there := SearchObject(out.Objects, c.Namespace, c.Name)
		switch {
		case c.Now != nil && there:
			out.Objects[at] = *c.Now
		case c.Now != nil:
			out.Objects = slices.Insert(out.Objects, at, *c.Now)
		case there:
			out.Objects = slices.Delete(out.Objects, at, at+1)
		}
	}
	return out
}

// MakeValue returns what expressions see of the target: one object, or the list of all.
func (t *Target) MakeValue(isOne bool) any {
	switch {
	case t.State != Complete || isOne && len(t.Objects) == 0:
		return nil
	case isOne:
		return t.Objects[0].Value
	}
	items := make([]any, len(t.Objects))
	for i := range t.Objects {
		items[i] = t.Objects[i].Value
	}
	return map[string]any{"items": items}
}

// SplitChanges returns the target with no more than the objects that changes are about, as they were and as they are.
func (t *Target) SplitChanges(changes []Change) (were, are Target) {
	were, are = *t, *t
	were.Objects, are.Objects = nil, nil
	for _, c := range changes {
		if at, there := SearchObject(t.Objects, c.Namespace, c.Name); there {
			were.Objects = append(were.Objects, t.Objects[at])
		}
		if c.Now != nil {
			are.Objects = append(are.Objects, *c.Now)
		}
	}
	return were, are
}

// ListContentChanges lists the changes after which an object may be another one to expressions.
func (t *Target) ListContentChanges() (changes []Change) {
	for _, c := range t.Changes {
		if !c.Was || c.Now == nil || c.Now.Content != c.Before || c.Before == 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// ListBefore lists the numbers that contents had which have changed.
func (t *Target) ListBefore() (before []uint64) {
	for _, c := range t.Changes {
		if c.Was && (c.Now == nil || c.Now.Content != c.Before) {
			before = append(before, c.Before)
		}
	}
	return before
}

// ContentSum tells apart what expressions see of a target.
type ContentSum struct {
	Sum [sha256.Size]byte
	// IsKnown says that the contents of all objects have numbers: without, it says nothing.
	IsKnown bool
}

// SumContents sums up what expressions see of a target.
func (t *Target) SumContents() ContentSum {
	s, sum := ContentSum{IsKnown: true}, sha256.New()
	sum.Write([]byte(t.State.String()))
	var number [8]byte
	for i := range t.Objects {
		s.IsKnown = s.IsKnown && t.Objects[i].Content != 0
		binary.LittleEndian.PutUint64(number[:], t.Objects[i].Content)
		sum.Write(number[:])
	}
	sum.Sum(s.Sum[:0])
	return s
}

// KindState says how far the objects of one kind are known, of a target of all kinds.
type KindState struct {
	Resource schema.GroupVersionResource
	State    TargetState
	// Detail says what is wrong, for people, when the State is not Complete.
	Detail string
}

// ListSkipped lists the kinds that the target leaves out, though it selects them.
func (t *Target) ListSkipped() (skipped []KindState) {
	for _, k := range t.Kinds {
		if k.State != Complete {
			skipped = append(skipped, k)
		}
	}
	return skipped
}

// ListResources lists the resources whose objects are all known or, of a target of one kind, its own.
func (t *Target) ListResources() []schema.GroupVersionResource {
	if t.Kinds == nil {
		return []schema.GroupVersionResource{t.Resource}
	}
	var all []schema.GroupVersionResource
	for _, k := range t.Kinds {
		if k.State == Complete {
			all = append(all, k.Resource)
		}
	}
	return all
}

// EachObject goes through the objects of the target, by their UIDs.
func (t *Target) EachObject(yield func(types.UID) bool) {
	for i := range t.Objects {
		if !yield(t.Objects[i].Identify()) {
			return
		}
	}
}

// Snapshot is what the targets of a spec look like, in the order of the spec.
type Snapshot []Target

// IsChange says that it has what has changed of all targets, and not all that there is.
func (s Snapshot) IsChange() bool {
	return len(s) > 0 && !slices.ContainsFunc(s, func(t Target) bool { return !t.IsChange })
}

// Identify is the UID, or what stands for it in files, where objects have none.
func (r Ref) Identify() types.UID {
	if r.UID != "" {
		return r.UID
	}
	return types.UID(ResourceName(r.Resource) + " " + r.Namespace + "/" + r.Name)
}

// NestedString is a string in nested maps; empty if there is none.
func NestedString(value map[string]any, path ...string) string {
	for _, p := range path[:len(path)-1] {
		value, _ = value[p].(map[string]any)
	}
	s, _ := value[path[len(path)-1]].(string)
	return s
}

// StandsFor says that a value with the object's namespace and name stands for the object.
func (o *Object) StandsFor(value map[string]any) bool {
	uid := NestedString(value, "metadata", "uid")
	return NestedString(o.Value, "apiVersion") == NestedString(value, "apiVersion") && NestedString(o.Value, "kind") == NestedString(value, "kind") &&
		(uid == "" || uid == string(o.UID))
}

// IsStranded reports whether an object is terminating although its time is over and no finalizer holds it: the DELETE that should have
// removed it was aborted half-way.
func (o *Object) IsStranded() bool {
	return o.Terminating && o.OutOfGrace && len(o.Finalizers) == 0
}

// BeforeDeletion returns a terminating object as it would be if nothing had deleted it, at its present version.
func (o *Object) BeforeDeletion() Object {
	out := *o
	out.Terminating, out.OutOfGrace, out.Content = false, false, 0
	if meta, is := o.Value["metadata"].(map[string]any); is {
		out.Value, meta = maps.Clone(o.Value), maps.Clone(meta)
		delete(meta, "deletionTimestamp")
		delete(meta, "deletionGracePeriodSeconds")
		out.Value["metadata"] = meta
	}
	return out
}

// EndsWithin reports whether an object is already terminating with a grace period that is not longer than grace.
func (o *Object) EndsWithin(grace *int64) bool {
	if !o.Terminating {
		return false
	}
	meta, _ := o.Value["metadata"].(map[string]any)
	switch left := meta["deletionGracePeriodSeconds"].(type) {
	case int64:
		return grace == nil || *grace >= left
	case float64:
		return grace == nil || float64(*grace) >= left
	default:
		return true
	}
}
