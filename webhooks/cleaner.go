// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/author"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/rights"
	"github.com/vtex/cleaner/controllers/signing"
)

const (
	// answerTimeout is how long an answer may take. It is less than timeoutSeconds of the webhook's configuration, so that the
	// user gets a message that says what took so long.
	answerTimeout = 8 * time.Second
	// maxFindings is how many findings, warnings or missing rights one answer lists.
	maxFindings = 20
)

// errTimeout means that the time was over before the next stage of the validation.
var errTimeout = errors.New("there was no time left to validate it")

// errCompileTimeout means that the time was over before the expressions were compiled.
var errCompileTimeout = errors.New("the expressions could not be compiled in time, because others are being compiled")

// validator is what all handlers validate with.
type validator struct {
	compiler  *celenv.Compiler
	options   validation.Options
	discovery kindDiscovery
	allKinds  allKinds
	fields    *fieldChecker
	reviews   rights.Reviews
	rules     rights.RulesReviews
	keys      signing.Keys
	operator  *operatorIdentity
	// extraKeys are the extra attributes of a user that are stored with the author.
	extraKeys []string
	// live reads templates, Cleaners and ServiceAccounts from the API server: what was applied a moment ago counts.
	live client.Reader
}

// ownerValidator validates Cleaners or ClusterCleaners of all versions, which differ only in name.
type ownerValidator struct {
	*validator
	// newOwner returns an empty object to decode into.
	newOwner func() v1alpha1.Owner
}

// Handle answers one request.
func (v *ownerValidator) Handle(ctx context.Context, req admission.Request) admission.Response {
	change, err := v.readChange(ctx, &req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if change.byOperator && change.specChanged {
		return denyOperator(&req)
	}
	if denied := v.denyWrongRequest(ctx, &req, change); denied != nil {
		return *denied
	}
	if !change.specChanged && change.currentAuthor() == change.oldAuthor() {
		if change.requestsEvaluation() && change.current.Common().Schedule != "" && !change.byOperator {
			return v.reviewEvaluation(ctx, &req, change)
		}
		return admission.Allowed("")
	}
	ring, err := v.keys.CurrentRing()
	if err != nil {
		return denyUnavailable(err)
	}
	user, err := v.identifyUser(ctx, req.UserInfo)
	if err != nil {
		return denyUnidentified(&req, err)
	}
	switch reviewed, err := v.verifyAuthor(ring, change, user); {
	case err != nil:
		return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), newStatusDetails(&req))
	case !reviewed:
		return admission.Allowed("")
	}
	return v.reviewSpec(ctx, &req, change.current)
}

// denyWrongRequest refuses a change that leaves a request for an evaluation without a valid signature. Otherwise it returns nil.
func (v *ownerValidator) denyWrongRequest(ctx context.Context, req *admission.Request, change *ownerChange) *admission.Response {
	if !change.requestsEvaluation() && change.currentRequest() == change.oldRequest() {
		return nil
	}
	ring, err := v.keys.CurrentRing()
	if err != nil {
		return new(denyUnavailable(err))
	}
	user, err := v.identifyUser(ctx, req.UserInfo)
	if err != nil {
		return new(denyUnidentified(req, err))
	}
	switch err := v.verifyRequest(ctx, ring, change, user); {
	case errors.Is(err, errRequestWritten), errors.Is(err, errRequestNotSigned):
		return new(denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error(), newStatusDetails(req)))
	case err != nil:
		return new(denyUnavailable(err))
	}
	return nil
}

// reviewEvaluation answers a request for an evaluation in addition to the schedule. Without this check, a user without rights could
// make a Cleaner act at a time that its author does not want. The webhook does not know what a release contains, so a user who is
// not the author needs the right to everything.
func (v *ownerValidator) reviewEvaluation(ctx context.Context, req *admission.Request, c *ownerChange) admission.Response {
	if work := c.current.Work(); work.Helm != nil && work.Helm.Delete || work.UninstallsForRules() {
		ring, err := v.keys.CurrentRing()
		if err != nil {
			return denyUnavailable(err)
		}
		user, err := v.identifyUser(ctx, req.UserInfo)
		if err != nil {
			return denyUnidentified(req, err)
		}
		if stored, err := author.Read(ring, c.current); err != nil || !equality.Semantic.DeepEqual(stored.Author, author.FromUser(user, v.extraKeys)) {
			missing, err := v.findMissingRights(ctx, req.UserInfo, []rights.Right{rights.NewRightToEverything()})
			switch {
			case err != nil:
				return denyUnavailable(err)
			case len(missing) > 0:
				return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(
					"user %q is not allowed to do everything: if a %s has a schedule and uninstalls a release, only its author or a user who may do everything can request an evaluation", req.UserInfo.Username, req.Kind.Kind), newStatusDetails(req))
			}
		}
	}
	return v.reviewSpec(ctx, req, c.current)
}

// expandTemplate returns the spec with its template expanded, or the answer if that is not possible.
func (v *ownerValidator) expandTemplate(ctx context.Context, req *admission.Request, c v1alpha1.Owner, options validation.Options) (*v1alpha1.Work, *admission.Response) {
	work := c.Work()
	if found := validation.Validate(work, options).Errors(); len(found) > 0 {
		return nil, new(denyInvalid(req, found))
	}
	template, err := v.getTemplate(ctx, work.TemplateRef.Name)
	switch {
	case err != nil:
		return nil, new(denyUnavailable(err))
	case template == nil:
		return nil, new(v.reviewWithoutTemplate(ctx, req, work, options))
	}
	expanded, errs := templates.Expand(c, template)
	if len(errs) > 0 {
		return nil, new(denyInvalid(req, validation.FromFieldErrors(errs)))
	}
	return expanded, nil
}

// reviewSpec answers for a spec that a user has written or takes over.
func (v *ownerValidator) reviewSpec(ctx context.Context, req *admission.Request, c v1alpha1.Owner) admission.Response {
	if ctx.Err() != nil {
		return denyUnavailable(errTimeout)
	}
	options, work := v.options, c.Work()
	options.Namespace = req.Namespace
	if found := validation.Validate(work, options).SpecErrors(); len(found) > 0 { // for example its size, which must be checked before it is compiled
		return denyInvalid(req, found)
	}
	if ref := work.TemplateRef; ref != nil {
		expanded, answer := v.expandTemplate(ctx, req, c, options)
		if answer != nil {
			return *answer
		}
		work, options.Template = expanded, ref.Name
	}
	programs, errs := v.compiler.Compile(ctx, work)
	if programs == nil && len(errs) == 0 {
		return denyUnavailable(errCompileTimeout)
	}
	options.Compiled = errs
	if found := validation.Validate(work, options).Errors(); len(found) > 0 {
		return denyInvalid(req, found)
	}
	served, err := v.findServedKinds(ctx, work.Targets)
	if err != nil {
		return denyUnavailable(err)
	}
	options.Served = served
	var likely []expr.Warning
	options.UnknownFields, likely = v.fields.checkFields(ctx, work, programs)
	found := validation.Validate(work, options)
	if errors := found.Errors(); len(errors) > 0 {
		return denyInvalid(req, errors)
	}
	missing, err := v.findMissingRights(ctx, req.UserInfo, rights.ListRequired(req.Namespace, work, options))
	switch {
	case err != nil:
		return denyUnavailable(err)
	case len(missing) > 0:
		return denyMissingRights(req, req.UserInfo.Username, missing)
	}
	said, refusal, err := v.reviewAnyKinds(ctx, rights.NewSubject(req.UserInfo), work)
	switch {
	case err != nil:
		return denyUnavailable(err)
	case refusal != "":
		return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, refusal, newStatusDetails(req))
	}
	said = append(said, formatWarnings(found)...)
	if options.Template == "" { // otherwise the template's author has been warned
		said = append(said, formatCompilerWarnings(append(programs.Warnings(), likely...), "spec.")...)
	}
	said = append(v.warnAccountLacks(ctx, req.Namespace, work, options), said...)
	return admission.Allowed("").WithWarnings(trimWarnings(said)...)
}

// reviewWithoutTemplate answers for a spec with a template that does not exist yet. The template may later do anything, so the user
// needs the right to everything.
func (v *ownerValidator) reviewWithoutTemplate(ctx context.Context, req *admission.Request, work *v1alpha1.Work, options validation.Options) admission.Response {
	needed := append(rights.ListRequired(req.Namespace, work, options), rights.NewRightToEverything())
	missing, err := v.findMissingRights(ctx, req.UserInfo, needed)
	switch {
	case err != nil:
		return denyUnavailable(err)
	case len(missing) > 0:
		return denyMissingRights(req, req.UserInfo.Username, missing)
	}
	said := formatWarnings(validation.Validate(work, options))
	return admission.Allowed("").WithWarnings(trimWarnings(append(said, fmt.Sprintf(
		"spec.templateRef.name: there is no CleanerTemplate %q yet, and the %s waits for it: apply the template first", work.TemplateRef.Name, req.Kind.Kind)))...)
}

// getTemplate reads a template; nil if it does not exist.
func (v *validator) getTemplate(ctx context.Context, name string) (*v1alpha1.CleanerTemplate, error) {
	t := &v1alpha1.CleanerTemplate{}
	switch err := v.live.Get(ctx, client.ObjectKey{Name: name}, t); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("cannot read CleanerTemplate %q: %w", name, err)
	}
	return t, nil
}

// denyInvalid refuses an object in the form of the API server's schema errors, so that clients show both alike.
func denyInvalid(req *admission.Request, found validation.Findings) admission.Response {
	details := newStatusDetails(req)
	var lines []string
	for i, f := range found {
		if i == maxFindings {
			lines = append(lines, fmt.Sprintf("and %d more", len(found)-i))
			break
		}
		lines = append(lines, f.String())
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: f.Path, Message: f.Message})
	}
	return denyRequest(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, strings.Join(lines, "\n"), details)
}

// denyMissingRights refuses an object that does more than its author may.
func denyMissingRights(req *admission.Request, user string, missing []rights.Right) admission.Response {
	var lines []string
	unknown, templateless := false, false
	for i, r := range missing {
		unknown = unknown || r.Resource == observed.AllResources && r.Verb != observed.Everything && r.Group != observed.Everything
		templateless = templateless || r.Verb == observed.Everything
		if i < maxFindings {
			lines = append(lines, fmt.Sprintf("user %q is not allowed to %s", user, r))
		}
	}
	if more := len(missing) - maxFindings; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	message := fmt.Sprintf("a %s may only do what its author may: %s", req.Kind.Kind, strings.Join(lines, "; "))
	if unknown {
		message += fmt.Sprintf("; while a kind is not served, no right can name its resource: install its CRD first, or let a user create the %s who has these rights on all resources of the group, in the cluster", req.Kind.Kind)
	}
	if templateless {
		message += fmt.Sprintf("; a template that does not exist yet may ask for anything: apply it first, or let a user who may do everything create the %s", req.Kind.Kind)
	}
	return denyRequest(http.StatusForbidden, metav1.StatusReasonForbidden, message, newStatusDetails(req))
}

// findMissingRights returns the needed rights that a user does not have.
func (v *validator) findMissingRights(ctx context.Context, user authenticationv1.UserInfo, needed []rights.Right) ([]rights.Right, error) {
	subject := rights.NewSubject(user)
	return rights.FindMissing(ctx, needed, func(ctx context.Context, r rights.Right) (bool, error) {
		return rights.IsAllowed(ctx, v.reviews, subject, r)
	})
}

// denyUnavailable refuses an object that could not be validated, so that the user tries again.
func denyUnavailable(err error) admission.Response {
	return denyRequest(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error()+": try again", nil)
}

func denyRequest(code int32, reason metav1.StatusReason, message string, details *metav1.StatusDetails) admission.Response {
	if details != nil {
		for i := range details.Causes {
			c := &details.Causes[i]
			c.Field, c.Message = sanitizeText(c.Field), sanitizeText(c.Message)
		}
	}
	response := admission.Denied(sanitizeText(message))
	response.Result.Code, response.Result.Reason, response.Result.Details = code, reason, details
	return response
}

func newStatusDetails(req *admission.Request) *metav1.StatusDetails {
	return &metav1.StatusDetails{Group: req.Kind.Group, Kind: req.Kind.Kind, Name: req.Name}
}

// formatWarnings returns the warnings among findings as lines.
func formatWarnings(found validation.Findings) []string {
	var lines []string
	for _, f := range found.Warnings() {
		lines = append(lines, f.String())
	}
	return lines
}

// formatCompilerWarnings returns the compiler's warnings as lines. root is the path of the spec's fields, with a dot at the end.
func formatCompilerWarnings(warnings []expr.Warning, root string) []string {
	var lines []string
	for _, w := range warnings {
		at := root + strings.TrimPrefix(w.FieldPath(), "spec.")
		if w.Line > 0 { // otherwise it is about no place in an expression
			at += fmt.Sprintf(" at %d:%d", w.Line, w.Column)
		}
		lines = append(lines, fmt.Sprintf("%s: %s; %s", at, w.Message, w.Hint))
	}
	return lines
}

// trimWarnings returns at most maxFindings lines and how many more there are, each without line breaks.
func trimWarnings(lines []string) []string {
	if more := len(lines) - maxFindings; more > 0 {
		lines = append(lines[:maxFindings], fmt.Sprintf("and %d more", more))
	}
	for i, line := range lines {
		lines[i] = strings.Join(strings.FieldsFunc(line, func(r rune) bool { return !unicode.IsGraphic(r) }), " ")
	}
	return lines
}

// sanitizeText makes a text safe for the terminal of a user who applies an object without having read it. It keeps line breaks, and
// replaces other characters that control a terminal or reorder text.
func sanitizeText(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, text)
}
