package observe

import (
	"testing"
	"time"
)

func TestFreeSpaceAsAShare(t *testing.T) {
	for _, tc := range []struct {
		name        string
		free, total uint64
		want        float64
		wantOK      bool
	}{
		{"given a full file system", 0, 100, 0, true},
		{"given an empty one", 100, 100, 100, true},
		{"given a part", 1, 8, 12.5, true},
		{"given sizes beyond what a float counts exactly", 1 << 62, 1 << 63, 50, true},
		{"given more free than there is, as some network file systems say", 200, 100, 100, true},
		{"given that nothing is counted, there is no share", 0, 0, 0, false},
	} {
		s := Space{Bytes: tc.total, BytesFree: tc.free}
		if got, ok := s.BytesFreePercent(); got != tc.want || ok != tc.wantOK {
			t.Errorf("%s: bytes: got %v, %v, want %v, %v", tc.name, got, ok, tc.want, tc.wantOK)
		}
		if _, ok := s.InodesFreePercent(); ok {
			t.Errorf("%s: got a share of inodes, want none: only bytes are counted", tc.name)
		}
		s = Space{Inodes: tc.total, InodesFree: tc.free}
		if got, ok := s.InodesFreePercent(); got != tc.want || ok != tc.wantOK {
			t.Errorf("%s: inodes: got %v, %v, want %v, %v", tc.name, got, ok, tc.want, tc.wantOK)
		}
	}
}

func TestAnAnswerCountsWhenItIsNotOlderThanTheLookAtTheUnit(t *testing.T) {
	yes, no := See(Runtime{Answers: true}, Unhealthy, "RuntimeNotReady", "m"), See(Runtime{}, Unhealthy, "NotRunning", "m")
	dark := CannotTell[Runtime]("Timeout", "m")
	dark.Value.Answers = true
	for _, tc := range []struct {
		name  string
		in    Observation[Runtime]
		later time.Duration // than the unit's look
		want  bool
	}{
		{"given an answer in the same look", yes, 0, true},
		{"given one after it", yes, time.Minute, true},
		{"given one a little sooner, the looks of one round don't end at once", yes, -5 * time.Second, true},
		{"given one from before", yes, -5*time.Second - 1, false},
		{"given no answer", no, 0, false},
		{"given that it can't be told", dark, 0, false},
	} {
		s := Set{Containerd: tc.in}
		s.ContainerdUnit.At = noon
		s.Containerd.At = noon.Add(tc.later)
		if got := s.ContainerdAnswers(); got != tc.want {
			t.Errorf("%s: containerd: got %v, want %v", tc.name, got, tc.want)
		}
		k := Set{KubeletHealth: CannotTell[KubeletHealth]("Timeout", "m")}
		if tc.in.Known() {
			k.KubeletHealth = See(KubeletHealth{}, map[bool]Health{true: Healthy, false: Unhealthy}[tc.in.Value.Answers], "R", "m")
		}
		k.KubeletUnit.At = noon
		k.KubeletHealth.At = noon.Add(tc.later)
		if got := k.KubeletAnswers(); got != tc.want {
			t.Errorf("%s: kubelet: got %v, want %v", tc.name, got, tc.want)
		}
	}
	if s := new(Set); s.ContainerdAnswers() || s.KubeletAnswers() {
		t.Error("got answers where nobody looked")
	}
}
