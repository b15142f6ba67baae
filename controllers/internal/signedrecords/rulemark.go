// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package signedrecords

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/signing"
)

// RuleMark is what the operator signs on the record of a Helm release when it begins to uninstall it for a rule. It has all that another process
// has to know to finish that.
type RuleMark struct {
	// Rule is the name of the rule, and Decides the fingerprint of the spec that it was of.
	Rule, Decides string
	// Digest is a fingerprint of what the uninstall deletes and runs: a record that says something else is not uninstalled.
	Digest string
	// KeepHistory says that the records are kept.
	KeepHistory bool
	// Record is the UID of the Secret, and Revision the revision that it records. The mark itself does not repeat them.
	Record   types.UID
	Revision int64
}

// signedRuleMark is the text that is signed.
type signedRuleMark struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Rule      string    `json:"rule"`
	Decides   string    `json:"decides"`
	Digest    string    `json:"digest"`
	Keep      bool      `json:"keepHistory,omitempty"`
	Record    types.UID `json:"record"`
	Revision  int64     `json:"revision"`
}

// ruleMarkParts is how many parts a mark has: rule, fingerprint, digest and signature. One that keeps the history has keepsHistory before the
// signature.
const (
	ruleMarkParts = 4
	keepsHistory  = "keep"
)

func (m *RuleMark) encodeText(c v1alpha1.Owner) ([]byte, error) {
	text, err := json.Marshal(signedRuleMark{
		Kind: v1alpha1.KindOf(c), Namespace: c.GetNamespace(), Name: c.GetName(), UID: c.GetUID(),
		Rule: m.Rule, Decides: m.Decides, Digest: m.Digest, Keep: m.KeepHistory, Record: m.Record, Revision: m.Revision,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot write the mark of an uninstall: %w", err)
	}
	return text, nil
}

// SignRuleMark returns the mark with which a release is uninstalled for a rule of a Cleaner.
func SignRuleMark(ring signing.Ring, c v1alpha1.Owner, m RuleMark) (string, error) {
	text, err := m.encodeText(c)
	if err != nil {
		return "", err
	}
	signature, err := ring.Sign(signing.RuleUninstall, text)
	if err != nil {
		return "", err
	}
	parts := []string{m.Rule, m.Decides, m.Digest}
	if m.KeepHistory {
		parts = append(parts, keepsHistory)
	}
	return strings.Join(append(parts, signature), "/"), nil
}

// ReadRuleMark reads a mark from the Secret of a revision. It is not ok unless this operator has signed it for this Cleaner and that very Secret.
func ReadRuleMark(ring signing.Ring, c v1alpha1.Owner, record types.UID, revision int64, mark string) (m RuleMark, ok bool) {
	parts := strings.Split(mark, "/")
	keeps := len(parts) == ruleMarkParts+1 && parts[3] == keepsHistory
	if !keeps && len(parts) != ruleMarkParts {
		return RuleMark{}, false
	}
	m = RuleMark{Rule: parts[0], Decides: parts[1], Digest: parts[2], KeepHistory: keeps, Record: record, Revision: revision}
	text, err := m.encodeText(c)
	if err != nil {
		return RuleMark{}, false
	}
	if _, err := ring.Verify(signing.RuleUninstall, text, parts[len(parts)-1]); err != nil {
		return RuleMark{}, false
	}
	return m, true
}
