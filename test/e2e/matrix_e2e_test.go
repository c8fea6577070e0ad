//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/test/azcmagent/standin"
	"github.com/aks-flex-node/agent/test/lab"
)

const (
	// faultsVariable makes the run of the whole matrix write faultsPath.
	faultsVariable = "FAULTS_DOC"
	faultsPath     = "../../docs/faults.md"

	bootstrapMark   = "/root/bootstrapped" // what a bootstrap leaves behind
	bootstrapScript = "/root/bootstrap"
	repairScript    = "/root/repair" // what it does, where a row gives it something to do
	arcProgram      = "/opt/azcmagent/bin/azcmagent"
	misbehave       = "/opt/misbehave"
)

// trouble is a row of the matrix: a fault, and what is expected of the agent meanwhile and after it.
type trouble struct {
	name string
	// The steps, nil for nothing to do: prepare and broken while the agent is stopped, before and after all was seen to be well; into while
	// it runs; check once all that is expected was seen; lift ends the fault; tidy while the agent is stopped.
	prepare, broken, into, check, lift, tidy func(*patient)

	// What has to be seen, each entry in words. A condition that ends in ", pending" may also be one that is not shown yet.
	conditions, snapshot, decisions []string
	// actions are all that may be begun, and have to be. None begun is what is asked of most rows.
	actions []string
	// actionsAfter are what the agent makes up for once the fault is over.
	actionsAfter []string
	// may be seen besides: types of conditions, fields of the snapshot, decisions.
	may []string
	// looks is how many whole rounds the fault lasts at least: for rows in which there is nothing to wait for.
	looks uint64
	// ends are units whose process the fault itself ends.
	ends []string
	// note is what else is asserted by check; recovery says how it comes back.
	note, recovery string
}

// lane is a host on which rows follow each other.
type lane struct {
	name    string
	rows    []trouble
	private bool // in a cluster of its own, since its rows break that
}

func lanes() []lane {
	return []lane{
		{name: "kubelet", rows: kubeletTroubles()},
		{name: "containerd", rows: containerdTroubles()},
		{name: "host", rows: hostTroubles()},
		{name: "link", rows: linkTroubles(), private: true},
	}
}

// TestFaultMatrix breaks everything that the agent looks at, lives on or talks to, in every way the lab can, with an agent that acts. In no
// row is a working node bootstrapped, an admin overruled, or the loss of a link answered by an action; in every row all is well again by
// itself once the fault is over. What is expected is in the rows, and docs/faults.md is written from them by a run in which all held.
func TestFaultMatrix(t *testing.T) {
	t.Parallel()
	program, odd := lab.Program(t, agentProgram), lab.Program(t, "github.com/aks-flex-node/agent/test/e2e/misbehave")
	arc := filepath.Join(t.TempDir(), "azcmagent")
	lab.Must(t, standin.Build(t.Context(), arc))
	shared := cluster(t, lab.ClusterOptions{NodeGrace: 15 * time.Second})
	own := cluster(t, lab.ClusterOptions{NodeGrace: 10 * time.Minute}) // it never thinks ill of a node that it does not hear of
	var held atomic.Int64
	t.Run("rows", func(t *testing.T) { // which returns when all of them are done
		for _, l := range lanes() {
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				c := shared
				if l.private {
					c = own
				}
				h := c.MustJoin(t, l.name, lab.JoinOptions{})
				for from, to := range map[string]string{odd: misbehave, arc: "/opt/azcmagent.standin", program: "/root/aks-flex-node"} {
					lab.Must(t, h.CopyIn(t.Context(), from, to, 0o755))
				}
				lab.Must(t, h.WriteFile(t.Context(), bootstrapScript, []byte("touch "+bootstrapMark+"\n[ ! -e "+repairScript+" ] || sh -ex "+repairScript+"\n"), 0o600))
				n := installAgent(t, h, matrixSettings())
				for _, r := range l.rows {
					ended := false
					t.Run(r.name, func(t *testing.T) {
						r.run(t, c, node{n.Host, t})
						held.Add(1)
						ended = true
					})
					if !ended && t.Failed() {
						t.Fatalf("%q did not come to its end: the host is in no state for the rows after it", r.name)
					}
				}
			})
		}
	})
	checkFaultsDoc(t, int(held.Load()))
}

func matrixSettings() settings {
	s := scaled().with(settings{"bootstrap": map[string]any{"command": []string{"/bin/sh", bootstrapScript}, "timeout": "1m"}})
	thresholds, ok := s["thresholds"].(map[string]any)
	if !ok {
		panic("scaled settings have no thresholds")
	}
	thresholds["evidenceGap"] = "2m" // Arc is looked at once a minute
	return s
}

// run is one row, from a node that works to one that works.
func (r trouble) run(t *testing.T, c *lab.Cluster, n node) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			n.dump()
		}
	})
	p := &patient{node: n, c: c, static: map[string]bool{health.ClockSynchronized: true, health.DiskSpace: true}}
	p.stopAgent()
	p.sh("rm -rf /var/lib/aks-flex-node/* " + bootstrapMark + " " + repairScript) // what was done in earlier rows does not count in this one
	p.do(r.prepare)
	p.startAgent()
	p.until("the node is well before the fault", p.well)
	p.begin()
	if r.broken != nil {
		p.stopAgent()
		r.broken(p)
		p.startAgent()
	}
	p.do(r.into)
	p.until("all that is expected is seen", func(s sightOfAgent) (bool, string) { return r.shows(p, s) })
	p.do(r.check)
	p.do(r.lift)
	p.lifted = time.Now()
	p.until("the node is well again", p.well)
	r.judge(p)
	if r.tidy != nil {
		p.stopAgent()
		r.tidy(p)
		p.startAgent()
	}
}

// shows reports whether all that has to be seen was seen.
func (r trouble) shows(p *patient, s sightOfAgent) (bool, string) {
	var missing []string
	for _, c := range r.conditions {
		if shown := strings.TrimSuffix(c, pendingWord); !p.seen[shown] && !(shown != c && p.seen[c]) {
			missing = append(missing, c)
		}
	}
	for _, fact := range slices.Concat(r.snapshot, r.decisions) {
		if !p.seen[fact] {
			missing = append(missing, fact)
		}
	}
	begun := p.begun(s)
	for _, a := range r.actions {
		if !slices.Contains(begun, a) {
			missing = append(missing, a)
		}
	}
	if s.view != nil && s.view.Counters.Looks < p.looks+r.looks {
		missing = append(missing, fmt.Sprintf("%d rounds", r.looks))
	}
	return len(missing) == 0, fmt.Sprintf("missing %q; seen %q", missing, p.allSeen())
}

// judge asserts that nothing else was seen and nothing else was done.
func (r trouble) judge(p *patient) {
	p.t.Helper()
	p.t.Logf("seen: %s; well again %s after the end of the fault", strings.Join(p.allSeen(), "; "), time.Since(p.lifted).Round(100*time.Millisecond))
	// The control plane of a busy machine loses sight of its nodes now and then. In every row nothing may come of it.
	expected := map[string]bool{"APIServerReachable": true, "NodeReady": true, "kubeletReady": true, "hold LinkLost": true, "hold NodeNotReady": true}
	for _, fact := range slices.Concat(r.conditions, r.snapshot, r.decisions, r.may) {
		expected[fact], expected[strings.Fields(fact)[0]] = true, true
	}
	for _, a := range []decision.Action{decision.Hold, decision.Restart, decision.Bootstrap} {
		delete(expected, string(a)) // of decisions the whole counts
	}
	for fact := range p.seen {
		kind, rest, _ := strings.Cut(fact, " ")
		switch {
		case expected[fact], expected[kind], kind == string(decision.Wait), strings.Contains(rest, health.ReasonDependencyUnhealthy):
		default:
			p.t.Errorf("got %q, want nothing of the kind", fact)
		}
	}
	begun := p.begun(p.last)
	if want := slices.Sorted(slices.Values(slices.Concat(r.actions, r.actionsAfter))); !slices.Equal(begun, want) {
		p.t.Errorf("got the actions %q, want %q", begun, want)
	}
	for unit, before := range p.invocations {
		if after := p.invocation(unit); after != before && !slices.Contains(r.ends, unit) && !slices.Contains(begun, "restart "+unit) {
			p.t.Errorf("got %s started anew, want it left alone", unit)
		}
	}
	_, err := p.ReadFile(bootstrapMark)
	if got, want := err == nil, slices.Contains(r.actions, "bootstrap"); got != want {
		p.t.Errorf("got a bootstrap: %v, want %v", got, want)
	}
}

func (r trouble) cells() []string {
	words := func(all []string, none string) string {
		if len(all) == 0 {
			return none
		}
		return strings.Join(all, "<br>")
	}
	decided := words(r.decisions, "none")
	if r.note != "" {
		decided += "; " + r.note
	}
	done := words(r.actions, "none")
	if len(r.actionsAfter) > 0 {
		done += "; after it " + words(r.actionsAfter, "")
	}
	return []string{r.name, words(r.conditions, "none"), words(r.snapshot, "unchanged"), decided, done, r.recovery}
}

const faultsHead = `# What the agent does when things break

Made by ` + "`FAULTS_DOC=1 go test -tags e2e -run TestFaultMatrix ./test/e2e`" + ` on real hosts in a real cluster, in a run in which every cell held.

Each row is a fault on a node that worked, with an agent that acts and whose limits are scaled down. *Conditions* are those that are not
as they should be; *pending* ones may not be shown yet while the fault lasts as long as in the test (docs/conditions.md says when they are).
*Snapshot* has the fields that changed. *Decision* has what was decided, without waiting; *actions* all that was done to the host, *none*
meaning that also systemd's own word is that nothing was started anew by the agent. *Recovery* is how all became well again. That no
working node was bootstrapped, no admin overruled and no lost link answered by an action is asserted in every row.

`

const clockRow = "| clock 1 h ahead, 1 h behind | by synctest in internal/decision and internal/journal: no namespace can shift this clock | | | | |\n"

// checkFaultsDoc writes docs/faults.md if all rows held, or holds that it has the rows that there are.
func checkFaultsDoc(t *testing.T, held int) {
	t.Helper()
	rows := 0
	var b strings.Builder
	b.WriteString(faultsHead + "| fault | conditions | snapshot | decision | actions | recovery |\n|---|---|---|---|---|---|\n")
	for _, l := range lanes() {
		rows += len(l.rows)
		for _, r := range l.rows {
			b.WriteString("| " + strings.Join(r.cells(), " | ") + " |\n")
		}
	}
	b.WriteString(clockRow)
	if os.Getenv(faultsVariable) != "" {
		if t.Failed() || held != rows {
			t.Errorf("%s is not written: of %d rows %d hold", faultsPath, rows, held)
			return
		}
		lab.Must(t, os.WriteFile(faultsPath, []byte(b.String()), 0o600))
		return
	}
	have, err := os.ReadFile(faultsPath)
	if err != nil || string(have) != b.String() {
		t.Errorf("%s does not say what the rows do (%v): make it anew as its second line says", faultsPath, err)
	}
}

// do does a step, if there is one.
func (p *patient) do(step func(*patient)) {
	p.t.Helper()
	if step != nil {
		step(p)
	}
}

// sh runs a script on the host.
func (p *patient) sh(script string) string {
	p.t.Helper()
	return p.MustExec(p.t, "sh", "-ec", script)
}

// until looks again and again, and notes all that is seen, until it is as wanted.
func (p *patient) until(what string, is func(sightOfAgent) (bool, string)) {
	p.t.Helper()
	lab.Must(p.t, lab.WaitFor(p.t.Context(), 3*time.Minute, what, func(ctx context.Context) (bool, string) {
		p.last = p.look(ctx)
		return is(p.last)
	}))
}
