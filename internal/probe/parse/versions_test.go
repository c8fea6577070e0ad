package parse

import (
	"strings"
	"testing"
)

// htmlPage is what a captive portal or proxy puts where an answer was expected.
const htmlPage = "<!DOCTYPE html>\n<html><head><title>Kubernetes v1.2.3</title></head>\n<body>containerd version 1.2.3: access denied</body></html>\n"

// flood is a line longer than everything that is looked at.
var flood = strings.Repeat("x", maxInput+10)

func TestKubeletVersion(t *testing.T) {
	for _, tc := range []struct{ given, out, want string }{
		{"the plain line", "Kubernetes v1.32.7\n", "1.32.7"},
		{"no line end", "Kubernetes v1.32.7", "1.32.7"},
		{"CRLF", "Kubernetes v1.32.7\r\n", "1.32.7"},
		{"no leading v", "Kubernetes 1.32.7\n", "1.32.7"},
		{"AKS long-term support", "Kubernetes v1.31.100-akslts\n", "1.31.100-akslts"},
		{"OpenShift", "Kubernetes v1.27.6+f67aeb3\n", "1.27.6+f67aeb3"},
		{"RKE2", "Kubernetes v1.28.5+rke2r1\n", "1.28.5+rke2r1"},
		{"dirty git describe", "Kubernetes v1.33.0-alpha.0.15+6a9f2e1b0c4d5e-dirty\n", "1.33.0-alpha.0.15+6a9f2e1b0c4d5e-dirty"},
		{"hyperkube", "Kubernetes v1.5.2+coreos.0\n", "1.5.2+coreos.0"},
		{"stderr merged in front", "Flag --cloud-provider has been deprecated, will be removed in 1.35.\nKubernetes v1.34.1\n", "1.34.1"},
		{"klog line in front", "W1130 14:16:06.736818   22076 x.go:72] Kubernetes v1.1.1\nKubernetes v1.34.1\n", "1.34.1"},
		{"wrapper warns about another version", "Kubernetes v1.29.0 is out of support\nKubernetes v1.28.5\n", "1.28.5"},
		{"wrapper prints a title", "Kubernetes kubelet\nKubernetes v1.28.5\n", "1.28.5"},
		{"two versions: the first wins", "Kubernetes v1.28.5\nKubernetes v1.30.1\n", "1.28.5"},
		{"BOM, NUL and colours", "\ufeff\x00\x1b[1;32mKubernetes\x1b[0m v1.32.7\x1b]0;title\x07\n", "1.32.7"},
		{"progress overwritten by carriage return", "loading 10%\rloading 100%\rKubernetes v1.32.7\n", "1.32.7"},
		{"broken bytes on another line", "caf\xe9 \xff\xfe\nKubernetes v1.32.7\n", "1.32.7"},
		{"a long line in front", strings.Repeat("x", maxInput/2) + "\nKubernetes v1.32.7\n", "1.32.7"},
		{"a flood behind", "Kubernetes v1.32.7\n" + flood, "1.32.7"},

		{"nothing", "", ""},
		{"flood without line end", flood, ""},
		{"the limit cuts the line", strings.Repeat("x", maxInput-17) + "\nKubernetes v1.32.7\n", ""},
		{"broken byte in the version", "Kubernetes v1.32\xff.7\n", ""},
		{"a word for a version", "Kubernetes vNext\n", ""},
		{"unknown is no Kubernetes version", "Kubernetes unknown\n", ""},
		{"a name with a digit", "Kubernetes k3s\n", ""},
		{"raw form", "version.Info{Major:\"1\", Minor:\"32\", GitVersion:\"v1.32.7\"}\n", ""},
		{"kubectl's form", "Client Version: v1.32.7\nKustomize Version: v5.5.0\n", ""},
		{"lower case", "kubernetes v1.32.7\n", ""},
		{"glued", "Kubernetesv1.32.7\n", ""},
		{"inside a log line", "msg=\"Kubernetes v1.32.7\"\n", ""},
		{"quoted", "Kubernetes \"v1.32.7\"\n", ""},
		{"shell error", "sh: 1: kubelet: Exec format error\n", ""},
		{"HTML", htmlPage, ""},
		{"version too long", "Kubernetes v1." + strings.Repeat("2", maxName) + "\n", ""},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := KubeletVersion([]byte(tc.out))
			wantVersion(t, got, ok, tc.want)
		})
	}
}

func TestContainerdVersion(t *testing.T) {
	const revision = "7f7fdf5fed64eb6a7caf99b3e12efcf9d60e311c"
	for _, tc := range []struct{ given, out, want string }{
		{"upstream", "containerd github.com/containerd/containerd/v2 v2.1.3 " + revision + "\n", "2.1.3"},
		{"k3s, log lines in front", "time=\"2026-01-01T00:00:00Z\" level=info msg=\"containerd version 9.9.9\"\ncontainerd github.com/k3s-io/containerd v1.7.11-k3s2 \n", "1.7.11-k3s2"},
		{"Docker CE with CRLF", "containerd containerd.io 1.7.27 " + revision + "\r\n", "1.7.27"},
		{"no tag in the clone: short hash, dirty", "containerd github.com/containerd/containerd b38ddcfe5.m " + revision + ".m\n", "b38ddcfe5.m"},
		{"0.2 without a commit", "containerd version 0.2.5 commit: \n", "0.2.5"},
		{"0.2, bare", "containerd version 0.2.5\n", "0.2.5"},
		{"config warning in front", "containerd config version 1 has been deprecated\ncontainerd containerd.io 1.6.6 x\n", "1.6.6"},
		{"colours and NUL", "\x00\x1b[0mcontainerd containerd.io v1.7.25 " + revision + "\x1b[0m", "1.7.25"},
		{"built without a version", "containerd github.com/containerd/containerd unknown \n", "unknown"},

		{"empty version: the revision is no version", "containerd github.com/containerd/containerd  " + revision + "\n", ""},
		{"empty version, dirty revision", "containerd github.com/containerd/containerd  " + revision + ".m\n", ""},
		{"empty package: the revision is no version", "containerd  v1.7.2 36cc874494a56a25\n", ""},
		{"empty package and no v", "containerd  1.7.2 36cc874494a56a25\n", ""},
		{"package alone", "containerd github.com/containerd/containerd\n", ""},
		{"a sentence", "containerd version 1.5 is deprecated\n", ""},
		{"a sentence about the package", "containerd containerd.io 1.6 is too old\n", ""},
		{"a line about its configuration", "containerd config 2 loaded\n", ""},
		{"a flag for a version", "containerd containerd.io --v1\n", ""},
		{"a sentence about the unit", "containerd containerd.service failed 3 times\n", ""},
		{"the daemon's log", "time=\"2026-01-01T00:00:00Z\" level=info msg=\"starting containerd\" revision=" + revision + " version=v1.7.22\n", ""},
		{"ctr's form", "Client:\n  Version:  v1.7.22\n  Revision: " + revision + "\n", ""},
		{"loader error", "containerd: symbol lookup error: containerd: undefined symbol: seccomp_api_get\n", ""},
		{"the kubelet answers", "Kubernetes v1.32.7\n", ""},
		{"HTML", htmlPage, ""},
		{"flood", flood, ""},
		{"nothing", "", ""},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := ContainerdVersion([]byte(tc.out))
			wantVersion(t, got, ok, tc.want)
		})
	}
}

func TestAzcmagentVersion(t *testing.T) {
	for _, tc := range []struct{ given, out, want string }{
		{"the plain line", "azcmagent version 1.58.03228.700\n", "1.58.03228.700"},
		{"an upgrade hint in front", "INFO    A newer version 1.99.1 is available\r\nazcmagent version 1.58.03228.700\r\n", "1.58.03228.700"},
		{"a hint behind", "azcmagent version 1.58.03228.700\nazcmagent version 2.0 is available\n", "1.58.03228.700"},
		{"with colon", "azcmagent version: 1.58.03228.700\n", "1.58.03228.700"},
		{"not installed", "bash: azcmagent: command not found\n", ""},
		{"a sentence", "azcmagent version 1.58 is out of support\n", ""},
		{"no version", "azcmagent version\n", ""},
		{"needs rights", "time=\"2026-01-01T00:00:00Z\" level=fatal msg=\"azcmagent version requires root\"\n", ""},
		{"HTML", htmlPage, ""},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := AzcmagentVersion([]byte(tc.out))
			wantVersion(t, got, ok, tc.want)
		})
	}
}

func TestRuntimeVersion(t *testing.T) {
	const nvidia = "NVIDIA Container Runtime"
	for _, tc := range []struct {
		given, out string
		want       RuntimeInfo
	}{
		{"runc on Ubuntu", "runc version 1.1.12-0ubuntu2~22.04.1\nspec: 1.0.2-dev\ngo: go1.21.1\nlibseccomp: 2.5.3\n", RuntimeInfo{"runc", "1.1.12-0ubuntu2~22.04.1", ""}},
		{"CRLF, doubled by a wrapper", "runc version 1.3.0\r\r\ncommit: v1.3.0-0-g4ca628d1\r\r\nspec: 1.2.1\r\r\n", RuntimeInfo{"runc", "1.3.0", "v1.3.0-0-g4ca628d1"}},
		{"leading v", "runc version v1.3.0\n", RuntimeInfo{"runc", "1.3.0", ""}},
		{"warning in front", "time=\"2026-01-01T00:00:00Z\" level=warning msg=\"runc version 9.9\"\nrunc version 1.3.0\n", RuntimeInfo{"runc", "1.3.0", ""}},
		{"crun built outside git", "crun version UNKNOWN\ncommit: UNKNOWN\nspec: 1.0.0\n", RuntimeInfo{"crun", "unknown", "UNKNOWN"}},
		{"youki, old form", "youki version 0.0.3\ncommit: 0.0.3-0-d6e2f5c\n", RuntimeInfo{"youki", "0.0.3", "0.0.3-0-d6e2f5c"}},
		{
			"NVIDIA's wrapper with both blocks",
			"NVIDIA Container Runtime version 1.13.5\ncommit: 6b8589dcb4de\nspec: 1.1.0-rc.1\n\nrunc version 1.1.7\ncommit: v1.1.7-0-g860f061b\nspec: 1.0.2-dev\n",
			RuntimeInfo{nvidia, "1.13.5", "6b8589dcb4de"},
		},
		{
			"NVIDIA's wrapper without a commit does not take the wrapped one's",
			"NVIDIA Container Runtime version 1.13.5\nspec: 1.1.0-rc.1\n\nrunc version 1.1.7\ncommit: v1.1.7-0-g860f061b\n",
			RuntimeInfo{nvidia, "1.13.5", ""},
		},
		{
			"NVIDIA's wrapper around a runtime that is not known here",
			"NVIDIA Container Runtime version 1.13.5\n\nother version 3\ncommit: abc\n",
			RuntimeInfo{nvidia, "1.13.5", ""},
		},

		{"runc built without a version, commit first", "runc version commit: 9f9c9623\nspec: 1.0.1-dev\n", RuntimeInfo{}},
		{"runc built without a version or commit", "runc version spec: 1.0.1-dev\ngo: go1.14\n", RuntimeInfo{}},
		{"runc without anything", "runc version \nspec: 1.0.1-dev\ngo: go1.14\n", RuntimeInfo{}},
		{"a block without its first line", "commit: v1.1.7\nspec: 1.0.2-dev\ngo: go1.20.3\n", RuntimeInfo{}},
		{"only an old spec line", "spec version 0.3.0-dev\n", RuntimeInfo{}},
		{"another program", "docker version 20.10.7\nGo version go1.13.15\n", RuntimeInfo{}},
		{"glued", "runcversion 1.1.7\n", RuntimeInfo{}},
		{"a sentence", "runc version 1.1.7 is vulnerable\n", RuntimeInfo{}},
		{"a word", "runc version mismatch\n", RuntimeInfo{}},
		{"loader error", "runc: symbol lookup error: runc: undefined symbol: seccomp_notify_respond\n", RuntimeInfo{}},
		{"HTML", htmlPage, RuntimeInfo{}},
		{"flood", flood, RuntimeInfo{}},
		{"version too long", "runc version 1" + strings.Repeat("2", maxName), RuntimeInfo{}},
	} {
		t.Run(tc.given, func(t *testing.T) {
			got, ok := RuntimeVersion([]byte(tc.out))
			if got != tc.want || ok != (tc.want != RuntimeInfo{}) {
				t.Errorf("got %+v, %v, want %+v", got, ok, tc.want)
			}
		})
	}
}

func TestACommitIsBounded(t *testing.T) {
	got, ok := RuntimeVersion([]byte("runc version 1.1.7\ncommit: " + strings.Repeat("a", 1000)))
	if !ok || len(got.Commit) != maxName {
		t.Errorf("got %d bytes of commit, parsed %v, want %d", len(got.Commit), ok, maxName)
	}
}

func TestVersionText(t *testing.T) {
	for _, tc := range []struct{ given, text, want string }{
		{"CRI", "v1.7.27", "1.7.27"},
		{"nodeInfo", "v1.32.7-eks-3abbec1", "1.32.7-eks-3abbec1"},
		{"no v", "1.6.20~ds1", "1.6.20~ds1"},
		{"space around", " v2.0.4+unknown \n", "2.0.4+unknown"},
		{"empty", "", ""},
		{"a word with v stays", "vendor-build", "vendor-build"},
		{"a lone v stays", "v", "v"},
		{"a doubled v is not ours to mend", "vv1.2", "vv1.2"},
		{"unknown", "unknown", "unknown"},
		{"control characters and escapes", "\x1b[31mv1.2\x00.3\x1b[0m\x7f\u202e", "1.2.3"},
		{"broken bytes", "v1.2\xff", "1.2\ufffd"},
		{"too long", "v1" + strings.Repeat("2", 300), "1" + strings.Repeat("2", 255)},
		{"cut between characters", strings.Repeat("a", 255) + "é", strings.Repeat("a", 255)},
	} {
		t.Run(tc.given, func(t *testing.T) {
			if got := VersionText(tc.text); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func wantVersion(t *testing.T, got string, ok bool, want string) {
	t.Helper()
	if got != want || ok != (want != "") {
		t.Errorf("got %q, parsed %v, want %q, parsed %v", got, ok, want, want != "")
	}
}
