package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

func TestTextFromElsewhereIsShownNotObeyed(t *testing.T) {
	for name, c := range map[string]struct {
		given string
		most  int
		want  string
	}{
		"plain":                        {"1.32.7 – größer", short, "1.32.7 – größer"},
		"escape and bell":              {"\x1b[31mred\a", short, `\x1b[31mred\x07`},
		"control characters of 8 bits": {"\u009b2J\u0085\u007f", short, `\x9b2J\x85\x7f`},
		"reordering":                   {"a\u202eb\u2066", short, `a\u{202e}b\u{2066}`},
		"separators of lines":          {"a\u2028b", short, `a\u{2028}b`},
		"no UTF-8":                     {"a\xff\x9bb", short, `a\xff\x9bb`},
		"a forged row":                 {"1.0\r\n\tkubelet  ok", short, "1.0 kubelet  ok"},
		"as long as may be":            {"12345", 5, "12345"},
		"longer":                       {"123456", 5, "1234…"},
		"an escape at the end":         {"1234\a", 5, `1234…`},
		"empty":                        {"", 5, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := clean(c.given, c.most); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "1.32.7", "\x1b]0;t\a", "\u009b\u202e\n\n", "\xff\xfe", strings.Repeat("x", 1000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := clean(s, short)
		if utf8.RuneCountInString(got) > short || !utf8.ValidString(got) {
			t.Errorf("got %q, want at most %d characters", got, short)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
				t.Errorf("got %q with %U", got, r)
			}
		}
	})
}

func TestNothingFromElsewhereReachesTheTerminalRaw(t *testing.T) {
	evil := "\x1b[2J\a\u009b\u202e\nkubelet  ok  Running" + strings.Repeat("9", 1<<20)
	set := healthySet()
	set.Kubelet.Value.Version, set.Runc.Value.Name, set.Runc.Message = evil, evil, evil
	set.Node = observe.Observation[observe.Node]{Value: observe.Node{Name: evil, Server: evil}, Reason: cluster.ReasonTLS, Message: evil}
	set.Arc = observe.See(observe.Arc{AgentVersion: evil}, observe.Unhealthy, evil, "%s", evil)
	live := viewOfSet(set, wanted, now)
	live.source = evil
	s := healthySnapshot()
	s.KubeletVersion, s.KubeletReady, s.ArcStatus.MachineName, s.ArcStatus.Connected = evil, evil, evil, true
	for name, r := range map[string]report{
		"live":     {snapshot: s, set: set, view: live, now: now},
		"snapshot": {snapshot: s, view: viewOfSnapshot(s, settings{unreadable: errors.New(evil)}, now), now: now},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := r.render("wide", 0)
			if err != nil {
				t.Fatal(err)
			}
			got := plain(t, text)
			if i := strings.IndexAny(got, "\x1b\a\u009b\u202e"); i >= 0 || len(got) > 20000 {
				t.Errorf("got %d bytes, with a raw character at %d: %.200q", len(got), i, got)
			}
			if strings.Contains(got, "\nkubelet  ok") {
				t.Errorf("got a forged row: %.2000s", got)
			}
		})
	}
}

func TestTheUnitsTimeIsNotThatOfAnotherObservation(t *testing.T) {
	daemon := func(reason string, h observe.Health) func(*observe.Set) {
		return func(s *observe.Set) {
			s.Containerd = observe.Observation[observe.Runtime]{Health: h, Reason: reason, Message: "it hangs"}
		}
	}
	kubelet := func(reason string) func(*observe.Set) {
		return func(s *observe.Set) {
			s.KubeletHealth = observe.See(observe.KubeletHealth{}, observe.Unhealthy, reason, "it hangs")
		}
	}
	for name, c := range map[string]struct {
		change func(*observe.Set)
		row    int
		state  string
	}{
		"containerd hangs":            {daemon("NotResponding", observe.Unhealthy), 0, "NotResponding"},
		"containerd is not ready":     {daemon("RuntimeNotReady", observe.Unhealthy), 0, "RuntimeNotReady"},
		"its socket is missing":       {daemon("SocketMissing", observe.Unhealthy), 0, "SocketMissing"},
		"its socket is for root only": {daemon(observe.ReasonPermissionDenied, observe.Unknown), 0, observe.ReasonPermissionDenied},
		"the kubelet is not healthy":  {kubelet("HealthzFailed"), 2, "HealthzFailed"},
		"the kubelet hangs":           {kubelet("HealthzSilent"), 2, "HealthzSilent"},
	} {
		t.Run(name, func(t *testing.T) {
			set := healthySet()
			c.change(set)
			r := viewOfSet(set, wanted, now).rows[c.row]
			if r.state != c.state || r.since != "" {
				t.Errorf("got %s since %q, want %s and no time", r.state, r.since, c.state)
			}
		})
	}
}

func TestAdviceIsAboutTheCause(t *testing.T) {
	node := func(reason string) func(*observe.Set) {
		return func(s *observe.Set) { s.Node = observe.CannotTell[observe.Node](reason, "no") }
	}
	for name, c := range map[string]struct {
		change func(*observe.Set)
		row    int
		want   string
	}{
		"arc is wanted and missing": {arcNotInstalled, 4, "install azcmagent, or set azure.arc.enabled to false"},
		"arc is not connected": {func(s *observe.Set) { s.Arc = observe.See(observe.Arc{}, observe.Unhealthy, "Disconnected", "no") }, 4,
			"azcmagent show; azcmagent check"},
		"no systemd, no journal": {func(s *observe.Set) {
			s.ContainerdUnit = observe.CannotTell[observe.Unit](reasonNoSystemd, "no")
			s.Containerd = observe.See(observe.Runtime{}, observe.Unhealthy, "NotResponding", "it hangs")
		}, 0, ""},
		"kubeconfig not whole":     {node(cluster.ReasonKubeconfigInvalid), 3, "look at the kubelet's kubeconfig; it must be whole, of root, and writable by root only"},
		"kubeconfig of others":     {node(cluster.ReasonKubeconfigUnsafe), 3, "look at the kubelet's kubeconfig; it must be whole, of root, and writable by root only"},
		"no right":                 {node(cluster.ReasonForbidden), 3, "apply deploy/rbac.yaml for this node's identity"},
		"credential plugin failed": {node(cluster.ReasonPluginFailed), 3, "run the kubeconfig's credential plugin by hand as root"},
	} {
		t.Run(name, func(t *testing.T) {
			set := healthySet()
			c.change(set)
			if got := viewOfSet(set, wanted, now).rows[c.row].next; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestASnapshotWithoutAReadableConfigLeavesArcOpen(t *testing.T) {
	v := viewOfSnapshot(healthySnapshot(), unreadable, now)
	arc := v.rows[4]
	if v.exit() != ExitUnknown || arc.state != "ConfigUnreadable" || !strings.Contains(arc.detail, "whether Arc is enabled can't be told: ") {
		t.Errorf("got exit %d and %+v", v.exit(), arc)
	}
}

func TestTheNodesNameIsThatOfTheConfigElseTheHostsInLowerCase(t *testing.T) {
	if got := (settings{cfg: &config.Config{Node: config.NodeConfig{Name: "edge-7"}}}).nodeName(); got != "edge-7" {
		t.Errorf("got %s, want that of the config", got)
	}
	if got, want := (settings{}).nodeName(), strings.ToLower(hostName()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAConfigIsAbsentLoadedOrUnreadable(t *testing.T) {
	dir := t.TempDir()
	path := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, c := range map[string]struct {
		path               string
		loaded, unreadable bool
	}{
		"absent":          {filepath.Join(dir, "none.json"), false, false},
		"loaded":          {path("good.json", `{}`), true, false},
		"with mistakes":   {path("mistakes.json", `{"node": {"maxPods": "many"}}`), true, false},
		"broken syntax":   {path("broken.json", `{"azure": `), false, true},
		"no regular file": {dir, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var notes bytes.Buffer
			root := newRoot(&notes, &notes)
			s, err := (&common{stderr: &notes, configPath: c.path}).loadConfig(root)
			if err != nil || (s.cfg != nil) != c.loaded || (s.unreadable != nil) != c.unreadable || s.wanted() != (c.loaded || c.unreadable) {
				t.Errorf("got %+v and %v, want loaded %v, unreadable %v", s, err, c.loaded, c.unreadable)
			}
			if c.unreadable && !strings.Contains(notes.String(), "The configuration was not used: ") {
				t.Errorf("got %q, want a note", notes.String())
			}
		})
	}
}

func TestNeedsBootstrapAnswersOrSaysThatItCannotTell(t *testing.T) {
	denied := &fs.PathError{Op: "open", Path: "/run/aks-flex-node/status.json", Err: syscall.EACCES}
	for name, c := range map[string]struct {
		loadErr error
		s       settings
		yes     bool
		want    string // the error, "" for none
		stdout  string
	}{
		"no":                                     {nil, wanted, false, "", "reason\n"},
		"no, without a config":                   {nil, settings{}, false, "", "reason\n"},
		"yes":                                    {nil, wanted, true, "exit status 10", "reason\n"},
		"yes, there is no snapshot":              {fs.ErrNotExist, wanted, true, "exit status 10", "reason\n"},
		"snapshot not for this user":             {denied, wanted, true, "this user may not read the snapshot /s: run as root", ""},
		"config unreadable, yes by the snapshot": {nil, unreadable, true, "exit status 10", "reason\n"},
		"config unreadable, else no": {nil, unreadable, false,
			"can't tell whether Arc is enabled: read config: open /etc/aks-flex-node/config.json: permission denied; run as root", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout bytes.Buffer
			err := (&common{stdout: &stdout}).answerBootstrap("/s", c.loadErr, c.s, func(l *logrus.Logger) bool {
				l.Debug("reason")
				return c.yes
			})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want || stdout.String() != c.stdout {
				t.Errorf("got %q and %q, want %q and %q", got, stdout.String(), c.want, c.stdout)
			}
		})
	}
}

func TestFormsForProgramsTellOnStderrThatTheSnapshotWasNotUsed(t *testing.T) {
	s := healthySnapshot()
	file := report{snapshot: s, view: view{source: "file"}, now: now}
	look := report{snapshot: s, set: healthySet(), view: view{source: "Looked live just now (none)."}, now: now}
	for name, c := range map[string]struct {
		r      report
		output string
		live   bool
		note   string
	}{
		"json, not used": {look, "json", false, "Looked live just now (none).\n"},
		"yaml, not used": {look, "yaml", false, "Looked live just now (none).\n"},
		"json, as asked": {look, "json", true, ""},
		"json, used":     {file, "json", false, ""},
		"table":          {look, "table", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if err := (&common{stdout: &stdout, stderr: &stderr}).printReport(c.r, c.output, c.live); err != nil {
				t.Fatal(err)
			}
			if stderr.String() != c.note {
				t.Errorf("got %q, want %q", stderr.String(), c.note)
			}
			if want, _ := c.r.render(c.output, 0); c.output != "table" && stdout.String() != want {
				t.Errorf("got %q, want %q", stdout.String(), want)
			}
		})
	}
}
