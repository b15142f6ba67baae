// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"net"
	"net/http"
)

const (
	// maxConnections is how many connections a server has at a time, and maxConnectionsPerCaller how many of them one address
	// may have.
	maxConnections          = 1024
	maxConnectionsPerCaller = 256
)

// limitedListener closes connections for which it has no slot, or takes a slot away from another connection.
type limitedListener struct {
	net.Listener
	slots *slotPool
}

// limitConnections bounds the connections of a server, in total and per address. It sets the server's ConnState to follow them.
func limitConnections(server *http.Server, listener net.Listener, all, each int) net.Listener {
	server.ConnState = followConnection
	return &limitedListener{listener, newSlotPool(all, each, 0)}
}

// Accept returns the next connection that gets a slot.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		cutOff := func(slotState) { _ = conn.Close() } // the caller only sees that it is closed
		if s := l.slots.acquireSlot(callerOf(conn.RemoteAddr().String()), waiting, cutOff); s != nil {
			return &slotConn{Conn: conn, slot: s}, nil
		}
		_ = conn.Close()
	}
}

// slotConn is a connection that has a slot until it is closed.
type slotConn struct {
	net.Conn
	slot *slot
}

// Close closes the connection and releases its slot.
func (c *slotConn) Close() error {
	c.slot.releaseSlot()
	return c.Conn.Close()
}

// followConnection sets the state of a connection's slot: dormant while it waits for its next request.
func followConnection(conn net.Conn, state http.ConnState) {
	if over, ok := conn.(*tls.Conn); ok {
		conn = over.NetConn()
	}
	c, ok := conn.(*slotConn)
	switch {
	case !ok:
	case state == http.StateIdle:
		c.slot.setState(dormant)
	case state == http.StateActive:
		c.slot.setState(waiting)
	}
}
