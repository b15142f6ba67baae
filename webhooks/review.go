// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/webhooks/serving"
)

const (
	// maxLightText and maxLightDecoded bound the reviews that are answered in parallel. Larger ones are answered one at a time.
	maxLightText    = 64 << 10
	maxLightDecoded = 512 << 10
)

// errNoTurn means that a large review did not get its turn in time.
var errNoTurn = errors.New("large reviews are answered one at a time, and the turn of this one did not come in time")

// reviewReader answers reviews. The API server calls mutating webhooks before it checks the schema, so a review may contain
// anything: reviewReader reads it as a stream, trims it, and decodes it only if it is within bounds.
type reviewReader struct {
	handler admission.Handler
	// spec is the type of the specs that are reviewed.
	spec reflect.Type
	// turns serializes the reviews that need much memory: all of them, or those that are not light.
	turns *serving.Turns
	all   bool
}

// ServeHTTP answers one request.
func (h *reviewReader) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		writeError(w, http.StatusBadRequest, fmt.Errorf("the review is of type %q: send application/json", got))
		return
	}
	review, err := trimReview(r.Body, h.spec)
	switch {
	case errors.Is(err, serving.ErrCutOff):
		serving.RefuseRequest(w)
		return
	case errors.Is(err, errReviewTooLarge):
		writeError(w, http.StatusRequestEntityTooLarge, err)
		return
	case err != nil:
		writeError(w, http.StatusBadRequest, err)
		return
	}
	handler := h.handler
	switch {
	case review.refused != nil:
		handler = refusal(*review.refused)
	case h.all, len(review.text) > maxLightText, review.decoded > maxLightDecoded:
		end, ok := h.turns.Take(ctx, r.RemoteAddr)
		if !ok {
			if errors.Is(context.Cause(ctx), serving.ErrCutOff) {
				serving.RefuseRequest(w)
				return
			}
			handler = admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return denyUnavailable(errNoTurn) })
			break
		}
		defer end()
	}
	read := r.Clone(ctx)
	read.Body, read.ContentLength = io.NopCloser(bytes.NewReader(review.text)), int64(len(review.text))
	(&admission.Webhook{Handler: handler}).ServeHTTP(w, read)
}

// refusal returns a handler that refuses an object that was not read.
func refusal(why excess) admission.Handler {
	return admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
		return denyInvalid(&req, validation.Findings{{Path: why.path, Message: why.message, Severity: validation.Error}})
	})
}

// writeError answers a request that is not a review.
func writeError(w http.ResponseWriter, code int32, err error) {
	response := admission.Errored(code, err)
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{Response: &response.AdmissionResponse}) // a caller that is gone cannot be told
}
