// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package invariants

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

// state is a Cleaner or a ClusterCleaner as a write left it.
type state struct {
	event cluster.Event
	at    time.Time // when the write was answered
	c     v1alpha1.Owner
	// forged says that somebody else wrote the runs that it has. The operator has recorded nothing then.
	forged bool
}

// open is the run that the operator recorded and that has no result; nil if none.
func (s *state) open() *v1alpha1.Run {
	if run := s.c.State().Run; run != nil && run.Result == "" && !s.forged {
		return run
	}
	return nil
}

// recurs says that the run that is open is one of a Cleaner that stays: its rows are added batch by batch.
func (s *state) recurs() bool {
	run := s.open()
	return run != nil && run.Lifecycle == v1alpha1.LifecycleRecurring
}

// life is all that is known of one Cleaner, or of one ClusterCleaner: that one has no namespace.
type life struct {
	uid             types.UID
	namespace, name string
	states          []state
	// gone is the request that ended it; nil if none was seen.
	gone *cluster.Event
	// letGo is the last write that took our finalizer off; nil if none.
	letGo *cluster.Event
	// there says that it is there at the end.
	there v1alpha1.Owner
}

func (l *life) String() string {
	if l.namespace == "" {
		return fmt.Sprintf("ClusterCleaner %s (%s)", l.name, l.uid)
	}
	return fmt.Sprintf("Cleaner %s/%s (%s)", l.namespace, l.name, l.uid)
}

// commits are the writes that recorded a run, one for each.
func (l *life) commits() []*state {
	var out []*state
	seen := map[int64]bool{}
	for i := range l.states {
		if run := l.states[i].open(); run != nil && !seen[run.Number] {
			seen[run.Number] = true
			out = append(out, &l.states[i])
		}
	}
	return out
}

// as is the Cleaner at a resourceVersion: the last write up to it. What a write has recorded whose answer was lost has the
// version of the one before. Nil if there is none.
func (l *life) as(resourceVersion string) *state {
	demanded, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return nil
	}
	var last *state
	for i := range l.states {
		if s := &l.states[i]; version(s.c) <= demanded {
			last = s
		}
	}
	return last
}

// between are the states that may have been in force at some time of a span: a write takes effect between its arrival and
// its answer.
func (l *life) between(from, to time.Time) []*state {
	var out []*state
	for i := range l.states {
		s := &l.states[i]
		ended := i+1 < len(l.states) && l.states[i+1].at.Before(from)
		if !ended && !s.event.RequestReceivedTimestamp.After(to) {
			out = append(out, s)
		}
	}
	return out
}

// unanswered is the recording of a run, or of its result, whose sender did not wait for the answer, because it was killed:
// the API server says that it gave up, and may have stored it all the same. What the Cleaner says later tells.
type unanswered struct {
	event cluster.Event
	run   *v1alpha1.Run // as far as the request says; the number of a run that has one is not repeated
}

// thing is any object as a write left it.
type thing struct {
	at              time.Time
	group, resource string
	meta            metav1.PartialObjectMetadata
}

// deed is a DELETE, an eviction or a PATCH that the operator sent for an object other than a Cleaner.
type deed struct {
	cluster.Event
	// verb is delete, evict or patch.
	verb string
	pre  metav1.Preconditions
	// hit is what the answer says was touched; empty if nothing, or if that is not answered.
	hit types.UID
	// intent is the last line that told of it before it arrived.
	intent *Line
	// life and run are on whose behalf it was sent: as it recorded its run, or, if it is Recurring, as it was when that was
	// decided. Helm says that it belongs to the run's release.
	life *life
	run  *state
	helm bool
}

// recurs says that it was sent for a Cleaner that records no run of what it is about to do.
func (d *deed) recurs() bool { return d.run != nil && d.run.c.Common().IsRecurring() }

// touched is what was acted on, as far as the answer says that something was; empty if nothing.
func (d *deed) touched() types.UID {
	if d.verb == verbEvict && d.Code()/100 == 2 && d.pre.UID != nil { // it is answered without the Pod
		return *d.pre.UID
	}
	return d.hit
}

// when is the moment at which the operator decided to send it.
func (d *deed) when() time.Time {
	if d.intent != nil {
		return d.intent.Time
	}
	return d.RequestReceivedTimestamp.Time
}

// title is what it is, for people.
func (d *deed) title() string {
	return map[string]string{verbDelete: "a DELETE", verbEvict: "an eviction", verbPatch: "a PATCH"}[d.verb]
}

// lines quote the deed and what told of it.
func (d *deed) lines() []string {
	lines := []string{quote(d.Event)}
	if d.intent != nil {
		lines = append(lines, d.intent.Text)
	}
	return lines
}

// history is what a record shows to have happened.
type history struct {
	*Record
	events     []cluster.Event
	lives      []*life
	unanswered []unanswered
	things     map[types.UID][]thing
	gone       map[types.UID]time.Time // when they were deleted and went at once
	templates  []template
	releases   map[types.UID]map[string]bool // by the UID of the record: what it contains, as <resource>/<namespace>/<name>
	deeds      []*deed
}

// newHistory reads a record.
func newHistory(r *Record) *history {
	h := &history{Record: r, things: map[types.UID][]thing{}, gone: map[types.UID]time.Time{}, releases: map[types.UID]map[string]bool{}}
	if r.Latency == 0 {
		c := *r
		c.Latency = 2 * time.Second
		h.Record = &c
	}
	for _, e := range r.Audit {
		h.takeTemplate(e)
		if e.ObjectRef != nil && (h.ours(e) || h.astray(e)) {
			h.events = append(h.events, e)
		}
	}
	slices.SortStableFunc(h.events, func(a, b cluster.Event) int { return a.StageTimestamp.Compare(b.StageTimestamp.Time) })
	for _, e := range h.events {
		if h.ours(e) {
			h.take(e)
		}
	}
	for _, l := range h.lives {
		l.order()
		h.complete(l)
		h.findForged(l)
	}
	for _, c := range r.Cleaners {
		if l := h.life(c.GetUID()); l != nil {
			l.there = c
		}
	}
	for _, e := range h.events {
		refused := e.RequestObject == nil && e.Code() >= 300 // before its body was read: nobody knows what it demanded
		if verb := verbOf(e); verb != "" && e.By(r.Operator) && !isDryRun(e) && !refused {
			h.deeds = append(h.deeds, h.readDeed(e, verb))
		}
	}
	// As they arrived: of two that are under way at the same time the later one may be answered first.
	slices.SortStableFunc(h.deeds, func(a, b *deed) int {
		return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp.Time)
	})
	return h
}

// The verbs of deeds.
const (
	verbDelete = "delete"
	verbEvict  = "evict"
	verbPatch  = "patch"
)

// verbOf is what a request does to an object that is no Cleaner; empty if that is no deed. Events and leases are the
// operator's own.
func verbOf(e cluster.Event) string {
	switch {
	case isCleaner(e):
	case e.Verb == "delete":
		return verbDelete
	case e.Verb == "create" && e.ObjectRef.Subresource == "eviction":
		return verbEvict
	case e.Verb == "patch" && !slices.Contains([]string{"events", "leases"}, e.ObjectRef.Resource):
		return verbPatch
	}
	return ""
}

// ours says that a request was made in a namespace whose Cleaners are judged, or on a ClusterCleaner: what that one does
// may be anywhere.
func (h *history) ours(e cluster.Event) bool {
	return len(h.Namespaces) == 0 || slices.Contains(h.Namespaces, e.ObjectRef.Namespace) || isCleaner(e) && e.ObjectRef.Namespace == ""
}

// astray says that the operator asked for a deed where nobody else would see it.
func (h *history) astray(e cluster.Event) bool {
	deed := e.By(h.Operator) && (verbOf(e) != "" || isCleaner(e) && e.Verb == "delete" || e.Verb == "deletecollection")
	return deed && !slices.Contains(h.Elsewhere, e.ObjectRef.Namespace)
}

func (h *history) life(uid types.UID) *life {
	for _, l := range h.lives {
		if l.uid == uid {
			return l
		}
	}
	return nil
}

// take reads what a write left.
func (h *history) take(e cluster.Event) {
	if run := asked(e); run != nil && e.Code() >= 500 {
		h.unanswered = append(h.unanswered, unanswered{e, run})
	}
	if !slices.Contains([]string{"create", "update", "patch", "delete"}, e.Verb) || e.Code() < 200 || e.Code() >= 300 || e.ResponseObject == nil || isDryRun(e) {
		return
	}
	if isCleaner(e) {
		h.takeCleaner(e)
		return
	}
	o := thing{at: e.StageTimestamp.Time, group: e.ObjectRef.APIGroup, resource: e.ObjectRef.Resource}
	if e.Verb == "delete" {
		var answer metav1.Status
		if json.Unmarshal(e.ResponseObject.Raw, &answer) == nil && answer.Kind == "Status" && answer.Details != nil {
			h.gone[answer.Details.UID] = e.StageTimestamp.Time
		}
		return
	}
	if json.Unmarshal(e.ResponseObject.Raw, &o.meta) != nil || o.meta.UID == "" {
		return
	}
	h.things[o.meta.UID] = append(h.things[o.meta.UID], o)
	if e.ObjectRef.Resource == "secrets" && strings.HasPrefix(o.meta.Name, recordPrefix) {
		if contains := manifestOf(e.ResponseObject.Raw); contains != nil {
			h.releases[o.meta.UID] = contains
		}
	}
}

func (h *history) takeCleaner(e cluster.Event) {
	var s metav1.Status
	if json.Unmarshal(e.ResponseObject.Raw, &s) == nil && s.Kind == "Status" { // of a DELETE that took effect at once
		if s.Details != nil {
			if l := h.life(s.Details.UID); l != nil {
				l.gone = &e
			}
		}
		return
	}
	var c v1alpha1.Owner = &v1alpha1.Cleaner{}
	if e.ObjectRef.Resource == "clustercleaners" {
		c = &v1alpha1.ClusterCleaner{}
	}
	if json.Unmarshal(e.ResponseObject.Raw, c) != nil || c.GetUID() == "" {
		return
	}
	l := h.life(c.GetUID())
	if l == nil {
		l = &life{uid: c.GetUID(), namespace: c.GetNamespace(), name: c.GetName()}
		h.lives = append(h.lives, l)
	}
	l.states = append(l.states, state{event: e, at: e.StageTimestamp.Time, c: c})
	if c.GetDeletionTimestamp() != nil && len(c.GetFinalizers()) == 0 {
		l.gone = &e
	}
}

// order puts the states in the order in which they were stored: that of answers may be another.
func (l *life) order() {
	slices.SortStableFunc(l.states, func(a, b state) int { return cmp.Compare(version(a.c), version(b.c)) })
	for i := range l.states {
		if i > 0 && held(l.states[i-1].c) && !held(l.states[i].c) {
			l.letGo = &l.states[i].event
		}
	}
}

// findForged tells the runs that the operator wrote from those of others. A write that leaves them as they were wrote neither.
func (h *history) findForged(l *life) {
	var last [2]*v1alpha1.Run
	forged := false
	for i := range l.states {
		s := &l.states[i]
		if runs := [2]*v1alpha1.Run{s.c.State().Run, s.c.State().Unsent}; !equality.Semantic.DeepEqual(runs, last) {
			last, forged = runs, !s.event.By(h.Operator)
		}
		s.forged = forged
	}
}

// complete puts in what was recorded of runs and not answered: what a later write shows to have been stored.
func (h *history) complete(l *life) {
	type recorded struct {
		number int64
		result v1alpha1.Result
	}
	seen := map[recorded]bool{}
	for i := 0; i < len(l.states); i++ {
		later := l.states[i]
		run := later.c.State().Run
		if i == 0 || run == nil {
			continue
		}
		for _, result := range []v1alpha1.Result{"", run.Result} { // a run is open before it has a result
			what := recorded{run.Number, result}
			if seen[what] {
				continue
			}
			seen[what] = true
			if u := h.lost(l, run, result, later.event); u != nil {
				c := l.states[i-1].c.DeepCopyOwner()
				status := c.State()
				status.Run, status.Runs = run.DeepCopy(), run.Number
				if result == "" {
					status.Run = u.run
				}
				l.states = slices.Insert(l.states, i, state{event: u.event, at: u.event.RequestReceivedTimestamp.Time, c: c})
				i++
			}
		}
	}
}

// asked is the run, or the part of one, that a request asks to record; nil if none.
func asked(e cluster.Event) *v1alpha1.Run {
	var c v1alpha1.Cleaner
	if !isCleaner(e) || e.Verb != "patch" || e.RequestObject == nil || json.Unmarshal(e.RequestObject.Raw, &c) != nil {
		return nil
	}
	return c.Status.Run
}

// lost is the unanswered request that recorded a run that a later write shows, or its result; nil if there is none, or if that write recorded it
// itself. Of several requests it is the one that arrived last, with the rows that are shown: a process reads what is stored before it records a run.
func (h *history) lost(l *life, shown *v1alpha1.Run, result v1alpha1.Result, later cluster.Event) (last *unanswered) {
	if run := asked(later); run != nil && run.Result == result {
		return nil
	}
	for i := range h.unanswered {
		u := &h.unanswered[i]
		same := u.run.Result == result && (u.run.Number == shown.Number || u.run.Number == 0 && result != "")
		if result == "" && len(shown.Rows) > 0 && !slices.Equal(u.run.Rows, shown.Rows) {
			continue
		}
		ref, at := u.event.ObjectRef, u.event.RequestReceivedTimestamp.Time
		if same && ref.Namespace == l.namespace && ref.Name == l.name && at.Before(later.RequestReceivedTimestamp.Time) &&
			(last == nil || at.After(last.event.RequestReceivedTimestamp.Time)) {
			last = u
		}
	}
	return last
}

func version(c v1alpha1.Owner) uint64 {
	n, err := strconv.ParseUint(c.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func held(c v1alpha1.Owner) bool { return slices.Contains(c.GetFinalizers(), v1alpha1.Finalizer) }

// demanded is what a request demanded of its object. A JSON patch demands by the tests that it begins with, another patch
// by its metadata.
func demanded(e cluster.Event, verb string) metav1.Preconditions {
	if verb != verbPatch {
		pre, err := e.Preconditions()
		if err != nil {
			return metav1.Preconditions{} // a violation of I1
		}
		return pre
	}
	var pre metav1.Preconditions
	var body struct {
		Metadata metav1.Preconditions `json:"metadata"`
	}
	var operations []struct {
		Op, Path string
		Value    any
	}
	switch {
	case e.RequestObject == nil:
	case json.Unmarshal(e.RequestObject.Raw, &operations) == nil:
		for _, o := range operations {
			value, ok := o.Value.(string)
			if o.Op != "test" {
				break
			}
			switch {
			case ok && o.Path == "/metadata/uid":
				pre.UID = (*types.UID)(&value)
			case ok && o.Path == "/metadata/resourceVersion":
				pre.ResourceVersion = &value
			}
		}
	case json.Unmarshal(e.RequestObject.Raw, &body) == nil:
		pre = body.Metadata
	}
	return pre
}

// readDeed finds out what a request was about.
func (h *history) readDeed(e cluster.Event, verb string) *deed {
	d := &deed{Event: e, verb: verb, pre: demanded(e, verb)}
	if e.Code() >= 200 && e.Code() < 300 && e.ResponseObject != nil {
		var answer struct {
			Kind     string               `json:"kind"`
			Metadata metav1.ObjectMeta    `json:"metadata"`
			Details  metav1.StatusDetails `json:"details"`
		}
		if json.Unmarshal(e.ResponseObject.Raw, &answer) == nil {
			if d.hit = answer.Metadata.UID; answer.Kind == "Status" {
				d.hit = answer.Details.UID
			}
		}
	}
	arrived := e.RequestReceivedTimestamp.Time
	for i := range h.Log {
		l := &h.Log[i]
		if d.toldBy(l) {
			d.intent = l
		}
	}
	if h.byIntent(d); d.life != nil {
		return d
	}
	for _, l := range h.lives {
		for _, s := range l.commits() {
			run := s.open()
			if s.recurs() || s.at.After(arrived) || !l.reaches(e) && run.ServiceAccountName == "" {
				continue
			}
			switch {
			case l.reaches(e) && slices.ContainsFunc(run.Rows, func(row string) bool { return rowIs(row, e, d.pre.UID) }):
				d.life, d.run, d.helm = l, s, false
			case verb == verbDelete && run.Helm != nil && h.ofRelease(l.namespace, run.Helm, e) && d.life == nil:
				d.life, d.run, d.helm = l, s, true
			}
		}
	}
	return d
}

// byIntent finds the Recurring Cleaner that a deed was for: the one that said so.
func (h *history) byIntent(d *deed) {
	if d.intent == nil {
		return
	}
	for _, l := range h.lives {
		if l.namespace != d.intent.Namespace || l.name != d.intent.Name || !l.reaches(d.Event) {
			continue
		}
		for i := range l.states { // one that was made anew under the name comes later
			if s := &l.states[i]; !s.event.RequestReceivedTimestamp.After(d.intent.Time) && s.c.Common().IsRecurring() {
				d.life, d.run = l, s
			}
		}
	}
	d.helm = d.life != nil && h.uninstalls(d)
}

// uninstalls says that a deed belongs to the uninstall of a release that a rule of its Cleaner has begun: it is about what that release contains,
// and a line that tells of the beginning was logged before.
func (h *history) uninstalls(d *deed) bool {
	namespace, name, ok := strings.Cut(d.intent.Release, "/")
	if !ok || d.verb != verbDelete || !h.ofRelease(namespace, &v1alpha1.HelmRelease{Name: name, UID: d.intent.Record}, d.Event) {
		return false
	}
	return slices.ContainsFunc(h.Log, func(l Line) bool {
		return l.Message == "Intent" && l.Verb == "helmUninstall" && l.UID == d.intent.Record && l.Rule == d.intent.Rule && !l.Time.After(d.intent.Time) &&
			l.Namespace == d.intent.Namespace && l.Name == d.intent.Name
	})
}

// reaches says that a Cleaner may act where a request was made: in its namespace, or, if it has none, anywhere.
func (l *life) reaches(e cluster.Event) bool {
	return l.namespace == "" || l.namespace == e.ObjectRef.Namespace
}

// toldBy says that a line of the log tells of the deed before it arrived.
func (d *deed) toldBy(l *Line) bool {
	if l.Message != "Intent" || l.Time.After(d.RequestReceivedTimestamp.Add(time.Millisecond)) || !d.names(l.UID, l.Version) {
		return false
	}
	switch l.Verb {
	case "removeFinalizer":
		return d.verb == verbPatch
	case "runHook":
		return d.verb == verbDelete
	default:
		return d.verb == l.Verb
	}
}

// names says that this is the object and version that a deed demanded.
func (d *deed) names(uid, version string) bool {
	return d.pre.UID != nil && d.pre.ResourceVersion != nil && string(*d.pre.UID) == uid && *d.pre.ResourceVersion == version
}

// rowIs says that a row is the object that a request names. Only the name in it may have spaces, any number of them.
func rowIs(row string, e cluster.Event, uid *types.UID) bool {
	f := strings.Split(row, " ")
	last := len(f) - 1
	if len(f) < 5 || uid == nil {
		return false
	}
	resource, _, _ := strings.Cut(f[1], "/")
	want := e.ObjectRef.Resource
	if e.ObjectRef.APIGroup != "" {
		want += "." + e.ObjectRef.APIGroup
	}
	namespace := e.ObjectRef.Namespace
	if want == "namespaces" { // the reference to a namespace has it as its own
		namespace = ""
	}
	return resource == want && strings.Join(f[2:last-1], " ") == namespace+"/"+e.ObjectRef.Name && f[last-1] == string(*uid)
}

// recordPrefix begins the names of the Secrets that record revisions of releases.
const recordPrefix = "sh.helm.release.v1."

// ofRelease says that an object belongs to the revision of a release in a namespace.
func (h *history) ofRelease(namespace string, r *v1alpha1.HelmRelease, e cluster.Event) bool {
	if e.ObjectRef.Resource == "secrets" && e.ObjectRef.Namespace == namespace && strings.HasPrefix(e.ObjectRef.Name, recordPrefix+r.Name+".v") {
		return true
	}
	return h.releases[types.UID(r.UID)][e.ObjectRef.Resource+"/"+e.ObjectRef.Namespace+"/"+e.ObjectRef.Name]
}

// manifestOf is what a release's record contains, hooks too, as <resource>/<namespace>/<name>; nil if it cannot be read.
func manifestOf(secret []byte) map[string]bool {
	var s struct {
		Data map[string][]byte `json:"data"`
	}
	if json.Unmarshal(secret, &s) != nil {
		return nil
	}
	packed, err := base64.StdEncoding.DecodeString(string(s.Data["release"]))
	if err != nil {
		return nil
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil
	}
	var release struct {
		Namespace string `json:"namespace"`
		Manifest  string `json:"manifest"`
		Hooks     []struct {
			Manifest string `json:"manifest"`
		} `json:"hooks"`
	}
	if json.Unmarshal(text, &release) != nil {
		return nil
	}
	manifests := []string{release.Manifest}
	for _, h := range release.Hooks {
		manifests = append(manifests, h.Manifest)
	}
	contains := map[string]bool{}
	for _, m := range manifests {
		for doc := range strings.SplitSeq("\n"+m, "\n---") {
			if strings.Contains(doc, "&") && strings.Contains(doc, "*") {
				continue // what aliases repeat may take minutes, and whoever acts on what is left out shows
			}
			var o metav1.PartialObjectMetadata
			if yaml.Unmarshal([]byte(doc), &o) == nil && o.Kind != "" {
				contains[pluralOf(o.GroupVersionKind())+"/"+cmp.Or(o.Namespace, release.Namespace)+"/"+o.Name] = true
			}
		}
	}
	return contains
}

func isCleaner(e cluster.Event) bool {
	return e.ObjectRef.APIGroup == v1alpha1.GroupVersion.Group && slices.Contains([]string{"cleaners", "clustercleaners"}, e.ObjectRef.Resource)
}

// isDryRun says that a request changed nothing, whatever was answered.
func isDryRun(e cluster.Event) bool {
	if asked, err := url.ParseRequestURI(e.RequestURI); err == nil && slices.Contains(asked.Query()["dryRun"], "All") {
		return true
	}
	var body struct {
		DryRun []string `json:"dryRun"`
	}
	return e.RequestObject != nil && json.Unmarshal(e.RequestObject.Raw, &body) == nil && len(body.DryRun) > 0
}
