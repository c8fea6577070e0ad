package fakeentra

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// entra answers over TLS: the authority, and the issuer's documents.
func (s *Server) entra() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /common/discovery/instance", s.instance)
	mux.HandleFunc("GET /{tenant}/v2.0/.well-known/openid-configuration", s.discovery)
	mux.HandleFunc("GET /{tenant}/discovery/v2.0/keys", func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusOK, s.signer.keys()) })
	mux.HandleFunc("POST /{tenant}/oauth2/v2.0/token", s.token)
	return mux
}

// instance tells where the tenant of an authority that isn't Microsoft's own is discovered. SDKs ask this at PublicHost.
func (s *Server) instance(w http.ResponseWriter, r *http.Request) {
	asked, err := url.Parse(r.URL.Query().Get("authorization_endpoint"))
	if err != nil || asked.Host != s.host && asked.Host != PublicHost {
		write(w, http.StatusBadRequest, map[string]string{"error": "invalid_instance", "error_description": "AADSTS50049: Unknown or invalid instance."})
		return
	}
	tenant, _, _ := strings.Cut(strings.TrimPrefix(asked.Path, "/"), "/")
	write(w, http.StatusOK, map[string]any{
		"tenant_discovery_endpoint": "https://" + asked.Host + "/" + tenant + "/v2.0/.well-known/openid-configuration",
		"api-version":               "1.1",
		"metadata":                  []map[string]any{{"preferred_network": asked.Host, "preferred_cache": asked.Host, "aliases": []string{asked.Host}}},
	})
}

// discovery is the OpenID configuration, in the name of the host that was asked.
func (s *Server) discovery(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("tenant") != s.tenant {
		s.Refuse(w, http.StatusBadRequest, "invalid_tenant", "AADSTS90002: Tenant '"+r.PathValue("tenant")+"' not found.")
		return
	}
	base := "https://" + r.Host + "/" + s.tenant
	write(w, http.StatusOK, map[string]any{
		"issuer":                                base + "/v2.0",
		"authorization_endpoint":                base + "/oauth2/v2.0/authorize",
		"token_endpoint":                        base + "/oauth2/v2.0/token",
		"jwks_uri":                              base + "/discovery/v2.0/keys",
		"response_types_supported":              []string{"code", "id_token"},
		"subject_types_supported":               []string{"pairwise"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
	})
}

// token is the token endpoint, for service principals with a secret, a certificate or a federated token.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		s.Refuse(w, http.StatusBadRequest, "invalid_request", err.Error())
		return
	}
	client := r.PostForm.Get("client_id")
	resource := resourceOf(r.PostForm)
	answers := s.saw(Seen{Path: r.URL.Path, Resource: resource, Client: client})
	if answers.Instead != nil {
		answers.Instead(w, r)
		return
	}
	switch status, code, text := answers.judge(r.PostForm); {
	case r.PostForm.Get("grant_type") != "client_credentials":
		s.Refuse(w, http.StatusBadRequest, "unsupported_grant_type", "AADSTS70003: The app requested an unsupported grant type.")
	case resource == "":
		s.Refuse(w, http.StatusBadRequest, "invalid_scope", "AADSTS1002012: The provided value for scope is not valid.")
	case status != 0:
		s.Refuse(w, status, code, text)
	default:
		s.Give(w, r)
	}
}

// resourceOf returns what a token is asked for; empty when that isn't said. SDKs add openid and others to the scope that they are given.
func resourceOf(form url.Values) string {
	for scope := range strings.FieldsSeq(form.Get("scope")) {
		if resource, ok := strings.CutSuffix(scope, "/.default"); ok {
			return resource
		}
	}
	return ""
}

// judge says why a service principal gets no token; a status of 0 says that it gets one.
func (a *Answers) judge(form url.Values) (status int, code, text string) {
	if a.Secrets == nil && a.Assertions == nil {
		return 0, "", ""
	}
	client := form.Get("client_id")
	secret, hasSecret := a.Secrets[client]
	assertion, hasAssertion := a.Assertions[client]
	switch {
	case !hasSecret && !hasAssertion:
		return http.StatusBadRequest, "unauthorized_client", "AADSTS700016: Application with identifier '" + client + "' was not found in the directory."
	case hasSecret && form.Get("client_secret") == secret, hasAssertion && form.Get("client_assertion") == assertion:
		return 0, "", ""
	case form.Get("client_assertion") != "":
		return http.StatusUnauthorized, "invalid_client", "AADSTS700213: No matching federated identity record found for presented assertion."
	}
	return http.StatusUnauthorized, "invalid_client", "AADSTS7000215: Invalid client secret provided."
}

// Give answers a request at the token endpoint of a service principal with a token, whoever asks.
func (s *Server) Give(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm() // what is missing is empty
	claims := map[string]any{"appid": r.PostForm.Get("client_id"), "appidacr": "1"}
	if resource := resourceOf(r.PostForm); resource != "" {
		claims["aud"] = resource
	}
	kind := "Bearer"
	if r.PostForm.Get("token_type") == "pop" {
		kind = "pop"
		if text, err := base64.RawURLEncoding.DecodeString(r.PostForm.Get("req_cnf")); err == nil {
			claims["cnf"] = json.RawMessage(text)
		}
	}
	token, lifetime, err := s.issue(claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	seconds := int(lifetime.Seconds())
	write(w, http.StatusOK, map[string]any{"token_type": kind, "expires_in": seconds, "ext_expires_in": seconds, "access_token": token})
}

// Refuse answers with an error as Entra words it.
func (s *Server) Refuse(w http.ResponseWriter, status int, code, text string) {
	write(w, status, map[string]any{
		"error":             code,
		"error_description": text + " Trace ID: 00000000-0000-0000-0000-000000000000 Correlation ID: 00000000-0000-0000-0000-000000000001 Timestamp: " + time.Now().UTC().Format("2006-01-02 15:04:05Z"),
		"trace_id":          "00000000-0000-0000-0000-000000000000",
	})
}

// Token returns a token with the usual claims, then those of Answers.Claims, then these over them; a nil claim is left out.
func (s *Server) Token(claims map[string]any) (string, error) {
	s.mu.Lock()
	usual := s.answers.Claims
	lifetime := s.answers.Lifetime
	s.mu.Unlock()
	if lifetime == 0 {
		lifetime = DefaultLifetime
	}
	now := time.Now()
	all := map[string]any{
		"iss": s.Issuer(), "tid": s.tenant, "oid": DefaultObjectID, "sub": DefaultObjectID, "idtyp": "app", "ver": "2.0",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(lifetime).Unix(),
	}
	maps.Copy(all, usual)
	maps.Copy(all, claims)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return s.signer.sign(all)
}

// issue signs a token for a request. The test's claims win over those of the request.
func (s *Server) issue(claims map[string]any) (token string, lifetime time.Duration, err error) {
	s.mu.Lock()
	lifetime = s.answers.Lifetime
	maps.Copy(claims, s.answers.Claims)
	s.mu.Unlock()
	if lifetime == 0 {
		lifetime = DefaultLifetime
	}
	token, err = s.Token(claims)
	return token, lifetime, err
}

func write(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, fmt.Sprint(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have gone
}
