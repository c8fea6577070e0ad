package cluster

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const dialTimeout = 3 * time.Second

// dialer opens network connections and can end them all. http.Transport only closes those that are idle, and one whose request was given
// up a moment ago isn't yet: it would stay until the server or the idle time-out ends it. The zero value is ready for use.
type dialer struct {
	mu    sync.Mutex
	open  map[*dialed]struct{}
	ended bool
	gone  chan struct{} // closed with ended; nil until somebody wants to know
	heard atomic.Int64  // Unix time in nanoseconds
}

// dialed is a connection that its dialer knows.
type dialed struct {
	net.Conn
	by *dialer
}

// Read implements net.Conn. Whatever arrives, be it the answer to a ping, shows that the other side is there.
func (c *dialed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.by.heard.Store(time.Now().UnixNano())
	}
	return n, err
}

// lastHeard is when something last arrived on any of the connections; zero when nothing ever did.
func (d *dialer) lastHeard() time.Time {
	ns := d.heard.Load()
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// Close implements net.Conn.
func (c *dialed) Close() error {
	c.by.mu.Lock()
	delete(c.by.open, c)
	c.by.mu.Unlock()
	return c.Conn.Close()
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended { // http.Transport goes on dialing when nobody waits any more
		conn.Close() // nothing was said on it
		return nil, net.ErrClosed
	}
	if d.open == nil {
		d.open = map[*dialed]struct{}{}
	}
	c := &dialed{conn, d}
	d.open[c] = struct{}{}
	return c, nil
}

// end closes every connection, also those that are still being made.
func (d *dialer) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.ended && d.gone != nil {
		close(d.gone)
	}
	d.ended = true
	for c := range d.open {
		c.Conn.Close() // what is lost with it was given up
	}
	d.open = nil
}

// over is closed when end was called: nothing can be dialed any more.
func (d *dialer) over() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone == nil {
		d.gone = make(chan struct{})
		if d.ended {
			close(d.gone)
		}
	}
	return d.gone
}
