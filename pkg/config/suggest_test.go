package config

import (
	"strings"
	"testing"
)

func TestNearestKey(t *testing.T) {
	for _, c := range []struct{ section, name, want string }{
		{"agent", "logLevl", "agent.logLevel"},
		{"agent", "LOG_LEVEL", "agent.logLevel"},
		{"", "azrue", "azure"},
		{"", "kubelet", "node.kubelet"},
		{"node", "verbosity", "node.kubelet.verbosity"},
		{"node.kubelet", "maxPod", "node.maxPods"},
		{"node.kubelet", "imageGCHigh", ""},
		{"", "tenantId", "azure.tenantId"},
		{"", "version", ""}, // of what?
		{"azure", "subscription", "azure.subscriptionId"},
		{"azure", "subscriptionI", "azure.subscriptionId"},
		{"azure.servicePrincipal", "secret", ""},
		{"agent", "colour", ""},
		{"agent", "", ""},
		{"agent", strings.Repeat("l", 5000), ""},
	} {
		if got := nearestKey(allKeys(), c.section, c.name); got != c.want {
			t.Errorf("%q in %q: got %q, want %q", c.name, c.section, got, c.want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 2}, {"kitten", "sitting", 3}, {"a", "abcdefgh", 7},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: got %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a); got != c.want {
			t.Errorf("%q to %q: got %d, want %d", c.b, c.a, got, c.want)
		}
	}
}
