// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/config/templates"
)

const (
	// ownersTime is how long the review of a template may check the Cleaners that use it, and answerReserve is what it leaves of the
	// time of the answer.
	ownersTime    = 5 * time.Second
	answerReserve = time.Second
	// namespaceShare says which part of the time that is left one namespace may use: one of so many. So a namespace never takes all of it.
	namespaceShare = 4
	// maxSkippedNamespaces is how many namespaces a warning names.
	maxSkippedNamespaces = 5
)

// ownerReview checks the Cleaners that use a template against the old and the new version of it. Namespaces share its time; what a
// namespace has beyond its share is skipped and not refused: the operator validates each Cleaner with its template again before it acts.
type ownerReview struct {
	validator     *validator
	clock         clock.PassiveClock
	name          string // of the template
	before, after *templateChecker
	// ends is when the review checks no more Cleaners.
	ends time.Time
	// remaining is what each namespace may still use; "" stands for ClusterCleaners.
	remaining map[string]time.Duration
	// skipped counts the Cleaners of each namespace that were not checked.
	skipped map[string]int
	// unlisted says that not all Cleaners were listed before the review ended.
	unlisted bool
	broken   validation.Findings
}

// newOwnerReview returns a review that ends early enough for an answer. old is nil if the template is created.
func (v *templateValidator) newOwnerReview(ctx context.Context, old, t *v1alpha1.CleanerTemplate) *ownerReview {
	ends := v.clock.Now().Add(ownersTime)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-answerReserve).Before(ends) {
		ends = deadline.Add(-answerReserve)
	}
	r := &ownerReview{
		validator: v.validator, clock: v.clock, name: t.Name, after: newTemplateChecker(v.validator, t), ends: ends,
		remaining: map[string]time.Duration{}, skipped: map[string]int{},
	}
	if old != nil {
		r.before = newTemplateChecker(v.validator, old)
	}
	return r
}

// findBroken returns the Cleaners that work with the old template and not with the new one. Without an old template, it returns
// all that do not work with the new one.
func (r *ownerReview) findBroken(ctx context.Context) (validation.Findings, error) {
	inTime, cancel := context.WithTimeout(ctx, r.ends.Sub(r.clock.Now()))
	defer cancel()
	err := r.validator.forEachOwner(inTime, func(kind string, c v1alpha1.Owner) error {
		if ref := c.Common().TemplateRef; ref == nil || ref.Name != r.name {
			return nil
		}
		return r.reviewOwner(inTime, kind, c)
	})
	if err != nil && inTime.Err() != nil && ctx.Err() == nil {
		r.unlisted, err = true, nil
	}
	return r.broken, err
}

// reviewOwner checks one Cleaner, or skips it if its namespace has used its share.
func (r *ownerReview) reviewOwner(ctx context.Context, kind string, c v1alpha1.Owner) error {
	began, ns := r.clock.Now(), c.GetNamespace()
	if _, known := r.remaining[ns]; !known {
		r.remaining[ns] = r.ends.Sub(began) / namespaceShare
	}
	if r.remaining[ns] <= 0 || !began.Before(r.ends) {
		r.skipped[ns]++
		return ctx.Err()
	}
	wrong, err := r.findMistake(ctx, c)
	r.remaining[ns] -= r.clock.Since(began)
	switch {
	case errors.Is(err, errCompileTimeout):
		r.skipped[ns]++
		return ctx.Err()
	case err != nil || wrong == nil:
		return err
	}
	who := fmt.Sprintf("%s %q", kind, c.GetName())
	if ns != "" {
		who += fmt.Sprintf(" in namespace %q", ns)
	}
	message := fmt.Sprintf("breaks %s, which would stop working: %s", who, redactFinding(*wrong, r.oldTemplate(), r.after.template))
	if r.before != nil {
		message += "; change its spec first, or write a template that it works with; if you mean to break it, delete the template and create it again"
	}
	r.broken = append(r.broken, validation.Finding{Path: "spec", Message: message, Severity: validation.Error})
	return nil
}

// findMistake returns the first reason why a Cleaner does not work with the new template; nil if it works, or did not work with the
// old one either.
func (r *ownerReview) findMistake(ctx context.Context, c v1alpha1.Owner) (*validation.Finding, error) {
	wrong, err := r.after.checkOwner(ctx, c)
	if err != nil || len(wrong) == 0 {
		return nil, err
	}
	if r.before != nil {
		if already, err := r.before.checkOwner(ctx, c); err != nil || len(already) > 0 {
			return nil, err
		}
	}
	return &wrong[0], nil
}

// oldTemplate returns the template as it was; nil if it is created.
func (r *ownerReview) oldTemplate() *v1alpha1.CleanerTemplate {
	if r.before == nil {
		return nil
	}
	return r.before.template
}

// describeSkipped returns a warning about the Cleaners that were not checked; empty if all were.
func (r *ownerReview) describeSkipped() string {
	total := 0
	const afterwards = ": the status of a Cleaner says so if it does not work with the template"
	var parts []string
	for i, ns := range slices.SortedFunc(maps.Keys(r.skipped), func(a, b string) int {
		if n := r.skipped[b] - r.skipped[a]; n != 0 {
			return n
		}
		return strings.Compare(a, b)
	}) {
		total += r.skipped[ns]
		switch {
		case i >= maxSkippedNamespaces:
		case ns == "":
			parts = append(parts, fmt.Sprintf("%d ClusterCleaners", r.skipped[ns]))
		default:
			parts = append(parts, fmt.Sprintf("%d in namespace %q", r.skipped[ns], ns))
		}
	}
	if more := len(r.skipped) - maxSkippedNamespaces; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more namespaces", more))
	}
	named := strings.Join(parts, ", ")
	switch {
	case len(parts) == 0 && !r.unlisted:
		return ""
	case len(parts) == 0:
		return "there was no time to check all Cleaners that use the template (not all were listed)" + afterwards
	case r.unlisted:
		named += "; not all were listed"
	}
	return fmt.Sprintf("there was no time to check %d Cleaners that use the template (%s)%s", total, named, afterwards)
}

// templateChecker checks Cleaners against one version of a template. It compiles the template's own expressions once, and each
// different cloudEventData by itself, so that the cost of a Cleaner does not depend on the template.
type templateChecker struct {
	*validator
	template *v1alpha1.CleanerTemplate
	// own are the compiler's errors in the template's expressions, once compiled. They depend on the template alone: the compiler
	// reads the names of its parameters, never their values.
	own      field.ErrorList
	compiled bool
	// dataErrors caches the compiler's errors by the hash of cloudEventData.
	dataErrors map[[sha256.Size]byte]field.ErrorList
}

func newTemplateChecker(v *validator, t *v1alpha1.CleanerTemplate) *templateChecker {
	return &templateChecker{validator: v, template: t, dataErrors: map[[sha256.Size]byte]field.ErrorList{}}
}

// checkOwner returns the reasons why a Cleaner does not work with the template; none if it does. It does not add up what the
// template's expressions and cloudEventData cost together, except for their length.
func (u *templateChecker) checkOwner(ctx context.Context, c v1alpha1.Owner) (validation.Findings, error) {
	work, errs := templates.Expand(c, u.template)
	if len(errs) > 0 {
		return validation.FromFieldErrors(errs), nil
	}
	options := u.options
	options.Template = u.template.Name
	var err error
	if options.Compiled, err = u.compileOwner(ctx, work); err != nil {
		return nil, err
	}
	return validation.Validate(work, options).Errors(), nil
}

// compileOwner returns the compiler's errors in an expanded spec.
func (u *templateChecker) compileOwner(ctx context.Context, work *v1alpha1.Work) (field.ErrorList, error) {
	if work.ExpressionBytes() > v1alpha1.MaxExpressionBytes {
		return u.compile(ctx, work) // which only counts
	}
	if !u.compiled {
		own := *work
		own.CloudEventData = ""
		errs, err := u.compile(ctx, &own)
		if err != nil {
			return nil, err
		}
		u.own, u.compiled = errs, true
	}
	if work.CloudEventData == "" {
		return u.own, nil
	}
	key := sha256.Sum256([]byte(work.CloudEventData))
	errs, known := u.dataErrors[key]
	if !known {
		var err error
		if errs, err = u.compile(ctx, isolateData(work)); err != nil {
			return nil, err
		}
		u.dataErrors[key] = errs
	}
	return slices.Concat(u.own, errs), nil
}

// isolateData returns a spec with the same names and without any expression but cloudEventData. Only the names of variables matter
// to whether it compiles.
func isolateData(work *v1alpha1.Work) *v1alpha1.Work {
	alone := *work
	alone.Conditions, alone.Rules = nil, nil
	alone.Variables = slices.Clone(work.Variables)
	for i := range alone.Variables {
		alone.Variables[i].Expression = "null"
	}
	return &alone
}

// compile returns the compiler's errors in a spec.
func (u *templateChecker) compile(ctx context.Context, work *v1alpha1.Work) (field.ErrorList, error) {
	programs, errs := u.compiler.Compile(ctx, work)
	if programs == nil && len(errs) == 0 {
		return nil, errCompileTimeout
	}
	return errs, nil
}

// ownersPage is how many Cleaners are in memory at a time: the spec and the status of each may have more than 1 MB, and take several times
// that when they are decoded.
const ownersPage = 8

// forEachOwner calls do with all Cleaners and then all ClusterCleaners. It reads one page at a time.
func (v *validator) forEachOwner(ctx context.Context, do func(kind string, c v1alpha1.Owner) error) error {
	cleaners, cluster := &v1alpha1.CleanerList{}, &v1alpha1.ClusterCleanerList{}
	err := v.forEachPage(ctx, cleaners, func() error {
		for i := range cleaners.Items {
			if err := do("Cleaner", &cleaners.Items[i]); err != nil {
				return err
			}
		}
		cleaners.Items = nil
		return nil
	})
	if err != nil {
		return err
	}
	return v.forEachPage(ctx, cluster, func() error {
		for i := range cluster.Items {
			if err := do("ClusterCleaner", &cluster.Items[i]); err != nil {
				return err
			}
		}
		cluster.Items = nil
		return nil
	})
}

// forEachPage reads the pages of a list one by one, and calls do after each.
func (v *validator) forEachPage(ctx context.Context, list client.ObjectList, do func() error) error {
	for next := ""; ; {
		if err := v.live.List(ctx, list, client.Limit(ownersPage), client.Continue(next)); err != nil {
			return fmt.Errorf("cannot list the Cleaners that use the template: %w", err)
		}
		next = list.GetContinue()
		if err := do(); err != nil {
			return err
		}
		if next == "" {
			return nil
		}
		list.SetContinue("")
	}
}
