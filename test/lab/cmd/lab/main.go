//go:build linux

// Command lab brings up a real Kubernetes cluster with two nodes on this machine for a person to try things on, and leaves
// it up. See test/lab for what it is made of.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/aks-flex-node/agent/test/lab"
)

// dir is where the lab that is up has its kubeconfig, log and socket; there is one lab a machine. Only root can write
// beside it.
const dir = "/run/aks-flex-node-lab"

const usage = `usage: lab COMMAND
  up                          bring a cluster with the nodes n1 and n2 up and leave it up
  down                        stop it and remove all of it
  tools                       only build the Kubernetes programs, or find them, and print their folders
  exec NODE [COMMAND...]      run a command, or a shell, in a node's host
  cut | mend NODE             pull and plug in its cable
  drop | undrop NODE          lose all its packets silently, and no longer
  power-cut | boot NODE       switch it off as by pulling the plug, and on
  stop-api | start-api        stop the API server, and start it
  freeze-api | thaw-api       make the API server hang, and go on
`

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch args[0] {
	case "up":
		return up()
	case "tools":
		return tools()
	case "own": // started by up
		return own()
	case "exec":
		return enter(args[1:])
	}
	client, err := dial()
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.Call("Lab.Do", args, &struct{}{})
	if args[0] == "down" && errors.Is(err, io.ErrUnexpectedEOF) {
		return nil // it has ended without a complaint
	}
	return err
}

// tools builds what the tests use, so that the tests need not.
func tools() error {
	dir, err := lab.KubernetesTools(context.Background())
	if err != nil {
		return err
	}
	older, err := lab.KubeletVersion(context.Background(), "1.36")
	if err != nil {
		return err
	}
	fmt.Println(dir)
	fmt.Println(filepath.Dir(older))
	return nil
}

// dial connects to the owner of the lab that is up.
func dial() (*rpc.Client, error) {
	client, err := rpc.Dial("unix", filepath.Join(dir, "control"))
	if err != nil {
		return nil, fmt.Errorf("no lab is up here, bring one up with `make lab`: %w", err)
	}
	return client, nil
}

// up starts the process that owns the lab, shows what it says, and leaves it behind when the lab is up.
func up() error {
	if missing := lab.Missing(lab.ClusterPrograms()...); len(missing) > 0 {
		return errors.New(strings.Join(missing, "\n     "))
	}
	if client, err := dial(); err == nil {
		_ = client.Close()
		return errors.New("a lab is up already: end it with `make lab-down`")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	progress, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer progress.Close()
	owner := exec.Command("/proc/self/exe", "own") //nolint:noctx // stays when this process has gone
	owner.Stdout, owner.Stderr, owner.ExtraFiles = log, log, []*os.File{tell}
	owner.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(owner.Start(), tell.Close())
	if err != nil {
		return err
	}
	if _, err := io.Copy(os.Stdout, progress); err != nil {
		return err
	}
	if client, err := dial(); err == nil {
		return client.Close()
	}
	text, err := os.ReadFile(log.Name())
	return errors.Join(fmt.Errorf("the lab did not come up:\n%s", text), err)
}

// enter turns this process into a command in a node's host.
func enter(args []string) error {
	if len(args) == 0 {
		return errors.New("exec: name a node, n1 or n2")
	}
	client, err := dial()
	if err != nil {
		return err
	}
	var pid int
	if err := client.Call("Lab.PID", args[0], &pid); err != nil {
		return err
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	argv := append([]string{"nsenter", "--target", fmt.Sprint(pid), "--all", "--"}, args[1:]...)
	if len(args) == 1 {
		argv = append(argv, "bash")
	}
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "TERM=" + os.Getenv("TERM")}
	return syscall.Exec(nsenter, argv, env)
}
