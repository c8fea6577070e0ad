//go:build lab

package remedy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/test/lab"
)

const small = "small.service"

// labHost is a host with a small unit, and a command that makes a kubelet of a kind.
func labHost(t *testing.T, name string) *lab.Host {
	t.Helper()
	lab.Require(t)
	h := lab.StartHost(t, lab.HostOptions{Name: name})
	service(t, h, small, "[Service]\nExecStart=/bin/sleep infinity\n")
	h.MustExec(t, "systemctl", "daemon-reload")
	return h
}

func service(t *testing.T, h *lab.Host, name, text string) {
	t.Helper()
	lab.Must(t, h.WriteFile(t.Context(), "/usr/lib/systemd/system/"+name, []byte(text), 0o644))
}

// join makes the bootstrap's command: it notes that it was run, and then does what it is to do.
func join(t *testing.T, h *lab.Host, script string) {
	t.Helper()
	lab.Must(t, h.WriteFile(t.Context(), labCommand, []byte("#!/bin/sh\necho run >>/var/lib/joined\n"+script), 0o755))
}

const makeKubelet = `printf '[Service]\nExecStart=/bin/sleep infinity\n' >/etc/systemd/system/kubelet.service
systemctl daemon-reload
systemctl start kubelet
echo "joined with $1"
`

// agent runs an agent in the host until its end. It reports whether that was not by a signal.
func agent(t *testing.T, h *lab.Host, role string, env ...string) (got report, ended bool) {
	t.Helper()
	cmd := h.Self(t.Context())
	var out, stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(append(cmd.Env, roleVariable+"="+role), env...), &out, &stderr
	err := cmd.Run()
	if err != nil && out.Len() == 0 && stderr.Len() == 0 {
		return report{}, false
	}
	if err != nil || json.Unmarshal(out.Bytes(), &got) != nil {
		t.Fatalf("agent %s: %v: %s%s", role, err, out.String(), stderr.String())
	}
	return got, true
}

// wantOutcome runs an agent that must get there.
func wantOutcome(t *testing.T, h *lab.Host, role, outcome, message string, env ...string) report {
	t.Helper()
	got, ended := agent(t, h, role, env...)
	if !ended || got.Outcome.Outcome != outcome || got.Error != "" || !strings.Contains(got.Outcome.Message, message) {
		t.Errorf("%s: got %+v, want outcome %s with %q", role, got, outcome, message)
	}
	return got
}

func show(t *testing.T, h *lab.Host, unit, property string) string {
	t.Helper()
	return strings.TrimSpace(h.MustExec(t, "systemctl", "show", "--value", "-p", property, unit))
}

// crash has a unit fail, by a signal that nobody asked for.
func crash(t *testing.T, h *lab.Host, unit string) {
	t.Helper()
	h.MustExec(t, "systemctl", "start", unit)
	h.MustExec(t, "systemctl", "kill", "-s", "KILL", unit)
	waitState(t, h, unit, "failed")
}

func waitState(t *testing.T, h *lab.Host, unit, state string) {
	t.Helper()
	lab.Must(t, lab.WaitFor(t.Context(), 20*time.Second, unit+" "+state, func(ctx context.Context) (bool, string) {
		got, err := h.Exec(ctx, "systemctl", "show", "--value", "-p", "ActiveState", unit)
		return err == nil && strings.TrimSpace(got.Stdout) == state, fmt.Sprint(got, err)
	}))
}

func TestRestartOnARealHost(t *testing.T) {
	h := labHost(t, "restart")

	crash(t, h, small)
	wantOutcome(t, h, "restart "+small, Succeeded, "stayed up for 1s")
	pid := show(t, h, small, "MainPID")
	wantOutcome(t, h, "restart "+small, Succeeded, "stayed up") // it ran when that was decided, so that it was frozen
	if now := show(t, h, small, "MainPID"); now == pid || now == "0" {
		t.Errorf("got process %s as before, want another", now)
	}
	h.MustExec(t, "systemctl", "stop", small)
	wantOutcome(t, h, "restart "+small, Succeeded, "stayed up") // stopped before the decision

	// A unit that systemd has given up.
	service(t, h, "limit.service", "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=2\n[Service]\nExecStart=/bin/sh -c 'test -e /run/mended && exec sleep infinity'\nRestart=always\nRestartSec=0\n")
	h.MustExec(t, "systemctl", "daemon-reload")
	if out, err := h.Exec(t.Context(), "systemctl", "start", "limit.service"); err != nil {
		t.Fatal(out, err)
	}
	waitState(t, h, "limit.service", "failed")
	wantOutcome(t, h, "restart limit.service", Failed, "step stable: limit.service failed")
	waitState(t, h, "limit.service", "failed")
	lab.Must(t, h.WriteFile(t.Context(), "/run/mended", nil, 0o644))
	wantOutcome(t, h, "restart limit.service", Succeeded, "stayed up")

	// One that waits to be restarted for longer than anybody waits for it.
	service(t, h, "loop.service", "[Service]\nExecStart=/bin/sh -c 'test -e /run/ended || exit 1; exec sleep infinity'\nRestart=always\nRestartSec=1h\n")
	h.MustExec(t, "systemctl", "daemon-reload")
	h.MustExec(t, "systemctl", "start", "loop.service")
	waitState(t, h, "loop.service", "activating")
	lab.Must(t, h.WriteFile(t.Context(), "/run/ended", nil, 0o644))
	wantOutcome(t, h, "restart loop.service", Succeeded, "stayed up")

	crash(t, h, small)
	h.MustExec(t, "systemctl", "mask", small)
	wantOutcome(t, h, "restart "+small, Superseded, "masked")
	h.MustExec(t, "systemctl", "unmask", small)
	wantOutcome(t, h, "restart none.service", Superseded, "no longer exists")
}

func TestBootstrapOnARealHost(t *testing.T) {
	h := labHost(t, "bootstrap")
	for _, c := range []struct{ name, script, outcome, message string }{
		{"fails", "echo no such cluster; exit 3\n", Failed, labCommand + " failed with status 3 (exit-code)"},
		{"hangs", "trap '' TERM; sleep 1000\n", Failed, labCommand + " did not end within 3s"},
		{"is killed", "kill -9 $$\n", Failed, "was ended by SIGKILL"},
		{"brings no kubelet", "", Failed, "the kubelet did not run in time: kubelet.service does not exist"},
		{"works", makeKubelet, Succeeded, "the command succeeded, and kubelet.service is active"},
	} {
		join(t, h, c.script)
		wantOutcome(t, h, "bootstrap", c.outcome, c.message, timeoutVariable+"=3s")
		noLeftovers(t, h, c.name)
	}
	logs := strings.Fields(h.MustExec(t, "sh", "-c", "ls -t "+labFolder+"/bootstrap-*.log"))
	if len(logs) != 5 {
		t.Fatalf("got outputs %q, want 5", logs)
	}
	if got := h.MustExec(t, "cat", logs[0]); got != "joined with s3cret\n" {
		t.Errorf("got output %q", got)
	}
	if got := h.MustExec(t, "stat", "-c", "%a", labFolder, logs[0]); got != "700\n600\n" {
		t.Errorf("got modes %q, want them for root only", got)
	}
	h.MustExec(t, "rm", labCommand)
	wantOutcome(t, h, "bootstrap", Failed, labCommand+" could not be executed")
	noLeftovers(t, h, "is missing")
	if n := strings.Count(h.MustExec(t, "sh", "-c", "ls "+labFolder+"/bootstrap-*.log"), "\n"); n > 5 {
		t.Errorf("got %d outputs, want at most 5", n)
	}
}

func noLeftovers(t *testing.T, h *lab.Host, what string) {
	t.Helper()
	if got := h.MustExec(t, "systemctl", "list-units", "--all", "--no-legend", "--plain", "aks-flex-node-bootstrap-*"); got != "" {
		t.Errorf("%s: units are left: %s", what, got)
	}
}

func TestTheCommandOutlivesTheAgentOnARealHost(t *testing.T) {
	h := labHost(t, "outlive")
	for _, c := range []struct {
		name  string
		since func()
		// outcome is that of the agent that goes on.
		outcome, message string
	}{
		{"and goes on", func() {}, Succeeded, "the command succeeded"},
		{"and ends", func() {
			lab.Must(t, h.WriteFile(t.Context(), "/run/go", nil, 0o644))
			lab.Must(t, lab.WaitFor(t.Context(), 20*time.Second, "the command's end", func(ctx context.Context) (bool, string) {
				got, err := h.Exec(ctx, "systemctl", "list-units", "--all", "--no-legend", "--plain", "aks-flex-node-bootstrap-*")
				return err == nil && strings.Contains(got.Stdout, "exited"), fmt.Sprint(got, err)
			}))
		}, Succeeded, "the command succeeded"},
		{"and the host goes down", func() {
			lab.Must(t, h.PowerCut(t.Context()))
			lab.Must(t, h.Boot(t.Context()))
		}, Failed, "the host went down"},
	} {
		h.MustExec(t, "rm", "-f", "/var/lib/joined", "/run/go")
		join(t, h, "until test -e /run/go; do sleep 0.1; done\n"+makeKubelet)
		ctx, kill := context.WithCancel(t.Context())
		cmd := h.Self(ctx)
		cmd.Env = append(cmd.Env, roleVariable+"=bootstrap")
		lab.Must(t, cmd.Start())
		lab.Must(t, lab.WaitFor(t.Context(), 20*time.Second, "the command", func(context.Context) (bool, string) {
			_, err := h.ReadFile("/var/lib/joined")
			return err == nil, fmt.Sprint(err)
		}))
		kill()
		_ = cmd.Wait() // killed
		c.since()
		if _, err := h.ReadFile("/run/go"); err != nil {
			time.AfterFunc(2*time.Second, func() { _ = h.WriteFile(t.Context(), "/run/go", nil, 0o644) })
		}
		if got := wantOutcome(t, h, "bootstrap", c.outcome, c.message); !got.Resumed {
			t.Errorf("%s: got %+v, want it resumed", c.name, got)
		}
		if got := h.MustExec(t, "cat", "/var/lib/joined"); got != "run\n" {
			t.Errorf("%s: the command ran more than once: %q", c.name, got)
		}
		noLeftovers(t, h, c.name)
	}
}

func TestAnAgentKilledAnywhereOnARealHost(t *testing.T) {
	h := labHost(t, "killed")
	for _, role := range []string{"restart " + small, "bootstrap"} {
		points := 0
		for n, killed := 1, true; killed; n++ {
			if n > 60 {
				t.Fatalf("%s: killed at %d points, and no end", role, n)
			}
			h.MustExec(t, "sh", "-c", "rm -rf "+labFolder+" /var/lib/joined; systemctl stop kubelet; rm -f /etc/systemd/system/kubelet.service; systemctl daemon-reload")
			join(t, h, makeKubelet)
			crash(t, h, small)
			got, ended := agent(t, h, role, fmt.Sprint(killVariable, "=", n))
			if killed = !ended; killed {
				got, ended = agent(t, h, role)
				if !ended {
					t.Fatalf("%s: the second agent was killed too", role)
				}
				points++
			}
			unit := small
			if role == "bootstrap" {
				unit = "kubelet.service"
				if runs := h.MustExec(t, "cat", "/var/lib/joined"); runs != "run\n" {
					t.Errorf("%s, killed at point %d: the command ran more than once: %q", role, n, runs)
				}
				noLeftovers(t, h, role)
			}
			if state := show(t, h, unit, "ActiveState"); state != "active" || got.Outcome.Outcome != Succeeded || got.Error != "" {
				t.Errorf("%s, killed at point %d: got %+v, and %s is %s", role, n, got, unit, state)
			}
		}
		if points < 10 {
			t.Errorf("%s: killed at %d points, want more", role, points)
		}
	}
}
