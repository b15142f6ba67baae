// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faultpoints

package faults

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// crashed is the exit status of a process that SIGKILL ends, as shells tell it.
const crashed = 137

// passes counts how often each point was passed by this process.
var passes = struct { //nolint:gochecknoglobals // the points are all over the product, and in no product that is shipped
	sync.Mutex
	of map[string]int
}{of: map[string]int{}}

// PassPoint passes a point between two requests.
func PassPoint(name string) {
	passes.Lock()
	passes.of[name]++
	n := passes.of[name]
	passes.Unlock()
	if isOrdered("CLEANER_CRASH_AT", name, n) {
		os.Exit(crashed)
	}
	if isOrdered("CLEANER_STOP_AT", name, n) {
		pauseProcess(name)
	}
}

// PassBefore passes the point before a request that life.Next asked for.
func PassBefore(request fmt.Stringer) { PassPoint("before " + request.String()) }

// PassAfter passes the point after it, when it has been carried out.
func PassAfter(request fmt.Stringer) { PassPoint("after " + request.String()) }

// isOrdered says that the environment orders something for this pass.
func isOrdered(variable, name string, n int) bool {
	point, pass, found := strings.Cut(os.Getenv(variable), ":")
	return found && point == name && pass == strconv.Itoa(n)
}

// pauseProcess pauses the whole process, and returns after SIGCONT: the thread that asks for it may run on for a moment.
func pauseProcess(name string) {
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	fmt.Fprintln(os.Stderr, "pauses at", name)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		panic(fmt.Sprintf("cannot stop: %s", err))
	}
	<-goOn
}
