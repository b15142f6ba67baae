// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
)

const (
	// limit is how long an answer may take: less than timeoutSeconds of the webhook's configuration, so that whoever
	// asked hears what took so long.
	limit = 8 * time.Second
	// maxFindings is how many findings, warnings or missing rights one answer lists.
	maxFindings = 20
)

// validator answers for Cleaners of all versions: they differ in name only.
type validator struct {
	compiler *celenv.Compiler
	options  validation.Options
	kinds    kinds
	reviews  reviews
}

// Handle answers one request.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	c := &v1alpha1.Cleaner{}
	if err := json.Unmarshal(req.Object.Raw, c); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the Cleaner: %w", err))
	}
	if req.Operation == admissionv1.Update {
		old := &v1alpha1.Cleaner{}
		if err := json.Unmarshal(req.OldObject.Raw, old); err != nil {
			return admission.Errored(http.StatusBadRequest, fmt.Errorf("cannot read the Cleaner as it was: %w", err))
		}
		if reflect.DeepEqual(old.Spec, c.Spec) {
			return admission.Allowed("")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	options, work := v.options, c.Work()
	if found := validation.Validate(c.Work(), options).OfWhole(); len(found) > 0 { // such as its size, before it is compiled
		return invalid(&req, found)
	}
	programs, errs := v.compiler.Compile(work)
	options.Compiled = errs
	if found := validation.Validate(c.Work(), options).Errors(); len(found) > 0 {
		return invalid(&req, found)
	}
	served, err := v.served(ctx, work.Targets)
	if err != nil {
		return unavailable(err)
	}
	options.Served = served
	found := validation.Validate(c.Work(), options)
	if errors := found.Errors(); len(errors) > 0 {
		return invalid(&req, errors)
	}
	missing, err := v.missing(ctx, req.UserInfo, rights(req.Namespace, work, v.options.DefaultServiceAccount, served))
	switch {
	case err != nil:
		return unavailable(err)
	case len(missing) > 0:
		return forbidden(&req, req.UserInfo.Username, missing)
	}
	return admission.Allowed("").WithWarnings(warnings(found, programs)...)
}

// invalid refuses a Cleaner in the form in which the API server refuses what its schema does not allow, so that clients
// show both alike.
func invalid(req *admission.Request, found validation.Findings) admission.Response {
	details := detailsOf(req)
	var lines []string
	for i, f := range found {
		if i == maxFindings {
			lines = append(lines, fmt.Sprintf("and %d more", len(found)-i))
			break
		}
		lines = append(lines, f.String())
		details.Causes = append(details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: f.Path, Message: f.Message})
	}
	return refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, strings.Join(lines, "\n"), details)
}

// forbidden refuses a Cleaner that would do what its author may not.
func forbidden(req *admission.Request, user string, missing []right) admission.Response {
	var lines []string
	unknown := false
	for i, r := range missing {
		unknown = unknown || r.resource == allResources
		if i < maxFindings {
			lines = append(lines, fmt.Sprintf("user %q may not %s", user, r))
		}
	}
	if more := len(missing) - maxFindings; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	message := "a Cleaner may only do what its author may: " + strings.Join(lines, "; ")
	if unknown {
		message += "; a kind that is not served has no resource yet that rights could name: install its CRD first, or let somebody create the Cleaner who has these rights on all resources of the group, in the cluster"
	}
	return refused(http.StatusForbidden, metav1.StatusReasonForbidden, message, detailsOf(req))
}

// unavailable refuses a Cleaner about which nothing could be found out.
func unavailable(err error) admission.Response {
	return refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, err.Error()+": try again", nil)
}

func refused(code int32, reason metav1.StatusReason, message string, details *metav1.StatusDetails) admission.Response {
	response := admission.Denied(message)
	response.Result.Code, response.Result.Reason, response.Result.Details = code, reason, details
	return response
}

func detailsOf(req *admission.Request) *metav1.StatusDetails {
	return &metav1.StatusDetails{Group: req.Kind.Group, Kind: req.Kind.Kind, Name: req.Name}
}

// warnings are what is probably not meant, each on one line: a warning with a line break is not delivered.
func warnings(found validation.Findings, programs *celenv.Programs) []string {
	var lines []string
	for _, f := range found.Warnings() {
		lines = append(lines, f.String())
	}
	for _, w := range programs.Warnings() {
		lines = append(lines, fmt.Sprintf("%s at %d:%d: %s; %s", w.Field(), w.Line, w.Column, w.Message, w.Hint))
	}
	if more := len(lines) - maxFindings; more > 0 {
		lines = append(lines[:maxFindings], fmt.Sprintf("and %d more", more))
	}
	for i, line := range lines {
		lines[i] = strings.Join(strings.FieldsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	}
	return lines
}
