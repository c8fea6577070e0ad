// Package localapi lets programs on this host ask the agent what it knows and tell it to pause: HTTP over a unix socket, and the metrics
// page. It holds the server and the client; docs/localapi.md and docs/metrics.md describe both for people.
//
// Its three goals: only root and the agent's own user get in; no client, however slow or broken, can hold up the agent, another client or
// the agent's end; and it judges nothing, so that every answer is the agent's own word (see agent.View).
package localapi
