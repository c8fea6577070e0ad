package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// When the host crashes in the middle of a change, any part of what was written since the last flush may be on the disk, in sectors of 512
// bytes. Until the meta page is written, the journal must be as before the change; and once it is, as after it.
func TestAHostThatCrashesInTheMiddleOfAChange(t *testing.T) {
	path, h := newPath(t), newHost()
	j := openSound(t, path, h.Moment)
	random := rand.New(rand.NewPCG(3, 3))
	before := readFile(t, path)
	oldValues, _, err := walk(before)
	must(t, err)
	for i := range 100 {
		must(t, j.update(h.run(time.Second), "changes", func(tx *txn) error {
			if i%2 == 0 {
				return disturb(tx, random)
			}
			return tx.append(made(h.Moment, tx.tally, Entry{Kind: KindCondition, Message: fmt.Sprint(i)}))
		}))
		after := readFile(t, path)
		newValues, _, err := walk(after)
		must(t, err)
		for range 20 {
			if got, damage, err := walk(partly(before, after, random)); got != oldValues || damage != nil || err != nil {
				t.Fatalf("change %d, crashed before the meta page: got damage %v, error %v, or values that differ from those before it", i, damage, err)
			}
		}
		// The meta page, which fits in one sector, is written last.
		if got, damage, err := walk(after); got != newValues || damage != nil || err != nil {
			t.Fatalf("change %d, crashed after it: got damage %v, error %v", i, damage, err)
		}
		before, oldValues = after, newValues
	}
}

// partly returns the old file with some sectors of the new one, but none of its meta pages. It has the new length: bbolt makes a file longer,
// and flushes that, before it writes.
func partly(before, after []byte, random *rand.Rand) []byte {
	const sector = 512
	mixed := append(bytes.Clone(before), make([]byte, len(after)-len(before))...)
	for at := 2 * pageSize; at < len(after); at += sector {
		if random.IntN(2) == 0 {
			copy(mixed[at:at+sector], after[at:])
		}
	}
	return mixed
}

func TestWorksInSimulatedTime(t *testing.T) {
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := func() Moment { return Moment{Wall: time.Now(), Boot: "simulated", Uptime: time.Since(start)} }
		j, _, err := Open(path, now(), Options{NoSync: true})
		must(t, err)
		defer func() { _ = j.Close() }()
		attempt(t, j, now(), "bootstrap")
		for range 24 * 60 {
			if got := len(ages(t, j, now(), "bootstrap", day)); got != 1 {
				t.Fatalf("after %v: got %d attempts, want 1", time.Since(start), got)
			}
			time.Sleep(time.Minute) //nolint:forbidigo // in simulated time
			if _, err := j.Tick(now()); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(ages(t, j, now(), "bootstrap", day)); got != 0 {
			t.Errorf("after a day: got %d attempts, want none", got)
		}
		if _, _, err := Open(path, now(), Options{}); err == nil {
			t.Error("a second agent: got no error")
		}
	})
}

func TestWhoeverHoldsALockKeepsAgentsOut(t *testing.T) {
	path, h := newPath(t), newHost()
	must(t, openSound(t, path, h.Moment).Close())
	for _, name := range []string{path, filepath.Dir(path)} {
		for how, what := range map[int]string{syscall.LOCK_EX: "exclusive", syscall.LOCK_SH: "shared"} {
			synctest.Test(t, func(t *testing.T) { // so that waiting takes no time
				f, err := os.Open(name)
				must(t, err)
				defer func() { _ = f.Close() }()
				must(t, syscall.Flock(int(f.Fd()), how))
				if _, _, err := Open(path, h.Moment, Options{}); !errors.Is(err, ErrLocked) {
					t.Errorf("a lock on %s, %s: got error %v, want %v", name, what, err, ErrLocked)
				}
			})
		}
	}
}

func TestAUserWhoMayNotWrite(t *testing.T) {
	needsRoot(t, "becomes another user")
	dir := filepath.Dir(newPath(t))
	path, h := filepath.Join(dir, "state", "journal.db"), newHost()
	j := openSound(t, path, h.Moment)
	must(t, j.Close())
	run := func(name string) (*exec.Cmd, string) {
		cmd := helper(t, name, path)
		cmd.Env = append(cmd.Env, uidVariable+"=65534")
		out, _ := cmd.CombinedOutput()
		return cmd, string(out)
	}
	for _, mode := range []string{"0700", "0755"} { // of the folders
		must(t, exec.CommandContext(t.Context(), "chmod", mode, dir, filepath.Dir(path)).Run())
		if _, out := run("open"); !strings.Contains(out, "permission denied; run as root") || !strings.Contains(out, `"setAside":false`) {
			t.Errorf("folders %s, an agent: got %s, want that it may not", mode, out)
		}
		if cmd, out := run("read"); cmd.ProcessState.Success() || !strings.Contains(out, "permission denied; run as root") {
			t.Errorf("folders %s, a reader: got %s, want that it may not", mode, out)
		}
	}
	openSound(t, path, h.Moment)
}
