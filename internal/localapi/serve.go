package localapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConns is how many connections are served at once. More wait in the kernel's queue.
	maxConns = 32
	// maxHeaderBytes is what all headers of a request may have. Go adds 4 KiB of slack.
	maxHeaderBytes = 16 << 10
	headerWait     = 2 * time.Second
	// idleWait is short because a silent connection takes one of maxConns.
	idleWait = 5 * time.Second
	// answerWait bounds a request from its headers to the last byte of the answer; a wait for a view is the longest part.
	answerWait = pollWait + 15*time.Second
	// endWait is for how long answers under way may be finished when the end has come.
	endWait = 200 * time.Millisecond
)

// serveUntil answers with h what comes in at l until ctx ends, then returns nil; or until l fails, with that error. It closes l. The contexts
// of requests end with ctx, and their connections are closed at most 0.2 s later, whatever clients do. A handler that does not heed its
// context is left behind.
func serveUntil(ctx context.Context, l net.Listener, h http.Handler) error {
	requests, cancel := context.WithCancel(ctx)
	defer cancel()
	server := newServer(requests, h)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(newLimited(l, maxConns)) }()

	var err error
	select {
	case <-ctx.Done():
		end(ctx, server)
		err = <-failed
	case err = <-failed:
		_ = server.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the local API at %s: %w", l.Addr(), err)
}

// newServer returns a server with our limits. The contexts of requests end with ctx.
func newServer(ctx context.Context, h http.Handler) *http.Server {
	return &http.Server{
		Handler: h,
		// Methods are for the handler to refuse, OPTIONS too.
		DisableGeneralOptionsHandler: true,
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		MaxHeaderBytes:               maxHeaderBytes,
		ReadHeaderTimeout:            headerWait,
		IdleTimeout:                  idleWait,
		WriteTimeout:                 answerWait,
		ErrorLog:                     log.New(io.Discard, "", 0), // what clients do wrong they are told; it is no news to the agent
	}
}

// end gives answers under way a moment: a client that waits for a view is then told that the agent stops, and a pause that was recorded is
// confirmed.
func end(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// limited is a listener with at most so many connections open at once.
type limited struct {
	net.Listener
	free   chan struct{}
	closed chan struct{}
	once   sync.Once
}

func newLimited(l net.Listener, n int) *limited {
	return &limited{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept waits for a free place before it takes a connection.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: conn, done: func() { <-l.free }}, nil
}

// Close ends Accept, also one that waits for a place.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	err := l.Listener.Close()
	if errors.Is(err, net.ErrClosed) { // http.Server closes twice
		return nil
	}
	return err
}

// counted is a connection that gives its place back once.
type counted struct {
	net.Conn
	once sync.Once
	done func()
}

func (c *counted) Close() error {
	c.once.Do(c.done)
	return c.Conn.Close()
}
