package status

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"

	"github.com/aks-flex-node/agent/internal/observe"
	"github.com/aks-flex-node/agent/pkg/config"
)

var collectedAt = time.Date(2026, 1, 15, 17, 47, 26, 247968895, time.FixedZone("CET", 3600))

// unknown is a snapshot of a look that could tell nothing.
func unknown() NodeStatus {
	return NodeStatus{
		KubeletVersion: "unknown", RuncVersion: "unknown", ContainerdVersion: "unknown", KubeletReady: "Unknown",
		LastUpdated: collectedAt.UTC(), LastUpdatedBy: "StatusCollectionLoop", LastUpdatedReason: "perodicStatusLoop", AgentVersion: "v1",
	}
}

func lastKnown[T any](v T, o observe.Observation[T]) observe.Observation[T] {
	at := collectedAt.Add(-time.Minute)
	o.Good, o.GoodAt = &v, &at
	return o
}

func TestASetBecomesASnapshot(t *testing.T) {
	running := observe.Unit{ActiveState: "active"}
	program := func(v string) observe.Observation[observe.Program] {
		return observe.See(observe.Program{Version: v}, observe.Healthy, "VersionKnown", "")
	}
	hung := observe.CannotTell[observe.Unit]("Timeout", "no answer")
	for name, c := range map[string]struct {
		set  *observe.Set
		want func(*NodeStatus)
	}{
		"no set":            {nil, func(*NodeStatus) {}},
		"nothing looked at": {&observe.Set{}, func(*NodeStatus) {}},
		"all well": {&observe.Set{
			KubeletUnit: observe.JudgeUnit(running), ContainerdUnit: observe.JudgeUnit(running), Kubelet: program("1.32.7"), Runc: program("1.1.12"),
			Containerd: observe.See(observe.Runtime{Program: observe.Program{Version: "1.7.20"}}, observe.Healthy, "RuntimeReady", ""),
			Node:       observe.See(observe.Node{Ready: "Ready"}, observe.Healthy, "NodeReady", ""),
			Arc:        observe.See(observe.Arc{Registered: true, Connected: true, MachineName: "m", ResourceID: "/id", Location: "l", ResourceGroup: "g", AgentVersion: "1"}, observe.Healthy, "Connected", ""),
		}, func(s *NodeStatus) {
			s.KubeletRunning, s.ContainerdRunning, s.KubeletReady = true, true, "Ready"
			s.KubeletVersion, s.RuncVersion, s.ContainerdVersion = "1.32.7", "1.1.12", "1.7.20"
			s.ArcStatus = ArcStatus{Registered: true, Connected: true, MachineName: "m", ResourceID: "/id", Location: "l", ResourceGroup: "g", AgentVersion: "1"}
		}},
		"a restart loop is not running": {&observe.Set{KubeletUnit: observe.JudgeUnit(observe.Unit{LoadState: "loaded", ActiveState: "activating"})}, func(*NodeStatus) {}},
		"a unit being reloaded runs": {&observe.Set{KubeletUnit: observe.JudgeUnit(observe.Unit{ActiveState: "reloading"})},
			func(s *NodeStatus) { s.KubeletRunning = true }},
		"what was known a minute ago is carried over": {&observe.Set{
			KubeletUnit: lastKnown(running, hung), ContainerdUnit: lastKnown(running, hung),
			Kubelet: lastKnown(observe.Program{Version: "1.32.7"}, observe.CannotTell[observe.Program]("Timeout", "")),
			Node:    lastKnown(observe.Node{Ready: "Ready"}, observe.CannotTell[observe.Node]("ConnectionTimeout", "")),
			Arc:     lastKnown(observe.Arc{Connected: true}, observe.CannotTell[observe.Arc]("Timeout", "")),
		}, func(s *NodeStatus) {
			s.KubeletRunning, s.ContainerdRunning, s.KubeletVersion, s.KubeletReady, s.ArcStatus.Connected = true, true, "1.32.7", "Ready", true
		}},
		"what is seen is never overruled by what was": {&observe.Set{
			KubeletUnit: lastKnown(running, observe.JudgeUnit(observe.Unit{LoadState: "loaded", ActiveState: "inactive"})),
			Node:        lastKnown(observe.Node{Ready: "Ready"}, observe.See(observe.Node{Ready: "NotReady"}, observe.Unhealthy, "NodeNotReady", "")),
		}, func(s *NodeStatus) { s.KubeletReady = "NotReady" }},
		"the part that could be told counts": {&observe.Set{
			Containerd: lastKnown(observe.Runtime{Program: observe.Program{Version: "1.7.19"}},
				observe.Observation[observe.Runtime]{Value: observe.Runtime{Program: observe.Program{Version: "1.7.20"}}, Reason: "PermissionDenied"}),
		}, func(s *NodeStatus) { s.ContainerdVersion = "1.7.20" }},
		"a node that the cluster has not heard from": {&observe.Set{Node: observe.See(observe.Node{Ready: "Unknown"}, observe.Unhealthy, "NodeUnknown", "")}, func(*NodeStatus) {}},
		"a word nobody knows is no readiness":        {&observe.Set{Node: observe.See(observe.Node{Ready: "Perhaps"}, observe.Healthy, "", "")}, func(*NodeStatus) {}},
	} {
		t.Run(name, func(t *testing.T) {
			want := unknown()
			c.want(&want)
			if got := FromObservations(c.set, "v1", collectedAt); !reflect.DeepEqual(*got, want) {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
}

func TestCollectionWorksWithoutConfigAndLogger(t *testing.T) {
	c := NewCollector(nil, nil, "v1")
	defer c.suite.Close()
	s, err := c.CollectStatus(t.Context())
	if err != nil || s.AgentVersion != "v1" || s.LastUpdated.Location() != time.UTC || s.LastUpdated.IsZero() {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestOnlyCancellationIsAnError(t *testing.T) {
	c := NewCollector(&config.Config{}, nil, "v1")
	defer c.suite.Close()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if s, err := c.CollectStatus(late); err != nil || s == nil || s.KubeletVersion != "unknown" || s.LastUpdatedBy != LastUpdatedByStatusCollectionLoop {
		t.Errorf("without any time: got %+v, %v, want a snapshot in which nothing is known", s, err)
	}
	cause := errors.New("the caller's reason")
	cancelled, give := context.WithCancelCause(t.Context())
	give(cause)
	if s, err := c.CollectStatus(cancelled); s != nil || !errors.Is(err, cause) {
		t.Errorf("cancelled: got %+v, %v, want no snapshot and the reason", s, err)
	}
}

func TestWhatCannotBeToldIsWarnedOfOnce(t *testing.T) {
	logger, hook := logrustest.NewNullLogger()
	logger.SetLevel(logrus.DebugLevel)
	c := NewCollector(nil, logger, "v1")
	defer c.suite.Close()
	levels := func(reason string) (got []logrus.Level) {
		hook.Reset()
		c.warn(&observe.Set{
			Node: observe.CannotTell[observe.Node](reason, "because"),
			Arc:  observe.CannotTell[observe.Arc](observe.ReasonNotEnabled, "nobody wants it"),
			Runc: observe.See(observe.Program{}, observe.Unhealthy, "NotInstalled", "told, so no warning that it could not be"),
		})
		for _, e := range hook.AllEntries() {
			if e.Data["subject"] == "node" {
				got = append(got, e.Level)
			}
			if e.Data["subject"] == "arc" || e.Data["subject"] == "runc" {
				t.Errorf("got a log line about %v: %s", e.Data["subject"], e.Message)
			}
		}
		return got
	}
	for i, want := range []struct {
		reason string
		level  logrus.Level
	}{
		{"Timeout", logrus.WarnLevel}, {"Timeout", logrus.DebugLevel}, {"Refused", logrus.WarnLevel}, {"Timeout", logrus.WarnLevel},
	} {
		if got := levels(want.reason); len(got) != 1 || got[0] != want.level {
			t.Errorf("look %d: got %v, want one line at %v", i, got, want.level)
		}
	}
}
