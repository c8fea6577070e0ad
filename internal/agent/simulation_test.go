package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/health"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/config"
)

// simulation is a day of a machine on which faults happen at random, with the whole agent on it. A witness, who knows the truth, checks
// every step.
type simulation struct {
	*bed
	r       *rand.Rand
	seed    uint64
	witness *witness
	faults  []string
	later   []func()      // faults that wait to be lifted
	lifts   []time.Time   // and when
	paused  []func()      // ways to end pauses
	gap     time.Duration // how old evidence may be
}

// counts is how often what happened in all simulations.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[what]++
}

func TestADayOfRandomFaults(t *testing.T) {
	counts := &counts{of: map[string]int{}}
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(seeds) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { newSimulation(t, seed, counts).run(24 * time.Hour) })
			})
		}
	})
	// The simulation is worth something only if it got everywhere.
	for _, what := range []string{"reset-failed", "start", "restart", "command", "resumed", "remedies ended", "bootstrap failed", "bootstrap succeeded", "restart failed", "restart succeeded"} {
		if counts.of[what] == 0 && !t.Failed() && seeds >= 50 {
			t.Errorf("in %d days there was nothing of %q; got %v", seeds, what, counts.of)
		}
	}
	t.Logf("in %d days: %v", seeds, counts.of)
}

func newSimulation(t *testing.T, seed uint64, counts *counts) *simulation {
	t.Helper()
	s := &simulation{bed: newBed(t), r: rand.New(rand.NewPCG(seed, 3)), seed: seed, gap: decision.EvidenceGap}
	// Looks that nothing asks for cost the most time: in most of the days there are fewer of them.
	s.cfg.Agent.BootstrapCheckInterval = config.Duration(10 * time.Minute)
	if seed%10 != 0 {
		s.cfg.Agent.StatusInterval, s.cfg.Agent.Thresholds.EvidenceGap = config.Duration(2*time.Minute), config.Duration(3*time.Minute)
		s.gap = 3 * time.Minute
	}
	s.quick = true
	s.witness = newWitness(s, counts)
	s.acted, s.log.heard = s.witness.acted, s.witness.heard
	return s
}

// between is a random time, in whole seconds.
func (s *simulation) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.r.Int64N(int64((most-least)/time.Second)+1))*time.Second
}

// failf tells what is wrong, with all that is needed to understand it.
func (s *simulation) failf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("seed %d, %s: %s\nfaults: %s\nlog:\n%s", s.seed, time.Since(s.witness.began), fmt.Sprintf(format, args...),
		strings.Join(s.faults[max(0, len(s.faults)-12):], "\n        "), s.log.tail(25))
}

// run lets a day pass, repairs the machine and checks that all comes to rest.
func (s *simulation) run(d time.Duration) {
	s.start()
	for end := time.Now().Add(d); time.Now().Before(end) && !s.t.Failed(); {
		after(s.between(time.Minute, 40*time.Minute))
		s.misfortune()
		for i, at := range s.lifts {
			if do := s.later[i]; do != nil && at.Before(time.Now()) {
				s.later[i] = nil
				do()
			}
		}
	}
	s.rest()
	s.stop()
	s.witness.readsHistory(s.readHistory())
}

// rest lifts all faults. The agent must come to rest.
func (s *simulation) rest() {
	for _, do := range s.later {
		if do != nil {
			do()
		}
	}
	for _, end := range s.paused {
		end()
	}
	s.repair()
	after(20 * time.Minute) // a command may run yet
	s.repair()
	after(20 * time.Minute)
	synctest.Wait()
	v := s.view()
	if v.Decision.Action != decision.None || v.Decision.Reason != "Healthy" || v.Remedy != nil {
		s.failf("got %s (%s) and the remedy %+v on a repaired node, want nothing to do: %s", v.Decision.Action, v.Decision.Reason, v.Remedy, v.Decision.Message)
	}
	for _, c := range v.Conditions {
		if good := map[bool]health.Status{true: health.False, false: health.True}[c.Type == health.RestartPending]; c.Status != good || c.Severity != health.None {
			s.failf("got %s %s (%s) on a repaired node: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	if snap := s.snapshot(); snap == nil || time.Since(snap.LastUpdated) > 3*time.Minute || !snap.KubeletRunning || len(asks(s.statusPath())) > 0 {
		s.failf("got the snapshot %+v of a repaired node, want a fresh one that asks for nothing", snap)
	}
	if c := s.told(); c.Status != "True" {
		s.failf("the cluster was last told %+v of a repaired node", c)
	}
}

// readHistory reads the journal that an agent left.
func (s *simulation) readHistory() []journal.Entry {
	j, _, err := journal.Open(filepath.Join(s.stateDir(), JournalName), s.moment(), journal.Options{ReadOnly: true})
	if err != nil {
		s.failf("the journal can't be read at the end: %v", err)
		return nil
	}
	defer j.Close()
	entries, err := j.History(time.Time{}, time.Time{}, 0)
	if err != nil {
		s.failf("the history can't be read at the end: %v", err)
	}
	return entries
}

// lift plans to end a fault.
func (s *simulation) lift(do func(m *machine)) {
	s.then(func() { s.happens(do) })
}

func (s *simulation) then(do func()) {
	s.later, s.lifts = append(s.later, do), append(s.lifts, time.Now().Add(s.between(time.Minute, 2*time.Hour)))
}

// restartAgent ends the agent, lets time pass without one, and begins another.
func (s *simulation) restartAgent(meanwhile func(), most time.Duration) {
	if took := s.stop(); took >= 2*time.Second {
		s.failf("the agent took %s to end", took)
	}
	s.witness.agentEnded()
	meanwhile()
	after(s.between(0, most))
	s.start()
}

// misfortune lets something happen.
func (s *simulation) misfortune() {
	r := s.r
	unit := []string{kubelet, kubelet, containerd}[r.IntN(3)]
	kind := r.IntN(24)
	s.faults = append(s.faults, fmt.Sprintf("%s: %d on %s", time.Since(s.witness.began), kind, unit))
	breaks := func(broken, loops bool) {
		fails := s.between(time.Second, 20*time.Second)
		s.happens(func(m *machine) {
			d := m.unit(unit)
			d.broken, d.loops, d.fails = broken, loops, fails
			d.fail()
		})
	}
	if r.IntN(3) == 0 { // what a bootstrap would come to
		c := command{takes: s.between(time.Second, 5*time.Minute), fails: true, leaves: func(*machine) {}}
		if r.IntN(2) == 0 {
			c.leaves = func(m *machine) {
				m.kubelet.LoadState, m.kubelet.broken, m.kubelet.fails = "loaded", true, 3*time.Second
				m.kubelet.begin()
			}
		}
		s.happens(func(m *machine) { m.command = c })
	} else {
		takes := s.between(time.Second, 5*time.Minute)
		s.happens(func(m *machine) { m.command = command{takes: takes} })
	}
	switch kind {
	case 0, 1:
		breaks(false, false)
	case 2, 3, 4:
		breaks(true, false)
	case 5:
		breaks(true, true)
		s.lift(func(m *machine) { m.unit(unit).loops = false })
	case 6:
		s.happens(func(m *machine) { m.unit(unit).stop() })
	case 7: // somebody who stops it whenever it runs
		for range 30 {
			s.happens(func(m *machine) { m.unit(unit).stop() })
			after(time.Minute)
		}
	case 8:
		s.happens(func(m *machine) {
			d := m.unit(unit)
			d.stop()
			d.LoadState, d.UnitFileState = "masked", "masked"
		})
		s.lift(func(m *machine) {
			m.unit(unit).LoadState, m.unit(unit).UnitFileState = "loaded", "enabled"
			m.unit(unit).begin()
		})
	case 9:
		breaks(r.IntN(2) == 0, false)
		s.happens(func(m *machine) { m.unit(unit).UnitFileState = "disabled" })
		s.lift(func(m *machine) { m.unit(unit).UnitFileState = "enabled" })
	case 10, 11:
		s.happens(func(m *machine) {
			m.unit(unit).stop()
			m.unit(unit).LoadState, m.unit(unit).UnitFileState = "not-found", ""
		})
	case 12, 13:
		reason := map[string][]string{kubelet: {"HealthzSilent", "HealthzFailed"}, containerd: {"NotResponding", "RuntimeNotReady"}}[unit][r.IntN(2)]
		broken := r.IntN(2) == 0
		s.happens(func(m *machine) { m.unit(unit).broken, m.sick[unit] = broken, reason })
		s.lift(func(m *machine) { delete(m.sick, unit) })
	case 14:
		arc := r.IntN(2) == 0
		s.happens(func(m *machine) { m.linkCut, m.arcCut = true, arc })
		s.lift(func(m *machine) { m.linkCut, m.arcCut = false, false })
	case 15:
		s.happens(func(m *machine) { m.dark = true })
		s.lift(func(m *machine) { m.dark = false })
	case 16:
		what := []string{hangUnits, hangNode, hangArc, hangHost}[r.IntN(4)]
		s.mu.Lock()
		hangs := s.hangs[what] != nil
		s.mu.Unlock()
		if !hangs {
			s.then(s.hang(what))
		}
	case 17:
		s.pauses(r.IntN(2) == 0)
	case 18:
		switch r.IntN(3) {
		case 0:
			s.dryRun(true)
			s.then(func() { s.dryRun(false) })
		case 1:
			s.configures(nil, fmt.Errorf("unexpected }"))
			s.then(func() { s.configures(nil, nil) })
		default:
			s.configures(nil, nil)
		}
	case 19:
		s.restartAgent(s.reboot, 10*time.Minute)
	case 20: // often in the midst of a remedy
		breaks(true, false)
		for range 20 * r.IntN(2) {
			if after(5 * time.Second); s.witness.busy() {
				break
			}
		}
		s.restartAgent(func() {}, 3*time.Minute)
	case 21:
		by := s.between(0, 200*time.Hour) - 100*time.Hour
		s.happens(func(*machine) { s.skew, s.unsynced = by, true }) // a clock that is off by days is not in step with others
		s.then(func() { s.happens(func(*machine) { s.skew, s.unsynced = 0, false }) })
	case 22:
		switch r.IntN(4) {
		case 0:
			_ = os.Remove(s.statusPath())
		case 1:
			run := filepath.Join(s.dir, "run")
			if os.RemoveAll(run) == nil && os.WriteFile(run, nil, 0o600) == nil {
				s.then(func() { _ = os.Remove(run) })
			}
		case 2:
			s.happens(func(m *machine) { m.notReady, m.noRunc, m.diskFree = true, true, 3 })
			s.lift(func(m *machine) { m.notReady, m.noRunc, m.diskFree = false, false, 50 })
		default:
			if r.IntN(4) == 0 { // else nothing would be left of the day: it takes a day to trust a new journal
				s.restartAgent(func() {
					s.write(filepath.Join(s.stateDir(), JournalName), strings.Repeat("garbage", 1000))
					s.witness.lostHistory()
				}, time.Minute)
			}
		}
	default:
		s.repair()
	}
}

func (s *simulation) dryRun(on bool) {
	s.witness.configured(on)
	s.configures(func(c *config.Config) { c.Agent.DryRun = on }, nil)
}

// pauses pauses the agent by file or by command.
func (s *simulation) pauses(byFile bool) {
	resume := func() { _ = os.Remove(s.pauseFile()) }
	if byFile {
		s.write(s.pauseFile(), "by the simulation")
		after(lookAtFilesEvery + time.Second) // until it is sure to be seen
	} else {
		if s.a.Pause(s.t.Context(), journal.Pause{By: "the simulation"}) != nil {
			return // the journal is not open yet
		}
		resume = func() { _ = s.a.Resume(s.t.Context(), "the simulation") }
	}
	s.witness.pause(byFile, true)
	once := func() { s.witness.pause(byFile, false); resume() }
	s.then(once)
	s.paused = append(s.paused, once)
}
