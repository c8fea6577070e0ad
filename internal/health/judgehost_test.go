package health

import (
	"strings"
	"testing"
	"time"

	"github.com/aks-flex-node/agent/internal/observe"
)

const day = 24 * time.Hour

func TestCertificate(t *testing.T) {
	plugin := observe.See(observe.Certificate{Plugin: true}, observe.Healthy, "CredentialPlugin", "m")
	// lasting makes a certificate of a lifetime of which so much is left.
	lasting := func(lifetime, left time.Duration) observe.Observation[observe.Certificate] {
		return certificate(start.Add(left-lifetime), start.Add(left))
	}
	for _, tc := range []struct {
		name     string
		in       observe.Observation[observe.Certificate]
		status   Status
		severity Severity
		reason   string
	}{
		{"given a fresh one", lasting(365*day, 364*day), True, None, "Valid"},
		{"given a tenth left of a year", lasting(360*day, 36*day), True, None, "Valid"},
		{"given a moment less", lasting(360*day, 36*day-1), True, Warning, "RotationOverdue"},
		{"given the last moment", lasting(360*day, 1), True, Warning, "RotationOverdue"},
		{"given its end", lasting(360*day, 0), False, None, "Expired"},
		{"given a year later", lasting(360*day, -360*day), False, None, "Expired"},

		{"given 7 days left of 60", lasting(60*day, 7*day), True, None, "Valid"},
		{"given less than 7 days of 60, a tenth is not all that counts", lasting(60*day, 7*day-1), True, Warning, "ExpiresSoon"},
		{"given less than a tenth of 60 days", lasting(60*day, 6*day-1), True, Warning, "RotationOverdue"},
		{"given less than 7 days of 30 days and a bit", lasting(30*day+1, 7*day-1), True, Warning, "ExpiresSoon"},
		{"given less than 7 days of 30, which is short-lived", lasting(30*day, 7*day-1), True, None, "Valid"},
		{"given a day, which never has 7 left", lasting(day, 20*time.Hour), True, None, "Valid"},
		{"given a tenth left of a day", lasting(day, 144*time.Minute), True, None, "Valid"},
		{"given less than a tenth of a day", lasting(day, 144*time.Minute-1), True, Warning, "RotationOverdue"},

		{"given one that begins now", lasting(360*day, 360*day), True, None, "Valid"},
		{"given one that begins in a moment", certificate(start.Add(1), start.Add(day)), False, None, "NotYetValid"},
		{"given one that ends before it begins", certificate(start.Add(day), start.Add(-day)), False, None, "Expired"},
		{"given one without an end", certificate(start, time.Time{}), Unknown, None, "NoExpiry"},
		{"given none, though there should be one", observe.See(observe.Certificate{}, observe.Unhealthy, "NotInstalled", "m"), False, None, "NotInstalled"},
		{"given one that can't be read", observe.CannotTell[observe.Certificate]("PermissionDenied", "m"), Unknown, None, "PermissionDenied"},
		{"given a plugin, there is none to judge", plugin, "", None, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := healthyInput()
			in.Certificate = tc.in
			got := judge(t, KubeletCertificateValid, in)
			if got.Status != tc.status || got.Severity != tc.severity || got.Reason != tc.reason {
				t.Errorf("got %s %q (%s), want %s %q (%s)", got.Status, got.Severity, got.Reason, tc.status, tc.severity, tc.reason)
			}
		})
	}
}

func TestExpiryIsToldInWords(t *testing.T) {
	for _, tc := range []struct {
		left time.Duration
		want string
	}{
		{200 * day, "the certificate kubelet.pem is valid for 200 days, until 2026-08-03T12:00:00Z"},
		{30 * time.Hour, "the certificate kubelet.pem ends in 30h0m0s, on 2026-01-16T18:00:00Z; the kubelet should have renewed it"},
		{-3 * day, "the certificate kubelet.pem expired 3 days ago, on 2026-01-12T12:00:00Z"},
	} {
		in := healthyInput()
		in.Certificate = certificate(start.Add(tc.left-400*day), start.Add(tc.left))
		if got := judge(t, KubeletCertificateValid, in).Message; got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestClock(t *testing.T) {
	for _, tc := range []struct {
		name   string
		in     observe.Clock
		status Status
		reason string
	}{
		{"given a kept clock", observe.Clock{Synchronized: true}, True, "Synchronized"},
		{"given one that nothing keeps", observe.Clock{}, False, "NotSynchronized"},
		{"given one that is off by what is allowed", observe.Clock{Synchronized: true, Offset: 30 * time.Second}, True, "Synchronized"},
		{"given one that is ahead by more", observe.Clock{Synchronized: true, Offset: 30*time.Second + 1}, False, "ClockOff"},
		{"given one that is behind by more", observe.Clock{Synchronized: true, Offset: -30*time.Second - 1}, False, "ClockOff"},
		{"given both, how far off it is matters more", observe.Clock{Offset: time.Hour}, False, "ClockOff"},
	} {
		in := healthyInput()
		in.Clock.Value = tc.in
		if got := judge(t, ClockSynchronized, in); got.Status != tc.status || got.Reason != tc.reason {
			t.Errorf("%s: got %s (%s), want %s (%s)", tc.name, got.Status, got.Reason, tc.status, tc.reason)
		}
	}
}

func TestDisk(t *testing.T) {
	bytes := func(path string, free uint64) observe.Space {
		return observe.Space{Path: path, Bytes: 10000, BytesFree: free, Inodes: 100, InodesFree: 100}
	}
	inodes := func(path string, free uint64) observe.Space {
		return observe.Space{Path: path, Bytes: 100, BytesFree: 100, Inodes: 10000, InodesFree: free}
	}
	for _, tc := range []struct {
		name     string
		in       []observe.Space
		status   Status
		severity Severity
		reason   string
		message  string
	}{
		{"given enough", []observe.Space{bytes("/a", 5000), inodes("/b", 3000)}, True, None, "EnoughSpace", "at least 30 % are free everywhere"},
		{"given a tenth", []observe.Space{bytes("/a", 1000)}, True, None, "EnoughSpace", "at least 10 %"},
		{"given less than a tenth", []observe.Space{bytes("/a", 999)}, True, Warning, "GettingFull", "/a has 9.9 % of its space free"},
		{"given a twentieth", []observe.Space{bytes("/a", 500)}, True, Warning, "GettingFull", "/a has 5.0 % of its space free"},
		{"given less than a twentieth", []observe.Space{bytes("/a", 499)}, False, None, "AlmostFull", "/a has 4.9 % of its space free"},
		{"given none at all", []observe.Space{bytes("/a", 0)}, False, None, "AlmostFull", "/a has 0.0 % of its space free"},
		{"given few inodes", []observe.Space{inodes("/a", 999)}, True, Warning, "GettingFull", "/a has 9.9 % of its inodes free"},
		{"given too few inodes", []observe.Space{inodes("/a", 499)}, False, None, "AlmostFull", "/a has 4.9 % of its inodes free"},
		{"given several that are short, all are named", []observe.Space{bytes("/a", 900), bytes("/b", 9000), inodes("/c", 100)}, False, None, "AlmostFull",
			"/a has 9.0 % of its space free, /c has 1.0 % of its inodes free"},
		{"given one beside one with a tenth, only it is named", []observe.Space{bytes("/a", 1000), bytes("/b", 900)}, True, Warning, "GettingFull", "/b has 9.0 % of its space free"},
		{"given a file system that counts no inodes", []observe.Space{{Path: "/a", Bytes: 100, BytesFree: 50}}, True, None, "EnoughSpace", "at least 50 %"},
		{"given nothing that counts", []observe.Space{{Path: "/a"}}, True, None, "EnoughSpace", ""},
	} {
		in := healthyInput()
		in.Disk.Value.Paths = tc.in
		got := judge(t, DiskSpace, in)
		if got.Status != tc.status || got.Severity != tc.severity || got.Reason != tc.reason || !strings.HasPrefix(got.Message, tc.message) {
			t.Errorf("%s: got %s %q (%s) %q, want %s %q (%s) %q", tc.name, got.Status, got.Severity, got.Reason, got.Message, tc.status, tc.severity, tc.reason, tc.message)
		}
	}
}

func TestStatusFile(t *testing.T) {
	file := func(age time.Duration) observe.Observation[observe.StatusFile] {
		return observe.See(observe.StatusFile{Path: "/run/x", Written: start.Add(-age)}, observe.Healthy, "Seen", "seen")
	}
	for _, tc := range []struct {
		name   string
		in     observe.Observation[observe.StatusFile]
		status Status
		reason string
	}{
		{"given that it was written just now", file(0), True, "Written"},
		{"given that it was written 5 minutes ago", file(5 * time.Minute), True, "Written"},
		{"given a moment more, readers take it for stale", file(5*time.Minute + 1), False, "Stale"},
		{"given a clock that was set back", file(-time.Hour), True, "Written"},
		{"given that no write was due yet", observe.See(observe.StatusFile{}, observe.Healthy, "Seen", "m"), True, "Written"},
		{"given that the last write failed", observe.See(observe.StatusFile{Written: start}, observe.Unhealthy, "NoSpace", "disk full"), False, "NoSpace"},
	} {
		in := healthyInput()
		in.StatusFile = tc.in
		if got := judge(t, StatusFileWritable, in); got.Status != tc.status || got.Reason != tc.reason {
			t.Errorf("%s: got %s (%s), want %s (%s)", tc.name, got.Status, got.Reason, tc.status, tc.reason)
		}
	}
}

func TestAVerdictKeepsWhenItWasSeen(t *testing.T) {
	in := healthyInput()
	seen := start.Add(-time.Minute)
	in.Certificate.At, in.Clock.At, in.Disk.At, in.StatusFile.At = seen, seen, seen, seen
	for _, name := range []string{KubeletCertificateValid, ClockSynchronized, DiskSpace, StatusFileWritable} {
		if got := judge(t, name, in); !got.At.Equal(seen) {
			t.Errorf("%s: got %s, want when the probe looked", name, got.At)
		}
	}
}
