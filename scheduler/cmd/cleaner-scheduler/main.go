// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Command cleaner-scheduler is kube-scheduler with one plugin more: PodAllocatableIP.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json, as kube-scheduler has it
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the requests, as kube-scheduler has them
	_ "k8s.io/component-base/metrics/prometheus/version"  // the metric with the version, as kube-scheduler has it
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/vtex/cleaner/scheduler/podallocatableip"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(podallocatableip.Name, podallocatableip.New))))
}
