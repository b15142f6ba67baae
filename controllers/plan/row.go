// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// targetRule begins the rule name of a step that a target with delete: true makes.
const targetRule = "targets."

// Row is one object that a run is to act on, as it is recorded before the first action.
type Row struct {
	// Rule is what wanted it: the name of a rule, or "targets.<name>".
	Rule string
	observed.Ref
}

// String writes the row as it stands in status.run.rows:
// "<rule> <resource>.<group>/<version> <namespace>/<name> <uid> <resourceVersion>". Only the name may have spaces, as that of an Event.
// It is text, which is read back as it was written.
func (r Row) String() string {
	return strings.ToValidUTF8(r.Rule+" "+observed.ResourceName(r.Resource)+" "+r.Namespace+"/"+r.Name+" "+string(r.UID)+" "+r.ResourceVersion, "\ufffd")
}

// ParseRow reads what String wrote. It errs on anything else, so that a row that somebody made up is not half understood.
func ParseRow(s string) (Row, error) {
	f := strings.Split(s, " ")
	last := len(f) - 1
	if len(f) < 5 {
		return Row{}, fmt.Errorf("%q is not a row: it has %d words instead of 5", s, len(f))
	}
	resource, err := observed.ParseResourceName(f[1])
	if err != nil {
		return Row{}, fmt.Errorf("%q is not a row: %w", s, err)
	}
	namespace, name, ok := strings.Cut(strings.Join(f[2:last-1], " "), "/")
	if !ok || name == "" || strings.Contains(namespace, " ") || f[0] == "" || f[last-1] == "" || f[last] == "" {
		return Row{}, fmt.Errorf("%q is not a row: a part of it is empty, or its namespace has a space", s)
	}
	return Row{Rule: f[0], Ref: observed.Ref{
		Resource: resource, Namespace: namespace, Name: name, UID: types.UID(f[last-1]), ResourceVersion: f[last],
	}}, nil
}

// IsOfRule says that a rule made the row, and no target.
func (r Row) IsOfRule() bool { return !strings.HasPrefix(r.Rule, targetRule) }

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

// ListRowSteps are the steps that a run records: the first action on each object.
func (p *Plan) ListRowSteps() []int {
	out, has := make([]int, 0, len(p.Steps)), make(map[types.UID]bool, len(p.Steps))
	for i := range p.Steps {
		if id := p.Steps[i].Object.Identify(); p.Steps[i].IsChange() && !has[id] {
			has[id] = true
			out = append(out, i)
		}
	}
	return out
}

func (p *Plan) rowBytes(rows []int) int {
	n := 0
	for _, i := range rows {
		n += p.Steps[i].RowBytes()
	}
	return n
}

// RowBytes is how many bytes the row of a step takes where it is stored.
func (s *Step) RowBytes() int { return StoredBytes(s.MakeRow().String()) }

// StoredBytes is how many bytes a text takes as one of a list in JSON, which has six for some characters.
func StoredBytes(text string) int {
	stored, _ := json.Marshal(text) // each text has JSON
	return len(stored) + len(",")
}
