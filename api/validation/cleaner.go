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

// The bounds that the schema also has.
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
	// minPeriod is the shortest retry.period: a Cleaner must not be evaluated all the time.
	minPeriod = 10 * time.Second
	// shortTTL is the shortest ttl without a warning: a shorter one leaves no time to correct a mistake.
	shortTTL = time.Minute
)

// Options are the facts about a Cleaner that are not in its spec.
type Options struct {
	// AllowProtectedKinds are the protected resources that may be deleted, as <resource>.<group>, such as
	// "roles.rbac.authorization.k8s.io".
	AllowProtectedKinds []string
	// Compiled are the compiler's errors. Validate does not compile the expressions itself.
	Compiled field.ErrorList
	// UnknownFields are the fields that expressions read and no object has. validation says whether they are errors.
	UnknownFields field.ErrorList
	// RequireServiceAccount means that each Cleaner must act as a ServiceAccount. DefaultServiceAccount is the one for Cleaners
	// that name none.
	RequireServiceAccount bool
	DefaultServiceAccount string
	// Served is what the API server says about the kind of each target, in the order of the spec; nil if it was not asked.
	Served []ServedKind
	// Namespace is the namespace of the Cleaner; empty for a ClusterCleaner, or if it is unknown.
	Namespace string
	// OperatorNamespace is the namespace of the operator, whose Secrets no Cleaner can use; empty if it is unknown.
	OperatorNamespace string
	// Template is the name of the CleanerTemplate that targets, variables, conditions, rules and parameters come from. Findings
	// about them are then findings about the template. Empty if the spec has them itself.
	Template string
	// isTemplate means that the spec is the body of a template, which both Cleaners and ClusterCleaners may use.
	isTemplate bool
}

// ServedKind is what an API server says about a kind.
type ServedKind struct {
	// Resource is the plural name of the kind. It is empty if the kind is not served.
	Resource string
	// Namespaced means that its objects are in namespaces.
	Namespaced bool
	// Kinds are those that a target of kind "*" stands for, where that is known.
	Kinds []NamedResource
}

// NamedResource is a resource that an API server serves.
type NamedResource struct {
	Group, Resource string
	// Namespaced means that its objects are in namespaces.
	Namespaced bool
}

// Validate returns the mistakes in the spec of a Cleaner or a ClusterCleaner, with its template expanded if it has one. It never
// changes the spec.
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
	checkAnyKindOwner(&found, spec, path.Child("targets"))
	checkBody(&found, spec, path, o)
	if spec.CloudEventData != "" {
		checkExpression(&found, spec.CloudEventData, path.Child("cloudEventData"))
		if spec.IsRecurring() {
			found.addWarning(path.Child("cloudEventData"), "is ignored with lifecycle: Recurring: remove it")
		}
	}
	found.addFieldErrors(o.Compiled)
	found.addUnknownFields(o.UnknownFields, spec.Validation)
	checkSink(&found, spec, path.Child("cloudEventSink"))
	checkSinkAuth(&found, spec, path.Child("cloudEventSinkAuth"), o)
	checkServiceAccount(&found, spec, path, o)
	warnClusterWide(&found, spec, path)
	if o.Template != "" {
		found.blameTemplate(o.Template)
	}
	return found
}

// checkBody checks the fields that a template can provide. p is their path.
func checkBody(f *Findings, spec *v1alpha1.Work, p *field.Path, o Options) {
	checkTargets(f, spec, p.Child("targets"), o)
	warnNamespacedOnly(f, spec, p.Child("targets"))
	checkVariables(f, spec.Variables, p.Child("variables"))
	checkConditions(f, spec.Conditions, p.Child("conditions"))
	checkRules(f, spec, p, o)
}

// ownerKind returns the kind of the object that has this spec.
func ownerKind(spec *v1alpha1.Work) string {
	if spec.Cluster {
		return "ClusterCleaner"
	}
	return "Cleaner"
}

// addUnknownFields adds what is wrong with fields that expressions read.
func (f *Findings) addUnknownFields(errs field.ErrorList, mode v1alpha1.FieldValidation) {
	switch mode {
	case v1alpha1.ValidationIgnore:
	case v1alpha1.ValidationWarn:
		for _, finding := range FromFieldErrors(errs) {
			finding.Severity = Warning
			finding.Message, _, _ = strings.Cut(finding.Message, "\n") // without the line of the expression
			*f = append(*f, finding)
		}
	default:
		*f = append(*f, FromFieldErrors(errs)...)
	}
}

// addFieldErrors adds errors, except for fields that already have one, such as an empty expression.
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
	if err != nil { // only parameters can fail, and checkParameters checks them
		return
	}
	if len(text) > MaxSpecBytes {
		f.addError(p, fmt.Sprintf("is %d bytes long as JSON; at most %d are allowed: shorten the expressions or the parameters", len(text), MaxSpecBytes))
	}
}

// checkExpressionSize refuses expressions that are too long together to be compiled.
func checkExpressionSize(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	if n := spec.ExpressionBytes(); n > v1alpha1.MaxExpressionBytes {
		f.addError(p, fmt.Sprintf("the expressions are %d bytes long together; at most %d are allowed: shorten them, or use several Cleaners", n, v1alpha1.MaxExpressionBytes))
	}
}

// checkPurpose refuses a Cleaner that does nothing, and one that would delete at once although nothing in it says so.
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
		f.addError(p, fmt.Sprintf("rules and templateRef require a lifecycle: write lifecycle: Recurring to keep the %s after a cleanup, or lifecycle: Once to delete it", ownerKind(spec)))
	}
	if len(spec.Rules) == 0 && !templated {
		checkTargetsAlone(f, spec, p)
	}
}

// checkTargetsAlone checks a spec without rules, whose targets say what is deleted.
func checkTargetsAlone(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	switch {
	case !deletesAnything(spec) && spec.IsRecurring():
		f.addWarning(p, "nothing is ever cleaned up: without rules, the operator acts only on targets with delete: true; set it on a target, or add rules")
	case !deletesAnything(spec):
		if !spec.HasSink() {
			f.addWarning(p, fmt.Sprintf("nothing is deleted except the %s itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink", ownerKind(spec)))
		}
	case len(spec.Conditions) > 0 || spec.Schedule != "":
	case spec.IsRecurring():
		f.addWarning(p, "without conditions, each object that a target with delete: true selects is deleted as soon as it appears: add conditions, or a schedule")
	case spec.TTL == "":
		f.addError(p, fmt.Sprintf("a %s that deletes needs a ttl, a schedule or conditions: without them, it would delete immediately (write ttl: 0s if you want that)", ownerKind(spec)))
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
		f.addError(p.Child("lifecycle"), fmt.Sprintf("%q is not a lifecycle: write Once or Recurring", spec.Lifecycle))
	}
	if spec.Mode != "" && spec.Mode != v1alpha1.ModeEnforce && spec.Mode != v1alpha1.ModeDryRun {
		f.addError(p.Child("mode"), fmt.Sprintf("%q is not a mode: write Enforce or DryRun", spec.Mode))
	}
	if v := spec.Validation; v != "" && v != v1alpha1.ValidationStrict && v != v1alpha1.ValidationWarn && v != v1alpha1.ValidationIgnore {
		f.addError(p.Child("validation"), fmt.Sprintf("%q is not a validation: write Strict, Warn or Ignore", v))
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

// parseDuration parses a duration, and reports whether there is a valid one.
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

// checkNumbers refuses numbers that API servers do not store exactly, anywhere in a value.
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
			f.addError(p, fmt.Sprintf("is a number beyond %d, and API servers do not keep all of its digits: write it as a string, such as %q", v1alpha1.MaxWhole, text))
		}
	}
}

// checkTemplateRef checks the templateRef of a spec whose template is not expanded yet.
func checkTemplateRef(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	ref := spec.TemplateRef
	if ref == nil {
		return
	}
	if len(ref.Name) > maxObjectName || !dnsSubdomain.MatchString(ref.Name) {
		f.addError(p.Child("name"), fmt.Sprintf("%q is not the name of a CleanerTemplate: write one that kubectl get cleanertemplates shows", ref.Name))
	}
	checkParameters(f, ref.Parameters, p.Child("parameters"))
	if len(spec.Targets) > 0 || len(spec.Variables) > 0 || len(spec.Conditions) > 0 || len(spec.Rules) > 0 || spec.Parameters != nil {
		f.addError(p, "replaces targets, variables, conditions, rules and parameters: remove them, or templateRef")
	}
}

// longPer is the longest `per` without a warning: an operator hardly runs longer, and limits count only since it started.
const longPer = 30 * 24 * time.Hour

func checkLimits(f *Findings, l *v1alpha1.Limits, p *field.Path) {
	if l == nil {
		return
	}
	for _, bound := range []struct {
		field    string
		is, most int64
	}{
		{"maxActions", l.MaxActions, 1000000}, {"maxPercent", l.MaxPercent, 100}, {"perGroup", l.PerGroup, 1000000}, {"actionsPerSecond", l.ActionsPerSecond, 10000},
	} {
		if bound.is < 0 || bound.is > bound.most { // 0 means no limit
			f.addError(p.Child(bound.field), fmt.Sprintf("is %d: write a number from 1 to %d, or leave it out for no limit", bound.is, bound.most))
		}
	}
	if l.Per == "" {
		return
	}
	if l.MaxActions == 0 && l.MaxPercent == 0 && l.PerGroup == 0 {
		f.addError(p.Child("per"), "is the period over which maxActions, maxPercent and perGroup count: add one of them")
	}
	switch per, ok := f.parseDuration(l.Per, p.Child("per")); {
	case ok && per <= 0:
		f.addError(p.Child("per"), fmt.Sprintf("%s is too short: write more than 0s, or leave it out for 1h", l.Per))
	case ok && per > longPer:
		f.addWarning(p.Child("per"), fmt.Sprintf("%s is long: actions count only since the operator started, and if it has no memory left for them, nothing is done until the oldest no longer count. "+
			"Write 30d or less", l.Per))
	}
}

// dnsSubdomain is the form of the names of releases, ServiceAccounts and most other objects.
var dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

func checkHelm(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	h := spec.Helm
	if h == nil {
		return
	}
	if spec.IsRecurring() {
		f.addError(p, "requires lifecycle: Once: change lifecycle, or remove helm")
	}
	switch {
	case h.Release == "":
		f.addError(p.Child("release"), "must not be empty: write the name of the release")
	case len(h.Release) > maxReleaseName:
		f.addError(p.Child("release"), fmt.Sprintf("is longer than the %d characters that a release's name may have", maxReleaseName))
	case !dnsSubdomain.MatchString(h.Release):
		f.addError(p.Child("release"), fmt.Sprintf("%q is not the name of a release: write it as helm list shows it, with lower case letters, digits, - and . only", h.Release))
	}
	checkHookTimeout(f, h.Timeout, p.Child("timeout"))
}

func checkConditions(f *Findings, conditions []string, p *field.Path) {
	if len(conditions) > maxConditions {
		f.addError(p, fmt.Sprintf("has %d entries; at most %d are allowed: combine some with &&", len(conditions), maxConditions))
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
			f.addError(p, "is required by this operator: write the namespace and the name of a ServiceAccount that has the rights that the ClusterCleaner needs")
		case o.RequireServiceAccount && o.DefaultServiceAccount == "":
			f.addError(p, "is required by this operator: write the name of a ServiceAccount in the namespace of the Cleaner that has the rights that the Cleaner needs")
		}
	case len(a.Name) > maxObjectName || !dnsSubdomain.MatchString(a.Name):
		f.addError(p, fmt.Sprintf("%q is not the name of a ServiceAccount: write the metadata.name %s, such as %s", a.Name, where, such))
	case spec.Cluster && a.Namespace == "":
		f.addError(p.Child("namespace"), "must not be empty: write the namespace of the ServiceAccount")
	}
}

// checkSink checks the form of the URL. The operator checks its address when it connects. Messages leave out the URL: it may contain
// a password.
func checkSink(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	sink := spec.CloudEventSink
	if sink == "" {
		return
	}
	if spec.Mode == v1alpha1.ModeDryRun {
		f.addWarning(p, "receives nothing with mode: DryRun: status and Events show what would be done")
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
		f.addError(p, "must not contain a user name or password: everyone who can read the Cleaner could read them")
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
	if !spec.HasSink() {
		f.addError(p, "requires cloudEventSink: add it, or remove this field")
	}
	if auth.Type != v1alpha1.SinkAuthBearer && auth.Type != v1alpha1.SinkAuthHMAC {
		f.addError(p.Child("type"), fmt.Sprintf("%q is not a type: write Bearer or HMAC", auth.Type))
	}
	checkSinkSecret(f, spec, &auth.SecretRef, p.Child("secretRef"), o)
	if auth.Type == v1alpha1.SinkAuthBearer && strings.HasPrefix(strings.ToLower(spec.CloudEventSink), "http:") {
		f.addWarning(p.Root().Child("cloudEventSink"), "the token of cloudEventSinkAuth is sent as plain text: write a URL that starts with https://, or type: HMAC")
	}
}

// checkSinkSecret checks the reference to the Secret with which the operator proves to a sink who it is.
func checkSinkSecret(f *Findings, spec *v1alpha1.Work, ref *v1alpha1.ClusterSecretKeyReference, p *field.Path, o Options) {
	if len(ref.Name) > maxObjectName || !dnsSubdomain.MatchString(ref.Name) {
		f.addError(p.Child("name"), fmt.Sprintf("%q is not the name of a Secret: write its metadata.name, such as sink-token", ref.Name))
	}
	if len(ref.Key) > maxObjectName || !secretKey.MatchString(ref.Key) {
		f.addError(p.Child("key"), fmt.Sprintf("%q is not a key of a Secret: write a key in its data, such as token", ref.Key))
	}
	switch own := o.OperatorNamespace; {
	case spec.Cluster && ref.Namespace == "":
		f.addError(p.Child("namespace"), "must not be empty: write the namespace of the Secret")
	case own == "":
	case spec.Cluster && ref.Namespace == own:
		f.addError(p.Child("namespace"), fmt.Sprintf("%q is the namespace of the operator, and none of its Secrets can be used: put the Secret into another namespace", own))
	case !spec.Cluster && o.Namespace == own:
		f.addError(p, fmt.Sprintf("no Secret of %q can be used, because it is the namespace of the operator: put the Cleaner and the Secret into another namespace", own))
	}
}

// warnClusterWide warns of a ClusterCleaner without limits: a mistake in it would have effects everywhere at once.
func warnClusterWide(f *Findings, spec *v1alpha1.Work, p *field.Path) {
	if !spec.Cluster {
		return
	}
	limited := spec.Limits != nil && (spec.Limits.MaxActions > 0 || spec.Limits.MaxPercent > 0 || spec.Limits.PerGroup > 0)
	if changesAnything(spec) && !limited && spec.Mode != v1alpha1.ModeDryRun {
		f.addWarning(p, "nothing limits what is done in the whole cluster: try it with mode: DryRun first, or add limits such as {maxActions: 100}, with which nothing is done while more objects are due")
	}
	if spec.IncludeProtected {
		f.addWarning(p.Child("includeProtected"), "namespaces that the cluster depends on, such as kube-system, are cleaned up too: make sure that the targets are meant to select objects there")
	}
}

// changesAnything reports whether the spec does more than report.
func changesAnything(spec *v1alpha1.Work) bool {
	return deletesAnything(spec) || slices.ContainsFunc(spec.Rules, func(r v1alpha1.Rule) bool {
		return slices.ContainsFunc(r.Actions, func(a v1alpha1.RuleAction) bool { return a.Report == nil })
	})
}

// isValidPort reports whether a port, which is empty or digits, is one to connect to.
func isValidPort(port string) bool {
	if port == "" {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
