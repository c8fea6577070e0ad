package probe

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// newNode returns a Suite that looks at a whole node: two daemons as processes, and servers for whatever answers over a socket. serve
// gives what listens on the runtime's socket, for the kubelet's health and as API server; nil takes one that is well.
func newNode(t testing.TB, arcScenario string, serve func(net.Conn)) (s *Suite, arcPath string) {
	t.Helper()
	s, dir := newSuite(t)
	s.settings.arcEnabled = true
	arcPath = putArc(t, filepath.Join(dir, "bin/azcmagent"), arcScenario)
	putScript(t, filepath.Join(dir, "bin/runc"), "echo runc version 1.1.12")
	kubelet := putDaemon(t, filepath.Join(dir, "bin/kubelet"), "Kubernetes v1.32.7\n")
	containerd := putDaemon(t, filepath.Join(dir, "bin/containerd"), "containerd containerd.io 1.7.20 abc\n")

	var health, api string
	if serve == nil {
		serveCRI(t, s.settings.criSocket, &fakeRuntime{version: "v1.7.20", ready: true, config: runtimeConfig("runc", "io.containerd.runc.v2", "{}")})
		healthy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
		t.Cleanup(healthy.Close)
		server := httptest.NewServer(answerJSON(200, readyNode("n1")))
		t.Cleanup(server.Close)
		health, api = healthy.Listener.Addr().String(), server.URL
	} else {
		l, err := net.Listen("unix", s.settings.criSocket)
		if err != nil {
			t.Fatal(err)
		}
		serveConnections(t, l, serve)
		health, api = listenTCP(t, serve), "https://"+listenTCP(t, serve)
	}
	_, port, err := net.SplitHostPort(health)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := kubeconfigOf(t, filepath.Join(dir, "kubelet.conf"), api)
	kubeletPID, _ := startDaemon(t, kubelet, "--kubeconfig="+kubeconfig, "--healthz-port", port)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH")) // containerd's, in which it finds runc
	containerdPID, _ := startDaemon(t, containerd)
	hasUnits(s, units{
		kubelet:    running("kubelet.service", kubeletPID, kubelet),
		containerd: running("containerd.service", containerdPID, containerd),
		arc:        running("himdsd.service", 0),
	})
	return s, arcPath
}

// mute takes a connection and says nothing, until the other side ends it.
func mute(c net.Conn) {
	go func() {
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}()
}

func TestALookAtANodeThatIsWell(t *testing.T) {
	s, _ := newNode(t, "connected", nil)
	var all sync.WaitGroup
	for range 3 { // at once, as the loop and somebody who asks may
		all.Go(func() {
			set := s.Look(t.Context())
			for _, subject := range set.Subjects() {
				if subject.Health != observe.Healthy || subject.At.IsZero() {
					t.Errorf("%s: got %s %s (%s), want it healthy at some time", subject.Name, subject.Health, subject.Reason, subject.Message)
				}
			}
			if set.Kubelet.Value.Version != "1.32.7" || set.Containerd.Value.Version != "1.7.20" || set.Runc.Value.Version != "1.1.12" {
				t.Errorf("got versions %q, %q, %q", set.Kubelet.Value.Version, set.Containerd.Value.Version, set.Runc.Value.Version)
			}
			if set.Node.Value.Ready != observe.Ready || !set.Arc.Value.Connected {
				t.Errorf("got Node %+v and Arc %+v, want them ready and connected", set.Node.Value, set.Arc.Value)
			}
		})
	}
	all.Wait()
}

func TestALookAtNothingAtAll(t *testing.T) {
	s, _ := newSuite(t)
	set := s.Look(t.Context())
	for _, subject := range set.Subjects() {
		if subject.Health == observe.Healthy || subject.Reason == "" || subject.Message == "" || subject.At.IsZero() {
			t.Errorf("%s: got %s %q (%q) at %s, want a reason why it isn't healthy", subject.Name, subject.Health, subject.Reason, subject.Message, subject.At)
		}
	}
}

// held counts what a leak would make more of.
type held struct{ goroutines, files int }

func heldNow(t testing.TB) held {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return held{runtime.NumGoroutine(), len(files)}
}

// settle waits until no more is held than before.
func settle(t testing.TB, when string, before held) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s, no more is held than before: %+v", when, before), func() bool {
		now := heldNow(t)
		return now.goroutines <= before.goroutines && now.files <= before.files
	})
}

// Nothing that hangs may delay another look, or be left behind; and what can be told is told.
func TestALookAtANodeOnWhichEverythingHangs(t *testing.T) {
	s, arcPath := newNode(t, "hangs stubbornly", mute)
	before := heldNow(t)
	seen := map[string]bool{}
	round := func(within time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		set := s.Look(ctx)
		wantSeen(t, set.KubeletUnit, observe.Healthy, observe.ReasonActive)
		wantSeen(t, set.ContainerdUnit, observe.Healthy, observe.ReasonActive)
		wantSeen(t, set.ArcUnit, observe.Healthy, observe.ReasonActive)
		wantSeen(t, set.Kubelet, observe.Healthy, "VersionKnown", "1.32.7")
		wantSeen(t, set.Runc, observe.Healthy, "VersionKnown", "1.1.12")
		for _, o := range []struct {
			what    string
			verdict observe.Verdict
			reasons []string
		}{
			{"containerd", set.Containerd.Verdict(), []string{"NotResponding", observe.ReasonTimeout}},
			{"the kubelet's health", set.KubeletHealth.Verdict(), []string{"HealthzSilent", observe.ReasonTimeout}},
			{"the node", set.Node.Verdict(), []string{cluster.ReasonTimeout, observe.ReasonTimeout}},
			{"Arc", set.Arc.Verdict(), []string{observe.ReasonTimeout}},
		} {
			// On a machine with much else to do a look may come back a moment too late to say itself what was wrong.
			if !slices.Contains(o.reasons, o.verdict.Reason) {
				t.Errorf("%s: got %+v, want one of the reasons %q", o.what, o.verdict, o.reasons)
			}
			seen[o.verdict.Reason] = true
		}
		if set.Containerd.Known() && set.Containerd.Value.Version != "1.7.20" {
			t.Errorf("got %+v, want the version of what runs", set.Containerd.Value)
		}
		eventually(t, "azcmagent and its children have ended", func() bool { return len(processesOf(arcPath)) == 0 })
	}
	round(3 * time.Second)
	settled := heldNow(t)
	for range 9 {
		round(patience + reserve + 250*time.Millisecond)
	}
	settle(t, "after ten rounds", settled)
	for _, reason := range []string{"NotResponding", "HealthzSilent", cluster.ReasonTimeout} {
		if !seen[reason] {
			t.Errorf("in ten rounds no look said %s, only %v", reason, seen)
		}
	}
	s.Close()
	settle(t, "after Close", before)
}

func TestNoConnectionIsLeftOfASuiteThatWasClosed(t *testing.T) {
	s, _ := newNode(t, "connected", nil) // whose servers would keep theirs
	before := heldNow(t)
	for range 2 {
		s.Look(t.Context())
	}
	if kept := heldNow(t); kept.files <= before.files {
		t.Errorf("got %+v held after two looks, and %+v before: want connections to be kept", kept, before)
	}
	s.Close()
	settle(t, "after Close", before)
}

func TestASuiteIsClosedWhileItsLooksHang(t *testing.T) {
	s, arcPath := newNode(t, "hangs stubbornly", mute)
	before := heldNow(t)
	looks := make(chan observe.Set, 1)
	go func() { looks <- s.Look(t.Context()) }()
	eventually(t, "azcmagent hangs", func() bool { return len(processesOf(arcPath)) >= 2 })
	s.Close()
	s.Close()
	set := <-looks // though it had no deadline
	for _, subject := range set.Subjects() {
		if subject.Reason == "" {
			t.Errorf("%s: got no reason", subject.Name)
		}
	}
	eventually(t, "azcmagent and its children have ended", func() bool { return len(processesOf(arcPath)) == 0 })
	settle(t, "after Close", before)

	set = s.Look(t.Context())
	for _, subject := range set.Subjects() {
		if subject.Health != observe.Unknown || subject.Reason == "" {
			t.Errorf("%s, looked at after Close: got %+v, want it unknown with a reason", subject.Name, subject.Verdict)
		}
	}
	s.Close()
	settle(t, "after a look that came too late", before)
}

func TestCloseOfASuiteThatNeverLooked(_ *testing.T) {
	s := New(nil, "test")
	s.Close()
	s.Close()
}
