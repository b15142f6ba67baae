// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/spiderpool"
)

const (
	ippool      = "ipam.spidernet.io/ippool"
	ippools     = "ipam.spidernet.io/ippools"
	ofEth0      = "v1.multus-cni.io/default-network"
	allNetworks = "k8s.v1.cni.cncf.io/networks"
)

// Annotations that name more than anybody needs are passed over before anything is made of them, and what is made of the others
// is bounded: they leave the variables that all rules share what these need for everybody else, and their Pods leave the Pods of
// other Namespaces a place among those that are looked at.
func TestSpiderpoolConflictsOfLongAnnotations(t *testing.T) {
	repeat := func(text string, n int) string { return strings.TrimSuffix(strings.Repeat(text+",", n), ",") }
	list := func(n int, write func(i int) string) string {
		var texts []string
		for i := range n {
			texts = append(texts, write(i))
		}
		return strings.Join(texts, ",")
	}
	always := func(annotations map[string]any) func(int) map[string]any {
		return func(int) map[string]any { return annotations }
	}
	for name, kinds := range map[string]map[string]func(pod int) map[string]any{
		"too much": {
			"networks":         always(map[string]any{allNetworks: repeat("a", 2048), ofEth0: repeat("a", 2048)}),
			"objects":          always(map[string]any{allNetworks: "[" + repeat("{}", 1364) + "]", ofEth0: " [" + repeat("{}", 1364) + "]"}),
			"values":           always(map[string]any{allNetworks: "[" + repeat("0", 2047) + "]", ofEth0: "[" + repeat("{}", 24) + "]"}),
			"lists":            always(map[string]any{allNetworks: strings.Repeat("[", 2048) + strings.Repeat("]", 2048)}),
			"one-too-many":     always(map[string]any{allNetworks: repeat("a", 17)}),
			"objects-too-many": always(map[string]any{allNetworks: "[" + repeat(`{"name":"a"}`, 17) + "]"}),
			"pools":            always(map[string]any{ippool: `{"ipv4":[` + repeat(`"*"`, 1000) + `]}`}),
			"interfaces":       always(map[string]any{ippools: "[" + repeat(`{"ipv4":[]}`, 300) + "]"}),
			"long":             always(map[string]any{ippools: `[{"ipv4":["` + strings.Repeat("a", 200_000) + `"]}]`}),
		},
		"networks": {"pod": func(pod int) map[string]any {
			return map[string]any{
				allNetworks: list(16, func(i int) string { return fmt.Sprintf("%d-%d-%s", pod, i, strings.Repeat("n", 240)) }),
				ofEth0:      "[" + repeat(`{"name":"`+strings.Repeat("n", 240)+`"}`, 16) + "]",
			}
		}},
		"default pools": {"pod": always(map[string]any{allNetworks: repeat("macvlan", 16)})},
		"patterns": {"pod": func(pod int) map[string]any {
			return map[string]any{ippool: `{"ipv4":[` + list(4, func(i int) string {
				n := 4*pod + i
				return `"` + strings.Repeat("*", n%20) + "-" + strings.Repeat("*", 45-n%20-n/20%20) + strings.Repeat("?", n/20%4) + `"`
			}) + `]}`}
		}},
		"pools of patterns": {"pod": always(map[string]any{ippools: "[" + list(16, func(i int) string { return fmt.Sprintf(`{"interface":"net%d","ipv4":["*"],"ipv6":["*"]}`, i+1) }) + "]"})},
	} {
		t.Run(name, func(t *testing.T) {
			world := gather(t, gathered, gathered/mostPools)
			c := &crowd{t: t, world: world}
			c.add(spiderpool.Group(), "SpiderMultusConfig", "a-tenant", "macvlan", map[string]any{"spec": map[string]any{"cniType": "macvlan"}})
			for kind, annotate := range kinds {
				for i := range 100 {
					name := fmt.Sprintf("%s-%d", kind, i)
					c.add(corev1.SchemeGroupVersion, "Pod", "a-tenant", name, map[string]any{
						"metadata": map[string]any{"uid": name, "annotations": annotate(i)},
						"spec":     map[string]any{"nodeName": "worker"}, "status": map[string]any{"phase": "Pending"},
					})
				}
			}
			expectAll(t, world)
		})
	}
}

// What else users of namespaces write, or ask for, takes as little from the rules: owners of Pods that are many, lists of pools in
// SpiderMultusConfigs and Namespaces, and Pods that are each of another kind.
func TestSpiderpoolConflictsOfWhatElseTenantsWrite(t *testing.T) {
	const tenant = "a-tenant"
	names := func(n, length int) (all []any) {
		for i := range n {
			all = append(all, fmt.Sprintf("%d-%s", i, strings.Repeat("n", length)))
		}
		return all
	}
	wait := func(c *crowd, n int, metadata func(i int) map[string]any) {
		for i := range n {
			m := metadata(i)
			name := fmt.Sprintf("waits-%d", i)
			m["uid"] = tenant + name
			c.add(corev1.SchemeGroupVersion, "Pod", tenant, name, map[string]any{"metadata": m, "spec": map[string]any{"nodeName": "worker"}, "status": map[string]any{"phase": "Pending"}})
		}
	}
	for name, write := range map[string]func(c *crowd){
		"owners": func(c *crowd) {
			var owners []any
			for _, name := range names(10_000, 10) {
				owners = append(owners, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name})
			}
			wait(c, 400, func(int) map[string]any { return map[string]any{"ownerReferences": owners} })
		},
		"pools of networks": func(c *crowd) {
			for name, pools := range map[string][]any{"many": names(50_000, 1), "long": names(32, 40_000)} {
				c.add(spiderpool.Group(), "SpiderMultusConfig", tenant, name, map[string]any{"spec": map[string]any{
					"cniType": "macvlan", "macvlan": map[string]any{"ippools": map[string]any{"ipv4": pools}},
				}})
			}
			networks := strings.TrimSuffix(strings.Repeat("many,long,", 8), ",")
			wait(c, 100, func(int) map[string]any { return map[string]any{"annotations": map[string]any{allNetworks: networks}} })
		},
		"pools of a Namespace": func(c *crowd) {
			c.add(corev1.SchemeGroupVersion, "Namespace", "", tenant, map[string]any{"metadata": map[string]any{"annotations": map[string]any{
				"ipam.spidernet.io/default-ipv4-ippool": `["` + strings.Repeat(`","`, 80_000) + `"]`,
			}}})
			wait(c, 100, func(int) map[string]any { return map[string]any{} })
		},
		"kinds": func(c *crowd) {
			wait(c, 5000, func(i int) map[string]any {
				return map[string]any{"annotations": map[string]any{allNetworks: fmt.Sprint(i, strings.Repeat("n", 240)), ofEth0: strings.Repeat("n", 240)}}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := gather(t, gathered, gathered/mostPools)
			write(&crowd{t: t, world: world})
			expectAll(t, world)
		})
	}
}

// gathered is how many addresses there are beside what tenants write, and spared is how many more there might be: what these would take is taken off
// the limits.
const gathered, spared = 45_000, 350_000

// expectAll expects that the rules find what is wrong in a cluster that was gathered, whatever was added to it.
func expectAll(t *testing.T, world *snapshot.Objects) {
	t.Helper()
	if err := world.SortObjects(); err != nil {
		t.Fatal(err)
	}
	limits := budget.Limits{}.WithDefaults(enoughMemory)
	for _, limit := range []*int64{&limits.Steps, &limits.AllSteps, &limits.Growth} {
		*limit -= *limit / mostAddresses * spared
	}
	limits.Wall, limits.SearchWall = time.Hour, time.Hour // however slow this machine is
	found, wrong := survey(t, compileConflicts(t, limits), world)
	if want := []string{"pod-with-another-address", "pool-without-addresses", "record-without-endpoint"}; !slices.Equal(found, want) || len(wrong) > 0 {
		t.Errorf("beside them %q are found, want %q, and these cannot be looked for: %q", found, want, wrong)
	}
}
