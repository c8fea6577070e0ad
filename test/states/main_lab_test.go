//go:build lab

package states

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/lab"
)

// roleVariable tells the test binary, started inside a host, what to do there instead of running tests.
const roleVariable = "STATES_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		os.Exit(m.Run())
	case "collector":
		os.Exit(serveCollector())
	case "systemd":
		os.Exit(serveSystemd(os.Args[1:]))
	case "writer":
		os.Exit(writeForEver(os.Getenv("STATES_PATH")))
	default:
		fmt.Fprintln(os.Stderr, "unknown role", role)
		os.Exit(2)
	}
}

// answer is what the collector inside a host says to one question.
type answer struct {
	Status     *status.NodeStatus
	Error      string
	Took       time.Duration
	Goroutines int
	Files      int
	Children   int
}

// serveCollector keeps one Collector and makes it look once for each line of standard input, which holds the time that the look may take
// ("" for no limit).
func serveCollector() int {
	cfg := &config.Config{}
	if os.Getenv("STATES_ARC") != "" {
		cfg.Azure.Arc = &config.ArcConfig{Enabled: true}
	}
	cfg.Node.Kubelet.Kubeconfig = os.Getenv("STATES_KUBECONFIG")
	cfg.Node.Name = "states"
	c := status.NewCollector(cfg, nil, "test")
	questions, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for questions.Scan() {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if limit, err := time.ParseDuration(questions.Text()); err == nil {
			ctx, cancel = context.WithTimeout(ctx, limit)
		}
		began := time.Now()
		s, err := c.CollectStatus(ctx)
		a := answer{Status: s, Took: time.Since(began), Goroutines: runtime.NumGoroutine(), Files: count("/proc/self/fd"), Children: children()}
		cancel()
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return 1
		}
	}
	return 0
}

func count(folder string) int {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return -1
	}
	return len(entries)
}

// children counts the processes that this one has started and not yet collected, in all its threads.
func children() int {
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		return -1
	}
	n := 0
	for _, l := range lists {
		b, _ := os.ReadFile(l) // a thread that has ended has none
		n += len(strings.Fields(string(b)))
	}
	return n
}

// collector is a Collector that lives inside a host.
type collector struct {
	ask func(limit string) answer
}

// startCollector starts one. Its environment chooses what it is configured with; user is the one it runs as, 0 for root.
func startCollector(t testing.TB, h *lab.Host, user int, env ...string) *collector {
	t.Helper()
	self := h.Self(t.Context())
	if user != 0 {
		args := self.Args[len(self.Args)-1:]
		self = h.Command(t.Context(), append([]string{"setpriv", "--reuid", fmt.Sprint(user), "--regid", fmt.Sprint(user), "--clear-groups"}, args...)...)
	}
	self.Env = append(append(self.Env, roleVariable+"=collector"), env...)
	self.Stderr = os.Stderr
	in, out := lab.Converse(t, self)
	answers := json.NewDecoder(out)
	return &collector{ask: func(limit string) answer {
		t.Helper()
		if _, err := fmt.Fprintln(in, limit); err != nil {
			t.Fatal(err)
		}
		var a answer
		if err := answers.Decode(&a); err != nil {
			t.Fatalf("the collector inside the host is gone: %v", err)
		}
		return a
	}}
}

// node starts a host with containerd and a kubelet as units, and with the agent's program.
func node(t testing.TB, name string) *lab.Host {
	t.Helper()
	lab.Require(t, "containerd", "runc", "ctr")
	tools, err := lab.KubernetesTools(t.Context(), "kubelet")
	lab.Must(t, err)
	h := lab.StartHost(t, lab.HostOptions{Name: name})
	lab.Must(t, h.InstallContainerd(t.Context()))
	lab.Must(t, h.InstallKubelet(t.Context(), filepath.Join(tools, "kubelet")))
	lab.Must(t, h.CopyIn(t.Context(), lab.Program(t, "github.com/aks-flex-node/agent/cmd/aks-flex-node"), "/usr/local/bin/aks-flex-node", 0o755))
	return h
}
