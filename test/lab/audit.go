//go:build linux

package lab

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// auditPolicy records who asked for what and how it was answered, but no contents.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`

// AuditEvent is one request that the API server answered.
type AuditEvent struct {
	Time      time.Time // when it came in
	Verb      string    // of Kubernetes: get, list, watch, patch, …
	URI       string    // path and query
	Code      int       // HTTP status
	UserAgent string
	User      string
}

// Requests lists, in the order of their answers, the requests that came in since a time and whose user agent begins with
// this prefix; the empty prefix means all. A watch counts once, from when it is established. A request that has been
// answered just now may be missing for a moment.
func (c *Cluster) Requests(userAgentPrefix string, since time.Time) ([]AuditEvent, error) {
	f, err := os.Open(c.path(auditLog))
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer f.Close()
	events, err := parseAudit(f)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	kept := events[:0]
	for _, e := range events {
		if !e.Time.Before(since) && strings.HasPrefix(e.UserAgent, userAgentPrefix) {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// auditLine is a line of the audit log, as far as it is used here.
type auditLine struct {
	AuditID           string `json:"auditID"`
	Verb              string `json:"verb"`
	RequestURI        string `json:"requestURI"`
	UserAgent         string `json:"userAgent"`
	RequestReceivedAt string `json:"requestReceivedTimestamp"`
	User              struct {
		Username string `json:"username"`
	} `json:"user"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// parseAudit reads an audit log. A watch has a line at its start and one at its end: the first one counts. A last line
// without an end is still being written.
func parseAudit(r io.Reader) ([]AuditEvent, error) {
	var events []AuditEvent
	seen := map[string]bool{}
	lines := bufio.NewReader(r)
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		var l auditLine
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("%w in line %q", err, text)
		}
		at, err := time.Parse(time.RFC3339Nano, l.RequestReceivedAt)
		if err != nil {
			return nil, fmt.Errorf("%w in line %q", err, text)
		}
		if seen[l.AuditID] {
			continue
		}
		seen[l.AuditID] = true
		events = append(events, AuditEvent{at, l.Verb, l.RequestURI, l.ResponseStatus.Code, l.UserAgent, l.User.Username})
	}
}
