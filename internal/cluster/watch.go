package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// leaseEvery is how often the Lease is asked for. A watch of it would bring a change every ten seconds, which nobody needs.
	leaseEvery = time.Minute
	// sourceEvery is how often the files behind the credentials are looked at: that costs a few stats.
	sourceEvery = 5 * time.Second
)

// watchBackoff lets a watch that failed be back within seconds of what it waits for, and keeps a fleet from calling in step.
func watchBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 5 * time.Second}
}

// Watcher keeps this node's Node as the API server has it, by one watch, and the age of its Lease by one GET a minute. It carries on
// through restarts of the API server, expired versions, lost links and renewed credentials. Run makes it work.
type Watcher struct {
	client  *Client
	source  func() Source
	changed func()

	mu    sync.Mutex // guards the fields below
	conn  *connection
	state WatchState
}

// WatchState is what a Watcher knows.
type WatchState struct {
	Answer
	// Known: the API server has told about the Node in this connection. Then a nil Node means that it has none.
	Known bool
	// Confirmed is when the API server was last heard from: Node is what it had then, or had changed since without our knowing.
	Confirmed time.Time
	// Err is why nothing is being heard; nil while the watch stands.
	Err error
}

// NewWatcher returns a Watcher that asks over client. source is called every few seconds for where to ask; changed is called after each
// change of the state, and must not block. Both are called by Run alone.
func NewWatcher(client *Client, source func() Source, changed func()) *Watcher {
	return &Watcher{client: client, source: source, changed: changed}
}

// State returns what is known now.
func (w *Watcher) State() WatchState {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.state
	if w.conn != nil {
		s.Confirmed = w.conn.dialer.lastHeard()
	}
	return s
}

func (w *Watcher) set(change func(*WatchState)) {
	w.mu.Lock()
	change(&w.state)
	w.mu.Unlock()
	w.changed()
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	ctx = quiet(ctx)
	for ctx.Err() == nil {
		source := w.source()
		conn, err := w.client.connect(source)
		if err != nil {
			w.set(func(s *WatchState) { *s = WatchState{Answer: Answer{NodeName: source.NodeName}, Err: err} })
			pause(ctx, sourceEvery)
			continue
		}
		w.mu.Lock()
		w.conn = conn
		w.mu.Unlock()
		w.set(func(s *WatchState) {
			*s = WatchState{Answer: Answer{NodeName: conn.nodeName, Server: conn.credentials.config.Host}, Err: errNotYet}
		})
		w.watch(ctx, conn)
	}
}

var errNotYet = reasoned(ReasonUnavailable, errors.New("no answer yet"))

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// watch runs the watch over one connection until that is no longer the right one.
func (w *Watcher) watch(ctx context.Context, conn *connection) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	store := nodeStore{w}
	reflector := cache.NewReflectorWithOptions(w.listWatch(conn), &corev1.Node{}, store, cache.ReflectorOptions{
		Name: "node", Backoff: watchBackoff(), Logger: &klog.Logger{},
	})
	all.Go(func() { reflector.RunWithContext(ctx) })
	all.Go(func() {
		for ctx.Err() == nil {
			w.askForLease(ctx, conn)
			pause(ctx, leaseEvery)
		}
	})
	check := time.NewTicker(sourceEvery)
	defer check.Stop()
	for ctx.Err() == nil {
		select {
		case <-conn.dialer.over(): // somebody asked another source over the Client, which may be the one of before again by now
			return
		case <-check.C:
		case <-ctx.Done():
		}
		if !conn.source.equal(w.source()) || !conn.credentials.stillCurrent() {
			return
		}
	}
}

func (w *Watcher) askForLease(ctx context.Context, conn *connection) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	renewed, err := conn.leaseRenewed(ctx)
	if err == nil {
		w.set(func(s *WatchState) { s.LeaseRenewed = renewed })
	}
}

// listWatch asks for the one Node, and notes how that goes.
func (w *Watcher) listWatch(conn *connection) *cache.ListWatch {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, conn.nodeName).String()
	codec := runtime.NewParameterCodec(conn.scheme)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = one
			list := &corev1.NodeList{}
			err := conn.rest.Get().MaxRetries(0).Resource("nodes").VersionedParams(&o, codec).Do(ctx).Into(list)
			w.note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector, o.Watch = one, true
			stream, err := conn.rest.Get().MaxRetries(0).Resource("nodes").VersionedParams(&o, codec).Watch(ctx)
			w.note(err)
			return stream, err
		},
	}
}

// note keeps the outcome of a call. That a version expired is part of a watch's life.
func (w *Watcher) note(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, context.Canceled) {
		return
	}
	w.mu.Lock()
	same := (err == nil) == (w.state.Err == nil) && (err == nil || ReasonOf(err) == ReasonOf(w.state.Err))
	w.state.Err = err
	w.mu.Unlock()
	if !same {
		w.changed()
	}
}

// nodeStore is where the reflector puts what it is told. It holds one Node, or none.
type nodeStore struct{ w *Watcher }

func (s nodeStore) put(n *corev1.Node) error {
	s.w.set(func(state *WatchState) { state.Node, state.Known = n, true })
	return nil
}

func (s nodeStore) accept(obj any) error {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return fmt.Errorf("want a Node, got %T", obj)
	}
	return s.put(n)
}

// Add implements cache.ReflectorStore.
func (s nodeStore) Add(obj any) error { return s.accept(obj) }

// Update implements cache.ReflectorStore.
func (s nodeStore) Update(obj any) error { return s.accept(obj) }

// Delete implements cache.ReflectorStore.
func (s nodeStore) Delete(any) error { return s.put(nil) }

// Replace implements cache.ReflectorStore.
func (s nodeStore) Replace(all []any, _ string) error {
	if len(all) == 0 {
		return s.put(nil)
	}
	return s.accept(all[0])
}

// Resync implements cache.ReflectorStore.
func (nodeStore) Resync() error { return nil }

// NoNode is the error of a GET for a Node that the API server does not have.
func NoNode(name string) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
}

// Silent is the error of an API server that has not been heard from for some time, or never.
func Silent(since time.Duration) error {
	if since <= 0 {
		return errNotYet
	}
	return reasoned(ReasonTimeout, fmt.Errorf("not heard from for %s", since.Round(time.Second)))
}
