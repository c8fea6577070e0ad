package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// aToken is shaped like one; its parts are not worth anything.
const aToken = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJhdWQiOiJzIiwiaXNzIjoiaSJ9.AAECAwQFBgcICQoLDA0ODw"

// answered is the SDK's error about an HTTP answer.
func answered(status int, body string) error {
	return fmt.Errorf("get token: %w", &azidentity.AuthenticationFailedError{RawResponse: &http.Response{
		StatusCode: status, Body: io.NopCloser(bytes.NewBufferString(body)),
		Request: &http.Request{Method: http.MethodPost, URL: &url.URL{Scheme: "https", Host: "login.example", Path: "/t/oauth2/v2.0/token"}},
	}})
}

func TestAFailureIsOneLineForPeople(t *testing.T) {
	spn := &Options{LoginMethod: "spn", ClientSecret: "s3cret/+="}
	msi := &Options{LoginMethod: "msi"}
	for name, c := range map[string]struct {
		err     error
		options *Options
		want    string
	}{
		"refused": {answered(401, `{"error":"invalid_client","error_description":"AADSTS7000222: The provided client secret keys are expired.\r\nTrace ID: 1\r\n"}`), spn,
			"login.example answered 401 Unauthorized: invalid_client: AADSTS7000222: The provided client secret keys are expired. Trace ID: 1; check AZURE_CLIENT_ID, AZURE_TENANT_ID, and the secret or certificate and when it ends"},
		"trouble":        {answered(500, `{"error":"server_error"}`), spn, "login.example answered 500 Internal Server Error: server_error"},
		"page":           {answered(502, "<html>"), spn, "login.example answered 502 Bad Gateway; " + notEntra},
		"nothing":        {answered(403, ""), msi, "login.example answered 403 Forbidden"},
		"of app service": {answered(400, `{"statusCode":400,"message":"No identity"}`), msi, "login.example answered 400 Bad Request: No identity; check that this machine has this managed identity"},
		"secret told":    {answered(400, `{"error":"x","error_description":"you sent s3cret/+= and s3cret%2F%2B%3D"}`), &Options{LoginMethod: "azurecli", ClientSecret: spn.ClientSecret}, "login.example answered 400 Bad Request: x: you sent [secret] and [secret]"},
		"token quoted": {errors.New("ClientSecretCredential: json decode error: bad\nraw message was: {\"access_token\":\"" + aToken + "\"}. To troubleshoot, visit https://aka.ms/x"), spn,
			"json decode error: bad; " + notEntra},
		"link":          {errors.New("ClientSecretCredential: Get \"https://l/\": dial tcp: lookup l: no such host. To troubleshoot, visit https://aka.ms/x"), spn, `Get "https://l/": dial tcp: lookup l: no such host; ` + noLink},
		"no Arc":        {errors.New("Get \"http://127.0.0.1:40342\": dial tcp 127.0.0.1:40342: connect: connection refused"), msi, `Get "http://127.0.0.1:40342": dial tcp 127.0.0.1:40342: connect: connection refused; ` + noIdentity},
		"no trust":      {errors.New("tls: failed to verify certificate: x509: certificate signed by unknown authority"), spn, "tls: failed to verify certificate: x509: certificate signed by unknown authority; " + noTrust},
		"one identity":  {errors.New("failed to create managed identity credential: Azure Arc doesn't support user-assigned managed identities"), msi, "failed to create managed identity credential: Azure Arc doesn't support user-assigned managed identities; unset AZURE_CLIENT_ID: this machine has one identity only"},
		"control signs": {errors.New("a\x1b[31m\x00b\x7f"), spn, "a[31mb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := explain(c.err, c.options).Error(); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestALongFailureIsCut(t *testing.T) {
	got := explain(errors.New(strings.Repeat("ä", 10000)), &Options{LoginMethod: "spn"}).Error()
	if len(got) > maxText+10 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("got %d bytes that end with %q, want at most %d and a sign that it was cut", len(got), got[len(got)-8:], maxText)
	}
}

// FuzzExplain holds that whatever is answered, the text is one short line, and neither the token nor the secret is in it.
func FuzzExplain(f *testing.F) {
	for _, seed := range []string{"", "{", "json", `{"error":"x"}`, `{"error_description":"`, "\n\n\x1b", "a. To troubleshoot, visit b", `\"access_token\":\"`} {
		f.Add(400, seed, seed)
		f.Add(0, seed, "raw message was: ")
	}
	f.Fuzz(func(t *testing.T, status int, before, after string) {
		const secret = "S3cr~t+/= of the node"
		o := &Options{LoginMethod: "spn", ClientSecret: secret}
		for _, hidden := range []string{secret, aToken, `{"access_token":"opaque-t0ken"}`} {
			err := errors.New(before + hidden + after)
			if status != 0 {
				body, _ := json.Marshal(map[string]string{"error_description": before + hidden + after})
				err = answered(status, string(body))
			}
			got := explain(err, o).Error()
			if strings.ContainsAny(got, "\n\r\x00\x1b") || len(got) > maxText+200 {
				t.Errorf("got %q, want a short line", got)
			}
			for _, s := range []string{secret, aToken, aToken[:30], "opaque-t0ken"} {
				if strings.Contains(got, s) && !strings.Contains(before+after, s) {
					t.Errorf("got %q, which tells a secret", got)
				}
			}
		}
	})
}
