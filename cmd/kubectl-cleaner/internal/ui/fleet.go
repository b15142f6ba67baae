// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"crypto/rand"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
)

// maxMessage bounds the messages of the overview, in characters.
const maxMessage = 240

// The tones of Cleaners: what the overview can be narrowed to.
const (
	toneAttention = "attention"
	toneUnseen    = "unseen"
	toneWorking   = "working"
	toneQuiet     = "quiet"
	toneSuspended = "suspended"
)

// tones are in the order of the overview: what a person should look at comes first.
func tones() []string {
	return []string{toneAttention, toneUnseen, toneWorking, toneQuiet, toneSuspended}
}

// Kind is Cleaner or ClusterCleaner.
func (n Name) Kind() string {
	if n.Namespace == "" {
		return "ClusterCleaner"
	}
	return "Cleaner"
}

// DisplayName is the name with the namespace, if there is one.
func (n Name) DisplayName() string {
	if n.Namespace == "" {
		return n.Name
	}
	return n.Namespace + "/" + n.Name
}

// Path is where the pages of the Cleaner are.
func (n Name) Path() string {
	if n.Namespace == "" {
		return "/clustercleaners/" + url.PathEscape(n.Name)
	}
	return "/cleaners/" + url.PathEscape(n.Namespace) + "/" + url.PathEscape(n.Name)
}

// summary is what is remembered of each Cleaner. It is small: there may be ten thousand.
type summary struct {
	Name
	// Version is the resourceVersion.
	Version                string
	Tone, Reason, Message  string
	Mode                   string
	Next                   time.Time
	Done, Failed           int64
	LastAction, LastObject string
	LastActed              time.Time
}

// summarize returns what the overview shows of a Cleaner.
func summarize(o v1alpha1.Owner) summary {
	s := o.State()
	out := summary{
		Name: Name{o.GetNamespace(), o.GetName()}, Version: o.GetResourceVersion(), Tone: toneOf(o), Mode: showLine(string(cmp.Or(o.Common().Mode, v1alpha1.ModeEnforce))),
	}
	if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); ready != nil {
		out.Reason, out.Message = showLine(ready.Reason), shorten(ready.Message, maxMessage)
	}
	if s.NextScheduledEvaluation != nil {
		out.Next = s.NextScheduledEvaluation.Time
	}
	if s.Counters != nil {
		out.Done, out.Failed = s.Counters.Acted, s.Counters.Failed
	}
	for i := range s.LastActions {
		if a := &s.LastActions[i]; a.Time.After(out.LastActed) {
			out.LastActed, out.LastAction, out.LastObject = a.Time.Time, showLine(a.Action), shorten(a.Object, maxMessage)
		}
	}
	return out
}

// summarizeObject is summarize for an object of the cluster. One that cannot be read does not hide the others.
func summarizeObject(u *unstructured.Unstructured) summary {
	owner, err := manifests.DecodeOwner(u)
	if err != nil {
		return summary{Name: Name{u.GetNamespace(), u.GetName()}, Version: u.GetResourceVersion(), Tone: toneAttention, Reason: "Unreadable", Message: shorten(err.Error(), maxMessage)}
	}
	return summarize(owner)
}

// toneOf says in a word how a Cleaner is.
func toneOf(o v1alpha1.Owner) string {
	s := o.State()
	ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
	switch {
	case o.Common().Suspend:
		return toneSuspended
	case ready == nil:
		return toneUnseen
	case ready.Status != metav1.ConditionTrue || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStalled) || meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionSchemaMismatch):
		return toneAttention
	case meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReconciling):
		return toneWorking
	default:
		return toneQuiet
	}
}

// source says how far the Cleaners of a kind are known.
type source struct {
	// Listed says that they have been listed.
	Listed bool
	// Limit says what is not shown because the user may not see it, and Problem what fails now.
	Limit, Problem string
}

// fleet is what is known of all Cleaners.
type fleet struct {
	// id begins all versions: those of an earlier start of the command are others.
	id   string
	mu   sync.Mutex
	rows map[Name]*summary
	// sorted are the rows in the order of the overview; nil if they must be sorted again.
	sorted  []*summary
	sources map[string]source
	// version counts changes, and changed is closed by the next one.
	version int64
	changed chan struct{}
}

func newFleet() *fleet {
	return &fleet{id: rand.Text(), rows: map[Name]*summary{}, sources: map[string]source{}, changed: make(chan struct{})}
}

// change changes the fleet, and wakes those that wait for a change.
func (f *fleet) change(with func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	with()
	f.sorted = nil
	f.version++
	close(f.changed)
	f.changed = make(chan struct{})
}

// replaceKind replaces all Cleaners of a kind.
func (f *fleet) replaceKind(kind string, rows []summary, from source) {
	f.change(func() {
		for name := range f.rows {
			if name.Kind() == kind {
				delete(f.rows, name)
			}
		}
		for i := range rows {
			f.rows[rows[i].Name] = &rows[i]
		}
		f.sources[kind] = from
	})
}

// setSource says how far the Cleaners of a kind are known.
func (f *fleet) setSource(kind string, from source) {
	f.mu.Lock()
	same := f.sources[kind] == from
	f.mu.Unlock()
	if !same {
		f.change(func() { f.sources[kind] = from })
	}
}

func (f *fleet) sourceOf(kind string) source {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sources[kind]
}

func (f *fleet) putRow(r summary) { f.change(func() { f.rows[r.Name] = &r }) }

func (f *fleet) removeRow(n Name) { f.change(func() { delete(f.rows, n) }) }

// listRows returns all Cleaners, those first that a person should look at; what is known of the kinds; and which version of the fleet it is.
// The rows must not be changed.
func (f *fleet) listRows() (rows []*summary, sources map[string]source, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sorted == nil {
		f.sortRows()
	}
	return f.sorted, maps.Clone(f.sources), f.nameVersion()
}

// sortRows sorts the rows.
func (f *fleet) sortRows() {
	rank := map[string]int{}
	for i, tone := range tones() {
		rank[tone] = i
	}
	f.sorted = slices.SortedFunc(maps.Values(f.rows), func(a, b *summary) int {
		return cmp.Or(cmp.Compare(rank[a.Tone], rank[b.Tone]), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name.Name, b.Name.Name))
	})
}

// nameVersion names the version of the fleet.
func (f *fleet) nameVersion() string { return f.id + "." + strconv.FormatInt(f.version, 10) }

// nameVersionOf names a version of a Cleaner.
func (f *fleet) nameVersionOf(resourceVersion string) string { return f.id + "." + resourceVersion }

// waitForNews returns which version it is of the named Cleaner, or of all without a name; whether it is followed now; and what is closed by the
// next change.
func (f *fleet) waitForNews(of Name) (version string, live bool, next <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if of.Name == "" {
		live = true
		for _, from := range f.sources {
			live = live && from.Problem == ""
		}
		return f.nameVersion(), live, f.changed
	}
	resourceVersion := ""
	if is := f.rows[of]; is != nil {
		resourceVersion, live = is.Version, f.sources[of.Kind()].Problem == ""
	}
	return f.nameVersionOf(resourceVersion), live, f.changed
}
