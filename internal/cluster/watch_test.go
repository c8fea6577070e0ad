package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// While a kubelet is down, its arguments are not known, and whoever asks meanwhile asks another source. The watch must survive that, also
// when the source is the old one again before it has looked.
func TestTheWatchSurvivesThatAnotherSourceIsAsked(t *testing.T) {
	s := newAPIServer(t, nil, answerStatus(http.StatusForbidden, metav1.StatusReasonForbidden))
	source := Source{Kubeconfig: s.kubeconfig(t, nil), NodeName: "n1"}
	other := source
	other.NodeName = "n2"
	client := newClient(t)
	w := NewWatcher(client, func() Source { return source }, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { w.Run(ctx) })
	answered := func() bool { return ReasonOf(w.State().Err) == ReasonForbidden }
	eventually(t, "the watch is answered", answered)
	s.visitors()
	_, _ = client.Node(ctx, other) // whether it is answered before the watch takes its connection back does not matter
	eventually(t, "the watch asks again", func() bool { return slices.Contains(s.visitors(), "/api/v1/nodes Bearer a-token") })
	eventually(t, "the watch is answered again", func() bool { return answered() && !errors.Is(w.State().Err, net.ErrClosed) })
}
