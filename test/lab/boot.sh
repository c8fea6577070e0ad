# Makes the namespaces that this shell was started in into a machine of their own and becomes its systemd.
# Run by Boot as: sh -eu -c THIS lab-boot STATE NAME ADDRESS [BIND...]   (ADDRESS may be empty)
# The caller has already put this process into its own cgroup, made that the root of a cgroup namespace, and made
# every mount private. Without those steps systemd would write into the machine's own cgroups: never run this by hand.

# The gate: the owner records this host and wires its network, then says go. End of input means that the owner died.
read -r go || exit 70
[ "$go" = go ] || exit 70
exec </dev/null

state=$1 name=$2 address=$3; shift 3
disk=$state/disk

# Covers only a folder of our own: the caller's tools may lie anywhere else, /mnt and /tmp included.
mount -t tmpfs -o mode=0755 lab "$state/root"
R=$state/root/fs S=$state/root/settings
mkdir "$R" "$S"
mount -t overlay overlay -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$R"

mount -t proc -o nosuid,nodev,noexec proc "$R/proc"
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$R/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$R/sys/fs/cgroup"

# Kernel settings that no namespace holds stay the machine's own: systemd alone would raise fs.file-max for everybody.
# The network ones are this host's, since it has a network namespace.
mount --bind "$R/proc/sys" "$R/proc/sys"
mount --bind "$R/proc/sys/net" "$R/proc/sys/net"
mount -o remount,bind,ro "$R/proc/sys"
for f in sysrq-trigger irq bus fs; do
	[ -e "$R/proc/$f" ] || continue
	mount --bind "$R/proc/$f" "$R/proc/$f"
	mount -o remount,bind,ro "$R/proc/$f"
done
# What the kubelet insists on writing lands in files of this host's own.
for f in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	[ -e "/proc/sys/$f" ] || continue
	own=$S/$(echo "$f" | tr / .)
	cat "/proc/sys/$f" >"$own"
	mount --bind "$own" "$R/proc/sys/$f"
done
# Each boot has an identity of its own: kubelet and agent tell a reboot by it.
cat /proc/sys/kernel/random/uuid >"$S/boot_id"
mount --bind "$S/boot_id" "$R/proc/sys/kernel/random/boot_id"

mount -t tmpfs -o mode=0755,nosuid tmpfs "$R/dev"
mkdir "$R/dev/pts" "$R/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$R/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$R/dev/shm"
for n in null:3 zero:5 full:7 random:8 urandom:9; do
	mknod -m 666 "$R/dev/${n%:*}" c 1 "${n#*:}"
done
mknod -m 666 "$R/dev/tty" c 5 0
ln -s pts/ptmx "$R/dev/ptmx"
ln -s null "$R/dev/kmsg"
ln -s /proc/self/fd "$R/dev/fd"
for n in 0:stdin 1:stdout 2:stderr; do
	ln -s "fd/${n%:*}" "$R/dev/${n#*:}"
done
mount -t tmpfs -o mode=0755,nosuid,nodev tmpfs "$R/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$R/tmp"

# containerd's snapshots are overlays themselves, and an overlay cannot lie on an overlay.
for d in containerd kubelet; do
	mkdir -p "$R/var/lib/$d"
	mount --bind "$state/$d" "$R/var/lib/$d"
done
for d; do
	mkdir -p "$R$d"
	mount --bind "$d" "$R$d"
done

hostname "$name"

# Once per disk, so that what a test changes later survives a reboot.
if [ ! -e "$disk/provisioned" ]; then
	tr -d - </proc/sys/kernel/random/uuid >"$R/etc/machine-id"
	echo "$name" >"$R/etc/hostname"
	printf '127.0.0.1 localhost\n' >"$R/etc/hosts"
	[ -z "$address" ] || printf '%s %s\n' "${address%/*}" "$name" >>"$R/etc/hosts"
	# Empty on purpose: a DNS server that cannot be reached stalls the kubelet's node status by 20 s a time.
	rm -f "$R/etc/resolv.conf"
	: >"$R/etc/resolv.conf"

	# The overlay shows all that this machine is set up to do. Nothing of it may start here: not its enabled units and
	# drop-ins, not its disks, not what generators would make of either.
	rm -rf "$R/etc/systemd/system" "$R/etc/fstab" "$R/etc/crypttab" "$R/var/log/journal"
	mkdir -p "$R/etc/systemd/system" "$R/etc/systemd/system-generators"
	: >"$R/etc/fstab"
	for g in "$R"/lib/systemd/system-generators/*; do
		ln -sf /dev/null "$R/etc/systemd/system-generators/${g##*/}"
	done
	# A machine that is a node already must not leak into one that is to become a node.
	rm -rf "$R/etc/kubernetes" "$R/etc/cni/net.d" "$R/etc/containerd" "$R/var/log/pods" "$R/var/log/containers" \
		"$R/etc/aks-flex-node" "$R/var/lib/aks-flex-node" "$R/usr/local/bin/kubelet"
	# Units that would touch the machine's hardware, kernel modules or kernel file systems, or wait for them.
	for u in systemd-udevd.service systemd-udev-trigger.service systemd-modules-load.service modprobe@.service \
		systemd-binfmt.service proc-sys-fs-binfmt_misc.automount systemd-journald-audit.socket systemd-oomd.service \
		sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
		dev-hugepages.mount getty.target console-getty.service systemd-timesyncd.service \
		systemd-networkd.service systemd-networkd.socket systemd-resolved.service; do
		ln -sf /dev/null "$R/etc/systemd/system/$u"
	done
	touch "$disk/provisioned"
fi

cd "$R"
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old
mount --make-rshared / # as on a real machine; the peers are all inside this host
ip link set lo up
exec env -i container=lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
	/lib/systemd/systemd --unit=multi-user.target --log-target=journal-or-kmsg --show-status=0
