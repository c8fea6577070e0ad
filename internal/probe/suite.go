// Package probe is what is seen: one file for each subject, and one Suite that runs them.
//
// A probe reads and never changes anything. It is a function of a context that returns an observation; the Suite gives it its deadline,
// keeps a second look from starting while one is under way, remembers the last known value, and makes sure that a probe that hangs
// delays nobody. A new subject is one new file and one line in New, Look, Latest and Stats.
package probe

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/host"
	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

const (
	defaultDeadline = 5 * time.Second
	arcDeadline     = 15 * time.Second
	// slowEvery is how often what changes slowly is looked at: once a minute, by whoever makes a round every minute or a little sooner.
	slowEvery = 50 * time.Second
)

// Suite runs the probes. Its connections and caches stay warm between looks. It may be used by several goroutines.
type Suite struct {
	life context.Context //nolint:containedctx // the Suite's own life, ended by Close; looks outlive the calls that began them
	end  context.CancelFunc

	settings settings
	systemd  host.Systemd
	cluster  cluster.Client
	cri      criClient
	healthz  *http.Client
	versions versionCache
	shared   shared
	watcher  atomic.Pointer[cluster.Watcher] // nil: the API server is asked at each look
	started  *started                        // written and read by the look at units alone
	parsed   fileCache[kubeletConfig]

	units         runner[units]
	kubelet       runner[observe.Program]
	kubeletHealth runner[observe.KubeletHealth]
	containerd    runner[observe.Runtime]
	runc          runner[observe.Program]
	node          runner[observe.Node]
	arc           runner[observe.Arc]
	clock         runner[observe.Clock]
	certificate   runner[observe.Certificate]
	disk          runner[observe.Disk]
}

// New returns a Suite that looks at this machine, as the config says. A nil config is an empty one. Nothing is looked at, opened or
// started before Look; Close ends what the Suite holds then.
func New(cfg *config.Config, agentVersion string) *Suite {
	s := &Suite{settings: newSettings(cfg, agentVersion), healthz: newHealthzClient()}
	s.life, s.end = context.WithCancel(context.Background())
	s.units = runner[units]{name: "systemd", shared: &s.shared, deadline: defaultDeadline, look: s.lookAtUnits}
	s.kubelet = runner[observe.Program]{name: "kubelet version", shared: &s.shared, deadline: defaultDeadline, look: s.lookAtKubelet}
	s.kubeletHealth = runner[observe.KubeletHealth]{name: "kubelet health", shared: &s.shared, deadline: defaultDeadline, look: s.lookAtKubeletHealth}
	s.containerd = runner[observe.Runtime]{name: "containerd", shared: &s.shared, deadline: defaultDeadline, look: s.lookAtContainerd}
	s.runc = runner[observe.Program]{name: "runc", shared: &s.shared, deadline: defaultDeadline, look: s.lookAtRunc}
	s.node = runner[observe.Node]{name: "node", shared: &s.shared, deadline: defaultDeadline, look: s.lookAtNode}
	s.arc = runner[observe.Arc]{name: "Arc", shared: &s.shared, deadline: arcDeadline, every: slowEvery, look: s.lookAtArc}
	s.clock = runner[observe.Clock]{name: "clock", shared: &s.shared, deadline: defaultDeadline, every: slowEvery, look: lookAtClock}
	s.certificate = runner[observe.Certificate]{name: "certificate", shared: &s.shared, deadline: defaultDeadline, every: slowEvery, look: s.lookAtCertificate}
	s.disk = runner[observe.Disk]{name: "disk", shared: &s.shared, deadline: defaultDeadline, every: slowEvery, look: s.lookAtDisk}
	return s
}

// Look looks at everything at once and returns what was seen. It ends when every look has come back or was given up: within the longest
// deadline plus a moment, or within ctx. What could not be told is unknown in the Set, with the reason; there is no error.
func (s *Suite) Look(ctx context.Context) observe.Set {
	round := time.Now()
	// All begin before any is waited for: each has its own deadline, whichever is waited for first. The units are first, so that other
	// probes, which need their facts, find this look under way.
	units := s.units.join(ctx, s.life, round)
	kubelet := s.kubelet.join(ctx, s.life, round)
	kubeletHealth := s.kubeletHealth.join(ctx, s.life, round)
	containerd := s.containerd.join(ctx, s.life, round)
	runc := s.runc.join(ctx, s.life, round)
	node := s.node.join(ctx, s.life, round)
	arc := s.arc.join(ctx, s.life, round)
	set := observe.Set{
		Kubelet:       s.kubelet.wait(ctx, kubelet),
		KubeletHealth: s.kubeletHealth.wait(ctx, kubeletHealth),
		Containerd:    s.containerd.wait(ctx, containerd),
		Runc:          s.runc.wait(ctx, runc),
		Node:          s.node.wait(ctx, node),
		Arc:           s.arc.wait(ctx, arc),
	}
	s.spreadUnits(s.units.wait(ctx, units), &set)
	return set
}

// LookAtHost looks at what feeds conditions and not the snapshot. It changes slowly: what was seen within the last minute is returned
// again. Otherwise it is like Look.
func (s *Suite) LookAtHost(ctx context.Context) observe.Host {
	round := time.Now()
	clock := s.clock.join(ctx, s.life, round)
	certificate := s.certificate.join(ctx, s.life, round)
	disk := s.disk.join(ctx, s.life, round)
	return observe.Host{
		Clock:       s.clock.wait(ctx, clock),
		Certificate: s.certificate.wait(ctx, certificate),
		Disk:        s.disk.wait(ctx, disk),
	}
}

// LookAtUnits asks systemd anew about the units; what it says is in Latest then. The question is asked after the call began: one that is
// under way may have been asked before what the caller was told of.
func (s *Suite) LookAtUnits(ctx context.Context) { s.units.anew(ctx, s.life, time.Now()) }

// LookAtNode looks anew at the Node, as LookAtUnits does at the units.
func (s *Suite) LookAtNode(ctx context.Context) { s.node.anew(ctx, s.life, time.Now()) }

// LookLocal looks anew at whatever a unit's start or stop touches: the units and what their programs say. All of it is on this machine;
// none of it waits for another. It returns when the last look is in Latest; OnLanded tells of each.
func (s *Suite) LookLocal(ctx context.Context) {
	now := time.Now()
	var all sync.WaitGroup
	all.Go(func() { s.units.anew(ctx, s.life, now) })
	all.Go(func() { s.kubelet.anew(ctx, s.life, now) })
	all.Go(func() { s.kubeletHealth.anew(ctx, s.life, now) })
	all.Go(func() { s.containerd.anew(ctx, s.life, now) })
	all.Go(func() { s.runc.anew(ctx, s.life, now) })
	all.Wait()
}

// closeWait is how long Close waits for looks to end: killing a command takes a moment, and whoever closes may be about to exit.
const closeWait = 300 * time.Millisecond

// Close ends looks under way, with the commands that they run, and closes the connections. It does not wait for a look that hangs.
func (s *Suite) Close() {
	s.end()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); s.shared.underWay.Load() > 0 && time.Since(began) < closeWait; {
		<-tick.C
	}
	s.cri.close()
	s.healthz.CloseIdleConnections()
	s.cluster.Close()
	s.systemd.Close()
}

// settings are what the probes take from the config, and the places where things usually are.
type settings struct {
	kubeletPaths  []string // in the order in which they are tried, behind that of the kubelet's unit
	kubeconfigs   []string // in the order in which they are tried, behind the kubelet's own --kubeconfig
	nodeName      string
	arcEnabled    bool
	hostName      string
	userAgent     string
	searchPath    string
	criSocket     string
	arcPaths      []string
	kubeletConfig string
	disk          diskPlaces
}

func newSettings(cfg *config.Config, agentVersion string) settings {
	if cfg == nil {
		cfg = &config.Config{}
	}
	kubeletDir := cmp.Or(cfg.Paths.Kubernetes.KubeletDir, "/var/lib/kubelet")
	hostName, _ := os.Hostname() // without it, the other sources of the node's name remain
	return settings{
		kubeletPaths:  []string{cfg.Node.Kubelet.Path, "/usr/local/bin/kubelet"},
		kubeconfigs:   cluster.UsualKubeconfigs(cfg),
		nodeName:      cfg.Node.Name,
		arcEnabled:    cfg.IsARCEnabled(),
		hostName:      strings.ToLower(hostName),
		userAgent:     "aks-flex-node/" + agentVersion,
		searchPath:    host.DefaultPath,
		criSocket:     "/run/containerd/containerd.sock",
		arcPaths:      []string{"/opt/azcmagent/bin/azcmagent"},
		kubeletConfig: kubeletDir + "/config.yaml",
		disk: diskPlaces{
			state:      "/var/lib",
			kubelet:    kubeletDir,
			containerd: "/var/lib/containerd",
			status:     []string{"/run/aks-flex-node", "/tmp/aks-flex-node"},
		},
	}
}
