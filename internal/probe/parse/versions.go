package parse

import "strings"

// unknownVersion is what a tool that was built without a version says of itself.
const unknownVersion = "unknown"

// RuntimeInfo is what an OCI runtime says about itself. Name is the runtime that answers, which need not be the name of its file:
// "runc", "crun", "youki" or "NVIDIA Container Runtime". Version carries no leading v and may be "unknown". Commit is as printed, or
// empty if none is.
type RuntimeInfo struct {
	Name    string
	Version string
	Commit  string
}

// VersionText returns a version that came over an API (CRI, the Node's nodeInfo) as this program shows versions: without a leading v,
// with its suffix, made harmless and cut to 256 bytes. The empty string stays empty.
func VersionText(s string) string {
	return clean(trimV(clean(s, maxName+len("v"))), maxName)
}

// KubeletVersion reads the output of `kubelet --version`: a line of exactly two words, such as "Kubernetes v1.32.7".
// More words make it a sentence about some version and not the kubelet's own.
func KubeletVersion(out []byte) (string, bool) {
	for line := range strings.Lines(plain(out)) {
		f := strings.Fields(line)
		if len(f) != 2 || f[0] != "Kubernetes" {
			continue
		}
		if v, ok := version(f[1]); ok && startsWithDigit(v) {
			return v, true
		}
	}
	return "", false
}

// ContainerdVersion reads the output of `containerd --version`: "containerd PACKAGE VERSION [REVISION]", or, as 0.2 printed it,
// "containerd version VERSION commit: REVISION".
func ContainerdVersion(out []byte) (string, bool) {
	for line := range strings.Lines(plain(out)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[0] != "containerd" {
			continue
		}
		isOld := f[1] == "version" && (len(f) == 3 || f[3] == "commit:")
		isNew := isPackage(f[1]) && len(f) <= 4
		if !isOld && !isNew {
			continue
		}
		if v, ok := version(f[2]); ok && !isRevision(v) {
			return v, true
		}
	}
	return "", false
}

// AzcmagentVersion reads the output of `azcmagent version`: "azcmagent version 1.61.03319.2737".
func AzcmagentVersion(out []byte) (string, bool) {
	for line := range strings.Lines(plain(out)) {
		if v, ok := namedVersion(line, "azcmagent"); ok {
			return v, true
		}
	}
	return "", false
}

// RuntimeVersion reads the output of `runc --version`, whatever runtime answers under that name: "NAME version VERSION", then lines about it.
// A wrapper prints the block of what it wraps after its own; the first block is the answer.
func RuntimeVersion(out []byte) (RuntimeInfo, bool) {
	var info RuntimeInfo
	for line := range strings.Lines(plain(out)) {
		if info.Name == "" {
			info.Name, info.Version = runtimeHeader(line)
			continue
		}
		if strings.Contains(line, " version") {
			break // the wrapped runtime's block begins: its commit is not ours
		}
		if f := strings.Fields(line); len(f) == 2 && f[0] == "commit:" {
			info.Commit = clean(f[1], maxName)
			break
		}
	}
	return info, info.Name != ""
}

// runtimeHeader returns the runtime and version that a block's first line names, or nothing if line is none.
func runtimeHeader(line string) (name, v string) {
	for _, name := range [...]string{"runc", "crun", "youki", "NVIDIA Container Runtime"} {
		if v, ok := namedVersion(line, name); ok {
			return name, v
		}
	}
	return "", ""
}

// namedVersion reads "NAME version VERSION" and nothing longer: a runc built without a version prints "runc version spec: 1.0.2-dev".
func namedVersion(line, name string) (string, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" ")
	f := strings.Fields(rest)
	if !ok || len(f) != 2 || strings.TrimSuffix(f[0], ":") != "version" {
		return "", false
	}
	return version(f[1])
}

// version accepts one word as a version: letters, digits and the marks that vendors use, with a digit somewhere (a build may be named by
// its short hash). A word that is too long is refused and not cut, because half a version is a wrong one.
func version(word string) (string, bool) {
	if strings.EqualFold(word, unknownVersion) {
		return unknownVersion, true
	}
	v := trimV(word)
	odd := func(r rune) bool { return !isAlnum(r) && !strings.ContainsRune(".-+~_:%$^", r) }
	if v == "" || len(v) > maxName || !isAlnum(rune(v[0])) || strings.ContainsFunc(v, odd) || !strings.ContainsAny(v, "0123456789") {
		return "", false
	}
	return v, true
}

// trimV drops the v of "v1.2.3" but not that of a word.
func trimV(s string) string {
	if rest, ok := strings.CutPrefix(s, "v"); ok && startsWithDigit(rest) {
		return rest
	}
	return s
}

// isPackage tells containerd's package field ("github.com/containerd/containerd/v2", "containerd.io") from a version in its place.
func isPackage(s string) bool {
	return strings.Contains(s, ".") && !startsWithDigit(trimV(s))
}

// isRevision tells a full commit id, which stands where the version belongs when containerd was built with an empty one.
func isRevision(s string) bool {
	s = strings.TrimSuffix(s, ".m")
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func startsWithDigit(s string) bool {
	return s != "" && '0' <= s[0] && s[0] <= '9'
}

func isAlnum(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}
