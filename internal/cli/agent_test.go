package cli

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
	"github.com/aks-flex-node/agent/pkg/config"
)

func TestRootDoesOnlyWhatRootWrote(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: others do what they may, at their own risk")
	}
	dir := t.TempDir()
	file := func(name string, mode os.FileMode, uid, gid int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("{}"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good", 0o640, 0, 1000)
	for name, c := range map[string]struct{ path, command, want string }{
		"root's own":                            {good, "", ""},
		"root's group is root":                  {file("group", 0o660, 0, 0), "", ""},
		"another's":                             {file("another", 0o600, 1000, 0), "", "only root may be able to write"},
		"writable for a group":                  {file("writable", 0o660, 0, 1000), "", "only root may be able to write"},
		"writable for all":                      {file("all", 0o666, 0, 0), "", "only root may be able to write"},
		"a command of root's":                   {good, file("command", 0o755, 0, 0), ""},
		"a command of another's":                {good, file("other", 0o755, 1000, 0), "agent.bootstrap.command"},
		"a command that others can write":       {good, file("open", 0o777, 0, 0), "agent.bootstrap.command"},
		"a command that is not there (yet)":     {good, filepath.Join(dir, "none"), ""},
		"a configuration that is there no more": {filepath.Join(dir, "gone"), "", "look at the configuration"},
	} {
		cfg := &config.Config{}
		if c.command != "" {
			cfg.Agent.Bootstrap.Command = []string{c.command}
		}
		err := trusted(c.path, cfg)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// aRealAgent runs one that only observes, in folders of its own, until end is called; everything it logged is returned then.
func aRealAgent(t *testing.T, configPath string) (socketPath string, end func() string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cli") // paths of sockets must be short, so it is not t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	out := &lines{}
	c := &common{stderr: out, configPath: configPath}
	socketPath = filepath.Join(dir, "agent.sock")
	o := agent.Options{ObserveOnly: true, StateDir: dir, StatusPath: filepath.Join(dir, "status.json"), PauseFile: filepath.Join(dir, "paused")}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.runAgent(ctx, true, socketPath, o) }()
	end = sync.OnceValue(func() string {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
		return out.take()
	})
	t.Cleanup(func() { end() }) // before its folder goes
	return socketPath, end
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-limit:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func TestTheAgentReadsItsConfigurationOnceAndItsPortFollowsReloads(t *testing.T) {
	t.Setenv("INVOCATION_ID", "as systemd sets it")
	path := filepath.Join(t.TempDir(), "config.json")
	port := func() int {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		address, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			t.Fatalf("got the address %v, want one of TCP", l.Addr())
		}
		return address.Port
	}
	write := func(port int) {
		text := fmt.Sprintf(`{"azure": {"subscriptionId": "00000000-0000-0000-0000-000000000001", "tenantId": "00000000-0000-0000-0000-000000000002",
			"bootstrapToken": {"token": "abcdef.0123456789abcdef"}, "targetCluster": {"location": "westeurope", "resourceId":
			"/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c"}},
			"node": {"kubelet": {"serverURL": "https://cluster.example:443", "caCertData": "ZmFrZSBjZXJ0aWZpY2F0ZQ=="}},
			"agent": {"logDir": %q, "metricsPort": %d, "metricPort": 1}}`, filepath.Join(path, "not-a-folder"), port)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(port int) bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		return err == nil && conn.Close() == nil
	}
	first, second := port(), port()
	write(first)
	socketPath, end := aRealAgent(t, path)
	eventually(t, "the port is open", func() bool { return open(first) })
	eventually(t, "the agent answers", func() bool {
		_, err := localapi.NewClient(socketPath).View(t.Context(), 0)
		return err == nil
	})
	write(second)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the port has moved", func() bool { return open(second) && !open(first) })
	logged := end()
	if got := strings.Count(logged, "metricPort"); got != 2 {
		t.Errorf("got the warning %d times, want once for each time that the configuration was read:\n%s", got, logged)
	}
	if open(second) {
		t.Error("the port is open after the end")
	}
}

func TestASecondAgentEndsAtOnceAndSaysWhom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil { // it can't be used, which is no reason not to run
		t.Fatal(err)
	}
	socketPath, end := aRealAgent(t, path)
	eventually(t, "the first answers", func() bool {
		_, err := localapi.NewClient(socketPath).View(t.Context(), 0)
		return err == nil
	})
	c := &common{stderr: &lines{}, configPath: path}
	err := c.runAgent(t.Context(), true, socketPath, agent.Options{ObserveOnly: true, StateDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "another agent is running") || !strings.Contains(err.Error(), "aks-flex-node status") {
		t.Errorf("got %v, want that another agent is running, and how to ask it", err)
	}
	end()
}

// withSilentAgent is a command on a host whose agent has its journal and no socket.
func withSilentAgent(t *testing.T) *command {
	t.Helper()
	c := newCommand(t, absent())
	if err := os.MkdirAll(filepath.Dir(c.journalPath), 0o700); err != nil {
		t.Fatal(err)
	}
	j, _, err := journal.Open(c.journalPath, agent.Moment(), journal.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return c
}

func TestNobodySaysThatNoAgentRunsWhileOneHasTheJournal(t *testing.T) {
	const restart = "systemctl restart aks-flex-node-agent"
	for _, args := range [][]string{{"explain"}, {"explain", "-o", "json"}, {"status"}, {"pause"}, {"resume"}, {"history"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			c := withSilentAgent(t)
			code := c.run(t.Context(), args)
			said := strings.Join(strings.Fields(c.out.String()+c.err.String()), " ")
			if !strings.Contains(said, restart) || strings.Contains(strings.ToLower(said), "no agent runs") {
				t.Errorf("got %q, want that an agent seems to run, and how to restart it", said)
			}
			if args[0] != "pause" && args[0] != "resume" {
				return
			}
			if code != ExitError || !strings.Contains(said, "What pauses in any case: touch "+c.pausing) {
				t.Errorf("got exit %d and %q, want an error that names the pause file", code, said)
			}
		})
	}
	c := withSilentAgent(t)
	w := &watcher{c: &c.common, s: wanted}
	if got := w.whyNot(localapi.ErrNotRunning); got != errSilent.Error() {
		t.Errorf("watch: got %q, want %q", got, errSilent)
	}
	without := newCommand(t, absent())
	w = &watcher{c: &without.common, s: wanted}
	if got := w.whyNot(localapi.ErrNotRunning); got != "no agent runs here" {
		t.Errorf("watch without a journal: got %q", got)
	}
	if _, err := os.Lstat(without.journalPath); !os.IsNotExist(err) {
		t.Errorf("looking for an agent: got %v, want that no journal was made", err)
	}
	writeJournal(t, without.journalPath)
	if without.journalHeld() {
		t.Error("a journal that nobody has open counts as held")
	}
}

func TestAPauseThatTheAgentCannotRecordNamesWhatPausesAllTheSame(t *testing.T) {
	f := newFake(acting().view())
	f.err = &localapi.Error{Status: http.StatusInternalServerError, Message: "the journal is not open"}
	c := newCommand(t, f)
	if code := c.run(t.Context(), []string{"pause"}); code != ExitError || !strings.Contains(c.err.String(), "the journal is not open. What pauses in any case: touch "+c.pausing) {
		t.Errorf("got exit %d and %q", code, c.err.String())
	}
}
