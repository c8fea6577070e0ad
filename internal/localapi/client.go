package localapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
)

const (
	dialWait = 2 * time.Second
	// clientWait bounds a question that the agent answers from memory, slowWait one for which it needs its disk.
	clientWait = 5 * time.Second
	slowWait   = 15 * time.Second
	// maxAnswer is more than the longest history can have.
	maxAnswer = 128 << 20
)

// Client asks the agent that runs on this host. Its methods are those of Agent, with deadlines of their own; several goroutines may use
// it. It keeps no connections, so that there is nothing to close.
//
// Errors: ErrNotRunning when nobody listens at the socket, fs.ErrPermission when this user may not ask (root may), an *Error when the
// agent says no, context.DeadlineExceeded when it is silent.
type Client struct {
	path string
	http *http.Client
}

var _ Agent = (*Client)(nil)

// NewClient returns a Client of the agent whose socket is at path. It does nothing yet.
func NewClient(path string) *Client {
	return &Client{path: path, http: &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// View returns the present view. With after > 0 it waits up to 30 s for a newer one and then returns whatever is current, at once if the
// present one is of another run of the agent.
func (c *Client) View(ctx context.Context, after uint64) (*agent.View, error) {
	query, wait := url.Values{}, clientWait
	if after > 0 {
		query.Set("after", strconv.FormatUint(after, 10))
		wait += pollWait
	}
	var v agent.View
	if err := c.ask(ctx, wait, http.MethodGet, "/v1/view", query, nil, &v); err != nil {
		return nil, err
	}
	return &v, nil
}

// History returns the last limit entries (0: all) from from to to (zero: no bound), oldest first.
func (c *Client) History(ctx context.Context, from, to time.Time, limit int) ([]journal.Entry, error) {
	query := url.Values{}
	if !from.IsZero() {
		query.Set("from", from.Format(time.RFC3339Nano))
	}
	if !to.IsZero() {
		query.Set("to", to.Format(time.RFC3339Nano))
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var entries []journal.Entry
	err := c.ask(ctx, slowWait, http.MethodGet, "/v1/history", query, nil, &entries)
	return entries, err
}

// Pause makes the agent change nothing until p.Until or Resume. Of p only By, Reason and Until count; the first two must not be empty.
func (c *Client) Pause(ctx context.Context, p journal.Pause) error {
	return c.ask(ctx, slowWait, http.MethodPost, "/v1/pause", nil, pauseRequest{By: p.By, Reason: p.Reason, Until: p.Until}, nil)
}

// Resume ends a pause; by, which must not be empty, is who wants that.
func (c *Client) Resume(ctx context.Context, by string) error {
	return c.ask(ctx, slowWait, http.MethodPost, "/v1/resume", nil, resumeRequest{By: by}, nil)
}

// ask sends one request and reads its answer into answer, if that is not nil.
func (c *Client) ask(ctx context.Context, wait time.Duration, method, path string, query url.Values, body, answer any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, wait, &silentError{path: c.path, wait: wait})
	defer cancel()
	err := c.do(ctx, method, path, query, body, answer)
	if err == nil {
		return nil
	}
	if silent, ok := errors.AsType[*silentError](context.Cause(ctx)); ok {
		return silent
	}
	if netErr, ok := errors.AsType[*url.Error](err); ok {
		err = netErr.Err // the URL of a unix socket says nothing
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("the agent at %s closed the connection without an answer; it may have stopped just now, so try again: %w", c.path, err)
	}
	return err
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
		content = bytes.NewReader(data)
	}
	u := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), content)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return understand(resp.StatusCode, data, answer)
}

func understand(code int, data []byte, answer any) error {
	if len(data) > maxAnswer {
		return fmt.Errorf("the agent's answer is longer than %d bytes: ask for less", maxAnswer)
	}
	if code < 200 || code > 299 {
		e := &Error{Status: code}
		if err := json.Unmarshal(data, e); err != nil || e.Message == "" {
			e.Message, e.Hint = fmt.Sprintf("what listens there answered with HTTP status %d and no reason", code), "see that it is the agent of this version"
		}
		return e
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("the agent's answer can't be understood; is it of another version? %w", err)
	}
	return nil
}

// dial connects to the agent, and to nobody who only poses as it: what is said here is shown to root.
func dial(ctx context.Context, path string) (net.Conn, error) {
	if err := checkFolder(filepath.Dir(path)); err != nil {
		return nil, asDialError(path, err)
	}
	dialer := net.Dialer{Timeout: dialWait}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, asDialError(path, err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: not a unix socket", path)
	}
	uid, err := peer(unixConn)
	if err == nil && !allowed(uid, os.Geteuid()) {
		err = fmt.Errorf("not trusting %s: user %d listens there, who is neither root nor user %d", path, uid, os.Geteuid())
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func asDialError(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("%w: nobody listens at %s", ErrNotRunning, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("only root and the agent's user may ask the agent (%s): %w", path, fs.ErrPermission)
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("the agent at %s has too many clients: try again: %w", path, err)
	}
	return err
}

// silentError: the agent took longer than it should.
type silentError struct {
	path string
	wait time.Duration
}

func (e *silentError) Error() string {
	return fmt.Sprintf("the agent at %s does not answer within %s; look at `systemctl status aks-flex-node-agent`", e.path, e.wait)
}

// Is makes it the deadline that it is.
func (e *silentError) Is(target error) bool { return target == context.DeadlineExceeded }
