//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// ClusterOptions says what kind of cluster to start. The zero value is good for most tests.
type ClusterOptions struct {
	// Switch is where the control plane runs and hosts are plugged in: its network must be an IPv4 /24, and from .101 on
	// the cluster gives the addresses to hosts. Nil makes one, with the address 10.88.0.1/24. Give one if something, such
	// as an issuer for OIDC, must listen there before the cluster is up.
	Switch *Switch
	// NodeGrace is how long a node may be silent before its Ready condition becomes Unknown; 0 means 8 s.
	NodeGrace time.Duration
	// ClientCertDuration is how long the client certificates of nodes are good from when they are signed; 0 means a month.
	// They are dated back by another 5 minutes, and kubelets renew theirs when 70 to 90 percent of the whole are over: with
	// 2 minutes they do so every 80 s at most.
	ClientCertDuration time.Duration
	// OIDC makes the API server trust an issuer of ID tokens besides certificates and its own tokens; nil means none.
	OIDC *OIDC
}

// Cluster is a real Kubernetes control plane (etcd, API server, controller manager, scheduler) and the hosts that are its
// nodes. There is no kube-proxy and no DNS: pods have addresses, but services do not work. Its methods may be called from
// several goroutines at once.
type Cluster struct {
	// Switch is the network of all. The API server listens at its address, port 6443: see Server.
	Switch *Switch
	// CA issued the API server's certificate and those of clients: nodes trust it. OtherCA is one that nodes do not trust,
	// for ReplaceServingCert.
	CA, OtherCA *CA

	opts      ClusterOptions
	ownSwitch bool
	state     *state
	tools     string       // folder of the Kubernetes programs
	pause     string       // image archive
	http      *http.Client // of the lab itself

	stopping  sync.Mutex // held by Stop
	mu        sync.Mutex // guards what follows
	processes map[string]*process
	nodes     []*node // all that were ever added: the number of a node gives its addresses
}

// StartCluster starts a control plane, in about five seconds, and stops it and its hosts when the test ends. It fails the
// test if that does not succeed, and at the end if a program of the control plane has died. Call Require before, with
// ClusterPrograms. The end of the log of the control plane is printed when the test has failed.
//
// The first start on a machine builds the Kubernetes programs, see KubernetesTools. A control plane takes about 550 MiB of
// memory.
func StartCluster(t testing.TB, opts ClusterOptions) *Cluster {
	t.Helper()
	if err := Sweep(t.Context()); err != nil {
		t.Logf("what dead tests left behind could not all be removed: %v", err)
	}
	c, err := NewCluster(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.dead(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for _, program := range []string{apiServer, controllerManager} {
				t.Logf("log of %s:\n%s", program, c.logTail(program, 30))
			}
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return c
}

// ClusterPrograms are the programs that a cluster with nodes needs besides those of every host, for Require.
func ClusterPrograms() []string { return []string{"bridge", "containerd", "ctr", "go", "runc"} }

// NewCluster is StartCluster outside of a test: the caller calls Stop. Should it die without, the cluster dies with it.
func NewCluster(ctx context.Context, opts ClusterOptions) (*Cluster, error) {
	if opts.NodeGrace == 0 {
		opts.NodeGrace = 8 * time.Second
	}
	c := &Cluster{Switch: opts.Switch, opts: opts, processes: map[string]*process{}}
	if err := c.prepare(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Stop())
	}
	if err := c.bringUp(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Stop())
	}
	return c, nil
}

// prepare makes all that the control plane needs in order to run.
func (c *Cluster) prepare(ctx context.Context) (err error) {
	if c.tools, err = KubernetesTools(ctx, etcd, apiServer, controllerManager, scheduler, "kubectl", "kubelet"); err != nil {
		return err
	}
	if c.Switch == nil {
		if c.Switch, err = newSwitch(ctx, netip.MustParsePrefix("10.88.0.1/24")); err != nil {
			return err
		}
		c.ownSwitch = true
	}
	if a := c.Switch.address; !a.Addr().Is4() || a.Bits() != 24 {
		return fmt.Errorf("the switch's network %v must be an IPv4 /24", a)
	}
	p, err := defaultPlace()
	if err != nil {
		return err
	}
	if c.state, err = newState(ctx, p, "cluster"); err != nil {
		return err
	}
	if c.pause, err = PauseImage(ctx, c.path("")); err != nil {
		return err
	}
	if c.CA, err = NewCA("kubernetes"); err != nil {
		return err
	}
	if c.OtherCA, err = NewCA("other"); err != nil {
		return err
	}
	if err := c.writeFiles(); err != nil {
		return err
	}
	return c.connect()
}

// bringUp starts everything at once: each program waits for those that it needs.
func (c *Cluster) bringUp(ctx context.Context) error {
	for _, program := range []string{etcd, apiServer, controllerManager, scheduler} {
		if err := c.start(ctx, program); err != nil {
			return err
		}
	}
	if err := c.waitAPI(ctx); err != nil {
		return err
	}
	if err := c.allowBootstrap(ctx); err != nil {
		return err
	}
	// The controller manager makes it, and without it there are no pods.
	return c.waitUp(ctx, "the default service account exists", func(ctx context.Context) (bool, string) {
		err := c.Do(ctx, http.MethodGet, "/api/v1/namespaces/default/serviceaccounts/default", nil, nil)
		return err == nil, fmt.Sprint(err)
	})
}

// waitAPI waits until the API server says that it is ready.
func (c *Cluster) waitAPI(ctx context.Context) error {
	return c.waitUp(ctx, "the API server is ready", func(ctx context.Context) (bool, string) {
		err := c.Do(ctx, http.MethodGet, "/readyz", nil, nil)
		return err == nil, fmt.Sprint(err)
	})
}

// waitUp is WaitFor that ends early when a program has died.
func (c *Cluster) waitUp(ctx context.Context, what string, look Look) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return WaitFor(ctx, time.Minute, what, func(ctx context.Context) (bool, string) {
		if err := c.dead(); err != nil {
			cancel(err)
		}
		ctx, stop := context.WithTimeout(ctx, requestWithin)
		defer stop()
		return look(ctx)
	})
}

// Stop kills hosts and control plane and removes all of them. Stopping a cluster again does nothing.
func (c *Cluster) Stop() error {
	c.stopping.Lock()
	defer c.stopping.Unlock()
	hosts := c.hosts()
	errs := make([]error, len(hosts))
	var stops sync.WaitGroup
	for i, h := range hosts {
		stops.Go(func() { errs[i] = h.Stop() })
	}
	stops.Wait()
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	if c.state != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 3*shortly)
		defer cancel()
		errs = append(errs, c.kill(ctx), c.state.remove(ctx))
	}
	if c.ownSwitch {
		errs = append(errs, c.Switch.close())
		c.ownSwitch = false
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop cluster: %w", err)
	}
	return nil
}

// hosts lists the hosts that were started.
func (c *Cluster) hosts() []*Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	var hosts []*Host
	for _, n := range c.nodes {
		if n.host != nil {
			hosts = append(hosts, n.host)
		}
	}
	return hosts
}

// kill ends the programs of the control plane at once and waits until they are reaped.
func (c *Cluster) kill(ctx context.Context) error {
	if err := removeCgroup(ctx, c.state.cgroup(c.state.ID)); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, p := range c.processes {
		<-p.done
		delete(c.processes, name)
	}
	return nil
}

// path is where a file of the control plane lies.
func (c *Cluster) path(name string) string { return filepath.Join(c.state.Dir, "disk", name) }

// Server returns the URL of the API server, good in the switch and on its hosts.
func (c *Cluster) Server() string {
	return fmt.Sprintf("https://%s:%s", c.Switch.Address(), apiPort)
}
