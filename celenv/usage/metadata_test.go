// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/celenv/projection"
)

func TestCheckMetadata(t *testing.T) {
	for name, tc := range map[string]struct {
		reading Reading
		want    string
	}{
		"Metadata": {reading: Reading{Projection: projection.Merge(projection.KeepPath("metadata", "labels"), projection.KeepPath("kind"), projection.KeepPath("apiVersion"))}},
		"Nothing":  {},
		"Spec":     {reading: Reading{Projection: projection.Merge(projection.KeepPath("spec", "a", "b"), projection.KeepPath("metadata"))}, want: `spec.targets[3]: Invalid value: "all": expressions read item.spec.a.b of target "all", of kind "*", and only its metadata is read: ` + useMetadata},
		"Shape":    {reading: Reading{Projection: &projection.Projection{Shape: true}}, want: `spec.targets[3]: Invalid value: "all": expressions read item.* of target "all", of kind "*", and only its metadata is read: ` + useMetadata},
		"Entries":  {reading: Reading{Projection: &projection.Projection{Entries: projection.All()}}, want: `spec.targets[3]: Invalid value: "all": expressions read item.* of target "all", of kind "*", and only its metadata is read: ` + useMetadata},
		"Refs":     {reading: Reading{Projection: &projection.Projection{References: []string{"Secret"}}}, want: `spec.targets[3]: Invalid value: "all": refs reads whole objects of target "all", of kind "*", and only its metadata is read: ` + useMetadata},
		"Whole":    {reading: Reading{Projection: projection.All(), WholeFor: "rules[0].when"}, want: `spec.rules[0].when: Invalid value: "all": reads whole objects of target "all", of kind "*": ` + useMetadata},
	} {
		got := ""
		if errs := CheckMetadata(field.NewPath("spec"), map[string]int{"all": 3}, map[string]Reading{"all": tc.reading, "pods": {Projection: projection.All(), WholeFor: "x"}}); len(errs) > 0 {
			got = errs[0].Error()
		}
		if got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
	if errs := CheckMetadata(field.NewPath("spec"), map[string]int{"unseen": 0}, nil); errs != nil {
		t.Errorf("a target that no expression sees: %v", errs)
	}
}
