//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/test/lab"
)

// idleVariable is for how many minutes an agent with nothing to do is watched; docs/benchmarks.md has the numbers of 5.
const idleVariable = "IDLE_MINUTES"

// TestAnIdleAgentCostsNextToNothing leaves an agent alone on a node that works, with the configuration that users have.
func TestAnIdleAgentCostsNextToNothing(t *testing.T) {
	t.Parallel()
	minutes := 1
	if n, err := strconv.Atoi(os.Getenv(idleVariable)); err == nil && n > 0 {
		minutes = n
	}
	c := cluster(t, lab.ClusterOptions{})
	h := c.MustJoin(t, "n1", lab.JoinOptions{})
	began := time.Now()
	n := installAgent(t, h, settings{})
	lab.Must(t, c.WaitReady(t.Context(), "n1", corev1.ConditionTrue, time.Minute))
	n.waitViewFor(8*time.Minute, "everything has settled", func(v *agent.View) bool {
		for _, c := range v.Conditions {
			// Nothing keeps the clock of a lab host in step. That counts after five minutes, when a short test is over.
			if c.Pending != nil && (c.Type != health.ClockSynchronized || minutes > 2) {
				return false
			}
		}
		return idle(v) && condition(v, health.NodeReady).Status == health.True && condition(v, health.KubeletHealthy).Status == health.True &&
			v.Counters.Looks >= 2 && v.Counters.NodeConditionWrites > 0
	})

	pid := strings.TrimSpace(n.MustExec(t, "systemctl", "show", "-P", "MainPID", agentUnit))
	since, before, lines := time.Now(), n.ticks(pid), n.logLines("\n")
	select {
	case <-time.After(time.Duration(minutes) * time.Minute): // this is the measurement, and waits for nothing
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
	spent, passed := n.ticks(pid)-before, time.Since(since)
	v, err := n.view(t.Context())
	lab.Must(t, err)
	if !idle(v) {
		t.Fatalf("it was not idle: %s", summary(v))
	}
	if got := n.logLines("\n") - lines; got > 0 {
		t.Errorf("the idle agent logged %d lines:\n%s", got, n.MustExec(t, "journalctl", "--no-pager", "-o", "cat", "-n", strconv.Itoa(got), "-u", agentUnit))
	}

	idle, all := n.requests(c, since), n.requests(c, began)
	rounds := minutes + minutes/5 + 2 // they come up to a tenth of a minute sooner than a minute apart
	for _, r := range []struct {
		kind      string
		got       int
		low, high int
	}{
		{"watch", all["watch"], 1, 1 + minutes/5}, // the API server ends one after five minutes or more
		{"get Lease", idle["get lease"], minutes - 1, rounds},
		{"patch Node status", idle["patch status"], minutes / 6, 1 + minutes/5},
		{"other", idle["other"], 0, minutes / 5}, // a list before a watch that was ended
	} {
		if r.got < r.low || r.got > r.high {
			t.Errorf("requests of kind %s: got %d, want %d to %d; of all: %v, and of the idle time: %v", r.kind, r.got, r.low, r.high, all, idle)
		}
	}
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	memory := n.memory(pid)
	t.Logf("idle for %s\n| CPU share of a core | anonymous memory | resident memory | watches | Lease GETs | status PATCHes | log lines |\n|---|---|---|---|---|---|---|\n"+
		"| %.3f %% | %.1f MiB | %.1f MiB | %d | %d | %d | 0 |", passed.Round(time.Second), 100*float64(spent)*float64(tick)/float64(passed),
		memory["Anonymous"], memory["Rss"], all["watch"], idle["get lease"], idle["patch status"])
}

// ticks is how much CPU time a process has had, by /proc.
func (n node) ticks(pid string) int {
	n.t.Helper()
	text := n.MustExec(n.t, "cat", "/proc/"+pid+"/stat")
	_, text, ok := strings.Cut(text, ") ") // the name before it may have spaces
	fields := strings.Fields(text)
	if !ok || len(fields) < 13 {
		n.t.Fatalf("/proc/%s/stat: %q", pid, text)
	}
	user, err := strconv.Atoi(fields[11])
	lab.Must(n.t, err)
	system, err := strconv.Atoi(fields[12])
	lab.Must(n.t, err)
	return user + system
}

// memory is what a process uses, in MiB, by the names of the kernel.
func (n node) memory(pid string) map[string]float64 {
	n.t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(n.MustExec(n.t, "cat", "/proc/"+pid+"/smaps_rollup")) {
		var name string
		var kib float64
		if _, err := fmt.Sscanf(line, "%s %f kB", &name, &kib); err == nil {
			all[strings.TrimSuffix(name, ":")] = kib / 1024
		}
	}
	return all
}

// requests counts the agent's requests since a time, by kind.
func (n node) requests(c *lab.Cluster, since time.Time) map[string]int {
	n.t.Helper()
	all, err := c.Requests("aks-flex-node/", since)
	lab.Must(n.t, err)
	kinds := map[string]int{}
	for _, r := range all {
		switch {
		case r.Verb == "watch":
			kinds["watch"]++
		case r.Verb == "get" && strings.Contains(r.URI, "/leases/"):
			kinds["get lease"]++
		case r.Verb == "patch" && strings.HasSuffix(r.URI, "/status"):
			kinds["patch status"]++
		default:
			kinds["other"]++
			n.t.Logf("%s %s: %d", r.Verb, r.URI, r.Code)
		}
	}
	return kinds
}
