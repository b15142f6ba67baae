// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// targetRule begins the rule name of a step that a target with delete: true makes.
const targetRule = "targets."

// Row is one object that a run is to act on, as it is recorded before the first deed.
type Row struct {
	// Rule is what wanted it: the name of a rule, or "targets.<name>".
	Rule string
	Ref
}

// String writes the row as it stands in status.run.rows:
// "<rule> <resource>.<group>/<version> <namespace>/<name> <uid> <resourceVersion>".
func (r Row) String() string {
	return r.Rule + " " + ResourceName(r.Resource) + " " + r.Namespace + "/" + r.Name + " " + string(r.UID) + " " + r.ResourceVersion
}

// ParseRow reads what String wrote. It errs on anything else, so that a row that somebody made up is not half understood.
func ParseRow(s string) (Row, error) {
	f := strings.Split(s, " ")
	if len(f) != 5 {
		return Row{}, fmt.Errorf("%q is no row: it has %d words instead of 5", s, len(f))
	}
	resource, err := ParseResourceName(f[1])
	if err != nil {
		return Row{}, fmt.Errorf("%q is no row: %w", s, err)
	}
	namespace, name, ok := strings.Cut(f[2], "/")
	if !ok || name == "" || f[0] == "" || f[3] == "" || f[4] == "" {
		return Row{}, fmt.Errorf("%q is no row: a part of it is empty", s)
	}
	return Row{Rule: f[0], Ref: Ref{
		Resource: resource, Namespace: namespace, Name: name, UID: types.UID(f[3]), ResourceVersion: f[4],
	}}, nil
}

// FindTarget is the target whose delete: true made the row; -1 when the spec has no such target.
func (r Row) FindTarget(spec *v1alpha1.Work) int {
	name, ok := strings.CutPrefix(r.Rule, targetRule)
	if !ok {
		return -1
	}
	for i := range spec.Targets {
		if spec.Targets[i].Name == name && spec.Targets[i].Delete {
			return i
		}
	}
	return -1
}

// decidesPrefix is the version of what Decides hashes. Another one in a status counts as an edit.
const decidesPrefix = "v1:"

// FingerprintWork is a fingerprint of the part of a spec that decides what is deleted and when. Suspend, mode, retry, the
// schedule, the sink, its auth and what it is sent may change under an open run; anything else stops it. Of a template, what it
// stands for counts, not its name.
func FingerprintWork(work *v1alpha1.Work) (string, error) {
	s := *work
	s.Suspend, s.Mode, s.Retry, s.CloudEventSink, s.CloudEventSinkAuth, s.CloudEventData = false, "", nil, "", nil, ""
	s.Schedule, s.TimeZone, s.StartingDeadline, s.TemplateRef = "", "", "", nil
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
	text, err := v1alpha1.Explicit(s)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return decidesPrefix + hex.EncodeToString(sum[:16]), nil
}

// rowSteps are the steps that a run records: the first deed on each object.
func (p *Plan) rowSteps() []int {
	out, has := make([]int, 0, len(p.Steps)), make(map[types.UID]bool, len(p.Steps))
	for i := range p.Steps {
		if id := p.Steps[i].Object.objectID(); p.Steps[i].IsDeed() && !has[id] {
			has[id] = true
			out = append(out, i)
		}
	}
	return out
}

func (p *Plan) rowBytes(rows []int) int {
	n := 0
	for _, i := range rows {
		n += len(p.Steps[i].MakeRow().String()) + 3 // quotes and comma
	}
	return n
}
