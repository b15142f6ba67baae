// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// sender is somebody who means harm.
type sender struct {
	// user is the name, and rights are those in a namespace beside cleaner-editor.
	user   string
	rights []rbacv1.PolicyRule
	// everywhere says that cleaner-cluster-editor is bound to the user, and reads that ConfigMaps of all namespaces may be read.
	everywhere, reads bool
}

// senders are all that there are, as rows call them.
func senders() map[string]sender {
	tenant := []rbacv1.PolicyRule{
		may("get list watch create update patch delete", "", "configmaps"),
		may("get list watch delete", "", "pods"),
	}
	with := func(more ...rbacv1.PolicyRule) []rbacv1.PolicyRule { return append(more, tenant...) }
	return map[string]sender{
		"editor":          {user: "editor", rights: tenant},
		"owner of a sink": {user: "owner-of-a-sink", rights: tenant},
		"statusWriter":    {user: "status-writer", rights: with(may("get update patch", "cleaner.vtex.dev", "cleaners/status"))},
		"writer":          {user: "writer", rights: with(may("get list watch create update patch delete", "", "secrets"))},
		"owner":           {user: "owner", rights: with(may("impersonate", "", "serviceaccounts"))},
		"author":          {user: "author", rights: tenant, everywhere: true},
		"reader":          {user: "reader", rights: tenant, everywhere: true, reads: true},
	}
}

func may(verbs, group, resources string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Split(verbs, " "), APIGroups: []string{group}, Resources: strings.Split(resources, " ")}
}
