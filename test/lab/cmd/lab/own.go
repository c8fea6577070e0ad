//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/aks-flex-node/agent/test/lab"
)

// Lab is what other invocations of this command can ask of the process that owns the lab, by net/rpc.
type Lab struct {
	cluster *lab.Cluster
	hosts   map[string]*lab.Host
	stopped chan struct{}
}

// own brings the lab up, tells so to the process that waits at file 3, and keeps it until it is told to end.
func own() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	tell := os.NewFile(3, "progress")
	l := &Lab{hosts: map[string]*lab.Host{}, stopped: make(chan struct{})}
	if err := l.start(ctx, tell); err != nil {
		return err
	}
	if err := tell.Close(); err != nil {
		return errors.Join(err, l.end())
	}
	select {
	case <-l.stopped:
		return nil
	case <-ctx.Done():
		return l.end()
	}
}

func (l *Lab) start(ctx context.Context, tell io.Writer) (err error) {
	if err := lab.Sweep(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "what dead labs left behind could not all be removed:", err)
	}
	fmt.Fprintln(tell, "building the Kubernetes programs (the first time this takes minutes) ...")
	tools, err := lab.KubernetesTools(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(tell, "starting the control plane ...")
	if l.cluster, err = lab.NewCluster(ctx, lab.ClusterOptions{}); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.end())
		}
	}()
	for _, name := range []string{"n1", "n2"} {
		fmt.Fprintf(tell, "joining %s ...\n", name)
		if l.hosts[name], err = l.cluster.Join(ctx, name, lab.JoinOptions{}); err != nil {
			return err
		}
	}
	address, err := l.forward(ctx)
	if err != nil {
		return err
	}
	kubeconfig, err := l.cluster.Kubeconfig("lab-person", "system:masters")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "kubeconfig")
	text := strings.Replace(string(kubeconfig), l.cluster.Server(), "https://"+address, 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	if err := l.serve(ctx); err != nil {
		return err
	}
	fmt.Fprintf(tell, `
The cluster is up, with the nodes n1 and n2. To use it:
  export KUBECONFIG=%s
  %s/kubectl get nodes
To enter a host, and to see what else can be done:
  go run ./test/lab/cmd/lab exec n1
  go run ./test/lab/cmd/lab
To remove it: make lab-down
`, path, tools)
	return nil
}

// forward makes the API server reachable from the machine, at the address returned.
func (l *Lab) forward(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := strings.TrimPrefix(l.cluster.Server(), "https://")
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				far, err := l.cluster.Switch.Dial(ctx, "tcp", server)
				if err == nil {
					join(near, far)
				}
				_ = near.Close()
			}()
		}
	}()
	return listener.Addr().String(), nil
}

// join passes on what comes from either end until both have ended.
func join(near, far net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
	both.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
	both.Wait()
}

// serve takes orders.
func (l *Lab) serve(ctx context.Context) error {
	path := filepath.Join(dir, "control")
	_ = os.Remove(path) // of a lab that was killed
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return err
	}
	if err := rpc.Register(l); err != nil {
		return err
	}
	go rpc.Accept(listener)
	return nil
}

// PID tells the process id of a host's init, by which its namespaces are entered.
func (l *Lab) PID(node string, pid *int) error {
	h := l.hosts[node]
	if h == nil {
		return fmt.Errorf("there is no node %q", node)
	}
	if *pid = h.PID(); *pid == 0 {
		return fmt.Errorf("%s is off", node)
	}
	return nil
}

// Do carries out a command line.
func (l *Lab) Do(args []string, _ *struct{}) error {
	ctx, c := context.Background(), l.cluster
	switch args[0] {
	case "down":
		if err := l.end(); err != nil {
			return err
		}
		close(l.stopped)
		select {} // the caller learns by the end of this process that all is gone
	case "stop-api":
		return c.StopAPI(ctx)
	case "start-api":
		return c.StartAPI(ctx)
	case "freeze-api":
		return c.FreezeAPI()
	case "thaw-api":
		return c.ThawAPI()
	}
	act := map[string]func(context.Context, *lab.Host) error{
		"cut":       func(ctx context.Context, h *lab.Host) error { return h.CutLink(ctx) },
		"mend":      func(ctx context.Context, h *lab.Host) error { return h.MendLink(ctx) },
		"power-cut": func(ctx context.Context, h *lab.Host) error { return h.PowerCut(ctx) },
		"boot":      func(ctx context.Context, h *lab.Host) error { return h.Boot(ctx) },
		"drop":      c.Drop,
		"undrop":    c.Undrop,
	}[args[0]]
	if act == nil {
		return fmt.Errorf("there is no command %q", args[0])
	}
	if len(args) != 2 || l.hosts[args[1]] == nil {
		return fmt.Errorf("%s: name a node, n1 or n2", args[0])
	}
	return act(ctx, l.hosts[args[1]])
}

// end stops the cluster and removes what is beside it.
func (l *Lab) end() error {
	return errors.Join(l.cluster.Stop(), os.RemoveAll(dir))
}
