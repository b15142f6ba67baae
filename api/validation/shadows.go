// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// checkShadows warns about rules whose items an earlier rule deletes, no later. It says only what is certain: where it depends on the values of
// expressions whether both rules want an item, it says nothing.
func checkShadows(f *Findings, rules []v1alpha1.Rule, p *field.Path) {
	terms := make([][]string, len(rules))
	for i := range rules {
		terms[i] = splitTerms(rules[i].When)
	}
	for later := range rules {
		if !needsItems(&rules[later]) {
			continue
		}
		for earlier := range rules[:later] {
			if deletesItems(&rules[earlier]) && listsSameItems(&rules[earlier], &rules[later]) && waitsNoLonger(&rules[earlier], &rules[later]) && impliesTerms(terms[later], terms[earlier]) {
				f.addWarning(p.Index(later), fmt.Sprintf("acts on no item that rule %q can delete: that rule comes first, has the same items, and its when is true whenever this one is; put this rule before it, or remove it", rules[earlier].Name))
				break
			}
		}
	}
}

// deletesItems says that a rule deletes every item for which its `when` is true, as far as nothing forbids or refuses that.
func deletesItems(r *v1alpha1.Rule) bool {
	return r.Keep == nil && r.Leave == nil && r.Unless == "" && slices.ContainsFunc(r.Actions, func(a v1alpha1.RuleAction) bool {
		return a.Delete != nil && a.When == "" && a.Object == ""
	})
}

// needsItems says that a rule changes its items, and that there is nothing for it to do once they are being deleted. A faster deletion, and
// a finalizer, are for objects that do not go.
func needsItems(r *v1alpha1.Rule) bool {
	changes := false
	for i := range r.Actions {
		a := &r.Actions[i]
		switch {
		case a.Object != "", a.RemoveFinalizer != nil, a.Delete != nil && a.Delete.GracePeriodSeconds != nil, a.Evict != nil && a.Evict.GracePeriodSeconds != nil:
			return false
		case strings.Contains(a.When, "deletionTimestamp"):
			return false
		case a.Report == nil:
			changes = true
		}
	}
	return changes && !strings.Contains(r.When+r.Unless, "deletionTimestamp")
}

// listsSameItems says that two rules have the same items, under the same names.
func listsSameItems(earlier, later *v1alpha1.Rule) bool {
	return joinSpaces(earlier.ForEach) == joinSpaces(later.ForEach) && slices.Equal(earlier.Variables, later.Variables) &&
		(len(earlier.Confirm) == 0 || reflect.DeepEqual(earlier.Confirm, later.Confirm))
}

// waitsNoLonger says that an earlier rule has waited for long enough when a later one has, for the same item.
func waitsNoLonger(earlier, later *v1alpha1.Rule) bool {
	if earlier.For == "" {
		return true
	}
	if earlier.ForKey != later.ForKey || earlier.Key != later.Key {
		return false
	}
	first, err := v1alpha1.ParseDuration(earlier.For)
	if err != nil {
		return earlier.For == later.For
	}
	second, err := v1alpha1.ParseDuration(later.For)
	return err == nil && first <= second
}

// impliesTerms says that terms joined by && are true only if others are.
func impliesTerms(terms, others []string) bool {
	return !slices.ContainsFunc(others, func(term string) bool { return term != "true" && !slices.Contains(terms, term) })
}

// splitTerms returns the terms that && joins in an expression. One that has other operators there, or anything that this does not understand, is
// one term.
func splitTerms(expression string) []string {
	whole := []string{joinSpaces(expression)}
	if strings.Contains(expression, "//") || strings.ContainsAny(expression, "\\`") || strings.Contains(expression, `"""`) || strings.Contains(expression, "'''") {
		return whole
	}
	var terms []string
	begin, at := 0, scanner{}
	for i := range len(expression) {
		if at.skipByte(expression[i]) {
			continue
		}
		switch c := expression[i]; {
		case c == '|', c == '?' && (i == 0 || expression[i-1] != '.'):
			return whole
		case c == '&' && strings.HasPrefix(expression[i:], "&&"):
			terms, begin = append(terms, joinSpaces(expression[begin:i])), i+2
		}
	}
	return append(terms, joinSpaces(expression[begin:]))
}

// scanner knows what is around a place in an expression.
type scanner struct {
	depth int  // brackets
	quote byte // 0 outside of strings
}

// skipByte goes to the next byte, and says that it is in a string, in brackets, or one of their ends.
func (s *scanner) skipByte(c byte) bool {
	switch {
	case s.quote != 0:
		if c == s.quote {
			s.quote = 0
		}
	case c == '"', c == '\'':
		s.quote = c
	case strings.IndexByte("([{", c) >= 0:
		s.depth++
	case strings.IndexByte(")]}", c) >= 0:
		s.depth--
	default:
		return s.depth > 0
	}
	return true
}

// joinSpaces returns a text on one line, as far as that does not change what is in quotes.
func joinSpaces(text string) string {
	if strings.ContainsAny(text, "\"'") {
		return strings.TrimSpace(text)
	}
	return strings.Join(strings.Fields(text), " ")
}
