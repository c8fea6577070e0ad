package status

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/pkg/config"
)

var checkTime = time.Date(2026, 2, 1, 12, 0, 0, 0, time.UTC)

func TestBootstrapIsNeededWhen(t *testing.T) {
	tests := map[string]struct {
		change  func(*NodeStatus)
		arc     bool
		grounds []string
	}{
		"all is well":               {func(*NodeStatus) {}, false, nil},
		"all is well, with Arc":     {func(*NodeStatus) {}, true, nil},
		"the kubelet isn't running": {func(s *NodeStatus) { s.KubeletRunning = false }, false, []string{groundKubeletNotRunning}},
		"the kubelet isn't ready: no ground": {
			func(s *NodeStatus) { s.KubeletReady = "NotReady" }, false, nil,
		},
		"containerd isn't running: no ground": {
			func(s *NodeStatus) { s.ContainerdRunning, s.ContainerdVersion = false, "unknown" }, false, nil,
		},
		"Arc is not connected but off": {func(s *NodeStatus) { s.ArcStatus = ArcStatus{} }, false, nil},
		"Arc is on and not connected": {
			func(s *NodeStatus) { s.ArcStatus.Connected = false }, true, []string{groundArcNotConnected},
		},
		"Arc is on and connected, but not registered": {
			func(s *NodeStatus) { s.ArcStatus.Registered = false }, true, nil,
		},
		"exactly 5 minutes old: still fresh": {
			func(s *NodeStatus) { s.LastUpdated = checkTime.Add(-5 * time.Minute) }, false, nil,
		},
		"a nanosecond older": {
			func(s *NodeStatus) { s.LastUpdated = checkTime.Add(-5*time.Minute - 1) }, false, []string{groundSnapshotStale},
		},
		"a year old": {
			func(s *NodeStatus) { s.LastUpdated = checkTime.AddDate(-1, 0, 0) }, false, []string{groundSnapshotStale},
		},
		"exactly 5 minutes in the future: still fresh": {
			func(s *NodeStatus) { s.LastUpdated = checkTime.Add(5 * time.Minute) }, false, nil,
		},
		"a nanosecond further": {
			func(s *NodeStatus) { s.LastUpdated = checkTime.Add(5*time.Minute + 1) }, false, []string{groundSnapshotInFuture},
		},
		"in the last year there is": {
			func(s *NodeStatus) { s.LastUpdated = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }, false, []string{groundSnapshotInFuture},
		},
		"without a time": {
			func(s *NodeStatus) { s.LastUpdated = time.Time{} }, false, []string{groundSnapshotStale},
		},
		"now, in another time zone": {
			func(s *NodeStatus) { s.LastUpdated = checkTime.In(time.FixedZone("far", -9*3600)) }, false, nil,
		},
		"no kubelet version": {
			func(s *NodeStatus) { s.KubeletVersion = "" }, false, []string{groundKubeletVersionUnknown},
		},
		"unknown kubelet version": {
			func(s *NodeStatus) { s.KubeletVersion = "unknown" }, false, []string{groundKubeletVersionUnknown},
		},
		"no runc version": {
			func(s *NodeStatus) { s.RuncVersion = "" }, false, []string{groundRuncVersionUnknown},
		},
		"unknown runc version": {
			func(s *NodeStatus) { s.RuncVersion = "unknown" }, false, []string{groundRuncVersionUnknown},
		},
		"everything at once": {
			func(s *NodeStatus) { *s = NodeStatus{} }, true,
			[]string{groundKubeletNotRunning, groundArcNotConnected, groundSnapshotStale, groundKubeletVersionUnknown, groundRuncVersionUnknown},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := fullSnapshot()
			s.LastUpdated = checkTime
			tt.change(s)
			grounds := snapshotGrounds(s, tt.arc, checkTime)
			if got := codesOf(grounds); !slices.Equal(got, tt.grounds) {
				t.Errorf("got grounds %q, want %q", got, tt.grounds)
			}
			reason := textOf(snapshotGrounds(s, tt.arc, checkTime))
			if (reason == "") != (len(tt.grounds) == 0) {
				t.Errorf("got reason %q for grounds %q", reason, tt.grounds)
			}
			for _, g := range grounds {
				if g.text == "" || !strings.Contains(reason, g.text) {
					t.Errorf("reason %q leaves out %q", reason, g.text)
				}
			}
		})
	}
	// A clock that fell back to zero doesn't make a snapshot without a time fresh.
	if reason := textOf(snapshotGrounds(&NodeStatus{KubeletRunning: true, KubeletVersion: "1", RuncVersion: "1"}, false, time.Time{})); reason == "" {
		t.Error("a snapshot without a time counts as fresh")
	}
	if reason := textOf(snapshotGrounds(nil, false, checkTime)); reason != "there is no snapshot" {
		t.Errorf("without snapshot: got reason %q", reason)
	}
}

func TestBootstrapFromTheFileAlone(t *testing.T) {
	arcOn := &config.Config{Azure: config.AzureConfig{Arc: &config.ArcConfig{Enabled: true}}}
	arcOff := &config.Config{Azure: config.AzureConfig{Arc: &config.ArcConfig{}}}
	withoutArc := fullSnapshot()
	withoutArc.LastUpdated = checkTime
	withoutArc.ArcStatus = ArcStatus{}
	healthy, err := encode(withoutArc)
	must(t, err)

	tests := map[string]struct {
		given func(t *testing.T, path string)
		cfg   *config.Config
		codes []string // none: no bootstrap
		text  string
	}{
		"a healthy node":                   {content(healthy), nil, nil, "the snapshot is fresh"},
		"a healthy node, empty config":     {content(healthy), &config.Config{}, nil, "the snapshot is fresh"},
		"a healthy node, Arc off":          {content(healthy), arcOff, nil, "the snapshot is fresh"},
		"a healthy node, Arc on":           {content(healthy), arcOn, []string{groundArcNotConnected}, "Arc is enabled but not connected"},
		"a missing file":                   {func(*testing.T, string) {}, nil, []string{groundSnapshotMissing}, "there is no snapshot at "},
		"an empty file":                    {content(nil), nil, []string{groundSnapshotInvalid}, "is not a snapshot"},
		"half a file":                      {content(healthy[:50]), nil, []string{groundSnapshotInvalid}, "is not a snapshot"},
		"null":                             {content([]byte("null")), nil, []string{groundSnapshotInvalid}, "is not a snapshot"},
		"a folder in its place":            {func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, nil, []string{groundSnapshotInvalid}, "a folder"},
		"a link to itself":                 {func(t *testing.T, path string) { must(t, os.Symlink(path, path)) }, nil, []string{groundSnapshotUnreadable}, "could not be read"},
		"an older agent's, all but empty ": {content([]byte("{}")), nil, []string{groundKubeletNotRunning, groundSnapshotStale, groundKubeletVersionUnknown, groundRuncVersionUnknown}, "the kubelet isn't running; the snapshot has no time; "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "status.json")
			tt.given(t, path)
			logger, logged := debugLogger()

			got := needsBootstrap(path, tt.cfg, logger, checkTime)

			if want := len(tt.codes) > 0; got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			entry := logged.LastEntry()
			if entry == nil || len(logged.AllEntries()) != 1 {
				t.Fatalf("got %d log entries, want one", len(logged.AllEntries()))
			}
			level := logrus.DebugLevel
			if got {
				level = logrus.InfoLevel
			}
			if entry.Level != level || !strings.Contains(entry.Message, tt.text) || entry.Data["path"] != path {
				t.Errorf("got %v %q %v, want %v with %q", entry.Level, entry.Message, entry.Data, level, tt.text)
			}
			if codes, _ := entry.Data["grounds"].([]string); !slices.Equal(codes, tt.codes) {
				t.Errorf("got grounds %q, want %q", codes, tt.codes)
			}
			if needsBootstrap(path, tt.cfg, nil, checkTime) != got {
				t.Error("without a logger the answer is another")
			}
		})
	}
}

func content(data []byte) func(*testing.T, string) {
	return func(t *testing.T, path string) { writeFile(t, path, string(data)) }
}

func TestASnapshotThatThisUserMayNotReadIsLoggedAsSuch(t *testing.T) {
	needsRoot(t, "becomes another user")
	path := filepath.Join(sharedFolder(t), "status.json")
	writeFile(t, path, "{}")
	out, err := helper(t, "needs-bootstrap", path, uidVariable+"=65534").CombinedOutput()
	must(t, err)
	for _, want := range []string{"this user may not read the snapshot", "run as root", "grounds=\"[SnapshotUnreadable]\"", "\ntrue\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("got %s\nwant %q in it", out, want)
		}
	}
}

func TestAnUntrustedSnapshotIsItsOwnGround(t *testing.T) {
	got := loadGround("status.json", &distrustError{"/tmp/aks-flex-node", "is a link"})
	if got.code != groundSnapshotUntrusted || !strings.Contains(got.text, "not trusting /tmp/aks-flex-node") {
		t.Errorf("got %+v", got)
	}
}
