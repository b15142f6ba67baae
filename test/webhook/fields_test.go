// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/controllers/kindschemas"
)

// reads is the spec of a rule over a kind.
func reads(apiGroup, kind, when, more string) string {
	return fmt.Sprintf(`{lifecycle: Recurring, %s targets: [{name: all, reference: {apiGroup: %q, version: v1, kind: %s}}],
  rules: [{name: r, forEach: all.items, when: '%s', actions: [{report: {}}]}]}`, more, apiGroup, kind, when)
}

// A field that no object has is refused when a Cleaner is created, or its spec changes, and not when something else changes.
func TestUnknownFieldsAreRefused(t *testing.T) {
	ns := shared.namespace(t)
	for name, tc := range map[string]struct{ spec, denied, warned string }{
		"built-in":     {spec: reads("", "Pod", `item.?status.?phse.orValue("") == "Failed"`, ""), denied: `spec.rules[0].when: 1:13: Pod has no field status.phse; did you mean "phase"?`},
		"enum":         {spec: reads("", "Pod", `item.status.phase == "Faild"`, ""), denied: `status.phase of a Pod is never "Faild"; did you mean "Failed"?`},
		"of our kinds": {spec: strings.ReplaceAll(reads("cleaner.vtex.dev", "Cleaner", `has(item.spec.tttl)`, ""), "version: v1,", "version: v1alpha1,"), denied: `Cleaner has no field spec.tttl; did you mean "ttl"?`},
		"warned":       {spec: reads("", "Pod", `has(item.status.phse)`, "validation: Warn,"), warned: `Pod has no field status.phse; did you mean "phase"?`},
		"ignored":      {spec: reads("", "Pod", `has(item.status.phse)`, "validation: Ignore,")},
		"likely":       {spec: reads("", "Pod", `condition(item, "Raedy").hasValue()`, ""), warned: `is hardly ever "Raedy"; did you mean "Ready"?`},
		"sound":        {spec: reads("", "Pod", `item.?status.?phase.orValue("") == "Failed"`, "")},
	} {
		t.Run(name, func(t *testing.T) {
			warnings, err := shared.createWarned(t, cleaner(t, ns, strings.ReplaceAll(name, " ", "-"), tc.spec))
			if tc.denied != "" && (err == nil || !strings.Contains(err.Error(), tc.denied)) || tc.denied == "" && err != nil {
				t.Errorf("got %v, want %q", err, tc.denied)
			}
			if said := strings.Join(warnings, "\n"); !strings.Contains(said, tc.warned) || tc.warned == "" && strings.Contains(said, "field") {
				t.Errorf("warned %q, want %q", said, tc.warned)
			}
		})
	}
}

// The schemas that are made of Go types say the same as those that the API server publishes, for every kind that both have.
func TestSchemasOfGoTypesMatchTheServer(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(shared.Config())
	if err != nil {
		t.Fatal(err)
	}
	reader := kindschemas.NewReader(d.RESTClient(), clock.RealClock{})
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	compared, fields, newer := 0, 0, 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			gvk := gv.WithKind(r.Kind)
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || !scheme.Scheme.Recognizes(gvk) {
				continue
			}
			published, err := reader.FindSchema(t.Context(), gvk)
			if err != nil {
				t.Fatal(err)
			}
			c := &comparison{seen: map[[2]*objectschema.Schema]bool{}}
			c.compare(r.Kind, objectschema.OfBuiltIn(scheme.Scheme, gvk), published)
			for _, difference := range c.differences {
				t.Errorf("%s: %s", gvk, difference)
			}
			compared, fields, newer = compared+1, fields+c.fields, newer+c.newer
		}
	}
	if compared < 40 || fields < 5000 || newer > fields/10 { // the Go types are of a later release than the API server
		t.Errorf("compared %d kinds with %d fields; the API server does not have %d of them", compared, fields, newer)
	}
}

// comparison compares schemas. Each pair is looked at once.
type comparison struct {
	seen          map[[2]*objectschema.Schema]bool
	differences   []string
	fields, newer int
}

func (c *comparison) compare(path string, ours, theirs *objectschema.Schema) {
	pair := [2]*objectschema.Schema{ours, theirs}
	if c.seen[pair] || ours == nil && (theirs == nil || theirs.Open) {
		return
	}
	c.seen[pair] = true
	if ours == nil || theirs == nil {
		c.differences = append(c.differences, fmt.Sprintf("%s: ours is %v, theirs %v", path, ours, theirs))
		return
	}
	if ours.Types != theirs.Types {
		c.differences = append(c.differences, fmt.Sprintf("%s: ours is %s, theirs %s", path, ours.Types, theirs.Types))
	}
	if len(ours.Enum) > 0 && !slices.Equal(slices.Sorted(slices.Values(ours.Enum)), slices.Sorted(slices.Values(theirs.Enum))) {
		c.differences = append(c.differences, fmt.Sprintf("%s: ours is one of %v, theirs of %v", path, ours.Enum, theirs.Enum))
	}
	for _, key := range slices.Compact(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(ours.Fields)), slices.Collect(maps.Keys(theirs.Fields))...)))) {
		mine, has := ours.Fields[key]
		other, had := theirs.Fields[key]
		c.fields++
		switch {
		case has && had:
			c.compare(path+"."+key, mine, other)
		case has:
			c.newer++
		case !strings.Contains(path+key, "nodeAllocatableResource"): // of a feature in alpha, of which the next release has renamed fields
			c.differences = append(c.differences, fmt.Sprintf("ours has no %s.%s", path, key))
		}
	}
	if ours.Elements != theirs.Elements {
		c.compare(path+"[*]", ours.Elements, theirs.Elements)
	}
	if ours.Entries != theirs.Entries {
		c.compare(path+"{*}", ours.Entries, theirs.Entries)
	}
}

// createWarned creates an object, and returns what the API server warns of.
func (e *env) createWarned(t *testing.T, c client.Object) ([]string, error) {
	t.Helper()
	heard := &recorder{}
	config := e.Config()
	config.WarningHandlerWithContext = heard
	warned, err := clientOf(config)
	if err != nil {
		t.Fatal(err)
	}
	err = warned.Create(t.Context(), c, client.DryRunAll)
	return heard.warnings, err
}
