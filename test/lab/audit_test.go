//go:build linux

package lab

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAnAuditLogIsRead(t *testing.T) {
	line := func(id, stage, verb string) string {
		return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"` + id + `","stage":"` + stage +
			`","requestURI":"/api/v1/nodes?watch=1","verb":"` + verb + `","user":{"username":"u","groups":["g"]},"sourceIPs":["10.88.0.101"],` +
			`"userAgent":"kubelet/v1","responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"2026-01-15T17:47:26.247968Z"}` + "\n"
	}
	event := func(verb string) AuditEvent {
		at := time.Date(2026, 1, 15, 17, 47, 26, 247968000, time.UTC)
		return AuditEvent{at, verb, "/api/v1/nodes?watch=1", 200, "kubelet/v1", "u"}
	}
	for name, tt := range map[string]struct {
		log  string
		want []AuditEvent
		bad  bool
	}{
		"empty":                           {},
		"requests in their order":         {log: line("a", "ResponseComplete", "get") + line("b", "ResponseComplete", "list"), want: []AuditEvent{event("get"), event("list")}},
		"a watch counts once":             {log: line("a", "ResponseStarted", "watch") + line("a", "ResponseComplete", "watch"), want: []AuditEvent{event("watch")}},
		"a line that is written just now": {log: line("a", "ResponseComplete", "get") + line("b", "ResponseComplete", "list")[:50], want: []AuditEvent{event("get")}},
		"not an audit log":                {log: "hello\n", bad: true},
		"a line without a time":           {log: "{}\n", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseAudit(strings.NewReader(tt.log))
			if !slices.Equal(got, tt.want) || (err != nil) != tt.bad {
				t.Errorf("got %v and error %v, want %v and error %v", got, err, tt.want, tt.bad)
			}
		})
	}
}
