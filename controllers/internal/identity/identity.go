// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity decides with which account the operator acts for a Cleaner: its own, or a ServiceAccount of the Cleaner's namespace,
// which it impersonates.
//
// Live reads, deletions and uninstalls for a Cleaner with a ServiceAccount are requests of that account, so that the API server decides
// what it may do. Watches are the operator's own and shared: what they know is shown to a Cleaner only after the API server has said that
// its account may read it too.
//
// It never makes a request as an account without a name, and never falls back to the operator's own identity.
package identity

import (
	"fmt"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
)

// Account is a ServiceAccount to act as. The zero Account is the operator itself.
type Account struct{ Namespace, Name string }

// IsOperator says that it is the operator itself.
func (a Account) IsOperator() bool { return a == Account{} }

// String names it in messages.
func (a Account) String() string {
	if a.IsOperator() {
		return "the operator"
	}
	return "ServiceAccount " + a.Namespace + "/" + a.Name
}

// userAndGroups is how the API server names the account, and the groups that it puts each ServiceAccount in.
func (a Account) userAndGroups() (name string, groups []string) {
	return serviceaccount.MakeUsername(a.Namespace, a.Name), append(serviceaccount.MakeGroupNames(a.Namespace), user.AllAuthenticated)
}

// NewConfig returns a configuration whose requests are the account's. It fails if the namespace or the name is
// empty: client-go would omit the empty name, and send the request as the operator.
func (a Account) NewConfig(operator *rest.Config) (*rest.Config, error) {
	c := rest.CopyConfig(operator)
	if a.IsOperator() {
		return c, nil
	}
	if a.Namespace == "" || a.Name == "" {
		return nil, fmt.Errorf("cannot act as ServiceAccount %q of namespace %q: both must be named", a.Name, a.Namespace)
	}
	// The name alone: the API server adds the groups, and allows no others to those who may impersonate ServiceAccounts only.
	c.Impersonate = rest.ImpersonationConfig{}
	c.Impersonate.UserName, _ = a.userAndGroups()
	return c, nil
}
