//go:build e2e

package e2e

import (
	"slices"
)

const (
	kubelet    = "kubelet.service"
	containerd = "containerd.service"

	linkBack      = "with the link"
	restartBy     = "by the agent's restart"
	bySystemd     = "by systemd's restart"
	withNext      = "with the next look"
	byAdmin       = "by whoever did it"
	withArcsLook  = "with the next look at Arc, within a minute"
	noRestart     = "[Service]\nRestart=no\n"
	kubeletDropIn = "/etc/systemd/system/kubelet.service.d/trouble.conf"
)

// aroundKubelet may be seen while the kubelet is down, hangs or comes up.
func aroundKubelet(more ...string) []string {
	return append([]string{"KubeletRunning", "KubeletHealthy", "NodeReady", "RestartPending", "kubeletRunning", "kubeletReady"}, more...)
}

// aroundContainerd may be seen while containerd is down, hangs or comes up.
func aroundContainerd(more ...string) []string {
	return aroundKubelet(append([]string{"ContainerdRunning", "RuntimeReady", "containerdRunning", "containerdVersion"}, more...)...)
}

// script is a step that runs a script on the host.
func script(text string) func(*patient) {
	return func(p *patient) {
		p.t.Helper()
		p.sh(text)
	}
}

// both are steps one after the other.
func both(steps ...func(*patient)) func(*patient) {
	return func(p *patient) {
		for _, s := range steps {
			s(p)
		}
	}
}

func signal(name, unit string) string {
	return "kill -" + name + " $(systemctl show -P MainPID " + unit + ")\n"
}

// stutter stops and continues a unit's process for ever: it answers, but takes more than a second.
func stutter(unit string) func(*patient) {
	return script("pid=$(systemctl show -P MainPID " + unit + ")\n" +
		"systemd-run -q --unit=stutter sh -c \"while :; do kill -STOP $pid; sleep 1.2; kill -CONT $pid; sleep .3; done\"\n")
}

func unstutter(unit string) func(*patient) {
	return script("systemctl stop stutter\n" + signal("CONT", unit))
}

// impostor listens where a daemon should.
func impostor(network, address, mode string) string {
	return "systemd-run -q --unit=impostor " + misbehave + " listen " + network + " " + address + " " + mode + "\n" +
		"for i in $(seq 200); do ss -Hlxt | grep -q '" + address + " ' && break; sleep .05; done\n"
}

// healthz puts an impostor in the place of the kubelet's health endpoint: the kubelet itself works.
func healthz(mode string) func(*patient) {
	return script("systemctl stop kubelet\n" + impostor("tcp", "127.0.0.1:10248", mode) + "systemctl start kubelet\n")
}

// replaced puts a program that misbehaves over another.
func replaced(name, path, mode string) func(*patient) {
	return script("mkdir -p /opt/real; [ -e /opt/real/" + name + " ] || cp " + path + " /opt/real/" + name + "\n" +
		"rm -f /opt/real/" + name + ".failed; echo " + mode + " >/opt/real/" + name + ".mode\n" +
		"mount --bind " + misbehave + " " + path + "\n")
}

func unreplaced(path string) func(*patient) { return script("umount -l " + path) }

func dropIn(text string) string {
	return "mkdir -p $(dirname " + kubeletDropIn + "); cat >" + kubeletDropIn + " <<EOF\n" + text + "EOF\nsystemctl daemon-reload\n"
}

const noDropIn = "rm " + kubeletDropIn + "; systemctl daemon-reload\n"

// repairs is what a bootstrap will do.
func repairs(text string) func(*patient) {
	return script("cat >" + repairScript + " <<'EOF'\n" + text + "EOF\n")
}

func kubeletTroubles() []trouble {
	const toLib = "systemctl -q disable kubelet; mv /etc/systemd/system/kubelet.service /lib/systemd/system/; systemctl daemon-reload; systemctl -q enable kubelet"
	const toEtc = "systemctl -q disable kubelet; mv /lib/systemd/system/kubelet.service /etc/systemd/system/; systemctl daemon-reload; systemctl -q enable kubelet"
	return []trouble{
		{
			name: "kubelet killed once", into: script(signal("KILL", kubelet)), ends: []string{kubelet},
			conditions: []string{"KubeletRunning False AutoRestart, pending"}, snapshot: []string{"kubeletRunning false"}, decisions: []string{"wait Confirming"},
			may: aroundKubelet(), recovery: bySystemd,
		},
		{
			name: "kubelet slow", into: stutter(kubelet), lift: unstutter(kubelet), looks: 4, recovery: "nothing to recover from",
		},
		{
			name: "kubelet hung for one look", into: script(signal("STOP", kubelet)), lift: script(signal("CONT", kubelet)),
			conditions: []string{"KubeletHealthy False HealthzSilent, pending"}, decisions: []string{"wait Confirming"}, may: aroundKubelet(), recovery: withNext,
		},
		{
			name: "kubelet hung for ever", into: script(signal("STOP", kubelet)),
			conditions: []string{"KubeletHealthy False HealthzSilent, pending"}, decisions: []string{"restart HealthzSilent"}, actions: []string{"restart " + kubelet},
			may: aroundKubelet(), recovery: restartBy,
		},
		{
			name: "kubelet says for ever that it is not well, and works", broken: healthz("fail"), lift: script("systemctl stop impostor"), ends: []string{kubelet},
			conditions: []string{"KubeletHealthy False HealthzFailed"}, decisions: []string{"restart HealthzFailed", "hold NodeWorks"}, actions: []string{"restart " + kubelet},
			may: aroundKubelet(), recovery: withNext,
		},
		{
			name: "kubelet's health endpoint answers garbage", broken: healthz("garbage"), lift: script("systemctl stop impostor"), ends: []string{kubelet}, looks: 3,
			conditions: []string{"KubeletHealthy Unknown HealthzUnavailable"}, may: aroundKubelet(), recovery: withNext,
		},
		{
			name: "kubelet stopped by an admin", into: script("systemctl stop kubelet"), lift: script("systemctl start kubelet"), ends: []string{kubelet},
			conditions: []string{"KubeletRunning False Stopped, pending"}, snapshot: []string{"kubeletRunning false"}, decisions: []string{"hold UnitStopped"},
			may: aroundKubelet(), recovery: byAdmin,
		},
		{
			name: "kubelet stopped by an admin and forgotten", into: script("systemctl stop kubelet"),
			conditions: []string{"KubeletRunning False Stopped"}, snapshot: []string{"kubeletRunning false"},
			decisions: []string{"hold UnitStopped", "restart Stopped"}, actions: []string{"restart " + kubelet},
			may: aroundKubelet(), recovery: "by the agent's start, after the hold",
		},
		{
			name: "kubelet disabled and stopped", into: script("systemctl -q disable --now kubelet"), lift: script("systemctl -q enable --now kubelet"), ends: []string{kubelet},
			conditions: []string{"KubeletRunning False Stopped, pending"}, snapshot: []string{"kubeletRunning false"}, decisions: []string{"hold UnitDisabled"},
			may: aroundKubelet("hold UnitStopped"), recovery: byAdmin,
		},
		{
			name: "kubelet masked", prepare: script(toLib), tidy: script(toEtc), ends: []string{kubelet},
			into: script("systemctl -q mask --now kubelet"), lift: script("systemctl -q unmask kubelet; systemctl -q enable --now kubelet"),
			conditions: []string{"KubeletRunning False UnitMasked, pending"}, snapshot: []string{"kubeletRunning false"}, decisions: []string{"hold UnitMasked"},
			may: aroundKubelet("hold UnitStopped"), recovery: byAdmin,
		},
		{
			name: "kubelet unit missing", ends: []string{kubelet},
			prepare:    repairs("mv /root/kubelet.service /etc/systemd/system/; systemctl daemon-reload; systemctl enable --now kubelet\n"),
			into:       script("systemctl stop kubelet; mv /etc/systemd/system/kubelet.service /root/; systemctl daemon-reload"),
			conditions: []string{"KubeletRunning False UnitNotFound, pending"}, snapshot: []string{"kubeletRunning false"},
			decisions: []string{"bootstrap KubeletMissing"}, actions: []string{"bootstrap"},
			may: aroundKubelet("hold NodeWorks", "hold UnitStopped"), recovery: "by the bootstrap",
		},
		{
			name: "kubelet in a crash loop", ends: []string{kubelet}, lift: script(noDropIn),
			into:       script(dropIn("[Service]\nExecStart=\nExecStart=/usr/local/bin/kubelet --no-such-flag\n") + "systemctl restart --no-block kubelet"),
			conditions: []string{"KubeletRunning False CrashLoop, pending"}, snapshot: []string{"kubeletRunning false"},
			decisions: []string{"restart CrashLoop"}, actions: []string{"restart " + kubelet},
			may: aroundKubelet("restart AutoRestart", "restart Activating"), recovery: "by systemd's restart, once its command line is right",
		},
		{
			name: "azcmagent fails for ever", prepare: arc("connected"), broken: arc("fails"), into: reloads, lift: arc("connected"), tidy: noArc,
			conditions: []string{"ArcConnected Unknown ArcUnavailable"}, may: []string{"arcStatus.connected", "arcStatus.registered"}, recovery: withArcsLook,
		},
	}
}

// arc makes the stand-in for azcmagent play a scenario.
func arc(scenario string) func(*patient) {
	return script("mkdir -p /opt/azcmagent/bin; cp -n /opt/azcmagent.standin " + arcProgram + "\n" +
		"printf %s '" + scenario + "' >" + arcProgram + ".next; mv " + arcProgram + ".next " + arcProgram + ".scenario\n")
}

func noArc(p *patient) { p.sh("rm -rf /opt/azcmagent/bin") }

// reloads make the agent look at Arc three times without waiting for three minutes.
func reloads(p *patient) {
	p.t.Helper()
	p.sh("for i in 1 2 3; do systemctl reload " + agentUnit + "; sleep 2; done")
}

func containerdTroubles() []trouble {
	const runc, sock = "/usr/sbin/runc", "/run/containerd/containerd.sock"
	rows := []trouble{
		{
			name: "containerd stopped by an admin", into: script("systemctl stop containerd"), lift: script("systemctl start containerd"), ends: []string{containerd},
			conditions: []string{"ContainerdRunning False Stopped"}, snapshot: []string{"containerdRunning false"}, decisions: []string{"hold UnitStopped"},
			may: aroundContainerd(), recovery: byAdmin,
		},
		{
			name: "containerd killed once", into: script(signal("KILL", containerd)), ends: []string{containerd},
			conditions: []string{"ContainerdRunning False AutoRestart, pending"}, snapshot: []string{"containerdRunning false"}, decisions: []string{"wait Confirming"},
			may: aroundContainerd(), recovery: bySystemd,
		},
		{
			name: "containerd killed, and can't start", ends: []string{containerd},
			into: script("mkdir -p /etc/systemd/system/containerd.service.d; cat >/etc/systemd/system/containerd.service.d/trouble.conf <<EOF\n" +
				"[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=\nExecStart=/bin/false\nEOF\nsystemctl daemon-reload\n" + signal("KILL", containerd)),
			lift:       script("rm /etc/systemd/system/containerd.service.d/trouble.conf; systemctl daemon-reload"),
			conditions: []string{"ContainerdRunning False CrashLoop"}, snapshot: []string{"containerdRunning false"}, decisions: []string{"hold ContainerdLoops"},
			may: aroundContainerd(), recovery: bySystemd,
		},
		{
			name: "containerd slow", into: stutter(containerd), lift: unstutter(containerd), looks: 4, recovery: "nothing to recover from",
		},
		{
			name: "containerd hung for one look", into: script(signal("STOP", containerd)), lift: script(signal("CONT", containerd)),
			conditions: []string{"RuntimeReady False NotResponding, pending"}, decisions: []string{"wait Confirming"}, may: aroundContainerd(), recovery: withNext,
		},
		{
			name: "containerd hung for ever", into: script(signal("STOP", containerd)),
			conditions: []string{"RuntimeReady False NotResponding, pending"}, decisions: []string{"restart NotResponding"}, actions: []string{"restart " + containerd},
			may: aroundContainerd(), recovery: restartBy,
		},
		{
			name: "containerd's socket replaced by a silent one", into: script(impostor("unix", sock, "silent")), tidy: script("systemctl stop impostor"),
			conditions: []string{"RuntimeReady False NotResponding, pending"}, decisions: []string{"restart NotResponding"}, actions: []string{"restart " + containerd},
			may: aroundContainerd(), recovery: restartBy,
		},
		{
			name: "containerd's socket replaced by one that answers garbage", looks: 3,
			into:       script("mv " + sock + " " + sock + ".real\n" + impostor("unix", sock, "garbage")),
			lift:       script("systemctl stop impostor; mv " + sock + ".real " + sock),
			conditions: []string{"RuntimeReady Unknown RuntimeUnavailable"}, may: aroundContainerd(), recovery: withNext,
		},
		{
			name: "runc missing", into: script("mv " + runc + " /root/runc"), lift: script("mv /root/runc " + runc),
			conditions: []string{"RuncPresent False NotInstalled, pending"}, decisions: []string{"hold RuncMissing"}, may: []string{"runcVersion", "hold NotSeenHere"}, recovery: withNext,
		},
	}
	for _, m := range []struct{ mode, what, reason string }{
		{"hang", "hung", "Timeout"}, {"slow", "slow", ""}, {"once", "failing once", ""}, {"fail", "failing for ever", "VersionFailed"}, {"garbage", "printing garbage", "VersionNotUnderstood"},
	} {
		r := trouble{name: "runc " + m.what, into: replaced("runc", runc, m.mode), lift: unreplaced(runc), looks: 4, recovery: withNext, may: []string{"RuncPresent"}}
		if m.reason != "" {
			r.conditions = []string{"RuncPresent Unknown " + m.reason}
		}
		rows = append(rows, r)
	}
	return append(rows, trouble{
		name: "azcmagent fails once", prepare: arc("connected"), broken: arc("fails"), lift: arc("connected"), tidy: noArc,
		conditions: []string{"ArcConnected Unknown ArcUnavailable"}, may: []string{"arcStatus.connected", "arcStatus.registered"}, recovery: withArcsLook,
	})
}

// programTroubles are those of the kubelet's program while the kubelet runs.
func programTroubles(path string) (rows []trouble) {
	for _, m := range [][2]string{{"hang", "hung"}, {"slow", "slow"}, {"once", "failing once"}, {"fail", "failing for ever"}, {"garbage", "printing garbage"}} {
		rows = append(rows, trouble{
			name: "kubelet's program replaced by one that is " + m[1], into: replaced("kubelet", path, m[0]), lift: unreplaced(path), looks: 4,
			conditions: []string{"RestartPending True KubeletReplaced, pending"}, recovery: withNext,
		})
	}
	return slices.Clip(rows)
}
