// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runrow reads and writes the objects of a run as its record in status has them. It decides nothing.
package runrow

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// targetRule begins the rule of a row that a target with delete: true makes.
const targetRule = "targets."

// TargetRule is the rule of a row that a target with delete: true makes.
func TargetRule(target string) string { return targetRule + target }

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

// StoredBytes is how many bytes a text takes as one of a list in JSON, which has six for some characters.
func StoredBytes(text string) int {
	stored, _ := json.Marshal(text) // each text has JSON
	return len(stored) + len(",")
}

// MaxName is how long the name of an object may be that is acted on, in bytes: a row of a run has to name it. Most kinds allow 253, and
// a few, such as Event, anything that a path can have.
const MaxName = 1024

// ShowName is the name of an object, as records and people are told of it: without controls and what reorders text, and cut where it is
// longer than any that is acted on.
func ShowName(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, name)
	return expr.TruncateText(name, 2*MaxName)
}

// ForbidsName says why a record has no room for a name.
func ForbidsName(name string) string {
	switch {
	case len(name) > MaxName:
		return fmt.Sprintf("its name is longer than %d bytes and does not fit into status.run", MaxName)
	case strings.ContainsRune(name, utf8.RuneError): // also one that was read in JSON, which puts U+FFFD in place of what is not valid
		return "its name is not valid UTF-8 or contains the character U+FFFD, so status.run cannot identify it"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "its name contains a control character, which takes too much room in status.run"
	}
	return ""
}
