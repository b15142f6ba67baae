// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// The bounds that the schema has too.
const (
	maxTargets     = 64
	maxConditions  = 64
	maxExpression  = 16384
	maxSinkLength  = 2048
	maxReleaseName = 53
)

// maxNumber is the longest number that a message repeats.
const maxNumber = 24

// The bounds that only this package knows.
const (
	// MaxSpecBytes leaves room for the status: both share the 1.5 MiB of an object.
	MaxSpecBytes = 256 << 10
	// minPeriod keeps a Cleaner from being evaluated all the time.
	minPeriod = 10 * time.Second
	// shortTTL is a ttl that leaves nobody the time to correct a mistake.
	shortTTL = time.Minute
)

// Options say what the spec itself does not.
type Options struct {
	// AllowProtectedKinds are the protected resources that may be deleted, as <resource>.<group>, such as
	// "roles.rbac.authorization.k8s.io".
	AllowProtectedKinds []string
	// Compiled is what the compiler found wrong with the expressions. Nobody else looks at them.
	Compiled field.ErrorList
	// RequireServiceAccount says that each Cleaner must act as a ServiceAccount; DefaultServiceAccount is the one of those
	// that name none.
	RequireServiceAccount bool
	DefaultServiceAccount string
	// Served is what the API server says of each target's kind, in the order of the spec. Nil if nobody has asked.
	Served []ServedKind
	// Namespace is the one in which the Cleaner lives; empty for a ClusterCleaner, and if nobody knows.
	Namespace string
	// OperatorNamespace is the operator's own, of which no Secret is read for anybody; empty if nobody knows.
	OperatorNamespace string
	// Template is the name of the CleanerTemplate from which targets, variables, conditions, rules and parameters are.
	// What is wrong with them is then said of it. Empty if the spec has them itself.
	Template string
	// isTemplate says that they are looked at as a template that Cleaners may use as well as ClusterCleaners.
	isTemplate bool
}

// ServedKind is what an API server says of a kind.
type ServedKind struct {
	// Resource is the plural name of the kind. It is empty if the kind is not served.
	Resource string
	// Namespaced says whether its objects live in namespaces.
	Namespaced bool
}

// Validate says what is wrong with the spec of a Cleaner or a ClusterCleaner, with its template expanded if there is one.
// It never changes it.
func Validate(spec *v1alpha1.Work, o Options) Findings {
	var (
		found Findings
		path  = field.NewPath("spec")
	)
	if o.Template == "" {
		checkSize(&found, spec, path)
	}
	checkExpressionSize(&found, spec, path)
	checkPurpose(&found, spec, path, o)
	checkEnums(&found, spec, path)
	checkTimes(&found, spec, path)
	checkLimits(&found, spec.Limits, path.Child("limits"))
	checkParameters(&found, spec.Parameters, path.Child("parameters"))
	checkTemplateRef(&found, spec, path.Child("templateRef"))
	checkHelm(&found, spec, path.Child("helm"))
	checkBody(&found, spec, path, o)
	if spec.CloudEventData != "" {
		checkExpression(&found, spec.CloudEventData, path.Child("cloudEventData"))
		if spec.Recurs() {
			found.addWarning(path.Child("cloudEventData"), "is sent only when a Cleaner has cleaned once, and ignored with lifecycle: Recurring; remove it")
		}
	}
	found.addFieldErrors(o.Compiled)
	checkSink(&found, spec, path.Child("cloudEventSink"))
	checkSinkAuth(&found, spec, path.Child("cloudEventSinkAuth"), o)
	checkServiceAccount(&found, spec, path, o)
	warnClusterWide(&found, spec, path)
	if o.Template != "" {
		found.blameTemplate(o.Template)
	}
	return found
}

// checkBody looks at what templates have, too; in a Cleaner it lies in the spec itself.
func checkBody(f *Findings, spec *v1alpha1.Work, p *field.Path, o Options) {
	checkTargets(f, spec, p.Child("targets"), o)
	checkVariables(f, spec.Variables, p.Child("variables"))
	checkConditions(f, spec.Conditions, p.Child("conditions"))
	checkRules(f, spec, p, o)
}

// ownerKind returns the kind that the spec is of.
func ownerKind(spec *v1alpha1.Work) string {
	if spec.Cluster {
		return "ClusterCleaner"
	}
	return "Cleaner"
}

// addFieldErrors repeats what the compiler found, but for what has been said already, such as an expression that is empty.
func (f *Findings) addFieldErrors(errs field.ErrorList) {
	said := *f
	for _, finding := range FromFieldErrors(errs) {
		if !slices.ContainsFunc(said, func(s Finding) bool { return s.Path == finding.Path && s.Severity == Error }) {
			*f = append(*f, finding)
		}
	}
}

func checkSize(f *Findings, spec any, p *field.Path) {
	text, err := json.Marshal(spec)
	if err != nil { // only parameters can fail, and they are looked at on their own
		return
	}
	if len(text) > MaxSpecBytes {
		f.addError(p, fmt.Sprintf("is %d bytes long as JSON; at most %d are allowed: shorten the expressions or the parameters", len(text), MaxSpecBytes))
	}
}

// checkExpressionSize refuses more expressions than are compiled.
func checkExpressionSize(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	if n := spec.ExpressionBytes(); n > v1alpha1.MaxExpressionBytes {
		f.addError(p, fmt.Sprintf("the expressions are %d bytes long together; at most %d are allowed: shorten them, or use several Cleaners", n, v1alpha1.MaxExpressionBytes))
	}
}

// checkPurpose refuses what does nothing, and what would delete at once without anybody having said so.
func checkPurpose(f *Findings, spec *v1alpha1.Work, p *field.Path, o Options) {
	templated := spec.TemplateRef != nil || o.Template != ""
	if len(spec.Targets) == 0 && len(spec.Rules) == 0 && spec.Helm == nil && !templated {
		what := "targets, rules, helm or templateRef"
		if spec.Cluster {
			what = "targets, rules or templateRef"
		}
		f.addError(p, fmt.Sprintf("a %s needs something to clean: add %s", ownerKind(spec), what))
		return
	}
	if spec.Lifecycle == "" && (len(spec.Rules) > 0 || templated) {
		f.addError(p, fmt.Sprintf("with rules or templateRef, say what becomes of the %s when it has cleaned: lifecycle: Recurring keeps it, lifecycle: Once deletes it", ownerKind(spec)))
	}
	if len(spec.Rules) == 0 && !templated {
		checkTargetsAlone(f, spec, p)
	}
}

// checkTargetsAlone looks at a spec without rules, whose targets say what is deleted.
func checkTargetsAlone(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	switch {
	case !deletesAnything(spec) && spec.Recurs():
		f.addWarning(p, "nothing is ever done: without rules, only targets with delete: true are acted on; set it, or add rules")
	case !deletesAnything(spec):
		if spec.CloudEventSink == "" {
			f.addWarning(p, fmt.Sprintf("nothing is deleted and nobody is told, only the %s itself goes: set delete: true on a target or on helm, or give a cloudEventSink", ownerKind(spec)))
		}
	case len(spec.Conditions) > 0 || spec.Schedule != "":
	case spec.Recurs():
		f.addWarning(p, "without conditions, whatever the targets name is deleted as soon as it is there, for as long as this is: add conditions, or a schedule")
	case spec.TTL == "":
		f.addError(p, fmt.Sprintf("a %s that deletes needs a ttl or conditions: without either it would delete at once (write ttl: 0s if that is meant)", ownerKind(spec)))
	default:
		if ttl, err := spec.TTL.Parse(0); err == nil && ttl < shortTTL {
			f.addWarning(p.Child("ttl"), fmt.Sprintf("without conditions, everything is deleted %s after the %s is created: add conditions, or a longer ttl", ttl, ownerKind(spec)))
		}
	}
}

func deletesAnything(spec *v1alpha1.Work) bool {
	return (spec.Helm != nil && spec.Helm.Delete) || slices.ContainsFunc(spec.Targets, func(t v1alpha1.ClusterTarget) bool { return t.Delete })
}

func checkEnums(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	if spec.Lifecycle != "" && spec.Lifecycle != v1alpha1.LifecycleOnce && spec.Lifecycle != v1alpha1.LifecycleRecurring {
		f.addError(p.Child("lifecycle"), fmt.Sprintf("%q is no lifecycle: write Once or Recurring", spec.Lifecycle))
	}
	if spec.Mode != "" && spec.Mode != v1alpha1.ModeEnforce && spec.Mode != v1alpha1.ModeDryRun {
		f.addError(p.Child("mode"), fmt.Sprintf("%q is no mode: write Enforce or DryRun", spec.Mode))
	}
}

func checkTimes(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	f.parseDuration(spec.TTL, p.Child("ttl"))
	checkSchedule(f, spec, p)
	if spec.Retry == nil {
		return
	}
	path := p.Child("retry", "period")
	if period, ok := f.parseDuration(spec.Retry.Period, path); ok && period < minPeriod {
		f.addError(path, fmt.Sprintf("%s is too short: write %s or more", spec.Retry.Period, minPeriod))
	}
}

// parseDuration reads a duration, and says whether there is one.
func (f *Findings) parseDuration(d v1alpha1.Duration, p *field.Path) (time.Duration, bool) {
	if d == "" {
		return 0, false
	}
	read, err := d.Parse(0)
	if err != nil {
		f.addError(p, err.Error())
		return 0, false
	}
	return read, true
}

func checkParameters(f *Findings, parameters *runtime.RawExtension, p *field.Path) {
	if parameters == nil {
		return
	}
	text, err := json.Marshal(parameters)
	if err != nil {
		text = nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil || values == nil {
		f.addError(p, "must be an object, such as {team: web, keep: 3}")
		return
	}
	checkNumbers(f, values, p)
}

// checkNumbers refuses those that are stored in several forms, wherever they are in a value.
func checkNumbers(f *Findings, value any, p *field.Path) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			checkNumbers(f, value[name], p.Child(name))
		}
	case []any:
		for i := range value {
			checkNumbers(f, value[i], p.Index(i))
		}
	case json.Number:
		text := value.String()
		switch v, err := value.Float64(); {
		case v1alpha1.HasOneForm(value):
		case v == 0 && err == nil:
			f.addError(p, "is a negative zero, which API servers store as another number: write 0")
		default:
			if len(text) > maxNumber {
				text = "9007199254740993"
			}
			f.addError(p, fmt.Sprintf("is a number beyond %d, of which API servers do not keep each digit: write it as text, such as %q", v1alpha1.MaxWhole, text))
		}
	}
}

// checkTemplateRef is for a spec whose template is not expanded, because nobody has found it yet.
func checkTemplateRef(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	ref := spec.TemplateRef
	if ref == nil {
		return
	}
	if len(ref.Name) > maxObjectName || !dnsSubdomain.MatchString(ref.Name) {
		f.addError(p.Child("name"), fmt.Sprintf("%q is not the name of a CleanerTemplate: write the metadata.name of one, as kubectl get cleanertemplates shows them", ref.Name))
	}
	checkParameters(f, ref.Parameters, p.Child("parameters"))
	if len(spec.Targets) > 0 || len(spec.Variables) > 0 || len(spec.Conditions) > 0 || len(spec.Rules) > 0 || spec.Parameters != nil {
		f.addError(p, "stands in the place of targets, variables, conditions, rules and parameters: remove them, or templateRef")
	}
}

// longPer is a time over which limits count little more than over a shorter one: an operator hardly runs for so long.
const longPer = 30 * 24 * time.Hour

func checkLimits(f *Findings, l *v1alpha1.Limits, p *field.Path) {
	if l == nil {
		return
	}
	for _, bound := range []struct {
		field    string
		is, most int64
	}{
		{"maxActions", l.MaxActions, 1000000}, {"maxPercent", l.MaxPercent, 100}, {"actionsPerSecond", l.ActionsPerSecond, 10000},
	} {
		if bound.is < 0 || bound.is > bound.most { // 0 is one that is not given
			f.addError(p.Child(bound.field), fmt.Sprintf("is %d: write a number from 1 to %d, or leave it out for no limit", bound.is, bound.most))
		}
	}
	if l.Per == "" {
		return
	}
	if l.MaxActions == 0 && l.MaxPercent == 0 {
		f.addError(p.Child("per"), "is the time that maxActions and maxPercent count over: add one of them")
	}
	switch per, ok := f.parseDuration(l.Per, p.Child("per")); {
	case ok && per <= 0:
		f.addError(p.Child("per"), fmt.Sprintf("%s is too short: write more than 0s, or leave it out for 1h", l.Per))
	case ok && per > longPer:
		f.addWarning(p.Child("per"), fmt.Sprintf("%s is long for what is counted only since the operator has started, and takes memory, of which there may not be enough: then nothing is done for as long. "+
			"Write 30d at most", l.Per))
	}
}

// dnsSubdomain is the form of the names of releases, ServiceAccounts and most other objects.
var dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func checkHelm(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	h := spec.Helm
	if h == nil {
		return
	}
	if spec.Recurs() {
		f.addError(p, "a Helm release is uninstalled once: write lifecycle: Once, or remove helm")
	}
	switch {
	case h.Release == "":
		f.addError(p.Child("release"), "must not be empty: write the name of the release")
	case len(h.Release) > maxReleaseName:
		f.addError(p.Child("release"), fmt.Sprintf("is longer than the %d characters that a release's name may have", maxReleaseName))
	case !dnsSubdomain.MatchString(h.Release):
		f.addError(p.Child("release"), fmt.Sprintf("%q is not the name of a release: those have lower case letters, digits, - and . only, as helm list shows them", h.Release))
	}
	if timeout, ok := f.parseDuration(h.Timeout, p.Child("timeout")); ok && timeout <= 0 {
		f.addError(p.Child("timeout"), fmt.Sprintf("%s is too short: write more than 0s, or leave it out for 5m", h.Timeout))
	}
}

func checkConditions(f *Findings, conditions []string, p *field.Path) {
	if len(conditions) > maxConditions {
		f.addError(p, fmt.Sprintf("are %d; at most %d are allowed: join some with &&", len(conditions), maxConditions))
	}
	for i, expression := range conditions {
		checkExpression(f, expression, p.Index(i))
	}
}

func checkExpression(f *Findings, expression string, p *field.Path) {
	switch n := utf8.RuneCountInString(expression); {
	case strings.TrimSpace(expression) == "":
		f.addError(p, "is empty: write an expression, or remove it")
	case n > maxExpression:
		f.addError(p, fmt.Sprintf("is %d characters long; at most %d are allowed", n, maxExpression))
	}
}

func checkServiceAccount(f *Findings, spec *v1alpha1.Work, p *field.Path, o Options) {
	p, where, such := p.Child("serviceAccountName"), "of one in the Cleaner's namespace", "environment-cleaner"
	if spec.Cluster {
		p, where, such = field.NewPath("spec", "serviceAccount"), "of one in its namespace", "cluster-cleaner"
	}
	switch a := spec.ServiceAccount; {
	case a == nil:
		switch {
		case o.RequireServiceAccount && spec.Cluster:
			f.addError(p, "is required by this operator: write the namespace and the name of a ServiceAccount that may do what the ClusterCleaner is to do")
		case o.RequireServiceAccount && o.DefaultServiceAccount == "":
			f.addError(p, "is required by this operator: write the name of a ServiceAccount of the Cleaner's namespace that may do what the Cleaner is to do")
		}
	case len(a.Name) > maxObjectName || !dnsSubdomain.MatchString(a.Name):
		f.addError(p, fmt.Sprintf("%q is not the name of a ServiceAccount: write the metadata.name %s, such as %s", a.Name, where, such))
	case spec.Cluster && a.Namespace == "":
		f.addError(p.Child("namespace"), "must not be empty: write the namespace in which the ServiceAccount lives")
	}
}

// checkSink checks the form of the URL; where it leads is looked at when it is dialled. Messages leave the URL out: it may
// hold a password.
func checkSink(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	sink := spec.CloudEventSink
	if sink == "" {
		return
	}
	if spec.Mode == v1alpha1.ModeDryRun {
		f.addWarning(p, "is sent nothing with mode: DryRun; status and Events say what would be done")
	}
	if utf8.RuneCountInString(sink) > maxSinkLength {
		f.addError(p, fmt.Sprintf("is longer than the %d characters that are allowed", maxSinkLength))
		return
	}
	u, err := url.Parse(sink)
	switch {
	case err != nil:
		f.addError(p, "is not a URL: write one such as http://registry-cleaner.default.svc/events")
	case u.Scheme != "http" && u.Scheme != "https":
		f.addError(p, "must be a URL that starts with http:// or https://")
	case u.Hostname() == "":
		f.addError(p, "names no host: write a URL such as http://registry-cleaner.default.svc/events")
	case !isValidPort(u.Port()):
		f.addError(p, fmt.Sprintf("has port %s: write one from 1 to 65535", u.Port()))
	case u.User != nil:
		f.addError(p, "must not contain a user name or password: whoever may read the Cleaner could read them")
	case strings.Contains(sink, "#"):
		f.addError(p, "must not contain a fragment (# and what follows): it is never sent")
	}
}

// secretKey is the form of the keys of a Secret.
var secretKey = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

func checkSinkAuth(f *Findings, spec *v1alpha1.Work, p *field.Path, o Options) {
	auth := spec.CloudEventSinkAuth
	if auth == nil {
		return
	}
	if spec.CloudEventSink == "" {
		f.addError(p, "means nothing without cloudEventSink: add one, or remove it")
	}
	if auth.Type != v1alpha1.SinkAuthBearer && auth.Type != v1alpha1.SinkAuthHMAC {
		f.addError(p.Child("type"), fmt.Sprintf("%q is no type: write Bearer or HMAC", auth.Type))
	}
	checkSinkSecret(f, spec, &auth.SecretRef, p.Child("secretRef"), o)
	if auth.Type == v1alpha1.SinkAuthBearer && strings.HasPrefix(strings.ToLower(spec.CloudEventSink), "http:") {
		f.addWarning(p.Root().Child("cloudEventSink"), "the token of cloudEventSinkAuth is sent over it as plain text: write a URL that starts with https://, or type: HMAC")
	}
}

// checkSinkSecret looks at the Secret that shows a sink who sends.
func checkSinkSecret(f *Findings, spec *v1alpha1.Work, ref *v1alpha1.ClusterSecretKeyReference, p *field.Path, o Options) {
	if len(ref.Name) > maxObjectName || !dnsSubdomain.MatchString(ref.Name) {
		f.addError(p.Child("name"), fmt.Sprintf("%q is not the name of a Secret: write its metadata.name, such as sink-token", ref.Name))
	}
	if len(ref.Key) > maxObjectName || !secretKey.MatchString(ref.Key) {
		f.addError(p.Child("key"), fmt.Sprintf("%q is not a key of a Secret: write one of its data, such as token", ref.Key))
	}
	switch own := o.OperatorNamespace; {
	case spec.Cluster && ref.Namespace == "":
		f.addError(p.Child("namespace"), "must not be empty: write the namespace in which the Secret lives")
	case own == "":
	case spec.Cluster && ref.Namespace == own:
		f.addError(p.Child("namespace"), fmt.Sprintf("%q is the namespace of the operator, of which no Secret is read: put the Secret into another one", own))
	case !spec.Cluster && o.Namespace == own:
		f.addError(p, fmt.Sprintf("no Secret of %q is read, which is the namespace of the operator: put the Cleaner and the Secret into another one", own))
	}
}

// warnClusterWide warns of a ClusterCleaner that would show its mistakes everywhere at once.
func warnClusterWide(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	if !spec.Cluster {
		return
	}
	limited := spec.Limits != nil && (spec.Limits.MaxActions > 0 || spec.Limits.MaxPercent > 0)
	if changesAnything(spec) && !limited && spec.Mode != v1alpha1.ModeDryRun {
		f.addWarning(p, "nothing limits what is done in the whole cluster: try it with mode: DryRun first, or add limits such as {maxActions: 100}")
	}
	if spec.IncludeProtected {
		f.addWarning(p.Child("includeProtected"), "namespaces such as kube-system, on which the cluster hangs, are cleaned too: make sure that the targets mean them")
	}
}

// changesAnything says that the spec does more than to report.
func changesAnything(spec *v1alpha1.Work) bool {
	return deletesAnything(spec) || slices.ContainsFunc(spec.Rules, func(r v1alpha1.Rule) bool {
		return slices.ContainsFunc(r.Actions, func(a v1alpha1.RuleAction) bool { return a.Report == nil })
	})
}

// isValidPort says whether a port, which url.Parse found to be empty or digits, can be dialled.
func isValidPort(port string) bool {
	if port == "" {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
