package journal

import (
	"reflect"
	"testing"
	"time"
)

func TestAPause(t *testing.T) {
	h := newHost()
	j := openSound(t, newPath(t), h.Moment)
	paused := func() *Pause {
		t.Helper()
		p, err := j.Paused(h.Moment)
		must(t, err)
		return p
	}
	if got := paused(); got != nil {
		t.Errorf("at first: got %+v, want none", got)
	}
	must(t, j.Pause(h.Moment, Pause{By: "alice", Reason: "disk swap"}))
	want := &Pause{Version: 1, By: "alice", Reason: "disk swap", Since: h.Wall}
	j = reopen(t, j, h.reboot(day))
	if got := paused(); !reflect.DeepEqual(got, want) {
		t.Errorf("after a restart: got %+v, want %+v", got, want)
	}
	must(t, j.Resume(h.Moment, "alice"))
	if got := paused(); got != nil {
		t.Errorf("after resume: got %+v, want none", got)
	}

	until := h.Wall.Add(time.Hour)
	must(t, j.Pause(h.Moment, Pause{By: "bob", Until: &until}))
	h.run(time.Hour - time.Second)
	if got := paused(); got == nil || got.By != "bob" {
		t.Errorf("before its end: got %+v, want that of bob", got)
	}
	h.run(time.Second)
	if got := paused(); got != nil {
		t.Errorf("at its end: got %+v, want none", got)
	}
}
