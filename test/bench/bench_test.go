//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/pkg/status"
	"github.com/aks-flex-node/agent/test/lab"
)

const roleVariable = "BENCH_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(m.Run())
	case "measure":
		if err := measure(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// cost is what one cycle takes, as the median over rounds of both ways in turn.
type cost struct {
	Wall, CPU time.Duration
	// Daemons is the CPU time that systemd, containerd and kubelet spent meanwhile, idle work included.
	Daemons time.Duration
}

type result struct {
	Ours, Straightforward cost
	Rounds                int
	Allocations, Bytes    uint64 // per cycle
	AnonymousAt1000       int64  // resident, in bytes
	AnonymousAt10000      int64
	Snapshot              *status.NodeStatus
}

// TestSteadyCost runs the measurement inside a host and prints it.
func TestSteadyCost(t *testing.T) {
	lab.Require(t, "containerd", "runc", "ctr")
	tools, err := lab.KubernetesTools(t.Context(), "kubelet")
	lab.Must(t, err)
	h := lab.StartHost(t, lab.HostOptions{Name: "bench"})
	lab.Must(t, h.InstallContainerd(t.Context()))
	lab.Must(t, h.InstallKubelet(t.Context(), filepath.Join(tools, "kubelet")))
	h.MustExec(t, "mkdir", "-p", "/run/aks-flex-node")

	self := h.Self(t.Context())
	self.Env = append(self.Env, roleVariable+"=measure")
	self.Stderr = os.Stderr
	out, err := self.Output()
	lab.Must(t, err)
	var r result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("got %q: %v", out, err)
	}
	if r.Snapshot == nil || !r.Snapshot.KubeletRunning || !r.Snapshot.ContainerdRunning || r.Snapshot.KubeletVersion == "unknown" ||
		r.Snapshot.ContainerdVersion == "unknown" || r.Snapshot.RuncVersion == "unknown" {
		t.Fatalf("what was measured did not work: %+v", r.Snapshot)
	}
	if profile, err := h.ReadFile(profilePath); err == nil && os.Getenv("BENCH_PROFILE") != "" {
		lab.Must(t, os.WriteFile(os.Getenv("BENCH_PROFILE"), profile, 0o644))
	}
	show(t, r)
}

func show(t *testing.T, r result) {
	t.Helper()
	ratio := func(a, b time.Duration) string { return fmt.Sprintf("%.0f", float64(a)/float64(b)) }
	fmt.Printf("\n| one cycle, %s | straightforward | ours | ratio |\n|---|---|---|---|\n", count(r.Rounds, "round"))
	fmt.Printf("| wall time | %s | %s | **%s** |\n", short(r.Straightforward.Wall), short(r.Ours.Wall), ratio(r.Straightforward.Wall, r.Ours.Wall))
	fmt.Printf("| CPU time, own and children's | %s | %s | **%s** |\n", short(r.Straightforward.CPU), short(r.Ours.CPU), ratio(r.Straightforward.CPU, r.Ours.CPU))
	fmt.Printf("| CPU time of systemd, containerd and kubelet meanwhile | %s | %s | %s |\n\n", short(r.Straightforward.Daemons), short(r.Ours.Daemons),
		ratio(r.Straightforward.Daemons, r.Ours.Daemons))
	fmt.Printf("| ours | |\n|---|---|\n| allocations a cycle | %d, %.1f KiB |\n", r.Allocations, float64(r.Bytes)/1024)
	fmt.Printf("| anonymous resident memory after 1,000 and 10,000 cycles | %.1f and %.1f MiB |\n", mib(r.AnonymousAt1000), mib(r.AnonymousAt10000))
	fmt.Printf("| binary, linux/%s, stripped | %.1f MiB |\n\n", runtime.GOARCH, mib(binarySize(t)))
}

func count(n int, what string) string { return fmt.Sprintf("median of %d %ss", n, what) }
func short(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}
func mib(n int64) float64 { return float64(n) / (1 << 20) }

func binarySize(t *testing.T) int64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "aks-flex-node")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-ldflags", "-s -w", "-o", path, "github.com/aks-flex-node/agent/cmd/aks-flex-node")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

const (
	profilePath = "/root/cpu.pprof"
	rounds      = 15
	ourCycles   = 200 // a round; the clock of the CPU is too coarse for one
	theirCycles = 5
)

// measure runs inside the host. Both ways take turns, so that what else the machine does meets both alike.
func measure() error {
	c := status.NewCollector(nil, nil, "bench")
	path := status.GetStatusFilePath()
	var snapshot *status.NodeStatus
	ours := func() error {
		s, err := c.CollectStatus(context.Background())
		if err != nil {
			return err
		}
		snapshot = s
		return status.WriteStatusToFile(path, s)
	}
	if err := ours(); err != nil {
		return err
	}
	var mine, theirs []cost
	for range rounds {
		a, err := spend(ourCycles, ours)
		if err != nil {
			return err
		}
		b, err := spend(theirCycles, func() error { return straightforward(filepath.Dir(path) + "/straightforward.json") })
		if err != nil {
			return err
		}
		mine, theirs = append(mine, a), append(theirs, b)
	}
	r := result{Ours: median(mine), Straightforward: median(theirs), Rounds: rounds, Snapshot: snapshot}
	if err := r.measureMemory(ours); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// measureMemory counts cycles from here on, with a CPU profile of them left beside.
func (r *result) measureMemory(ours func() error) error {
	profile, err := os.Create(profilePath)
	if err != nil {
		return err
	}
	defer profile.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := pprof.StartCPUProfile(profile); err != nil {
		return err
	}
	for i := 1; i <= 10000; i++ {
		if err := ours(); err != nil {
			return err
		}
		if i == 1000 {
			runtime.ReadMemStats(&after)
			r.Allocations, r.Bytes = (after.Mallocs-before.Mallocs)/1000, (after.TotalAlloc-before.TotalAlloc)/1000
			r.AnonymousAt1000 = anonymous()
		}
	}
	pprof.StopCPUProfile()
	r.AnonymousAt10000 = anonymous()
	return nil
}

// straightforward gets the same answers the way a script would.
func straightforward(path string) error {
	var out []string
	for _, argv := range [][]string{
		{"systemctl", "is-active", "kubelet"}, {"systemctl", "is-active", "containerd"}, {"kubelet", "--version"}, {"containerd", "--version"}, {"runc", "--version"},
	} {
		b, err := exec.CommandContext(context.Background(), argv[0], argv[1:]...).Output()
		if err != nil {
			return fmt.Errorf("%v: %w", argv, err)
		}
		out = append(out, string(b))
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o600)
}

func spend(cycles int, f func() error) (cost, error) {
	daemons, err := daemonPIDs()
	if err != nil {
		return cost{}, err
	}
	wall, cpu, others := time.Now(), cpuTime(), daemonTime(daemons)
	for range cycles {
		if err := f(); err != nil {
			return cost{}, err
		}
	}
	n := time.Duration(cycles)
	return cost{Wall: time.Since(wall) / n, CPU: (cpuTime() - cpu) / n, Daemons: (daemonTime(daemons) - others) / n}, nil
}

func median(costs []cost) cost {
	pick := func(of func(cost) time.Duration) time.Duration {
		var all []time.Duration
		for _, c := range costs {
			all = append(all, of(c))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return cost{
		Wall: pick(func(c cost) time.Duration { return c.Wall }), CPU: pick(func(c cost) time.Duration { return c.CPU }),
		Daemons: pick(func(c cost) time.Duration { return c.Daemons }),
	}
}

// cpuTime is what this process and its ended children have used.
func cpuTime() time.Duration {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

func daemonPIDs() ([]string, error) {
	pids := []string{"1"}
	for _, unit := range []string{"containerd", "kubelet"} {
		b, err := exec.CommandContext(context.Background(), "systemctl", "show", "-P", "MainPID", unit).Output()
		if err != nil {
			return nil, err
		}
		pids = append(pids, strings.TrimSpace(string(b)))
	}
	return pids, nil
}

// daemonTime adds up the scheduler's own nanoseconds of all threads: the ticks in /proc/PID/stat are too coarse.
func daemonTime(pids []string) time.Duration {
	var sum time.Duration
	for _, pid := range pids {
		files, _ := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		for _, f := range files {
			b, _ := os.ReadFile(f)
			if fields := strings.Fields(string(b)); len(fields) > 0 {
				ns, _ := strconv.ParseInt(fields[0], 10, 64)
				sum += time.Duration(ns)
			}
		}
	}
	return sum
}

// anonymous is this process's resident memory that no file stands behind, after all that is unused was given back.
func anonymous() int64 {
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if kib, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.Fields(kib)[0], 10, 64)
			return n * 1024
		}
	}
	return -1
}
