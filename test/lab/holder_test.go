//go:build linux && (lab || e2e)

package lab

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// startHolder starts another process that starts something in this role and keeps it. kill ends that process as kill -9 does.
func startHolder(t *testing.T, role string) (id, pid string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	Must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	Must(t, err)
	Must(t, cmd.Start())
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	Must(t, err)
	fields := strings.Fields(line)
	if len(fields) != 2 {
		t.Fatalf("got %q from the other process, want id and pid", line)
	}
	return fields[0], fields[1], kill
}

// processesIn lists the processes of a pid namespace.
func processesIn(ns string) []string {
	var list []string
	links, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, l := range links {
		if got, err := os.Readlink(l); err == nil && got == ns {
			list = append(list, strings.Split(l, "/")[2])
		}
	}
	return list
}
