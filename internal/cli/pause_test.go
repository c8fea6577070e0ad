package cli

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aks-flex-node/agent/internal/agent"
	"github.com/aks-flex-node/agent/internal/decision"
	"github.com/aks-flex-node/agent/internal/journal"
	"github.com/aks-flex-node/agent/internal/localapi"
)

func TestPauseSaysWhatNowHoldsAndTillWhen(t *testing.T) {
	t.Setenv("SUDO_USER", "jo")
	for name, c := range map[string]struct {
		args  []string
		asked string
		want  string // in the first line
	}{
		"without an end": {nil, "pause by jo (aks-flex-node pause): no reason given",
			"Paused until: aks-flex-node resume, by jo (aks-flex-node pause): no reason given"},
		"for a time": {[]string{"--for", "2h", "--reason", "new switch"}, "pause by jo (aks-flex-node pause): new switch until 2000-01-01T02:00:00Z",
			"Paused until 2000-01-01 03:00:00 CET (for 120m), by jo (aks-flex-node pause): new switch"},
		"until a time of day": {[]string{"--until", "17:30"}, "pause by jo (aks-flex-node pause): no reason given until 2000-01-01T16:30:00Z",
			"Paused until 2000-01-01 17:30:00 CET (for 16h), by jo"},
		"a reason of several lines": {[]string{"--reason", "a\nb\x1b"}, "pause by jo (aks-flex-node pause): a\nb\x1b",
			`Paused until: aks-flex-node resume, by jo (aks-flex-node pause): a b\x1b`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(acting().view())
				cmd := newCommand(t, f)
				code := cmd.run(t.Context(), append([]string{"pause"}, c.args...))
				lines := strings.Split(cmd.out.String(), "\n")
				if code != 0 || !slices.Equal(f.asked, []string{c.asked}) || !strings.HasPrefix(lines[0], c.want) {
					t.Errorf("got exit %d, %q, %q and %q; want %q and %q", code, f.asked, cmd.out.String(), cmd.err.String(), c.asked, c.want)
				}
				if rest := strings.Join(lines[1:], "\n"); !strings.HasPrefix(rest, "The agent goes on observing and changes nothing.\nThe file "+cmd.pausing+" pauses too, while it exists.\n") {
					t.Errorf("got %q", rest)
				}
			})
		})
	}
}

func TestPauseSaysWhatItDoesNotStop(t *testing.T) {
	v := acting().view()
	v.Remedy = &decision.Remedy{Name: "restart", Unit: "kubelet.service", Step: "verify"}
	c := newCommand(t, newFake(v))
	if code := c.run(t.Context(), []string{"pause"}); code != 0 || !strings.Contains(c.out.String(), "goes on to its end: restart kubelet.service, step verify.") {
		t.Errorf("got exit %d and %q", code, c.out.String())
	}
}

func TestResumeSaysWhetherTheFileStillPauses(t *testing.T) {
	t.Setenv("SUDO_USER", "jo")
	f := newFake(acting().view())
	c := newCommand(t, f)
	if code := c.run(t.Context(), []string{"resume"}); code != 0 || c.out.String() != "No command pauses the agent any more.\n" {
		t.Errorf("got exit %d and %q", code, c.out.String())
	}
	if err := os.WriteFile(c.pausing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.out.Reset()
	if code := c.run(t.Context(), []string{"resume"}); code != 0 || !strings.Contains(c.out.String(), "The file "+c.pausing+" pauses the agent as well: remove it to let the agent act.\n") {
		t.Errorf("got exit %d and %q", code, c.out.String())
	}
	if want := []string{"resume by jo (aks-flex-node resume)", "resume by jo (aks-flex-node resume)"}; !slices.Equal(f.asked, want) {
		t.Errorf("got %q, want %q", f.asked, want)
	}
}

func TestPauseAndResumeWithoutAnAgentAreForTheNextOne(t *testing.T) {
	c := newCommand(t, absent())
	paused := func() *journal.Pause {
		t.Helper()
		j, _, err := journal.Open(c.journalPath, agent.Moment(), journal.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		p, err := j.Paused(agent.Moment())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	code := c.run(t.Context(), []string{"pause", "--for", "3d", "--reason", "new switch"})
	if p := paused(); code != 0 || p == nil || p.Reason != "new switch" || p.Until == nil || time.Until(*p.Until) < 71*time.Hour {
		t.Errorf("got exit %d, %+v, %q and %q", code, p, c.out.String(), c.err.String())
	}
	if !strings.Contains(c.out.String(), "No agent runs here now; the next one that does will be paused.") {
		t.Errorf("got %q", c.out.String())
	}
	m, problem := c.remember(settings{}, true)
	if len(m.Pauses) != 1 || m.Pauses[0].Reason != "new switch" || problem != "" {
		t.Errorf("explain: got %+v and %q, want the pause", m, problem)
	}
	c.out.Reset()
	code = c.run(t.Context(), []string{"resume"})
	if p := paused(); code != 0 || p != nil || !strings.Contains(c.out.String(), "No agent runs here now.") {
		t.Errorf("got exit %d, %+v and %q", code, p, c.out.String())
	}
}

func TestWhyThereIsNoPause(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"not for this user": {fs.ErrPermission, "this user may not tell the agent what to do: run as root"},
		"the agent says no": {&localapi.Error{Message: "the journal can't be written"}, "the journal can't be written"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(nil)
			f.err = c.err
			cmd := newCommand(t, f)
			if code := cmd.run(t.Context(), []string{"pause"}); code != ExitError || !strings.Contains(cmd.err.String(), c.want) || cmd.out.Len() > 0 {
				t.Errorf("got exit %d, %q and %q", code, cmd.out.String(), cmd.err.String())
			}
		})
	}
	cmd := newCommand(t, absent())
	writeJournal(t, cmd.journalPath)
	j, _, err := journal.Open(cmd.journalPath, agent.Moment(), journal.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if code := cmd.run(t.Context(), []string{"pause"}); code != ExitError || !strings.Contains(cmd.err.String(), "another process has the journal") {
		t.Errorf("got exit %d and %q", code, cmd.err.String())
	}
}

func TestWhoPausedIsThePersonNotRoot(t *testing.T) {
	t.Setenv("SUDO_USER", "jo\x1b")
	if got, want := byWhom("pause"), `jo\x1b (aks-flex-node pause)`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	t.Setenv("SUDO_USER", "")
	if got := byWhom("pause"); strings.HasPrefix(got, " ") || !strings.HasSuffix(got, " (aks-flex-node pause)") {
		t.Errorf("got %q", got)
	}
}
