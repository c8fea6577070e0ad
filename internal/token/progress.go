package token

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"sync"
)

// progress remembers how far the last HTTP request of a login came. The SDK tries again and again until the time is over, and its error
// then says only that. Its methods are safe for concurrent use; the zero value is ready.
type progress struct {
	mu             sync.Mutex // guards the fields below
	host           string     // and port, of the server or the proxy before it; empty: no request was made
	failure        string     // why the last connection to host failed
	sent, answered bool       // of the last request
}

// watch returns a context whose requests are watched.
func (p *progress) watch(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          p.begin,
		DNSDone:          func(i httptrace.DNSDoneInfo) { p.fail(i.Err) },
		ConnectDone:      func(_, _ string, err error) { p.fail(err) },
		TLSHandshakeDone: func(_ tls.ConnectionState, err error) { p.fail(err) },
		WroteRequest:     func(i httptrace.WroteRequestInfo) { p.mark(&p.sent, i.Err) },
		GotFirstResponseByte: func() {
			p.mark(&p.answered, nil)
		},
	})
}

func (p *progress) begin(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.host != host { // else a failed try is repeated: why it failed tells more than that it is being repeated
		p.host, p.failure = host, ""
	}
	p.sent, p.answered = false, false
}

func (p *progress) fail(err error) {
	// That this process gave up is not the reason.
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = err.Error()
}

func (p *progress) mark(what *bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*what = err == nil
}

// reached says how far it came; empty when there was no request.
func (p *progress) reached() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.host == "":
		return ""
	case p.answered:
		return p.host + " answers, but slowly or only to try again later"
	case p.sent:
		return p.host + " gives no answer"
	case p.failure != "":
		return p.host + ": " + p.failure
	}
	return p.host + ": no connection"
}
