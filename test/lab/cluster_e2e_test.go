//go:build linux && e2e

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestNodesJoinEachInItsOwnWay(t *testing.T) {
	Require(t, ClusterPrograms()...)
	older, err := KubeletVersion(t.Context(), "1.36")
	Must(t, err)
	began := time.Now()
	c := StartCluster(t, ClusterOptions{})
	t.Logf("control plane after %v", time.Since(began))

	for name, tt := range map[string]struct {
		opts JoinOptions
		user string // as whom the kubelet works
		unit string // what its command line has
	}{
		"n1":     {user: "system:node:n1", unit: "--kubeconfig=/etc/kubernetes/kubelet.conf --hostname-override=n1 "},
		"n2":     {opts: JoinOptions{Kubelet: older}, user: "system:node:n2"},
		"rack-7": {opts: JoinOptions{Hostname: "Rack-7", NoHostnameOverride: true}, user: "system:node:rack-7"},
		"n4": {
			opts: JoinOptions{Hostname: "M9.Example", KubeconfigPath: "/var/lib/kubelet/kubelet/kubeconfig"},
			user: "system:node:n4", unit: "--kubeconfig=/var/lib/kubelet/kubelet/kubeconfig --hostname-override=n4 ",
		},
		"n5": {
			opts: JoinOptions{KubeconfigPath: "/var/lib/kubelet/kubeconfig", ExtraFlags: []string{"--v=3"}, ExtraConfig: "healthzPort: 10249\n"},
			user: "system:node:n5", unit: " --v=3 ",
		},
		"n6": {
			opts: JoinOptions{ExecPlugin: &ExecPlugin{User: "6b1f5c1e-0000-4000-8000-000000000006"}},
			user: "6b1f5c1e-0000-4000-8000-000000000006",
		},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			h := c.MustJoin(t, name, tt.opts)
			t.Logf("Ready after %v", time.Since(began))

			node, err := c.Node(t.Context(), name)
			Must(t, err)
			program, hostname := h.MustExec(t, KubeletPath, "--version"), h.MustExec(t, "hostname")
			if got := "Kubernetes " + node.Status.NodeInfo.KubeletVersion + "\n"; got != program {
				t.Errorf("got version %q, want %q", got, program)
			}
			if (tt.opts.Kubelet == older) != strings.HasPrefix(program, "Kubernetes v1.36.") {
				t.Errorf("got version %q of kubelet %q", program, tt.opts.Kubelet)
			}
			if want := tt.opts.Hostname; want != "" && hostname != want+"\n" {
				t.Errorf("got hostname %q, want %q", hostname, want)
			}
			unit := h.MustExec(t, "systemctl", "cat", "kubelet.service")
			if !strings.Contains(unit, tt.unit) || strings.Contains(unit, "--hostname-override") == tt.opts.NoHostnameOverride {
				t.Errorf("got unit %s, want %q in it", unit, tt.unit)
			}
			if n := statusPatches(t, c, name, tt.user, began); n == 0 {
				t.Errorf("got no status of the node from user %s", tt.user)
			}
		})
	}

	t.Run("by the name of a host that has gone", func(t *testing.T) { c.MustJoin(t, "n1", JoinOptions{}) })
	t.Run("never by another name than its hostname without override", func(t *testing.T) {
		if _, err := c.Join(t.Context(), "n9", JoinOptions{Hostname: "other", NoHostnameOverride: true}); err == nil {
			t.Error("got no error")
		}
	})
}

// statusPatches counts the statuses of a node that a user's kubelet has sent with success.
func statusPatches(t *testing.T, c *Cluster, node, user string, since time.Time) int {
	t.Helper()
	events, err := c.Requests("kubelet/v1.", since)
	Must(t, err)
	n := 0
	for _, e := range events {
		if e.User == user && e.Verb == "patch" && strings.HasPrefix(e.URI, "/api/v1/nodes/"+node+"/status") && e.Code == http.StatusOK {
			n++
		}
	}
	return n
}

// awaitReady waits for a node's Ready condition and logs how long it took.
func awaitReady(t *testing.T, c *Cluster, node string, want corev1.ConditionStatus, after string) {
	t.Helper()
	began := time.Now()
	Must(t, c.WaitReady(t.Context(), node, want, 2*time.Minute))
	t.Logf("%s: Ready=%s after %v", after, want, time.Since(began).Round(time.Millisecond))
}

func TestNodesRecoverFromFaultsOfTheirOwn(t *testing.T) {
	Require(t, ClusterPrograms()...)
	c := StartCluster(t, ClusterOptions{})
	systemctl := func(verb string) func(context.Context, *Host) error {
		return func(ctx context.Context, h *Host) error {
			_, err := h.run(ctx, "systemctl", verb, "kubelet.service")
			return err
		}
	}
	type act = func(context.Context, *Host) error
	for name, tt := range map[string]struct{ fault, repair act }{
		"kubelet-stopped": {systemctl("stop"), systemctl("start")},
		"link-cut": {
			func(ctx context.Context, h *Host) error { return h.CutLink(ctx) },
			func(ctx context.Context, h *Host) error { return h.MendLink(ctx) },
		},
		"packets-lost": {c.Drop, c.Undrop},
		"power-cut": {
			func(ctx context.Context, h *Host) error { return h.PowerCut(ctx) },
			func(ctx context.Context, h *Host) error { return h.Boot(ctx) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := c.MustJoin(t, name, JoinOptions{})
			for range 2 {
				Must(t, tt.fault(t.Context(), h))
				awaitReady(t, c, name, corev1.ConditionUnknown, "fault")
				Must(t, tt.repair(t.Context(), h))
				awaitReady(t, c, name, corev1.ConditionTrue, "repair")
			}
		})
	}
}

func TestNodesRecoverFromFaultsOfTheAPIServer(t *testing.T) {
	Require(t, ClusterPrograms()...)
	c := StartCluster(t, ClusterOptions{ClientCertDuration: 2 * time.Minute})
	h := c.MustJoin(t, "n1", JoinOptions{})
	const me = "system:node:n1"

	// awaitStatus waits until the kubelet has sent a status, which it does every 2 s if it changed and else every 10 s.
	awaitStatus := func(t *testing.T, after string) {
		t.Helper()
		began := time.Now()
		Must(t, WaitFor(t.Context(), time.Minute, "the kubelet sends a status", func(context.Context) (bool, string) {
			return statusPatches(t, c, "n1", me, began) > 0, "none"
		}))
		t.Logf("%s: status after %v", after, time.Since(began).Round(time.Millisecond))
	}

	t.Run("pods run", func(t *testing.T) {
		Must(t, c.Apply(t.Context(), deployment))
		if _, err := c.Kubectl(t.Context(), "rollout", "status", "deployment/web", "--timeout=60s"); err != nil {
			t.Error(err)
		}
	})
	t.Run("restart", func(t *testing.T) {
		Must(t, c.RestartAPI(t.Context()))
		awaitStatus(t, "restart")
	})
	t.Run("outage", func(t *testing.T) {
		Must(t, c.StopAPI(t.Context()))
		if conn, err := h.Dial(t.Context(), "tcp", strings.TrimPrefix(c.Server(), "https://")); err == nil {
			_ = conn.Close()
			t.Error("a stopped API server: got a connection")
		}
		Must(t, c.StartAPI(t.Context()))
		awaitReady(t, c, "n1", corev1.ConditionTrue, "start")
		awaitStatus(t, "start")
	})
	t.Run("silence", func(t *testing.T) {
		Must(t, c.FreezeAPI())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if node, err := c.Node(ctx, "n1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a frozen API server: got node %v and error %v", node, err)
		}
		Must(t, c.ThawAPI())
		awaitReady(t, c, "n1", corev1.ConditionTrue, "thaw")
		awaitStatus(t, "thaw")
	})
	t.Run("another certificate of the same CA", func(t *testing.T) {
		Must(t, c.ReplaceServingCert(t.Context(), c.CA))
		Must(t, c.RestartAPI(t.Context()))
		awaitStatus(t, "restart")
	})
	t.Run("a certificate of a CA that nodes do not trust", func(t *testing.T) {
		Must(t, c.ReplaceServingCert(t.Context(), c.OtherCA))
		Must(t, c.RestartAPI(t.Context()))
		awaitReady(t, c, "n1", corev1.ConditionUnknown, "other CA")
		Must(t, c.ReplaceServingCert(t.Context(), c.CA))
		awaitReady(t, c, "n1", corev1.ConditionTrue, "same CA again")
	})
	t.Run("certificates of nodes are renewed", func(t *testing.T) {
		const pem = "/var/lib/kubelet/pki/kubelet-client-current.pem"
		before, err := h.ReadFile(pem)
		Must(t, err)
		began := time.Now()
		Must(t, WaitFor(t.Context(), 2*time.Minute, "the certificate is another", func(context.Context) (bool, string) {
			now, err := h.ReadFile(pem)
			return err == nil && string(now) != string(before), "the same"
		}))
		t.Logf("renewed after %v", time.Since(began))
		awaitReady(t, c, "n1", corev1.ConditionTrue, "renewed")
	})
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: "` + pauseImage + `", imagePullPolicy: Never}]
`

func TestTheAPIServerKnowsItsUsers(t *testing.T) {
	Require(t, ClusterPrograms()...)
	sw := NewSwitch(t, netip.MustParsePrefix("10.77.0.1/24"))
	issuer := StartIssuer(t, sw)
	began := time.Now()
	c := StartCluster(t, ClusterOptions{Switch: sw, OIDC: issuer.OIDC("api")})
	whoami := func(flags ...string) (string, error) {
		return c.Kubectl(t.Context(), append(flags, "auth", "whoami", "--output=jsonpath={.status.userInfo.username}")...)
	}

	t.Run("by certificate", func(t *testing.T) {
		text, err := c.Kubeconfig("someone", "some-group")
		Must(t, err)
		file := filepath.Join(t.TempDir(), "kubeconfig")
		Must(t, os.WriteFile(file, text, 0o600))
		if got, err := whoami("--kubeconfig=" + file); err != nil || got != "someone" {
			t.Errorf("got %q and error %v", got, err)
		}
		if _, err := c.Kubectl(t.Context(), "--kubeconfig="+file, "get", "nodes"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("without rights: got %v", err)
		}
		Must(t, c.Grant(t.Context(), "system:node", "someone"))
		Must(t, c.Grant(t.Context(), "system:node", "someone"))
		Must(t, WaitFor(t.Context(), shortly, "the rights are there", func(ctx context.Context) (bool, string) {
			_, err := c.Kubectl(ctx, "--kubeconfig="+file, "get", "nodes")
			return err == nil, fmt.Sprint(err)
		}))
	})
	t.Run("by token of an issuer", func(t *testing.T) {
		for _, tt := range [][]string{{"api", "7f3e"}, {"other", ""}} {
			audience, want := tt[0], tt[1]
			token, err := issuer.Token(map[string]any{"sub": "7f3e", "aud": audience})
			Must(t, err)
			flags := []string{"--kubeconfig=/dev/null", "--server=" + c.Server(), "--certificate-authority=" + c.path(caCert), "--token=" + token}
			// The API server may still be asking the issuer for its keys.
			Must(t, WaitFor(t.Context(), time.Minute, fmt.Sprintf("a token for %s is one of user %q", audience, want), func(context.Context) (bool, string) {
				got, err := whoami(flags...)
				return got == want && (err == nil) == (want != ""), fmt.Sprintf("%q, %v", got, err)
			}))
		}
	})
	t.Run("and writes down what they ask for", func(t *testing.T) {
		if _, err := c.Node(t.Context(), "none"); !apierrors.IsNotFound(err) {
			t.Errorf("no such node: got %v", err)
		}
		want := AuditEvent{Verb: "get", URI: "/api/v1/nodes/none", Code: http.StatusNotFound, UserAgent: "lab", User: "lab"}
		Must(t, WaitFor(t.Context(), shortly, "the request is in the log", func(context.Context) (bool, string) {
			events, err := c.Requests("la", began)
			Must(t, err)
			return slices.ContainsFunc(events, func(e AuditEvent) bool { e.Time = want.Time; return e == want }), fmt.Sprint(events)
		}))
		for prefix, since := range map[string]time.Time{"nobody": began, "lab": time.Now()} {
			if events, err := c.Requests(prefix, since); err != nil || len(events) > 0 {
				t.Errorf("of %s since %v: got %v and error %v, want none", prefix, since, events, err)
			}
		}
	})
}

func TestNothingIsLeftOfAClusterWhoseOwnerWasKilled(t *testing.T) {
	Require(t, ClusterPrograms()...)
	p, err := defaultPlace()
	Must(t, err)
	id, _, kill := startHolder(t, "hold cluster")
	cgroup, dir := p.cgroup(id), filepath.Join(p.Base, id)

	// Given: a cluster of another process, which our sweep leaves alone.
	Must(t, Sweep(t.Context()))
	if got := cgroupProcesses(cgroup); len(got) != 4 {
		t.Fatalf("got processes %v of the control plane, want 4", got)
	}

	// When: the owner is killed.
	kill()

	// Then: no process is left, also none that is frozen, and a sweep takes the rest.
	Must(t, WaitFor(t.Context(), shortly, "all processes of the cluster are gone", func(context.Context) (bool, string) {
		left := cgroupProcesses(cgroup)
		return len(left) == 0, fmt.Sprint(left)
	}))
	Must(t, Sweep(t.Context()))
	for _, path := range []string{cgroup, dir} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s after a sweep: got %v, want it gone", path, err)
		}
	}
}

func TestAClusterThatCannotStartLeavesNothing(t *testing.T) {
	Require(t, ClusterPrograms()...)
	c := &Cluster{opts: ClusterOptions{OIDC: &OIDC{IssuerURL: "http://not-secure"}}, processes: map[string]*process{}}
	Must(t, c.prepare(t.Context()))
	err := c.bringUp(t.Context())
	if err == nil || !strings.Contains(err.Error(), apiServer+" has ended") || !strings.Contains(err.Error(), "not-secure") {
		t.Errorf("got %v, want it to say what has ended and why", err)
	}
	for range 2 {
		Must(t, c.Stop())
	}
	for _, path := range []string{c.state.cgroup(c.state.ID), c.state.Dir} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: got %v, want it gone", path, err)
		}
	}
}
