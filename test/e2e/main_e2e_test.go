//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/internal/probe"
	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/lab"
)

// roleVariable tells the test binary, started on a node, what to do there instead of running tests.
const roleVariable = "E2E_ROLE"

// watcherVersion makes the user agent of a watching Suite one that the audit log can be searched for.
const watcherVersion = "e2e-watcher"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "watcher":
		os.Exit(serveWatcher())
	case "teller":
		os.Exit(serveTeller())
	case "actor":
		os.Exit(serveActor())
	case "killer":
		os.Exit(serveKiller())
	case "beginner":
		os.Exit(serveBeginner())
	default:
		fmt.Fprintln(os.Stderr, "unknown role", role)
		os.Exit(2)
	}
}

// sight is what a watching Suite says to one question.
type sight struct {
	Node    observe.Observation[observe.Node]
	Wakes   int64 // how often a change was announced
	Dialled int   // connections that this process has open to the API server
}

// serveWatcher keeps a Suite that watches its node, as the agent does, and looks once for each line of standard input.
func serveWatcher() int {
	cfg := &config.Config{}
	cfg.Node.Kubelet.Kubeconfig = os.Getenv("E2E_KUBECONFIG")
	suite := probe.New(cfg, watcherVersion)
	var wakes atomic.Int64
	suite.Look(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		suite.WatchNode(ctx, func() { wakes.Add(1) })
	}()
	defer func() {
		cancel()
		<-done
		suite.Close()
	}()
	questions, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for questions.Scan() {
		set := suite.Look(ctx)
		if err := out.Encode(sight{Node: set.Node, Wakes: wakes.Load(), Dialled: connections()}); err != nil {
			return 1
		}
	}
	return 0
}

// connections counts this process's connections to the API server's port.
func connections() int {
	out, err := exec.CommandContext(context.Background(), "sh", "-c",
		fmt.Sprintf("ss -Htnp state established '( dport = :6443 )' | grep -c pid=%d,", os.Getpid())).Output()
	var n int
	if _, scanErr := fmt.Sscan(string(out), &n); scanErr != nil {
		fmt.Fprintln(os.Stderr, "count connections:", err, scanErr)
		return -1
	}
	return n
}

// watcher is a watching Suite on a node.
type watcher struct {
	look func(t testing.TB) sight
}

func startWatcher(t testing.TB, h *lab.Host, env ...string) watcher {
	t.Helper()
	cmd := h.Self(t.Context())
	cmd.Env = append(append(cmd.Env, roleVariable+"=watcher"), env...)
	cmd.Stderr = os.Stderr
	in, out := lab.Converse(t, cmd)
	answers := json.NewDecoder(out)
	return watcher{look: func(t testing.TB) sight {
		t.Helper()
		if _, err := fmt.Fprintln(in); err != nil {
			t.Fatal(err)
		}
		var s sight
		if err := answers.Decode(&s); err != nil {
			t.Fatalf("the watcher is gone: %v", err)
		}
		return s
	}}
}

const agentPath = "/usr/local/bin/aks-flex-node"

// cluster starts a control plane.
func cluster(t testing.TB, o lab.ClusterOptions) *lab.Cluster {
	t.Helper()
	lab.Require(t, lab.ClusterPrograms()...)
	return lab.StartCluster(t, o)
}

// join makes a node that has the agent's program.
func join(t testing.TB, c *lab.Cluster, agent, name string, o lab.JoinOptions) *lab.Host {
	t.Helper()
	h := c.MustJoin(t, name, o)
	lab.Must(t, h.CopyIn(t.Context(), agent, agentPath, 0o755))
	return h
}

// oneShot runs status on a node, in both forms.
func oneShot(t testing.TB, h *lab.Host, args ...string) (snapshot status.NodeStatus, table string) {
	t.Helper()
	argv := append([]string{"aks-flex-node", "status", "--live"}, args...)
	out, err := h.Exec(t.Context(), append(argv, "-o", "json")...)
	lab.Must(t, err)
	if err := json.Unmarshal([]byte(out.Stdout), &snapshot); err != nil {
		t.Fatalf("status printed %q and %q: %v", out.Stdout, out.Stderr, err)
	}
	text, err := h.Exec(t.Context(), append(argv, "-o", "wide")...)
	lab.Must(t, err)
	return snapshot, text.Stdout
}

// soon is how long something may take that should take a moment, on a machine that does other things too.
const soon = 30 * time.Second
