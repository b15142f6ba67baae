// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"slices"
	"testing"
)

// A list is about the objects of the targets that it begins with, through what is called on it, variables and cel.bind, and about none where that does not show.
func TestFindLeadingTargets(t *testing.T) {
	variables := map[string]*Tree{"running": parse(t, `pods.items.filter(p, p.ready)`), "both": parse(t, `running + nodes.items`)}
	for source, want := range map[string][]string{
		`pods.items`:                       {"pods"},
		`pods`:                             {"pods"},
		`pods.items + nodes.items`:         {"nodes", "pods"},
		`(pods.items + pods.items).sort()`: {"pods"},
		`pods.items.filter(p, p.node in nodes.items.map(n, n.name))`: {"pods"},
		`pods.items.map(p, p.spec)[0].volumes`:                       {"pods"},
		`running`:                                                    {"pods"},
		`both.filter(x, x.old)`:                                      {"nodes", "pods"},
		`[pods.items[0], nodes.items[0]]`:                            nil,
		`params.list`:                                                nil,
		`f(pods.items)`:                                              nil,
		`"text"`:                                                     nil,
		`pods.items == [] ? [] : nodes.items`:                        nil,
	} {
		got := FindLeadingTargets(parse(t, source).Root, func(name string) bool { return name == "pods" || name == "nodes" }, func(name string) *Tree { return variables[name] })
		if !slices.Equal(got, want) {
			t.Errorf("%s is about %q, and not %q", source, got, want)
		}
	}
}
