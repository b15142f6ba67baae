// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package releasereader reads the Helm release that a Cleaner wants uninstalled, for those who only plan: what the operator
// reads before it decides, by the same code. It sends nothing but reads, and uninstalls nothing.
package releasereader

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actuate/helm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// ReadWanted reads the release that the spec of a Cleaner names; nil if it wants none uninstalled. It reads with the identity in config,
// and judges as if the Cleaner's ServiceAccount did. The Release says what cannot be read, or must not be uninstalled.
func ReadWanted(ctx context.Context, config *rest.Config, namespace string, work *v1alpha1.Work, protection plan.Protection) (*observed.Release, error) {
	o := helm.Options{Config: config, Protection: protection, Clock: clock.RealClock{}}
	if work.ServiceAccount != nil {
		o.ServiceAccount = types.NamespacedName{Namespace: namespace, Name: work.ServiceAccount.Name}
	}
	u, err := helm.New(o)
	if err != nil {
		return nil, err
	}
	return u.ReadWanted(ctx, nil, namespace, work.Helm), nil
}
