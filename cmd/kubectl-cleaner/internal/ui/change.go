// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// errTakesTooLong ends what takes too long for a page.
var errTakesTooLong = errors.New("it takes too long for this page; the command of kubectl cleaner takes more time")

// changeCleaner suspends or resumes a Cleaner, or has it evaluated, as the commands of these names do.
func (s *Server) changeCleaner(w http.ResponseWriter, r *http.Request) {
	of, change := nameOf(r), r.PathValue("change")
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	var err error
	switch change {
	case "suspend", "resume":
		err = s.Commands.SetSuspend(ctx, of, change == "suspend")
	case "run":
		err = s.Commands.RequestEvaluation(ctx, of)
	default:
		s.showNotFound(w, r)
		return
	}
	if err != nil {
		title := map[string]string{"suspend": "was not suspended", "resume": "was not resumed", "run": "is not evaluated"}[change]
		s.showProblem(w, r, statusOf(err), &problem{
			Title: of.Kind() + " " + showLine(of.DisplayName()) + " " + title, Message: describeError(err),
			Hint: "You act with the rights of your kubeconfig" + inContext(s.Context) + ". Nothing was changed.", Retry: of.Path(),
		})
		return
	}
	http.Redirect(w, r, of.Path()+"?said="+change, http.StatusSeeOther) //nolint:gosec // it is a path of ours, whose parts are escaped
}

// inContext names the context of the kubeconfig, if it has one.
func inContext(name string) string {
	if name == "" {
		return ""
	}
	return ", context " + showLine(name)
}

// describeNotice says what was done, after it was.
func describeNotice(change string) string {
	return map[string]string{
		"suspend": "Suspended. It stops before its next request.",
		"resume":  "Resumed. The operator evaluates it at once.",
		"run":     "Evaluation requested. The operator evaluates it now.",
	}[change]
}

// statusOf is the status of a response to a request that failed with an error.
func statusOf(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if code := int(status.Status().Code); code >= http.StatusBadRequest && code < 600 {
			return code
		}
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errTakesTooLong) {
		return http.StatusGatewayTimeout
	}
	return http.StatusConflict
}

// describeError is an error in a sentence or more, for people.
func describeError(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "The cluster did not answer in time."
	}
	return shorten(err.Error(), 2*maxText)
}
