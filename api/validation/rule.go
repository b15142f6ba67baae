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

// The bounds that the schema also has.
const (
	maxVariables     = 64
	maxRules         = 64
	maxConfirm       = 16
	maxActions       = 16
	maxOrderBy       = 8
	maxRuleName      = 63
	maxKeep          = 1000000
	maxGrace         = math.MaxInt32
	maxFinalizer     = 317
	reservedRuleName = "helm"
	helmUninstall    = "helmUninstall"
)

// longHold is the longest `for` without a warning. A restart starts the timer again, so a time in the object is better for longer ones.
const longHold = 24 * time.Hour

var (
	// allItemsPattern matches the list of all objects of a target, and oneItemPattern a list of one target.
	allItemsPattern = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*\.\s*items\s*$`)
	oneItemPattern  = regexp.MustCompile(`^\s*\[\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*\]\s*$`)
)

// checkVariables checks the names and lengths of variables.
func checkVariables(f *Findings, variables []v1alpha1.Variable, p *field.Path) {
	if len(variables) > maxVariables {
		f.addError(p, fmt.Sprintf("has %d entries; at most %d are allowed: combine some", len(variables), maxVariables))
	}
	for i, v := range variables {
		path := p.Index(i).Child("name")
		first := findVariable(variables, v.Name)
		switch {
		case v.Name == "":
			f.addError(path, "must not be empty: write the name by which expressions read the variable, such as nodesByName")
		case len(v.Name) > maxTargetName:
			f.addError(path, fmt.Sprintf("is longer than the %d characters that are allowed", maxTargetName))
		case !identifier.MatchString(v.Name):
			f.addError(path, fmt.Sprintf("%q is not a name that expressions can use: write letters, digits and underscores only, not beginning with a digit, such as %s", v.Name, suggestIdentifier(v.Name)))
		case slices.Contains(reservedWords(), v.Name):
			f.addError(path, fmt.Sprintf("%q is a reserved word of CEL: choose another name", v.Name))
		case first < i:
			f.addError(path, fmt.Sprintf("%q is also the name of %s: rename one of them", v.Name, p.Index(first)))
		}
		checkExpression(f, v.Expression, p.Index(i).Child("expression"))
	}
}

// findVariable returns the index of a variable; -1 if there is none of this name.
func findVariable(variables []v1alpha1.Variable, name string) int {
	return slices.IndexFunc(variables, func(v v1alpha1.Variable) bool { return v.Name == name })
}

// checkRules checks the rules below root.
func checkRules(f *Findings, spec *v1alpha1.Work, root *field.Path, o Options) {
	checkAnyKindUse(f, spec, root)
	p := root.Child("rules")
	if len(spec.Rules) > maxRules {
		f.addError(p, fmt.Sprintf("has %d entries; at most %d are allowed: write another %s", len(spec.Rules), maxRules, ownerKind(spec)))
	}
	for i := range spec.Rules {
		r, path := &spec.Rules[i], p.Index(i)
		checkRuleName(f, spec.Rules, i, p)
		requireExpression(f, r.ForEach, path.Child("forEach"), "write the list of items, such as pods.items")
		checkVariables(f, r.Variables, path.Child("variables"))
		for j, v := range r.Variables {
			if hidden := findVariable(spec.Variables, v.Name); hidden >= 0 {
				f.addError(path.Child("variables").Index(j).Child("name"), fmt.Sprintf("%q is also the name of %s: choose another name", v.Name, root.Child("variables").Index(hidden)))
			}
		}
		requireExpression(f, r.When, path.Child("when"), `write an expression that is true for the items to act on, or "true" for all of them`)
		checkHold(f, r, path)
		checkGrouping(f, spec, r, path)
		checkOptionalExpression(f, r.Unless, path.Child("unless"))
		checkConfirm(f, spec, r, path.Child("confirm"))
		checkOptionalExpression(f, r.Key, path.Child("key"))
		checkOptionalExpression(f, r.Reason, path.Child("reason"))
		checkActions(f, spec, i, path.Child("actions"), o)
	}
	checkShadows(f, spec.Rules[:min(len(spec.Rules), maxRules)], p)
}

func checkRuleName(f *Findings, rules []v1alpha1.Rule, i int, list *field.Path) {
	name, p := rules[i].Name, list.Index(i).Child("name")
	first := slices.IndexFunc(rules, func(r v1alpha1.Rule) bool { return r.Name == name })
	switch {
	case name == "":
		f.addError(p, "must not be empty: write a name for the rule, such as finished-pods")
	case len(name) > maxRuleName || !dnsLabel.MatchString(name):
		f.addError(p, fmt.Sprintf("%q is not the name of a rule: write lower case letters, digits and - only, such as finished-pods", name))
	case name == reservedRuleName:
		f.addError(p, `"helm" is the name of the Helm release in lists of actions: choose another name`)
	case first < i:
		f.addError(p, fmt.Sprintf("%q is also the name of %s: rename one of them", name, list.Index(first)))
	}
}

// requireExpression checks an expression that must not be empty. instead says what to write.
func requireExpression(f *Findings, expression string, p *field.Path, instead string) {
	if strings.TrimSpace(expression) == "" {
		f.addError(p, "is missing: "+instead)
		return
	}
	checkExpression(f, expression, p)
}

// checkOptionalExpression checks an expression that may be empty.
func checkOptionalExpression(f *Findings, expression string, p *field.Path) {
	if expression != "" {
		checkExpression(f, expression, p)
	}
}

// checkHold checks `for` and `forKey`.
func checkHold(f *Findings, r *v1alpha1.Rule, p *field.Path) {
	if d, err := v1alpha1.ParseDuration(r.For); err == nil {
		if d > longHold {
			f.addWarning(p.Child("for"), fmt.Sprintf("%s is long for a time that starts again when the operator restarts: compare with a time in the object instead, as in when: age(item) > parseDuration(%q), or with one that another Cleaner has patched into an annotation", r.For, r.For))
		}
	} else {
		checkOptionalExpression(f, r.For, p.Child("for"))
	}
	checkOptionalExpression(f, r.ForKey, p.Child("forKey"))
	if r.ForKey != "" && r.For == "" {
		f.addWarning(p.Child("forKey"), "has no effect without for: add it, or remove forKey")
	}
}

// checkGrouping checks groupBy, orderBy, keep and leave.
func checkGrouping(f *Findings, spec *v1alpha1.Work, r *v1alpha1.Rule, p *field.Path) {
	checkOptionalExpression(f, r.GroupBy, p.Child("groupBy"))
	if r.GroupBy != "" && r.Keep == nil && r.Leave == nil && (spec.Limits == nil || spec.Limits.PerGroup == 0) {
		f.addWarning(p.Child("groupBy"), "has no effect without keep: add keep, the number of items to keep in each group, or remove groupBy")
	}
	if len(r.OrderBy) > maxOrderBy {
		f.addError(p.Child("orderBy"), fmt.Sprintf("has %d entries; at most %d are allowed", len(r.OrderBy), maxOrderBy))
	}
	for i := range r.OrderBy {
		checkExpression(f, r.OrderBy[i].Expression, p.Child("orderBy").Index(i).Child("expression"))
	}
	checkCount(f, spec, r, p.Child("keep"), r.Keep, "keeps")
	warnShrinkingKeep(f, spec, r, p.Child("keep"))
	checkCount(f, spec, r, p.Child("leave"), r.Leave, "leaves")
}

// itemsRead matches an expression that reads items.
var itemsRead = regexp.MustCompile(`(^|[^.\w])items($|\W)`)

// warnShrinkingKeep warns of a number to keep that is computed of the items, where actions take these away: it becomes less each time.
func warnShrinkingKeep(f *Findings, spec *v1alpha1.Work, r *v1alpha1.Rule, p *field.Path) {
	limited := spec.Limits != nil && (spec.Limits.MaxActions > 0 || spec.Limits.PerGroup > 0)
	if r.Keep == nil || limited || !itemsRead.MatchString(r.Keep.StrVal) && !strings.Contains(r.Keep.StrVal, strings.TrimSpace(r.ForEach)) || !slices.ContainsFunc(r.Actions, func(a v1alpha1.RuleAction) bool { return a.Delete != nil || a.Evict != nil }) {
		return
	}
	f.addWarning(p, "is computed again after each action, of the items that are left, until nothing more matches: write a number, or add limits with a maxActions that is never less than the items due at once: while more are due, the operator does nothing")
}

// checkCount checks how many items of a group are kept or left.
func checkCount(f *Findings, spec *v1alpha1.Work, r *v1alpha1.Rule, p *field.Path, count *intstr.IntOrString, does string) {
	switch {
	case count == nil:
		return
	case count.Type == intstr.Int && (count.IntVal < 0 || count.IntVal > maxKeep):
		f.addError(p, fmt.Sprintf("is %d: write a number from 0 to %d, or an expression that returns one", count.IntVal, maxKeep))
	case count.Type == intstr.String:
		checkExpression(f, count.StrVal, p)
	}
	if whole, ok := findWholeTarget(spec, r.ForEach); ok && len(r.OrderBy) == 0 && (count.Type == intstr.String || count.IntVal > 0) {
		f.addWarning(p, fmt.Sprintf("%s the items of %s that are last by namespace and name: add orderBy, such as [{expression: item.metadata.creationTimestamp}] to %s the newest",
			does, spec.Targets[whole].Name, strings.TrimSuffix(does, "s")))
	}
}

func checkConfirm(f *Findings, spec *v1alpha1.Work, r *v1alpha1.Rule, p *field.Path) {
	if len(r.Confirm) > maxConfirm {
		f.addError(p, fmt.Sprintf("has %d entries; at most %d are allowed", len(r.Confirm), maxConfirm))
	}
	for i := range r.Confirm {
		c, path := &r.Confirm[i], p.Index(i)
		switch at := findTarget(spec, c.Target); {
		case c.Target == v1alpha1.ConfirmAll && c.Name != "":
			f.addError(path.Child("name"), `requires the name of one target: write it in target instead of "*", or remove name`)
		case c.Target == v1alpha1.ConfirmAll:
		case c.Target == "":
			f.addError(path.Child("target"), "must not be empty: write the name of the target to read")
		case at < 0:
			f.addError(path.Child("target"), fmt.Sprintf("%q is not the name of a target: %s", c.Target, describeTargets(spec)))
		case !spec.Targets[at].IsIncluded():
			f.addError(path.Child("target"), fmt.Sprintf("%q is a target that expressions cannot read: remove its includeWhenEvaluating: false, or this entry", c.Target))
		}
		checkOptionalExpression(f, c.Name, path.Child("name"))
		checkOptionalExpression(f, c.Namespace, path.Child("namespace"))
		if c.Namespace != "" && c.Name == "" {
			f.addError(path.Child("namespace"), "requires name: add it, or remove namespace to list the whole target")
		}
	}
}

// findTarget returns the index of a target; -1 if there is none of this name.
func findTarget(spec *v1alpha1.Work, name string) int {
	return slices.IndexFunc(spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Name == name })
}

// describeTargets returns the names of all targets, for a message about a name that is not one of them.
func describeTargets(spec *v1alpha1.Work) string {
	if len(spec.Targets) == 0 {
		return "there are none; add it to targets"
	}
	var names []string
	for i := range spec.Targets {
		names = append(names, spec.Targets[i].Name)
	}
	return "there are " + strings.Join(names, ", ")
}

// findWholeTarget returns the target whose objects are exactly the items of an expression.
func findWholeTarget(spec *v1alpha1.Work, expression string) (int, bool) {
	for _, form := range []*regexp.Regexp{allItemsPattern, oneItemPattern} {
		if m := form.FindStringSubmatch(expression); m != nil {
			at := findTarget(spec, m[1])
			// The items of a target with a name would be a field of that object.
			return at, at >= 0 && (spec.Targets[at].Reference.Name == "") == (form == allItemsPattern)
		}
	}
	return -1, false
}

// FindActionTargets returns the indexes of the targets whose objects an action may act on. It is one target if forEach is all objects
// of a target, such as pods.items, and the action has no object of its own. Otherwise it is every target that expressions read,
// except those on which the operator would not carry out the action: the result of an expression is unknown until it is evaluated.
func FindActionTargets(spec *v1alpha1.Work, rule, action int, o Options) []int {
	r := &spec.Rules[rule]
	a := &r.Actions[action]
	if at, ok := findSoleTarget(spec, r, a); ok {
		return []int{at}
	}
	var all []int
	for i := range spec.Targets {
		k := o.findTargetKind(spec, i)
		switch {
		case !spec.Targets[i].IsIncluded():
		case k.clusterScoped && !spec.Cluster:
		case k.group == v1alpha1.GroupVersion.Group:
		case a.Delete != nil && o.explainUndeletable(spec, k) != "":
		case a.Evict != nil && !isPod(&spec.Targets[i].Reference):
		case changesRecord(&spec.Targets[i], a):
		case a.HelmUninstall != nil && !spec.Targets[i].IsOfReleases():
		default:
			all = append(all, i)
		}
	}
	return all
}

// findSoleTarget returns the one target whose objects an action acts on, if that is known.
func findSoleTarget(spec *v1alpha1.Work, r *v1alpha1.Rule, a *v1alpha1.RuleAction) (int, bool) {
	if a.Object == "" {
		return findWholeTarget(spec, r.ForEach)
	}
	at := findTarget(spec, strings.TrimSpace(a.Object))
	return at, at >= 0 && spec.Targets[at].Reference.Name != ""
}

func checkActions(f *Findings, spec *v1alpha1.Work, rule int, p *field.Path, o Options) {
	actions := spec.Rules[rule].Actions
	switch n := len(actions); {
	case n == 0:
		f.addError(p, "are missing: write what to do with the items, such as [delete: {}], or [report: {}] to only report them")
	case n > maxActions:
		f.addError(p, fmt.Sprintf("has %d entries; at most %d are allowed", n, maxActions))
	}
	for i := range actions {
		a, path := &actions[i], p.Index(i)
		checkOptionalExpression(f, a.When, path.Child("when"))
		checkOptionalExpression(f, a.Object, path.Child("object"))
		verb := checkActionVerb(f, a, path)
		if verb == "" {
			continue
		}
		if because := explainEscalation(spec, rule, i, o); because != "" {
			f.addError(path.Child(verb), because)
			continue
		}
		if a.HelmUninstall != nil && !mayUninstall(f, spec, rule, i, path.Child(verb), o) {
			continue
		}
		// Without a sole target, it is unknown what the action acts on.
		switch touched, ok := findSoleTarget(spec, &spec.Rules[rule], a); {
		case !ok:
		case changesRecord(&spec.Targets[touched], a):
			f.addError(path.Child(verb), "cannot be done: the operator changes no record of a Helm release: write delete, which deletes records of superseded revisions, or report")
		default:
			checkActionTarget(f, spec, a, touched, path.Child(verb), o)
		}
	}
}

// checkActionVerb checks the verb of an action and returns it; empty if the action does not have exactly one.
func checkActionVerb(f *Findings, a *v1alpha1.RuleAction, p *field.Path) string {
	var verbs []string
	if a.Report != nil {
		verbs = append(verbs, "report")
	}
	if a.Delete != nil {
		verbs = append(verbs, "delete")
		checkDelete(f, a.Delete, p.Child("delete"))
	}
	if a.Evict != nil {
		verbs = append(verbs, "evict")
		checkGracePeriod(f, a.Evict.GracePeriodSeconds, p.Child("evict", "gracePeriodSeconds"))
	}
	if a.Patch != nil {
		verbs = append(verbs, "patch")
		checkPatch(f, a.Patch, p.Child("patch"))
	}
	if a.RemoveFinalizer != nil {
		verbs = append(verbs, "removeFinalizer")
		name := a.RemoveFinalizer.Name
		if len(name) > maxFinalizer || len(utilvalidation.IsQualifiedName(name)) > 0 {
			f.addError(p.Child("removeFinalizer", "name"), fmt.Sprintf("%q is not a finalizer: write one as listed in metadata.finalizers, such as example.com/protect", name))
		}
	}
	if a.HelmUninstall != nil {
		verbs = append(verbs, helmUninstall)
		checkHookTimeout(f, a.HelmUninstall.Timeout, p.Child(helmUninstall, "timeout"))
	}
	switch len(verbs) {
	case 0:
		f.addError(p, "has no verb: write one of report, delete, evict, patch, removeFinalizer and helmUninstall")
		return ""
	case 1:
	default:
		f.addError(p, fmt.Sprintf("has %s: write a separate action for each", strings.Join(verbs, " and ")))
		return ""
	}
	return verbs[0]
}

func checkDelete(f *Findings, d *v1alpha1.DeleteAction, p *field.Path) {
	checkGracePeriod(f, d.GracePeriodSeconds, p.Child("gracePeriodSeconds"))
	switch d.PropagationPolicy {
	case "", v1alpha1.PropagateBackground, v1alpha1.PropagateForeground, v1alpha1.PropagateOrphan:
	default:
		f.addError(p.Child("propagationPolicy"), fmt.Sprintf("%q is not a propagation policy: write Background, Foreground or Orphan", d.PropagationPolicy))
	}
	if d.GracePeriodSeconds != nil && *d.GracePeriodSeconds == 0 {
		f.addWarning(p.Child("gracePeriodSeconds"), "0 forces the deletion: the API server forgets a Pod at once, while its containers may still run; remove it unless the Node is gone")
	}
}

func checkGracePeriod(f *Findings, seconds *int64, p *field.Path) {
	if seconds != nil && (*seconds < 0 || *seconds > maxGrace) {
		f.addError(p, fmt.Sprintf("is %d: write a number of seconds from 0 to %d", *seconds, maxGrace))
	}
}

// patchedSubresources returns the subresources that may be patched, which are parts of an object. Others, such as proxy, lead to
// something else, which answers in the API server's place.
func patchedSubresources() []string {
	return []string{"status", "scale", "resize", "ephemeralcontainers", "approval"}
}

func checkPatch(f *Findings, a *v1alpha1.PatchAction, p *field.Path) {
	switch a.Type {
	case v1alpha1.PatchStrategic, v1alpha1.PatchMerge, v1alpha1.PatchJSON, v1alpha1.PatchApply:
	default:
		f.addError(p.Child("type"), fmt.Sprintf("%q is not a type: write Strategic, for built-in kinds, Merge, JSON or Apply", a.Type))
	}
	if a.Subresource != "" && !slices.Contains(patchedSubresources(), a.Subresource) {
		f.addError(p.Child("subresource"), fmt.Sprintf("%q is not a subresource that can be patched: write %s", a.Subresource, strings.Join(patchedSubresources(), ", ")))
	}
	requireExpression(f, a.Expression, p.Child("expression"), `write the patch, such as {"metadata": {"labels": {"seen": "true"}}}`)
	if a.Force && a.Type != v1alpha1.PatchApply {
		f.addError(p.Child("force"), "requires type: Apply: change type, or remove force")
	}
}

// explainEscalation returns why an action would let the author of a template do more than they may; empty if it would not. For some
// kinds the API server checks the rights of the user who changes them. That would be the ServiceAccount of a Cleaner that uses the
// template.
func explainEscalation(spec *v1alpha1.Work, rule, action int, o Options) string {
	r := &spec.Rules[rule]
	if spec.Declared == nil || r.Actions[action].Patch == nil {
		return ""
	}
	for _, at := range FindActionTargets(spec, rule, action, o) {
		k := o.findTargetKind(spec, at)
		if !v1alpha1.JudgesRequester(k.group) {
			continue
		}
		if _, alone := findSoleTarget(spec, r, &r.Actions[action]); alone {
			return fmt.Sprintf("cannot be done by a template: the API server checks the rights of the user who changes %s, not those of the author of the template: write the rule into the Cleaner itself", k.resourceName())
		}
		return fmt.Sprintf("may be about %s, which cannot be patched by a template: the API server checks the rights of the user who changes them, not those of the author of the template: "+
			"let forEach be all objects of another target, such as pods.items, or write the rule into the Cleaner itself", k.resourceName())
	}
	return ""
}

// checkActionTarget checks whether an action is possible on the objects of a target.
func checkActionTarget(f *Findings, spec *v1alpha1.Work, a *v1alpha1.RuleAction, target int, p *field.Path, o Options) {
	k, r := o.findTargetKind(spec, target), &spec.Targets[target].Reference
	switch because := o.explainUndeletable(spec, k); {
	case a.Report != nil:
	case k.group == v1alpha1.GroupVersion.Group:
		f.addError(p, "cannot be done: "+k.explainUntouchable())
	case a.Patch != nil && v1alpha1.JudgesRequester(k.group) && spec.ServiceAccount == nil:
		f.addError(p, fmt.Sprintf("cannot be done: the API server checks the rights of the user who changes %s, which would be the operator: set a ServiceAccount", k.resourceName()))
	case a.Delete != nil && because != "":
		f.addError(p, "cannot be done: "+because)
	case k.clusterScoped && !spec.Cluster:
		f.addError(p, "cannot be done: "+k.explainOutOfReach("acts"))
	case a.Evict != nil && !isPod(r):
		f.addError(p, fmt.Sprintf("is for Pods, and the target %q has objects of kind %s: write delete", spec.Targets[target].Name, r.Kind))
	case a.Patch != nil && a.Patch.Type == v1alpha1.PatchStrategic && !slices.Contains(builtinGroups(), r.APIGroup):
		f.addError(p.Child("type"), fmt.Sprintf("Strategic is for built-in kinds, and the target %q has objects of group %s: write Merge, JSON or Apply", spec.Targets[target].Name, r.APIGroup))
	}
}

func isPod(r *v1alpha1.ClusterReference) bool {
	return r.APIGroup == "" && slices.ContainsFunc([]string{"pod", "pods"}, func(name string) bool { return strings.EqualFold(name, r.Kind) })
}

// builtinGroups returns the API groups whose kinds are compiled into the API server, which therefore knows how to merge their
// lists.
func builtinGroups() []string {
	return []string{
		"", "admissionregistration.k8s.io", "apps", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
		"internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io", "policy", "rbac.authorization.k8s.io", "resource.k8s.io",
		"scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io",
	}
}
