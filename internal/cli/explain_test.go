package cli

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/test/golden"
)

func TestExplainSaysWhatIsDoneAndWhyAndWhatEachFaultMeans(t *testing.T) {
	for name, w := range worlds() {
		t.Run(name, func(t *testing.T) {
			e := explanation{view: w.view(), now: now}
			golden.Check(t, filepath.Join("testdata", "explain-"+name+".txt"), plain(t, e.text(0)))
		})
	}
	e := explanation{view: worlds()["paused"].view(), now: now}
	golden.Check(t, "testdata/explain-paused-80.txt", plain(t, e.text(80)))
	e.without = "No agent runs here: looked live just now."
	golden.Check(t, "testdata/explain-without-agent.txt", plain(t, e.text(0)))
}

func TestExplainOfOneConditionGoesIntoDepth(t *testing.T) {
	v := worlds()["crash-loop"].view()
	for file, name := range map[string]string{"kubelet": "kubeletrunning", "node": "NodeReady", "restart": "RestartPending", "arc": "ArcConnected"} {
		t.Run(file, func(t *testing.T) {
			golden.Check(t, filepath.Join("testdata", "explain-one-"+file+".txt"), plain(t, newDepth(v, name).text(now, 100)))
		})
	}
}

func TestExplainForProgramsIsTheAgentsOwnDocument(t *testing.T) {
	want := worlds()["restarts"].view()
	c := newCommand(t, newFake(want))
	code := c.run(t.Context(), []string{"explain", "-o", "json"})
	var got agent.View
	if err := json.Unmarshal(c.out.Bytes(), &got); err != nil || code != 0 || c.err.Len() > 0 {
		t.Fatalf("got exit %d, %v and %q", code, err, c.err.String())
	}
	if !got.Decision.Same(want.Decision) || len(got.Conditions) != len(want.Conditions) || got.Remedy.Step != "verify" || got.Set.Kubelet.Value.Version != "1.32.7" {
		t.Errorf("got %s", c.out.String())
	}
	c.out.Reset()
	code = c.run(t.Context(), []string{"explain", "-o", "json", "KubeletRunning"})
	var one depth
	if err := json.Unmarshal(c.out.Bytes(), &one); err != nil || code != 0 || one.Condition == nil || one.Condition.Status != health.False || one.Do == "" {
		t.Errorf("got exit %d, %v and %s", code, err, c.out.String())
	}
}

func TestExplainWithoutAnAgentLooksOnceAndSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		err          error
		want, reason string
	}{
		"none runs":     {absent().err, "No agent runs here: looked live just now.", "no agent runs here"},
		"may not ask":   {fs.ErrPermission, "This user may not ask the agent (root may): looked live just now.", "the agent could not be asked"},
		"does not answ": {fs.ErrClosed, "The agent can't be asked (file already closed): looked live just now.", "the agent could not be asked"},
	} {
		t.Run(name, func(t *testing.T) {
			f := absent()
			f.err = c.err
			cmd := newCommand(t, f)
			code := cmd.run(t.Context(), []string{"explain"})
			text := cmd.out.String()
			if code != 0 || !strings.HasPrefix(strings.Join(strings.Fields(text), " "), c.want) || !strings.Contains(text, "the agent only observes: "+c.reason) {
				t.Errorf("got exit %d and %s%s, want %q first", code, text, cmd.err.String(), c.want)
			}
			if name == "none runs" && !strings.Contains(text, "What was done before is not known: no agent has run here") {
				t.Errorf("got %s, want that there is no journal", text)
			}
		})
	}
}

func TestAnUnknownConditionIsWrongUsageWithTheRightNames(t *testing.T) {
	c := newCommand(t, newFake(acting().view()))
	if code := c.run(t.Context(), []string{"explain", "Kubelet"}); code != ExitUsage || !strings.Contains(c.err.String(), "KubeletRunning, KubeletHealthy") {
		t.Errorf("got exit %d and %q", code, c.err.String())
	}
}

func TestNothingOfTheAgentReachesTheTerminalRaw(t *testing.T) {
	evil := "\x1b[2J\a\u009b\u202e\nkubelet  ok  Running"
	v := worlds()["restarts"].view()
	v.Node, v.AgentVersion, v.ModeReason, v.JournalProblem = evil, evil, evil, evil
	v.Remedy.Name, v.Remedy.Unit, v.Remedy.Step = evil, evil, evil
	v.Pauses = []decision.Pause{{By: evil, Reason: evil}}
	d := &v.Decision
	d.Action, d.Unit, d.Wanted, d.Reason, d.Message, d.Grounds, d.Changes = decision.Action(evil), evil, decision.Action(evil), evil, evil, []string{evil}, []string{evil}
	for i := range d.Evidence {
		d.Evidence[i] = decision.Evident{Subject: evil, Health: evil, Reason: evil, Message: evil}
	}
	for i := range d.Guards {
		d.Guards[i] = decision.Guard{Name: evil, Holds: true, Effect: decision.Action(evil), Message: evil}
	}
	for i := range d.Thresholds {
		d.Thresholds[i] = decision.Threshold{Name: evil, Have: evil, Want: evil}
	}
	for i := range v.Conditions {
		c := &v.Conditions[i]
		c.Status, c.Reason, c.Message, c.LastKnown = health.Status(evil), evil, evil, health.Status(evil)
		c.Pending = &health.Pending{Status: health.Status(evil), Reason: evil, Message: evil}
	}
	v.Conditions = append(v.Conditions, health.Condition{Type: evil, Status: health.Unknown, LastKnown: health.Status(evil), Reason: evil, Message: evil})
	v.Host.Clock = observe.CannotTell[observe.Clock](evil, "%s", evil)
	entries := someHistory()
	for i := range entries {
		e := &entries[i]
		e.Subject, e.From, e.To, e.Reason, e.Message = evil, evil, evil, evil, evil
	}
	s := sight{show: viewAt(v), agent: v, gone: evil, history: entries, at: now}
	wide, err := reportOfAgent(v, wanted, filepath.Join(t.TempDir(), "none"), now).render("wide", 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for _, l := range s.lines(now) {
		text, _ := l.since(line{word: evil, version: evil}, true)
		lines.WriteString(text + "\n")
	}
	for name, text := range map[string]string{
		"wide": wide, "explain": explanation{view: v, without: evil, now: now}.text(0), "depth": newDepth(v, "KubeletRunning").text(now, 0),
		"history": historyTable(entries, now, 0), "narrow": historyTable(entries, now, 60), "history wide": historyWide(entries, now, 0),
		"frame": strings.Join(s.frame(now, 1000, 1000), "\n"), "lines": lines.String(),
	} {
		got := plain(t, text)
		if i := strings.IndexAny(got, "\x1b\a\u009b\u202e"); i >= 0 {
			t.Errorf("%s: got a raw character at %d: %.200q", name, i, got[max(0, i-100):])
		}
		if strings.Contains(got, "\nkubelet  ok") {
			t.Errorf("%s: got a forged row: %.2000s", name, got)
		}
	}
}
