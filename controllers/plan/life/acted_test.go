// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

func TestActedOver(t *testing.T) {
	versions := func(objects []observed.Object) (out []string) {
		for _, o := range objects {
			out = append(out, o.Name+"@"+o.ResourceVersion)
		}
		return out
	}
	deletedA := func(a Acted) { a.NoteAnswer(p("a"), nil) }
	patchedA := func(a Acted) { now := version(p("a"), "8"); a.NoteAnswer(p("a"), &now) }
	patchedAgain := func(a Acted) { now := version(p("a"), "9"); a.NoteAnswer(version(p("a"), "8"), &now) }
	deletedThen := func(a Acted) { a.NoteAnswer(version(p("a"), "8"), nil) }
	cases := map[string]struct {
		reason string
		notes  []func(Acted)
		seen   []observed.Object
		state  observed.TargetState
		want   []string
		left   int
	}{
		"Gone":          {"what is gone is not seen any more", []func(Acted){deletedA}, []observed.Object{p("a"), p("b")}, observed.Complete, []string{"b@7"}, 1},
		"GoneSeen":      {"once the watch shows it that is forgotten", []func(Acted){deletedA}, []observed.Object{p("b")}, observed.Complete, []string{"b@7"}, 0},
		"Patched":       {"what was changed is seen as it was answered", []func(Acted){patchedA}, []observed.Object{p("a"), p("b")}, observed.Complete, []string{"a@8", "b@7"}, 1},
		"PatchedSeen":   {"until the watch shows it", []func(Acted){patchedA}, []observed.Object{version(p("a"), "8")}, observed.Complete, []string{"a@8"}, 0},
		"MovedOn":       {"or anything later", []func(Acted){patchedA}, []observed.Object{version(p("a"), "12")}, observed.Complete, []string{"a@12"}, 0},
		"Twice":         {"of two deeds the last is seen", []func(Acted){patchedA, patchedAgain}, []observed.Object{p("a")}, observed.Complete, []string{"a@9"}, 1},
		"TwiceHalfSeen": {"also when the watch shows the first", []func(Acted){patchedA, patchedAgain}, []observed.Object{version(p("a"), "8")}, observed.Complete, []string{"a@9"}, 1},
		"ThenGone":      {"a deletion after a patch", []func(Acted){patchedA, deletedThen}, []observed.Object{p("a"), p("b")}, observed.Complete, []string{"b@7"}, 1},
		"Incomplete":    {"a target that is not known forgets nothing", []func(Acted){deletedA}, nil, observed.Unsynced, nil, 1},
		"Others":        {"nothing else is touched", nil, []observed.Object{p("a")}, observed.Complete, []string{"a@7"}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			acted := Acted{}
			for _, note := range tc.notes {
				note(acted)
			}
			s := observed.Snapshot{{State: tc.state, Resource: pods, Namespaced: true, Objects: tc.seen}, nodesSeen("n1")}
			before := versions(tc.seen)
			got := acted.OverlaySnapshot(s)
			if diff := cmp.Diff(tc.want, versions(got[0].Objects)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, versions(tc.seen)); diff != "" {
				t.Errorf("the snapshot was changed:\n%s", diff)
			}
			if len(acted) != tc.left {
				t.Errorf("%d are remembered, want %d", len(acted), tc.left)
			}
		})
	}
}

// A target of which only metadata is seen does not show more after a deed.
// What no target is about any more, after an edit, will never be shown.
func TestActedForgetsWhatNoTargetIsAbout(t *testing.T) {
	a := p("a")
	for name, tc := range map[string]struct {
		now  observed.Target
		left int
	}{
		"Edited":    {nodesSeen("n"), 0},
		"NotServed": {observed.Target{State: observed.NoSuchKind}, 1}, // it may be the very kind
	} {
		t.Run(name, func(t *testing.T) {
			acted := Acted{}
			acted.NoteAnswer(a, nil)
			if acted.OverlaySnapshot(observed.Snapshot{tc.now}); len(acted) != tc.left {
				t.Errorf("left are %v, want %d", acted, tc.left)
			}
		})
	}
}

func TestActedShowsNoMoreThanBefore(t *testing.T) {
	quiet, acted, now := p("a"), Acted{}, version(p("a"), "8")
	quiet.Value = nil
	acted.NoteAnswer(p("a"), &now)
	got := acted.OverlaySnapshot(observed.Snapshot{seen(quiet), seen(p("a"))})
	if o := got[0].Objects[0]; o.Value != nil || o.ResourceVersion != "8" {
		t.Errorf("got %+v", o)
	}
	if o := got[1].Objects[0]; o.Value == nil || o.ResourceVersion != "8" {
		t.Errorf("got %+v", o)
	}
}

// TestADeedShowsItsOwnGroupOnly shows that the answer to a deed does not stand in for the object as another group serves it:
// what is done there would be done by the rights to the first.
func TestADeedShowsItsOwnGroupOnly(t *testing.T) {
	patched, acted := version(event(coreEvents), "8"), Acted{}
	acted.NoteAnswer(event(coreEvents), &patched)
	before := observed.Snapshot{eventsSeen(coreEvents, event(coreEvents)), eventsSeen(groupEvents, event(groupEvents))}
	want := observed.Snapshot{eventsSeen(coreEvents, patched), eventsSeen(groupEvents, event(groupEvents))}
	if diff := cmp.Diff(want, acted.OverlaySnapshot(before)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	acted.NoteAnswer(patched, nil)
	if got := acted.OverlaySnapshot(before); len(got[0].Objects)+len(got[1].Objects) > 0 {
		t.Errorf("what is gone by one group is there by the other: %+v", got)
	}
}

// An action that named another version than the watches have shown came after a change that they hide; one after an action of this process
// did not.
func TestListUnseen(t *testing.T) {
	at := func(version string) observed.Object {
		return observed.Object{Ref: observed.Ref{UID: "uid-a", ResourceVersion: version}}
	}
	now := at("9")
	for name, tc := range map[string]struct {
		watched, named observed.Object
		before         Acted
		unseen         bool
	}{
		"Shown":    {at("5"), at("5"), Acted{}, false},
		"Hidden":   {at("5"), at("7"), Acted{}, true},
		"Ours":     {at("5"), at("7"), Acted{"uid-a": {Now: at("7")}}, false},
		"Again":    {at("5"), at("7"), Acted{"uid-a": {Now: at("7"), Unseen: true}}, true},
		"NotKnown": {observed.Object{}, at("7"), Acted{}, false},
	} {
		tc.before.NoteUnseen(tc.watched, tc.named)
		tc.before.NoteAnswer(tc.watched, &now)
		tc.before.NoteAnswer(tc.named, &now)
		if got := tc.before.ListUnseen()["uid-a"]; got != tc.unseen {
			t.Errorf("%s: unseen: %t", name, got)
		}
		if tc.before.NoteAnswer(tc.named, nil); len(tc.before.ListUnseen()) > 0 {
			t.Errorf("%s: what is gone hides nothing", name)
		}
	}
}

// What is remembered of an object is what its Cleaner reads of it. When the Cleaner reads something else, the watches are believed again.
func TestActedKeepsWhatIsRead(t *testing.T) {
	phase, both := projection.KeepPath("status", "phase"), projection.Merge(projection.KeepPath("status", "phase"), projection.KeepPath("spec"))
	whole := map[string]any{"status": map[string]any{"phase": "Failed", "reason": "x"}, "spec": map[string]any{}}
	acted := Acted{}
	now := version(p("a"), "8")
	now.Value = whole
	acted.NoteAnswer(p("a"), &now)
	acted.NoteAnswer(p("gone"), nil)
	metadata := version(p("b"), "8")
	metadata.Value = nil
	acted.NoteAnswer(p("b"), &metadata)
	for _, name := range []string{"a", "b", "gone", "unknown"} {
		acted.KeepParts(p(name).UID, phase)
	}
	if diff := cmp.Diff(map[string]any{"status": map[string]any{"phase": "Failed"}}, acted[p("a").UID].Now.Value); diff != "" || len(acted) != 3 {
		t.Errorf("%d are remembered; of one that was patched (-want +got):\n%s", len(acted), diff)
	}
	if len(whole) != 2 {
		t.Error("the answer was changed")
	}
	acted.ForgetOthers(projection.KeepPath("status", "phase"))
	if _, known := acted[p("a").UID]; !known || len(acted) != 2 { // of b nothing was kept
		t.Errorf("who reads the same remembers %d", len(acted))
	}
	acted.ForgetOthers(both)
	if _, known := acted[p("gone").UID]; !known || len(acted) != 1 {
		t.Errorf("who reads more remembers %d", len(acted))
	}
}

// A deletion is answered with metadata, and the rest of the object is what the store of its kind had. An edited spec that reads another part of
// it, which was read of another kind before, must not see it without that part.
func TestActedShowsNoLessThanIsRead(t *testing.T) {
	whole := map[string]any{"metadata": map[string]any{"name": "a"}, "status": map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}
	ofPods, ofNodes := projection.KeepPath("status", "phase"), projection.KeepPath("status", "conditions")
	seen := p("a")
	seen.Value = ofPods.ApplyToMap(whole)
	now := version(seen, "8")
	acted := Acted{}
	acted.NoteAnswer(seen, &now)
	acted.KeepParts(seen.UID, projection.Merge(ofPods, ofNodes))
	acted.ForgetOthers(ofNodes) // the edited spec reads this of Pods
	widened := p("a")
	widened.Value = ofNodes.ApplyToMap(whole)
	s := observed.Snapshot{{State: observed.Complete, Resource: pods, Namespaced: true, Objects: []observed.Object{widened}}}
	if diff := cmp.Diff(widened, acted.OverlaySnapshot(s)[0].Objects[0]); diff != "" {
		t.Errorf("the expressions see something else than the watches (-watches +seen):\n%s", diff)
	}
}

// What is shown of the Secret of a Helm release differs between targets of releases and of Secrets: an answer about one does not get into the other.
func TestActedKeepsReleasesAndSecretsApart(t *testing.T) {
	release, secret := p("a"), p("a")
	release.OfRelease, release.Value = true, map[string]any{"status": "superseded"}
	secret.Value = map[string]any{"data": "hidden"}
	s := observed.Snapshot{
		{State: observed.Complete, Resource: pods, Namespaced: true, Objects: []observed.Object{release}},
		{State: observed.Complete, Resource: pods, Namespaced: true, Objects: []observed.Object{secret}},
	}
	for name, now := range map[string]observed.Object{"Release": version(release, "8"), "Secret": version(secret, "8")} {
		acted := Acted{}
		now.Terminating = true
		acted.NoteAnswer(p("a"), &now)
		got := acted.OverlaySnapshot(s)
		for i, want := range []observed.Object{release, secret} {
			o := got[i].Objects[0]
			if o.ResourceVersion != "8" || !o.Terminating || o.OfRelease != want.OfRelease || !cmp.Equal(o.Value, want.Value) {
				t.Errorf("%s: target %d shows %+v", name, i, o)
			}
		}
	}
}
