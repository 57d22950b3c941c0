package shell

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

const (
	keepAliveEvery = 15 * time.Second // interval between requests
	keepAliveWait  = 45 * time.Second // time without an answer after which the connection is dead
)

// keepAlive sends requests to the host until the connection ends. Firewalls drop idle
// connections, and a host without power sends no FIN. It closes a connection without
// answers.
func (c *connection) keepAlive(l *link) {
	for {
		select {
		case <-c.cfg.After(keepAliveEvery):
		case <-l.gone:
			return
		}
		// The buffer lets the goroutine end if nothing reads the answer.
		answered := make(chan error, 1)
		c.running.Go(func() {
			_, _, err := l.SendRequest("keepalive@openssh.com", true, nil)
			answered <- err
		})
		select {
		case err := <-answered:
			if err != nil {
				return // the connection has ended
			}
		case <-c.cfg.After(keepAliveWait):
			c.cfg.Log.Warn("the host does not answer on its SSH connection", "host", c.cfg.Addr)
			c.dropLink(l)
			return
		}
	}
}

// isHungUp reports whether err is the end of an established connection.
func isHungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
