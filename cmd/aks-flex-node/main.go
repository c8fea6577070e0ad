// Command aks-flex-node is the node agent. See README.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/aks-flex-node/agent/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	code := cli.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
