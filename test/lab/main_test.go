//go:build linux

package lab

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable tells a test binary started by a test what to do instead of running tests.
const roleVariable = "LAB_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		goleak.VerifyTestMain(m)
	case "hold":
		os.Exit(holdHost())
	case "hold cluster":
		os.Exit(holdCluster())
	case "inside":
		name, err := os.Hostname()
		fmt.Println(name, os.Getpid() != 1, err)
	default:
		fmt.Fprintf(os.Stderr, "unknown role %q\n", role)
		os.Exit(2)
	}
}

// holdHost starts a host, says where it is, and stays until it is killed.
func holdHost() int {
	h, err := startHost(context.Background(), HostOptions{Name: "held"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(h.state.ID, h.PID())
	select {}
}

// holdCluster starts a cluster, freezes its API server, says where it is, and stays until it is killed.
func holdCluster() int {
	c, err := NewCluster(context.Background(), ClusterOptions{})
	if err == nil {
		err = c.FreezeAPI()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(c.state.ID, os.Getpid())
	select {}
}
