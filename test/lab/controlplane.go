//go:build linux

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The programs of a control plane, by the names of their files.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// Names of files in the cluster's folder.
const (
	caCert        = "ca.crt"
	caKey         = "ca.key"
	servingCert   = "apiserver.crt"
	servingKey    = "apiserver.key"
	kubeletCert   = "apiserver-kubelet-client.crt"
	kubeletKey    = "apiserver-kubelet-client.key"
	accountKey    = "sa.key"
	adminConf     = "admin.conf"
	authConf      = "authentication.json"
	auditConf     = "audit-policy.json"
	auditLog      = "audit.log"
	kubeletClient = "kube-apiserver-kubelet-client" // whom kubelets take the API server for
)

// apiPort is where the API server listens, at the switch's address.
const apiPort = "6443"

// OIDC makes the API server take ID tokens of an issuer for users.
type OIDC struct {
	IssuerURL     string // https, reachable from the switch, such as one that serves a listener of Switch.Listen
	CA            []byte // PEM certificates by which the issuer's own is verified
	Audience      string // what "aud" must contain
	UsernameClaim string // names the claim that is the user's name as it stands; empty: "sub"
}

// authentication is the API server's configuration file for this issuer.
func (o *OIDC) authentication() ([]byte, error) {
	type object = map[string]any
	claim := o.UsernameClaim
	if claim == "" {
		claim = "sub"
	}
	return json.Marshal(object{
		"apiVersion": "apiserver.config.k8s.io/v1",
		"kind":       "AuthenticationConfiguration",
		"jwt": []object{{
			"issuer":        object{"url": o.IssuerURL, "certificateAuthority": string(o.CA), "audiences": []string{o.Audience}},
			"claimMappings": object{"username": object{"claim": claim, "prefix": ""}},
		}},
	})
}

// writeFiles writes what the programs read: keys, certificates, kubeconfigs, policies.
func (c *Cluster) writeFiles() error {
	serving, err := c.servingPair(c.CA)
	if err != nil {
		return err
	}
	kubelets, err := c.CA.ClientCert(kubeletClient)
	if err != nil {
		return err
	}
	account, err := newKey()
	if err != nil {
		return err
	}
	files := map[string][]byte{
		caCert: c.CA.PEM(), servingCert: serving.Cert, servingKey: serving.Key,
		kubeletCert: kubelets.Cert, kubeletKey: kubelets.Key, auditConf: []byte(auditPolicy),
	}
	if files[caKey], err = keyPEM(c.CA.key); err != nil {
		return err
	}
	if files[accountKey], err = keyPEM(account); err != nil {
		return err
	}
	for name, who := range map[string][]string{
		adminConf:                   {"lab-admin", "system:masters"},
		controllerManager + ".conf": {"system:kube-controller-manager"},
		scheduler + ".conf":         {"system:kube-scheduler"},
	} {
		// The control plane itself keeps working when the API server is given a certificate that nodes do not trust.
		if files[name], err = c.kubeconfig(slices.Concat(c.CA.PEM(), c.OtherCA.PEM()), who[0], who[1:]...); err != nil {
			return err
		}
	}
	if c.opts.OIDC != nil {
		if files[authConf], err = c.opts.OIDC.authentication(); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(c.path(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) servingPair(issuer *CA) (KeyPair, error) {
	return issuer.ServerCert(c.Switch.Address().String(), "127.0.0.1", "10.96.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
}

// arguments returns the command line of a program of the control plane.
func (c *Cluster) arguments(program string) []string {
	switch program {
	case etcd:
		return []string{
			"--data-dir=" + c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=default=http://127.0.0.1:2380",
		}
	case apiServer:
		args := []string{
			"--etcd-servers=http://127.0.0.1:2379", "--advertise-address=" + c.Switch.Address().String(), "--secure-port=" + apiPort,
			"--client-ca-file=" + c.path(caCert), "--tls-cert-file=" + c.path(servingCert), "--tls-private-key-file=" + c.path(servingKey),
			"--kubelet-client-certificate=" + c.path(kubeletCert), "--kubelet-client-key=" + c.path(kubeletKey),
			"--kubelet-preferred-address-types=InternalIP", "--service-cluster-ip-range=10.96.0.0/16",
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + c.path(accountKey),
			"--service-account-signing-key-file=" + c.path(accountKey),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--enable-bootstrap-token-auth", "--allow-privileged",
			"--audit-policy-file=" + c.path(auditConf), "--audit-log-path=" + c.path(auditLog),
		}
		if c.opts.OIDC != nil {
			args = append(args, "--authentication-config="+c.path(authConf))
		}
		return args
	case controllerManager:
		args := []string{
			"--kubeconfig=" + c.path(controllerManager+".conf"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--use-service-account-credentials", "--service-account-private-key-file=" + c.path(accountKey), "--root-ca-file=" + c.path(caCert),
			"--cluster-signing-cert-file=" + c.path(caCert), "--cluster-signing-key-file=" + c.path(caKey),
			// With the ordinary limits its start alone takes a quarter of a minute.
			"--kube-api-qps=500", "--kube-api-burst=1000", "--controllers=*,tokencleaner",
			"--node-monitor-period=1s", "--node-monitor-grace-period=" + c.opts.NodeGrace.String(), "--node-startup-grace-period=10s",
		}
		if d := c.opts.ClientCertDuration; d > 0 {
			args = append(args, "--cluster-signing-duration="+d.String())
		}
		return args
	default:
		return []string{"--kubeconfig=" + c.path(scheduler+".conf"), "--leader-elect=false", "--bind-address=127.0.0.1"}
	}
}

// process is a running program of the control plane.
type process struct {
	*os.Process
	done chan struct{} // closed when it has ended and is reaped
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// start starts a program of the control plane in the switch's network and the cluster's cgroup. It dies with this process.
func (c *Cluster) start(ctx context.Context, program string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.processes[program]; p != nil && !p.ended() {
		return fmt.Errorf("start %s: it runs already", program)
	}
	cgroup, err := openCgroup(c.state.cgroup(c.state.ID))
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	defer cgroup.Close()
	log, err := os.OpenFile(c.path(program+".log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	defer log.Close()
	argv := append([]string{filepath.Join(c.tools, program)}, c.arguments(program)...)
	cmd := c.command(context.WithoutCancel(ctx), argv...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true, Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: int(cgroup.Fd()),
	}
	p := &process{done: make(chan struct{})}
	if err := startAndReap(cmd, p.done); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	p.Process = cmd.Process
	c.processes[program] = p
	return nil
}

// command prepares a program of the machine that runs in the switch's network and finds nothing of the person's own.
func (c *Cluster) command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := c.Switch.Command(ctx, argv...)
	cmd.Dir = c.path("")
	cmd.Env = append(hostEnv(), "HOME="+c.path(""))
	return cmd
}

// end asks a program to end, kills it if it has not after 2 s, and returns when it is gone. One that is not there is gone.
// An API server with watches never ends by itself in time.
func (c *Cluster) end(ctx context.Context, program string) error {
	c.mu.Lock()
	p := c.processes[program]
	delete(c.processes, program)
	c.mu.Unlock()
	if p == nil || p.ended() {
		return nil
	}
	// A frozen one has to go on in order to end.
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := p.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", program, err)
		}
	}
	patience := time.NewTimer(2 * time.Second)
	defer patience.Stop()
	select {
	case <-p.done:
		return nil
	case <-patience.C:
	case <-ctx.Done():
	}
	_ = p.Kill() // fails only if it has ended just now
	<-p.done
	return nil
}

// signal sends a signal to a program of the control plane.
func (c *Cluster) signal(program string, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.processes[program]
	if p == nil || p.ended() {
		return fmt.Errorf("send %v to %s: it does not run", sig, program)
	}
	if err := p.Signal(sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, program, err)
	}
	if sig == syscall.SIGSTOP {
		return stopped(p.Pid)
	}
	return nil
}

// stopped waits until every thread of a process has stopped: on a busy machine one of them may still answer something a moment after the
// signal was sent.
func stopped(pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return WaitFor(ctx, 10*time.Second, fmt.Sprintf("process %d stops", pid), func(context.Context) (bool, string) {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			return false, "it has no threads"
		}
		for _, path := range threads {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // it ended
			}
			if _, state, ok := strings.Cut(string(text), ") "); ok && !strings.HasPrefix(state, "T") {
				return false, "a thread is in state " + state[:1]
			}
		}
		return true, ""
	})
}

// dead lists the programs that ended though nobody stopped them, with what they said last.
func (c *Cluster) dead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []error
	for _, program := range slices.Sorted(maps.Keys(c.processes)) {
		if c.processes[program].ended() {
			list = append(list, fmt.Errorf("%s has ended:\n%s", program, c.logTail(program, 10)))
		}
	}
	return errors.Join(list...)
}

// logTail returns the last lines of a program's log, or why there are none.
func (c *Cluster) logTail(program string, lines int) string {
	text, err := os.ReadFile(c.path(program + ".log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
