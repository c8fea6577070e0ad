package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/aks-flex-node/agent/internal/observe"
)

// fakeRuntime says over the CRI what it is told to.
type fakeRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	version  string
	ready    bool
	config   string // of the verbose status
	versions atomic.Int32
	verbose  atomic.Int32
}

func (f *fakeRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	f.versions.Add(1)
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: f.version, RuntimeApiVersion: "v1"}, nil
}

func (f *fakeRuntime) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	resp := &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: "RuntimeReady", Status: f.ready, Message: "the runtime's words"}, {Type: "NetworkReady", Status: true},
	}}}
	if r.GetVerbose() {
		f.verbose.Add(1)
		resp.Info = map[string]string{"config": f.config}
	}
	return resp, nil
}

// serveCRI serves it on a socket until the end of the test, or until stop, which leaves the socket's file.
func serveCRI(t testing.TB, socket string, f *fakeRuntime) (stop func()) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	server := grpc.NewServer()
	if f != nil {
		cri.RegisterRuntimeServiceServer(server, f)
	}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) })
	stop = sync.OnceFunc(func() { server.Stop(); done.Wait() })
	t.Cleanup(stop)
	return stop
}

// runtimeConfig is the part of containerd's configuration that matters, as its verbose status shows it.
func runtimeConfig(name, runtimeType, options string) string {
	return fmt.Sprintf(`{"containerd":{"defaultRuntimeName":%q,"runtimes":{%q:{"runtimeType":%q,"options":%s}}}}`, name, name, runtimeType, options)
}

func TestTheLowLevelRuntimeInContainerdsConfiguration(t *testing.T) {
	const v2 = "io.containerd.runc.v2"
	for _, test := range []struct {
		name, config string
		want         runtimeProgram
		fails        bool
	}{
		{"runc by default", runtimeConfig("runc", v2, "{}"), runtimeProgram{name: "runc"}, false},
		{"options that are null", runtimeConfig("runc", v2, "null"), runtimeProgram{name: "runc"}, false},
		{"an empty name", runtimeConfig("runc", v2, `{"BinaryName":""}`), runtimeProgram{name: "runc"}, false},
		{"a path", runtimeConfig("crun", v2, `{"BinaryName":"/usr/bin/crun","SystemdCgroup":true}`), runtimeProgram{path: "/usr/bin/crun"}, false},
		{"a name", runtimeConfig("x", v2, `{"BinaryName":"crun"}`), runtimeProgram{name: "crun"}, false},
		{"a relative path is not followed", runtimeConfig("x", v2, `{"BinaryName":"../crun"}`), runtimeProgram{name: "runc"}, false},
		{"options of another form", runtimeConfig("runc", v2, `[1]`), runtimeProgram{name: "runc"}, false},
		{"a name of another form", runtimeConfig("runc", v2, `{"BinaryName":7}`), runtimeProgram{name: "runc"}, false},
		{"the default counts, not the others", `{"containerd":{"defaultRuntimeName":"b","runtimes":{"a":{"runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"/a"}},
			"b":{"runtimeType":"io.containerd.runc.v2","options":{"BinaryName":"/b"}}}}}`, runtimeProgram{path: "/b"}, false},
		{"a runtime of another kind", runtimeConfig("kata", "io.containerd.kata.v2", "{}"), runtimeProgram{}, true},
		{"a default that is not there", `{"containerd":{"defaultRuntimeName":"x"}}`, runtimeProgram{}, true},
		{"nothing", "", runtimeProgram{}, true},
		{"no object", "[]", runtimeProgram{}, true},
		{"half of it", `{"containerd":{"default`, runtimeProgram{}, true},
	} {
		got, err := parseRuntimeConfig([]byte(test.config))
		if got != test.want || test.fails != errors.Is(err, errNoRuntimeConfig) || test.fails != (err != nil) {
			t.Errorf("%s: got %+v and error %v, want %+v, an error: %v", test.name, got, err, test.want, test.fails)
		}
	}
}

func TestWhatCanNotChangeIsAskedOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	f := &fakeRuntime{version: "v1.7.20", ready: true, config: runtimeConfig("runc", "io.containerd.runc.v2", "{}")}
	stop := serveCRI(t, socket, f)
	var c criClient
	t.Cleanup(c.close)
	look := func(want string) {
		t.Helper()
		a, err := c.ask(t.Context(), socket)
		if err != nil || a.version != want || !a.runtimeReady || !a.networkReady {
			t.Fatalf("got %+v and error %v, want version %s", a, err, want)
		}
		if p, err := c.runtimeProgram(t.Context(), socket); err != nil || p.name != "runc" {
			t.Fatalf("got %+v and error %v, want runc", p, err)
		}
	}
	for range 3 {
		look("v1.7.20")
	}
	if v, verbose := f.versions.Load(), f.verbose.Load(); v != 1 || verbose != 1 {
		t.Errorf("the version was asked for %d times and the configuration %d times, want once each", v, verbose)
	}

	stop() // restarted, and upgraded
	if _, err := c.ask(t.Context(), socket); err == nil {
		t.Error("got an answer of a daemon that was stopped")
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ask(t.Context(), socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a socket: got %v, want %v", err, fs.ErrNotExist)
	}
	serveCRI(t, socket, &fakeRuntime{version: "v2.1.0", ready: true, config: f.config})
	look("v2.1.0")
}

func TestARuntimeThatIsNotReadySaysWhy(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serveCRI(t, socket, &fakeRuntime{version: "v1.7.20"})
	var c criClient
	t.Cleanup(c.close)
	if a, err := c.ask(t.Context(), socket); err != nil || a.runtimeReady || a.notReady != "the runtime's words" {
		t.Errorf("got %+v and error %v, want it not ready in its own words", a, err)
	}
}

func TestWhatSpeaksNoCRIIsSaidToBe(t *testing.T) {
	s, _ := newSuite(t)
	serveCRI(t, s.settings.criSocket, nil)
	wantSeen(t, s.lookAtContainerd(t.Context(), time.Now()), observe.Unhealthy, "CRIDisabled", "cri plugin")
}

// A connection that broke, or that gRPC has given up, says nothing about the daemon of now: it is asked over a new one.
func TestABrokenConnectionIsMadeAnewWithinTheLook(t *testing.T) {
	t.Run("then it is silent", func(t *testing.T) {
		s, _ := newSuite(t)
		l, err := net.Listen("unix", s.settings.criSocket)
		if err != nil {
			t.Fatal(err)
		}
		first := true
		serveConnections(t, l, func(c net.Conn) {
			if first {
				c.Close()
			}
			first = false
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience+500*time.Millisecond)
		defer cancel()
		wantSeen(t, s.lookAtContainerd(ctx, time.Now()), observe.Unhealthy, "NotResponding", "it hangs")
	})
	t.Run("then it closes again", func(t *testing.T) {
		s, _ := newSuite(t)
		l, err := net.Listen("unix", s.settings.criSocket)
		if err != nil {
			t.Fatal(err)
		}
		serveConnections(t, l, func(c net.Conn) { c.Close() })
		wantSeen(t, s.lookAtContainerd(t.Context(), time.Now()), observe.Unknown, "RuntimeUnavailable")
	})
}

func TestNoConnectionIsMadeAfterClose(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serveCRI(t, socket, &fakeRuntime{version: "v1.7.20", ready: true})
	var c criClient
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // as Suite.Close does first
	c.close()
	if _, err := c.ask(ctx, socket); !errors.Is(err, context.Canceled) || c.current != nil {
		t.Errorf("got error %v and connection %v, want neither an answer nor a connection", err, c.current)
	}
	c.close()
}

func TestTheFolderInWhichContainerdKeepsEverything(t *testing.T) {
	real1, err := os.ReadFile(filepath.Join("testdata", "containerd-1.6-config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for config, want := range map[string]string{
		string(real1):                         "/run/containerd/root",
		`{"containerdRootDir":"/data/c"}`:     "/data/c",
		`{"containerdRootDir":"data"}`:        "",
		`{"containerdRootDir":["/data"]}`:     "",
		`{"rootDir":"/data/c/io.containerd"}`: "",
		"":                                    "",
	} {
		if got := parseRoot([]byte(config)); got != want {
			t.Errorf("given %.60q: got %q, want %q", config, got, want)
		}
	}

	s, _ := newSuite(t)
	if got := s.cri.rootFolder(); got != "" {
		t.Errorf("before anybody asked: got %q, want none", got)
	}
	config := `{"containerdRootDir":"/data/c",` + runtimeConfig("kata", "io.containerd.kata.v2", "{}")[1:]
	serveCRI(t, s.settings.criSocket, &fakeRuntime{version: "v1.7.20", ready: true, config: config})
	s.lookAtRunc(t.Context(), time.Now())
	if got := s.cri.rootFolder(); got != "/data/c" {
		t.Errorf("got %q, want what the daemon said, whatever it starts containers with", got)
	}
}

func FuzzRuntimeConfig(f *testing.F) {
	real1, err := os.ReadFile(filepath.Join("testdata", "containerd-1.6-config.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(real1)
	for _, options := range []string{"{}", "null", `{"BinaryName":"crun"}`, `{"BinaryName":"/usr/bin/crun"}`, `{"BinaryName":1}`, "[]"} {
		f.Add([]byte(runtimeConfig("runc", "io.containerd.runc.v2", options)))
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		p, err := parseRuntimeConfig(config)
		switch {
		case err != nil && (p != runtimeProgram{} || !errors.Is(err, errNoRuntimeConfig)):
			t.Errorf("got %+v and error %v, want only that error", p, err)
		case err == nil && (p.name == "") == (p.path == ""):
			t.Errorf("got %+v, want a name or a path", p)
		case err == nil && p.path != "" && !filepath.IsAbs(p.path), err == nil && filepath.Base(p.name) != p.name && p.name != "":
			t.Errorf("got %+v, want an absolute path or a bare name", p)
		}
		if err == nil && !json.Valid(config) {
			t.Error("took something from what is no JSON")
		}
		if root := parseRoot(config); root != "" && (!filepath.IsAbs(root) || !json.Valid(config)) {
			t.Errorf("got the root folder %q, want an absolute path out of JSON", root)
		}
	})
}
