//go:build lab

package states

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/lab"
)

// inside is a Systemd that lives in a host.
type inside struct {
	*lab.Host
	t       *testing.T
	ask     func(request) line
	mu      sync.Mutex
	changes []line
}

const sleeper = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"

// startInside boots a host with the units "sleeper", which runs, and "broken", whose program does not exist, and watches them, an alias
// of the first, and a unit that is absent. It does so as root, over systemd's own socket, or as another user over the bus.
func startInside(t *testing.T, name string, user int) *inside {
	t.Helper()
	lab.Require(t)
	h := lab.StartHost(t, lab.HostOptions{Name: name})
	lab.Must(t, h.WriteFile(t.Context(), "/etc/systemd/system/sleeper.service", []byte(sleeper), 0o644))
	lab.Must(t, h.WriteFile(t.Context(), "/etc/systemd/system/broken.service", []byte("[Service]\nExecStart=/nowhere/broken\n"), 0o644))
	h.MustExec(t, "ln", "-s", "sleeper.service", "/etc/systemd/system/alias.service")
	h.MustExec(t, "systemctl", "daemon-reload")
	h.MustExec(t, "systemctl", "start", "sleeper")

	self := h.Self(t.Context(), "sleeper.service", "alias.service", "broken.service", "absent.service")
	if user != 0 {
		args := self.Args[len(self.Args)-5:]
		self = h.Command(t.Context(), append([]string{"setpriv", "--reuid", fmt.Sprint(user), "--regid", fmt.Sprint(user), "--clear-groups"}, args...)...)
	}
	self.Env = append(self.Env, roleVariable+"=systemd")
	self.Stderr = os.Stderr
	in, err := self.StdinPipe()
	lab.Must(t, err)
	out, err := self.StdoutPipe()
	lab.Must(t, err)
	lab.Must(t, self.Start())
	s := &inside{Host: h, t: t}
	answers, read := make(chan line), make(chan struct{})
	go func() {
		defer close(read)
		defer close(answers)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var l line
			if json.Unmarshal(lines.Bytes(), &l) != nil { // the first, with its pid
				continue
			}
			if l.Answer {
				answers <- l
				continue
			}
			s.mu.Lock()
			s.changes = append(s.changes, l)
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = in.Close()
		<-read
		_ = self.Wait()
	})
	s.ask = func(r request) line {
		t.Helper()
		lab.Must(t, json.NewEncoder(in).Encode(r))
		a, ok := <-answers
		if !ok {
			t.Fatal("the Systemd inside the host is gone")
		}
		return a
	}
	return s
}

func (s *inside) heard() []line {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// do does something to the host and waits until the unit was heard to have changed and looked as wanted.
func (s *inside) do(what, unit string, want func(observe.Unit) bool, argv ...string) observe.Unit {
	s.t.Helper()
	from := len(s.heard())
	if len(argv) > 0 {
		s.MustExec(s.t, argv...)
	}
	return s.see(what, from, unit, want)
}

func (s *inside) see(what string, from int, unit string, want func(observe.Unit) bool) observe.Unit {
	s.t.Helper()
	var change line
	eventually(s.t, func() bool {
		var ok bool
		change, ok = last(s.heard(), from, unit)
		return ok && want(change.Unit)
	}, func() string {
		return fmt.Sprintf("after %s: heard %+v, last %+v", what, s.heard()[from:], change.Unit)
	})
	return change.Unit
}

// mustDo asks for something that should succeed.
func (s *inside) mustDo(do, name string) line {
	s.t.Helper()
	a := s.ask(request{Do: do, Name: name})
	if a.Error != "" {
		s.t.Fatalf("%s %s: got error %s", do, name, a.Error)
	}
	return a
}

func is(active string) func(observe.Unit) bool {
	return func(u observe.Unit) bool { return u.ActiveState == active && u.Job == "" }
}

func anyhow(observe.Unit) bool { return true }

func TestWatchOnARealHost(t *testing.T) {
	for who, user := range map[string]int{"as root": 0, "as another user": 65534} {
		t.Run(who, func(t *testing.T) {
			s := startInside(t, "watch", user)
			all := []string{"sleeper.service", "alias.service", "broken.service", "absent.service"}
			for _, unit := range all {
				s.see("the start, without a change", 0, unit, anyhow)
			}
			was := s.do("a restart", "alias.service", is("active"), "systemctl", "restart", "sleeper")
			killed := s.do("SIGKILL", "sleeper.service", is("failed"), "kill", "-KILL", fmt.Sprint(was.MainPID))
			if killed.Result != "signal" {
				t.Errorf("after SIGKILL: got result %q", killed.Result)
			}
			for _, disturb := range [][]string{
				{"true"}, {"systemctl", "daemon-reload"}, {"systemctl", "daemon-reexec"}, {"systemctl", "restart", "dbus"},
			} {
				from := len(s.heard())
				s.MustExec(t, disturb...)
				if disturb[0] != "true" && (user != 0 || disturb[1] != "restart") {
					for _, unit := range all {
						s.see(strings.Join(disturb, " "), from, unit, anyhow)
					}
				}
				s.do("a start after "+disturb[len(disturb)-1], "sleeper.service", is("active"), "systemctl", "start", "sleeper")
				s.do("a stop after "+disturb[len(disturb)-1], "sleeper.service", is("inactive"), "systemctl", "stop", "sleeper")
				s.do("a start that fails", "broken.service", is("failed"), "sh", "-c", "systemctl start broken; until systemctl is-failed broken; do sleep 0.1; done")
				s.do("a reset", "broken.service", is("inactive"), "systemctl", "reset-failed", "broken")
			}
			// A unit that comes and goes.
			lab.Must(t, s.WriteFile(t.Context(), "/etc/systemd/system/absent.service", []byte(sleeper), 0o644))
			s.do("its file came", "absent.service", func(u observe.Unit) bool { return u.LoadState == "loaded" }, "systemctl", "daemon-reload")
			s.do("its start", "absent.service", is("active"), "systemctl", "start", "absent")
			s.do("its stop", "absent.service", is("inactive"), "systemctl", "stop", "absent")
			s.MustExec(t, "rm", "/etc/systemd/system/absent.service")
			s.do("its file went", "absent.service", func(u observe.Unit) bool { return u.LoadState == "not-found" }, "systemctl", "daemon-reload")
			// Others' comings and goings are no news; a change behind them is the fence by which we know that they were heard of.
			s.do("the fence before", "sleeper.service", is("active"), "systemctl", "start", "sleeper")
			before := s.ask(request{Do: "Count"})
			from := len(s.heard())
			s.MustExec(t, "sh", "-c", "for i in $(seq 30); do systemd-run --quiet --wait true; systemctl status absent; done; true")
			s.do("the fence behind", "sleeper.service", is("inactive"), "systemctl", "stop", "sleeper")
			for _, c := range s.heard()[from:] {
				if c.Changed != "sleeper.service" && c.Changed != "alias.service" {
					t.Errorf("got a change of %+v, which nobody touched", c)
				}
			}
			var after line
			eventually(t, func() bool {
				after = s.ask(request{Do: "Count"})
				return after.Goroutines <= before.Goroutines && after.Files <= before.Files
			}, func() string {
				return fmt.Sprintf("got %d goroutines and %d files, want no more than %d and %d as before", after.Goroutines, after.Files, before.Goroutines, before.Files)
			})
		})
	}
}

func TestActsOnARealHost(t *testing.T) {
	s := startInside(t, "act", 0)
	if got := s.mustDo("State", "").State; got != "running" && got != "degraded" {
		t.Errorf("got state %q", got)
	}
	first := s.see("the start, without a change", 0, "sleeper.service", is("active"))
	s.mustDo("Start", "sleeper.service")
	from := len(s.heard())
	s.mustDo("Restart", "sleeper.service")
	s.see("a restart", from, "sleeper.service", func(u observe.Unit) bool { return is("active")(u) && u.MainPID != first.MainPID })
	s.do("a stop", "sleeper.service", is("inactive"), "systemctl", "stop", "sleeper")
	s.mustDo("Start", "alias.service")
	s.see("a start by its alias", from, "sleeper.service", is("active"))

	from = len(s.heard())
	s.mustDo("Start", "broken.service") // it is queued, that is all we know
	s.see("a start that fails", from, "broken.service", is("failed"))
	if got := s.mustDo("State", "").State; got != "degraded" {
		t.Errorf("with a failed unit: got state %q", got)
	}
	s.mustDo("ResetFailed", "broken.service")
	s.see("a reset", from, "broken.service", is("inactive"))
	for _, unit := range []string{"broken.service", "sleeper.service", "absent.service"} {
		s.mustDo("ResetFailed", unit)
	}
	s.MustExec(t, "ln", "-s", "/dev/null", "/etc/systemd/system/masked.service")
	lab.Must(t, s.WriteFile(t.Context(), "/etc/systemd/system/bad.service", []byte("[Service]\nType=exec\n"), 0o644))
	for _, tc := range []struct{ do, name, want string }{
		{"Start", "absent.service", "start unit absent.service: Unit absent.service not found. (is it installed? "},
		{"Restart", "absent.service", "restart unit absent.service: Unit absent.service not found. (is it installed? "},
		{"Start", "masked.service", "start unit masked.service: Unit masked.service is masked. (someone masked it on purpose; "},
		{"Start", "bad.service", "start unit bad.service: Unit bad.service has a bad unit file setting. (mend its file, then"},
	} {
		if got := s.ask(request{Do: tc.do, Name: tc.name}); !strings.HasPrefix(got.Error, tc.want) {
			t.Errorf("%s %s: got error %q, want %q", tc.do, tc.name, got.Error, tc.want)
		}
	}
	// An act is safe whatever happened to systemd in between.
	for _, disturb := range [][]string{{"daemon-reexec"}, {"restart", "dbus"}, {"daemon-reload"}} {
		s.MustExec(t, append([]string{"systemctl"}, disturb...)...)
		from := len(s.heard())
		s.mustDo("Restart", "sleeper.service")
		s.see(disturb[0], from, "sleeper.service", is("active"))
	}
}

func TestActsAsAnotherUserAreRefused(t *testing.T) {
	s := startInside(t, "refuse", 65534)
	for _, r := range []request{
		{Do: "Start", Name: "sleeper.service"}, {Do: "Restart", Name: "sleeper.service"}, {Do: "ResetFailed", Name: "sleeper.service"},
		{Do: "StartTransient", Transient: host.Transient{Name: "t.service", Command: []string{"/bin/true"}}},
	} {
		if got := s.ask(r); !strings.Contains(got.Error, "(run as root)") {
			t.Errorf("%s: got error %q, want a hint", r.Do, got.Error)
		}
	}
	if got := s.mustDo("State", "").State; got == "" {
		t.Error("got no state, which everyone may ask for")
	}
}

// run runs a transient unit to its end.
func (s *inside) run(tr host.Transient) host.UnitRun {
	s.t.Helper()
	if a := s.ask(request{Do: "StartTransient", Transient: tr}); a.Error != "" {
		s.t.Fatalf("start %+v: got error %s", tr, a.Error)
	}
	var r host.UnitRun
	eventually(s.t, func() bool {
		r = s.mustDo("Run", tr.Name).Run
		return !r.Running
	}, func() string { return fmt.Sprintf("%s still runs: %+v", tr.Name, r) })
	return r
}

func TestTransientUnitsOnARealHost(t *testing.T) {
	s := startInside(t, "transient", 0)
	sh := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	for _, tc := range []struct {
		name string
		t    host.Transient
		want host.UnitRun
	}{
		{"given a command that succeeds", host.Transient{Command: sh("exit 0")}, host.UnitRun{Result: "success"}},
		{"given one that fails", host.Transient{Command: sh("exit 7")}, host.UnitRun{Result: "exit-code", ExitStatus: 7}},
		{"given one that a signal ends", host.Transient{Command: sh("kill -KILL $$")}, host.UnitRun{Result: "signal", ExitStatus: -1, Signal: "SIGKILL"}},
		{"given one that takes too long, with children", host.Transient{Command: sh("sleep 98761 & sleep 98761"), Timeout: 300 * time.Millisecond},
			host.UnitRun{Result: "timeout", ExitStatus: -1, Signal: "SIGTERM"}},
		{"given one that does not exist", host.Transient{Command: []string{"/nowhere/program"}}, host.UnitRun{Result: "exit-code", ExitStatus: 203}},
		{"given a limit that it keeps", host.Transient{Command: sh("exit 0"), Timeout: time.Hour}, host.UnitRun{Result: "success"}},
		{"given environment and arguments, which are not expanded",
			host.Transient{Command: []string{"/bin/sh", "-c", `test "$A" = "x y" && test "$1" = '$A ${A} %n $$' && test "$2" = ""`, "sh", "$A ${A} %n $$", ""},
				Environment: []string{"A=x y", "B=%n"}, Description: "a test of 100% $A"},
			host.UnitRun{Result: "success"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.t = t
			tc.t.Name, tc.want.Exists = "tr.service", true
			if got := s.mustDo("Run", tc.t.Name).Run; got != (host.UnitRun{}) {
				t.Errorf("before: got %+v", got)
			}
			got := s.run(tc.t)
			if got.Started.IsZero() || got.Ended.Before(got.Started) {
				t.Errorf("got started %v, ended %v", got.Started, got.Ended)
			}
			got.Started, got.Ended = time.Time{}, time.Time{}
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if out, err := s.Exec(t.Context(), "pgrep", "-f", "sleep 98761"); err != nil || out.Code != 1 {
				t.Errorf("got processes %q, %v, want none left", out.Stdout, err)
			}
			s.MustExec(t, "systemctl", "daemon-reload") // the result survives it, and systemd can read back what it was told
			if state := s.MustExec(t, "systemctl", "show", "--property=LoadState", tc.t.Name); strings.TrimSpace(state) != "LoadState=loaded" {
				t.Errorf("after daemon-reload: got %s", state)
			}
			if again := s.mustDo("Run", tc.t.Name).Run; again.Result != tc.want.Result || again.ExitStatus != tc.want.ExitStatus {
				t.Errorf("after daemon-reload: got %+v, want %+v", again, tc.want)
			}
			if a := s.ask(request{Do: "StartTransient", Transient: tc.t}); !a.Exists {
				t.Errorf("started again: got error %q, want ErrUnitExists", a.Error)
			}
			for range 2 {
				s.mustDo("Forget", tc.t.Name)
				if got := s.mustDo("Run", tc.t.Name).Run; got != (host.UnitRun{}) {
					t.Errorf("when forgotten: got %+v", got)
				}
			}
		})
	}
}

func TestTransientUnitsThatRunOnARealHost(t *testing.T) {
	s := startInside(t, "runs", 0)
	const name, output = "tr.service", "/var/tmp/out put"
	talks := host.Transient{Name: name, Command: []string{"/bin/sh", "-c", "echo out; echo err >&2"}, OutputPath: output}
	for _, want := range []string{"out\nerr\n", "out\nerr\nout\nerr\n"} {
		if got := s.run(talks); !got.Succeeded() {
			t.Errorf("got %+v, want a success", got)
		}
		if got, err := s.ReadFile(output); err != nil || string(got) != want {
			t.Errorf("output: got %q, %v, want %q", got, err, want)
		}
		s.mustDo("Forget", name)
	}
	if got := s.MustExec(t, "stat", "-c", "%a %u", output); got != "600 0\n" {
		t.Errorf("mode and owner of the output: got %q", got)
	}
	for _, tc := range []struct {
		t    host.Transient
		want string
	}{
		{host.Transient{Name: name, Command: talks.Command, OutputPath: "/nowhere/out"}, "make the file for its output: open /nowhere/out: no such file"},
		{host.Transient{Name: "sleeper.service", Command: talks.Command}, host.ErrUnitExists.Error()},
	} {
		if got := s.ask(request{Do: "StartTransient", Transient: tc.t}); !strings.Contains(got.Error, tc.want) {
			t.Errorf("got error %q, want %q", got.Error, tc.want)
		}
	}
	if got := s.ask(request{Do: "Forget", Name: "sleeper.service"}); !strings.Contains(got.Error, "it has a file of its own") {
		t.Errorf("forget a unit that is not transient: got error %q", got.Error)
	}

	// One that does not want to end is killed, and forgotten when it is gone.
	stubborn := host.Transient{Name: name, Command: []string{"/bin/sh", "-c", "trap '' TERM; echo $$ > /run/pid; while :; do sleep 98762; done"}}
	if a := s.ask(request{Do: "StartTransient", Transient: stubborn}); a.Error != "" {
		t.Fatal(a.Error)
	}
	if got := s.mustDo("Run", name).Run; !got.Exists || !got.Running || got.Result != "" || got.Succeeded() {
		t.Errorf("while it runs: got %+v", got)
	}
	s.MustExec(t, "systemctl", "daemon-reexec")
	if got := s.mustDo("Run", name).Run; !got.Running {
		t.Errorf("after daemon-reexec: got %+v, want that it runs", got)
	}
	eventually(t, func() bool { _, err := s.ReadFile("/run/pid"); return err == nil }, func() string { return "it did not come to its trap" })
	s.mustDo("Forget", name)
	if got := s.mustDo("Run", name).Run; got != (host.UnitRun{}) {
		t.Errorf("when forgotten: got %+v", got)
	}
	if out, err := s.Exec(t.Context(), "pgrep", "-f", "sleep 98762"); err != nil || out.Code != 1 {
		t.Errorf("got processes %q, %v, want none left", out.Stdout, err)
	}
}
