//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	api "github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/test/lab"
)

// tellerAgent is the user agent of tellers.
const tellerAgent = "e2e-teller"

// message is something for a teller to tell the cluster.
type message struct {
	Node      string
	Condition *api.NodeCondition
	Event     *api.Event
}

// outcome is what became of it.
type outcome struct{ Reason, Error string }

// serveTeller tells the cluster what it reads from standard input, with the credentials of a kubeconfig, as the agent does.
func serveTeller() int {
	client := &api.Client{}
	defer client.Close()
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		var m message
		if err := json.Unmarshal(in.Bytes(), &m); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := out.Encode(tell(client, m)); err != nil {
			return 1
		}
	}
	return 0
}

func tell(client *api.Client, m message) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	source := api.Source{Kubeconfig: os.Getenv("E2E_KUBECONFIG"), NodeName: m.Node, HostName: m.Node, UserAgent: tellerAgent}
	var err error
	if m.Condition != nil {
		err = client.PatchNodeCondition(ctx, source, *m.Condition)
	} else {
		err = client.CreateEvent(ctx, source, *m.Event)
	}
	if err != nil {
		return outcome{api.ReasonOf(err), err.Error()}
	}
	return outcome{}
}

// startTeller starts a teller on a node and returns what tells by it.
func startTeller(t testing.TB, h *lab.Host, kubeconfigPath string) func(message) outcome {
	t.Helper()
	cmd := h.Self(t.Context())
	cmd.Env = append(cmd.Env, roleVariable+"=teller", "E2E_KUBECONFIG="+kubeconfigPath)
	cmd.Stderr = os.Stderr
	in, out := lab.Converse(t, cmd)
	questions, answers := json.NewEncoder(in), json.NewDecoder(out)
	return func(m message) (o outcome) {
		lab.Must(t, questions.Encode(m))
		if err := answers.Decode(&o); err != nil {
			t.Fatalf("the teller is gone: %v", err)
		}
		return o
	}
}

// sick is a condition and an event of a node whose kubelet was stopped.
func sick(node string) (condition, event message) {
	now := time.Now().Truncate(time.Second).UTC()
	return message{Node: node, Condition: &api.NodeCondition{
			Type: "FlexNodeHealthy", Status: "False", Reason: "UnitStopped", Message: "KubeletRunning: kubelet.service of " + node + " is stopped",
			LastTransition: now.Add(-time.Minute), Heartbeat: now,
		}},
		message{Node: node, Event: &api.Event{Type: "Warning", Reason: "UnitStopped", Action: "Restart", Message: "begin: restart kubelet.service of " + node, At: now}}
}

// conditions are a Node's conditions by their types.
func conditions(n *corev1.Node) map[corev1.NodeConditionType]corev1.NodeCondition {
	all := map[corev1.NodeConditionType]corev1.NodeCondition{}
	for _, c := range n.Status.Conditions {
		all[c.Type] = c
	}
	return all
}

// TestTheClusterIsToldHowANodeIs tells with both kinds of identity that kubelets have, and looks at what a person there sees.
func TestTheClusterIsToldHowANodeIs(t *testing.T) {
	t.Parallel()
	c := patientCluster(t)
	began := time.Now()
	for name, o := range map[string]lab.JoinOptions{"by-certificate": {}, "by-plugin": {ExecPlugin: &lab.ExecPlugin{User: "node-by-plugin"}}} {
		t.Run(name, func(t *testing.T) {
			h := c.MustJoin(t, name, o)
			say := startTeller(t, h, lab.NodeKubeconfig)
			theConditionIsAddedToTheOthers(t, c, h, say)
			theKubeletLeavesTheCondition(t, c, h)
			theEventIsListed(t, c, name, say)
			theRequestsAreThose(t, c, name, began)
		})
	}
}

// patientCluster is a control plane that says nothing about nodes whose kubelet is stopped.
func patientCluster(t *testing.T) *lab.Cluster {
	t.Helper()
	return cluster(t, lab.ClusterOptions{NodeGrace: 10 * time.Minute})
}

func theConditionIsAddedToTheOthers(t *testing.T, c *lab.Cluster, h *lab.Host, say func(message) outcome) {
	t.Helper()
	condition, _ := sick(h.Name())
	h.MustExec(t, "systemctl", "stop", "kubelet") // so that nobody else writes
	before, err := c.Node(t.Context(), h.Name())
	lab.Must(t, err)
	if got := say(condition); got != (outcome{}) {
		t.Fatalf("got %+v, want the condition told", got)
	}
	after, err := c.Node(t.Context(), h.Name())
	lab.Must(t, err)
	got, want := conditions(after)["FlexNodeHealthy"], *condition.Condition
	if string(got.Status) != want.Status || got.Reason != want.Reason || got.Message != want.Message ||
		!got.LastTransitionTime.Time.Equal(want.LastTransition) || !got.LastHeartbeatTime.Time.Equal(want.Heartbeat) {
		t.Errorf("got the condition %+v, want %+v", got, want)
	}
	others := conditions(after)
	delete(others, "FlexNodeHealthy")
	if !reflect.DeepEqual(others, conditions(before)) || len(others) < 4 {
		t.Errorf("the other conditions became %+v, want them as they were: %+v", others, conditions(before))
	}
	before.Status.Conditions, after.Status.Conditions = nil, nil
	if !reflect.DeepEqual(before.Status, after.Status) || !reflect.DeepEqual(before.Spec, after.Spec) ||
		!reflect.DeepEqual(before.Labels, after.Labels) || !reflect.DeepEqual(before.Annotations, after.Annotations) {
		t.Errorf("the rest of the Node became\n%+v, want it as it was:\n%+v", after, before)
	}
	_, err = c.Kubectl(t.Context(), "wait", "--for=condition=FlexNodeHealthy=False", "node/"+h.Name(), "--timeout=10s")
	lab.Must(t, err)
}

// theKubeletLeavesTheCondition makes a kubelet register anew and write two other statuses of the node.
func theKubeletLeavesTheCondition(t *testing.T, c *lab.Cluster, h *lab.Host) {
	t.Helper()
	before, err := c.Node(t.Context(), h.Name())
	lab.Must(t, err)
	want := conditions(before)["FlexNodeHealthy"]
	h.MustExec(t, "systemctl", "start", "kubelet")
	lab.Must(t, lab.WaitFor(t.Context(), time.Minute, "the kubelet writes a status", func(ctx context.Context) (bool, string) {
		n, err := c.Node(ctx, h.Name())
		if err != nil {
			return false, err.Error()
		}
		was, is := readyCondition(before), readyCondition(n)
		return is.LastHeartbeatTime.After(was.LastHeartbeatTime.Time), is.LastHeartbeatTime.String()
	}))
	h.MustExec(t, "sh", "-ec", "mkdir -p /root/cni; mv /etc/cni/net.d/* /root/cni/")
	lab.Must(t, c.WaitReady(t.Context(), h.Name(), corev1.ConditionFalse, time.Minute))
	h.MustExec(t, "sh", "-ec", "for f in /root/cni/*; do cat $f >/etc/cni/net.d/$(basename $f); done")
	lab.Must(t, c.WaitReady(t.Context(), h.Name(), corev1.ConditionTrue, 2*time.Minute))
	after, err := c.Node(t.Context(), h.Name())
	lab.Must(t, err)
	if got := conditions(after)["FlexNodeHealthy"]; !reflect.DeepEqual(got, want) {
		t.Errorf("after statuses of the kubelet: got %+v, want %+v", got, want)
	}
}

func theEventIsListed(t *testing.T, c *lab.Cluster, node string, say func(message) outcome) {
	t.Helper()
	_, event := sick(node)
	other := event
	other.Event = &api.Event{Type: "Normal", Reason: "RemedySucceeded", Action: "Restart", Message: strings.Repeat("long ", 400), At: event.Event.At}
	for _, m := range []message{event, event, other} { // one of them twice, as after an answer that was lost
		if got := say(m); got != (outcome{}) {
			t.Fatalf("got %+v, want the event told", got)
		}
	}
	text, err := c.Kubectl(t.Context(), "describe", "node", node)
	lab.Must(t, err)
	var condition, events []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Join(strings.Fields(line), " ")
		switch {
		case strings.HasPrefix(line, "FlexNodeHealthy False "):
			condition = append(condition, line)
		case strings.Contains(line, " aks-flex-node "):
			events = append(events, line)
		}
	}
	if len(condition) != 1 || !strings.HasSuffix(condition[0], "UnitStopped KubeletRunning: kubelet.service of "+node+" is stopped") {
		t.Errorf("got the condition %q in\n%s", condition, text)
	}
	all := strings.Join(events, "\n")
	if len(events) != 2 || !strings.Contains(all, "Warning UnitStopped") || !strings.Contains(all, "aks-flex-node begin: restart kubelet.service of "+node) ||
		!strings.Contains(all, "Normal RemedySucceeded") {
		t.Errorf("got the events\n%s\nin\n%s", all, text)
	}
}

// theRequestsAreThose looks into the audit log: nothing is read, and everything is asked once.
func theRequestsAreThose(t *testing.T, c *lab.Cluster, node string, since time.Time) {
	t.Helper()
	want := fmt.Sprint("patch /api/v1/nodes/", node, "/status 200, create /api/v1/namespaces/default/events 201, ",
		"create /api/v1/namespaces/default/events 409, create /api/v1/namespaces/default/events 201")
	lab.Must(t, lab.WaitFor(t.Context(), soon, "the audit log has the requests", func(context.Context) (bool, string) {
		requests, err := c.Requests(tellerAgent, since)
		if err != nil {
			return false, err.Error()
		}
		var got []string
		for _, r := range requests {
			if r.User == "node-"+node || r.User == "system:node:"+node {
				got = append(got, fmt.Sprint(r.Verb, " ", r.URI, " ", r.Code))
			}
		}
		return strings.Join(got, ", ") == want, strings.Join(got, ", ")
	}))
}

// TestWithoutTheRoleNothingIsTold tells as a node of another name, and as somebody who has no rights until deploy/ gives them.
func TestWithoutTheRoleNothingIsTold(t *testing.T) {
	t.Parallel()
	c := patientCluster(t)
	h := c.MustJoin(t, "n1", lab.JoinOptions{})
	c.MustJoin(t, "n2", lab.JoinOptions{})
	foreign, _ := sick("n2")
	if got := startTeller(t, h, lab.NodeKubeconfig)(foreign); got.Reason != api.ReasonForbidden {
		t.Errorf("n1 about n2: got %+v, want reason %s", got, api.ReasonForbidden)
	}

	stranger, err := c.Kubeconfig("stranger")
	lab.Must(t, err)
	lab.Must(t, h.WriteFile(t.Context(), "/root/stranger.conf", stranger, 0o600))
	say := startTeller(t, h, "/root/stranger.conf")
	condition, event := sick("n1")
	forbidden := func(when string) {
		t.Helper()
		for what, m := range map[string]message{"condition": condition, "event": event} {
			if got := say(m); got.Reason != api.ReasonForbidden || !strings.Contains(got.Error, `User "stranger" cannot`) {
				t.Errorf("%s, %s: got %+v, want reason %s", when, what, got, api.ReasonForbidden)
			}
		}
	}
	forbidden("without any right")
	manifest, err := os.ReadFile("../../deploy/rbac.yaml")
	lab.Must(t, err)
	text := strings.ReplaceAll(string(manifest), "REPLACE-WITH-THE-OBJECT-ID-OF-THE-NODES-IDENTITY", "stranger")
	parts := strings.SplitAfterN(text, "\n---\n", 3)
	lab.Must(t, c.Apply(t.Context(), parts[0]+parts[1]))
	forbidden("with the right to read")

	lab.Must(t, c.Apply(t.Context(), text))
	lab.Must(t, lab.WaitFor(t.Context(), soon, "the rights of deploy/ are enough", func(context.Context) (bool, string) {
		a, b := say(condition), say(event)
		return a == outcome{} && b == outcome{}, fmt.Sprint(a, b)
	}))
	for what, want := range map[string]string{
		"patch nodes --subresource=status": "yes", "update nodes --subresource=status": "no", "patch nodes": "no", "update nodes": "no",
		"create events -n default": "yes", "create events -n kube-system": "no", "patch events -n default": "no", "delete events -n default": "no", "list events -n default": "no",
	} {
		got, err := c.Kubectl(t.Context(), append([]string{"auth", "can-i", "--as=stranger"}, strings.Fields(what)...)...)
		if strings.TrimSpace(got) != want && (err == nil || !strings.Contains(got+err.Error(), want)) {
			t.Errorf("may %s: got %q, %v, want %s", what, got, err, want)
		}
	}
}
