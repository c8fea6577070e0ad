package health

import "time"

// The types of all conditions.
const (
	ContainerdRunning       = "ContainerdRunning"
	RuntimeReady            = "RuntimeReady"
	RuncPresent             = "RuncPresent"
	KubeletRunning          = "KubeletRunning"
	KubeletHealthy          = "KubeletHealthy"
	KubeletCertificateValid = "KubeletCertificateValid"
	APIServerReachable      = "APIServerReachable"
	NodeReady               = "NodeReady"
	ArcConnected            = "ArcConnected"
	RestartPending          = "RestartPending"
	ClockSynchronized       = "ClockSynchronized"
	DiskSpace               = "DiskSpace"
	StatusFileWritable      = "StatusFileWritable"
)

// settle is within which time a fault that comes back is the same fault: a program in a restart loop runs for seconds, and systemd waits
// up to half a minute in between.
const settle = time.Minute

// Table is every condition the agent has, cause before effect. docs/conditions.md is made from it.
func Table() []Row {
	return []Row{
		{
			Type:          ContainerdRunning,
			TimeToVisible: 10 * time.Second, TimeToSettle: settle, Severity: Critical,
			Means: "The container runtime does not run: no container can be started, and nothing that is said of the kubelet means much.",
			Do:    "`systemctl status containerd` and `journalctl -u containerd -n 50`. A masked or disabled unit was switched off by somebody; the agent leaves it alone.",
			Judge: judgeContainerdUnit,
		},
		{
			Type: RuntimeReady, DependsOn: []string{ContainerdRunning},
			TimeToVisible: 30 * time.Second, TimeToSettle: settle, Severity: Critical,
			Means: "containerd runs, but does not answer or says itself that it can't run containers.",
			Do:    "`crictl info` shows what it says; `journalctl -u containerd -n 50`. If the reason is CRIDisabled, take cri out of disabled_plugins in /etc/containerd/config.toml.",
			Judge: judgeRuntime,
		},
		{
			Type:          RuncPresent,
			TimeToVisible: 30 * time.Second, Severity: Critical,
			Means: "The program that starts containers for containerd is not there: running ones go on, none can be started.",
			Do:    "Install runc, or correct BinaryName in /etc/containerd/config.toml.",
			Judge: judgeRunc,
		},
		{
			Type: KubeletRunning, DependsOn: []string{ContainerdRunning},
			TimeToVisible: 15 * time.Second, TimeToSettle: settle, Severity: Critical,
			Means: "The kubelet does not run, or fails again and again: the cluster will take the node for lost after some 40 seconds, and move its pods after five minutes.",
			Do:    "`aks-flex-node explain` says what the agent does about it; `journalctl -u kubelet -n 50` says what happened.",
			Judge: judgeKubeletUnit,
		},
		{
			Type: KubeletHealthy, DependsOn: []string{RuntimeReady, KubeletRunning},
			TimeToVisible: 30 * time.Second, TimeToSettle: settle, Severity: Critical,
			Means: "The kubelet runs, but its own health endpoint fails or takes connections and stays silent: it hangs.",
			Do:    "`curl http://127.0.0.1:10248/healthz?verbose` names the check that fails; `journalctl -u kubelet -n 50`.",
			Judge: judgeKubeletHealth,
		},
		{
			Type:     KubeletCertificateValid,
			Severity: Critical,
			Means: "The kubelet's client certificate has expired or is not valid yet: the API server refuses it. A warning says that the kubelet should have renewed it " +
				"already: less than a tenth of its lifetime is left, or less than 7 days of one of more than 30.",
			Do: "`openssl x509 -noout -dates -in /var/lib/kubelet/pki/kubelet-client-current.pem`; look for a pending CSR of this node (`kubectl get csr`) and at " +
				"rotateCertificates in the kubelet's config. Not valid yet: check the clock. Expired: the node has to join anew.",
			Judge: judgeCertificate,
		},
		{
			Type: APIServerReachable, DependsOn: []string{KubeletCertificateValid},
			TimeToVisible: 30 * time.Second, TimeToSettle: settle, Severity: Warning,
			Means: "With the kubelet's credentials, no answer can be had from the API server: the link or the server is down, or it refuses the credentials. Pods go on running; " +
				"what the cluster thinks of the node is not known here.",
			Do:    "Follow the reason: DNSLookupFailed, ConnectionRefused, ConnectionTimeout: the link, a firewall, or the server. TLSFailed: the CA, or a proxy in between. Unauthorized, Forbidden: the credentials and their RBAC.",
			Judge: judgeAPIServer,
		},
		{
			Type: NodeReady, DependsOn: []string{RuntimeReady, KubeletRunning, KubeletHealthy, APIServerReachable},
			TimeToVisible: 30 * time.Second, TimeToSettle: settle, Severity: Critical,
			Means: "Here all is well, but the cluster says that the node is not ready, or does not know it.",
			Do:    "`kubectl describe node NAME` shows the cluster's reason; often the pod network is missing. NodeNotFound: the Node was deleted; a restart of the kubelet registers it anew.",
			Judge: judgeNode,
		},
		{
			Type:          ArcConnected,
			TimeToVisible: 2 * time.Minute, Severity: Warning,
			Means: "Azure Arc does not see this machine: Azure's view of it is old, and identities that come through Arc can't be renewed. Pods go on running.",
			Do:    "`azcmagent show` and `azcmagent check`. Expired: the machine has to be connected anew.",
			Judge: judgeArc,
		},
		{
			Type: RestartPending, Bad: True,
			TimeToVisible: 5 * time.Minute, Severity: Info,
			Means: "The file of the kubelet or of containerd was replaced, and the old one is still running: the new one takes over at the next restart.",
			Do:    "Restart the unit when it suits you: `systemctl restart kubelet` (or containerd). Pods go on running meanwhile.",
			Judge: judgeRestartPending,
		},
		{
			Type:          ClockSynchronized,
			TimeToVisible: 5 * time.Minute, Severity: Warning,
			Means: "Nothing keeps this host's clock right, or it is off: certificates, leases and logs go by it.",
			Do:    "`timedatectl` and `chronyc tracking`; see that a time service runs and reaches its servers.",
			Judge: judgeClock,
		},
		{
			Type:          DiskSpace,
			TimeToVisible: time.Minute, Severity: Critical,
			Means: "A file system that the node can't do without is almost full (less than 5 % of its space or inodes are free). A warning begins below 10 %, where the kubelet begins to evict pods unless told otherwise.",
			Do:    "`df -h` and `df -i` on the path named; `crictl rmi --prune` removes unused images, `journalctl --vacuum-size=500M` old logs.",
			Judge: judgeDisk,
		},
		{
			Type:          StatusFileWritable,
			TimeToVisible: 2 * time.Minute, Severity: Critical,
			Means: "The snapshot can't be written or was not for 5 minutes: programs that read it see an old state, and may take a working node for one that needs a bootstrap.",
			Do:    "Follow the message: a full or read-only file system, a folder that is a link or belongs to somebody else, or a lock that another process holds.",
			Judge: judgeStatusFile,
		},
	}
}
