package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxMessage bounds a message in the cluster, in bytes. The API server refuses longer ones of events.
	maxMessage = 1024
	// component is who tells, in events.
	component = "aks-flex-node"
)

// NodeCondition is one condition of this node's Node.
type NodeCondition struct {
	Type           string
	Status         string // True, False or Unknown
	Reason         string // one CamelCase word
	Message        string // for people; what is beyond 1 KiB is cut off
	LastTransition time.Time
	Heartbeat      time.Time
}

// PatchNodeCondition adds a condition to this node's Node, or replaces the one of its type. Nothing else of the Node is read or written, so
// that the kubelet's conditions, and its writing of them, are not touched. It is one request that is not tried again, and lasts no
// longer than ctx. ReasonOf tells what an error is.
func (c *Client) PatchNodeCondition(ctx context.Context, source Source, condition NodeCondition) error {
	ctx = quiet(ctx)
	conn, err := c.connect(source)
	if err != nil {
		return err
	}
	patch, err := conditionPatch(condition)
	if err != nil {
		return fmt.Errorf("condition %s of node %s: %w", condition.Type, conn.nodeName, err)
	}
	err = conn.rest.Patch(types.StrategicMergePatchType).MaxRetries(0).Resource("nodes").Name(conn.nodeName).SubResource("status").
		SetHeader("Accept", onlyMetadata).Body(patch).Do(ctx).Error()
	if err != nil {
		return timedOut(ctx, fmt.Errorf("patch condition %s of node %s: %w", condition.Type, conn.nodeName, err))
	}
	return nil
}

// onlyMetadata asks for an answer without the Node's status: that can have tens of kilobytes, of images most of all, and nobody here reads it.
const onlyMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/vnd.kubernetes.protobuf,application/json"

// conditionPatch is a strategic merge patch, which merges conditions by their type.
func conditionPatch(c NodeCondition) ([]byte, error) {
	return json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeConditionType(c.Type), Status: corev1.ConditionStatus(c.Status), Reason: c.Reason, Message: cut(c.Message),
		LastTransitionTime: metav1.NewTime(c.LastTransition), LastHeartbeatTime: metav1.NewTime(c.Heartbeat),
	}}}})
}

// Event is something that happened on this node, for the cluster's people.
type Event struct {
	Type    string // Normal or Warning
	Reason  string // one CamelCase word: why it was done
	Action  string // one CamelCase word: what was done
	Message string // for people; what is beyond 1 KiB is cut off
	At      time.Time
}

// CreateEvent makes an Event about this node's Node, in the namespace default, where those of kubelets are. It is one request that is not
// tried again, and lasts no longer than ctx. Creating the same Event again does nothing: so a caller that got no answer may repeat it.
// ReasonOf tells what an error is.
func (c *Client) CreateEvent(ctx context.Context, source Source, event Event) error {
	ctx = quiet(ctx)
	conn, err := c.connect(source)
	if err != nil {
		return err
	}
	err = conn.rest.Post().MaxRetries(0).Namespace(metav1.NamespaceDefault).Resource("events").
		Body(eventOf(conn.nodeName, firstNonEmpty(source.HostName, conn.nodeName), event)).Do(ctx).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return timedOut(ctx, fmt.Errorf("create event %s of node %s: %w", event.Reason, conn.nodeName, err))
	}
	return nil
}

// eventOf is the object of an Event. It names the Node by its name for want of its UID, as kubelets did before Kubernetes 1.37: kubectl
// describe looks for both.
func eventOf(node, host string, e Event) *corev1.Event {
	at := metav1.NewTime(e.At)
	what := fnv.New32a()
	_, _ = fmt.Fprintf(what, "%s\n%s\n%s", e.Reason, e.Action, e.Message) // a hash takes everything
	return &corev1.Event{
		// The name tells events of one moment apart, and is the same when one is created again.
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s.%x%08x", node, e.At.UnixNano(), what.Sum32())},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: node, UID: types.UID(node)},
		Type:           e.Type, Reason: e.Reason, Action: e.Action, Message: cut(e.Message),
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
		Source:              corev1.EventSource{Component: component, Host: host},
		ReportingController: component, ReportingInstance: host,
	}
}

// Refused reports whether the API server understood a request and will never accept it: then there is no use in trying again.
func Refused(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) }

// cut makes a message one that the API server takes.
func cut(message string) string {
	message = strings.ToValidUTF8(message, "\uFFFD")
	if len(message) <= maxMessage {
		return message
	}
	const more = "…"
	end := maxMessage - len(more)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + more
}

// timedOut gives an error the reason that it has when ctx came to its end: net/http hands on the cause for which it ended, which can be any
// error.
func timedOut(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && ReasonOf(err) == ReasonUnavailable {
		return reasoned(ReasonTimeout, err)
	}
	return err
}
