// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/rights"
)

// An answer has an end, however many rights are missing.
func TestAnswerIsBounded(t *testing.T) {
	var missing []rights.Right
	var found validation.Findings
	for i := range 60 {
		missing = append(missing, rights.Right{Verb: "get", Resource: fmt.Sprint("kind", i)})
		found = append(found, validation.Finding{Path: "spec", Message: fmt.Sprint("wrong ", i), Severity: validation.Error})
	}
	req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: "c"}}
	if got := denyMissingRights(req, "u", missing).Result.Message; !strings.HasSuffix(got, `user "u" is not allowed to get kind19; and 40 more`) {
		t.Errorf("got %s", got)
	}
	got := denyInvalid(req, found).Result
	if !strings.HasSuffix(got.Message, "spec: wrong 19\nand 40 more") || len(got.Details.Causes) != 20 {
		t.Errorf("got %s", got.Message)
	}
}
