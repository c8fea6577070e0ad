//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/test/lab"
)

const (
	journalFile = "/var/lib/aks-flex-node/journal.db"
	goFile      = "/var/tmp/go" // a command that waits goes on when this is there
)

// awaitGo is a command that takes as long as the test wants, and then mends what removeUnit did.
const awaitGo = "while [ ! -e " + goFile + " ]; do sleep 0.1; done; rm " + goFile + "; " + restoreUnit

// order tells a killer when to shoot the agent: when its journal says that a remedy is at this point.
type order struct {
	PID   int
	Point string
}

// shot is what became of it. Saw are the points at which the journal was seen.
type shot struct {
	Killed bool
	Saw    []string
	Err    string
}

// serveKiller carries out the orders that it reads from standard input.
func serveKiller() int {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		s, err := o.carryOut()
		if err != nil {
			s.Err = err.Error()
		}
		if err := out.Encode(s); err != nil {
			return 1
		}
	}
	return 0
}

// carryOut stops the agent after each write of its journal for as long as it takes to read that, so that no point passes unseen.
func (o order) carryOut() (s shot, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return s, err
	}
	defer w.Close()
	if err := w.Add(filepath.Dir(journalFile)); err != nil {
		return s, err
	}
	fmt.Fprintln(os.Stderr, "ready")
	for {
		select {
		case e := <-w.Events:
			if e.Name != journalFile {
				continue
			}
		case err := <-w.Errors:
			return s, err
		case <-ctx.Done():
			return s, ctx.Err()
		}
		if err := syscall.Kill(o.PID, syscall.SIGSTOP); err != nil {
			return s, err
		}
		at, err := point()
		if err != nil {
			at = "" // in the middle of a write
		}
		if at == o.Point {
			s.Killed = true
			return s, syscall.Kill(o.PID, syscall.SIGKILL)
		}
		if err := syscall.Kill(o.PID, syscall.SIGCONT); err != nil {
			return s, err
		}
		if at != "" && !slices.Contains(s.Saw, at) {
			s.Saw = append(s.Saw, at)
		}
		if at == "" && err == nil && len(s.Saw) > 0 {
			return s, nil // the remedy has ended
		}
	}
}

// point is how far the remedy in progress is: "begun", or the last step that was taken and its state; empty when there is none.
func point() (string, error) {
	b, err := os.ReadFile(journalFile)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "journal.db")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return "", err
	}
	j, _, err := journal.Open(path, journal.Moment{Wall: time.Now()}, journal.Options{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer j.Close()
	r, err := j.Unfinished()
	if err != nil || r == nil {
		return "", err
	}
	at := "begun"
	for _, s := range r.Steps {
		if s.State != journal.StepPending {
			at = s.Name + " " + string(s.State)
		}
	}
	return at, nil
}

// loneNode is a host that runs containerd and a kubelet of no cluster. A kubelet that fails there is not started again by systemd.
func loneNode(t testing.TB, name string) *lab.Host {
	t.Helper()
	lab.Require(t, lab.ClusterPrograms()...)
	h := lab.StartHost(t, lab.HostOptions{Name: name})
	tools, err := lab.KubernetesTools(t.Context())
	lab.Must(t, err)
	lab.Must(t, h.InstallContainerd(t.Context()))
	lab.Must(t, h.InstallKubelet(t.Context(), filepath.Join(tools, "kubelet")))
	lab.Must(t, h.WriteFile(t.Context(), unitPath+".d/10-once.conf", []byte("[Service]\nRestart=no\n"), 0o644))
	h.MustExec(t, "systemctl", "daemon-reload")
	return h
}

// nimble are limits with which one fault after the other can be tried on one host.
func nimble() settings {
	return limits(map[string]any{
		"confirmFor": "1s", "recovered": "2s", "restartGaps": times(30, "1s"), "maxBootstraps": 50, "coolDown": "1s", "maxCoolDown": "1s",
	}).with(settings{"statusInterval": "1s"})
}

// TestAgentsThatEndWhileTheCommandRuns ends agents in every way while the bootstrap command runs: it ends its work, runs once, and the next
// agent finds its result.
func TestAgentsThatEndWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	h := loneNode(t, "lone")
	installCommand(t, h, awaitGo)
	n := installAgent(t, h, withCommand(nimble()))
	for _, end := range []struct {
		name string
		how  string
		down bool // until the command has ended
	}{
		{name: "SIGKILL", how: "systemctl kill -s KILL " + agentUnit},
		{name: "restarted", how: "systemctl restart " + agentUnit},
		{name: "installed anew", how: "cp /root/aks-flex-node /root/other; echo >>/root/other; chmod 755 /root/other; /root/other install"},
		{name: "stopped meanwhile", how: "systemctl stop " + agentUnit, down: true},
	} {
		v := n.waitView(end.name+": nothing is to be done", idle)
		done := len(n.remedies())
		n.MustExec(t, "sh", "-ec", "rm -f "+runsPath+" "+goFile+"; "+removeUnit)
		n.waitRuns("begin")
		n.MustExec(t, "sh", "-ec", end.how)
		if end.down {
			n.MustExec(t, "touch", goFile)
			n.waitRuns("begin end")
			n.MustExec(t, "systemctl", "start", agentUnit)
		} else {
			n.waitView(end.name+": the next agent goes on", func(next *agent.View) bool {
				return next.Started.After(v.Started) && next.Remedy != nil && next.Remedy.Name == "bootstrap" && next.Decision.Action == "wait"
			})
			if got := n.remedies()[done:]; !slices.Equal(got, []string{"bootstrap begun"}) {
				t.Errorf("%s: while the command runs, got the remedies %v, want one that is begun", end.name, got)
			}
			n.MustExec(t, "touch", goFile)
		}
		n.waitView(end.name+": normal life", func(next *agent.View) bool { return next.Started.After(v.Started) && idle(next) })
		if got := n.remedies()[done:]; !slices.Equal(got, []string{"bootstrap begun", "bootstrap succeeded"}) {
			t.Errorf("%s: got the remedies %v, want one bootstrap that succeeded", end.name, got)
		}
		if got := n.runs(); got != "begin end" {
			t.Errorf("%s: the command ran like this: %s, want once", end.name, got)
		}
		if got := words(n.MustExec(t, "systemctl", "list-units", "--all", "--no-legend", "--plain", "aks-flex-node-bootstrap-*")); got != "" {
			t.Errorf("%s: got the units %s, want none left", end.name, got)
		}
	}
}

func (n node) waitRuns(want string) {
	n.t.Helper()
	lab.Must(n.t, lab.WaitFor(n.t.Context(), time.Minute, "the command says "+want, func(context.Context) (bool, string) {
		got := n.runs()
		return got == want, got
	}))
}

// TestAnAgentThatIsKilledAtAStep kills the agent at every step of both remedies, as the journal has them. The end is the same as without.
func TestAnAgentThatIsKilledAtAStep(t *testing.T) {
	t.Parallel()
	for remedy, test := range map[string]struct {
		breakIt string
		steps   []string
	}{
		"restart kubelet.service": {"systemctl kill -s KILL kubelet", []string{"reset-failed", "start", "stable"}},
		"bootstrap":               {removeUnit, []string{"command", "kubelet"}},
	} {
		t.Run(strings.Fields(remedy)[0], func(t *testing.T) {
			t.Parallel()
			h := loneNode(t, strings.Fields(remedy)[0])
			installCommand(t, h, awaitGo)
			lab.Must(t, h.WriteFile(t.Context(), "/etc/systemd/system/"+agentUnit+".d/10-soon.conf", []byte("[Service]\nRestartSec=100ms\n"), 0o644))
			n := installAgent(t, h, withCommand(nimble()))
			shoot := startKiller(t, h)
			points := []string{"begun"}
			for _, step := range test.steps {
				points = append(points, step+" started", step+" done")
			}
			for _, point := range points {
				// What follows a step at once may be written before anybody can look; each step as such must be hit.
				must := strings.HasSuffix(point, "started")
				hit := n.shotAt(shoot, point, remedy, test.breakIt)
				for try := 1; must && !hit && try < 3; try++ {
					hit = n.shotAt(shoot, point, remedy, test.breakIt)
				}
				if must && !hit {
					t.Errorf("the agent was never killed at %q", point)
				}
			}
		})
	}
}

// shotAt breaks the node and kills the agent at a point of the remedy, and reports whether that was hit.
func (n node) shotAt(shoot func(order, func()) shot, point, remedy, breakIt string) bool {
	n.t.Helper()
	n.waitView("nothing is to be done", idle)
	done := len(n.remedies())
	n.MustExec(n.t, "sh", "-ec", "rm -f "+runsPath+"; touch "+goFile)
	pid, err := strconv.Atoi(strings.TrimSpace(n.MustExec(n.t, "systemctl", "show", "-P", "MainPID", agentUnit)))
	lab.Must(n.t, err)
	s := shoot(order{pid, point}, func() { n.MustExec(n.t, "sh", "-ec", breakIt) })
	if s.Err != "" {
		n.t.Fatalf("%s: %s; saw %v", point, s.Err, s.Saw)
	}
	n.waitView(point+": normal life", func(v *agent.View) bool { return idle(v) && len(n.remedies()) > done })
	got := n.remedies()[done:]
	n.t.Logf("%s: killed %v after %v; then %v; command: %s", point, s.Killed, s.Saw, got, n.runs())
	if want := []string{remedy + " begun", remedy + " succeeded"}; !slices.Equal(got, want) {
		n.t.Errorf("%s: got the remedies %v, want %v as without the kill", point, got, want)
	}
	if remedy == "bootstrap" && n.runs() != "begin end" {
		n.t.Errorf("%s: the command ran like this: %s, want once", point, n.runs())
	}
	n.MustExec(n.t, "systemctl", "is-active", "kubelet")
	return s.Killed
}

// startKiller starts a killer on a host. What it returns gives an order, lets the test act, and returns what came of it.
func startKiller(t testing.TB, h *lab.Host) func(order, func()) shot {
	t.Helper()
	cmd := h.Self(t.Context())
	cmd.Env = append(cmd.Env, roleVariable+"=killer")
	ready, err := cmd.StderrPipe()
	lab.Must(t, err)
	in, out := lab.Converse(t, cmd)
	orders, answers, said := json.NewEncoder(in), json.NewDecoder(out), bufio.NewScanner(ready)
	return func(o order, act func()) (s shot) {
		lab.Must(t, orders.Encode(o))
		if !said.Scan() || said.Text() != "ready" {
			t.Fatalf("the killer said %q", said.Text())
		}
		act()
		if err := answers.Decode(&s); err != nil {
			t.Fatalf("the killer is gone: %v", err)
		}
		return s
	}
}
