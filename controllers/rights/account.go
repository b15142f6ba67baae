// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	// maxAccountReviews bounds how many rights of an account are asked about: the first ones show what to grant.
	maxAccountReviews = 64
	// maxDescribed is how many rights a message names.
	maxDescribed = 3
)

// ListForAccount lists the rights that the account of a Cleaner makes use of, each once and in order.
func ListForAccount(namespace string, spec *v1alpha1.Work, o validation.Options) []Right {
	return ListOfAccount(append(ListRequired(namespace, spec, o), ListKindRights(spec, o)...))
}

// ListOfAccount returns those of the rights of an author that the account needs too: it does not impersonate itself, and while a kind is not
// served, no right can name its resource. Of very many it returns the first ones: what is said about them is a warning.
func ListOfAccount(all []Right) []Right {
	out := slices.DeleteFunc(slices.Clone(all), func(r Right) bool { return r.Verb == "impersonate" || r.Resource == observed.AllResources })
	return out[:min(len(out), maxAccountReviews)]
}

// NewAccountSubject returns a ServiceAccount as a user whose rights are reviewed.
func NewAccountSubject(namespace, name string) Subject {
	return Subject{User: "system:serviceaccount:" + namespace + ":" + name, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
}

// FindAccountLacks returns those of the rights that an account lacks.
func FindAccountLacks(ctx context.Context, reviews Reviews, account Subject, needed []Right) ([]Right, error) {
	return FindMissing(ctx, needed, func(ctx context.Context, r Right) (bool, error) {
		return IsAllowed(ctx, reviews, account, r)
	})
}

// DescribeLacks says which rights an account lacks, and how to grant them.
func DescribeLacks(account string, missing []Right) string {
	var names []string
	for _, r := range missing[:min(len(missing), maxDescribed)] {
		names = append(names, r.String())
	}
	text := strings.Join(names, "; ")
	if more := len(missing) - maxDescribed; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return fmt.Sprintf("%s is not allowed to %s: apply what 'kubectl cleaner rights -f FILE' prints", account, text)
}
