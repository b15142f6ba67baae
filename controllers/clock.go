// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/plan"
)

// DefaultMaxClockSkew is how far the operator's clock may be from the API server's.
const DefaultMaxClockSkew = time.Minute

// MeasureSkew has all clients that are made of a configuration from now on measure how far the clock is from the API
// server's. The result belongs into Options. With a limit of 0 nothing follows from what is measured.
func MeasureSkew(config *rest.Config, limit time.Duration, c clock.PassiveClock) *skew.Meter {
	log := ctrl.Log.WithName("clock")
	meter := skew.New(skew.Options{Clock: c, Max: limit, SuspectChanged: func(suspect bool, by time.Duration) {
		if suspect {
			log.Info("The operator's clock differs too much from the API server's: evaluations and deletions are paused", "skew", by.String(), "limit", limit.String())
			return
		}
		log.Info("The operator's clock agrees with the API server's again", "skew", by.String(), "limit", limit.String())
	}})
	config.Wrap(meter.WrapTransport)
	return meter
}

// suspectClock says in words that nothing may be decided by the clock; empty if it may. It has no measured number, which
// would make it another text each time: the metric has that.
func (r *CleanerReconciler) suspectClock() string {
	if !r.opts.Skew.IsSuspect() {
		return ""
	}
	than := "behind"
	if r.opts.Skew.EstimateSkew() < 0 {
		than = "ahead of"
	}
	return fmt.Sprintf("The operator's clock is more than %s %s the API server's: evaluations and deletions are paused until the clocks agree.", r.opts.Skew.MaxSkew(), than)
}

// clockTrust is how far the clock can be trusted.
func (r *CleanerReconciler) clockTrust() plan.Clock {
	return plan.Clock{Suspect: r.suspectClock(), Ahead: r.opts.Skew.ClockAhead()}
}
