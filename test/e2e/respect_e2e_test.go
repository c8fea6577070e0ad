//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/remedy"
	"github.com/aks-flex-node/agent/test/lab"
)

// TestAStopWhileARestartIsWatchedIsRespected stops a kubelet that the agent has just started and still watches: that stop is somebody's, not
// the restart's, and is left alone as long as any.
func TestAStopWhileARestartIsWatchedIsRespected(t *testing.T) {
	t.Parallel()
	const hold = 20 * time.Second // as configured
	n := installAgent(t, loneNode(t, "stopped"), nimble())
	n.waitView("nothing is to be done", idle)
	failOnce(n)
	var watched time.Time
	n.waitView("the restart watches the kubelet, for 3 s", func(v *agent.View) bool {
		if v.Remedy == nil || v.Remedy.Step != "stable" {
			return false
		}
		if watched.IsZero() {
			watched = time.Now()
		}
		return time.Since(watched) >= 3*time.Second
	})
	before := time.Now()
	n.MustExec(t, "systemctl", "stop", "kubelet")

	v := n.waitView("the stop is respected", held("UnitStopped"))
	if v.Decision.Wanted != decision.Restart || v.Decision.Until.Sub(before) < hold {
		t.Errorf("got the decision %+v, want a start wanted and held for the %s of the configuration", v.Decision, hold)
	}
	first := []string{restarted + " begun", restarted + " failed"}
	if got := n.remedies(); !slices.Equal(got, first) {
		t.Errorf("got the remedies %v, want %v: one restart, ended by the stop", got, first)
	}
	n.waitRemedies(slices.Concat(first, once()))
	if got := n.remedyEntries()[len(first)].At.Sub(before); got < hold {
		t.Errorf("the kubelet was started %s after somebody stopped it, want it left alone for %s", got, hold)
	}
	n.isHealed("a kubelet that was stopped while its restart was watched")
}

// serveBeginner leaves the journal as an agent does that is killed right after it has recorded that it begins a bootstrap.
func serveBeginner() int {
	j, _, err := journal.Open(journalFile, agent.Moment(), journal.Options{})
	if err == nil {
		var data []byte
		data, err = json.Marshal(decision.Decision{
			At: time.Now(), Action: decision.Bootstrap, Unit: decision.KubeletUnit, Reason: "RestartsUsedUp", Message: "3 restarts did not help",
		})
		if err == nil {
			_, err = j.Begin(agent.Moment(), journal.Plan{Name: "bootstrap", Budget: remedy.BudgetOf(decision.Bootstrap, decision.KubeletUnit), Decision: data, Steps: []string{"command", "kubelet"}})
		}
		if closeErr := j.Close(); err == nil {
			err = closeErr
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestABootstrapOfADeadAgentIsNotMadeUpForOnANodeThatWorks starts an agent that finds a bootstrap begun and none of it done, and a kubelet
// that works: what is seen now counts, not what the dead agent saw.
func TestABootstrapOfADeadAgentIsNotMadeUpForOnANodeThatWorks(t *testing.T) {
	t.Parallel()
	h := loneNode(t, "begun")
	installCommand(t, h, "true")
	n := installAgent(t, h, withCommand(nimble()))
	n.waitView("nothing is to be done", idle)
	invocation := n.MustExec(t, "systemctl", "show", "-P", "InvocationID", "kubelet", "containerd")
	for _, boots := range []bool{false, true} {
		name := "in the same boot"
		done := n.remedies()
		n.MustExec(t, "systemctl", "stop", agentUnit)
		cmd := n.Self(t.Context())
		cmd.Env = append(cmd.Env, roleVariable+"=beginner")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("begin a bootstrap: %v\n%s", err, out)
		}
		if boots {
			name = "after a power cut"
			lab.Must(t, n.PowerCut(t.Context()))
			lab.Must(t, n.Boot(t.Context()))
		} else {
			n.MustExec(t, "systemctl", "start", agentUnit)
		}
		n.waitView(name+": the bootstrap has ended", func(v *agent.View) bool { return idle(v) && len(n.remedies()) > len(done)+1 })
		if got := n.remedies()[len(done):]; len(got) != 2 || remedy.Acted(strings.TrimPrefix(got[1], "bootstrap ")) {
			t.Errorf("%s: got the remedies %v, want one bootstrap for which nothing was done", name, got)
		}
		if got := n.runs(); got != "" {
			t.Errorf("%s: the command ran: %s; want it left alone", name, got)
		}
		if got := n.MustExec(t, "systemctl", "show", "-P", "InvocationID", "kubelet", "containerd"); !boots && got != invocation {
			t.Errorf("%s: got the units started anew, want them left alone", name)
		}
	}
}

// TestAPauseSurvivesWhatIsRemovedUnderTheAgent removes the agent's socket and its journal while it runs.
func TestAPauseSurvivesWhatIsRemovedUnderTheAgent(t *testing.T) {
	t.Parallel()
	lab.Require(t)
	n := installAgent(t, lab.StartHost(t, lab.HostOptions{Name: "removed"}), scaled())
	v, err := n.view(t.Context())
	lab.Must(t, err)

	n.MustExec(t, "rm", runDir+"/agent.sock")
	lab.Must(t, lab.WaitFor(t.Context(), soon, "the agent can be paused again", func(ctx context.Context) (bool, string) {
		out, err := n.Exec(ctx, "aks-flex-node", "pause", "--reason", "a trial")
		return err == nil && out.Code == 0, fmt.Sprint(out, err)
	}))
	next, err := n.view(t.Context())
	lab.Must(t, err)
	if !next.Started.Equal(v.Started) || !pausedByHand(next) {
		t.Errorf("after the socket was removed: got an agent since %s with the pauses %+v, want the one since %s, paused", next.Started, next.Pauses, v.Started)
	}

	n.MustExec(t, "rm", journalFile)
	n.MustExec(t, "systemctl", "restart", agentUnit)
	next = n.anew(v.Started, "it has looked", func(v *agent.View) bool { return v.JournalProblem == "" })
	if !pausedByHand(next) {
		t.Errorf("after the journal was removed: got the pauses %+v, want the one from before", next.Pauses)
	}
	if !slices.ContainsFunc(n.history(), func(e journal.Entry) bool {
		return e.Kind == journal.KindPause && strings.Contains(e.Reason+e.Message, "a trial")
	}) {
		t.Errorf("after the journal was removed: got the history\n%+v\nwant the pause in it", n.history())
	}
}

// pausedByHand reports whether the one pause is that of this test.
func pausedByHand(v *agent.View) bool { return len(v.Pauses) == 1 && v.Pauses[0].Reason == "a trial" }
