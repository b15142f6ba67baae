// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/spiderpool"
)

// mostAddresses is how many addresses the template is said to look at, in so many pools, and tooMany is more than it does.
const mostAddresses, mostPools, tooMany = 500_000, 1000, 650_000

// enoughMemory is how much the operator must be allowed to have for that, and mostAsShipped is how many addresses the template looks at with as much
// as the operator has as it is shipped.
const enoughMemory, mostAsShipped = 1536 << 20, 200_000

// pastItsBounds matches what an evaluation says that stopped at a bound of memory or of steps.
var pastItsBounds = regexp.MustCompile(`the evaluation (builds|needs) more than [0-9]+ `)

// Up to as many addresses as docs/templates.md says, all rules look at all of them. Above, those that cannot say so: none of them
// finds what is not there, or passes over what is there in silence.
func TestSpiderpoolConflictsOfManyAddresses(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "templates.md"))
	if err != nil {
		t.Fatal(err)
	}
	if said := "up to 500,000 addresses in 1,000 pools where `GOMEMLIMIT` is 1.5 GiB or more, and up to 200,000 as shipped"; !strings.Contains(string(text), said) {
		t.Errorf("docs/templates.md does not say %q", said)
	}
	const part = 10 // of the addresses and pools, and of what an evaluation may build and do
	compile := func(memory int64) *collector {
		limits := budget.Limits{}.WithDefaults(memory)
		limits.Steps, limits.AllSteps, limits.Growth, limits.Value = limits.Steps/part, limits.AllSteps/part, limits.Growth/part, limits.Value/part
		limits.Wall, limits.SearchWall = time.Hour, time.Hour // however slow this machine is
		return compileConflicts(t, limits)
	}
	const perPool = mostAddresses / mostPools
	want := []string{"pod-with-another-address", "pool-without-addresses", "record-without-endpoint"}
	for name, tc := range map[string]struct {
		addresses int
		memory    int64
		gathered  gathering
		more      []string
	}{
		"usual":            {mostAddresses, enoughMemory, gathering{}, nil},
		"with long names":  {mostAddresses, enoughMemory, gathering{longNames: true}, nil},
		"one twice":        {mostAddresses, enoughMemory, gathering{twice: true}, []string{"address-in-two-pools", "record-outside-pool"}},
		"in usual memory":  {mostAsShipped, budget.UsualMemory, gathering{}, nil},
		"long in as much":  {mostAsShipped, budget.UsualMemory, gathering{longNames: true}, nil},
		"twice in as much": {mostAsShipped, budget.UsualMemory, gathering{twice: true}, []string{"address-in-two-pools", "record-outside-pool"}},
	} {
		all := slices.Sorted(slices.Values(append(slices.Clone(want), tc.more...)))
		if found, wrong := survey(t, compile(tc.memory), tc.gathered.gather(t, tc.addresses/part, perPool)); !slices.Equal(found, all) || len(wrong) > 0 {
			t.Errorf("%s: of %d addresses %q are found, and these cannot be looked for: %q", name, tc.addresses, found, wrong)
		}
	}
	found, wrong := survey(t, compile(enoughMemory), gather(t, tooMany/part, perPool))
	for _, rule := range want {
		if !slices.Contains(found, rule) && !pastItsBounds.MatchString(wrong[rule]) {
			t.Errorf("of %d addresses %s finds nothing, and says %q", tooMany, rule, wrong[rule])
		}
	}
	if len(wrong) == 0 {
		t.Errorf("%d addresses are not too many: docs/templates.md can say more", tooMany)
	}
	for _, rule := range found {
		if !slices.Contains(want, rule) {
			t.Errorf("of %d addresses %s is found, which is not there", tooMany, rule)
		}
	}
}

// compileConflicts compiles the template for evaluations with these limits.
func compileConflicts(t *testing.T, limits budget.Limits) *collector {
	t.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return compiled(t, compiler, "spiderpool-conflicts", map[string]any{})
}

// crowd is a cluster in which so many Pods have an address of Spiderpool, as a Deployment's Pods do.
type crowd struct {
	t     *testing.T
	world *snapshot.Objects
}

func (c *crowd) add(gv schema.GroupVersion, kind, namespace, name string, fields map[string]any) {
	c.t.Helper()
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(gv.WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	if u.GetUID() == "" {
		u.SetUID("00000000-0000-0000-0000-000000000000")
	}
	u.SetResourceVersion("1")
	u.SetCreationTimestamp(metav1.NewTime(start.Add(-time.Hour)))
	if err := c.world.AddObject(u); err != nil {
		c.t.Fatal(err)
	}
}

// gather makes pools of so many addresses, up to 510, and a Pod for each address. The last Pod has another address than the one recorded, and
// the one before it has no endpoint; and 100 Pods wait for an address of any pool.
func gather(t *testing.T, addresses, perPool int) *snapshot.Objects {
	t.Helper()
	return gathering{}.gather(t, addresses, perPool)
}

// gathering is how to gather a cluster in another way.
type gathering struct {
	gone      int  // so many of the first Pods are not there, and an endpoint that is terminating has no record
	longNames bool // of Pods and their Namespace
	twice     bool // the second pool records the first address of the first one, too
}

func (g gathering) gather(t *testing.T, addresses, perPool int) *snapshot.Objects {
	t.Helper()
	c := &crowd{t: t, world: snapshot.NewObjects()}
	for kind, namespaced := range map[string]bool{"Pod": true, "Node": false, "Namespace": false} {
		c.world.AddKind(corev1.SchemeGroupVersion, metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: namespaced})
	}
	c.world.AddKind(appsv1.SchemeGroupVersion, metav1.APIResource{Name: "statefulsets", Kind: "StatefulSet", Namespaced: true})
	for kind, namespaced := range map[string]bool{"SpiderIPPool": false, "SpiderEndpoint": true, "SpiderSubnet": false, "SpiderReservedIP": false, "SpiderMultusConfig": true} {
		c.world.AddKind(spiderpool.Group(), metav1.APIResource{Name: strings.ToLower(kind) + "s", Kind: kind, Namespaced: namespaced})
	}
	namespace, prefix := "production", "frontend-7d9f8b6c5d"
	if g.longNames {
		namespace, prefix = "team-checkout-production-eu-west", "checkout-payment-gateway-service-7d9f8b6c5d"
	}
	nameOf := func(pod int) string { return fmt.Sprintf("%s-%05d", prefix, pod) }
	uidOf := func(pod int) string { return fmt.Sprintf("5f0c8a4e-1d2b-4c3d-9e8f-%012d", pod) }
	record := func(ip string, pod int) string {
		return fmt.Sprintf(`%q:{"interface":"eth0","pod":%q,"podUid":%q}`, ip, namespace+"/"+nameOf(pod), uidOf(pod))
	}
	for first := 0; first < addresses; first += perPool {
		number := first / perPool
		pool := fmt.Sprintf("node-pool-%04d", number)
		addressOf := func(i int) string { // each pool has 512
			at := 512*number + i
			return fmt.Sprintf("10.%d.%d.%d", at>>16, at>>8&255, at&255)
		}
		var records []string
		for i := range perPool {
			n := first + i
			name, uid, ip := nameOf(n), uidOf(n), addressOf(i+1)
			records = append(records, record(ip, n))
			has := ip
			if n == addresses-1 {
				has = "192.0.2.1"
			}
			if n >= g.gone {
				c.add(corev1.SchemeGroupVersion, "Pod", namespace, name, map[string]any{
					"metadata": map[string]any{"uid": uid, "ownerReferences": []any{map[string]any{
						"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "frontend-7d9f8b6c5d", "uid": "7d9f8b6c5d", "controller": true,
					}}},
					"spec":   map[string]any{"nodeName": "worker"},
					"status": map[string]any{"phase": "Running", "podIPs": []any{map[string]any{"ip": has}}},
				})
			}
			if n == addresses-2 {
				continue
			}
			c.add(spiderpool.Group(), "SpiderEndpoint", namespace, name, map[string]any{
				"metadata": map[string]any{"finalizers": []any{spiderpool.Finalizer}},
				"status": map[string]any{"ownerControllerType": "Deployment", "current": map[string]any{"uid": uid, "ips": []any{
					map[string]any{"interface": "eth0", "ipv4": ip + "/23", "ipv4Pool": pool},
				}}},
			})
		}
		if g.twice && number == 1 {
			records = append(records, record("10.0.0.1", 0))
		}
		c.add(spiderpool.Group(), "SpiderIPPool", "", pool, map[string]any{
			"spec":   map[string]any{"ipVersion": int64(4), "subnet": addressOf(0) + "/23", "ips": []any{addressOf(1) + "-" + addressOf(perPool)}, "default": true},
			"status": map[string]any{"allocatedIPs": "{" + strings.Join(records, ",") + "}"},
		})
	}
	if g.gone > 0 {
		c.add(spiderpool.Group(), "SpiderEndpoint", namespace, "gone", map[string]any{
			"metadata": map[string]any{"uid": "gone", "finalizers": []any{spiderpool.Finalizer}, "deletionTimestamp": start.Format(time.RFC3339)},
		})
	}
	for i := range 100 {
		name := fmt.Sprintf("waits-%d", i)
		c.add(corev1.SchemeGroupVersion, "Pod", namespace, name, map[string]any{
			"metadata": map[string]any{"uid": name}, "spec": map[string]any{"nodeName": "worker"}, "status": map[string]any{"phase": "Pending"},
		})
	}
	if err := c.world.SortObjects(); err != nil {
		t.Fatal(err)
	}
	return c.world
}

// survey is what the template reports of a cluster, and the rules that have errors.
func survey(t *testing.T, c *collector, world *snapshot.Objects) (found []string, wrong map[string]string) {
	t.Helper()
	in := plan.Input{
		Owner: plan.Owner{Name: "conflicts", UID: "conflicts", Created: start.Add(-time.Hour)}, Spec: c.work, Programs: c.programs,
		Snapshot: snapshot.ReadTargets(t.Context(), world, "", c.work), Batch: 1000, Confirmed: map[observed.Read]bool{}, Unreadable: map[observed.Read]string{},
	}
	var last plan.Plan
	for _, at := range []time.Duration{-10 * time.Minute, 0} {
		in.Now = start.Add(at)
		last = plan.ComputePlan(t.Context(), in)
		in.Holds = last.Holds
	}
	if last.Reason == v1alpha1.ReasonEvaluationFailed {
		t.Log(last.Message)
	}
	for len(last.Confirm) > 0 {
		for _, read := range last.Confirm {
			in.Confirmed[read] = true
		}
		last = plan.ComputePlan(t.Context(), in)
	}
	for i := range last.Steps {
		found = append(found, last.Steps[i].Rule)
	}
	wrong = map[string]string{}
	for _, e := range last.Errors {
		wrong[e.Rule] = e.Message
	}
	slices.Sort(found)
	return slices.Compact(found), wrong
}
