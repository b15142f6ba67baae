// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"slices"
)

// components are the processes that a cluster has started, on a thread that ends with the last of them.
type components struct {
	thread  *thread
	running []*process // in the order in which they were started
	stopped bool
}

// add starts a process, which stop will end.
func (c *components) add(p *process) error {
	if c.stopped {
		return fmt.Errorf("cannot start %s: the cluster is stopped", p.name)
	}
	if err := p.start(c.thread); err != nil {
		return err
	}
	c.running = append(c.running, p)
	return nil
}

func (c *components) find(name Component) (*process, error) {
	if c.stopped {
		return nil, fmt.Errorf("cannot find %s: the cluster is stopped", name)
	}
	for _, p := range c.running {
		if p.name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("cannot find a component named %q", name)
}

// stop ends all processes, the last one first.
func (c *components) stop() error {
	c.stopped = true
	var errs []error
	for _, p := range slices.Backward(c.running) {
		errs = append(errs, p.kill())
	}
	c.thread.close()
	return errors.Join(errs...)
}
