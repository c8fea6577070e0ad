package probe

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
)

func lookKubelet(t *testing.T, s *Suite) observe.Observation[observe.Program] {
	t.Helper()
	return s.lookAtKubelet(t.Context(), time.Now())
}

func TestWhereAKubeletIsFound(t *testing.T) {
	const says = "Kubernetes v1.32.7\n"
	for _, test := range []struct {
		name  string
		put   []string // below the folder
		start []string // the unit's command
		want  string
	}{
		{"the unit says where", []string{"unit/kubelet", "config/kubelet", "bin/kubelet"}, []string{"unit/kubelet"}, "unit/kubelet"},
		{"the unit starts a wrapper: the config says where", []string{"unit/kubelet.sh", "config/kubelet", "bin/kubelet"}, []string{"unit/kubelet.sh"}, "config/kubelet"},
		{"the unit's file is gone", []string{"bin/kubelet"}, []string{"unit/kubelet"}, "bin/kubelet"},
		{"else in PATH", []string{"bin/kubelet"}, nil, "bin/kubelet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, dir := newSuite(t)
			for _, p := range test.put {
				putDaemon(t, filepath.Join(dir, p), says)
			}
			s.settings.kubeletPaths = []string{filepath.Join(dir, "config/kubelet")}
			u := running("kubelet.service", 0)
			for _, p := range test.start {
				u.ExecStart = append(u.ExecStart, filepath.Join(dir, p))
			}
			hasUnits(s, units{kubelet: u})
			got := lookKubelet(t, s)
			wantSeen(t, got, observe.Healthy, "VersionKnown", "1.32.7", test.want)
			if want := (observe.Program{Name: "kubelet", Version: "1.32.7", FileVersion: "1.32.7", Path: filepath.Join(dir, test.want)}); got.Value != want {
				t.Errorf("got %+v, want %+v", got.Value, want)
			}
		})
	}
}

func TestAMachineWithoutAKubelet(t *testing.T) {
	s, _ := newSuite(t)
	got := lookKubelet(t, s)
	wantSeen(t, got, observe.Unknown, observe.ReasonNotInstalled, "unit could not be asked about")

	other, _ := newSuite(t)
	hasUnits(other, units{kubelet: observe.Unit{Name: "kubelet.service", LoadState: "not-found"}})
	got = lookKubelet(t, other)
	wantSeen(t, got, observe.Unhealthy, observe.ReasonNotInstalled, "no kubelet on this machine")
}

func TestRootRunsNoScriptAsKubelet(t *testing.T) {
	s, dir := newSuite(t)
	path := putScript(t, filepath.Join(dir, "bin/kubelet"), "echo Kubernetes v1.32.7")
	got := lookKubelet(t, s)
	if os.Geteuid() != 0 {
		wantSeen(t, got, observe.Healthy, "VersionKnown")
		return
	}
	wantSeen(t, got, observe.Unknown, "ProgramNotTrusted", "not a Linux program")
	if n := runsOf(t, path); n != 0 {
		t.Errorf("the script ran %d times", n)
	}
}

func TestAKubeletThatSaysNoVersion(t *testing.T) {
	s, dir := newSuite(t)
	path := putDaemon(t, filepath.Join(dir, "bin/kubelet"), "kubelet: unknown flag\n")
	got := lookKubelet(t, s)
	wantSeen(t, got, observe.Unknown, "VersionNotUnderstood")
	if got.Value.Path != path || got.Value.Version != "" {
		t.Errorf("got %+v, want the path and no version", got.Value)
	}
}

// What runs and what lies on disk are two things.
func TestAKubeletThatWasReplacedWhileItRuns(t *testing.T) {
	s, dir := newSuite(t)
	path := putDaemon(t, filepath.Join(dir, "bin/kubelet"), "Kubernetes v1.32.7\n")
	pid, stop := startDaemon(t, path)
	hasUnits(s, units{kubelet: running("kubelet.service", pid, path)})

	got := lookKubelet(t, s)
	wantSeen(t, got, observe.Healthy, "VersionKnown")
	if want := (observe.Program{Name: "kubelet", Version: "1.32.7", FileVersion: "1.32.7", Path: path}); got.Value != want {
		t.Errorf("while it runs: got %+v, want %+v", got.Value, want)
	}

	putDaemon(t, path, "Kubernetes v1.33.1\n")
	got = lookKubelet(t, s)
	wantSeen(t, got, observe.Healthy, "RestartPending", "1.32.7", "1.33.1")
	if want := (observe.Program{Name: "kubelet", Version: "1.32.7", FileVersion: "1.33.1", Path: path, RestartPending: true}); got.Value != want {
		t.Errorf("after its file was replaced: got %+v, want %+v", got.Value, want)
	}

	putDaemon(t, path, "no version\n")
	got = lookKubelet(t, s)
	wantSeen(t, got, observe.Healthy, "RestartPending", "1.32.7", "unknown version")

	fresh, _ := newSuite(t) // it has nothing in its cache, and must run the deleted file
	fresh.settings.searchPath = filepath.Dir(path)
	hasUnits(fresh, units{kubelet: running("kubelet.service", pid, path)})
	if got := lookKubelet(t, fresh); got.Value.Version != "1.32.7" || !got.Value.RestartPending {
		t.Errorf("a Suite that never saw the first file: got %+v, want it to say what runs", got.Value)
	}

	putDaemon(t, path, "hang")
	fresh, _ = newSuite(t)
	fresh.settings.searchPath = filepath.Dir(path)
	hasUnits(fresh, units{kubelet: running("kubelet.service", pid, path)})
	got = lookKubelet(t, fresh)
	wantSeen(t, got, observe.Healthy, "RestartPending", "1.32.7", "unknown version")

	putDaemon(t, path, "Kubernetes v1.33.1\n")
	stop()
	hasUnits(s, units{kubelet: observe.Unit{Name: "kubelet.service", LoadState: "loaded", ActiveState: "inactive", ExecStart: []string{path}}})
	got = lookKubelet(t, s)
	wantSeen(t, got, observe.Healthy, "VersionKnown", "1.33.1")
}

func TestAKubeletWhoseFileWasRemovedWhileItRuns(t *testing.T) {
	s, dir := newSuite(t)
	path := putDaemon(t, filepath.Join(dir, "bin/kubelet"), "Kubernetes v1.32.7\n")
	pid, _ := startDaemon(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	hasUnits(s, units{kubelet: running("kubelet.service", pid, path)})
	got := lookKubelet(t, s)
	wantSeen(t, got, observe.Healthy, "FileMissing", "1.32.7", "removed")
	if want := (observe.Program{Name: "kubelet", Version: "1.32.7"}); got.Value != want {
		t.Errorf("got %+v, want %+v", got.Value, want)
	}
}

func TestAUnitWhoseMainProcessIsAWrapper(t *testing.T) {
	s, dir := newSuite(t)
	wrapper := putDaemon(t, filepath.Join(dir, "unit/start-kubelet"), "Kubernetes v9.9.9\n")
	path := putDaemon(t, filepath.Join(dir, "bin/kubelet"), "Kubernetes v1.32.7\n")
	pid, _ := startDaemon(t, wrapper)
	hasUnits(s, units{kubelet: running("kubelet.service", pid, wrapper)})
	got := lookKubelet(t, s)
	wantSeen(t, got, observe.Healthy, "VersionKnown", "1.32.7")
	if got.Value.Path != path || got.Value.RestartPending {
		t.Errorf("got %+v, want the file in PATH and no pending restart", got.Value)
	}
}

func TestTheValueOfAFlag(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"without it", []string{"--v=2"}, ""},
		{"joined", []string{"--config=/a"}, "/a"},
		{"apart", []string{"--config", "/a"}, "/a"},
		{"with one dash", []string{"-config=/a"}, "/a"},
		{"the last one counts", []string{"--config=/a", "--config", "/b"}, "/b"},
		{"an empty one too", []string{"--config=/a", "--config="}, ""},
		{"a longer name is another flag", []string{"--config-dir=/d", "--configs=/x"}, ""},
		{"its value holds the sign", []string{"--config=/a=b"}, "/a=b"},
		{"nothing follows", []string{"--config"}, ""},
	} {
		if got := host.FlagValue(test.args, "config"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestTheArgumentsOfAKubelet(t *testing.T) {
	path := putDaemon(t, filepath.Join(t.TempDir(), "kubelet"), "")
	pid, stop := startDaemon(t, path, "--config=/of-process", "--kubeconfig", "/k")
	asWritten := []string{path, "--config=/of-unit"}
	for _, test := range []struct {
		name  string
		unit  observe.Unit
		want  []string
		known bool
	}{
		{"the process was started with", running("kubelet.service", pid, asWritten...), []string{"--config=/of-process", "--kubeconfig", "/k"}, true},
		{"the unit would start it with", running("kubelet.service", 0, asWritten...), []string{"--config=/of-unit"}, true},
		{"no arguments are arguments", running("kubelet.service", 0, path), nil, true},
		{"nothing is known", observe.Unit{}, nil, false},
	} {
		if got, known := kubeletArgs(test.unit); !slices.Equal(got, test.want) || known != test.known {
			t.Errorf("%s: got %q, %v, want %q, %v", test.name, got, known, test.want, test.known)
		}
	}
	stop()
	if got, known := kubeletArgs(running("kubelet.service", pid, asWritten...)); !known || !slices.Equal(got, asWritten[1:]) {
		t.Errorf("the process has just ended: got %q, %v, want what the unit says", got, known)
	}
}
