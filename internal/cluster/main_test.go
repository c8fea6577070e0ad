package cluster

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(pluginMode); mode != "" {
		os.Exit(plugin(mode))
	}
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
		os.Unsetenv(name) // a proxy of this machine would answer in the place of hosts that are not there
	}
	goleak.VerifyTestMain(m)
}

// The test program is its own credential plugin: these variables, which only a kubeconfig of these tests sets, make it one.
const (
	pluginMode   = "CLUSTER_TEST_PLUGIN"        // print, fail, hang
	pluginAnswer = "CLUSTER_TEST_PLUGIN_ANSWER" // the file that it prints
	pluginRuns   = "CLUSTER_TEST_PLUGIN_RUNS"   // the file to which it adds a line for each run: its pid and its KUBERNETES_EXEC_INFO
	pluginSees   = "CLUSTER_TEST_PLUGIN_SEES"   // a variable whose value it prints as its token
)

func plugin(mode string) int {
	if err := noteRun(os.Getenv(pluginRuns)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 100
	}
	switch mode {
	case "fail":
		fmt.Println("a secret that must not be shown")
		fmt.Fprintln(os.Stderr, "AADSTS7000215: Invalid client secret provided")
		return 3
	case "hang":
		time.Sleep(10 * time.Minute) //nolint:forbidigo // it hangs, though not for ever
		return 0
	}
	answer, err := os.ReadFile(os.Getenv(pluginAnswer))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 100
	}
	fmt.Print(strings.ReplaceAll(string(answer), "$SEEN", os.Getenv(os.Getenv(pluginSees))))
	return 0
}

func noteRun(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d %s\n", os.Getpid(), os.Getenv("KUBERNETES_EXEC_INFO"))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
