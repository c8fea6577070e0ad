//go:build lab

package states

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/pkg/status"
)

// writeForEver writes snapshots of changing length until it is killed; it says when the first is there.
func writeForEver(path string) int {
	for i := 0; ; i++ {
		s := &status.NodeStatus{KubeletVersion: strings.Repeat("9", i%5000), AgentVersion: "whole", LastUpdated: time.Now()}
		if err := status.WriteStatusToFile(path, s); err != nil {
			fmt.Println("write:", err)
			return 1
		}
		if i == 0 {
			fmt.Println("written")
		}
	}
}

// TestAThousandKillsLeaveAWholeSnapshot kills writers at moments spread over their whole cycle.
func TestAThousandKillsLeaveAWholeSnapshot(t *testing.T) {
	t.Parallel()
	const kills, writers = 1000, 4
	folder := filepath.Join(t.TempDir(), "run")
	path := filepath.Join(folder, "status.json")
	random := rand.New(rand.NewPCG(1, 2))
	for range kills / writers {
		var running []*exec.Cmd
		for range writers { // several at once: they also meet each other's locks and leftovers
			running = append(running, startWriter(t, path))
		}
		for _, w := range running {
			pause := time.NewTimer(time.Duration(random.IntN(3000)) * time.Microsecond)
			<-pause.C
			if err := w.Process.Kill(); err != nil {
				t.Fatalf("the writer ended by itself: %v", err)
			}
			_ = w.Wait() // it was killed
			if s, err := status.LoadStatusFromFile(path); err != nil || s.AgentVersion != "whole" {
				t.Fatalf("after a kill: got %+v and error %v, want a whole snapshot", s, err)
			}
		}
	}
	// Each of the writers killed last can have left one temporary file; the next write sweeps them.
	if n := count(folder); n > 2+writers {
		t.Errorf("after %d kills: got %d files in the folder, want at most the snapshot, its lock and %d temporary ones", kills, n, writers)
	}
	if err := status.WriteStatusToFile(path, &status.NodeStatus{}); err != nil {
		t.Fatal(err)
	}
	if n := count(folder); n != 2 {
		t.Errorf("after one more write: got %d files, want the snapshot and its lock", n)
	}
}

func startWriter(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	w := exec.CommandContext(t.Context(), os.Args[0])
	w.Env = append(os.Environ(), roleVariable+"=writer", "STATES_PATH="+path)
	out, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "written\n" {
		t.Fatalf("got %q and error %v, want a first write", line, err)
	}
	return w
}
