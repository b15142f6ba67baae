// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/author"
)

// grants allows these rights, as "verb resource name". With an error, nobody knows of any right but that to watch.
type grants struct {
	rights []string
	err    error
	// lacks are those that other users than alice do not have.
	lacks []string
}

func (g grants) Create(_ context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	a := r.Spec.ResourceAttributes
	asked := strings.TrimSpace(a.Verb + " " + a.Resource + " " + a.Name)
	answer := r.DeepCopy()
	if g.err != nil && a.Verb != "watch" {
		return nil, g.err
	}
	if r.Spec.User != "alice" {
		answer.Status.Allowed = !slices.Contains(g.lacks, asked)
		return answer, nil
	}
	for _, right := range g.rights {
		answer.Status.Allowed = answer.Status.Allowed || right == asked || right == "*"
	}
	return answer, nil
}

var errAway = errors.New("the API server is away")

// unserved answers no question about kinds.
type unserved struct{}

func (unserved) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	return nil, errAway
}

// town is a validator of a cluster with these objects, in which a user has these rights.
func town(t *testing.T, rights []string, objects ...client.Object) *validator {
	t.Helper()
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &validator{
		compiler: compiler, discovery: podsAlone{}, fields: newFieldChecker(builtIn{}), reviews: grants{rights: rights}, keys: newKey(t), operator: &operatorIdentity{user: authenticationv1.UserInfo{Username: operator}},
		live: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
	}
}

// answered is an answer in one line.
func answered(r admission.Response) string {
	if r.Allowed {
		return strings.TrimSpace("allowed " + strings.Join(r.Warnings, "; "))
	}
	out := string(r.Result.Reason) + ": " + r.Result.Message
	if d := r.Result.Details; d != nil {
		out += " (" + d.Kind + " of " + d.Group + " " + d.Name
		for _, c := range d.Causes {
			out += ", " + c.Field
		}
		out += ")"
	}
	return out
}

// asking is a request of alice about an object.
func asking(t *testing.T, kind string, now, old any) admission.Request {
	t.Helper()
	raw := func(o any) runtime.RawExtension {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	r := admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind{Group: v1alpha1.GroupVersion.Group, Version: "v1alpha1", Kind: kind}, Namespace: "shop", Name: "c",
		Operation: admissionv1.Create, Object: raw(now), UserInfo: authenticationv1.UserInfo{Username: "alice"},
	}
	if old != nil {
		r.Operation, r.OldObject = admissionv1.Update, raw(old)
	}
	return admission.Request{AdmissionRequest: r}
}

// podsOf is a Cleaner that looks at Pods.
func podsOf(change ...func(c *v1alpha1.Cleaner)) *v1alpha1.Cleaner {
	c := &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "c", UID: "1", CreationTimestamp: metav1.NewTime(moment)},
		Spec: v1alpha1.CleanerSpec{
			CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"pods.items.size() > 0"}},
			Targets:    []v1alpha1.Target{{Name: "pods", Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", MatchLabels: map[string]string{}}}},
		},
	}
	for _, ch := range change {
		ch(c)
	}
	return c
}

// bodyOf is a template for what podsOf is.
func bodyOf(change ...func(t *v1alpha1.CleanerTemplate)) *v1alpha1.CleanerTemplate {
	spec := podsOf().Spec
	t := &v1alpha1.CleanerTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	t.Spec.Template.Conditions = spec.Conditions
	for _, target := range spec.Targets {
		t.Spec.Template.Targets = append(t.Spec.Template.Targets, v1alpha1.ClusterTarget{Name: target.Name, Reference: v1alpha1.ClusterReference{Reference: target.Reference}})
	}
	for _, ch := range change {
		ch(t)
	}
	return t
}

func using(c *v1alpha1.Cleaner) {
	c.Spec = v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleOnce, TemplateRef: &v1alpha1.TemplateRef{Name: "t"}}}
}

func removing(c *v1alpha1.Cleaner) { c.Spec.Targets[0].Delete = true }

// TestHandle shows what the webhook answers to those who write a Cleaner: they have the rights that it makes use of, or may
// not write it.
func TestHandle(t *testing.T) {
	looks := []string{"list pods", "watch pods"}
	for name, tc := range map[string]struct {
		rights  []string
		now     *v1alpha1.Cleaner
		old     *v1alpha1.Cleaner
		objects []client.Object
		change  func(v *validator, req *admission.Request)
		want    string
	}{
		"MayLook":                    {rights: looks, now: podsOf(), want: "allowed spec: nothing is deleted except the Cleaner itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink"},
		"MayNotLook":                 {rights: []string{"list pods"}, now: podsOf(), want: `Forbidden: a Cleaner may only do what its author may: user "alice" is not allowed to watch pods in namespace "shop" (Cleaner of cleaner.vtex.dev c)`},
		"MayNotDelete":               {rights: append(looks, "get pods"), now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.Targets[0].Delete = true }), want: `Forbidden: a Cleaner may only do what its author may: user "alice" is not allowed to delete pods in namespace "shop" (Cleaner of cleaner.vtex.dev c)`},
		"MayNotImpersonate":          {rights: looks, now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.ServiceAccountName = "bot" }), want: `Forbidden: a Cleaner may only do what its author may: user "alice" is not allowed to impersonate serviceaccounts "bot" in namespace "shop" (Cleaner of cleaner.vtex.dev c)`},
		"MayImpersonate":             {rights: append(looks, "impersonate serviceaccounts bot"), now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.ServiceAccountName = "bot" }), want: "allowed spec: nothing is deleted except the Cleaner itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink"},
		"NobodyKnows":                {rights: looks, now: podsOf(), change: func(v *validator, _ *admission.Request) { v.reviews = grants{err: errAway} }, want: `ServiceUnavailable: cannot determine whether user "alice" may list pods in namespace "shop": the API server is away: try again`},
		"KindsAway":                  {rights: looks, now: podsOf(), change: func(v *validator, _ *admission.Request) { v.discovery = unserved{} }, want: `ServiceUnavailable: cannot determine whether kind "Pod" of v1 is served: the API server is away: try again`},
		"KeyAway":                    {rights: looks, now: podsOf(), change: func(v *validator, _ *admission.Request) { v.keys = oneKey{err: errAway} }, want: "ServiceUnavailable: the API server is away: try again"},
		"Invalid":                    {rights: looks, now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.TTL = "soon" }), want: `Invalid: spec.ttl: "soon" is not a duration: write numbers with the units ns, us, ms, s, m, h, d or w, such as "360h" or "1h30m" (Cleaner of cleaner.vtex.dev c, spec.ttl)`},
		"NotCompiled":                {rights: looks, now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"nobody"} }), want: "Invalid: spec.conditions[0]: 1:1: there is no target or variable \"nobody\"; add a target of this name, or write params.nobody if it is a parameter\n  | nobody\n  | ^ (Cleaner of cleaner.vtex.dev c, spec.conditions[0])"},
		"Terminal":                   {rights: looks, now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"nobody == '\x1b[2J\u202e\u009b'"} }), want: "Invalid: spec.conditions[0]: 1:1: there is no target or variable \"nobody\"; add a target of this name, or write params.nobody if it is a parameter\n  | nobody == ' [2J  '\n  | ^ (Cleaner of cleaner.vtex.dev c, spec.conditions[0])"},
		"NotServed":                  {rights: looks, now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.Targets[0].Reference.Version = "v2" }), want: `Forbidden: a Cleaner may only do what its author may: user "alice" is not allowed to list all resources of the core group; user "alice" is not allowed to watch all resources of the core group; while a kind is not served, no right can name its resource: install its CRD first, or let a user create the Cleaner who has these rights on all resources of the group, in the cluster (Cleaner of cleaner.vtex.dev c)`},
		"Template":                   {rights: looks, now: podsOf(using), objects: []client.Object{bodyOf()}, want: "allowed"},
		"TemplateRights":             {now: podsOf(using), objects: []client.Object{bodyOf()}, want: `Forbidden: a Cleaner may only do what its author may: user "alice" is not allowed to list pods in namespace "shop"; user "alice" is not allowed to watch pods in namespace "shop" (Cleaner of cleaner.vtex.dev c)`},
		"TemplateMissing":            {rights: looks, now: podsOf(using), want: `Forbidden: a Cleaner may only do what its author may: user "alice" is not allowed to do everything; a template that does not exist yet may ask for anything: apply it first, or let a user who may do everything create the Cleaner (Cleaner of cleaner.vtex.dev c)`},
		"TemplateMissingAdmin":       {rights: []string{"*"}, now: podsOf(using), want: `allowed spec.templateRef.name: there is no CleanerTemplate "t" yet, and the Cleaner waits for it: apply the template first`},
		"TemplateMissingNobodyKnows": {now: podsOf(using), change: func(v *validator, _ *admission.Request) { v.reviews = grants{err: errAway} }, want: `ServiceUnavailable: cannot determine whether user "alice" may do everything: the API server is away: try again`},
		"TemplateAway": {rights: looks, now: podsOf(using), change: func(v *validator, _ *admission.Request) {
			v.live = interceptor.NewClient(v.live.(client.WithWatch), interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					return errAway
				},
			})
		}, want: `ServiceUnavailable: cannot read CleanerTemplate "t": the API server is away: try again`},
		"TemplateAndTargets": {rights: looks, now: podsOf(using, func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"true"} }), objects: []client.Object{bodyOf()}, want: "Invalid: spec.templateRef: replaces targets, variables, conditions, rules and parameters: remove them, or templateRef (Cleaner of cleaner.vtex.dev c, spec.templateRef)"},
		"TemplateNeedsMore": {rights: looks, now: podsOf(using), objects: []client.Object{bodyOf(func(t *v1alpha1.CleanerTemplate) {
			t.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "p", Type: "string"}}
		})}, want: `Invalid: spec.templateRef.parameters.p: is missing: the template "t" has no default for it; write p: "text" (Cleaner of cleaner.vtex.dev c, spec.templateRef.parameters.p)`},
		"OperatorLacks": {rights: append(looks, "get pods", "delete pods"), now: podsOf(removing), change: func(v *validator, _ *admission.Request) {
			v.reviews = grants{rights: append(looks, "get pods", "delete pods"), lacks: []string{"delete pods"}}
		}, want: `allowed spec: the operator is not allowed to delete pods in namespace "shop": apply what 'kubectl cleaner rights -f FILE' prints`},
		"AccountLacks": {rights: append(looks, "impersonate serviceaccounts bot"), now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.ServiceAccountName = "bot" }), change: func(v *validator, _ *admission.Request) {
			v.reviews = grants{rights: append(looks, "impersonate serviceaccounts bot"), lacks: []string{"list pods", "watch pods", "impersonate serviceaccounts bot"}}
		}, want: `allowed spec: ServiceAccount shop/bot is not allowed to list pods in namespace "shop"; watch pods in namespace "shop": apply what 'kubectl cleaner rights -f FILE' prints; spec: nothing is deleted except the Cleaner itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink`},
		"DefaultAccountLacks": {rights: looks, now: podsOf(), change: func(v *validator, _ *admission.Request) {
			v.options.DefaultServiceAccount, v.reviews = "cleaner", grants{rights: looks, lacks: []string{"watch pods"}}
		}, want: `allowed spec: ServiceAccount shop/cleaner is not allowed to watch pods in namespace "shop": apply what 'kubectl cleaner rights -f FILE' prints; spec: nothing is deleted except the Cleaner itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink`},
		"SameSpec":      {now: podsOf(), old: podsOf(), want: "allowed"},
		"Suspends":      {now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }), old: podsOf(), want: "allowed"},
		"Edits":         {rights: []string{"list pods"}, now: podsOf(func(c *v1alpha1.Cleaner) { c.Spec.Conditions = []string{"true"} }), old: podsOf(), want: `Forbidden: a Cleaner may only do what its author may: user "alice" is not allowed to watch pods in namespace "shop" (Cleaner of cleaner.vtex.dev c)`},
		"Garbled":       {now: podsOf(), change: func(_ *validator, req *admission.Request) { req.Object.Raw = []byte(`{"spec": 7}`) }, want: ": cannot read the Cleaner: json: cannot unmarshal number into Go struct field Cleaner.spec of type v1alpha1.CleanerSpec"},
		"GarbledBefore": {now: podsOf(), old: podsOf(), change: func(_ *validator, req *admission.Request) { req.OldObject.Raw = []byte(`{"spec": 7}`) }, want: ": cannot read the Cleaner as it was: json: cannot unmarshal number into Go struct field Cleaner.spec of type v1alpha1.CleanerSpec"},
		"Operator":      {rights: looks, now: podsOf(), change: func(_ *validator, req *admission.Request) { req.UserInfo.Username = operator }, want: "Forbidden: the operator itself never changes the spec of a Cleaner: use an account of your own (Cleaner of cleaner.vtex.dev c)"},
		"NoAuthor":      {rights: looks, now: podsOf(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{"a": "b"} }), want: "Forbidden: the author of the spec is not stored: the cluster needs the operator's MutatingWebhookConfiguration (Cleaner of cleaner.vtex.dev c)"},
	} {
		t.Run(name, func(t *testing.T) {
			v := town(t, tc.rights, tc.objects...)
			if tc.now.Annotations == nil { // as the first webhook has it
				ring, err := v.keys.CurrentRing()
				if err != nil {
					t.Fatal(err)
				}
				value, err := author.Sign(ring, tc.now, author.Author{Username: "alice"}, moment)
				if err != nil {
					t.Fatal(err)
				}
				tc.now.Annotations = map[string]string{v1alpha1.AnnotationAuthor: value}
			}
			var old any
			if tc.old != nil {
				tc.old.Annotations = tc.now.Annotations
				old = tc.old
			}
			req := asking(t, "Cleaner", tc.now, old)
			if tc.change != nil {
				tc.change(v, &req)
			}
			owners := &ownerValidator{v, func() v1alpha1.Owner { return &v1alpha1.Cleaner{} }}
			if diff := cmp.Diff(tc.want, answered(owners.Handle(t.Context(), req))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestHandleTemplate shows what the webhook answers to those who write a template: it works, with those that use it.
func TestHandleTemplate(t *testing.T) {
	looks := []string{"list pods", "watch pods"}
	cluster := &v1alpha1.ClusterCleaner{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	cluster.Spec.Lifecycle, cluster.Spec.TemplateRef = v1alpha1.LifecycleOnce, &v1alpha1.TemplateRef{Name: "t"}
	other := podsOf(using, func(c *v1alpha1.Cleaner) {
		c.Name, c.Spec.TemplateRef = "other", &v1alpha1.TemplateRef{Name: "u"}
	})
	needs := func(t *v1alpha1.CleanerTemplate) {
		t.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "p", Type: "string"}}
	}
	for name, tc := range map[string]struct {
		rights  []string
		now     *v1alpha1.CleanerTemplate
		old     *v1alpha1.CleanerTemplate
		objects []client.Object
		change  func(v *validator, req *admission.Request)
		want    string
	}{
		"Good":        {rights: looks, now: bodyOf(), want: "allowed"},
		"MayNotLook":  {rights: []string{"list pods"}, now: bodyOf(), want: `Forbidden: a CleanerTemplate may only do what its author may: user "alice" is not allowed to watch pods in all namespaces (CleanerTemplate of cleaner.vtex.dev c)`},
		"NobodyKnows": {now: bodyOf(), change: func(v *validator, _ *admission.Request) { v.reviews = grants{err: errAway} }, want: `ServiceUnavailable: cannot determine whether user "alice" may list pods in all namespaces: the API server is away: try again`},
		"KindsAway":   {rights: looks, now: bodyOf(), change: func(v *validator, _ *admission.Request) { v.discovery = unserved{} }, want: `ServiceUnavailable: cannot determine whether kind "Pod" of v1 is served: the API server is away: try again`},
		"SameSpec":    {now: bodyOf(), old: bodyOf(), want: "allowed"},
		"Edited":      {now: bodyOf(), old: bodyOf(needs), want: `Forbidden: a CleanerTemplate may only do what its author may: user "alice" is not allowed to list pods in all namespaces; user "alice" is not allowed to watch pods in all namespaces (CleanerTemplate of cleaner.vtex.dev c)`},
		"Invalid":     {rights: looks, now: bodyOf(func(t *v1alpha1.CleanerTemplate) { t.Spec.Template.Targets[0].Name = "a b" }), want: "Invalid: spec.template.targets[0].name: \"a b\" is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as a_b\nspec.template.conditions[0]: 1:1: there is no target or variable \"pods\"; add a target of this name, or write params.pods if it is a parameter\n  | pods.items.size() > 0\n  | ^ (CleanerTemplate of cleaner.vtex.dev c, spec.template.targets[0].name, spec.template.conditions[0])"},
		"NotCompiled": {rights: looks, now: bodyOf(func(t *v1alpha1.CleanerTemplate) { t.Spec.Template.Conditions = []string{"nobody"} }), want: "Invalid: spec.template.conditions[0]: 1:1: there is no target or variable \"nobody\"; add a target of this name, or write params.nobody if it is a parameter\n  | nobody\n  | ^ (CleanerTemplate of cleaner.vtex.dev c, spec.template.conditions[0])"},
		"WrongParameter": {rights: looks, now: bodyOf(func(t *v1alpha1.CleanerTemplate) {
			t.Spec.Parameters = []v1alpha1.TemplateParameter{{Name: "p", Type: "string", Default: &runtime.RawExtension{Raw: []byte("5")}}}
		}), want: `Invalid: spec.parameters[0].default: must be of type string: write p: "text" (CleanerTemplate of cleaner.vtex.dev c, spec.parameters[0].default)`},
		"TooMany": {rights: looks, now: bodyOf(func(t *v1alpha1.CleanerTemplate) {
			t.Spec.Template.Conditions = slices.Repeat([]string{"true"}, 1000)
		}), want: "Invalid: spec.template.conditions: has 1000 entries; at most 64 are allowed: combine some with && (CleanerTemplate of cleaner.vtex.dev c, spec.template.conditions)"},
		"Garbled":       {now: bodyOf(), change: func(_ *validator, req *admission.Request) { req.Object.Raw = []byte("7") }, want: ": cannot read the CleanerTemplate: json: cannot unmarshal number into Go value of type v1alpha1.CleanerTemplate"},
		"GarbledBefore": {now: bodyOf(), old: bodyOf(), change: func(_ *validator, req *admission.Request) { req.OldObject.Raw = []byte("7") }, want: ": cannot read the CleanerTemplate as it was: json: cannot unmarshal number into Go value of type v1alpha1.CleanerTemplate"},
		"StillWorks":    {rights: looks, now: bodyOf(func(t *v1alpha1.CleanerTemplate) { t.Spec.Template.Conditions = []string{"true"} }), old: bodyOf(), objects: []client.Object{podsOf(using), cluster}, want: "allowed"},
		"Breaks":        {rights: looks, now: bodyOf(needs), old: bodyOf(), objects: []client.Object{podsOf(using), other}, want: `Invalid: spec: breaks Cleaner "c" in namespace "shop", which would stop working: spec.templateRef.parameters.p: is missing: the template "t" has no default for it; write p: "text"; change its spec first, or write a template that it works with; if you mean to break it, delete the template and create it again (CleanerTemplate of cleaner.vtex.dev c, spec)`},
		"BreaksAll":     {rights: looks, now: bodyOf(needs), old: bodyOf(), objects: []client.Object{cluster}, want: `Invalid: spec: breaks ClusterCleaner "all", which would stop working: spec.templateRef.parameters.p: is missing: the template "t" has no default for it; write p: "text"; change its spec first, or write a template that it works with; if you mean to break it, delete the template and create it again (CleanerTemplate of cleaner.vtex.dev c, spec)`},
		"WasBroken":     {rights: looks, now: bodyOf(needs, func(t *v1alpha1.CleanerTemplate) { t.Spec.Template.Conditions = []string{"true"} }), old: bodyOf(needs), objects: []client.Object{podsOf(using)}, want: "allowed"},
		"NoHelp":        {rights: looks, now: bodyOf(needs), objects: []client.Object{podsOf(using), other}, want: `allowed spec: breaks Cleaner "c" in namespace "shop", which would stop working: spec.templateRef.parameters.p: is missing: the template "t" has no default for it; write p: "text"`},
		"NoHelpHere": {rights: []string{"*"}, now: bodyOf(func(t *v1alpha1.CleanerTemplate) {
			t.Spec.Template.Targets[0].Reference.Namespaces = []string{"elsewhere"}
		}), objects: []client.Object{
			podsOf(using),
		}, want: `allowed spec: breaks Cleaner "c" in namespace "shop", which would stop working: spec.templateRef.name: is a template for ClusterCleaners: its target "pods" has namespaces, and a Cleaner acts only in its own namespace; use it in a ClusterCleaner`},
		"Helps": {rights: looks, now: bodyOf(), objects: []client.Object{podsOf(using)}, want: "allowed"},
		"UsersAway": {rights: looks, now: bodyOf(), change: func(v *validator, _ *admission.Request) {
			v.live = interceptor.NewClient(v.live.(client.WithWatch), interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return errAway },
			})
		}, want: "ServiceUnavailable: cannot list the Cleaners that use the template: the API server is away: try again"},
	} {
		t.Run(name, func(t *testing.T) {
			v := town(t, tc.rights, tc.objects...)
			var old any
			if tc.old != nil {
				old = tc.old
			}
			req := asking(t, "CleanerTemplate", tc.now, old)
			if tc.change != nil {
				tc.change(v, &req)
			}
			if diff := cmp.Diff(tc.want, answered((&templateValidator{v, clock.RealClock{}}).Handle(t.Context(), req))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestATemplatesAuthorReadsNoCleaner shows that the answer to a change of a template, whose author may not be allowed to read
// those that use it, says which field of which one is concerned, where, and what the template has to do with it; and repeats
// nothing of what stands there.
func TestATemplatesAuthorReadsNoCleaner(t *testing.T) {
	const breaks = `spec: breaks Cleaner "c" in namespace "shop", which would stop working: `
	const instead = "; change its spec first, or write a template that it works with; if you mean to break it, delete the template and create it again (CleanerTemplate of cleaner.vtex.dev c, spec)"
	parameters := func(given ...v1alpha1.TemplateParameter) func(t *v1alpha1.CleanerTemplate) {
		return func(t *v1alpha1.CleanerTemplate) { t.Spec.Parameters = given }
	}
	app, wait := v1alpha1.TemplateParameter{Name: "app", Type: "string"}, v1alpha1.TemplateParameter{Name: "app", Type: "duration"}
	gives := func(text string) func(c *v1alpha1.Cleaner) {
		return func(c *v1alpha1.Cleaner) { c.Spec.TemplateRef.Parameters = &runtime.RawExtension{Raw: []byte(text)} }
	}
	sends := func(data string) func(c *v1alpha1.Cleaner) {
		return func(c *v1alpha1.Cleaner) { c.Spec.CloudEventData = data }
	}
	quiet := func(t *v1alpha1.CleanerTemplate) {
		t.Spec.Template.Targets[0].IncludeWhenEvaluating, t.Spec.Template.Conditions = new(false), []string{"true"}
	}
	more := v1alpha1.TemplateParameter{Name: "more", Type: "string", Default: &runtime.RawExtension{Raw: []byte(`"x"`)}}
	for name, tc := range map[string]struct {
		now, old *v1alpha1.CleanerTemplate
		uses     func(c *v1alpha1.Cleaner)
		want     string
	}{
		"Parameter": {bodyOf(), bodyOf(parameters(more)), sends(`{"ticket": "confidential", "more": params.more}`),
			"Invalid: " + breaks + "spec.cloudEventData: 1:43: does not work with this template, which no longer has params.more" + instead},
		"Target": {bodyOf(quiet), bodyOf(), sends(`["confidential", pods]`),
			"Invalid: " + breaks + "spec.cloudEventData: 1:18: does not work with this template, which no longer has pods" + instead},
		"Duration": {bodyOf(parameters(wait)), bodyOf(parameters(app)), gives(`{"app": "confidential"}`),
			"Invalid: " + breaks + `spec.templateRef.parameters.app: must be of type duration: write app: "40s"` + instead},
		"Type": {bodyOf(parameters(v1alpha1.TemplateParameter{Name: "app", Type: "int"})), bodyOf(parameters(app)), gives(`{"app": "confidential"}`),
			"Invalid: " + breaks + `spec.templateRef.parameters.app: must be of type int: write app: 3` + instead},
		"Enum": {bodyOf(parameters(v1alpha1.TemplateParameter{Name: "app", Type: "string", Enum: []string{"web"}})), bodyOf(parameters(app)), gives(`{"app": "confidential"}`),
			"Invalid: " + breaks + `spec.templateRef.parameters.app: must be one of web` + instead},
		"GoneParameter": {bodyOf(), bodyOf(parameters(app)), gives(`{"app": "confidential"}`),
			"Invalid: " + breaks + `spec.templateRef.parameters.app: is not a parameter: the template "t" has none; remove it` + instead},
		"NewTemplate": {bodyOf(), nil, gives(`{"confidential": "confidential"}`),
			"allowed " + breaks + "spec.templateRef.parameters: gives a parameter that the template does not have"},
		"NewTemplateSyntax": {bodyOf(), nil, sends(`{"a": 'confidential}`),
			"allowed " + breaks + "spec.cloudEventData: 1:7: does not work with this template"},
		"NewTemplateName": {bodyOf(), nil, sends(`pods.items.map(confidential, confidental)`),
			"allowed " + breaks + "spec.cloudEventData: 1:30: does not work with this template"},
	} {
		t.Run(name, func(t *testing.T) {
			v := town(t, []string{"list pods", "watch pods"}, podsOf(using, tc.uses))
			var old any
			if tc.old != nil {
				old = tc.old
			}
			if diff := cmp.Diff(tc.want, answered((&templateValidator{v, clock.RealClock{}}).Handle(t.Context(), asking(t, "CleanerTemplate", tc.now, old)))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
