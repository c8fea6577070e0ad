//go:build linux

// Package lab gives tests real machines and a real cluster. A Host boots the machine's own systemd as PID 1 of its own
// namespaces over an overlay of /, in about half a second, and runs Debian's containerd and a real kubelet as units of it.
// A Cluster is a Kubernetes control plane, up in about five seconds, that such hosts join as nodes in two.
//
// It has three goals. What a test does to a host never reaches the machine: the host has its own cgroup, mounts, network,
// hostname and boot id, and kernel settings that no namespace holds are read-only in it. Nothing is left behind, also not
// by a test that is killed: the kernel kills hosts and control planes with the process that started them, and the next
// start sweeps the folders, mounts and cgroups of dead processes. And any number of test processes can run at once.
//
// A test calls Require first, which skips it where the lab cannot work, then StartHost:
//
//	lab.Require(t, "containerd", "runc", "ctr")
//	h := lab.StartHost(t, lab.HostOptions{Name: "n1"})
//	lab.Must(t, h.InstallContainerd(t.Context()))
//	h.MustExec(t, "systemctl", "is-active", "containerd")
//
// With a cluster it is StartCluster and Join:
//
//	lab.Require(t, lab.ClusterPrograms()...)
//	c := lab.StartCluster(t, lab.ClusterOptions{})
//	h := c.MustJoin(t, "n1", lab.JoinOptions{})
//	lab.Must(t, c.Drop(t.Context(), h))
//	lab.Must(t, c.WaitReady(t.Context(), "n1", corev1.ConditionUnknown, time.Minute))
//
// Tests of hosts carry the build tag lab, those of clusters e2e. They need root, a Linux kernel of at least 5.14 and cgroup v2 mounted somewhere (a
// hybrid tree is enough). Building the Kubernetes programs takes minutes the first time, so give `go test` a -timeout
// above its ten minutes; on a time-out, too, nothing is left behind.
package lab
