// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "syscall"

// childAttributes lets the kernel kill the child when the thread that started it ends (see thread), and puts the child in a
// process group of its own, so that Ctrl-C in a terminal reaches this process and not the cluster under its feet.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
