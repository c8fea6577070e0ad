//go:build e2e

package e2e

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/aks-flex-node/agent/test/lab"
)

const (
	stateDir = "/var/lib/aks-flex-node"
	runDir   = "/run/aks-flex-node"
)

// disk puts a small disk under a folder of the agent.
func disk(folder, mode string) func(*patient) {
	return script("mount -t tmpfs -o size=4m,mode=" + mode + " disk " + folder)
}

// inAgent runs a command in the mounts that the agent sees.
func inAgent(command string) func(*patient) {
	return script("nsenter -t $(systemctl show -P MainPID " + agentUnit + ") -m " + command)
}

// agentAnew forgets the looks of the agent that was.
func agentAnew(p *patient) { p.looks = 0 }

func restartedAgent(p *patient) {
	p.t.Helper()
	lab.Must(p.t, lab.WaitFor(p.t.Context(), time.Minute, "systemd starts the agent anew", func(ctx context.Context) (bool, string) {
		out, err := p.Exec(ctx, "systemctl", "show", "-P", "NRestarts", agentUnit)
		n := strings.TrimSpace(out.Stdout)
		return err == nil && n != "0" && n != "", n
	}))
}

func hostTroubles() []trouble {
	rows := []trouble{
		{name: "D-Bus restarted", into: script("systemctl restart dbus"), looks: 4, recovery: "nothing to recover from"},
		{name: "systemd re-executed", into: script("systemctl daemon-reexec"), looks: 4, may: aroundContainerd(), recovery: withNext},
		{
			name: "systemd frozen", into: freezeInit, lift: func(p *patient) { p.release() },
			decisions: []string{"wait CannotTell"}, may: aroundContainerd("RuncPresent"), recovery: withNext,
		},
		{
			name: "disk of the journal full", prepare: disk(stateDir, "0700"), tidy: script("umount " + stateDir), looks: 4,
			into: script("head -c 10M /dev/zero >" + stateDir + "/filler || true"), lift: script("rm " + stateDir + "/filler"), recovery: withNext,
		},
		{
			name: "disk of the snapshot full", prepare: disk(runDir, "0755"), tidy: script("umount " + runDir), looks: 4,
			into: script("head -c 10M /dev/zero >" + runDir + "/filler || true"), lift: script("rm " + runDir + "/filler"),
			conditions: []string{"StatusFileWritable False WriteFailed, pending"}, recovery: withNext,
		},
		{
			name: "snapshot deleted", into: both(script("rm "+snapshotPath), func(p *patient) { p.looks = 0 }), recovery: "at once", may: []string{"hold SnapshotNotRefreshed"},
		},
		{
			name: "snapshot corrupted", into: script("head -c 3000 /dev/urandom >" + snapshotPath), recovery: "at once", may: []string{"hold SnapshotNotRefreshed"},
		},
		{
			name: "folder of the snapshot read-only", into: inAgent("mount -t tmpfs -o ro,mode=0755 empty " + runDir), lift: inAgent("umount " + runDir),
			conditions: []string{"StatusFileWritable False WriteFailed, pending"}, decisions: []string{"hold SnapshotNotRefreshed"}, recovery: withNext,
		},
		{
			name: "journal corrupted", looks: 3, into: agentAnew,
			broken: script("head -c 100000 /dev/urandom >" + stateDir + "/journal.db"),
			check: func(p *patient) {
				if p.last.view.Budget.Unknown == 0 {
					p.t.Errorf("got budget %+v, want it to count as used", p.last.view.Budget)
				}
			},
			note: "the budget counts as used for 24 h", recovery: "a new journal is begun",
		},
		{
			name: "journal read-only, and the kubelet failed", ends: []string{kubelet},
			// By another mount of the same disk, since what makes a disk read-only is seldom said of one mount alone.
			prepare: both(disk(stateDir, "0700"), script("mkdir -p /mnt/side; mount --bind "+stateDir+" /mnt/side")), tidy: script("umount /mnt/side " + stateDir),
			broken: script("mount -o remount,ro /mnt/side"), into: both(agentAnew, script(dropIn(noRestart)+signal("KILL", kubelet))),
			lift:       script("mount -o remount,rw /mnt/side\n" + noDropIn),
			conditions: []string{"KubeletRunning False Failed, pending"}, snapshot: []string{"kubeletRunning false"}, decisions: []string{"hold JournalBroken"},
			may: aroundKubelet("restart Failed"), actionsAfter: []string{"restart " + kubelet}, recovery: "by the agent's restart, once it can be written down",
		},
		{
			name: "agent killed", into: both(agentAnew, script(signal("KILL", agentUnit)), restartedAgent), looks: 2, recovery: bySystemd,
		},
		{
			name: "agent stopped past its watchdog", looks: 2,
			broken: script("mkdir -p /run/systemd/system/" + agentUnit + ".d; printf '[Service]\\nWatchdogSec=5\\n' >/run/systemd/system/" + agentUnit + ".d/trouble.conf; systemctl daemon-reload"),
			into:   both(agentAnew, script(signal("STOP", agentUnit)), restartedAgent),
			tidy:   script("rm -r /run/systemd/system/" + agentUnit + ".d; systemctl daemon-reload"), recovery: bySystemd,
		},
		{
			name: "two agents at once", looks: 2,
			into: script("if timeout 20 aks-flex-node agent; then echo a second agent runs; exit 1; else [ $? != 124 ]; fi"), note: "the second one ends with an error", recovery: "nothing to recover from",
		},
		{
			name: "host's power cut", ends: []string{kubelet, containerd}, looks: 2, may: aroundContainerd("APIServerReachable", "RuncPresent", "KubeletCertificateValid"),
			into: both(agentAnew, func(p *patient) { lab.Must(p.t, errors.Join(p.PowerCut(p.t.Context()), p.Boot(p.t.Context()))) }), recovery: "with the host",
		},
		{
			name: "host rebooted", ends: []string{kubelet, containerd}, looks: 2, may: aroundContainerd("APIServerReachable", "RuncPresent", "KubeletCertificateValid"),
			into: both(agentAnew, func(p *patient) { lab.Must(p.t, p.Reboot(p.t.Context())) }), recovery: "with the host",
		},
		{
			name: "azcmagent prints garbage", prepare: arc("connected"), broken: arc("garbage"), lift: arc("connected"), tidy: noArc,
			conditions: []string{"ArcConnected Unknown ArcNotUnderstood"}, may: []string{"arcStatus.connected", "arcStatus.registered"}, recovery: withArcsLook,
		},
	}
	return append(programTroubles(lab.KubeletPath), rows...)
}

// freezeInit stops systemd itself.
func freezeInit(p *patient) {
	p.t.Helper()
	pid := p.PID()
	lab.Must(p.t, syscall.Kill(pid, syscall.SIGSTOP))
	p.release = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	p.t.Cleanup(p.release)
}

func linkTroubles() []trouble {
	const unreachable = "APIServerReachable False "
	lost := []string{"hold LinkLost"}
	may := []string{"NodeReady", "kubeletReady", "APIServerReachable"}
	arcMay := []string{"arcStatus.connected", "arcStatus.registered"}
	return []trouble{
		{
			name: "link cut", into: func(p *patient) { lab.Must(p.t, p.CutLink(p.t.Context())) }, lift: func(p *patient) { lab.Must(p.t, p.MendLink(p.t.Context())) },
			conditions: []string{unreachable + "ConnectionTimeout"}, decisions: lost, may: may, recovery: linkBack,
		},
		{
			name: "packets dropped", into: func(p *patient) { lab.Must(p.t, p.c.Drop(p.t.Context(), p.Host)) }, lift: func(p *patient) { lab.Must(p.t, p.c.Undrop(p.t.Context(), p.Host)) },
			conditions: []string{unreachable + "ConnectionTimeout, pending"}, decisions: lost, may: may, recovery: linkBack,
		},
		{
			name: "API server fails once (restarted)", into: func(p *patient) { lab.Must(p.t, p.c.RestartAPI(p.t.Context())) }, looks: 4,
			may: append(lost, may...), recovery: "with the API server",
		},
		{
			name: "API server down", into: func(p *patient) { lab.Must(p.t, p.c.StopAPI(p.t.Context())) }, lift: func(p *patient) { lab.Must(p.t, p.c.StartAPI(p.t.Context())) },
			conditions: []string{unreachable + "ConnectionRefused, pending"}, decisions: lost, may: may, recovery: "with the API server",
		},
		{
			name: "API server hung", into: func(p *patient) { lab.Must(p.t, p.c.FreezeAPI()) }, lift: func(p *patient) { lab.Must(p.t, p.c.ThawAPI()) },
			conditions: []string{unreachable + "ConnectionTimeout, pending"}, decisions: lost, may: may, recovery: "with the API server",
		},
		{
			name: "API server slow", into: stutterAPI, lift: func(p *patient) { p.release() }, looks: 4, may: may, recovery: "nothing to recover from",
		},
		{
			name: "API server answers garbage", into: garbageAPI, lift: func(p *patient) { p.release(); lab.Must(p.t, p.c.StartAPI(p.t.Context())) },
			conditions: []string{unreachable + "TLSFailed, pending"}, decisions: lost, may: may, recovery: "with the API server",
		},
		{
			name: "Arc disconnected", prepare: arc("connected"), broken: arc("disconnected"), into: reloads, lift: arc("connected"), tidy: noArc,
			conditions: []string{"ArcConnected False Disconnected, pending"}, snapshot: []string{"arcStatus.connected false"}, decisions: lost, may: arcMay, recovery: withArcsLook,
		},
		{
			name: "azcmagent hung", prepare: arc("connected"), broken: arc("hangs stubbornly"), lift: arc("connected"), tidy: noArc,
			conditions: []string{"ArcConnected Unknown Timeout"}, may: arcMay, recovery: withArcsLook,
		},
		{
			name: "azcmagent slow", prepare: arc("connected"), broken: arc("slow"), into: agentAnew, lift: arc("connected"), tidy: noArc, looks: 2, may: arcMay, recovery: "nothing to recover from",
		},
	}
}

// stutterAPI lets the API server answer only now and then.
func stutterAPI(p *patient) {
	end, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			err := p.c.FreezeAPI()
			<-time.After(time.Second)
			err = errors.Join(err, p.c.ThawAPI())
			select {
			case <-end:
				ended <- err
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	p.release = func() {
		close(end)
		lab.Must(p.t, <-ended)
	}
}

// garbageAPI puts something else in the place of the API server.
func garbageAPI(p *patient) {
	p.t.Helper()
	lab.Must(p.t, p.c.StopAPI(p.t.Context()))
	l, err := p.c.Switch.Listen(p.t.Context(), "tcp", net.JoinHostPort(p.c.Switch.Address().String(), "6443"))
	lab.Must(p.t, err)
	p.t.Cleanup(func() { _ = l.Close() })
	p.release = func() { _ = l.Close() }
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-not what you asked for\r\n"))
			_ = c.Close()
		}
	}()
}
