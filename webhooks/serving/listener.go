// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"crypto/tls"
	"net"
	"net/http"
)

const (
	// maxConnections is how many connections one server has at a time, and maxConnectionsPerCaller how many of them one
	// address has.
	maxConnections          = 1024
	maxConnectionsPerCaller = 256
)

// limitedListener closes connections beyond its slots as soon as they are made, or others for them.
type limitedListener struct {
	net.Listener
	slots *slotPool
}

// limitConnections bounds the connections of a server, in all and of one address. All that are made have to be followed.
func limitConnections(server *http.Server, listener net.Listener, all, each int) net.Listener {
	server.ConnState = followConnection
	return &limitedListener{listener, newSlotPool(all, each, 0)}
}

// Accept gives the next connection that there is a slot for.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		cutOff := func(slotState) { _ = conn.Close() } // the caller sees it closed, which is all that it is told
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

// Close closes the connection and gives its slot back.
func (c *slotConn) Close() error {
	c.slot.releaseSlot()
	return c.Conn.Close()
}

// followConnection says of a connection whether it waits for its next request.
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
