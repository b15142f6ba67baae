// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"testing"

	"github.com/vtex/cleaner/test/operator"
)

// Nobody but the operator writes the status of our kinds, whatever his roles allow: neither a user, nor a ServiceAccount, nor
// an administrator.
func TestOnlyTheOperatorWritesStatus(t *testing.T) {
	c, _ := needCluster(t)
	namespace, err := c.Namespace(t.Context(), "status-")
	if err != nil {
		t.Fatal(err)
	}
	if err := operator.StatusIsTheOperators(t.Context(), c, namespace); err != nil {
		t.Error(err)
	}
}
