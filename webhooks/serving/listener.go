// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net"
	"sync"
)

const (
	// maxConnections is how many connections one server has at a time, and maxConnectionsPerCaller how many of them one
	// address has.
	maxConnections          = 1024
	maxConnectionsPerCaller = 256
)

// limitedListener closes connections beyond its slots as soon as they are made.
type limitedListener struct {
	net.Listener
	slots *callerSlots
}

// Accept gives the next connection that there is a slot for.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		caller := callerOf(conn.RemoteAddr().String())
		if l.slots.acquireSlot(caller) {
			return &slotConn{Conn: conn, releaseSlot: sync.OnceFunc(func() { l.slots.releaseSlot(caller) })}, nil
		}
		_ = conn.Close() // the caller sees it closed, which is all that it is told
	}
}

// slotConn is a connection that has a slot until it is closed.
type slotConn struct {
	net.Conn
	releaseSlot func()
}

// Close closes the connection and gives its slot back.
func (c *slotConn) Close() error {
	c.releaseSlot()
	return c.Conn.Close()
}
