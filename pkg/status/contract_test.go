package status_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/aks-flex-node/agent/pkg/config"
	"github.com/aks-flex-node/agent/pkg/status"
)

// What programs elsewhere were written against: it must compile as it is.
var (
	_ func() string                                                  = status.GetStatusFilePath
	_ func(*logrus.Logger)                                           = status.MarkKubeletUnhealthyBestEffort
	_ func(*logrus.Logger, string, time.Time)                        = status.MarkKubeletUnhealthyBestEffortAtPath
	_ func(*logrus.Logger)                                           = status.RemoveStatusFileBestEffort
	_ func(*logrus.Logger, string)                                   = status.RemoveStatusFileBestEffortAtPath
	_ func(string, *status.NodeStatus) error                         = status.WriteStatusToFile
	_ func() (*status.NodeStatus, error)                             = status.LoadStatus
	_ func(string) (*status.NodeStatus, error)                       = status.LoadStatusFromFile
	_ func(*config.Config, *logrus.Logger, string) *status.Collector = status.NewCollector

	_ func(*status.Collector, context.Context) (*status.NodeStatus, error) = (*status.Collector).CollectStatus
	_ func(*status.Collector, context.Context) bool                        = (*status.Collector).NeedsBootstrap

	_ status.Collector // a type that can be named, and be part of a caller's struct

	_ = status.ArcStatus{
		Registered:    bool(true),
		Connected:     bool(true),
		MachineName:   string(""),
		ResourceID:    string(""),
		Location:      string(""),
		ResourceGroup: string(""),
		LastHeartbeat: time.Time{},
		AgentVersion:  string(""),
	}
	_ = status.NodeStatus{
		KubeletVersion:    string(""),
		RuncVersion:       string(""),
		ContainerdVersion: string(""),
		KubeletRunning:    bool(true),
		KubeletReady:      string(""),
		ContainerdRunning: bool(true),
		ArcStatus:         status.ArcStatus{},
		LastUpdated:       time.Time{},
		LastUpdatedBy:     status.LastUpdatedBy(""),
		LastUpdatedReason: status.LastUpdatedReason(""),
		AgentVersion:      string(""),
	}
)

// Constants, so that they serve in a switch and where a constant must stand.
const (
	byUnspecified     status.LastUpdatedBy     = status.LastUpdatedByUnspecified
	byLoop            status.LastUpdatedBy     = status.LastUpdatedByStatusCollectionLoop
	byDrift           status.LastUpdatedBy     = status.LastUpdatedByDriftDetectionAndRemediation
	reasonUnspecified status.LastUpdatedReason = status.LastUpdatedReasonUnspecified
	reasonPeriodic    status.LastUpdatedReason = status.LastUpdatedReasonPeriodicStatusLoop
	reasonDrift       status.LastUpdatedReason = status.LastUpdatedReasonKubernetesVersionDrift
)

func TestContractConstants(t *testing.T) {
	for got, want := range map[string]string{
		"by:" + string(byUnspecified):         "by:",
		"by:" + string(byLoop):                "by:StatusCollectionLoop",
		"by:" + string(byDrift):               "by:DriftDetectionAndRemediation",
		"reason:" + string(reasonUnspecified): "reason:",
		"reason:" + string(reasonPeriodic):    "reason:perodicStatusLoop",
		"reason:" + string(reasonDrift):       "reason:kubernetesVersionDrift",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestContractFields(t *testing.T) {
	type field struct{ name, kind, tag string }
	tests := map[reflect.Type][]field{
		reflect.TypeFor[status.ArcStatus](): {
			{"Registered", "bool", `json:"registered"`},
			{"Connected", "bool", `json:"connected"`},
			{"MachineName", "string", `json:"machineName"`},
			{"ResourceID", "string", `json:"resourceId,omitempty"`},
			{"Location", "string", `json:"location,omitempty"`},
			{"ResourceGroup", "string", `json:"resourceGroup,omitempty"`},
			{"LastHeartbeat", "time.Time", `json:"lastHeartbeat,omitempty"`},
			{"AgentVersion", "string", `json:"agentVersion,omitempty"`},
		},
		reflect.TypeFor[status.NodeStatus](): {
			{"KubeletVersion", "string", `json:"kubeletVersion"`},
			{"RuncVersion", "string", `json:"runcVersion"`},
			{"ContainerdVersion", "string", `json:"containerdVersion"`},
			{"KubeletRunning", "bool", `json:"kubeletRunning"`},
			{"KubeletReady", "string", `json:"kubeletReady"`},
			{"ContainerdRunning", "bool", `json:"containerdRunning"`},
			{"ArcStatus", "status.ArcStatus", `json:"arcStatus"`},
			{"LastUpdated", "time.Time", `json:"lastUpdated"`},
			{"LastUpdatedBy", "status.LastUpdatedBy", `json:"lastUpdatedBy,omitempty"`},
			{"LastUpdatedReason", "status.LastUpdatedReason", `json:"lastUpdatedReason,omitempty"`},
			{"AgentVersion", "string", `json:"agentVersion"`},
		},
	}
	for typ, want := range tests {
		if got := typ.NumField(); got != len(want) {
			t.Errorf("%v: got %d fields, want %d", typ, got, len(want))
		}
		for i, w := range want {
			f, ok := typ.FieldByName(w.name)
			if !ok || f.Type.String() != w.kind || string(f.Tag) != w.tag || f.Index[0] != i {
				t.Errorf("%v: got %s %v `%s` (%v) as field %d, want %s %s `%s`", typ, f.Name, f.Type, f.Tag, ok, i, w.name, w.kind, w.tag)
			}
		}
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[status.LastUpdatedBy](), reflect.TypeFor[status.LastUpdatedReason]()} {
		if typ.Kind() != reflect.String || typ.NumMethod() != 0 {
			t.Errorf("%v: got kind %v with %d methods, want a plain string", typ, typ.Kind(), typ.NumMethod())
		}
	}
	for f := range reflect.TypeFor[status.Collector]().Fields() {
		if f.IsExported() {
			t.Errorf("Collector shows the field %s", f.Name)
		}
	}
}

// A program as there are many: it keeps a snapshot, marks it, looks, removes it.
func TestContractInUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.json")
	if _, err := status.LoadStatusFromFile(path); !os.IsNotExist(err) {
		t.Fatalf("got %v, want that the file doesn't exist", err)
	}
	s := &status.NodeStatus{
		KubeletVersion:    "1.32.7",
		KubeletRunning:    true,
		LastUpdated:       time.Now(),
		LastUpdatedBy:     status.LastUpdatedByStatusCollectionLoop,
		LastUpdatedReason: status.LastUpdatedReasonPeriodicStatusLoop,
	}
	if err := status.WriteStatusToFile(path, s); err != nil {
		t.Fatal(err)
	}
	status.MarkKubeletUnhealthyBestEffortAtPath(logrus.StandardLogger(), path, time.Time{})
	loaded, err := status.LoadStatusFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if loaded.KubeletRunning || loaded.LastUpdatedBy != status.LastUpdatedByDriftDetectionAndRemediation {
		t.Errorf("got %+v, want it marked", *loaded)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]any
	if err := json.Unmarshal(content, &raw); err != nil || raw["lastUpdatedReason"] != "kubernetesVersionDrift" {
		t.Errorf("got %v (%v)", raw, err)
	}
	status.RemoveStatusFileBestEffortAtPath(logrus.StandardLogger(), path)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("got %v, want that the file doesn't exist", err)
	}
}
