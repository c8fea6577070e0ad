package probe

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

func TestWhereTheNodesCredentialsAre(t *testing.T) {
	s, dir := newSuite(t)
	there := putFile(t, filepath.Join(dir, "there"), nil, 0o600)
	ofFlag := putFile(t, filepath.Join(dir, "of-flag"), nil, 0o600)
	s.settings.kubeconfigs = []string{"", filepath.Join(dir, "first"), there}
	kubelet := func(args ...string) observe.Unit {
		return running("kubelet.service", 0, append([]string{"/usr/bin/kubelet"}, args...)...)
	}
	for _, test := range []struct {
		name     string
		nodeName string // of the config
		unit     observe.Unit
		want     cluster.Source
	}{
		{"nothing is known of the kubelet", "", observe.Unit{}, cluster.Source{Kubeconfig: there}},
		{"the kubelet's own comes first", "", kubelet("--kubeconfig=" + ofFlag), cluster.Source{Kubeconfig: ofFlag}},
		{"unless it is not there", "", kubelet("--kubeconfig", dir+"/gone"), cluster.Source{Kubeconfig: there}},
		{"the kubelet's other name", "", kubelet("--hostname-override", " Edge-7 "), cluster.Source{Kubeconfig: there, NodeName: "edge-7"}},
		{"the config's name wins", "of-config", kubelet("--hostname-override=edge-7"), cluster.Source{Kubeconfig: there, NodeName: "of-config"}},
	} {
		s.settings.nodeName = test.nodeName
		test.want.HostName, test.want.UserAgent = "n1", "test"
		got := s.nodeSource(units{kubelet: test.unit})
		if got.Kubeconfig != test.want.Kubeconfig || got.NodeName != test.want.NodeName || got.HostName != "n1" || got.UserAgent != "test" || got.PluginEnv != nil {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
	s.settings.kubeconfigs = []string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
	if got := s.nodeSource(units{}).Kubeconfig; got != filepath.Join(dir, "first") {
		t.Errorf("none is there: got %q, want the first place, for the error to name", got)
	}
}

func TestTheKubeletsSettingsForItsPlugin(t *testing.T) {
	for key, value := range map[string]string{"AZURE_CLIENT_ID": "id", "AAD_LOGIN_METHOD": "msi", "AZUREX": "no", "SECRET": "no", "MY_AZURE_X": "no"} {
		t.Setenv(key, value)
	}
	path := putDaemon(t, filepath.Join(t.TempDir(), "kubelet"), "")
	pid, _ := startDaemon(t, path)
	got := azureEnvironment(pid)
	slices.Sort(got)
	got = slices.DeleteFunc(got, func(e string) bool { // what this machine has of its own
		return !strings.HasPrefix(e, "AZURE_CLIENT_ID=") && !strings.HasPrefix(e, "AAD_LOGIN_METHOD=") && os.Getenv(strings.SplitN(e, "=", 2)[0]) != "no"
	})
	if want := []string{"AAD_LOGIN_METHOD=msi", "AZURE_CLIENT_ID=id"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := azureEnvironment(0); got != nil {
		t.Errorf("without a process: got %q, want none", got)
	}
}

func TestTheKubeletsSettingsMayNotBeReadByOthers(t *testing.T) {
	if pid := os.Getenv(ofNobody); pid != "" {
		var n int
		if _, err := fmt.Sscan(pid, &n); err != nil {
			t.Fatal(err)
		}
		if got := azureEnvironment(n); got != nil {
			t.Errorf("got %q, want none: only root may look", got)
		}
		return
	}
	needsRoot(t, "it runs a process that another user may not look at")
	t.Setenv("AZURE_CLIENT_ID", "id")
	pid, _ := startDaemon(t, putDaemon(t, filepath.Join(t.TempDir(), "kubelet"), ""))
	asNobody(t, fmt.Sprint(pid))
}

func TestWhatTheClustersWordMeans(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 15, 17, 47, 26, 0, time.UTC))
	ready := func(status corev1.ConditionStatus, reason, message string) *corev1.Node {
		n := &corev1.Node{}
		n.Name, n.Status.NodeInfo.KubeletVersion = "n1", "v1.32.7+k3s1"
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "not this one"},
			{Type: corev1.NodeReady, Status: status, Reason: reason, Message: message, LastTransitionTime: at, LastHeartbeatTime: at},
		}
		return n
	}
	cordoned := ready(corev1.ConditionTrue, "KubeletReady", "")
	cordoned.Spec.Unschedulable = true
	fresh := &corev1.Node{}
	fresh.Name = "n1"
	for _, test := range []struct {
		name   string
		node   *corev1.Node
		health observe.Health
		reason string
		ready  string
		words  []string
	}{
		{"ready", ready(corev1.ConditionTrue, "KubeletReady", "fine"), observe.Healthy, "NodeReady", observe.Ready, []string{"n1 is ready"}},
		{"ready and cordoned", cordoned, observe.Healthy, "NodeReady", observe.Ready, []string{"cordoned"}},
		{"not ready", ready(corev1.ConditionFalse, "KubeletNotReady", "no CNI"), observe.Unhealthy, "NodeNotReady", observe.NotReady, []string{"KubeletNotReady", "no CNI"}},
		{"not heard of", ready(corev1.ConditionUnknown, "NodeStatusUnknown", "stopped posting"), observe.Unhealthy, "NodeUnknown", observe.ReadyUnknown, []string{"stopped posting"}},
		{"a word that nobody knows", ready("Perhaps", "x", "y"), observe.Unhealthy, "NodeUnknown", observe.ReadyUnknown, nil},
		{"no condition yet", fresh, observe.Unknown, "NoReadyCondition", "", []string{"n1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := judgeNode(nodeValue(observe.Node{Server: "https://api"}, test.node))
			wantSeen(t, got, test.health, test.reason, test.words...)
			v := got.Value
			if v.Name != "n1" || v.Server != "https://api" || v.Ready != test.ready || v.Unschedulable != test.node.Spec.Unschedulable {
				t.Errorf("got %+v, want n1 of https://api to be %q", v, test.ready)
			}
			if test.node == fresh {
				return
			}
			if v.KubeletVersion != "1.32.7+k3s1" || !v.LastTransition.Equal(at.Time) || !v.LastHeartbeat.Equal(at.Time) {
				t.Errorf("got version %q and times %s, %s, want those of the Node", v.KubeletVersion, v.LastTransition, v.LastHeartbeat)
			}
		})
	}
}

// kubeconfigOf writes a kubeconfig for a server on this machine.
func kubeconfigOf(t testing.TB, path, server string) string {
	t.Helper()
	return putFile(t, path, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: t}}]
`, server), 0o600)
}

func answerJSON(code int, v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v) // the client sees it when this fails
	}
}

func refusal(code int, reason metav1.StatusReason) http.HandlerFunc {
	return answerJSON(code, metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason,
	})
}

func readyNode(name string) corev1.Node {
	n := corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	n.Name = name
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	return n
}

// Only an API server that was reached and has no such Node says something about the node; every other failure is one of the link.
func TestWhatAFailureToAskTheAPIServerMeans(t *testing.T) {
	for _, test := range []struct {
		name    string
		handler http.HandlerFunc // nil: nobody listens
		health  observe.Health
		reason  string
		ready   string
	}{
		{"it has the Node", answerJSON(200, readyNode("n1")), observe.Healthy, "NodeReady", observe.Ready},
		{"it has no such Node", refusal(404, metav1.StatusReasonNotFound), observe.Unhealthy, cluster.ReasonNodeNotFound, observe.ReadyUnknown},
		{"a proxy has no such page", http.NotFound, observe.Unknown, cluster.ReasonUnavailable, ""},
		{"it refuses the credentials", refusal(401, metav1.StatusReasonUnauthorized), observe.Unknown, cluster.ReasonUnauthorized, ""},
		{"it forbids it", refusal(403, metav1.StatusReasonForbidden), observe.Unknown, cluster.ReasonForbidden, ""},
		{"it fails", refusal(500, metav1.StatusReasonInternalError), observe.Unknown, cluster.ReasonUnavailable, ""},
		{"nobody listens", nil, observe.Unknown, cluster.ReasonRefused, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, dir := newSuite(t)
			server := httptest.NewServer(test.handler)
			defer server.Close()
			if test.handler == nil {
				server.Close()
			}
			kubeconfigOf(t, filepath.Join(dir, "kubeconfig"), server.URL)
			got := s.lookAtNode(t.Context(), time.Now())
			wantSeen(t, got, test.health, test.reason)
			if want := (observe.Node{Name: "n1", Server: server.URL, Ready: test.ready}); got.Value.Name != want.Name || got.Value.Server != want.Server || got.Value.Ready != want.Ready {
				t.Errorf("got %+v, want %+v", got.Value, want)
			}
		})
	}
}

func TestWithoutANodesNameOrCredentials(t *testing.T) {
	s, dir := newSuite(t)
	got := s.lookAtNode(t.Context(), time.Now())
	wantSeen(t, got, observe.Unknown, cluster.ReasonKubeconfigMissing, filepath.Join(dir, "kubeconfig"))

	kubeconfigOf(t, filepath.Join(dir, "kubeconfig"), "http://127.0.0.1:1")
	s.settings.hostName = ""
	got = s.lookAtNode(t.Context(), time.Now())
	wantSeen(t, got, observe.Unknown, cluster.ReasonNodeNotFound, "node.name")
}
