// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package cluster

import "syscall"

// childAttributes puts the child in a process group of its own, so that Ctrl-C in a terminal reaches this process and not
// the cluster under its feet. Only Linux can tie a child's life to its parent's: elsewhere Stop must be called.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
