package agent

import (
	"time"

	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/pkg/config"
)

// Past is what decisions need to know beyond what is seen: for whoever decides by the agent's rules while no agent runs.
type Past struct {
	History    decision.History
	Remedy     *decision.Remedy // left unfinished; nil for none
	Pauses     []decision.Pause
	Budget     Budget
	Thresholds decision.Thresholds
	Window     *decision.Window
	DryRun     bool
}

// Recall reads what an agent left: in its journal, which may be nil, and in the pause file. The configuration, which may be nil too, says
// by which limits it counts. It judges as a running agent does.
func Recall(j *journal.Journal, pauseFile string, cfg *config.Config) Past {
	m := Moment()
	now := time.Now()
	var f facts
	if j != nil {
		f = (&keeper{moment: func() journal.Moment { return m }}).read(j)
	}
	p := Past{Pauses: pausesOf(f.pause, readPauseFile(pauseFile, now), now), Thresholds: thresholdsOf(cfg), Window: windowOf(cfg, now)}
	p.DryRun = cfg != nil && cfg.Agent.DryRun
	if j == nil {
		return p
	}
	p.History = f.history(now)
	p.Remedy = leftBehind(f.unfinished)
	p.Budget = Budget{Bootstraps: within(p.History.Bootstraps, now, p.Thresholds), MaxBootstraps: maxBootstraps(p.Thresholds), Unknown: f.budgetUnknown}
	return p
}

// leftBehind is a remedy that an earlier agent began.
func leftBehind(r *journal.Remedy) *decision.Remedy {
	if r == nil {
		return nil
	}
	return &decision.Remedy{Name: r.Name, Since: r.Begun.Wall, Step: "left by an earlier agent"}
}
