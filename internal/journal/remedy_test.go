package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestARemedyFromBeginningToEnd(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	begun := h.Moment
	id, err := j.Begin(begun, Plan{Name: "restart", Budget: "restart kubelet", Decision: json.RawMessage(`{"why":"KubeletRunning"}`), Steps: []string{"reset-failed", "start", "verify"}})
	must(t, err)
	must(t, j.Step(h.run(time.Second), id, Progress{Step: "reset-failed", State: StepStarted, Limit: time.Minute, Data: json.RawMessage(`{"was":"failed"}`)}))
	must(t, j.Step(h.run(time.Second), id, Progress{Step: "reset-failed", State: StepDone, Output: "done"}))
	done := h.Moment
	must(t, j.Step(h.run(time.Second), id, Progress{Step: "start", State: StepStarted, Limit: time.Minute}))

	want := &Remedy{Version: 1, ID: id, Name: "restart", Budget: "restart kubelet", Decision: json.RawMessage(`{"why":"KubeletRunning"}`), Begun: begun, Steps: []Step{
		{Name: "reset-failed", State: StepDone, Changed: done, Tries: 1, Output: "done", Data: json.RawMessage(`{"was":"failed"}`)},
		{Name: "start", State: StepStarted, Changed: h.Moment, Tries: 1, Limit: time.Minute},
		{Name: "verify", State: StepPending},
	}}
	for _, when := range []string{"at once", "after a restart"} {
		got, err := j.Unfinished()
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got  %+v\nwant %+v", when, got, want)
		}
		j = reopen(t, j, h.Moment)
	}

	if _, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Steps: []string{"run"}}); !errors.Is(err, ErrInProgress) || !strings.Contains(err.Error(), "restart") {
		t.Errorf("begin another: got error %v, want that restart is in progress", err)
	}
	must(t, j.Finish(h.run(time.Second), id, "succeeded", "the kubelet runs"))
	must(t, j.Finish(h.run(time.Second), id, "succeeded", "told twice"))
	if err := j.Finish(h.Moment, id, "failed", ""); !errors.Is(err, ErrNotInProgress) {
		t.Errorf("finish it otherwise: got error %v, want %v", err, ErrNotInProgress)
	}
	if err := j.Step(h.Moment, id, Progress{Step: "verify", State: StepStarted}); !errors.Is(err, ErrNotInProgress) {
		t.Errorf("a step after the end: got error %v, want %v", err, ErrNotInProgress)
	}
	if got, err := j.Unfinished(); got != nil || err != nil {
		t.Errorf("after the end: got unfinished %v, error %v, want none", got, err)
	}
	all, err := j.Remedies(0)
	must(t, err)
	if len(all) != 1 || all[0].Outcome != "succeeded" || all[0].Message != "the kubelet runs" || all[0].InProgress() {
		t.Errorf("got remedies %+v, want the one that succeeded", all)
	}
	if id2, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Steps: []string{"run"}}); err != nil || id2 != id+1 {
		t.Errorf("begin another after the end: got id %d and error %v, want %d", id2, err, id+1)
	}
}

func TestWhichStatesOfAStepMayFollow(t *testing.T) {
	const none = StepState("")
	all := []StepState{StepPending, StepStarted, StepDone, StepFailed, UndoStarted, UndoDone, UndoFailed, none}
	want := map[StepState][]StepState{
		StepPending: {StepStarted},
		StepStarted: {StepDone, StepFailed, UndoStarted},
		StepDone:    {StepStarted, UndoStarted},
		StepFailed:  {StepStarted, UndoStarted},
		UndoStarted: {UndoDone, UndoFailed},
		UndoDone:    {},
		UndoFailed:  {UndoStarted},
	}
	for before, after := range want {
		for _, s := range all {
			may := s == before
			for _, a := range after {
				may = may || s == a
			}
			if got := s.mayFollow(before); got != may {
				t.Errorf("%q after %q: got %v, want %v", s, before, got, may)
			}
		}
	}
}

func TestWhatIsNoProgress(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	id, err := j.Begin(h.Moment, Plan{Name: "restart", Steps: []string{"start"}})
	must(t, err)
	tests := map[string]struct {
		id   uint64
		p    Progress
		want string
	}{
		"another remedy":        {id + 1, Progress{Step: "start", State: StepStarted}, ErrNotInProgress.Error()},
		"another step":          {id, Progress{Step: "stop", State: StepStarted}, `no step "stop"`},
		"done before started":   {id, Progress{Step: "start", State: StepDone}, `"done" can't follow "pending"`},
		"no state":              {id, Progress{Step: "start"}, `"" can't follow`},
		"data that is no JSON":  {id, Progress{Step: "start", State: StepStarted, Data: json.RawMessage("{")}, "no JSON"},
		"data that is too long": {id, Progress{Step: "start", State: StepStarted, Data: json.RawMessage(`"` + strings.Repeat("x", maxStepData) + `"`)}, "no JSON of up to"},
	}
	for name, tt := range tests {
		if err := j.Step(h.Moment, tt.id, tt.p); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, tt.want)
		}
	}
	if err := j.Err(); err != nil {
		t.Errorf("a mistake of the caller counts as one of the disk: %v", err)
	}
	if err := j.Finish(h.Moment, id, "", "no outcome"); err == nil {
		t.Error("finish without an outcome: got no error")
	}
}

func TestWhatIsNoPlan(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	tests := map[string]Plan{
		"no name":                  {Steps: []string{"a"}},
		"no steps":                 {Name: "restart"},
		"the same step twice":      {Name: "restart", Steps: []string{"a", "b", "a"}},
		"a step without a name":    {Name: "restart", Steps: []string{""}},
		"too many steps":           {Name: "restart", Steps: make([]string, maxSteps+1)},
		"a decision that is long":  {Name: "restart", Steps: []string{"a"}, Decision: make([]byte, maxDecision+1)},
		"a decision that is wrong": {Name: "restart", Steps: []string{"a"}, Decision: json.RawMessage("{")},
	}
	for name, p := range tests {
		if _, err := j.Begin(h.Moment, p); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if u, err := j.Unfinished(); u != nil || err != nil {
		t.Errorf("got unfinished %v, error %v, want none", u, err)
	}
}

func TestOutputIsCutToItsEnd(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a short one":      {"output\n\tmore", "output\n\tmore"},
		"a long one":       {strings.Repeat("x", 5000) + "the end", "…" + strings.Repeat("x", maxOutput-3-7) + "the end"},
		"within a letter":  {strings.Repeat("ä", maxOutput), "…" + strings.Repeat("ä", (maxOutput-3)/2)},
		"terminal codes":   {"\x1b[31mred\x07", "?[31mred?"},
		"what is no UTF-8": {"a\xff\xfeb", "a??b"},
	}
	for name, tt := range tests {
		if got := clip(tt.text, maxOutput); got != tt.want {
			t.Errorf("%s: got %.30q… (%d bytes), want %.30q… (%d bytes)", name, got, len(got), tt.want, len(tt.want))
		}
	}
}

func TestTheLargestRemedyIsRecorded(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	p := Plan{Name: strings.Repeat("n", maxName), Decision: json.RawMessage(`"` + strings.Repeat("<", maxDecision-2) + `"`)}
	for i := range maxSteps {
		p.Steps = append(p.Steps, fmt.Sprintf("%0*d", maxName, i))
	}
	id, err := j.Begin(h.Moment, p)
	must(t, err)
	for _, s := range p.Steps {
		must(t, j.Step(h.Moment, id, Progress{Step: s, State: StepStarted, Data: json.RawMessage(`"` + strings.Repeat(`\u0000`, 170) + `"`)}))
		must(t, j.Step(h.Moment, id, Progress{Step: s, State: StepFailed, Output: strings.Repeat(`"`, maxOutput), Error: strings.Repeat("\u2028", maxText/3)}))
	}
	must(t, j.Finish(h.Moment, id, "failed", strings.Repeat("\xff", maxText)))
	reopen(t, j, h.Moment)
}

func TestTimeLeft(t *testing.T) {
	h := newHost()
	started := Step{State: StepStarted, Limit: time.Minute, Changed: h.Moment}
	undone := started
	undone.State = UndoDone
	later, clockBack, rebooted := *h, *h, *h
	later.run(40 * time.Second)
	clockBack.run(40 * time.Second)
	clockBack.setClock(-time.Hour)
	rebooted.reboot(time.Second)
	tests := map[string]struct {
		step Step
		now  Moment
		want time.Duration
	}{
		"at once":                         {started, h.Moment, time.Minute},
		"later":                           {started, later.Moment, 20 * time.Second},
		"later, with the clock set back":  {started, clockBack.Moment, 20 * time.Second},
		"after a restart of the host":     {started, rebooted.Moment, 0},
		"when it is over":                 {started, func() Moment { h := *h; return h.run(time.Hour) }(), 0},
		"of a step that is not under way": {undone, h.Moment, 0},
	}
	for name, tt := range tests {
		if got := tt.step.TimeLeft(tt.now); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

func TestOldRemediesArePruned(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	for range maxRemedies + 10 {
		attempt(t, j, h.run(time.Minute), "bootstrap")
	}
	all, err := j.Remedies(0)
	must(t, err)
	if len(all) != maxRemedies {
		t.Errorf("got %d remedies, want %d", len(all), maxRemedies)
	}
	two, err := j.Remedies(2)
	must(t, err)
	if len(two) != 2 || two[0].ID != all[0].ID || two[1].ID != two[0].ID-1 {
		t.Errorf("the last two: got %v, want the newest first", two)
	}
}

func TestAnIDIsNotUsedAgainInTheNextJournal(t *testing.T) {
	h := newHost()
	path := newPath(t)
	j := openSound(t, path, h.Moment)
	first, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Steps: []string{"run"}})
	must(t, err)
	must(t, j.Close())
	writeFile(t, path, []byte("garbage"))
	j, _ = open(t, path, h.run(time.Minute))
	second, err := j.Begin(h.Moment, Plan{Name: "bootstrap", Steps: []string{"run"}})
	must(t, err)
	if second <= first {
		t.Errorf("got id %d after %d", second, first)
	}
}
