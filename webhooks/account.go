// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/controllers/rights"
)

// accountTimeout is how long the rights of an account may take to review. The answer is only a warning.
const accountTimeout = 2 * time.Second

// warnAccountLacks warns about the rights that the account of a Cleaner lacks. What cannot be determined is no warning: the API server judges
// each request of the account again.
func (v *validator) warnAccountLacks(ctx context.Context, namespace string, work *v1alpha1.Work, options validation.Options) []string {
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	named, subject, err := v.findAccount(ctx, namespace, work, options)
	if err != nil {
		return nil
	}
	missing, err := rights.FindAccountLacks(ctx, v.reviews, subject, rights.ListForAccount(namespace, work, options))
	if err != nil || len(missing) == 0 {
		return nil
	}
	return []string{"spec: " + rights.DescribeLacks(named, missing)}
}

// findAccount returns the account with which the requests for a Cleaner are sent: its ServiceAccount, or the operator's own.
func (v *validator) findAccount(ctx context.Context, namespace string, work *v1alpha1.Work, options validation.Options) (named string, subject rights.Subject, err error) {
	account := work.ServiceAccount
	if account == nil && !work.Cluster && options.DefaultServiceAccount != "" {
		account = &v1alpha1.ServiceAccountReference{Name: options.DefaultServiceAccount}
	}
	if account != nil {
		at := cmp.Or(account.Namespace, namespace)
		return fmt.Sprintf("ServiceAccount %s/%s", at, account.Name), rights.NewAccountSubject(at, account.Name), nil
	}
	user, err := v.operator.findUser(ctx)
	return "the operator", rights.NewSubject(user), err
}
