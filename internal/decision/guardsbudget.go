package decision

import (
	"fmt"
	"time"
)

func guardBudget(f *facts, p proposal) Guard {
	used, until := f.budget()
	state := fmt.Sprintf("%d of %d bootstraps in %s are used", used, f.t.MaxBootstraps, words(f.t.BudgetWindow))
	if p.action != Bootstrap || until.IsZero() || f.Remedy != nil { // the last one has yet to show its effect
		return free("%s", state)
	}
	return held(Hold, "BudgetUsedUp", state+": this needs a person", until, "somebody who finds out why bootstraps don't help")
}

func guardCoolDown(f *facts, p proposal) Guard {
	pause, until := f.coolDown()
	switch {
	case pause == 0:
		return free("no bootstrap was made for this")
	case !f.Now.Before(until):
		return free("the pause of %s after the last bootstrap is over", words(pause))
	case p.action != Bootstrap:
		return free("the pause of %s after the last bootstrap ends at %s; it is for bootstraps alone", words(pause), stamp(until))
	}
	return held(Wait, "CoolDown", fmt.Sprintf("after the last bootstrap there is a pause of %s", words(pause)), until, "")
}

func guardCommand(f *facts, p proposal) Guard {
	switch {
	case f.CanBootstrap:
		return free("it is configured how to bootstrap")
	case p.action != Bootstrap:
		return free("it is not configured how to bootstrap, which is not needed now")
	}
	return held(Hold, "NoBootstrapCommand", "it is not configured how to bootstrap this host", time.Time{}, "a bootstrap command in the configuration")
}

func guardWindow(f *facts, _ proposal) Guard {
	w := f.Window
	switch {
	case w == nil:
		return free("none is set: every time is fine")
	case f.Now.Before(w.From):
		return held(Hold, "OutsideWindow", "the maintenance window begins at "+stamp(w.From), w.From, "")
	case !f.Now.Before(w.To):
		return held(Hold, "OutsideWindow", "the maintenance window ended at "+stamp(w.To), time.Time{}, "the next window")
	}
	return free("it is open until %s", stamp(w.To))
}

func guardDryRun(f *facts, _ proposal) Guard {
	if f.DryRun {
		return held(Hold, "DryRun", "this is a dry-run: it only says what it would do", time.Time{}, "agent.dryRun: false in the configuration")
	}
	return free("this is no dry-run")
}
