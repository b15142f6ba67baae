// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// The bounds that the schema has too.
const (
	maxVariables  = 64
	maxRules      = 64
	maxConfirm    = 16
	maxActions    = 16
	maxOrderBy    = 8
	maxRuleName   = 63
	maxKeep       = 1000000
	maxGrace      = math.MaxInt32
	maxFinalizer  = 317
	maxSubpath    = 63
	ruleNamedHelm = "helm"
)

// longHold is from where on a hold, which a restart begins anew, is better read from the object itself.
const longHold = 24 * time.Hour

var (
	subresource = regexp.MustCompile(`^[a-z]+$`)
	// itemsOf is a list of all objects of a target, and oneOf a list of one.
	itemsOf = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*\.\s*items\s*$`)
	oneOf   = regexp.MustCompile(`^\s*\[\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*\]\s*$`)
)

// variables looks at the names and lengths of variables.
func (f *Findings) variables(variables []v1alpha1.Variable, p *field.Path) {
	if len(variables) > maxVariables {
		f.refuse(p, fmt.Sprintf("are %d; at most %d are allowed: join some", len(variables), maxVariables))
	}
	for i, v := range variables {
		path := p.Index(i).Child("name")
		first := indexOf(variables, v.Name)
		switch {
		case v.Name == "":
			f.refuse(path, "must not be empty: write the name under which expressions read the variable, such as nodesByName")
		case len(v.Name) > maxTargetName:
			f.refuse(path, fmt.Sprintf("is longer than the %d characters that are allowed", maxTargetName))
		case !identifier.MatchString(v.Name):
			f.refuse(path, fmt.Sprintf("%q is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as %s", v.Name, identifierLike(v.Name)))
		case slices.Contains(celWords(), v.Name):
			f.refuse(path, fmt.Sprintf("%q is a reserved word of CEL: choose another name", v.Name))
		case first < i:
			f.refuse(path, fmt.Sprintf("%q is the name of %s too: give each variable a name of its own", v.Name, p.Index(first)))
		}
		f.expression(v.Expression, p.Index(i).Child("expression"))
	}
}

// indexOf finds a variable; -1 if there is none of this name.
func indexOf(variables []v1alpha1.Variable, name string) int {
	return slices.IndexFunc(variables, func(v v1alpha1.Variable) bool { return v.Name == name })
}

// rules looks at the rules that lie below root.
func (f *Findings) rules(spec *v1alpha1.Work, root *field.Path, o Options) {
	p := root.Child("rules")
	if len(spec.Rules) > maxRules {
		f.refuse(p, fmt.Sprintf("are %d; at most %d are allowed: write another %s", len(spec.Rules), maxRules, noun(spec)))
	}
	for i := range spec.Rules {
		r, path := &spec.Rules[i], p.Index(i)
		f.ruleName(spec.Rules, i, p)
		f.needed(r.ForEach, path.Child("forEach"), "write the list of items, such as pods.items")
		f.variables(r.Variables, path.Child("variables"))
		for j, v := range r.Variables {
			if hidden := indexOf(spec.Variables, v.Name); hidden >= 0 {
				f.refuse(path.Child("variables").Index(j).Child("name"), fmt.Sprintf("%q is the name of %s too, which it would hide: choose another name", v.Name, root.Child("variables").Index(hidden)))
			}
		}
		f.needed(r.When, path.Child("when"), `write an expression that is true for the items to act on, or "true" for all of them`)
		f.hold(r, path)
		f.order(spec, r, path)
		f.optional(r.Unless, path.Child("unless"))
		f.confirm(spec, r, path.Child("confirm"))
		f.optional(r.Key, path.Child("key"))
		f.optional(r.Reason, path.Child("reason"))
		f.actions(spec, i, path.Child("actions"), o)
	}
}

func (f *Findings) ruleName(rules []v1alpha1.Rule, i int, list *field.Path) {
	name, p := rules[i].Name, list.Index(i).Child("name")
	first := slices.IndexFunc(rules, func(r v1alpha1.Rule) bool { return r.Name == name })
	switch {
	case name == "":
		f.refuse(p, "must not be empty: write a name for the rule, such as finished-pods")
	case len(name) > maxRuleName || !version.MatchString(name):
		f.refuse(p, fmt.Sprintf("%q is not the name of a rule: write lower case letters, digits and - only, such as finished-pods", name))
	case name == ruleNamedHelm:
		f.refuse(p, `"helm" means the Helm release where actions are listed: choose another name`)
	case first < i:
		f.refuse(p, fmt.Sprintf("%q is the name of %s too: give each rule a name of its own", name, list.Index(first)))
	}
}

// needed is an expression that must be there.
func (f *Findings) needed(expression string, p *field.Path, instead string) {
	if strings.TrimSpace(expression) == "" {
		f.refuse(p, "is missing: "+instead)
		return
	}
	f.expression(expression, p)
}

// optional is an expression that may be left out.
func (f *Findings) optional(expression string, p *field.Path) {
	if expression != "" {
		f.expression(expression, p)
	}
}

// hold looks at how long a rule's when must be true.
func (f *Findings) hold(r *v1alpha1.Rule, p *field.Path) {
	if d, err := v1alpha1.ParseDuration(r.For); err == nil {
		if d > longHold {
			f.warn(p.Child("for"), fmt.Sprintf("%s is long for a time that begins anew when the operator restarts: use a time that the object carries, as in when: age(item) > parseDuration(%q)", r.For, r.For))
		}
	} else {
		f.optional(r.For, p.Child("for"))
	}
	f.optional(r.ForKey, p.Child("forKey"))
	if r.ForKey != "" && r.For == "" {
		f.warn(p.Child("forKey"), "has no effect without for: add it, or remove forKey")
	}
}

// order looks at what stays of each group.
func (f *Findings) order(spec *v1alpha1.Work, r *v1alpha1.Rule, p *field.Path) {
	f.optional(r.GroupBy, p.Child("groupBy"))
	if r.GroupBy != "" && r.Keep == nil {
		f.warn(p.Child("groupBy"), "has no effect without keep: say how many items of each group stay, or remove groupBy")
	}
	if len(r.OrderBy) > maxOrderBy {
		f.refuse(p.Child("orderBy"), fmt.Sprintf("are %d; at most %d are allowed", len(r.OrderBy), maxOrderBy))
	}
	for i := range r.OrderBy {
		f.expression(r.OrderBy[i].Expression, p.Child("orderBy").Index(i).Child("expression"))
	}
	switch keep := p.Child("keep"); {
	case r.Keep == nil:
		return
	case r.Keep.Type == intstr.Int && (r.Keep.IntVal < 0 || r.Keep.IntVal > maxKeep):
		f.refuse(keep, fmt.Sprintf("is %d: write a number from 0 to %d, or an expression that gives one", r.Keep.IntVal, maxKeep))
	case r.Keep.Type == intstr.String:
		f.expression(r.Keep.StrVal, keep)
	}
	if whole, ok := wholeTarget(spec, r.ForEach); ok && len(r.OrderBy) == 0 && (r.Keep.Type == intstr.String || r.Keep.IntVal > 0) {
		f.warn(p.Child("keep"), fmt.Sprintf("keeps those of %s that come last by namespace and name: add orderBy, such as [{expression: item.metadata.creationTimestamp}] to keep the newest", spec.Targets[whole].Name))
	}
}

func (f *Findings) confirm(spec *v1alpha1.Work, r *v1alpha1.Rule, p *field.Path) {
	if len(r.Confirm) > maxConfirm {
		f.refuse(p, fmt.Sprintf("are %d; at most %d are allowed", len(r.Confirm), maxConfirm))
	}
	for i := range r.Confirm {
		c, path := &r.Confirm[i], p.Index(i)
		switch at := targetNamed(spec, c.Target); {
		case c.Target == v1alpha1.ConfirmAll && c.Name != "":
			f.refuse(path.Child("name"), `is of one target: write its name, or remove this to list all ("*")`)
		case c.Target == v1alpha1.ConfirmAll:
		case c.Target == "":
			f.refuse(path.Child("target"), "must not be empty: write the name of the target that is read live")
		case at < 0:
			f.refuse(path.Child("target"), fmt.Sprintf("%q is not the name of a target: %s", c.Target, targetNames(spec)))
		case !spec.Targets[at].Included():
			f.refuse(path.Child("target"), fmt.Sprintf("%q is a target with includeWhenEvaluating: false, which no expression sees: remove that, or this entry", c.Target))
		}
		f.optional(c.Name, path.Child("name"))
		f.optional(c.Namespace, path.Child("namespace"))
		if c.Namespace != "" && c.Name == "" {
			f.refuse(path.Child("namespace"), "is where the object of that name lives: add name, or remove namespace to list the whole target")
		}
	}
}

// targetNamed finds a target; -1 if there is none of this name.
func targetNamed(spec *v1alpha1.Work, name string) int {
	return slices.IndexFunc(spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Name == name })
}

// targetNames says which targets there are, for a name that is none of them.
func targetNames(spec *v1alpha1.Work) string {
	if len(spec.Targets) == 0 {
		return "there are none; add it to targets"
	}
	var names []string
	for i := range spec.Targets {
		names = append(names, spec.Targets[i].Name)
	}
	return "there are " + strings.Join(names, ", ")
}

// wholeTarget is the target of which an expression gives all objects, or the one that it is.
func wholeTarget(spec *v1alpha1.Work, expression string) (int, bool) {
	for _, form := range []*regexp.Regexp{itemsOf, oneOf} {
		if m := form.FindStringSubmatch(expression); m != nil {
			at := targetNamed(spec, m[1])
			// The items of a target with a name would be a field of that object.
			return at, at >= 0 && (spec.Targets[at].Reference.Name == "") == (form == itemsOf)
		}
	}
	return -1, false
}

// Touched are the targets whose objects an action may act on, by index. It is one where forEach is all objects of a
// target, as pods.items is, and the action has no object of its own. Else it is every target that expressions see, but for
// those on which the operator would not carry it out: what an expression makes of the others cannot be told before it is
// evaluated.
func Touched(spec *v1alpha1.Work, rule, action int, o Options) []int {
	r := &spec.Rules[rule]
	a := &r.Actions[action]
	if at, ok := touchedAlone(spec, r, a); ok {
		return []int{at}
	}
	var all []int
	for i := range spec.Targets {
		k := o.kindOf(spec, i)
		switch {
		case !spec.Targets[i].Included():
		case k.clusterScoped && !spec.Cluster:
		case k.group == v1alpha1.GroupVersion.Group:
		case a.Delete != nil && o.undeletable(spec, k) != "":
		case a.Evict != nil && !isPod(&spec.Targets[i].Reference):
		default:
			all = append(all, i)
		}
	}
	return all
}

// touchedAlone is the one target whose objects an action acts on, if that can be told.
func touchedAlone(spec *v1alpha1.Work, r *v1alpha1.Rule, a *v1alpha1.RuleAction) (int, bool) {
	if a.Object == "" {
		return wholeTarget(spec, r.ForEach)
	}
	at := targetNamed(spec, strings.TrimSpace(a.Object))
	return at, at >= 0 && spec.Targets[at].Reference.Name != ""
}

func (f *Findings) actions(spec *v1alpha1.Work, rule int, p *field.Path, o Options) {
	actions := spec.Rules[rule].Actions
	switch n := len(actions); {
	case n == 0:
		f.refuse(p, "are missing: say what to do with the items, as in [delete: {}], or [report: {}] to do nothing")
	case n > maxActions:
		f.refuse(p, fmt.Sprintf("are %d; at most %d are allowed", n, maxActions))
	}
	for i := range actions {
		a, path := &actions[i], p.Index(i)
		f.optional(a.When, path.Child("when"))
		f.optional(a.Object, path.Child("object"))
		verb := f.verb(a, path)
		if verb == "" {
			continue
		}
		if because := lends(spec, rule, i, o); because != "" {
			f.refuse(path.Child(verb), because)
			continue
		}
		// Of what it acts on something can be said only where that is known.
		if touched, ok := touchedAlone(spec, &spec.Rules[rule], a); ok {
			f.acting(spec, a, touched, path.Child(verb), o)
		}
	}
}

// verb is the one verb of an action, and looks at what it says; empty if there is not one.
func (f *Findings) verb(a *v1alpha1.RuleAction, p *field.Path) string {
	var verbs []string
	if a.Report != nil {
		verbs = append(verbs, "report")
	}
	if a.Delete != nil {
		verbs = append(verbs, "delete")
		f.grace(a.Delete.GracePeriodSeconds, p.Child("delete", "gracePeriodSeconds"))
		switch policy := a.Delete.PropagationPolicy; policy {
		case "", v1alpha1.PropagateBackground, v1alpha1.PropagateForeground, v1alpha1.PropagateOrphan:
		default:
			f.refuse(p.Child("delete", "propagationPolicy"), fmt.Sprintf("%q is no policy: write Background, Foreground or Orphan", policy))
		}
		if g := a.Delete.GracePeriodSeconds; g != nil && *g == 0 {
			f.warn(p.Child("delete", "gracePeriodSeconds"), "0 deletes by force: a Pod that is still running goes on, unseen, until its kubelet hears of it; leave it out unless the Node is gone")
		}
	}
	if a.Evict != nil {
		verbs = append(verbs, "evict")
		f.grace(a.Evict.GracePeriodSeconds, p.Child("evict", "gracePeriodSeconds"))
	}
	if a.Patch != nil {
		verbs = append(verbs, "patch")
		f.patch(a.Patch, p.Child("patch"))
	}
	if a.RemoveFinalizer != nil {
		verbs = append(verbs, "removeFinalizer")
		name := a.RemoveFinalizer.Name
		if len(name) > maxFinalizer || len(utilvalidation.IsQualifiedName(name)) > 0 {
			f.refuse(p.Child("removeFinalizer", "name"), fmt.Sprintf("%q is not a finalizer: write one as it stands in metadata.finalizers, such as example.com/protect", name))
		}
	}
	switch len(verbs) {
	case 0:
		f.refuse(p, "says not what to do: write one of report, delete, evict, patch and removeFinalizer")
		return ""
	case 1:
	default:
		f.refuse(p, fmt.Sprintf("has %s: an action does one thing, so write an action for each", strings.Join(verbs, " and ")))
		return ""
	}
	return verbs[0]
}

func (f *Findings) grace(seconds *int64, p *field.Path) {
	if seconds != nil && (*seconds < 0 || *seconds > maxGrace) {
		f.refuse(p, fmt.Sprintf("is %d: write a number of seconds from 0 to %d", *seconds, maxGrace))
	}
}

func (f *Findings) patch(a *v1alpha1.PatchAction, p *field.Path) {
	switch a.Type {
	case v1alpha1.PatchStrategic, v1alpha1.PatchMerge, v1alpha1.PatchJSON, v1alpha1.PatchApply:
	default:
		f.refuse(p.Child("type"), fmt.Sprintf("%q is no type: write Strategic, for built-in kinds, Merge, JSON or Apply", a.Type))
	}
	if a.Subresource != "" && (len(a.Subresource) > maxSubpath || !subresource.MatchString(a.Subresource)) {
		f.refuse(p.Child("subresource"), fmt.Sprintf("%q is not a subresource: write one such as status or scale", a.Subresource))
	}
	f.needed(a.Expression, p.Child("expression"), `write the patch, such as {"metadata": {"labels": {"seen": "true"}}}`)
	if a.Force && a.Type != v1alpha1.PatchApply {
		f.refuse(p.Child("force"), "is for type: Apply only: remove it")
	}
}

// lends says why an action of a template may lend its author what they may not do themselves; empty if it does not. The API
// server checks the rights of whoever changes some kinds, and would check those of the ServiceAccount that a user of the template names.
func lends(spec *v1alpha1.Work, rule, action int, o Options) string {
	r := &spec.Rules[rule]
	if spec.Declared == nil || r.Actions[action].Patch == nil {
		return ""
	}
	for _, at := range Touched(spec, rule, action, o) {
		k := o.kindOf(spec, at)
		if !v1alpha1.JudgesRequester(k.group) {
			continue
		}
		if _, alone := touchedAlone(spec, r, &r.Actions[action]); alone {
			return fmt.Sprintf("cannot be done by a template: the API server checks the rights of whoever changes %s, and not those of the template's author: write the rule into the Cleaner itself", k.name())
		}
		return fmt.Sprintf("may be about %s, which cannot be patched by a template: the API server checks the rights of whoever changes them, and not those of the template's author: "+
			"let forEach be all objects of another target, such as pods.items, or write the rule into the Cleaner itself", k.name())
	}
	return ""
}

// acting says whether an action can do what it says to the objects of a target.
func (f *Findings) acting(spec *v1alpha1.Work, a *v1alpha1.RuleAction, target int, p *field.Path, o Options) {
	k, r := o.kindOf(spec, target), &spec.Targets[target].Reference
	switch because := o.undeletable(spec, k); {
	case a.Report != nil:
	case k.group == v1alpha1.GroupVersion.Group:
		f.refuse(p, "cannot be done: "+k.untouchable())
	case a.Patch != nil && v1alpha1.JudgesRequester(k.group) && spec.ServiceAccount == nil:
		f.refuse(p, fmt.Sprintf("cannot be done: the API server checks the rights of whoever changes %s, and would check those of the operator: set a ServiceAccount", k.name()))
	case a.Delete != nil && because != "":
		f.refuse(p, "cannot be done: "+because)
	case k.clusterScoped && !spec.Cluster:
		f.refuse(p, "cannot be done: "+k.outOfReach("acts"))
	case a.Evict != nil && !isPod(r):
		f.refuse(p, fmt.Sprintf("is for Pods, and the target %q has objects of kind %s: write delete", spec.Targets[target].Name, r.Kind))
	case a.Patch != nil && a.Patch.Type == v1alpha1.PatchStrategic && !slices.Contains(builtinGroups(), r.APIGroup):
		f.refuse(p.Child("type"), fmt.Sprintf("Strategic is for built-in kinds, and the target %q has objects of group %s: write Merge, JSON or Apply", spec.Targets[target].Name, r.APIGroup))
	}
}

func isPod(r *v1alpha1.ClusterReference) bool {
	return r.APIGroup == "" && slices.ContainsFunc([]string{"pod", "pods"}, func(name string) bool { return strings.EqualFold(name, r.Kind) })
}

// builtinGroups are the API groups whose kinds are compiled into the API server, which therefore knows how to merge their
// lists.
func builtinGroups() []string {
	return []string{
		"", "admissionregistration.k8s.io", "apps", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
		"internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io",
		"scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
	}
}
