// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Acted is what this process did to objects, as the API server answered, and the watches have yet to show.
type Acted map[types.UID]ActedOn

// ActedOn is what was done to one object.
type ActedOn struct {
	// Before are the versions that the object had before each action.
	Before []string
	// Resource is the object's.
	Resource schema.GroupVersionResource
	// Gone says that it is no more.
	Gone bool
	// Now is the object as it is now, unless it is gone.
	Now observed.Object
	// Kept is what Now has of the object's Value; nil: all.
	Kept *projection.Projection
	// Unseen says that it had changed before, and that the watches have not shown that change.
	Unseen bool
}

// NoteAnswer records the answer to an action: the object at the version that the request named, and as it is now; nil if it is gone.
func (a Acted) NoteAnswer(before observed.Object, now *observed.Object) {
	e := a[before.UID]
	e.Resource = before.Resource
	if !slices.Contains(e.Before, before.ResourceVersion) {
		e.Before = append(slices.Clone(e.Before), before.ResourceVersion)
	}
	e.Gone = now == nil
	e.Now, e.Kept = observed.Object{}, nil
	if now != nil {
		e.Now = *now
	}
	a[before.UID] = e
}

// KeepParts forgets what a projection does not keep of an object as it is now.
func (a Acted) KeepParts(uid types.UID, p *projection.Projection) {
	e, known := a[uid]
	if !known || e.Now.Value == nil {
		return
	}
	e.Now.Value, e.Kept = p.ApplyToMap(e.Now.Value), p
	a[uid] = e
}

// ForgetOthers forgets the objects that were not kept with a projection: the watches show them, and the next request names the version that
// they show. It does not matter whether more was kept: an answer may have less than that of an object, as the API server answers with metadata
// only, and then the rest is what the watches had.
func (a Acted) ForgetOthers(p *projection.Projection) {
	kept := map[*projection.Projection]bool{nil: false}
	maps.DeleteFunc(a, func(_ types.UID, e ActedOn) bool {
		same, known := kept[e.Kept]
		if !known {
			same = e.Kept.Digest() == p.Digest()
			kept[e.Kept] = same
		}
		return !e.Gone && !same
	})
}

// NoteUnseen records that an object had changed before it was acted on, if the watches had shown another version than the request named. An
// earlier action of this process is no such change. Call it before NoteAnswer.
func (a Acted) NoteUnseen(watched, named observed.Object) {
	e := a[named.UID]
	if watched.UID == "" || watched.ResourceVersion == named.ResourceVersion || e.Now.UID != "" && e.Now.ResourceVersion == named.ResourceVersion {
		return
	}
	e.Unseen = true
	a[named.UID] = e
}

// ListUnseen lists the objects in a snapshot of OverlaySnapshot with a change before the action that the watches have not shown.
func (a Acted) ListUnseen() map[types.UID]bool {
	var out map[types.UID]bool
	for uid, e := range a {
		if e.Unseen && !e.Gone {
			if out == nil {
				out = map[types.UID]bool{}
			}
			out[uid] = true
		}
	}
	return out
}

// OverlaySnapshot returns the snapshot with each object that was acted on as the API server answered. It forgets objects that the
// snapshot shows at a newer version or gone, and those that no target selects now.
func (a Acted) OverlaySnapshot(s observed.Snapshot) observed.Snapshot {
	if len(a) == 0 {
		return s
	}
	out, shown, complete := slices.Clone(s), map[types.UID]bool{}, map[schema.GroupVersionResource]bool{}
	resolved := true // it is known which resources the targets are about
	for t := range s {
		resolved = resolved && (s[t].Resource.Resource != "" || s[t].Kinds != nil)
		if s[t].State != observed.Complete {
			if _, known := complete[s[t].Resource]; known || s[t].Resource.Resource != "" {
				complete[s[t].Resource] = false
			}
			continue
		}
		noteComplete(&s[t], complete)
		out[t].Objects, out[t].At = a.overlayObjects(s[t].Objects, shown), nil
	}
	maps.DeleteFunc(a, func(uid types.UID, e ActedOn) bool {
		known, wanted := complete[e.Resource]
		return !shown[uid] && (known || !wanted && resolved)
	})
	return out
}

// noteComplete notes the resources whose objects a target shows all, unless another target does not.
func noteComplete(t *observed.Target, complete map[schema.GroupVersionResource]bool) {
	for _, r := range t.ListResources() {
		if _, known := complete[r]; !known {
			complete[r] = true
		}
	}
}

// joinMetadata returns what a target shows of an object, at the version that it has now.
func joinMetadata(shown, now observed.Object) observed.Object {
	shown.Ref, shown.Labels, shown.Protected, shown.Terminating, shown.Finalizers = now.Ref, now.Labels, now.Protected, now.Terminating, now.Finalizers
	shown.Content, shown.Assembled = 0, true
	return shown
}

// showNow returns what a target shows of an object that is newer than the target, and shows as little as before.
func showNow(shown, now observed.Object) observed.Object {
	switch {
	case shown.OfRelease != now.OfRelease: // it was acted on as an object of another target, which shows other fields of it
		return joinMetadata(shown, now)
	case shown.Value == nil:
		now.Value = nil
	}
	return now
}

// overlayObjects is OverlaySnapshot for the objects of one target. It notes which entries are newer than the objects.
func (a Acted) overlayObjects(objects []observed.Object, shown map[types.UID]bool) []observed.Object {
	out, changed := objects, false
	for i := range objects {
		e, ok := a[objects[i].UID]
		stale := ok && slices.Contains(e.Before, objects[i].ResourceVersion)
		if stale {
			shown[objects[i].UID] = true
		}
		stale = stale && (e.Gone || e.Now.Resource == objects[i].Resource) // as another group serves it, it waits for the watch
		if stale && !changed {
			changed = true
			out = append(make([]observed.Object, 0, len(objects)), objects[:i]...)
		}
		switch {
		case !changed, stale && e.Gone:
		case stale:
			out = append(out, showNow(objects[i], e.Now))
		default:
			out = append(out, objects[i])
		}
	}
	return out
}
