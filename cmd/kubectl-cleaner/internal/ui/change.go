// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
)

// errTakesTooLong ends what takes too long for a page.
var errTakesTooLong = errors.New("it takes too long for this page; the command of kubectl cleaner takes more time")

// RefusedError is why a command did not ask the cluster for a change.
type RefusedError struct{ Err error }

func (e *RefusedError) Error() string { return e.Err.Error() }

func (e *RefusedError) Unwrap() error { return e.Err }

// changeCleaner suspends or resumes a Cleaner, or has it evaluated, as the commands of these names do.
func (s *Server) changeCleaner(w http.ResponseWriter, r *http.Request) {
	of, change := nameOf(r), r.PathValue("change")
	done := map[string]string{"suspend": "suspended", "resume": "resumed", "run": "evaluated"}[change]
	if done == "" {
		s.showNotFound(w, r)
		return
	}
	err := checkName(of)
	if err == nil {
		err = sendChange(r.Context(), s.Commands, of, change)
	}
	if err == nil {
		http.Redirect(w, r, of.Path()+"?said="+change, http.StatusSeeOther) //nolint:gosec // it is a path of ours, whose parts are escaped
		return
	}
	title, rights := of.Kind()+" "+showLine(of.DisplayName()), "You act with the rights of your kubeconfig"+inContext(s.Context)+". "
	p := &problem{Title: title + " was not " + done, Message: describeError(err), Hint: rights + "Nothing was changed.", Retry: of.Path()}
	if !isRefusal(err) {
		p.Title, p.Hint = "It is not known whether "+title+" was "+done, rights+s.describeNow(r.Context(), of, change)
	}
	s.showProblem(w, r, statusOf(err), p)
}

// sendChange asks the cluster for a change.
func sendChange(ctx context.Context, commands Commands, of Name, change string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if change == "run" {
		return commands.RequestEvaluation(ctx, of)
	}
	return commands.SetSuspend(ctx, of, change == "suspend")
}

// isRefusal reports whether an error says that nothing was changed: after any other, the API server may have made the change.
func isRefusal(err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// describeNow says how a Cleaner is, after a change that may have been made.
func (s *Server) describeNow(ctx context.Context, of Name, change string) string {
	u, err := s.getCleaner(ctx, of)
	if err != nil {
		return "It cannot be read either: " + describeError(err)
	}
	owner, err := manifests.DecodeOwner(u)
	if err != nil {
		return "It cannot be read either: " + describeError(err)
	}
	now := "At " + s.viewer.showTime(s.Clock.Now().Truncate(time.Second)).Text + " "
	switch at := owner.GetAnnotations()[v1alpha1.AnnotationRequestedAt]; {
	case change != "run" && owner.Common().Suspend:
		return now + "it was suspended."
	case change != "run":
		return now + "it was not suspended."
	case at == "":
		return now + "no evaluation of it was requested."
	default:
		return now + "the last request for an evaluation of it was of " + shorten(at, maxText) + "."
	}
}

// inContext names the context of the kubeconfig, if it has one.
func inContext(name string) string {
	if name == "" {
		return ""
	}
	return ", context " + showLine(name)
}

// describeNotice says what a change has led to, as far as the Cleaner shows it: addresses can be made up, and Cleaners changed again.
func describeNotice(change string, o v1alpha1.Owner) string {
	suspended := o.Common().Suspend
	switch change {
	case "suspend", "resume":
		switch {
		case suspended == (change == "resume"):
			return "" // it was changed again since
		case suspended:
			return "Suspended. It stops before its next request."
		default:
			return "Resumed. The operator evaluates it at once."
		}
	case "run":
		switch {
		case o.GetAnnotations()[v1alpha1.AnnotationRequestedAt] == "":
			return ""
		case suspended:
			return "Evaluation requested. It is suspended, and does nothing until it is resumed."
		default:
			return "Evaluation requested. The operator evaluates it now."
		}
	default:
		return ""
	}
}

// statusOf is the status of a response to a request that failed with an error.
func statusOf(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if code := int(status.Status().Code); code >= http.StatusBadRequest && code < 600 {
			return code
		}
	}
	var refused *RefusedError
	switch {
	case errors.Is(err, errInvalidName):
		return http.StatusBadRequest
	case errors.As(err, &refused):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errTakesTooLong):
		return http.StatusGatewayTimeout
	default:
		return http.StatusBadGateway
	}
}

// describeError is an error in a sentence or more, for people.
func describeError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "The cluster did not answer in time."
	}
	return shorten(err.Error(), 2*maxText)
}
