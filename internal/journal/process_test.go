package journal

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// work makes one change after the other, without end, from where the journal says that an earlier process got. It prints how many changes
// were made once each of them is acknowledged.
func work(j *Journal) error {
	changes := []func(now Moment, id uint64, round int) error{
		func(now Moment, _ uint64, round int) error {
			_, err := j.Begin(now, Plan{Name: "bootstrap", Budget: "bootstrap", Decision: json.RawMessage(strconv.Itoa(round)), Steps: []string{"run"}})
			return err
		},
		func(now Moment, id uint64, _ int) error {
			return j.Step(now, id, Progress{Step: "run", State: StepStarted, Limit: time.Minute})
		},
		func(now Moment, id uint64, _ int) error {
			return j.Step(now, id, Progress{Step: "run", State: StepDone, Output: strings.Repeat("output ", 200)})
		},
		func(now Moment, id uint64, _ int) error { return j.Finish(now, id, "succeeded", "") },
		func(now Moment, _ uint64, _ int) error {
			return j.Record(now, Entry{Kind: KindCondition, To: "changed"})
		},
		func(now Moment, _ uint64, _ int) error { return j.Pause(now, Pause{By: "test"}) },
		func(now Moment, _ uint64, _ int) error { return j.Resume(now, "test") },
	}
	done, id, err := progress(j)
	for ; err == nil; done++ {
		if err := changes[done%len(changes)](realMoment(), id, done/len(changes)); err != nil {
			return err
		}
		fmt.Println(done + 1)
		_, id, err = progress(j)
	}
	return err
}

// progress tells from what is in the journal how many changes work has made, and the last remedy's id.
func progress(j *Journal) (done int, id uint64, err error) {
	remedies, err := j.Remedies(1)
	if err != nil || len(remedies) == 0 {
		return 0, 0, err
	}
	r := remedies[0]
	round, err := strconv.Atoi(string(r.Decision))
	if err != nil {
		return 0, 0, err
	}
	history, err := j.History(time.Time{}, time.Time{}, 1)
	if err != nil {
		return 0, 0, err
	}
	pause, err := j.Paused(realMoment())
	if err != nil {
		return 0, 0, err
	}
	last := history[0].To
	if (pause != nil) != (last == "paused") {
		return 0, 0, fmt.Errorf("paused is %v and the last entry is %q", pause, last)
	}
	in := []string{"begun/pending", "begun/started", "begun/done", "succeeded/done", "changed/done", "paused/done", "resumed/done"}
	i := slices.Index(in, last+"/"+string(r.Steps[0].State))
	if i < 0 || r.InProgress() != (i < 3) {
		return 0, 0, fmt.Errorf("no change leaves the last entry %q, the step %q, and a remedy in progress %v", last, r.Steps[0].State, r.InProgress())
	}
	return round*len(in) + i + 1, r.ID, nil
}

func TestAKilledWriterLosesNothingThatWasAcknowledged(t *testing.T) {
	path := newPath(t)
	random := rand.New(rand.NewPCG(1, 2))
	acknowledged, unacknowledged := 0, 0
	for round := range 200 {
		writer := helper(t, "work", path)
		writer.Stderr = os.Stderr
		out, err := writer.StdoutPipe()
		must(t, err)
		must(t, writer.Start())
		lines := bufio.NewScanner(out)
		if round%4 == 0 { // at some point of its start
			<-time.After(time.Duration(random.IntN(30_000)) * time.Microsecond)
		} else {
			for range 1 + random.IntN(40) {
				if lines.Scan() {
					acknowledged, _ = strconv.Atoi(lines.Text())
				}
			}
		}
		must(t, writer.Process.Kill())
		for lines.Scan() {
			acknowledged, _ = strconv.Atoi(lines.Text())
		}
		_ = writer.Wait() // says that it was killed

		j, opened := open(t, path, realMoment())
		opened.New = false
		done, _, err := progress(j)
		if err != nil || opened != (Opened{}) || done < acknowledged || done > acknowledged+1 {
			t.Fatalf("round %d: got %d changes of %d acknowledged ones, error %v, opened %+v", round, done, acknowledged, err, opened)
		}
		if done > acknowledged {
			unacknowledged++
		}
		must(t, j.Close())
		acknowledged = done
	}
	if acknowledged < 1000 {
		t.Errorf("got only %d changes in all", acknowledged)
	}
	t.Logf("%d changes; in %d of 200 rounds the last one was made but not acknowledged", acknowledged, unacknowledged)
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{"journal.db"}) {
		t.Errorf("got files %v, want only the journal", got)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	path := newPath(t)
	holder := helper(t, "hold", path)
	holder.Stderr = os.Stderr
	in, err := holder.StdinPipe()
	must(t, err)
	out, err := holder.StdoutPipe()
	must(t, err)
	must(t, holder.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "open\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	before := readFile(t, path)

	var both sync.WaitGroup
	for name, o := range map[string]Options{"another agent": {}, "a reader": {ReadOnly: true}} {
		both.Go(func() {
			_, _, err := Open(path, newHost().Moment, o)
			if !errors.Is(err, ErrLocked) {
				t.Errorf("%s: got error %v, want %v", name, err, ErrLocked)
				return
			}
			for _, want := range []string{path, "another agent", "1s", "fuser -v " + path} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: got error %q, want one with %q", name, err, want)
				}
			}
		})
	}
	both.Wait()
	if !slices.Equal(before, readFile(t, path)) || len(names(t, filepath.Dir(path))) != 1 {
		t.Error("who did not get the journal changed it")
	}
	must(t, in.Close())
	must(t, holder.Wait())
	openSound(t, path, newHost().Moment)
}

func TestReadersShareAJournal(t *testing.T) {
	path, h := newPath(t), newHost()
	j := openSound(t, path, h.Moment)
	fill(t, j, h.Moment)
	want := contents(t, j, h.Moment)
	must(t, j.Close())
	for range 2 {
		r, opened, err := Open(path, h.Moment, Options{ReadOnly: true})
		must(t, err)
		t.Cleanup(func() { _ = r.Close() })
		if opened != (Opened{}) {
			t.Errorf("got %+v, want nothing to tell", opened)
		}
		if got := contents(t, r, h.Moment); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		if err := r.Pause(h.Moment, Pause{By: "root"}); !errors.Is(err, ErrReadOnly) {
			t.Errorf("pause: got error %v, want %v", err, ErrReadOnly)
		}
		if _, err := r.Tick(h.Moment); !errors.Is(err, ErrReadOnly) {
			t.Errorf("tick: got error %v, want %v", err, ErrReadOnly)
		}
	}
}

func TestAgentsThatStartAtOnceBeginOneJournal(t *testing.T) {
	for range 5 {
		path := newPath(t)
		var starting sync.WaitGroup
		var mu sync.Mutex
		begun := 0
		for range 6 {
			starting.Go(func() {
				out, err := helper(t, "open", path).Output()
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					if !strings.Contains(string(exit.Stderr), ErrLocked.Error()) {
						t.Errorf("got %s", exit.Stderr)
					}
					return
				}
				var got struct{ New, SetAside bool }
				if err := json.Unmarshal(out, &got); err != nil || got.SetAside {
					t.Errorf("got %s, %v", out, err)
				}
				mu.Lock()
				defer mu.Unlock()
				if got.New {
					begun++
				}
			})
		}
		starting.Wait()
		if begun != 1 {
			t.Errorf("%d began a journal, want 1", begun)
		}
	}
}

// A crash of the host loses nothing only if the kernel is asked in this order.
func TestWritesAreMadeDurableInOrder(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("needs strace: install it to see the system calls")
	}
	path := filepath.Join(t.TempDir(), "journal.db")
	trace := func(does string) (calls []string) {
		t.Helper()
		log := filepath.Join(t.TempDir(), "trace")
		writer := helper(t, does, path)
		writer.Args = append([]string{strace, "-f", "-y", "-s", "0", "-o", log, "-e", "trace=write,pwrite64,fsync,fdatasync,rename,renameat,renameat2"}, writer.Args...)
		writer.Path = strace
		if out, err := writer.CombinedOutput(); err != nil {
			t.Fatalf("strace: %v\n%s", err, out)
		}
		shapes := []struct{ name, shape string }{
			{"write meta", `pwrite64\(\d+<FILE>, .*, 4096, (0|4096)\)`},
			{"write", `pwrite64\(\d+<FILE>, `},
			{"copy", `write\(\d+<FILE>, `},
			{"flush", `fdatasync\(\d+<FILE>`},
			{"flush", `fsync\(\d+<FILE>`},
			{"set aside", `rename.*"FILE".*"FILE.corrupt-`},
			{"rename", `rename.*"FILE.new".*"FILE"`},
			{"flush folder", `fsync\(\d+<` + regexp.QuoteMeta(filepath.Dir(path)) + `>`},
		}
		for line := range strings.Lines(string(readFile(t, log))) {
			for _, s := range shapes {
				shape := strings.ReplaceAll(s.shape, "<FILE>", "<"+regexp.QuoteMeta(path)+`(\.new)?>`)
				if regexp.MustCompile(strings.ReplaceAll(shape, "FILE", regexp.QuoteMeta(path))).MatchString(line) {
					if len(calls) == 0 || calls[len(calls)-1] != s.name {
						calls = append(calls, s.name)
					}
					break
				}
			}
		}
		return calls
	}
	change := "write, flush, write meta, flush, "
	beginning := "write, flush, " + change + "flush folder, "
	for _, tt := range []struct {
		name, does, want string
		prepare          func()
	}{
		{"a new journal", "record", beginning + "rename, flush folder, " + change, func() {}},
		{"one that is there", "record", change + change, func() {}},
		{"one that is removed", "record again", change + "copy, flush, flush folder, rename, flush folder, " + change, func() {}},
		{"one that must be set aside", "record", beginning + "set aside, rename, flush folder, " + change, func() { writeFile(t, path, []byte("garbage")) }},
	} {
		tt.prepare()
		if got := strings.Join(trace(tt.does), ", ") + ", "; got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}
