package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Reasons why the API server gave no answer, each its own, because each is mended in another place.
const (
	ReasonKubeconfigMissing    = "KubeconfigMissing"
	ReasonKubeconfigUnreadable = "KubeconfigUnreadable"
	ReasonKubeconfigInvalid    = "KubeconfigInvalid"
	ReasonKubeconfigUnsafe     = "KubeconfigUnsafe"
	ReasonPluginFailed         = "CredentialPluginFailed"
	ReasonUnauthorized         = "Unauthorized"
	ReasonForbidden            = "Forbidden"
	ReasonNodeNotFound         = "NodeNotFound"
	ReasonDNS                  = "DNSLookupFailed"
	ReasonRefused              = "ConnectionRefused"
	ReasonTimeout              = "ConnectionTimeout"
	ReasonTLS                  = "TLSFailed"
	ReasonUnavailable          = "APIServerUnavailable"
)

// Error is a failure with the reason that ReasonOf found for it.
type Error struct {
	Reason string
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func reasoned(reason string, err error) error { return &Error{Reason: reason, Err: err} }

// ReasonOf says which kind of failure an error of this package is. It is ReasonUnavailable for one that it does not know.
func ReasonOf(err error) string {
	var ours *Error
	var dns *net.DNSError
	switch {
	case errors.As(err, &ours):
		return ours.Reason
	case apierrors.IsUnexpectedServerError(err):
		return ReasonUnavailable // no API server words it so: a proxy's page of any status says nothing about the Node
	case apierrors.IsUnauthorized(err):
		return ReasonUnauthorized
	case apierrors.IsForbidden(err):
		return ReasonForbidden
	case apierrors.IsNotFound(err):
		return ReasonNodeNotFound
	case isTLS(err):
		return ReasonTLS
	case errors.As(err, &dns):
		return ReasonDNS
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonRefused
	case isTimeout(err):
		return ReasonTimeout
	}
	return ReasonUnavailable
}

func isTLS(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		record       tls.RecordHeaderError
		alert        tls.AlertError
		authority    x509.UnknownAuthorityError
		hostname     x509.HostnameError
		invalid      x509.CertificateInvalidError
		said         *net.OpError // an alert from the other side, for which crypto/tls has no type
	)
	if errors.Is(err, http.ErrSchemeMismatch) || (errors.As(err, &said) && said.Op == "remote error") {
		return true
	}
	return errors.As(err, &verification) || errors.As(err, &record) || errors.As(err, &alert) ||
		errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid)
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
		(errors.As(err, &timeout) && timeout.Timeout())
}

// Explain turns an error into a sentence that says what failed, on what, and what to look at next.
func Explain(err error, server string) string {
	text := map[string]string{
		ReasonUnauthorized: "the API server %s does not know these credentials (they may have expired, or the cluster was made anew)",
		ReasonForbidden:    "the API server %s does not let these credentials read this Node: see the RBAC of the agent",
		ReasonNodeNotFound: "the API server %s has no Node of this name: it was deleted, or the kubelet never registered",
		ReasonDNS:          "the name of the API server %s can't be resolved: check DNS",
		ReasonRefused:      "the API server %s refuses connections: it is down, or a firewall is in between",
		ReasonTimeout:      "the API server %s did not answer in time: check the link",
		ReasonTLS:          "no trusted connection to the API server %s",
		ReasonUnavailable:  "the API server %s could not be asked",
	}[ReasonOf(err)]
	if text == "" {
		return err.Error() // those name what they are about
	}
	return fmt.Sprintf(text+": %v", server, err)
}
