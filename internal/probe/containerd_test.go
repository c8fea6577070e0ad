package probe

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aks-flex-node/agent/internal/observe"
)

func TestWhatARuntimesAnswerMeans(t *testing.T) {
	file := observe.Program{Name: "containerd", Version: "1.7.20", FileVersion: "1.7.20", Path: "/usr/bin/containerd"}
	replaced := file
	replaced.FileVersion, replaced.RestartPending = "2.1.0", true
	for _, test := range []struct {
		name    string
		file    observe.Program
		answer  criAnswer
		health  observe.Health
		reason  string
		version string
		words   []string
	}{
		{"ready", file, criAnswer{"containerd", "v1.7.20", true, true, ""}, observe.Healthy, "RuntimeReady", "1.7.20", nil},
		{"the daemon's version counts, not the file's", file, criAnswer{"containerd", "v1.6.9~ds1", true, true, ""}, observe.Healthy, "RuntimeReady", "1.6.9~ds1", nil},
		{"another runtime", observe.Program{}, criAnswer{"cri-o", "1.30.1", true, true, ""}, observe.Healthy, "RuntimeReady", "1.30.1", []string{"cri-o"}},
		{"not ready", file, criAnswer{"containerd", "1.7.20", false, true, "shim is broken"}, observe.Unhealthy, "RuntimeNotReady", "1.7.20", []string{"shim is broken"}},
		{"no pod network: that is not the runtime's fault", file, criAnswer{"containerd", "1.7.20", true, false, "cni plugin not initialized"}, observe.Healthy, "NetworkNotReady", "1.7.20", []string{"cni plugin"}},
		{"its file was replaced", replaced, criAnswer{"containerd", "1.7.20", true, true, ""}, observe.Healthy, "RestartPending", "1.7.20", []string{"2.1.0", "/usr/bin/containerd"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := judgeRuntime(observe.Runtime{Program: test.file, Socket: "/s"}, test.answer)
			wantSeen(t, got, test.health, test.reason, append(test.words, test.version)...)
			v := got.Value
			if !v.Answers || v.Version != test.version || v.RuntimeReady != test.answer.runtimeReady || v.NetworkReady != test.answer.networkReady || v.Socket != "/s" {
				t.Errorf("got %+v, want what the daemon said", v)
			}
		})
	}
}

func TestWhatARuntimesSilenceMeans(t *testing.T) {
	dial := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", errno)}
	}
	missing := &fs.PathError{Op: "stat", Path: "/s", Err: syscall.ENOENT}
	late := status.Error(codes.DeadlineExceeded, "late")
	active, stopped, none := running("containerd.service", 0), observe.Unit{LoadState: "loaded", ActiveState: "inactive"}, observe.Unit{LoadState: "not-found"}
	installed := observe.Runtime{Socket: "/s", Program: observe.Program{Path: "/usr/bin/containerd", Version: "1.7.20"}}
	nowhere := observe.Runtime{Socket: "/s"}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name   string
		ctx    context.Context
		v      observe.Runtime
		unit   observe.Unit
		known  bool // the units are
		err    error
		waited time.Duration
		health observe.Health
		reason string
	}{
		{"no file, no unit, no socket", t.Context(), nowhere, none, true, missing, 0, observe.Unhealthy, observe.ReasonNotInstalled},
		{"no file, no socket, and the unit can't be asked about", t.Context(), nowhere, observe.Unit{}, false, missing, 0, observe.Unknown, observe.ReasonNotInstalled},
		{"a unit but no file", t.Context(), nowhere, stopped, true, missing, 0, observe.Unhealthy, "NotRunning"},
		{"the unit runs and has no socket", t.Context(), installed, active, true, missing, 0, observe.Unhealthy, "SocketMissing"},
		{"the unit is stopped", t.Context(), installed, stopped, true, missing, 0, observe.Unhealthy, "NotRunning"},
		{"installed without a unit", t.Context(), installed, none, true, missing, 0, observe.Unhealthy, "NotRunning"},
		{"installed, and the unit can't be asked about", t.Context(), installed, observe.Unit{}, false, missing, 0, observe.Unhealthy, "NotRunning"},
		{"nobody listens on the socket", t.Context(), installed, stopped, true, dial(syscall.ECONNREFUSED), 0, observe.Unhealthy, "NotRunning"},
		{"nobody listens though the unit runs", t.Context(), installed, active, true, dial(syscall.ECONNREFUSED), 0, observe.Unhealthy, "NotRunning"},
		{"this user may not ask", t.Context(), installed, active, true, dial(syscall.EACCES), 0, observe.Unknown, observe.ReasonPermissionDenied},
		{"silent for longer than patience", ended, installed, active, true, late, patience, observe.Unhealthy, "NotResponding"},
		{"silent, and there was no time to be patient", ended, installed, active, true, late, patience - 1, observe.Unknown, observe.ReasonTimeout},
		{"it speaks no CRI", t.Context(), installed, active, true, status.Error(codes.Unimplemented, "unknown service"), 0, observe.Unhealthy, "CRIDisabled"},
		{"too many wait for it already", t.Context(), installed, active, true, dial(syscall.EAGAIN), 0, observe.Unknown, "RuntimeUnavailable"},
		{"something else", t.Context(), installed, active, true, status.Error(codes.Internal, "odd"), 0, observe.Unknown, "RuntimeUnavailable"},
		{"what is missing is not the socket's fault when the time is up", ended, installed, active, true, missing, 2 * patience, observe.Unhealthy, "SocketMissing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := judgeSilence(test.ctx, test.v, test.unit, test.known, test.err, test.waited)
			wantSeen(t, got, test.health, test.reason)
			if got.Message == "" || got.Value != test.v {
				t.Errorf("got %+v, want a message and what could be told: %+v", got, test.v)
			}
		})
	}
}

func TestARuntimeThatIsReplacedWhileItRuns(t *testing.T) {
	s, dir := newSuite(t)
	path := putDaemon(t, filepath.Join(dir, "bin/containerd"), "containerd containerd.io 1.7.20 abc\n")
	pid, _ := startDaemon(t, path)
	hasUnits(s, units{containerd: running("containerd.service", pid, path)})
	serveCRI(t, s.settings.criSocket, &fakeRuntime{version: "v1.7.20", ready: true})
	got := s.lookAtContainerd(t.Context(), time.Now())
	wantSeen(t, got, observe.Healthy, "RuntimeReady", "1.7.20")

	putDaemon(t, path, "containerd containerd.io v2.1.0 abc\n")
	got = s.lookAtContainerd(t.Context(), time.Now())
	wantSeen(t, got, observe.Healthy, "RestartPending", "1.7.20", "2.1.0")
	if want := (observe.Program{Name: "containerd", Version: "1.7.20", FileVersion: "2.1.0", Path: path, RestartPending: true}); got.Value.Program != want {
		t.Errorf("got %+v, want %+v", got.Value.Program, want)
	}
}

func TestAMachineWithoutARuntime(t *testing.T) {
	s, _ := newSuite(t)
	wantSeen(t, s.lookAtContainerd(t.Context(), time.Now()), observe.Unknown, observe.ReasonNotInstalled)

	other, _ := newSuite(t)
	hasUnits(other, units{containerd: observe.Unit{Name: "containerd.service", LoadState: "not-found"}})
	wantSeen(t, other.lookAtContainerd(t.Context(), time.Now()), observe.Unhealthy, observe.ReasonNotInstalled)
}

func TestAStaleSocketIsNoRuntime(t *testing.T) {
	s, dir := newSuite(t)
	putDaemon(t, filepath.Join(dir, "bin/containerd"), "containerd containerd.io 1.7.20 abc\n")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.settings.criSocket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	got := s.lookAtContainerd(t.Context(), time.Now())
	wantSeen(t, got, observe.Unhealthy, "NotRunning", s.settings.criSocket)
	if got.Value.Version != "1.7.20" {
		t.Errorf("got %+v, want the version of the file", got.Value)
	}
}

func TestALowLevelRuntimeIsFoundWhereItIsUsed(t *testing.T) {
	const runc, crun = "echo runc version 1.1.12", "echo crun version 1.14.4"
	for _, test := range []struct {
		name   string
		put    map[string]string // scripts below the folder
		binary string            // BinaryName in containerd's configuration
		down   bool              // containerd is
		health observe.Health
		reason string
		want   observe.Program
		words  []string
	}{
		{"in PATH", map[string]string{"bin/runc": runc}, "", false, observe.Healthy, "VersionKnown", observe.Program{Name: "runc", Version: "1.1.12", Path: "bin/runc"}, nil},
		{"while containerd is down", map[string]string{"bin/runc": runc}, "", true, observe.Healthy, "VersionKnown", observe.Program{Name: "runc", Version: "1.1.12", Path: "bin/runc"}, nil},
		{"crun under runc's name", map[string]string{"bin/runc": crun}, "", false, observe.Healthy, "VersionKnown", observe.Program{Name: "crun", Version: "1.14.4", Path: "bin/runc"}, []string{"crun"}},
		{"another name", map[string]string{"bin/runc": runc, "bin/crun": crun}, "crun", false, observe.Healthy, "VersionKnown", observe.Program{Name: "crun", Version: "1.14.4", Path: "bin/crun"}, nil},
		{"another path", map[string]string{"bin/runc": runc, "opt/x": crun}, "$D/opt/x", false, observe.Healthy, "VersionKnown", observe.Program{Name: "crun", Version: "1.14.4", Path: "opt/x"}, nil},
		{"missing", nil, "", false, observe.Unhealthy, observe.ReasonNotInstalled, observe.Program{}, []string{"not in the PATH"}},
		{"another name, missing", map[string]string{"bin/runc": runc}, "crun", false, observe.Unhealthy, observe.ReasonNotInstalled, observe.Program{}, []string{"crun is not in the PATH"}},
		{"another path, missing", map[string]string{"bin/runc": runc}, "$D/opt/x", false, observe.Unhealthy, observe.ReasonNotInstalled, observe.Program{}, []string{"opt/x does not exist"}},
		{"it says no version", map[string]string{"bin/runc": "echo hello"}, "", false, observe.Unknown, "VersionNotUnderstood", observe.Program{Path: "bin/runc"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, dir := newSuite(t)
			for name, body := range test.put {
				putScript(t, filepath.Join(dir, name), body)
			}
			if !test.down {
				binary := withFolder([]string{test.binary}, dir)[0]
				serveCRI(t, s.settings.criSocket, &fakeRuntime{version: "v1.7.20", ready: true, config: runtimeConfig("runc", "io.containerd.runc.v2", fmt.Sprintf(`{"BinaryName":%q}`, binary))})
			}
			got := s.lookAtRunc(t.Context(), time.Now())
			wantSeen(t, got, test.health, test.reason, test.words...)
			if test.want.Path != "" {
				test.want.Path = filepath.Join(dir, test.want.Path)
			}
			test.want.FileVersion = test.want.Version
			if got.Value != test.want {
				t.Errorf("got %+v, want %+v", got.Value, test.want)
			}
		})
	}
}

// A restart of containerd must not look like another runtime.
func TestALowLevelRuntimeStaysTheSameWhileContainerdIsDown(t *testing.T) {
	s, dir := newSuite(t)
	putScript(t, filepath.Join(dir, "bin/runc"), "echo runc version 1.1.12")
	putScript(t, filepath.Join(dir, "bin/crun"), "echo crun version 1.14.4")
	config := runtimeConfig("runc", "io.containerd.runc.v2", `{"BinaryName":"crun"}`)
	stop := serveCRI(t, s.settings.criSocket, &fakeRuntime{version: "v1.7.20", ready: true, config: config})
	wantSeen(t, s.lookAtRunc(t.Context(), time.Now()), observe.Healthy, "VersionKnown", "crun 1.14.4")
	stop()
	wantSeen(t, s.lookAtRunc(t.Context(), time.Now()), observe.Healthy, "VersionKnown", "crun 1.14.4")
	if err := os.Remove(s.settings.criSocket); err != nil {
		t.Fatal(err)
	}
	wantSeen(t, s.lookAtRunc(t.Context(), time.Now()), observe.Healthy, "VersionKnown", "crun 1.14.4")

	serveCRI(t, s.settings.criSocket, &fakeRuntime{version: "v1.7.20", ready: true, config: runtimeConfig("kata", "io.containerd.kata.v2", "{}")})
	wantSeen(t, s.lookAtRunc(t.Context(), time.Now()), observe.Healthy, "VersionKnown", "runc 1.1.12") // it says what it uses, and that isn't crun
	s.settings.criSocket += ".other"
	wantSeen(t, s.lookAtRunc(t.Context(), time.Now()), observe.Healthy, "VersionKnown", "runc 1.1.12")
}

// containerd that hangs must not make the look at runc wait for it: that has its own way to an answer.
func TestALowLevelRuntimeIsFoundWhileContainerdHangs(t *testing.T) {
	s, dir := newSuite(t)
	putScript(t, filepath.Join(dir, "bin/runc"), "echo runc version 1.1.12")
	l, err := net.Listen("unix", s.settings.criSocket)
	if err != nil {
		t.Fatal(err)
	}
	serveConnections(t, l, silent)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	hangs := make(chan observe.Observation[observe.Runtime], 1)
	go func() { hangs <- s.lookAtContainerd(ctx, time.Now()) }()
	eventually(t, "the look at containerd waits for it", func() bool {
		s.cri.mu.Lock()
		defer s.cri.mu.Unlock()
		return s.cri.current != nil
	})
	wantSeen(t, s.lookAtRunc(ctx, time.Now()), observe.Healthy, "VersionKnown", "1.1.12")
	if ctx.Err() != nil {
		t.Error("the look at runc came back only when its time was up")
	}
	wantSeen(t, <-hangs, observe.Unhealthy, "NotResponding")
}
