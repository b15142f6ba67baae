// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"net"
	"sync"
)

const (
	// maxConnections is how many connections one server has at a time, and maxConnectionsOfCaller how many of them one
	// address has.
	maxConnections         = 1024
	maxConnectionsOfCaller = 256
)

// boundedListener closes connections beyond its places as soon as they are made.
type boundedListener struct {
	net.Listener
	places *places
}

// Accept gives the next connection that there is a place for.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		caller := hostOf(conn.RemoteAddr().String())
		if l.places.take(caller) {
			return &placedConn{Conn: conn, leave: sync.OnceFunc(func() { l.places.give(caller) })}, nil
		}
		_ = conn.Close() // the caller sees it closed, which is all that it is told
	}
}

// placedConn is a connection that has a place until it is closed.
type placedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection and gives its place back.
func (c *placedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
