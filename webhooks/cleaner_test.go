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
	"github.com/vtex/cleaner/controllers/plan/observed"
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

// Whatever else is missing, an answer says what helps where no right can name a resource, and where a template is not there.
func TestADenialSaysWhatHelps(t *testing.T) {
	const unserved, templateless = "install its CRD first", "apply it first"
	named := rights.Right{Verb: "get", Resource: "pods"}
	unnamed := rights.Right{Verb: "get", Group: "example.com", Resource: observed.AllResources}
	for name, tc := range map[string]struct {
		missing                []rights.Right
		unserved, templateless bool
	}{
		"Named":        {[]rights.Right{named}, false, false},
		"Unnamed":      {[]rights.Right{unnamed}, true, false},
		"UnnamedFirst": {[]rights.Right{unnamed, named}, true, false},
		"UnnamedLast":  {[]rights.Right{named, unnamed}, true, false},
		"All":          {[]rights.Right{rights.NewRightToEverything(), named}, false, true},
		"AllLast":      {[]rights.Right{named, rights.NewRightToEverything()}, false, true},
		"Both":         {[]rights.Right{unnamed, rights.NewRightToEverything(), named}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			req := &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Name: "c"}}
			got := denyMissingRights(req, "u", tc.missing).Result.Message
			if strings.Contains(got, unserved) != tc.unserved || strings.Contains(got, templateless) != tc.templateless {
				t.Errorf("got %s", got)
			}
		})
	}
}

// Warnings have an end, and each is one line that a terminal shows as it is.
func TestWarningsAreBounded(t *testing.T) {
	lines := func(n int) (out []string) {
		for i := range n {
			out = append(out, fmt.Sprintf("warning\n%d\x1b[31m", i))
		}
		return out
	}
	for _, n := range []int{0, 1, maxFindings, maxFindings + 1, maxFindings + 40} {
		got, most := trimWarnings(lines(n)), min(n, maxFindings)
		if more := n - maxFindings; more > 0 {
			if len(got) != maxFindings+1 || got[maxFindings] != fmt.Sprintf("and %d more", more) {
				t.Errorf("of %d there are %d: %q", n, len(got), got[len(got)-1])
			}
		} else if len(got) != n {
			t.Errorf("of %d there are %d", n, len(got))
		}
		for i, line := range got[:most] {
			if line != fmt.Sprintf("warning %d [31m", i) {
				t.Errorf("line %d is %q", i, line)
			}
		}
	}
}
