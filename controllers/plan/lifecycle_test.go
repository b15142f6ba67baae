// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/backoff"
	"github.com/vtex/cleaner/controllers/plan/itemerrors"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// A Cleaner that cleans once begins when all that its rules want is due, and ends with that.
func TestOnceWithRules(t *testing.T) {
	done := func(r *v1alpha1.Rule) { r.When = `item.spec.done == "yes"` }
	cases := map[string]struct {
		reason  string
		rules   []v1alpha1.Rule
		pods    []observed.Object
		change  func(*Input, *v1alpha1.Work)
		verdict v1alpha1.Verdict
		why     string
		steps   []string
	}{
		"Acts":    {"what is due is done", []v1alpha1.Rule{rule(done)}, []observed.Object{p("a", "done:yes"), p("b", "done:no")}, nil, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet, []string{"r delete a"}},
		"Nothing": {"when nothing is left it ends", []v1alpha1.Rule{rule(done)}, []observed.Object{p("b", "done:no")}, nil, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet, nil},
		"Pending": {
			"what has yet to hold is waited for, with everything else", []v1alpha1.Rule{rule(), rule(func(r *v1alpha1.Rule) { r.Name, r.For = "later", "1h" })},
			[]observed.Object{p("a")}, nil, v1alpha1.VerdictWait, v1alpha1.ReasonHolding, nil,
		},
		"Error":    {"an error of one item stops it", []v1alpha1.Rule{rule(done)}, []observed.Object{p("a", "done:yes"), p("b")}, nil, v1alpha1.VerdictWait, v1alpha1.ReasonEvaluationFailed, nil},
		"Acting":   {"but not when it has begun", []v1alpha1.Rule{rule(done)}, []observed.Object{p("a", "done:yes"), p("b")}, func(in *Input, _ *v1alpha1.Work) { in.OpenRun = true }, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet, []string{"r delete a"}},
		"Withheld": {"a plan of nothing but what is protected is blocked", []v1alpha1.Rule{rule()}, []observed.Object{p("a", v1alpha1.ProtectKey+"=true")}, nil, v1alpha1.VerdictBlocked, v1alpha1.ReasonProtected, nil},
		"Reports":  {"a report is nothing to record", []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}} })}, []observed.Object{p("a")}, nil, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet, []string{"r report a"}},
		"Limits": {"limits count when it begins", []v1alpha1.Rule{rule()}, []observed.Object{p("a"), p("b")}, func(_ *Input, w *v1alpha1.Work) {
			w.Limits = &v1alpha1.Limits{MaxActions: 1}
		}, v1alpha1.VerdictBlocked, v1alpha1.ReasonLimitExceeded, []string{"r delete a", "r delete b"}},
		"TooMany": {"as does what one run can record", []v1alpha1.Rule{rule()}, many(MaxRows + 1), nil, v1alpha1.VerdictBlocked, v1alpha1.ReasonTooManyObjects, nil},
		"Data": {"as does an event that cannot be told", []v1alpha1.Rule{rule()}, []observed.Object{p("a")}, func(_ *Input, w *v1alpha1.Work) {
			w.CloudEventData = "pods.items[0].spec.x"
		}, v1alpha1.VerdictBlocked, v1alpha1.ReasonEvaluationFailed, []string{"r delete a"}},
		"NoDataWhileActing": {"which was told then", []v1alpha1.Rule{rule()}, []observed.Object{p("a")}, func(in *Input, w *v1alpha1.Work) {
			w.CloudEventData, in.OpenRun = "pods.items[0].spec.x", true
		}, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet, []string{"r delete a"}},
		"NoDataIfItStays": {"which nobody is told of one that stays", []v1alpha1.Rule{rule()}, []observed.Object{p("a")}, func(_ *Input, w *v1alpha1.Work) {
			w.CloudEventData, w.Lifecycle = "pods.items[0].spec.x", v1alpha1.LifecycleRecurring
		}, v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet, []string{"r delete a"}},
		"Node": {"a Cleaner never acts on what lies in no namespace", []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) {
			r.ForEach, r.Actions = "nodes.items", []v1alpha1.RuleAction{patches("{}")}
		})}, nil, nil, v1alpha1.VerdictWait, v1alpha1.ReasonEvaluationFailed, nil},
		"Elsewhere": {"nor outside its own", []v1alpha1.Rule{rule()}, []observed.Object{object(pods, "Pod", "other", "x")}, nil, v1alpha1.VerdictWait, v1alpha1.ReasonEvaluationFailed, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			work := cluster(tc.rules...)
			work.Lifecycle, work.Cluster = v1alpha1.LifecycleOnce, false
			var change Input
			if tc.change != nil {
				tc.change(&change, work)
			}
			for i := range tc.pods {
				if meta := tc.pods[i].Value["metadata"].(map[string]any); meta["uid"] == nil { // those of many
					tc.pods[i] = p(tc.pods[i].Name)
				}
			}
			in := over(t, work, tc.pods...)
			in.Owner.Namespace, in.OpenRun = "shop", change.OpenRun
			plan := ComputePlan(t.Context(), in)
			if plan.Verdict != tc.verdict || plan.Reason != tc.why || plan.Message == "" {
				t.Errorf("%s: got %s, %s: %s", tc.reason, plan.Verdict, plan.Reason, plan.Message)
			}
			if len(plan.Steps) > MaxRows {
				plan.Steps = nil
			}
			if diff := cmp.Diff(tc.steps, shorts(plan.Steps)); diff != "" {
				t.Errorf("%s:\n-want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// An evaluation that was interrupted has asked about some items only.
func TestInterrupted(t *testing.T) {
	in := over(t, cluster(rule(), rule(func(r *v1alpha1.Rule) { r.Name, r.For = "later", "1m" })), p("a"))
	in.Holds = ComputePlan(t.Context(), in).Holds
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	plan := ComputePlan(ctx, in)
	if plan.Verdict != v1alpha1.VerdictWait || plan.Reason != v1alpha1.ReasonEvaluationFailed || len(plan.Steps) > 0 {
		t.Errorf("got %s, %s", plan.Verdict, plan.Message)
	}
	if diff := cmp.Diff(in.Holds.BlindAll(in.Now), plan.Holds); diff != "" || len(plan.Holds) != 1 {
		t.Errorf("holds were lost:\n%s", diff)
	}
}

func TestNextOfRules(t *testing.T) {
	cases := map[string]struct {
		reason string
		rule   v1alpha1.Rule
		change func(*Input, *v1alpha1.Work)
		want   time.Duration // from now
	}{
		"Period": {"the period is the longest time", rule(), nil, time.Hour},
		"Hold":   {"a hold ends before", rule(func(r *v1alpha1.Rule) { r.For = `item.metadata.name == "a" ? "10m" : "5m"` }), nil, 5 * time.Minute},
		"Backoff": {"what failed is tried again", rule(), func(in *Input, _ *v1alpha1.Work) {
			in.Backoff = backoff.Failures{"uid-a": {Until: in.Now.Add(2 * time.Second)}, "uid-x": {Until: in.Now.Add(time.Second)}}
		}, 2 * time.Second},
		"Limit": {"a limit lets go when what was done counts no longer", rule(), func(in *Input, w *v1alpha1.Work) {
			w.Limits = &v1alpha1.Limits{MaxActions: 2}
			in.Done = limits.Done{{At: in.Now.Add(-50 * time.Minute), UID: "x"}, {At: in.Now, UID: "y"}}
		}, 10 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			work, change := cluster(tc.rule), Input{Now: born.Add(24 * time.Hour)}
			if tc.change != nil {
				tc.change(&change, work)
			}
			in := over(t, work, p("a"), p("b"))
			in.Backoff, in.Done = change.Backoff, change.Done
			if plan := ComputePlan(t.Context(), in); plan.Next.Sub(in.Now) != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, plan.Next.Sub(in.Now), tc.want)
			}
		})
	}
}

// What happens to many items is told, but not endlessly.
func TestErrorsAreBounded(t *testing.T) {
	work := cluster(rule(func(r *v1alpha1.Rule) { r.For = `item.metadata.name` }))
	objects := make([]observed.Object, 3*itemerrors.MaxErrors)
	for i := range objects {
		objects[i] = p(fmt.Sprintf("p-%04d", i))
	}
	plan := ComputePlan(t.Context(), over(t, work, objects...))
	total := int64(0)
	for _, e := range plan.Errors {
		total += e.Count
	}
	if last := plan.Errors[len(plan.Errors)-1]; len(plan.Errors) != itemerrors.MaxErrors+1 || last.Message != itemerrors.OtherErrors || total != int64(len(objects)) {
		t.Errorf("got %d rows about %d items, the last one %+v", len(plan.Errors), total, last)
	}
}

// While a Cleaner waits or has nothing to do, its message does not change with every look.
func TestMessagesHoldNoCounters(t *testing.T) {
	messages := map[string]bool{}
	for n := 1; n < 4; n++ {
		for _, r := range []v1alpha1.Rule{rule(func(r *v1alpha1.Rule) { r.For = "1h" }), rule(func(r *v1alpha1.Rule) { r.When = "false" })} {
			objects := make([]observed.Object, n)
			for i := range objects {
				objects[i] = p(fmt.Sprintf("p-%d", i))
			}
			plan := ComputePlan(t.Context(), over(t, cluster(r), objects...))
			messages[plan.Message] = true
		}
	}
	if len(messages) != 2 {
		t.Errorf("got %v", messages)
	}
}

// In files objects have no UID: they are told apart nevertheless.
func TestObjectsWithoutUID(t *testing.T) {
	bare := func(o observed.Object) observed.Object {
		o.UID, o.ResourceVersion = "", ""
		meta := o.Value["metadata"].(map[string]any)
		delete(meta, "uid")
		delete(meta, "resourceVersion")
		return o
	}
	work := cluster(
		rule(func(r *v1alpha1.Rule) { r.When, r.For = `item.metadata.name == "a"`, "0s" }),
		rule(func(r *v1alpha1.Rule) { r.Name, r.When = "s", `item.metadata.name != "c"` }),
	)
	work.Targets[0].Delete = true
	work.Limits = &v1alpha1.Limits{MaxActions: 3}
	plan := ComputePlan(t.Context(), over(t, work, bare(p("a")), bare(p("b")), bare(p("c"))))
	var got []string
	for i := range plan.Steps {
		got = append(got, plan.Steps[i].Rule+" "+plan.Steps[i].Object.Name)
	}
	if diff := cmp.Diff([]string{"r a", "s b", "targets.pods c"}, got); diff != "" || plan.Verdict != v1alpha1.VerdictAct {
		t.Errorf("%s: -want +got\n%s", plan.Verdict, diff)
	}
}

// An object that is in two targets is acted on at the version that the item showed.
func TestTheVersionOfTheItemCounts(t *testing.T) {
	newer := p("a")
	newer.ResourceVersion = "9"
	newer.Value["metadata"].(map[string]any)["resourceVersion"] = "9"
	work := cluster(rule(func(r *v1alpha1.Rule) { r.ForEach = "again.items" }))
	work.Targets[2] = target("again", "Pod")
	in := over(t, work, p("a"))
	in.Snapshot[2] = seen(newer)
	plan := ComputePlan(t.Context(), in)
	if len(plan.Steps) != 1 || plan.Steps[0].Object.ResourceVersion != "9" {
		t.Errorf("got %+v", plan.Steps)
	}
}

// A step is named by its object, whatever items it stands for, and by its item where that is no object.
func TestDescribeObject(t *testing.T) {
	of := func(o observed.Object, keys ...string) *Step { return &Step{Object: o, Keys: keys} }
	for name, tc := range map[string]struct {
		step *Step
		want string
	}{
		"Object":            {of(p("a"), "k", "l"), "Pod shop/a"},
		"ObjectWithoutKeys": {of(p("a")), "Pod shop/a"},
		"Item":              {of(observed.Object{}, "k"), "k"},
		"FirstOfSeveral":    {of(observed.Object{}, "k", "l"), "k"},
		"Nothing":           {of(observed.Object{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.step.DescribeObject(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestATemplateLendsNobodyARole shows that a template has nothing patched that the API server judges by who asks, whatever
// account those name who use it: its author may not act as that account.
func TestATemplateLendsNobodyARole(t *testing.T) {
	account := &v1alpha1.ServiceAccountReference{Name: "bot"}
	binding := object(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, "RoleBinding", "shop", "b")
	pod := p("a")
	for name, tc := range map[string]struct {
		spec   v1alpha1.Work
		verb   Verb
		object *observed.Object
		want   bool
	}{
		"WithParameters":    {v1alpha1.Work{ServiceAccount: account, Declared: []string{"app"}}, VerbPatch, &binding, true},
		"WithoutParameters": {v1alpha1.Work{ServiceAccount: account, Declared: []string{}, Cluster: true}, VerbPatch, &binding, true},
		"ItsOwn":            {v1alpha1.Work{ServiceAccount: account}, VerbPatch, &binding, false},
		"OtherKinds":        {v1alpha1.Work{ServiceAccount: account, Declared: []string{}}, VerbPatch, &pod, false},
		"Finalizer":         {v1alpha1.Work{ServiceAccount: account, Declared: []string{}}, VerbRemoveFinalizer, &binding, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := Protection{}.ForSpec(&tc.spec).ForbidsVerb(tc.verb, tc.object)
			if (got != "") != tc.want || tc.want && !strings.Contains(got, "write the rule into the Cleaner itself") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestTheOperatorsRightsLendNobodyARole shows that what the API server judges by who asks is not patched as the operator:
// it would let the operator grant what the author of the rule may not.
func TestTheOperatorsRightsLendNobodyARole(t *testing.T) {
	bindingOf := func(group string) observed.Object {
		return object(schema.GroupVersionResource{Group: group, Version: "v1", Resource: "rolebindings"}, "RoleBinding", "shop", "b")
	}
	account := &v1alpha1.ServiceAccountReference{Name: "bot"}
	for name, tc := range map[string]struct {
		spec      v1alpha1.Work
		verb      Verb
		forbidden bool
	}{
		"Unnamed":          {v1alpha1.Work{}, VerbPatch, true},
		"UnnamedInCluster": {v1alpha1.Work{Cluster: true}, VerbPatch, true},
		"ServiceAccount":   {v1alpha1.Work{ServiceAccount: account}, VerbPatch, false},
		"Finalizer":        {v1alpha1.Work{}, VerbRemoveFinalizer, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, group := range []string{"rbac.authorization.k8s.io", "authorization.openshift.io", "certificates.k8s.io", "admissionregistration.k8s.io", "resource.k8s.io"} {
				binding := bindingOf(group)
				got := Protection{}.ForSpec(&tc.spec).ForbidsVerb(tc.verb, &binding)
				if (got != "") != tc.forbidden || tc.forbidden && !strings.Contains(got, "which would be the operator") {
					t.Errorf("%s: got %q", group, got)
				}
			}
		})
	}
}

func TestProtectionOfVerbs(t *testing.T) {
	namespaces := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	projects := schema.GroupVersionResource{Group: "project.openshift.io", Version: "v1", Resource: "projects"}
	cleaners := schema.GroupVersionResource{Group: "cleaner.vtex.dev", Version: "v1alpha1", Resource: "cleaners"}
	release := object(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", "shop", "sh.helm.release.v1.x.v1")
	protection := Protection{Namespaces: []string{"kube-system"}, Own: "cleaner-system"}
	all := []Verb{VerbDelete, VerbEvict, VerbPatch, VerbRemoveFinalizer}
	cases := map[string]struct {
		object observed.Object
		verbs  []Verb // that are forbidden
	}{
		"Plain":        {p("a"), nil},
		"Labelled":     {p("a", v1alpha1.ProtectKey+"=true"), all},
		"Namespace":    {object(pods, "Pod", "kube-system", "a"), all},
		"Own":          {object(pods, "Pod", "cleaner-system", "a"), all},
		"Release":      {release, all},
		"Node":         {object(nodes, "Node", "", "n"), []Verb{VerbDelete, VerbEvict}},
		"Cleaner":      {object(cleaners, "Cleaner", "shop", "c"), all},
		"ItsNamespace": {object(namespaces, "Namespace", "", "kube-system"), all},
		"OwnNamespace": {object(namespaces, "Namespace", "", "cleaner-system"), all},
		"ItsProject":   {object(projects, "Project", "", "kube-system"), all},
		"OwnProject":   {object(projects, "Project", "", "cleaner-system"), all},
		"AProject":     {object(projects, "Project", "", "shop"), []Verb{VerbDelete, VerbEvict}},
		"ANamespace":   {object(namespaces, "Namespace", "", "shop"), []Verb{VerbDelete, VerbEvict}},
		"NamedAlike":   {p("kube-system"), nil}, // no Namespace
		"NamedAsOwn":   {p("cleaner-system"), nil},
		"LongName":     {p(strings.Repeat("a", runrow.MaxName)), nil},
		"TooLongName":  {p(strings.Repeat("a", runrow.MaxName+1)), all},
		"Control":      {p("a\x01"), all},
		"NewLine":      {p("a\nb"), all},
		"C1Control":    {p("a\u009bb"), all},
		"OddName":      {p(" \u202e名"), nil},
		"NoUTF8":       {p("a\xffb"), all},
		"NoUTF8InJSON": {p("a\ufffdb"), all},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if protection.ForbidsVerb(VerbReport, &tc.object) != "" {
				t.Error("to report it is no deed")
			}
			var forbidden []Verb
			for _, verb := range all {
				if protection.ForbidsVerb(verb, &tc.object) != "" {
					forbidden = append(forbidden, verb)
				}
			}
			if diff := cmp.Diff(tc.verbs, forbidden); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestProtectionOfReleaseRecords shows that of the records of Helm releases only superseded ones are deleted, and only for who asks for
// records by their type: a rule over all Secrets, whose author may not know of them, deletes none.
func TestProtectionOfReleaseRecords(t *testing.T) {
	secrets := func(fieldSelector string) v1alpha1.ClusterTarget {
		return v1alpha1.ClusterTarget{Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Secret", FieldSelector: fieldSelector}}}
	}
	plural := secrets("")
	plural.Reference.Kind = "SECRETS"
	others := v1alpha1.ClusterTarget{Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod"}}}
	record := func(labels ...string) observed.Object {
		return object(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, "Secret", "shop", "sh.helm.release.v1.web.v1", labels...)
	}
	superseded := record("owner=helm", "status=superseded")
	asked := []v1alpha1.ClusterTarget{others, secrets("type=helm.sh/release.v1")}
	for name, tc := range map[string]struct {
		targets []v1alpha1.ClusterTarget
		object  observed.Object
		want    string // a part of the reason; empty: it may be deleted
	}{
		"Superseded":     {asked, superseded, ""},
		"AmongOthers":    {[]v1alpha1.ClusterTarget{secrets("metadata.name!=a,type==helm.sh/release.v1")}, superseded, ""},
		"Deployed":       {asked, record("owner=helm", "status=deployed"), "status=superseded"},
		"Failed":         {asked, record("owner=helm", "status=failed"), "status=superseded"},
		"Pending":        {asked, record("owner=helm", "status=pending-upgrade"), "status=superseded"},
		"OfAnother":      {asked, record("owner=tiller", "status=superseded"), "owner=helm"},
		"Unlabelled":     {asked, record(), "owner=helm"},
		"Marked":         {asked, record("owner=helm", "status=superseded", v1alpha1.ProtectKey+"=true"), "protect"},
		"AllSecrets":     {[]v1alpha1.ClusterTarget{secrets("")}, superseded, "spec.helm"},
		"AllSecretsToo":  {append([]v1alpha1.ClusterTarget{secrets("")}, asked...), superseded, "spec.helm"},
		"AllInOtherWord": {append([]v1alpha1.ClusterTarget{plural}, asked...), superseded, "spec.helm"},
		"AllButOpaque":   {[]v1alpha1.ClusterTarget{secrets("type!=Opaque")}, superseded, "spec.helm"},
		"AllButRecords":  {[]v1alpha1.ClusterTarget{secrets("type!=helm.sh/release.v1")}, superseded, "spec.helm"},
		"OtherType":      {[]v1alpha1.ClusterTarget{secrets("type=Opaque")}, superseded, "spec.helm"},
		"Unreadable":     {[]v1alpha1.ClusterTarget{secrets("type")}, superseded, "spec.helm"},
		"NoTarget":       {nil, superseded, "spec.helm"},
		"NoSecretTarget": {[]v1alpha1.ClusterTarget{others}, superseded, "spec.helm"},
	} {
		t.Run(name, func(t *testing.T) {
			p := Protection{}.ForSpec(&v1alpha1.Work{Targets: tc.targets})
			if got := p.ForbidsDelete(&tc.object); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			for _, verb := range []Verb{VerbEvict, VerbPatch, VerbRemoveFinalizer} {
				if p.ForbidsVerb(verb, &tc.object) == "" {
					t.Errorf("%v is allowed", verb)
				}
			}
		})
	}
}

// A refused request is named by what it would have done.
func TestRefusalReason(t *testing.T) {
	for verb, want := range map[Verb]string{
		VerbDelete: v1alpha1.ReasonDeletionRefused, VerbEvict: v1alpha1.ReasonEvictionRefused, VerbPatch: v1alpha1.ReasonPatchRefused, VerbRemoveFinalizer: v1alpha1.ReasonPatchRefused, VerbHelmUninstall: v1alpha1.ReasonUninstallFailed,
	} {
		if got := verb.RefusalReason(); got != want || !IsRefusal(got) {
			t.Errorf("%s: got %q, want %q", verb, got, want)
		}
	}
	for _, reason := range []string{"", v1alpha1.ReasonReadFailed, v1alpha1.ReasonTargetUnstable, v1alpha1.ReasonRecreationLoop} {
		if IsRefusal(reason) {
			t.Errorf("%q is no refusal", reason)
		}
	}
}
