// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// room is a Memory of so many bytes.
type room int64

var errNoRoom = errors.New("there is no room")

func (r *room) TakeBytes(bytes int64) error {
	if *r -= room(bytes); *r < 0 {
		return errNoRoom
	}
	return nil
}

// A list of what is watched takes memory before it is made, by the number of its objects.
func TestListsTakeMemory(t *testing.T) {
	const n = 100
	e, s := newWatching(t)
	for i := range n {
		putObject(e, s, &cachedobjects.Object{Object: observed.Object{Ref: observed.Ref{Resource: apiserver.Pods, Namespace: "a", Name: fmt.Sprint("p", i)}}})
	}
	q := queries.New("Pod", queries.MetadataOnly)
	e.SetInterests(owner("c"), interests(q))
	for _, tc := range []struct {
		room  room
		state observed.TargetState
		many  int
	}{{room(n * objectBytes), observed.Complete, n}, {room(n*objectBytes - 1), observed.Failed, 0}} {
		got := e.Read(snapshot.WithMemory(t.Context(), &tc.room), q)
		if got.State != tc.state || len(got.Objects) != tc.many {
			t.Errorf("with room for %d bytes it comes to %s %q, %d objects", tc.room, got.State, got.Detail, len(got.Objects))
		}
	}
	if objectBytes < 160 {
		t.Errorf("an object counts for %d bytes", objectBytes)
	}
}
