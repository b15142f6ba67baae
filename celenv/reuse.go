// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/cel-go/common/ast"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/celenv/timedependence"
)

// Reuse says on what the result of a rule's `when` depends, so that a caller can tell whether it is still valid.
type Reuse struct {
	// Own is the target whose objects are the items of the rule, in their order. `when` reads one of them as its item.
	Own string
	// Joined are the targets that `when` reads besides its item, sorted.
	Joined []string
	// Impossible says why that cannot be told; then the other fields are empty.
	Impossible string
}

// FindReuse says on what the result of a rule's `when` depends. A result that does not read the time is valid until the item or a joined
// target changes; one that does, also no longer than LastForesight says. The metadata.resourceVersion of an object is not a part of what it
// depends on.
func (p *Programs) FindReuse(rule int) Reuse {
	r := p.rules[rule]
	own, ok := findListed(r.forEach.tree.Root)
	if !ok || !p.isList(own) {
		return Reuse{Impossible: "forEach is not just a target's items"}
	}
	if slices.Contains(r.when.targets, own) {
		return Reuse{Impossible: fmt.Sprintf("when reads all objects of target %q for each item", own)}
	}
	readings := p.FindReadings()
	for _, target := range append([]string{own}, r.when.targets...) {
		switch reading := readings[target]; {
		case reading.WholeFor != "":
			return Reuse{Impossible: fmt.Sprintf("%s reads target %q as a whole", reading.WholeFor, target)}
		case reading.Projection.Covers(versionOfObject):
			return Reuse{Impossible: fmt.Sprintf("the expressions read metadata.resourceVersion of target %q", target)}
		}
	}
	return Reuse{Own: own, Joined: r.when.targets}
}

// versionOfObject is the metadata.resourceVersion of an object.
var versionOfObject = &projection.Projection{Fields: map[string]*projection.Projection{ //nolint:gochecknoglobals // it never changes
	"metadata": {Fields: map[string]*projection.Projection{"resourceVersion": {Scalar: true}}},
}}

// findListed returns the name of that whose items an expression gives, and nothing else.
func findListed(e ast.Expr) (string, bool) {
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() || e.AsSelect().FieldName() != nameItems || e.AsSelect().Operand().Kind() != ast.IdentKind {
		return "", false
	}
	return e.AsSelect().Operand().AsIdent(), true
}

// isList says that a name is a target with many objects.
func (p *Programs) isList(name string) bool {
	single, seen := p.targets[name]
	return seen && !single
}

// LastForesight returns until when the result of the last expression is valid, of those that Foresight counts.
func (r *RuleEvaluation) LastForesight() Foresight { return r.e.readLookout(r.e.ahead.last) }

// AssumeForesight has Foresight and HoldForesight count a result of `when` that the caller has from before, and that is valid until a moment.
// Zero: time does not change it.
func (r *RuleEvaluation) AssumeForesight(until time.Time) {
	if until.IsZero() {
		return
	}
	l := timedependence.Lookout{Until: int64(until.Sub(r.e.getTime()))}
	r.e.ahead.found.Merge(l)
	r.e.ahead.ofRule.Merge(l)
	r.e.ahead.holding.Merge(l)
}
