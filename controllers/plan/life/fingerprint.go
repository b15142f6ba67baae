// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// fingerprintPrefix is the version of what Decides hashes. Another one in a status counts as an edit.
const fingerprintPrefix = "v1:"

// FingerprintWork is a fingerprint of the part of a spec that decides what is deleted and when. Suspend, mode, retry, the
// schedule, the sink, its auth and what it is sent may change under an open run; anything else stops it. Of a template, what it
// stands for counts, not its name.
func FingerprintWork(work *v1alpha1.Work) (string, error) {
	s := *work
	s.Suspend, s.Mode, s.Retry, s.CloudEventSink, s.CloudEventSinkAuth, s.CloudEventData = false, "", nil, "", nil, ""
	s.Schedule, s.TimeZone, s.StartingDeadline, s.TemplateRef, s.Validation = "", "", "", nil, ""
	if s.Parameters != nil { // the same parameters, however they were written
		var v any
		if err := json.Unmarshal(s.Parameters.Raw, &v); err != nil {
			return "", fmt.Errorf("cannot read parameters: %w", err)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return "", fmt.Errorf("cannot write parameters: %w", err)
		}
		s.Parameters = &runtime.RawExtension{Raw: raw}
	}
	text, err := v1alpha1.EncodeExplicit(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return fingerprintPrefix + hex.EncodeToString(sum[:16]), nil
}
