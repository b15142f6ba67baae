// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package clustertest runs the tests of a package on one control plane that they share. It knows nothing of the operator.
package clustertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/vtex/cleaner/test/cluster"
)

// Suite is what the tests of a package share.
type Suite struct {
	// Cluster says how their control plane is started. Its progress goes to standard error.
	Cluster cluster.Options
	// Ready is given the control plane before the first test.
	Ready func(context.Context, *cluster.Cluster) error
	// After is asked when all tests have passed, and may still find fault. Nil: it is not asked.
	After func() error
	// Live says that no test can do without the control plane. With -short none of them is run; else all are, on no control
	// plane and without Ready, and those that need one have to skip.
	Live bool
}

// Main runs the tests, and ends the process. When one of them has failed, the logs of the control plane stay, and it says
// where.
func (s Suite) Main(m *testing.M) {
	flag.Parse()
	code, err := s.run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func (s Suite) run(m *testing.M) (code int, err error) {
	switch {
	case testing.Short() && s.Live:
		fmt.Fprintln(os.Stderr, "these tests need a control plane: not with -short")
		return 0, nil
	case testing.Short():
		return m.Run(), nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.Cluster.Log = os.Stderr
	c, err := cluster.Start(ctx, s.Cluster)
	if err != nil {
		return 1, err
	}
	defer func() {
		if code != 0 || err != nil {
			c.Keep()
			fmt.Fprintln(os.Stderr, "the logs of the control plane are in", c.Dir())
		}
		err = errors.Join(err, c.Stop())
	}()
	if err := s.Ready(ctx, c); err != nil {
		return 1, err
	}
	if code = m.Run(); code != 0 || s.After == nil {
		return code, nil
	}
	return 0, s.After()
}
