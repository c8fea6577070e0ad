package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	kubelogin "github.com/Azure/kubelogin/pkg/token"
)

// maxText bounds what is told of a failure, in bytes: more than the longest text that Entra sends.
const maxText = 700

// explain returns the failure of a login as one line without secrets. The SDK's own texts are whole HTTP answers over many lines, and those
// about an answer that it can't read quote it, with the token that may be in it.
func explain(err error, o *Options) error {
	var failed *azidentity.AuthenticationFailedError
	if errors.As(err, &failed) && failed.RawResponse != nil {
		text, hint := refusal(failed.RawResponse, o.LoginMethod)
		return told(text, hint, o)
	}
	text := withoutAnswer(err.Error())
	return told(text, hint(text, o.LoginMethod), o)
}

func told(text, hint string, o *Options) error {
	text = strings.TrimRight(scrub(text, o.ClientSecret, o.ClientCertPassword), ". ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	if hint != "" {
		text += "; " + hint
	}
	return errors.New(text)
}

// refusal tells an HTTP answer that is not a token, and what to do next. Of its body only the fields that are meant for people are told.
func refusal(resp *http.Response, method string) (text, hint string) {
	who := "the endpoint"
	if resp.Request != nil && resp.Request.URL != nil {
		who = resp.Request.URL.Host
	}
	text = fmt.Sprintf("%s answered %d %s", who, resp.StatusCode, http.StatusText(resp.StatusCode))
	var body struct {
		Error            string `json:"error"`
		ErrorDescription string `json:"error_description"`
		Message          string `json:"message"`
	}
	content, err := runtime.Payload(resp)
	switch {
	case err != nil || len(content) == 0:
		return text, ""
	case json.Unmarshal(content, &body) != nil:
		return text, notEntra
	}
	for _, part := range []string{body.Error, body.ErrorDescription, body.Message} {
		if part = oneLine(part); part != "" {
			text += ": " + part
		}
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		if body.Error == "invalid_instance" {
			return text, "check AZURE_AUTHORITY_HOST"
		}
		return text, refusedHint(method)
	}
	return text, ""
}

// withoutAnswer drops what the SDK quotes of an answer, and its layout.
func withoutAnswer(text string) string {
	for _, mark := range []string{"raw message was:", "json message bytes were:", ". To troubleshoot, visit", " To troubleshoot, visit"} {
		text, _, _ = strings.Cut(text, mark)
	}
	return credentialName.ReplaceAllString(oneLine(text), "")
}

// credentialName is how the SDK begins its texts. The login method says the same.
var credentialName = regexp.MustCompile(`^[A-Za-z]+Credential: `)

// oneLine replaces every run of white space by a space, and drops other control characters.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text)
}

// jwt matches a token, or the start of one. Its first part is JSON, so that it begins like this.
var jwt = regexp.MustCompile(`eyJ[A-Za-z0-9_=-]{5,}(\.[A-Za-z0-9_=-]*)*`)

// secretField matches a JSON field that holds a secret, also one that is cut short or quoted once more.
var secretField = regexp.MustCompile(`(\\*"(?:access_token|refresh_token|id_token|client_secret|client_assertion)\\*"\s*:\s*\\*")[^"\\]*`)

// scrub takes secrets out of a text: these, everything that looks like a token, and fields that hold one.
func scrub(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "[secret]")
			text = strings.ReplaceAll(text, url.QueryEscape(s), "[secret]")
		}
	}
	text = secretField.ReplaceAllString(text, "${1}[secret]")
	return jwt.ReplaceAllString(text, "[token]")
}

// What to do next.
const (
	notEntra   = "this is not how Entra answers: check HTTPS_PROXY, and AZURE_AUTHORITY_HOST if it is set"
	noTrust    = "if a proxy opens this connection, let the connection pass or trust the proxy's CA (SSL_CERT_FILE)"
	noLink     = "check the link to it, and HTTPS_PROXY"
	noIdentity = "is this machine connected to Azure Arc (azcmagent show), or a virtual machine of Azure?"
)

// hint says what to do next about a failure that is no refusal, as far as that follows from its text.
func hint(text, method string) string {
	for _, h := range []struct{ sign, hint string }{
		{"user-assigned", "unset AZURE_CLIENT_ID: this machine has one identity only"},
		{"/var/opt/azcmagent/tokens", "run as root, or as a member of group himds"},
		{"json", notEntra},
		{"x509:", noTrust},
	} {
		if strings.Contains(text, h.sign) {
			return h.hint
		}
	}
	network := slices.ContainsFunc([]string{"dial ", "lookup ", "no connection", "no answer", "answers, but", "connection re", "EOF", "imeout"},
		func(sign string) bool { return strings.Contains(text, sign) })
	switch {
	case network && method == kubelogin.MSILogin:
		return noIdentity
	case network:
		return noLink
	}
	return ""
}

// refusedHint says what to do next when a login method is refused.
func refusedHint(method string) string {
	switch method {
	case kubelogin.ServicePrincipalLogin:
		return "check AZURE_CLIENT_ID, AZURE_TENANT_ID, and the secret or certificate and when it ends"
	case kubelogin.WorkloadIdentityLogin:
		return "check AZURE_CLIENT_ID, AZURE_TENANT_ID, and the application's federated credential"
	case kubelogin.MSILogin:
		return "check that this machine has this managed identity"
	}
	return ""
}
