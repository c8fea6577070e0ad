// Package token gets an Entra token for the cluster, in the form in which Kubernetes clients ask credential plugins for it.
//
// Kubelets run it whenever their token ends, so that a node's life hangs on it: it answers within a deadline, keeps nothing on the disk,
// and its errors are one line that holds no secret. The login methods are those of github.com/Azure/kubelogin that need no person; what is
// ours is reading the settings, the ExecCredential, and saying what went wrong.
package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	kubelogin "github.com/Azure/kubelogin/pkg/token"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthentication "k8s.io/client-go/pkg/apis/clientauthentication/v1"
)

// DefaultTimeout is how long getting a token may take. It is shorter than the 40 seconds in which a kubelet must renew its Lease: after an
// answer that was lost, it can ask once more before the node counts as gone.
const DefaultTimeout = 30 * time.Second

// grace is what a login may take to say why it failed, once its time is over.
const grace = time.Second

// The versions of ExecCredential. Both have the same form, as far as a plugin fills it.
const (
	apiV1      = "client.authentication.k8s.io/v1"
	apiV1beta1 = "client.authentication.k8s.io/v1beta1"
)

// Options are the settings of a login, as the command line gives them. What is empty may come from the environment.
type Options = kubelogin.Options

// Request is one question for a credential.
type Request struct {
	Options  Options
	ExecInfo string        // the value of KUBERNETES_EXEC_INFO; empty asks for v1beta1, as in kubelogin
	Timeout  time.Duration // 0 is DefaultTimeout
}

// ExecCredential returns the answer to a request, a JSON text of one line, and notes for people about it. The environment (AAD_* and
// AZURE_* variables) wins over r.Options. Errors are one line and hold no secret. It returns within r.Timeout and a second; it may then
// leave a goroutine behind, if something in the login can't be interrupted, such as a file system that hangs.
func ExecCredential(ctx context.Context, r Request) (answer []byte, notes []string, err error) {
	version, err := apiVersion(r.ExecInfo)
	if err != nil {
		return nil, nil, err
	}
	options := withEnvironment(r.Options)
	if err := check(&options); err != nil {
		return nil, nil, err
	}
	if options.IsPoPTokenEnabled && options.LoginMethod != kubelogin.ServicePrincipalLogin {
		notes = append(notes, fmt.Sprintf("--pop-enabled was not used: login method %s gives bearer tokens only", options.LoginMethod))
	}
	if r.Timeout == 0 {
		r.Timeout = DefaultTimeout
	}
	token, err := get(ctx, options, r.Timeout)
	if err != nil {
		return nil, notes, err
	}
	if !token.ExpiresOn.IsZero() && !token.ExpiresOn.After(time.Now()) {
		// Whether it has really ended, the API server knows better than this node's clock.
		notes = append(notes, fmt.Sprintf("by this node's clock the token ended at %s: check the clock", token.ExpiresOn.UTC().Format(time.RFC3339)))
	}
	answer, err = encode(version, token)
	return answer, notes, err
}

// apiVersion returns the version of ExecCredential that a value of KUBERNETES_EXEC_INFO asks for.
func apiVersion(execInfo string) (string, error) {
	if execInfo == "" {
		return apiV1beta1, nil
	}
	var asked struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal([]byte(execInfo), &asked); err != nil {
		return "", fmt.Errorf("KUBERNETES_EXEC_INFO is not an ExecCredential in JSON: %w", err)
	}
	switch asked.APIVersion {
	case "":
		return apiV1beta1, nil
	case apiV1, apiV1beta1:
		return asked.APIVersion, nil
	}
	return "", fmt.Errorf("KUBERNETES_EXEC_INFO asks for apiVersion %.80q: set %s in the kubeconfig's exec section", asked.APIVersion, apiV1)
}

func encode(version string, token kubelogin.AccessToken) ([]byte, error) {
	c := clientauthentication.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: "ExecCredential"},
		Status:   &clientauthentication.ExecCredentialStatus{Token: token.Token},
	}
	if !token.ExpiresOn.IsZero() {
		c.Status.ExpirationTimestamp = &metav1.Time{Time: token.ExpiresOn}
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, errors.New("the token could not be written as JSON")
	}
	return append(text, '\n'), nil
}

// errHangs says that a login didn't even notice that its time was over. The network is not like that.
var errHangs = errors.New("it hangs while it reads a file or runs a program")

// get carries out the login.
func get(ctx context.Context, options Options, timeout time.Duration) (kubelogin.AccessToken, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	type outcome struct {
		token kubelogin.AccessToken
		err   error
	}
	done := make(chan outcome, 1)
	var seen progress
	go func() {
		provider, err := kubelogin.GetTokenProvider(&options)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		token, err := provider.GetAccessToken(seen.watch(ctx))
		done <- outcome{token, err}
	}()

	var out outcome
	select {
	case out = <-done:
	case <-ctx.Done():
		select {
		case out = <-done:
		case <-time.After(grace):
			out.err = errHangs
		}
	}
	if out.err == nil && out.token.Token == "" {
		out.err = errors.New("the answer holds none")
	}
	switch {
	case out.err == nil:
		return out.token, nil
	case errors.Is(ctx.Err(), context.Canceled):
		return out.token, errors.New("interrupted before there was a token")
	case ctx.Err() != nil:
		if where := seen.reached(); where != "" && !errors.Is(out.err, errHangs) {
			out.err = errors.New(where) // the SDK's own error says only that the time was over
		}
		return out.token, fmt.Errorf("no token within %s by login method %s: %w", timeout, options.LoginMethod, explain(out.err, &options))
	}
	return out.token, fmt.Errorf("no token by login method %s: %w", options.LoginMethod, explain(out.err, &options))
}
